"""Passes over the data: a cascade cut into cascades, each of which separates once those before it have been computed.

d_i = ⊕ F_i(x; d_1 … d_{i-1})   →   first pass: the d's that some F needs;  second pass: the rest, given them
Σ cast(g(x)·h(d))·f(x, e)       →   first pass: cast(g·h) too, once instead of for every e;  second pass: Σ of a product
F(x; Σ_n 1)                     →   F(x; |n|)          a call knows |n|, where a stream learns it last: it takes no pass

Exact: in a later pass those d's are tensors like any other, and a term of x and of tensors separates as itself.

The number of passes is the least: every reduction takes the earliest in which it separates, with values of earlier
passes as tensors. Then each goes as late as it may: an early pass reads and computes no more than a later one needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, final

from sympy import Expr, Float

from redalg.decompose.cascade import Cascade, Output, Producer, Reduction
from redalg.decompose.domain import with_domain
from redalg.decompose.mapped import map_cascade
from redalg.decompose.parse.axes import outermost_reductions
from redalg.decompose.parse.parse import parse
from redalg.decompose.parse.totals import total_of
from redalg.decompose.verdict.of_rows import read_functions_of_rows
from redalg.decompose.verdict.verdict import Decomposition, decompose
from redalg.decompose.verdict.words import short_reductions
from redalg.errors import ExpressionError, InputError, NotDecided, NotFusible
from redalg.expression import Axis, Cast, Element, Label, Value
from redalg.expression.contents import axes_by_name, elements_of, free_axes, values_of
from redalg.expression.dtypes import is_float

NUMBERS = {1: "one pass", 2: "two passes", 3: "three passes", 4: "four passes"}
"""Numbers of passes in words."""


def most_passes(passes: Any, *, exact: bool) -> int:
    """The most passes over the data that a form may take."""
    if passes is not None and (isinstance(passes, bool) or not isinstance(passes, int) or passes < 1):
        raise ExpressionError(f"fuse: passes={passes!r} is no number of passes over the data. Pass an int from 1 on.")
    return passes or 1 + exact


def decompose_in_passes(cascade: Cascade, most: int, *, exact: bool) -> tuple[Decomposition, ...] | None:
    """The fewest decompositions, in the order of their passes, that compute a cascade; None if `most` do not.

    Without `exact` one pass may round at a running value if the exact passes are too many; several passes never do.
    """
    levels = Levels(cascade, most, exact=True)
    if levels.needed is not None and levels.needed <= most:
        return tuple(map(decompose, pass_cascades(levels.cascade, levels, levels.number)))
    return None if exact or blocking_reduction(cascade, exact=False) else (decompose(cascade),)


@final
@dataclass(frozen=True)
class Advice:
    """Advice for a cascade that one pass does not compute: the call that does, found when this is read.

    Attributes:
        cascade: as it was parsed.
        other: other help, in sentences; empty if none is known.
    """

    cascade: Cascade
    other: str = ""

    @cached_property
    def passes(self) -> int | None:
        """The least `passes=` that gives an exact form; None if no number does."""
        return Levels(self.cascade, 1 + len(self.cascade.reductions), exact=True).needed

    @cached_property
    def text(self) -> str:
        """The advice in sentences."""
        if self.passes is None:
            return self.other or (
                "Write the term as a sum of products, each of a function of the elements and one of the reduced values."
            )
        call = f"`ra.fuse(…, passes={self.passes})`"
        run = f"Run {passes_in_words(self.passes)}: {call} {self._order}."
        return f"{self.other} Or {run[0].lower()}{run[1:]}" if self.other else run

    @property
    def _order(self) -> str:
        """The order in which a call of `passes` passes computes, in words."""
        *earlier, _ = decompose_in_passes(self.cascade, self.passes or 1, exact=True) or ()
        if not earlier:
            known = "·".join(f"|{axis}|" for axis in self.cascade.reduced_axes)
            return f"takes {known} from the tensors, which a stream learns last, and reads the data once"
        written = [(expr, text) for expr, text in short_reductions(self.cascade) if isinstance(expr, Value)]
        texts = {value.name: f"`{text}`" for value, text in written}
        values = [[texts.get(one.name, one.name) for one in each.cascade.outputs] for each in earlier]
        tensors = "it as a tensor" if sum(map(len, values)) == 1 else "them as tensors"
        first = " first" if len(values) == 1 else ""
        return f"computes {', then '.join(map(' and '.join, values))}{first}, then the rest with {tensors}"

    def __str__(self) -> str:
        return self.text


def passes_in_words(passes: int) -> str:
    """A number of passes in words."""
    return NUMBERS.get(passes, f"{passes} passes")


def refuse_states(caller: str, cascade: Cascade, earlier: Sequence[Decomposition]) -> None:
    """Raise `InputError` if a form takes several passes: then no state of one pass holds it."""
    if not earlier:
        return
    values = (" and ".join(output.name for output in before.cascade.outputs) for before in earlier)
    parts = ", ".join(f"pass {number} for {names}" for number, names in enumerate(values, 1))
    approximate = " Fuse without exact= and passes= for the approximate one-pass state." * _is_rounded(cascade)
    raise InputError(
        f"{caller}: this form takes {passes_in_words(len(earlier) + 1)} over the data ({parts}), so no state of one "
        f"pass holds it. Call it on whole tensors, or fuse those values apart and pass them as tensors.{approximate}"
    )


def _is_rounded(cascade: Cascade) -> bool:
    """Tell if one pass would approximate what several compute exactly."""
    try:
        return bool(decompose(cascade).roundings)
    except (NotFusible, NotDecided):
        return False


# ---- which reduction in which pass -----------------------------------------------------------------------------------


@final
class Levels:
    """The earliest pass of every reduction of a cascade, the first being 1.

    Attributes:
        cascade: the cascade; a term that must know the number of elements beforehand takes the call's.
        exact: True if a rounding at a running value waits for a later pass.
        of: value -> pass; a count has none, since each pass counts for itself.
        counted: the values whose terms know the number of elements.
        number: the number of passes over the data.
        needed: the least `passes=` of a call; None if no number of passes is enough, or only more than `most`.
    """

    def __init__(self, cascade: Cascade, most: int, *, exact: bool) -> None:
        self.cascade, self.exact = cascade, exact
        self.of = {one.value: 1 for one in cascade.reductions if not one.is_count}
        self.counted: set[Value] = set()
        self.needed: int | None = None
        for level in range(1, most + 1):
            if not self.settle(level):
                return
            if self.number == level:
                self.needed = max(level, 2 if self.counted else 1)
                return

    @property
    def number(self) -> int:
        return max(self.of.values(), default=1)

    def settle(self, level: int) -> bool:
        """Move each reduction that does not separate in a pass to the next one; False if one never separates."""
        while (name := blocking_reduction(self.only(level), exact=self.exact)) is not None:
            blocked = next(one for one in self.cascade.reductions if one.name == name)
            if not self.count_first(blocked) and not self.defer(blocked, level):
                return False
        return True

    def only(self, level: int) -> Cascade:
        """The cascade of one pass: its reductions, those of earlier passes as tensors."""
        outputs = tuple(Output(one.name, one, one.indices) for one, own in self.of.items() if own == level)
        before = [one for one, own in self.of.items() if own < level]
        return prune_cascade(substitute_tensors(replace(self.cascade, outputs=outputs), as_tensors(before)))

    def count_first(self, blocked: Reduction) -> bool:
        """Let a term know the number of elements; False if it holds no count."""
        total = total_of(self.cascade.reduced_axes)
        counts = {one.value: total for one in self.cascade.reductions if one.is_count}
        if not values_of(blocked.term) & counts.keys():
            return False
        self.counted.add(blocked.value)
        reductions = (replace(reduction, term=reduction.term.xreplace(counts)) if reduction == blocked else reduction
                      for reduction in self.cascade.reductions)  # fmt: skip
        self.cascade = replace(self.cascade, reductions=tuple(reductions))
        return True

    def defer(self, blocked: Reduction, level: int) -> bool:
        """Move a reduction to the next pass, with all that depends on it; False if its term waits for no value."""
        if not any(self.of.get(one) == level for one in values_of(blocked.term)):
            return False
        later = {blocked.value}
        for reduction in self.cascade.reductions:
            later |= {reduction.value} if values_of(reduction.term) & later else set()
        self.of |= {one: level + 1 for one in later if self.of[one] == level}
        return True


def blocking_reduction(cascade: Cascade, *, exact: bool) -> str | None:
    """The name of a reduction without a one-pass form (if `exact`, one without roundings); None if all have one."""
    try:
        separated = decompose(cascade)
    except (NotFusible, NotDecided) as why:
        return why.reduction
    return next((one.name for one, _ in separated.roundings if exact), None)


# ---- the cut ---------------------------------------------------------------------------------------------------------


def pass_cascades(cascade: Cascade, levels: Levels, number: int) -> Iterator[Cascade]:
    """The cascades of a number of passes, the last of which computes as much as it may."""
    if number == 1:
        yield cascade
        return
    early, roundings = early_values(cascade, levels)
    first, second = split_cascade(cascade, early, roundings)
    yield from map(earlier_cascade, pass_cascades(first, levels, number - 1))
    yield second


def earlier_cascade(cascade: Cascade) -> Cascade:
    """The cascade of a pass before the last, without outputs of an earlier pass: those are tensors to it."""
    tensors = set(cascade.inputs())
    return prune_cascade(replace(cascade, outputs=tuple(one for one in cascade.outputs if one.name not in tensors)))


def early_values(cascade: Cascade, levels: Levels) -> tuple[set[Value], list[Cast]]:
    """The values that the last pass needs as tensors, and the roundings of them that are to be exact."""
    early, roundings, shrunk = set[Value](), list[Cast](), set[str]()
    while True:
        rest = prune_cascade(substitute_tensors(cascade, as_tensors(early)))
        try:
            running = [one.cast for _, one in decompose(rest).roundings if levels.exact]
            blockers = {value for one in running for value in values_of(one) & levels.of.keys()}
            roundings += [one.xreplace(as_values(early)) for one in running]
            if not running:
                break
        except (NotFusible, NotDecided) as why:
            blocked = next(one for one in rest.reductions if one.name == why.reduction)
            blockers = {earlier for earlier in values_of(blocked.term) & levels.of.keys()
                        if levels.of[earlier] < levels.of[blocked.value]}  # fmt: skip
            if blocked.name not in shrunk:
                blockers = blocking_values(rest, blocked, blockers, exact=levels.exact)
            shrunk.add(blocked.name)
            if not blockers:
                raise
        early |= blockers
    return early | (dependencies(early, cascade) & values_in(rest) & levels.of.keys()), roundings


def blocking_values(cascade: Cascade, blocked: Reduction, candidates: set[Value], *, exact: bool) -> set[Value]:
    """The values that must be tensors for a reduction to separate; the others may be running values."""
    needed = [one for one in cascade.values if one in candidates]
    running = [one.value for one in cascade.reductions if not one.is_count]  # each pass counts for itself
    for value in reversed(needed):
        fewer = [other for other in needed if other != value]
        tensors = [other for other in running if other not in candidates or other in fewer]
        alone = replace(cascade, outputs=(Output(blocked.name, blocked.value, blocked.axes),))
        tensors.remove(blocked.value)
        if blocking_reduction(prune_cascade(substitute_tensors(alone, as_tensors(tensors))), exact=exact) is None:
            needed = fewer
    return set(needed)


def dependencies(values: Iterable[Value], cascade: Cascade) -> set[Value]:
    """The values that are needed to compute these, including themselves."""
    reached = set(values)
    for reduction in reversed(cascade.reductions):
        reached |= values_of(reduction.term) if reduction.value in reached else set()
    return reached


def values_in(cascade: Cascade) -> set[Value]:
    """The reduced values that a cascade computes."""
    return set(cascade.values)


def split_cascade(cascade: Cascade, needed: Iterable[Value], roundings: Iterable[Cast] = ()) -> tuple[Cascade, Cascade]:
    """The cascade of the needed values and roundings, and the cascade in which they are tensors of the same names."""
    early = set(needed)
    tensors: dict[Expr, Expr] = {**as_tensors(one for one in cascade.values if one in early)}
    rounded = []
    for number, rounding in enumerate(cast for cast in dict.fromkeys(roundings) if rounds_repeatedly(cast, cascade)):
        tensor = Element(Label(free_name(f"rounded_{number}", cascade)), *rounding_axes(rounding, cascade))
        stored = rounding if is_float(rounding.dtype) else Float(1) * rounding
        rounded.append(Output(tensor.name, stored, tensor.indices, carries=True))
        tensors[rounding] = tensor
    second = prune_cascade(extract_producers(substitute_tensors(cascade, tensors)))
    rows = as_values(one.value for one in cascade.reductions if one.value in early and not one.dtype)
    second, functions = read_functions_of_rows(second, rows, partial(free_name, cascade=second))
    numbers = second.value_tensors()
    values = [Output(reduction.name, as_number(reduction) if reduction.name in numbers else reduction.value,
                     reduction.value.indices)
              for reduction in cascade.reductions if reduction.value in early]  # fmt: skip
    values += [Output(one.name, expr.xreplace(rows), one.indices) for one, expr in functions.items()]
    used = tuple(one for one in (*values, *rounded) if one.name in second.inputs())
    return prune_cascade(replace(cascade, outputs=used)), second


def extract_producers(cascade: Cascade) -> Cascade:
    """The cascade in which reductions of tensors over other axes are producers: no value in them is still running."""
    producers: dict[Expr, Producer] = {}
    for expr in (*(one.term for one in cascade.reductions), *(one.expr for one in cascade.outputs)):
        for node in outermost_reductions(expr):
            if node not in producers and not values_of(node):
                name = free_name(
                    "_".join([node.kind, *(str(axis.name) for axis in node.bound)]), cascade, producers.values()
                )
                axes = axes_by_name(free_axes(node))
                producers[node] = Producer(name, axes, parse({name: (node, axes)}))
    values: dict[Expr, Expr] = {node: one.value for node, one in producers.items()}
    read = map_cascade(replace(cascade, producers=()), lambda expr: expr.xreplace(values))
    return replace(read, producers=(*cascade.producers, *producers.values()))


def as_number(reduction: Reduction) -> Expr:
    """A value where it stands in arithmetic: a place or a truth value as a number of the pass' own dtype."""
    return reduction.value if not reduction.dtype else Float(1) * reduction.value


