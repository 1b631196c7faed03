"""A cascade's definition as PyTorch code that a person would have written: unfused, step by step, for checking kernels.

    reduction, producer, output := one line each, in order; what stands twice is computed once, under a name

A value is a tensor whose dimensions are its own axes, lined up by `torch_terms`. Sums of products are `einsum`, masks
`torch.where`, computed places PyTorch's own indexing. As in the reference, exp of a masked sum and 0·log 0 are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isnan, prod
from typing import Any, final

from sympy import Add, And, Expr, Mod, Mul, Not, Or, Pow, S, exp, floor, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.decompose.cascade import Cascade, Reduction
from redalg.errors import PlanError
from redalg.expression import Axis, Cast, Element, Extent, Let, Reduce, Scalar, Value, Where
from redalg.expression.contents import is_indicator, values_of
from redalg.expression.dtypes import DTYPES
from redalg.expression.infinite import infinite_terms
from redalg.expression.operators import operator_of
from redalg.incremental.factors import group_factors
from redalg.lower_tile.ir.names import Names, kernel_name
from redalg.monoids.functions import IsNaN
from redalg.unfused.torch_terms import (
    ATOM,
    POWER,
    PRODUCT,
    RELATION,
    SUM,
    Layout,
    Term,
    axis_letters,
    is_reciprocal,
    repeated_expressions,
)

ALONG = {"sum": "sum", "prod": "prod", "scaled_product": "prod", "compensated_sum": "sum", "max": "amax",
         "min": "amin", "any": "amax", "all": "amin"}  # fmt: skip
"""The methods that reduce along a dimension."""
OTHER_NAMES = ("definition", "exponential", "first_pass", "check", "in_parts", "dtype")
"""The other names that a file defines."""

EXPONENTIAL = '''
def exponential(x, *terms):
    """e^x, and 0 where one of the terms of x is -inf: what is masked has no weight, whatever lies beside it."""
    for term in terms:
        x = torch.where(term == -torch.inf, -torch.inf, x)
    return torch.exp(x)
'''.strip()


@final
@dataclass(frozen=True)
class Definition:
    """A function of PyTorch, and how it may be called part by part if its tensors are large.

    Attributes:
        text: `def name(…)`: tensors and scalars in the cascade's order -> a tuple of the outputs in theirs.
        elements: of its largest tensor.
        free: the axes along which inputs and outputs may be cut: they stand in no expression but as an index.
    """

    text: str
    elements: int
    free: tuple[Axis, ...]


def definition(
    name: str, cascade: Cascade, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> Definition:
    """The definition as a function of that name, for sizes by axis and shapes by tensor."""
    writer = _Definition(cascade, sizes, shapes)
    text = writer.function(name)
    carried = set.intersection(*({*one.axes} for one in cascade.outputs))
    return Definition(text, writer.largest, tuple(a for a in writer.lay.order if a in carried - writer.counted_axes))


@final
class _Definition:
    def __init__(self, cascade: Cascade, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.cascade, self.sizes, self.shapes = cascade, sizes, shapes
        outputs = [axis for one in cascade.outputs for axis in one.axes]
        self.lay = Layout(tuple(dict.fromkeys([*outputs, *cascade.axes()])), sizes)
        self.names = Names(OTHER_NAMES)
        inputs = (*cascade.inputs(), *(str(one.name) for one in cascade.scalars()))
        self.arguments = {name: self.names.fresh(kernel_name(name)) for name in inputs}
        self.values: dict[Value, Term] = {}
        self.terms: dict[Basic, Term] = {}
        self.masked: set[Value] = set()
        self.counted_axes: set[Axis] = set()
        self.largest = 0
        self.lines: list[str] = []
        self.repeats = repeated_expressions(cascade)

    def function(self, name: str) -> str:
        """The whole function."""
        self.reduce(self.cascade)
        terms = [self.lay.spread(self.visit(one.expr), one.axes) for one in self.cascade.outputs]
        results = ", ".join(term.text for term in terms)
        head = [f"def {name}({', '.join(self.arguments.values())}):",
                '    """The definition, unfused: every line a whole tensor."""']  # fmt: skip
        body = [*self.lines, f"return {results}" + "," * (len(terms) == 1)]
        settings = {"device": f"{next(iter(self.arguments.values()))}.device", "dtype": "torch.get_default_dtype()"}
        body[:0] = [f"{word} = {text}" for word, text in settings.items() if any(f"{word})" in line for line in body)]
        return "\n".join([*head, *("    " + line for line in body)])

    # ---- statements --------------------------------------------------------------------------------------------------

    def reduce(self, cascade: Cascade, alone: Mapping[Expr, str] | None = None) -> None:
        """Producers, then reductions; `alone` names the value that is a producer as it stands."""
        for producer in cascade.producers:
            output = producer.cascade.outputs[0].expr
            self.reduce(producer.cascade, {output: producer.name})
            term = self.values[output] if output in self.values else self.line(producer.name, self.visit(output))
            self.assign(producer.value, term, [output])
        axes = cascade.reduced_axes
        for reduction in cascade.reductions:
            name = (alone or {}).get(reduction.value, reduction.name)
            self.assign(reduction.value, self.line(name, self.reduction(reduction, axes)), [reduction.term])

    def assign(self, value: Value, term: Term, of: Iterable[Expr]) -> None:
        """Bind a value's name from here on: producers may use one name for different values."""
        if value in self.values:
            self.terms = {node: memo for node, memo in self.terms.items() if not node.has(value)}
        self.values[value] = term
        self.masked = self.masked | {value} if any(map(self.is_masked, of)) else self.masked - {value}

    def line(self, stem: str, term: Term) -> Term:
        """`name = text  # its axes`."""
        name = self.names.fresh(stem)
        self.lines.append(f"{name} = {term.text}  # [{', '.join(map(str, term.axes))}]")
        return Term(name, term.axes, tensor=term.tensor)

    def is_masked(self, node: Basic) -> bool:
        """Tell if an expression is -inf by what is written, not by the data."""
        return bool(node.has(S.NegativeInfinity)) or bool(values_of(node) & self.masked)

    # ---- reductions --------------------------------------------------------------------------------------------------

    def reduction(self, reduction: Reduction, bound: tuple[Axis, ...]) -> Term:
        """The term of a reduction, by PyTorch's word for it; what selects or follows an order has one axis."""
        name, axis = reduction.monoid.name, bound[0]
        if name in ("argmax", "argmin", "topk"):
            return self.select(reduction, axis)
        if name in ("first", "last"):
            return self.first_or_last(reduction, axis)
        if name == "sum_at_max":
            return self.at_max(reduction, axis)
        if name == "affine":
            return self.recurrence(reduction, axis)
        if name == "logsumexp":
            return self.lay.along("logsumexp", self.visit(reduction.term), bound)
        if name not in ALONG:
            raise PlanError(
                f"`{reduction.name}` is reduced by {reduction.monoid}, of which PyTorch has no word. Save no file of "
                "it."
            )
        if name == "sum":
            return self.sum_term(reduction.term, bound)
        return self.lay.along(ALONG[name], self.visit(reduction.term), bound)

    def sum_term(self, term: Expr, bound: tuple[Axis, ...]) -> Term:
        """A sum; if its term is a product of several tensors, a contraction."""
        plain = term.is_Mul and not term.has(log) and not any(map(is_indicator, Mul.make_args(term)))
        factors = group_factors(term, ()) if plain else ()
        if len(factors) < 2:
            return self.lay.along("sum", self.visit(term), bound)
        parts = [(one, self.visit(one)) for one in factors]
        operands = [part if factor.has(Element, Value) else replace(part, text=f"{part.atom}.to(dtype)", level=ATOM)
                    for factor, part in parts if part.tensor]  # fmt: skip
        numbers = [part for _, part in parts if not part.tensor]
        if not all(any(axis in one.axes for one in operands) for axis in bound):
            return self.lay.along("sum", self.visit(term), bound)
        axes = self.lay.union(operands)
        letters = axis_letters(axes)
        spec = ",".join("".join(letters[a] for a in one.axes) for one in operands)
        free = tuple(a for a in axes if a not in bound)
        result, texts = "".join(letters[a] for a in free), ", ".join(one.text for one in operands)
        product = Term(f'torch.einsum("{spec}->{result}", {texts})', free)
        return self.lay.join_terms(" * ", [product, *numbers], PRODUCT) if numbers else product

    def select(self, reduction: Reduction, axis: Axis) -> Term:
        """Select by a stable sort: of equal elements the first."""
        axes = ({*reduction.axes} - {reduction.place}) | {axis}
        row = self.lay.spread(self.visit(reduction.term), tuple(a for a in self.lay.order if a in axes))
        dim, falling = row.axes.index(axis), reduction.monoid.name != "argmin"
        field = "values" if reduction.result == "values" else "indices"
        best = f"torch.sort({row.text}, dim={dim}, descending={falling}, stable=True).{field}"
        if reduction.place is None:
            return Term(f"{best}.select({dim}, 0)", tuple(a for a in row.axes if a != axis))
        k, length = self.sizes[reduction.place.name], self.sizes[axis.name]
        places = tuple(reduction.place if a == axis else a for a in row.axes)
        if length >= k:
            return Term(f"{best}.narrow({dim}, 0, {k})", places)
        pad = ", ".join(["0, 0"] * (len(places) - 1 - dim) + [f"0, {k - length}"])
        nothing = "-torch.inf" if field == "values" else "-1"
        return Term(f"torch.nn.functional.pad({best}, ({pad}), value={nothing})", places)

    def first_or_last(self, reduction: Reduction, axis: Axis) -> Term:
        """The first or last element that counts; NaN if none does."""
        x, counts = (self.visit(part) for part in reduction.term.args)
        axes = self.lay.union([x, counts, Term("", (axis,))])
        dim, length, first = axes.index(axis), self.sizes[axis.name], reduction.monoid.name == "first"
        row, holds = (self.line(name, self.lay.spread(part, axes)) for name, part in (("row", x), ("counts", counts)))
        place = self.lay.align(self.visit(axis), axes)
        none, word = (length, "amin") if first else (-1, "amax")
        position = f"torch.where({holds.text} != 0, {place}, {none}).{word}({dim}, keepdim=True)"
        at = self.line("at", Term(position, axes)).text
        element = f"torch.take_along_dim({row.text}, {at}.clamp(0, {length - 1}), {dim})"
        text = f"torch.where({at} == {none}, torch.nan, {element}).squeeze({dim})"
        return Term(text, tuple(a for a in axes if a != axis))

    def at_max(self, reduction: Reduction, axis: Axis) -> Term:
        """Σ of the weights at the largest values."""
        value, weight = (self.visit(part) for part in reduction.term.args)
        dim = value.axes.index(axis)
        top = Term(f"{value.atom} == {value.atom}.amax({dim}, keepdim=True)", value.axes, RELATION)
        axes = self.lay.union([top, weight])
        weights = Term(f"torch.where({self.lay.align(top, axes)}, {self.lay.align(weight, axes)}, 0.0)", axes)
        return self.lay.along("sum", weights, (axis,))

    def recurrence(self, reduction: Reduction, axis: Axis) -> Term:
        """h = scale·h + shift, step by step; the product of the scales is its own closed form."""
        scale, shift = (self.visit(part) for part in reduction.term.args)
        if reduction.result == "scale":
            return self.lay.along("prod", scale, (axis,))
        axes = self.lay.union([scale, shift, Term("", (axis,))])
        dim, free = axes.index(axis), tuple(a for a in axes if a != axis)
        a, u = (self.line(name, self.lay.spread(part, axes)) for name, part in (("scales", scale), ("shifts", shift)))
        state, step = self.names.fresh("state"), self.names.fresh("step")
        update = f"{a.text}.select({dim}, {step}) * {state} + {u.text}.select({dim}, {step})"
        self.lines += [f"{state} = 0.0", f"for {step} in range({self.sizes[axis.name]}):", f"    {state} = {update}"]
        return Term(state, free)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def visit(self, node: Basic) -> Term:
        """The text of an expression; its name, if it stands twice."""
        if isinstance(node, Value) and node in self.values:
            return self.values[node]
        if node in self.terms:
            return self.terms[node]
        term = self._visit(node)
        self.largest = max(self.largest, prod(self.sizes[axis.name] for axis in term.axes))
        if node in self.repeats and term.tensor:
            term = self.line("part", term)
        self.terms[node] = term
        return term

    def _visit(self, node: Basic) -> Term:
        for kind, rule in RULES:
            if isinstance(node, kind):
                term: Term = rule(self, node)
                return term
        raise PlanError(f"`{node}` is a {type(node).__name__}, which has no spelling in PyTorch. Save no file of it.")

    def _number(self, node: Expr) -> Term:
        if node in (S.Infinity, S.NegativeInfinity):
            return Term("torch.inf" if node is S.Infinity else "-torch.inf", (), ATOM if node is S.Infinity else SUM,
                        tensor=False)  # fmt: skip
        if node.is_Integer:
            return Term(str(node), (), ATOM if node >= 0 else SUM, tensor=False)
        if node.is_Rational:
            return Term(f"{node.p} / {node.q}", (), PRODUCT if node.p > 0 else SUM, tensor=False)
        value = float(node)
        text = "torch.nan" if isnan(value) else repr(value)
        return Term(text, (), ATOM if not text.startswith("-") else SUM, tensor=False)

    def _axis(self, node: Axis) -> Term:
        term = Term(f"torch.arange({self.sizes[node.name]}, device=device)", (node,))
        self.counted_axes.add(node)
        return self.line(str(node), term)

    def _add(self, node: Add) -> Term:
        terms = sorted(node.args, key=lambda one: (one.is_number, one.could_extract_minus_sign()))
        signs = [one.could_extract_minus_sign() for one in terms]
        parts = [self.visit(-one if sign else one) for one, sign in zip(terms, signs, strict=True)]
        axes, text = self.lay.union(parts), "-" if signs[0] else ""
        for place, (part, sign) in enumerate(zip(parts, signs, strict=True)):
            text += (" - " if sign else " + ") if place else ""
            text += self.lay.align(part, axes, SUM if sign else RELATION)
        return Term(text, axes, SUM, any(one.tensor for one in parts))

    def _mul(self, node: Mul) -> Term:
        coefficient, rest = node.as_coeff_Mul(rational=True)
        if coefficient.is_negative:
            term = self.visit(-node)
            return replace(term, text=f"-{term.above(SUM)}", level=SUM)
        factors = Mul.make_args(rest)
        below = [Pow(one.base, -one.exp) for one in factors if is_reciprocal(one)]
        above = [one for one in factors if not is_reciprocal(one)]
        below += [S(coefficient.q)] if coefficient.q != 1 else []
        above = [S(coefficient.p), *above] if coefficient.p != 1 else above
        guards = [one for one in above if is_indicator(one)]
        top = self.product([one for one in above if one not in guards])
        term = self.lay.divide(top, [self.visit(one) for one in below])
        for guard in guards:
            term = self.lay.select(self.visit(guard.condition), term, Term("0.0", tensor=False),
                                   swap=guard.args[1] is S.Zero)  # fmt: skip
        return term

    def product(self, factors: list[Expr]) -> Term:
        """A product; it is 0 where a factor is 0 beside a logarithm of 0."""
        if not factors:
            return Term("1.0", tensor=False)
        terms = [self.visit(one) for one in factors]
        product = self.lay.join_terms(" * ", terms, PRODUCT) if len(terms) > 1 else terms[0]
        if any(one.has(log) and one.has(Element, Value) for one in factors):
            for factor, term in zip(factors, terms, strict=True):
                if term.tensor and not factor.has(log):
                    none = Term(f"{term.atom} == 0", term.axes, RELATION)
                    product = self.lay.select(none, Term("0.0", tensor=False), product)
        return product

    def _where(self, node: Where) -> Term:
        return self.lay.select(*map(self.visit, node.args))

    def _exp(self, node: exp) -> Term:
        x = self.visit(node.args[0])
        if not x.tensor:
            return self._number(self.extent_number(node))
        vanishing = [term for term in infinite_terms(node.args[0])
                     if self.is_masked(term) and not term.could_extract_minus_sign()]  # fmt: skip
        if not vanishing:
            return Term(f"torch.exp({x.text})", x.axes)
        terms = ", ".join(self.lay.align(self.visit(one), x.axes) for one in vanishing)
        return Term(f"exponential({x.text}, {terms})", x.axes)

    def _pow(self, node: Pow) -> Term:
        if is_reciprocal(node):
            return self.lay.divide(Term("1", tensor=False), [self.visit(Pow(node.base, -node.exp))])
        base, power = self.visit(node.base), self.visit(node.exp)
        if node.exp == S.Half and base.tensor:
            return Term(f"torch.sqrt({base.text})", base.axes)
        if node.exp == S.Half:
            return replace(base, text=f"{base.atom}**0.5", level=POWER)
        axes = self.lay.union([base, power])
        texts = [self.lay.align(part, axes, POWER) for part in (base, power)]
        return Term("**".join(texts), axes, POWER, base.tensor or power.tensor)

    def _relation(self, node: Relational) -> Term:
        return self.lay.join_terms(f" {node.rel_op} ", [self.visit(one) for one in (node.lhs, node.rhs)], RELATION)

    def _boolean(self, node: Any) -> Term:
        parts = [self.visit(one) for one in node.args]
        if isinstance(node, Not):
            return replace(parts[0], text=f"~{parts[0].atom}", level=POWER)
        whole = [replace(one, text=one.atom if one.level < PRODUCT else one.text, level=ATOM) for one in parts]
        return replace(self.lay.join_terms(" & " if isinstance(node, And) else " | ", whole, PRODUCT), level=RELATION)

    def _cast(self, node: Cast) -> Term:
        term = self.visit(node.args[0])
        term = term if term.tensor else Term(f"torch.tensor({term.text}, device=device)")
        if node.dtype.startswith("int"):
            bits = 8 * DTYPES[node.dtype].bytes
            limits = "" if bits == 64 else f".clamp(-{2 ** (bits - 1)}, {2 ** (bits - 1) - 1})"
            return replace(term, text=f"{term.atom}.to(dtype).round(){limits}", level=ATOM)
        row = DTYPES[node.dtype]
        text = f"{term.atom}.clamp(-{row.largest}, {row.largest})" if row.saturates else term.atom
        return replace(term, text=f"{text}.to(torch.{node.dtype}).to(dtype)", level=ATOM)

    def _floor(self, node: floor) -> Term:
        above, below = node.args[0].as_numer_denom()
        if above.is_integer and below.is_integer and below != 1:
            return self.lay.join_terms(" // ", [self.visit(above), self.visit(below)], PRODUCT)
        x = self.visit(node.args[0])
        return Term(f"torch.floor({x.text})", x.axes) if x.tensor else self._number(self.extent_number(node))

    def _mod(self, node: Mod) -> Term:
        return self.lay.join_terms(" % ", [self.visit(one) for one in node.args], PRODUCT)

    def _reduce(self, node: Reduce) -> Term:
        return self.lay.along(ALONG[node.kind], self.visit(node.expr), tuple(node.bound))

    def _function(self, node: Expr) -> Term:
        if not node.free_symbols or all(isinstance(one, Extent) for one in node.free_symbols):
            return self._number(self.extent_number(node))
        name, parts = type(node).__name__, [self.visit(one) for one in node.args]
        if name in ("Max", "Min"):
            return self.lay.extreme(name, parts)
        operator = operator_of(node)
        function = "isnan" if isinstance(node, IsNaN) else operator.torch if operator else ""
        if not function:
            raise PlanError(f"`{node}`: PyTorch has no word for `{name}` that redalg knows. Save no file of it.")
        axes = self.lay.union(parts)
        return Term(f"torch.{function}({', '.join(self.lay.align(one, axes) for one in parts)})", axes)

    def extent_number(self, node: Basic) -> Any:
        """An expression of extents, as a number."""
        return node.xreplace({one: S(self.sizes[one.name]) for one in node.free_symbols if isinstance(one, Extent)})

    # ---- elements ----------------------------------------------------------------------------------------------------

    def _element(self, node: Element) -> Term:
        name, axes = self.arguments[node.name], [one for one in node.indices if isinstance(one, Axis)]
        computed = [one for one in node.indices if not isinstance(one, Axis) and not one.is_Integer]
        if not node.indices:
            return Term(f"{name}.reshape(())")
        if len(set(axes)) < len(axes) or len(computed) > 1:
            return self.gather(node)
        if not computed:
            key = [":" if isinstance(one, Axis) else str(one) for one in node.indices]
            return Term(name if len(axes) == len(key) else f"{name}[{', '.join(key)}]", tuple(axes))
        index = self.index(node, computed[0])
        if len(index.axes) != 1 or index.axes[0] in axes:
            return self.gather(node)
        key, dimensions = list[str](), list[Axis]()
        for place in node.indices:
            key.append(":" if isinstance(place, Axis) else index.text if place is computed[0] else str(place))
            dimensions += [place] if isinstance(place, Axis) else [] if place.is_Integer else [index.axes[0]]
        if any(one.is_Integer for one in node.indices):
            return self.gather(node)
        return Term(f"{name}[{', '.join(key)}]", tuple(dimensions))

    def gather(self, node: Element) -> Term:
        """Elements at places of which several are computed, or depend on one another."""
        indices = [self.index(node, one) for one in node.indices]
        axes = self.lay.union(indices)
        key = ", ".join(self.lay.align(one, axes) for one in indices)
        return Term(f"{self.arguments[node.name]}[{key}]", axes)

    def index(self, node: Element, place: Expr) -> Term:
        """One index; it is kept within its dimension if arithmetic may lead out of it (there a mask hides it)."""
        index = self.visit(place)
        within = isinstance(place, Axis | Element | floor | Mod) or place.is_Integer
        if within:
            return index
        size = self.shapes[node.name][node.indices.index(place)]
        return replace(index, text=f"{index.atom}.clamp(0, {size - 1})", level=ATOM)


RULES: tuple[tuple[Any, Any], ...] = (
    (Axis, _Definition._axis),
    (Extent, lambda code, node: Term(str(code.sizes[node.name]), tensor=False)),
    (Scalar, lambda code, node: Term(code.arguments[node.name])),
    (Element, _Definition._element), (Add, _Definition._add), (Mul, _Definition._mul), (exp, _Definition._exp),
    (Pow, _Definition._pow), (Where, _Definition._where), (Relational, _Definition._relation),
    ((And, Or, Not), _Definition._boolean),
    ((type(S.true), type(S.false)), lambda _, node: Term(str(node), tensor=False)),
    (Cast, _Definition._cast), (Let, lambda code, node: code.visit(node.expr)), (Reduce, _Definition._reduce),
    (floor, _Definition._floor), (Mod, _Definition._mod),
    (Expr, lambda code, node: code._number(node) if node.is_number else code._function(node)),
)  # fmt: skip
