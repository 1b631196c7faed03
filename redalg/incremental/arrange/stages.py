"""One call in several stages: a part that the loop cannot hold is a form of its own, before the loop or after it.

    Σ_k f(x, p), p = ⊕_m g(y)             →   p, then Σ_k f(x, p)            a parameter, made first
    Σ_k f(s), s = Σ_u g(t, u), t = ⊕_v …  →   t, then s = Σ_u g(t, u)        the fewer of t's and of s's numbers
    Σ_k s·r, s and r computed             →   r, then Σ_k s·r                one computed factor a product
    Σ_i f(x[i,k], s), s[i] = Σ_j g        →   s, then Σ_i f                  where k is long: every k would repeat s
    Σ_k f(x[i,k], s), s[i] = Σ_j g        →   s, then Σ_k f                  where k is long: every k would repeat s
    Σ_k f(s)·r, f rounded to 16 bits      →   f(s), then Σ_k f·r             where a block holds not all columns of r
    out = Σ_j f(d[j]), d reduced          →   d, then out                    where j is not written out
    out[k] = f(x[k], Σ_j d[j])            →   d, Σ_j d[j], then out          elementwise, where out carries k streamed
    out, out' of one loop                 →   out, then out'                 where no axes are rows and columns of both

Exact: only the place of a value changes. A stage reads a value of another as a tensor in the arithmetic's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import final

from sympy import Abs, And, Eq, Expr, Max, Or, S
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade, Output, Producer
from redalg.decompose.parse.axes import outermost_reductions
from redalg.decompose.parse.parse import parse
from redalg.decompose.verdict.passes import prune_cascade
from redalg.decompose.verdict.verdict import decompose
from redalg.errors import NotDecided, NotFusible, PlanError, RedalgError
from redalg.expression import Axis, Cast, Element, Label, Reduce, Value
from redalg.expression.contents import axes_by_name, bound_axes, free_axes, nodes_of, of_kind, reductions_of, values_of
from redalg.incremental.arrange.replace_symbols import replace_in_cascade, replace_in_form
from redalg.incremental.derive.derive import online_form
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.stages import Stages
from redalg.strategies.binding import Binding, makes_product

PRODUCED = ("sum", "max", "min", "prod")
"""Reductions that a producer's tile holds."""
MOST_COLUMNS = 512
"""The most columns that a block holds: more are shared out among blocks, each of which would make a value again."""
FEW = 8
"""The most elements of a reduction that each padded row may repeat: a value in memory costs some 100 operations."""
REPEATED = 32
"""The largest count of elements or of the form's numbers that may each repeat a reduction: more pay for a launch."""


