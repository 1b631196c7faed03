"""Several reduced axes as one: loops over n and over c become one loop over p (loop coalescing, Polychronopoulos 1987).

    ⊕_n ⊕_c f(n, c)  →  ⊕_p f(⌊p / |c|⌋, p mod |c|),  p < |n|·|c|      exact where ⊕ is commutative and an element does
                                                                      not hold its own place
    x[b, ⌊p / |c|⌋, p mod |c|]  →  x[b, p]                            the same memory, of a tensor of shape (…, n, c)
                                                                      passed as (…, n·c): n and c side by side, in order

Producers over several axes are coalesced too, one after the other. p runs in the order in which the largest tensor has
the axes. If they are used apart (in a mask, in a tensor that lacks one of them or has another between them), the sizes
are constants of the kernel. Else their product alone counts, and it may be a run-time size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, final

from sympy import And, Eq, Expr, Integer, Mod, Symbol, floor
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade, Producer, Reduction
from redalg.errors import PlanError
from redalg.expression import Axis, Element, Extent, Reduce, Value
from redalg.expression.contents import elements_of, free_axes
from redalg.expression.rebuild import with_args
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.mapped import mapped_accumulator, mapped_output, mapped_pivot
from redalg.incremental.stages import Stages
from redalg.monoids import state_monoid
from redalg.strategies.plan import Problem, shape_of

LIMIT = 2**31
"""Elements that a kernel numbers along one axis."""
Axes = frozenset[Axis]
NONE: Axes = frozenset()
Runs = list[tuple[int, int]]
"""(first, count) of the user's dimensions that each dimension of the kernel takes."""


def coalesce_axes(stages: Stages, problem: Problem) -> tuple[Stages, Problem]:
    """The stages and the problem with one reduced axis in the place of several; unchanged if there is only one."""
    while groups := [several for form in stages.forms for several in joint_axes(form.cascade)]:
        stages, problem = _once(stages, problem, groups[0])
    return stages, problem


def restore_places(stages: Stages) -> Stages:
    """Place outputs of stages where the caller has them: stages that were divided are derived from cascades."""
    known = {output.name: output for output in stages.outputs if output.caller_axes}

    def restore(stage: FusedForm) -> FusedForm:
        outputs = tuple(replace(output, caller_axes=known[output.name].caller_axes, places=known[output.name].places,
                                once=known[output.name].once)
                        if output.name in known else output for output in stage.outputs)  # fmt: skip
        return replace(stage, outputs=outputs)

    return stages.map_forms(restore) if known else stages


def joint_axes(cascade: Cascade) -> Iterator[tuple[Axis, ...]]:
    """The axes of every cascade that reduces over several at once, innermost first."""
    for producer in cascade.producers:
        yield from joint_axes(producer.cascade)
    if cascade.inner:
        for reduction in cascade.reductions:
            check_order(reduction, cascade)
        yield cascade.reduced_axes


def check_order(reduction: Reduction, cascade: Cascade) -> None:
    """Refuse a reduction whose result depends on the order or the places of its elements."""
    monoid = state_monoid(reduction.monoid)
    place = Symbol("place")
    lifted = monoid.lift(*(Symbol(f"x{number}") for number in range(len(monoid.domains))), place)
    if not monoid.commutative or any(part.has(place) for part in lifted):
        names = " and ".join(map(str, cascade.reduced_axes))
        raise PlanError(
            f"`{reduction.name}` is a {reduction.monoid} over axes {names} at once, and depends on the order of its "
            'elements, which the tile program numbers along one axis. Run it with backend="torch", or reduce over '
            "one axis."
        )


def _once(stages: Stages, problem: Problem, several: tuple[Axis, ...]) -> tuple[Stages, Problem]:
    order = in_memory(stages, frozenset(several), several)
    total = prod(problem.sizes[axis.name] for axis in order)
    names = " and ".join(map(str, order))
    if total >= LIMIT:
        raise PlanError(
            f"axes {names}, which are reduced at once, have {total} elements together, and a kernel numbers fewer than "
            f'{LIMIT} along one axis. Reduce over one of them first, or run it with backend="torch".'
        )
    name = joint_name(order, stages.loop, problem)
    views = mergeable_dimensions(stages, order)
    rewrite = _Coalescing(order, Axis(name), problem.sizes, views)
    result = stages.map_forms(rewrite.form)
    varies = {name, *(axis.name for axis in order)} & problem.varying
    if rewrite.apart:
        if varies:
            raise PlanError(
                f"varying: axes {names} are reduced at once and streamed as one axis {name}, and {rewrite.apart[0]} "
                "needs them apart, so that a kernel has their sizes as constants. "
                f"Leave {', '.join(sorted(varies))} out."
            )
        rewrite = _Coalescing(order, Axis(name, total), problem.sizes, views)
        result = stages.map_forms(rewrite.form)
    left = {str(axis) for form in result.forms for axis in form.cascade.axes()}
    gone = set(map(str, order)) - left if not rewrite.apart else set[str]()
    problem = with_views(problem, stages, order, views)
    known = {output.name: output for form in result.forms for output in form.outputs}
    returned = tuple(known[output.name] for output in stages.outputs)
    return replace(result, original=replace(stages.original, outputs=returned)), replace(
        problem,
        sizes={key: size for key, size in problem.sizes.items() if key not in gone} | {name: total},
        together={**problem.together, name: tuple(map(str, order))},
        varying=(problem.varying - varies) | ({name} if varies else frozenset()),
    )


