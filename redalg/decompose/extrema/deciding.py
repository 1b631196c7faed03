"""Parts of a term that give its extremum: the condition of theorems about a part, of which another may be larger.

    decides(f, F)    f, a part of F, gives max F by three elements in turn, in data sets where it is another without f

A term is read as choices (max, min and where) among parts. Factors and addends of a choice are moved into its parts,
and a function of few values is a choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sympy import Abs, Expr, Max, Min
from sympy.core.basic import Basic

from redalg.decompose.extrema.extremal import Finder
from redalg.decompose.samples.conditions import CORNERS, count_strict_extrema
from redalg.decompose.separate.finite import CASES_LIMIT, by_cases
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, X
from redalg.expression import Where
from redalg.expression.contents import operations_of
from redalg.expression.expanded import expansion
from redalg.expression.rebuild import extremum_as_written
from redalg.monoids import monoid

SIZE_LIMIT = 60
"""Operations of a part beyond which its spelling is not changed, to find it or to take it apart."""


def decides(node: Basic, term: Expr, kind: str, separator: Separator) -> bool:
    """Tell if a part of a term gives its extremum, by at least three elements in turn.

    Args:
        node: the part, or the condition of a choice.
        term, kind: the compared term, and the extremum: max or min.
        separator: tells x from d.
    """
    choices, none = Choices(separator), monoid(kind).identity
    written_out = expansion(node) if isinstance(node, Expr) and operations_of(node) <= SIZE_LIMIT else None

    def is_part(part: Expr) -> bool:
        if part == node or (isinstance(part, Where) and part.condition == node):
            return True
        return operations_of(part) <= SIZE_LIMIT and expansion(part) == written_out

    whole = choices.of(term, lambda one: one)
    without = choices.of(term, lambda one: none if is_part(one) else one)
    if without == none:
        return True
    return without != whole and count_strict_extrema(whole, kind, separator, without) >= CORNERS


@final
class Choices:
    """A term as choices among parts. What a node opens to is remembered, as a term is read twice."""

    def __init__(self, separator: Separator) -> None:
        self.finder = Finder(separator)
        self._opened: dict[tuple[Expr, int], tuple[Expr, int]] = {}

    def of(self, node: Expr, part: Callable[[Expr], Expr], opened: int = 0) -> Expr:
        """A term as choices of parts, each replaced by `part` of it."""
        if self.finder.separator.side(node) != X | D or part(node) != node:
            return part(node)
        choice, opened = self._open(node, opened)
        if not isinstance(choice, Max | Min | Where) or part(choice) != choice:
            return part(choice)
        first, *rest = (self.of(one, part, opened) if isinstance(one, Expr) else one for one in choice.args)
        return Where(first, *rest) if isinstance(choice, Where) else extremum_as_written(choice.func, [first, *rest])

    def _open(self, node: Expr, opened: int) -> tuple[Expr, int]:
        """A node as a choice if it is one, and the number of parts of few values that were opened."""
        if (node, opened) not in self._opened:
            form, number = self.finder.inward(node), opened
            if isinstance(form, Abs):
                form = extremum_as_written(Max, [form.args[0], -form.args[0]])
            if not isinstance(form, Max | Min | Where) and opened < CASES_LIMIT and operations_of(form) <= SIZE_LIMIT:
                form, number = by_cases(form, form, self.finder.separator, summed=False) or form, opened + 1
            self._opened[node, opened] = form, number
        return self._opened[node, opened]