@final
class Division:
    """The stages around a form, as they are found; the `sizes` of its axes decide between two ways.

    No tensor of theirs gets a name that is `taken` elsewhere in a call.
    """

    def __init__(self, form: FusedForm, sizes: Mapping[str, int], taken: Collection[str] = ()) -> None:
        self.original, self.form, self.sizes = form, form, sizes
        self.ahead, self.after = list[FusedForm](), list[FusedForm]()
        self.names = set(names_of(form.cascade)) | {one.name for one in form.slots} | {*taken}
        self.names |= {one.value.name for one in form.assignments} | {one.name for one in form.outputs}

    # ---- before the loop ---------------------------------------------------------------------------------------------

    def before(self, tile_of: TileOf, *, together: bool) -> None:
        """Move into stages ahead: parameters, producers' own producers, and second factors that are computed.

        Values that no tile of rows and streamed elements holds move too. A value that a tile would make again and
        again moves if not `together`, which keeps all that may stay.
        """
        if not self.form.cascade.producers:
            return
        by_lane = any(not one.is_ranked for one in self.form.structures)
        rows, column = tile_of(self.form)
        if column is not None and not together and self.sizes[column.name] > MOST_COLUMNS:
            self.make_operands(column)
        self.hoist(*(
            producer for producer in self.form.cascade.producers
            if by_lane or producer in self.form.parameters or not has_combine_loops(producer)
            or (not together and self.again(producer, rows, column))
        ))  # fmt: skip
        while (nested := next((one for one in self.form.cascade.producers if one.cascade.producers), None)) is not None:
            inner = nested.cascade.producers
            if sum(map(self.numbers, self.apart(nested))) > self.numbers(nested):
                self.hoist(nested)
            else:
                for producer in inner:
                    self.unnest(nested, producer)
                    nested = next(other for other in self.form.cascade.producers if other.name == nested.name)
        for producer in list(self.form.cascade.producers):
            if producer.value in second_factors(self.form):
                self.hoist(producer)
        read = of_columns(self.form, *tile_of(self.form))
        self.hoist(*(one for one in self.form.cascade.producers if one.value in read))

    def again(self, producer: Producer, rows: Collection[Axis], column: Axis | None) -> bool:
        """Tell if a producer is the same for all rows of a tile, for many elements, or many of the form's own numbers.

        Each of them would reduce it again. The numbers of a row share a value that is made for its columns, unless it
        is made of all columns. Where no axis makes rows, those of a product are padded: matrix units take that many
        anyway, and any other arithmetic of more than a few elements would be done for each of them.
        """
        cascade = self.form.cascade
        if producer in cascade.parameters and self.sizes[cascade.axis.name] > REPEATED:
            return True
        free = {axis for part in cascade.reductions for axis in part.axes}
        free |= {axis for part in self.form.outputs for axis in part.axes}
        free -= {*cascade.reduced_axes}
        alike = free - {*producer.axes, column} | (free & {*producer.cascade.reduced_axes})
        many = prod(self.sizes[axis.name] for axis in alike - self.form.places) > REPEATED
        if not rows and column is not None:
            long = prod(self.sizes[axis.name] for axis in producer.cascade.reduced_axes) > FEW
            padded = Binding(cascade.axis, None, column, (), contracted=True)
            return many or (long and not makes_product(producer, padded))
        return many or (bool(rows) and not {*rows} & {*producer.axes})

    def make_operands(self, column: Axis) -> None:
        """Make first factors of products that are computed of producers' values and data ahead: columns share them.

        What is rounded from one producer's values is made as a whole, else the producers are.
        """
        for accumulator in self.form.accumulators:
            factor, *others = accumulator.factors
            producers = [one for one in self.form.cascade.producers if one.value in values_of(factor)]
            plain = not others or accumulator.weight or not of_kind(Element, factor)
            if plain or not producers or column in free_axes(factor):
                continue
            if not (isinstance(factor, Cast) and len(producers) == 1 and self.make_operand(factor, producers[0])):
                self.hoist(*producers)

    def make_operand(self, factor: Cast, producer: Producer) -> bool:
        """Make a factor a stage ahead, with the streamed axis last, if nothing else reads the producer's value."""
        name, streamed, made = self.fresh("operand"), self.form.cascade.axis, producer.cascade.outputs[0].expr
        axes = (*(one for one in axes_by_name(free_axes(factor)) if one != streamed), streamed)
        form = replace_in_form(self.form, {factor: Element(Label(name), *axes), producer.value: S.NaN})
        read = [*(term for one in form.accumulators for term in one.factors), *(one.expr for one in form.outputs)]
        if form.extrema or form.structures or any(S.NaN in nodes_of(one) for one in read):
            return False
        output = Output(name, factor.xreplace({producer.value: made}), axes)
        self.ahead += self.forms_of(replace(producer.cascade, outputs=(output,)))
        self.form = form
        return True

    def numbers(self, producer: Producer) -> int:
        """The number of elements of a producer's value."""
        return prod(self.sizes[axis.name] for axis in producer.axes)

    def apart(self, nested: Producer) -> Iterator[Producer]:
        """The producers of `nested` that would be stages of their own."""
        return (one for one in nested.cascade.producers if not self.beside(nested, one))

    def beside(self, nested: Producer, producer: Producer) -> bool:
        """Tell if a producer of `nested` may stand beside it: `nested` reduces over none of its axes."""
        return not set(nested.cascade.reduced_axes) & set(producer.axes) and self.form.cascade.axis in producer.axes

    def unnest(self, nested: Producer, producer: Producer) -> None:
        """Make a producer of `nested` one of the form, or a stage ahead."""
        if not self.beside(nested, producer):
            element = self.add_stages_ahead(producer)
            self.form = replace_in_form(self.form, {producer.value: element})
            return
        name = self.fresh(producer.name)
        lifted = replace(producer, name=name)
        lifted = replace(
            lifted, cascade=replace(producer.cascade, outputs=(replace(producer.cascade.outputs[0], name=name),))
        )
        form = replace_in_form(self.form, {producer.value: lifted.value})
        place = next(at for at, other in enumerate(form.cascade.producers) if other.name == nested.name)
        producers = list(form.cascade.producers)
        producers.insert(place, lifted)
        self.form = replace(form, cascade=replace(form.cascade, producers=tuple(producers)))

    def hoist(self, *producers: Producer) -> None:
        """Make producers stages ahead; those that one pass makes for the same axes are one stage."""
        alike = dict[Hashable, list[Producer]]()
        for producer in producers:
            alike.setdefault((producer.axes, frozenset(producer.cascade.reduced_axes)), []).append(producer)
        for group in alike.values():
            tensors = self.add_joint_stage(group) or {one.value: self.add_stages_ahead(one) for one in group}
            self.form = replace_in_form(self.form, tensors)

    def add_joint_stage(self, group: Sequence[Producer]) -> dict[Value, Element]:
        """Add the stage that makes the values of several producers, and return the tensors that hold them.

        Nothing is added or returned if one pass does not make them all.
        """
        if len(group) < 2:
            return {}
        names = {one: self.fresh(one.name) for one in group}
        try:
            stage = online_form(decompose(parse({name: (one.definition, one.axes) for one, name in names.items()})))
        except RedalgError:
            self.names -= set(names.values())
            return {}
        self.ahead.append(stage)
        return {one.value: Element(Label(name), *one.axes) for one, name in names.items()}

    def add_stages_ahead(self, producer: Producer) -> Element:
        """Add the stages that make a producer's value, and return the tensor that holds it."""
        name = self.fresh(producer.name)
        output = Output(name, producer.cascade.outputs[0].expr, producer.axes)
        self.ahead += self.forms_of(replace(producer.cascade, outputs=(output,)))
        return Element(Label(name), *producer.axes)

    def forms_of(self, cascade: Cascade) -> list[FusedForm]:
        """The form of a cascade; if no pass holds it, the forms of its reductions, one after the other."""
        try:
            return [online_form(decompose(cascade))]
        except (NotFusible, NotDecided) as refusal:
            if len(cascade.reductions) < 2:
                raise PlanError(f"`{cascade.outputs[0].name}` has no form of one pass: {refusal.reason}") from refusal
        first, *others = cascade.reductions
        name = self.fresh(first.name)
        tensors: dict[Expr, Expr] = {first.value: Element(Label(name), *first.axes)}
        single = replace(cascade, reductions=(first,), outputs=(Output(name, first.value, first.axes),))
        return [
            *self.forms_of(single),
            *self.forms_of(replace_in_cascade(replace(cascade, reductions=tuple(others)), tensors)),
        ]

    # ---- after the loop ----------------------------------------------------------------------------------------------

    def afterwards(self, later: Collection[FormOutput]) -> None:
        """Move outputs into stages after the loop; the loop's own stage gives the values that they read."""
        needs = {value for one in later for node in (one.expr, *nothing(one)) for value in values_of(node)}
        needs -= {one.value for one in self.form.cascade.producers}
        tensors = {value: Element(Label(self.fresh(value.name)), *value.indices) for value in sorted(needs, key=str)}
        values = tuple(FormOutput(one.name, value, value.indices, S.false) for value, one in tensors.items())
        outputs = tuple(one for one in self.form.outputs if one not in later)
        for output in later:
            self.after += self.forms_after(output, tensors)
        defined = {one.name for one in outputs}
        cascade = replace(
            self.form.cascade, outputs=tuple(one for one in self.form.cascade.outputs if one.name in defined)
        )
        self.form = replace(self.form, cascade=cascade, outputs=(*outputs, *values))

    def forms_after(self, output: FormOutput, tensors: Mapping[Expr, Expr]) -> list[FusedForm]:
        """The stages of one output, which read its values from tensors."""
        alike, along = nothing(output)
        none = alike.xreplace(tensors)
        meaning = {one.value: one.definition.xreplace(tensors) for one in self.form.cascade.producers}
        sums = list(dict.fromkeys(outermost_reductions(output.expr)))
        if output.carries and any(self.form.cascade.axis not in free_axes(one) for one in sums):
            names = {one: self.fresh(f"{output.name}_sum") for one in sums}
            names |= {along: self.fresh("largest")} if isinstance(along, Reduce) else {}
            elements: dict[Expr, Expr] = {node: Element(Label(name), *axes_of(node)) for node, name in names.items()}
            stages = list[FusedForm]()
            for bound in dict.fromkeys(node.bound for node in names):
                group = {name: node for node, name in names.items() if node.bound == bound}
                exprs = {
                    name: (node.xreplace(tensors).xreplace(meaning), axes_of(node)) for name, node in group.items()
                }
                stages += self.parse_stages(output, exprs)
            expr = output.expr.xreplace(elements).xreplace(tensors)
            return [*stages, self.elementwise(output, expr, And(none, Eq(elements.get(along, S.Zero), 0)))]
        exprs = {output.name: (output.expr.xreplace(tensors).xreplace(meaning), output.axes)}
        if along is not S.Zero:
            exprs[self.fresh("largest")] = (along.xreplace(tensors), axes_of(along))
        *before, last = self.parse_stages(output, exprs)
        none = And(none, *(Eq(one.expr, 0) for one in last.outputs[1:]))
        first = last.outputs[0]
        return [*before, replace(last, outputs=(replace(first, empty=Or(first.empty, none)),))]

    def parse_stages(self, output: FormOutput, exprs: Mapping[str, tuple[Expr, tuple[Axis, ...]]]) -> list[FusedForm]:
        """The stages that compute expressions of tensors, which `output` needs."""
        try:
            return self.forms_of(parse(exprs))
        except RedalgError as refusal:
            raise PlanError(
                f"output `{output.name}` reduces reduced values, for which no stage was found: {refusal} "
                'Run it with backend="torch".'
            ) from refusal

    def elementwise(self, output: FormOutput, expr: Expr, none: Boolean) -> FusedForm:
        """The stage of an output that carries the streamed axis and reduces nothing."""
        result = Output(output.name, expr, output.axes, carries=True)
        form = online_form(decompose(prune_cascade(replace(self.form.cascade, reductions=(), outputs=(result,)))))
        return replace(form, outputs=(replace(form.outputs[0], empty=none),))

    def result(self, later: Collection[FormOutput]) -> Stages:
        """The form with its stages, of which outputs `later` are the last."""
        if later:
            self.afterwards(later)
        ahead, after = (tuple(map(self.with_nan, side)) for side in (self.ahead, self.after))
        return Stages((*ahead, self.form, *after), len(ahead), self.original)

    def with_nan(self, stage: FusedForm) -> FusedForm:
        """The stage with NaN for ratios over nothing that are handed on: the policy is for returned outputs."""
        returned = {one.name for one in self.original.outputs}
        outputs = (one if one.name in returned else replace(one, empty=S.false) for one in stage.outputs)
        return replace(stage, outputs=tuple(outputs))

    def fresh(self, stem: str) -> str:
        """Take a name that nothing else has."""
        name, number = stem, 0
        while name in self.names:
            number += 1
            name = f"{stem}_{number}"
        self.names.add(name)
        return name


