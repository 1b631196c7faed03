"""The Cascade: ordered reductions over one set of axes, the producers that feed them, and the outputs.

    d_i = ⊕ⁱ_axis F_i(x; d_1 … d_{i-1})

One of the reduced axes is streamed, `axis`; `inner` holds those that are reduced along with it. x is everything that
carries any of them. Values d and producers stand in terms as `Value` elements, whose indices are their free axes.
`domain` is the condition under which an element counts: outside it every term is its monoid's identity.
A reduction that selects elements or depends on their order (`is_scalar` is false) reads every element, masked or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from sympy import Expr, S, Tuple
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.display import Displayed
from redalg.errors import ExpressionError
from redalg.expression import Axis, Cast, Element, Extent, Label, Let, Reduce, Scalar, Value, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind, sympy_text, values_of
from redalg.monoids import Monoid


@final
@dataclass(frozen=True)
class Reduction:
    """d = ⊕_axis term(x, d earlier), one value for every element of the free axes.

    `term` is a Tuple if the monoid takes several operands. `result` names one of several results. `place` is the axis,
    one of `axes`, that numbers the elements of a result.
    """

    name: str
    monoid: Monoid
    term: Expr
    axes: tuple[Axis, ...]
    result: str = ""
    place: Axis | None = None

    @cached_property
    def value(self) -> Value:
        """The symbol that stands for this reduction in later terms and outputs."""
        return Value(Label(self.name), *self.axes)

    @property
    def is_scalar(self) -> bool:
        """True if an element of the monoid is one number, which array libraries reduce by themselves."""
        return bool(self.monoid.reduction)

    @property
    def is_count(self) -> bool:
        """True if it counts all elements."""
        return self.monoid.name == "sum" and self.term == S.One

    @property
    def dtype(self) -> str:
        """The dtype of the value if it is fixed (`int64`, `bool`); empty if it follows the tensors."""
        return "bool" if self.monoid.name in ("any", "all") else self.monoid.result(self.result)[1].dtype

    def to_reduce(self, term: Expr, reduced: tuple[Axis, ...]) -> Reduce:
        """The reduction as an expression of the given term."""
        return Reduce(self.monoid.name, term, reduced, self.result, self.place)


def dtype_of(expr: Expr, known: Mapping[Value, str]) -> str:
    """The dtype of an index, a truth value or a choice of two such; empty if it follows the tensors.

    Args:
        expr: an output.
        known: the dtypes of values that do not follow the tensors'.
    """
    if isinstance(expr, Where):
        first, second = (dtype_of(branch, known) for branch in expr.args[1:])
        return first if first == second else ""
    return known.get(expr, "")


@final
@dataclass(frozen=True)
class Producer:
    """x-data computed by a cascade on another axis, one value for every element of the free axes."""

    name: str
    axes: tuple[Axis, ...]
    cascade: Cascade

    @cached_property
    def value(self) -> Value:
        """The symbol that stands for the producer's value."""
        return Value(Label(self.name), *self.axes)

    @property
    def definition(self) -> Expr:
        """The expression of the producer, with its reductions written out."""
        meaning: dict[Expr, Expr] = {one.value: one.definition for one in self.cascade.producers}
        for reduction in self.cascade.reductions:
            meaning[reduction.value] = reduction.to_reduce(reduction.term.xreplace(meaning), self.cascade.reduced_axes)
        return self.cascade.outputs[0].expr.xreplace(meaning)


@final
@dataclass(frozen=True)
class Output:
    """An output: an expression of the values, over ordered axes (`carries` if a reduced axis is one of them)."""

    name: str
    expr: Expr
    axes: tuple[Axis, ...]
    carries: bool = False


