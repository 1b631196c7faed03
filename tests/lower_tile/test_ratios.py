"""A factor of all sums is of no account where their ratios alone are read."""

from __future__ import annotations

import pytest
from sympy import Abs, Eq, Expr, Max, S, log, oo, symbols

from redalg.expression import Where
from redalg.lower_tile.ir.program import Copy, Parallel, Region, Statement, Store
from redalg.lower_tile.ir.scalars import Is, Load
from redalg.lower_tile.passes.exponents import only_ratios_count

(i,) = symbols("i,", integer=True)
S1, L, X, OUT = (Load(name, i) for name in ("s", "l", "x", "out"))
BUFFERS = {"s", "l", "x"}


def stores(*pairs: tuple[Load, Expr]) -> tuple[Statement, ...]:
    return tuple(Parallel(((i, 8),), (Store(to.name, to.indices, expr),)) for to, expr in pairs)


RATIOS = {
    "a quotient": stores((OUT, S1 / L)),
    "through a name": stores((X, 1 / L), (OUT, S1 * X)),
    "guarded": stores((OUT, Where(Is(L, oo), S.Zero, S1 / L))),
    "no element": stores((OUT, Where(Eq(L, 0), S.NegativeInfinity, S1 / L))),
    "square": stores((OUT, S1**2 / L**2 - (S1 / L + 1))),
    "roots": stores((OUT, Max(S1, L) / Abs(L))),
    "neither is read": stores((OUT, X)),
    "overwritten": stores((S1, X), (OUT, S1)),
}
OTHERS = {
    "a sum itself": (*stores((X, 2 * S1)), Copy("x", Region("out", (i,)))),
    "a sum at once": stores((OUT, S1)),
    "a logarithm": stores((OUT, log(L))),
    "sums of two degrees": stores((OUT, (S1 + 1) / L)),
    "a bound": stores((OUT, Where(L < 1, S.Zero, S1 / L))),
    "a guard": (Parallel(((i, 8),), (Store("out", (i,), X, L < 1),)),),
    "copied out": (Copy("s", Region("out", (i,))),),
    "in another dtype": (Copy("s", "x"), Copy("x", Region("out", (i,)))),
}


@pytest.mark.parametrize("name", RATIOS)
def test_ratios(name: str) -> None:
    assert only_ratios_count((S1, L), RATIOS[name], BUFFERS)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_ratio(name: str) -> None:
    assert not only_ratios_count((S1, L), OTHERS[name], BUFFERS)