TileOf = Callable[[FusedForm], tuple[Collection[Axis], Axis | None]]
"""Map a form to the axes of a tile's rows, if it has many, and the axis of its columns."""


def divide_form(form: FusedForm, sizes: Mapping[str, int], tile_of: TileOf, *, together: bool = False,
                taken: Collection[str] = ()) -> Stages:  # fmt: skip
    """The form of the loop, with the stages before and after it.

    `together`: a value that a stage ahead would only make faster stays in the loop. What is made is called by no name
    that is `taken`.

    Raises:
        PlanError: a stage has no form of one pass.
    """
    division = Division(form, sizes, taken)
    division.before(tile_of, together=together)
    return division.result([output for output in division.form.outputs if reductions_of(output.expr)])


def separate_outputs(form: FusedForm, sizes: Mapping[str, int]) -> Stages:
    """Make the outputs that reduce along a part of the axes reduced at once stages after the form.

    No loop runs along one of several axes alone.

    Raises:
        PlanError: a stage has no form of one pass.
    """
    together = set(form.cascade.inner and form.cascade.reduced_axes)
    return Division(form, sizes).result([output for output in form.outputs if bound_axes(output.expr) & together])


def apart(stages: Stages, fits: Callable[[FusedForm], bool]) -> Stages:
    """Split the loop: the first outputs that one loop holds, with the forms of the others after it.

    If that splits nothing, return the stages as they are.
    """
    form = stages.loop
    if stages.after or any(one.carries for one in form.outputs) or len(form.outputs) < 2:
        return stages
    groups = list[list[str]]()
    for output in form.outputs:
        beside = (group for group in groups if fits(of_outputs(form, [*group, output.name])))
        group = next(beside, None)
        if group is None:
            groups.append([output.name])
        else:
            group.append(output.name)
    if len(groups) < 2:
        return stages
    return replace(stages, forms=(*stages.ahead, *(of_outputs(form, group) for group in groups)))