def with_views(problem: Problem, stages: Stages, order: tuple[Axis, ...], views: Mapping[str, Runs]) -> Problem:
    """The problem with the shapes of the tensors that have one of the axes, as the kernel takes them."""
    shapes, folded = dict(problem.shapes), dict(problem.views)
    elements, intermediates = stages.elements, stages.intermediates
    for key in dict.fromkeys(one.name for one in elements if set(order) & free_axes(one)):
        if key not in {one.name for one in intermediates}:
            shape = shapes.get(key) or shape_of(key, elements, problem)
            runs = views.get(key) or [(place, 1) for place in range(len(shape))]
            shapes[key] = tuple(prod(shape[first : first + count]) for first, count in runs)
            if key in views:
                before = folded.get(key) or (1,) * len(shape)
                folded[key] = tuple(sum(before[first : first + count]) for first, count in runs)
    return replace(problem, shapes=shapes, views=folded)


def joint_name(order: Iterable[Axis], form: FusedForm, problem: Problem) -> str:
    """A free name for the axis that numbers the elements of all the axes: their names, joined."""
    used = {*problem.sizes, *problem.dtypes, *(one.name for one in form.outputs), *map(str, form.cascade.scalars())}
    name = "_".join(map(str, order))
    while name in used:
        name += "_"
    return name


# ---- which tensors, in which order -----------------------------------------------------------------------------------


def contexts(cascade: Cascade, outer: Axes, several: Axes) -> Iterator[tuple[Element, Axes]]:
    """Yield every element with those of the axes that are reduced at once at its position."""
    free = within(cascade, outer, several)
    for producer in cascade.producers:
        yield from contexts(producer.cascade, free, several)
    exprs: list[Basic] = [one.term for one in cascade.reductions]
    exprs += [one.expr for one in cascade.outputs] + [cascade.domain]
    for expr in exprs:
        yield from ((element, free) for element in elements_of(expr))


def occurrences(stages: Stages, several: Axes) -> Iterator[tuple[Element, Axes]]:
    """The pairs that `contexts` yields, for every stage."""
    return (pair for form in stages.forms for pair in contexts(form.cascade, NONE, several))


def within(cascade: Cascade, outer: Axes, several: Axes) -> Axes:
    """The axes of `several` that are reduced at once within a cascade, which binds its own axes anew."""
    return several if frozenset(cascade.reduced_axes) == several else outer - set(cascade.reduced_axes)


