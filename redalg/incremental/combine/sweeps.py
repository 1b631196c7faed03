"""A program by group as sweeps over the elements: each sweep makes every fold whose operands are known by then.

lines of groups     between two sweeps, once for each group
lines of elements   within the sweeps whose folds read them, anew in each
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from redalg.expression import Axis, Value
from redalg.incremental.combine.let import Assign, Fold, Let, Program


@final
@dataclass(frozen=True)
class Sweep:
    """One pass over the elements.

    Attributes:
        before: lines of groups, that are run before it.
        lines: lines of elements that its folds read, in order.
        folds: the folds that it makes.
        reads: the values of groups that its lines and folds read.
    """

    before: tuple[Let, ...]
    lines: tuple[Assign, ...]
    folds: tuple[Fold, ...]
    reads: tuple[Value, ...]


def sweeps_of(program: Program, axis: Axis) -> tuple[tuple[Sweep, ...], tuple[Let, ...]] | None:
    """The sweeps of a program that folds over one axis, and the lines of groups after the last.

    None if it has lines that a sweep does not hold: elements of several components, folds over other axes.
    """
    level, lines = dict[Value, int](), dict[Value, Assign]()
    for let in program.lets:
        if not isinstance(let, Assign | Fold) or (isinstance(let, Fold) and let.over != (axis,)):
            return None
        level[let.value] = max((level[value] for value in let.reads), default=0) + isinstance(let, Fold)
        if isinstance(let, Assign) and axis in let.value.indices:
            lines[let.value] = let
    last = max(level.values(), default=0)
    own = [let for let in program.lets if let.values[0] not in lines]
    sweeps = [_sweep(number, own, level, lines) for number in range(1, last + 1)]
    return tuple(sweeps), tuple(let for let in own if isinstance(let, Assign) and level[let.value] == last)


def _sweep(number: int, own: list[Let], level: dict[Value, int], lines: dict[Value, Assign]) -> Sweep:
    folds = tuple(let for let in own if isinstance(let, Fold) and level[let.value] == number)
    needed = set(_operands({value for fold in folds for value in fold.reads}, lines))
    inner = tuple(line for value, line in lines.items() if value in needed)
    reads = {value for let in (*folds, *inner) for value in let.reads} - lines.keys()
    before = tuple(let for let in own if isinstance(let, Assign) and level[let.value] == number - 1)
    return Sweep(before, inner, folds, tuple(sorted(reads, key=str)))


def _operands(values: set[Value], lines: dict[Value, Assign]) -> Iterator[Value]:
    for value in values & lines.keys():
        yield value
        yield from _operands(set(lines[value].reads), lines)
