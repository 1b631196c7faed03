"""Sums of which a mask hides d: where no element passes it they are 0, whatever d is.

    Σ where(c, f, 0)   → where(some c, Σ where(c, f, 0), 0)            f of x and d, c of x alone; some: of an element
    Σ where(c, f, g)   → Σ where(c, f, 0) + Σ where(c, 0, g)           where f or g holds d

Exact. Taken apart f is a sum of h(d)·g(x), and h·0 is not 0 where h is not finite: 1/Σw of weights that are all 0, say,
for which the mask w > 0 is there. What stands beside a mask and holds d is read everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Add, Expr, Mul, S

from redalg.decompose.laurent import Polynomial
from redalg.decompose.separate import Separator
from redalg.decompose.theorems import D, X
from redalg.expression import Value, Where
from redalg.expression.contents import is_indicator, values_of


def guarded(term: Expr, separator: Separator) -> dict[Expr, Expr]:
    """The parts of a term by their guards: an indicator of x, 1 for what nothing guards."""
    made: dict[Expr, Expr] = {}
    for addend in Add.make_args(term):
        for some, part in _of_addend(addend, separator):
            made[some] = made.get(some, S.Zero) + part
    return made


def _of_addend(addend: Expr, separator: Separator) -> Iterator[tuple[Expr, Expr]]:
    factors = Mul.make_args(addend)
    of_d = [one for one in factors if separator.side(one) & D]
    if len(of_d) != 1 or not _hides(of_d[0], separator):
        yield S.One, addend
        return
    condition, *branches = of_d[0].args
    beside = Mul(*(one for one in factors if one is not of_d[0]))
    for place, branch in enumerate(branches):
        for some, part in _of_addend(branch, separator) if branch is not S.Zero else ():
            yield some * _at(place, condition, S.One), beside * _at(place, condition, part)


def _at(place: int, condition: Expr, branch: Expr) -> Expr:
    """where(c, branch, 0), or where(c, 0, branch)."""
    return Where(condition, branch, S.Zero) if place == 0 else Where(condition, S.Zero, branch)


def _hides(node: Expr, separator: Separator) -> bool:
    """Whether it is a mask of x alone with d in a branch."""
    return isinstance(node, Where) and separator.side(node.condition) == X and bool(separator.side(node) & D)


def hides(polynomial: Polynomial, separator: Separator) -> bool:
    """Whether a polynomial has factors of d that need not be finite."""
    atoms = (separator.atoms.list[number] for _, d in polynomial for number, _ in d)
    return any(values_of(one.base) & separator.values and not _is_finite(one.base, separator) for one in atoms)


def _is_finite(d: Expr, separator: Separator) -> bool:
    """Whether it is a number of elements or a truth."""
    kind, term = separator.facts.get(d, ("", S.Zero)) if isinstance(d, Value) else ("", S.Zero)
    return is_indicator(d) or kind in ("any", "all") or (kind == "sum" and term is S.One)