def in_memory(stages: Stages, several: Axes, otherwise: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes in the order of the tensor of most dimensions that has them all; `otherwise` if no tensor has."""
    orders = []
    for element, free in occurrences(stages, several):
        order = tuple(one for one in element.indices if one in several & free)
        if frozenset(order) == several and len(order) == len(several):
            orders.append((-len(element.indices), str(element), order))
    return min(orders)[2] if orders else otherwise


def mergeable_dimensions(stages: Stages, order: tuple[Axis, ...]) -> dict[str, Runs]:
    """The tensors whose dimensions can be merged: every element has the same axes there, in order."""
    places: dict[str, set[tuple[int, ...]]] = {}
    for element, free in occurrences(stages, frozenset(order)):
        numbers = (order.index(index) if isinstance(index, Axis) and index in free and index in order else -1
                   for index in element.indices)  # fmt: skip
        places.setdefault(element.name, set()).add(tuple(numbers))
    runs_by_name = {name: runs_of(next(iter(one))) for name, one in places.items() if len(one) == 1}
    return {name: runs for name, runs in runs_by_name.items() if any(count > 1 for _, count in runs)}


def runs_of(numbers: Iterable[int]) -> Runs:
    """Runs of adjacent dimensions that number neighbouring axes: each run becomes one dimension.

    >>> runs_of([-1, 0, 1, -1, 2]), runs_of([1, 0])
    ([(0, 1), (1, 2), (3, 1), (4, 1)], [(0, 1), (1, 1)])
    """
    runs, last = Runs(), -2
    for place, number in enumerate(numbers):
        if number >= 0 and number == last + 1 and last >= 0:
            first, count = runs[-1]
            runs[-1] = (first, count + 1)
        else:
            runs.append((place, 1))
        last = number
    return runs


# ---- the rewrite -----------------------------------------------------------------------------------------------------


@final
class _Coalescing:
    """Rewrite a form with the axis p in the place of several; `apart` lists the uses of one of them by itself."""

    def __init__(self, order: tuple[Axis, ...], axis: Axis, sizes: Mapping[str, int], views: dict[str, Runs]) -> None:
        self.order, self.axis, self.views = order, axis, views
        self.sizes = [int(sizes[one.name]) for one in order]
        self.apart: list[str] = []
        self.memo: dict[tuple[Basic, Axes], Any] = {}

    # ---- expressions -------------------------------------------------------------------------------------------------

    def digit(self, first: int, count: int = 1) -> Expr:
        """The index along `count` axes together: ⌊p / product of later sizes⌋ mod the product of their own sizes."""
        last = first + count
        below, own = prod(self.sizes[last:]), prod(self.sizes[first:last])
        above: Expr = self.axis if below == 1 else floor(self.axis / Integer(below))
        return above if first == 0 else Mod(above, Integer(own))

    def of(self, node: Any, free: Axes) -> Any:
        """Rewrite an expression in which p stands for the axes `free`."""
        if (node, free) not in self.memo:
            self.memo[node, free] = self._of(node, free)
        return self.memo[node, free]

    def _of(self, node: Any, free: Axes) -> Any:
        if isinstance(node, Axis):
            if node not in free:
                return node
            self.apart.append(f"axis {node}, which stands by itself,")
            return self.digit(self.order.index(node))
        if isinstance(node, Extent):
            return self._extent(node)
        if isinstance(node, Element):
            return self._element(node, free)
        if isinstance(node, Value):
            return Value(node.args[0], *self.axes(node.indices, free))
        if isinstance(node, Reduce) and set(node.bound) & free:
            raise PlanError(
                f"`{node}` sums over an axis that is reduced together with others, which the tile program does not "
                'hold. Run it with backend="torch".'
            )
        return with_args(node, [self.of(one, free) for one in node.args])

    def _extent(self, node: Extent) -> Expr:
        names = {*map(str, self.order)}
        if {*node.name.split(" ")} == names:  # of all of them, as a reduction counts its elements
            return self.axis.extent
        if node.name in names:
            self.apart.append(f"the extent of axis {node.name}")
        return node

    def _element(self, node: Element, free: Axes) -> Element:
        runs, indices = self.views.get(node.name), list[Expr]()
        for first, count in runs or [(place, 1) for place in range(len(node.indices))]:
            index = node.indices[first]
            if index in free:
                indices.append(self.digit(self.order.index(index), count))
                if count < len(self.order):
                    self.apart.append(f"`{node}`")
            else:
                indices.append(self.of(index, free))
        return Element(node.args[0], *indices)

    def axes(self, axes: Iterable[Any], free: Axes) -> tuple[Axis, ...]:
        """The axes with p in the place of the first that it stands for, and without the others."""
        return tuple(dict.fromkeys(self.axis if one in free else one for one in axes))

    # ---- a cascade ---------------------------------------------------------------------------------------------------

    def cascade(self, cascade: Cascade, outer: Axes) -> Cascade:
        """Rewrite a cascade and its own producers."""
        free = within(cascade, outer, frozenset(self.order))
        own = bool(free & set(cascade.reduced_axes))
        return replace(
            cascade,
            axis=self.axis if own else cascade.axis,
            inner=() if own else cascade.inner,
            reductions=tuple(replace(reduction, term=self.of(reduction.term, free),
                                     axes=self.axes(reduction.axes, free)) for reduction in cascade.reductions),
            producers=tuple(Producer(producer.name, self.axes(producer.axes, free),
                                     self.cascade(producer.cascade, free)) for producer in cascade.producers),
            outputs=tuple(replace(output, expr=self.of(output.expr, free), axes=self.axes(output.axes, free))
                          for output in cascade.outputs),
            domain=self.of(cascade.domain, free),
        )  # fmt: skip

    # ---- a form ------------------------------------------------------------------------------------------------------

    def form(self, form: FusedForm) -> FusedForm:
        """Rewrite every part of a form."""
        free = within(form.cascade, NONE, frozenset(self.order))

        def change(node: Any) -> Any:
            return self.of(node, free)

        return replace(
            form,
            cascade=self.cascade(form.cascade, NONE),
            extrema=tuple(replace(one, term=change(one.term)) for one in form.extrema),
            structures=tuple(replace(one, term=change(one.term)) for one in form.structures),
            pivots=tuple(mapped_pivot(one, change) for one in form.pivots),
            accumulators=tuple(mapped_accumulator(one, change) for one in form.accumulators),
            assignments=tuple(replace(one, expr=change(one.expr)) for one in form.assignments),
            outputs=tuple(self.output(one, free) for one in form.outputs),
        )

    def output(self, output: FormOutput, free: Axes) -> FormOutput:
        """Rewrite an output: p is one of its axes if it has them all side by side; else its places are computed."""
        result = mapped_output(output, lambda node: self.of(node, free))
        if not free & set(output.axes):
            return result
        axes = self.axes(output.axes, free)
        numbers = [self.order.index(axis) if axis in free else -1 for axis in output.axes]
        if (0, len(self.order)) in {(numbers[first], count) for first, count in runs_of(numbers)}:
            return replace(result, axes=axes, caller_axes=output.axes)
        self.apart.append(f"output `{output.name}`")
        places = tuple(self.digit(self.order.index(axis)) if axis in free else axis for axis in output.axes)
        shared = [Eq(self.digit(place), 0) for place, axis in enumerate(self.order) if axis not in output.axes]
        return replace(result, axes=axes, caller_axes=output.axes, places=places, once=And(*shared))