def as_tensors(values: Iterable[Value]) -> dict[Expr, Expr]:
    """Values as tensors of the same names."""
    return {one: Element(Label(one.name), *one.indices) for one in values}


def as_values(values: Iterable[Value]) -> dict[Expr, Expr]:
    """Tensors that bear the names of values, as those values."""
    return {tensor: one for one, tensor in as_tensors(values).items()}


def rounds_repeatedly(cast: Cast, cascade: Cascade) -> bool:
    """Tell if a sum would round the same number again for every element of an axis that the rounding lacks."""
    axes = free_axes(cast)
    sums = [one for one in cascade.reductions if one.term.has(cast)]
    return cascade.axis in axes and not cascade.inner and all(set(one.axes) - axes for one in sums)


def rounding_axes(cast: Cast, cascade: Cascade) -> tuple[Axis, ...]:
    """The axes of a rounding, in the order of a tensor in it that has all; if none has, the reduced axis is last."""
    axes = free_axes(cast)
    for element in sorted(elements_of(cast), key=str):
        if element.is_plain and set(element.indices) == axes:
            return tuple(element.indices)
    return (*sorted(axes - {cascade.axis}, key=str), cascade.axis)


def free_name(name: str, cascade: Cascade, others: Iterable[Producer] = ()) -> str:
    """The name, with underscores appended if a part of the cascade or one of other producers bears it."""
    used = {*cascade.inputs(), *(one.name for one in cascade.scalars()), *(one.name for one in cascade.values)}
    used |= {one.name for one in (*cascade.producers, *others)}
    return name if name not in used else free_name(f"{name}_", cascade, others)


def substitute_tensors(cascade: Cascade, tensors: Mapping[Expr, Expr]) -> Cascade:
    """The cascade with values replaced by tensors, their reductions gone."""
    reductions = tuple(reduction for reduction in cascade.reductions if reduction.value not in tensors)
    return with_domain(map_cascade(replace(cascade, reductions=reductions), lambda expr: expr.xreplace(tensors)))


def prune_cascade(cascade: Cascade) -> Cascade:
    """The cascade without the reductions and producers that no output needs."""
    used = {value for one in cascade.outputs for value in values_of(one.expr)} | values_of(cascade.domain)
    reductions = []
    for reduction in reversed(cascade.reductions):
        if reduction.value in used:
            reductions.append(reduction)
            used |= values_of(reduction.term)
    producers = tuple(one for one in cascade.producers if one.value in used or _feeds(one.value, cascade, used))
    return replace(cascade, reductions=tuple(reversed(reductions)), producers=producers)


def _feeds(value: Value, cascade: Cascade, used: set[Value]) -> bool:
    """Tell if a producer stands in another that is used."""
    return any(value in values_of(expr) for producer in cascade.producers if producer.value in used
               for expr in producer.cascade.expressions())  # fmt: skip
