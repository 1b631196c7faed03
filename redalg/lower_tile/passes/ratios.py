"""Tell if what follows a loop reads its sums as ratios alone: a factor that all of them have is then of no account.

o = s / l; lse = c + log l     s and l have the degree 1, s / l has 0, log l has none
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from sympy import Expr, S
from sympy.core.basic import Basic

from redalg.expression.degrees import ANY, NoDegreeError, degree_of
from redalg.lower_tile.ir.program import Copy, Fill, Parallel, Statement, Store, expressions
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.lower_tile.passes.elements import loads_of_store, mentions


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
    return degree_of(store.expr, lambda node: degrees.get(node.name) if isinstance(node, Load) else None, (Kept,))