def of_outputs(form: FusedForm, names: Collection[str]) -> FusedForm:
    """The form of some of the outputs alone."""
    cascade = replace(form.cascade, outputs=tuple(one for one in form.cascade.outputs if one.name in names))
    return online_form(decompose(prune_cascade(cascade)))


def has_combine_loops(producer: Producer) -> bool:
    """Tell if a producer's reductions are loops of a monoid's own `combine`."""
    return all(part.monoid.name in PRODUCED for part in producer.cascade.reductions)


def second_factors(form: FusedForm) -> set[Value]:
    """The values in second factors of products whose first factor is computed too."""
    return {
        value
        for accumulator in form.accumulators
        if len(accumulator.factors) > 1 and (accumulator.weight or values_of(accumulator.factors[0]))
        for factor in accumulator.factors[1:]
        for value in values_of(factor)
    }


def of_columns(form: FusedForm, rows: Collection[Axis], column: Axis | None) -> set[Value]:
    """Values read by sums that hold a number for every column: no tile of columns and streamed elements has them."""
    sums = (one for one in form.accumulators if len(one.factors) == 1 and column in one.value.indices)
    return {value for one in sums if not {*rows} & {*one.value.indices} for value in values_of(one.factors[0])}


def names_of(cascade: Cascade) -> Iterator[str]:
    """Names that tensors, scalars, axes and values of a definition bear."""
    yield from cascade.inputs()
    yield from (str(one.name) for one in cascade.scalars())
    yield from (str(one.name) for one in cascade.axes())
    for part in (cascade.reductions, cascade.producers, cascade.outputs):
        yield from (one.name for one in part)
    for producer in cascade.producers:
        yield from names_of(producer.cascade)


def axes_of(expr: Expr) -> tuple[Axis, ...]:
    """The axes of an expression, in the order of a tensor that holds it."""
    return axes_by_name(free_axes(expr))


def nothing(output: FormOutput) -> tuple[Boolean, Expr]:
    """The condition that an output which reduces values is over no element, in two parts.

    The first part is the same along the axes that it reduces. The second is the largest of the values that must be 0
    all along them (0 if there are none).
    """
    bound = bound_axes(output.expr)
    alike, along = list[Boolean](), list[Expr]()
    for each in And.make_args(output.empty):
        if isinstance(each, Eq) and isinstance(each.lhs, Reduce) and set(each.lhs.bound) <= bound:
            along.append(each.lhs.expr)
            continue
        if isinstance(each, Eq) and isinstance(each.lhs, Value) and set(each.lhs.indices) & bound:
            along.append(Abs(each.lhs))
            continue
        alternatives = Or.make_args(each)
        alike.append(Or(*(one for one in alternatives if not reductions_of(one) and not free_axes(one) & bound)))
    if not along or And(*alike) is S.false:
        return And(*alike), S.Zero
    return And(*alike), Reduce("max", Max(*along), sorted(bound & free_axes(Max(*along)), key=str))
