"""Tell if what follows a loop reads its sums as ratios alone: a factor that all of them have is then of no account.

o = s / l; lse = c + log l     s and l have the degree 1, s / l has 0, log l has none
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import reduce
from typing import final

from sympy import Abs, Add, Expr, Max, Min, Mul, Pow, S
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.expression import Where
from redalg.lower_tile.ir.program import Copy, Fill, Parallel, Statement, Store, expressions
from redalg.lower_tile.ir.scalars import Is, IsNaN, Kept, Load
from redalg.lower_tile.passes.elements import loads_of_store, mentions

ANY = S.Infinity
"""The degree of 0 and ±∞, which a positive factor leaves as they are."""


@final
class NoDegreeError(Exception):
    """An expression that a common factor of the sums changes in another way than by a power."""


def only_ratios_count(sums: Iterable[Load], after: Iterable[Statement], buffers: Container[str]) -> bool:
    """Tell if a positive factor of the sums changes nothing that the statements after their loop store elsewhere.

    `buffers` are the kernel's own.
    """
    degrees: dict[str, Expr] = {one.name: S.One for one in sums}
    try:
        for statement in after:
            _follow(statement, degrees)
    except NoDegreeError:
        return False
    return all(name in buffers for name in degrees)


def _follow(statement: Statement, degrees: dict[str, Expr]) -> None:
    """Note the degrees of what a statement stores."""
    if isinstance(statement, Parallel):
        for store in statement.body:
            _keep(store.target, _degree_of_store(store, degrees), degrees)
    elif isinstance(statement, Copy) and isinstance(statement.source, str) and isinstance(statement.target, str):
        _keep(statement.target, degrees.get(statement.source, S.Zero), degrees)
    elif isinstance(statement, Fill):
        _keep(statement.buffer, S.Zero, degrees)
    elif mentions(statement) & degrees.keys() or _loads(expressions(statement)) & degrees.keys():
        raise NoDegreeError


def _loads(nodes: Iterable[Basic]) -> set[str]:
    return {load.name for node in nodes for load in node.atoms(Load)}


def _keep(name: str, degree: Expr, degrees: dict[str, Expr]) -> None:
    degrees.pop(name, None)
    if degree not in (S.Zero, ANY):
        degrees[name] = degree


def _degree_of_store(store: Store, degrees: dict[str, Expr]) -> Expr:
    if store.once or _loads((store.guard, *store.indices)) & degrees.keys():
        if {load.name for load in loads_of_store(store)} & degrees.keys():
            raise NoDegreeError
        return S.Zero
    return _degree(store.expr, degrees)


def _degree(node: Basic, degrees: dict[str, Expr]) -> Expr:
    """The power of a common factor of the sums that an expression has."""
    if node in (S.Zero, S.Infinity, S.NegativeInfinity):
        return ANY
    if not _loads((node,)) & degrees.keys():
        return S.Zero
    if isinstance(node, Load):
        return degrees[node.name]
    if isinstance(node, Mul):
        return sum((_degree(one, degrees) for one in node.args), S.Zero)
    if isinstance(node, Pow) and node.exp.is_number:
        return _degree(node.base, degrees) * node.exp
    if isinstance(node, Add | Max | Min | Abs | Kept):
        return _same(_degree(one, degrees) for one in node.args)
    if isinstance(node, Where) and _is_unmoved(node.args[0], degrees):
        return _same(_degree(one, degrees) for one in node.args[1:])
    raise NoDegreeError


def _is_unmoved(condition: Basic, degrees: dict[str, Expr]) -> bool:
    """Tell if a positive factor of the sums changes no condition: it compares with 0 or ±∞."""
    if not _loads((condition,)) & degrees.keys():
        return True
    if isinstance(condition, IsNaN):
        return True
    return isinstance(condition, Relational | Is) and condition.args[1] in (S.Zero, S.Infinity, S.NegativeInfinity)


def _same(degrees: Iterable[Expr]) -> Expr:
    """The degree that all terms have."""
    return reduce(_both, degrees, ANY)


def _both(a: Expr, b: Expr) -> Expr:
    if ANY in (a, b):
        return b if a == ANY else a
    if a != b:
        raise NoDegreeError
    return a