@final
@dataclass(frozen=True, repr=False)
class Cascade(Displayed):
    """Ordered reductions over one set of axes, the producers that feed them, and the outputs (see the module).

    `producers` are in dependency order, and so are `reductions`. `names` are those that the user gave to expressions
    that are neither, each with its expression of values; they change nothing. `aliases` are names of axes as the user
    wrote them, each with the name of the axis that now stands in its place.
    """

    axis: Axis
    reductions: tuple[Reduction, ...]
    producers: tuple[Producer, ...]
    outputs: tuple[Output, ...]
    domain: Boolean = S.true
    inner: tuple[Axis, ...] = ()
    names: tuple[tuple[str, Expr], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()

    @property
    def sum_alone(self) -> Expr | None:
        """The term of the sum if the cascade is one sum and nothing else; else None."""
        if len(self.reductions) != 1 or self.producers or self.reductions[0].monoid.name != "sum":
            return None
        return self.reductions[0].term if self.outputs[0].expr == self.reductions[0].value else None

    def __str__(self) -> str:
        over = ", ".join(map(str, self.reduced_axes))
        lines = [f"cascade over {over}" + ("" if self.domain is S.true else f", where {self.domain}")]
        lines += [f"  {one.name}[{', '.join(map(str, one.axes))}] = {one.definition}" for one in self.producers]
        lines += [
            f"  {reduction.name}[{', '.join(map(str, reduction.axes))}] = {reduction.monoid}"
            f"{'.' * bool(reduction.result)}{reduction.result} over {over} of {reduction.term}"
            for reduction in self.reductions
        ]
        lines += [f"  -> {one.name}[{', '.join(map(str, one.axes))}] = {one.expr}" for one in self.outputs]
        return "\n".join(lines)

    @property
    def reduced_axes(self) -> tuple[Axis, ...]:
        """Every axis that the reductions reduce over, the streamed one first."""
        return (self.axis, *self.inner)

    @property
    def parameters(self) -> tuple[Producer, ...]:
        """The producers that carry no reduced axis: they stand on the side of d, and `finish` needs them."""
        return tuple(one for one in self.producers if not set(self.reduced_axes) & set(one.axes))

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The reductions' values, in order."""
        return tuple(one.value for one in self.reductions)

    @cached_property
    def known_names(self) -> tuple[tuple[str, Expr], ...]:
        """The names that the user gave to expressions of this cascade's values, or of none."""
        known = {*self.values, *(one.value for one in self.producers)}
        return tuple(pair for pair in self.names if values_of(pair[1]) <= known)

    def expressions(self) -> Iterable[Expr]:
        """Every expression of the cascade and of its producers."""
        for producer in self.producers:
            yield from producer.cascade.expressions()
        yield from (one.term for one in self.reductions)
        yield from (one.expr for one in self.outputs)
        yield self.domain

    @cached_property
    def _elements(self) -> tuple[Element, ...]:
        elements = {one for expr in self.expressions() for one in elements_of(expr)}
        return tuple(sorted(elements, key=lambda one: (one.name, sympy_text(one))))

    def elements(self) -> tuple[Element, ...]:
        """The input elements that occur, in order of the tensors' names."""
        return self._elements

    def inputs(self) -> tuple[str, ...]:
        """Names of the input tensors, in order of first appearance in the text of the terms, then scalars by name."""
        return tuple(dict.fromkeys(one.name for one in self.elements()))

    @cached_property
    def _value_tensors(self) -> dict[str, frozenset[str]]:
        names: dict[str, set[str]] = {}

        def visit(node: Basic, dtype: str = "") -> None:
            if isinstance(node, Element):
                names.setdefault(node.name, set()).add(dtype)
            elif isinstance(node, Let):
                visit(node.expr, dtype)
            else:
                for arg in node.args[1:] if isinstance(node, Where) else node.args:
                    visit(arg, node.dtype if isinstance(node, Cast) else "")

        for expr in self.expressions():
            if isinstance(expr, Expr | Tuple):  # the operands of a monoid of several
                visit(expr)
        return {name: frozenset(dtypes) for name, dtypes in names.items()}

    def value_tensors(self) -> frozenset[str]:
        """Tensors that stand in arithmetic, not only in conditions and indices."""
        return frozenset(self._value_tensors)

    def casts_of(self, name: str) -> frozenset[str]:
        """The dtypes to which a tensor's elements are rounded before any arithmetic; empty among them: they are not."""
        return self._value_tensors.get(name, frozenset())

    @cached_property
    def _scalars(self) -> tuple[Scalar, ...]:
        scalars = of_kind(Scalar, *self.expressions())
        return tuple(sorted(scalars, key=lambda one: str(one.name)))

    def scalars(self) -> tuple[Scalar, ...]:
        """The run-time scalars, by name."""
        return self._scalars

    @cached_property
    def _extents(self) -> tuple[str, ...]:
        return tuple(sorted({one.name for one in of_kind(Extent, *self.expressions())}))

    def extents(self) -> tuple[str, ...]:
        """Names of the axes whose extent stands in an expression."""
        return self._extents

    @cached_property
    def _axes(self) -> tuple[Axis, ...]:
        axes = of_kind(Axis, *self.expressions()) | set(self.reduced_axes)
        axes |= {axis for producer in self.producers for axis in producer.cascade.axes()}
        axes |= {axis for output in self.outputs for axis in output.axes}
        return axes_by_name(axes)

    def axes(self) -> tuple[Axis, ...]:
        """Every axis, producers' included, in order of name."""
        return self._axes

    def names_of_axis(self, name: str) -> tuple[str, ...]:
        """The names, here, of the axes that a user's name stands for: the name itself unless it is an alias.

        The extent of an axis may stand in an expression under a name that no axis has any more.
        """
        found = tuple(axis for alias, axis in self.aliases if alias == name)
        return (*found, name) if not found or name in self.extents() else found

    def find_axis(self, given: Any, among: Iterable[Axis]) -> Axis | None:
        """The axis among some that a user gives by itself or by its name, an alias too; None if it is none of them."""
        name = given.name if isinstance(given, Axis) else given
        names = self.names_of_axis(name) if isinstance(name, str) else ()
        return next((axis for axis in among if axis.name in names), None)

    def verify(self) -> None:
        """Check the grammar: names unique, values used after they are made, free axes as declared."""
        names = [one.name for one in self.producers] + [one.name for one in self.reductions]
        if len(set(names)) != len(names):
            raise ExpressionError(f"two parts of the cascade bear one name: {sorted(names)}. Rename one by `ra.let`.")
        known = {one.value for one in self.producers}
        for reduction in self.reductions:
            unknown = values_of(reduction.term) - known
            if unknown:
                raise ExpressionError(
                    f"reduction `{reduction.name}` uses {sorted(map(str, unknown))} before they are made."
                )
            if not free_axes(reduction.term) - set(self.reduced_axes) <= set(reduction.axes):
                raise ExpressionError(f"reduction `{reduction.name}` has more free axes than {reduction.axes}.")
            known.add(reduction.value)
