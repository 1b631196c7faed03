"""One division for several powers of a number, and long branches without a jump."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Expr, Rational, S, sqrt, symbols

import redalg as ra
from redalg.lower_tile.ir.program import Parallel, Statement, Store
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.lower_tile.passes.reciprocals import units_of, with_units
from redalg.lower_tile.text.branches import is_long_arithmetic

i, j, d = ra.axes("i j d")
X, Y, W = ra.tensors("x[i,d] y[j,d] w[j]")
square = ra.sum((X - Y) ** 2, d)
SIZES = {"i": 4096, "j": 4096, "d": 3}
POTENTIALS = {
    "cutoff": ra.where((square > Rational(1, 4)) & (square < Rational(25, 4)), 2 / square**6 - 2 / square**3, 0),
    "two quotients": W / (square + 1) - 1 / (square + 1) ** 4,
    "roots": W / sqrt(square + 1) + (square + 1) ** Rational(-5, 2) - 1 / (square + 1),
}


@pytest.mark.parametrize("name", POTENTIALS)
def test_a_loop_divides_once(name: str) -> None:
    form = ra.fuse(ra.sum(POTENTIALS[name], j), axes="i")
    loop = form.source("sm_90a", sizes=SIZES, dtypes="float32").split("for j in")[1].split("T.Kernel")[0]
    assert loop.count("reciprocal_of(") + loop.count("inverse_root_of(") == 1
    assert " / " not in loop
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 3, generator=generator) for n in (37, 300))
    data = {"x": x, "y": y, "w": torch.randn(300, generator=generator)}
    data = {key: one for key, one in data.items() if key in form.cascade.inputs()}
    wanted = form.reference(**{key: one.double() for key, one in data.items()})
    torch.testing.assert_close(
        form(**data, backend="tilelang").double(), wanted, rtol=2e-6, atol=1e-6 * float(wanted.abs().max())
    )


A, B, C = (Load(name, *symbols("i j")) for name in "abc")


def loop_of(*exprs: Expr) -> Statement:
    at = symbols("i j")
    return Parallel(tuple((one, 8) for one in at), tuple(Store(f"s{n}", at, one) for n, one in enumerate(exprs)))


def test_one_power_keeps_its_quotient() -> None:
    for exprs in ((A / B**3,), (A / B, C / B), (B**2 - B,), (A / 8 - C / 16,)):
        assert with_units(loop_of(*exprs)) == loop_of(*exprs)


def test_powers_of_several_stores_share_a_unit() -> None:
    assert units_of((A / B, C / B**2, A / C)) == {B: 1}
    assert units_of((A / sqrt(B), 1 / B)) == {B: S.Half}
    r = Kept(1 / B)
    assert with_units(loop_of(A / B, C / B**2)) == loop_of(A * r, C * r**2)


def test_what_follows_the_loop_keeps_its_quotients() -> None:
    total = ra.sum(W, j)
    text = ra.fuse(1 / total - ra.sum(W**2, j) / total**2, axes="").source(
        "sm_90a", sizes={"j": 4096}, dtypes="float32"
    )
    assert "reciprocal" not in text


BRANCHES = {
    "a product of names": ((2 * A * B - A * B * C, S.Zero), True),
    "a power": ((A**6 - 2 * A**3, B), True),
    "short": ((A + B, S.Zero), False),
    "a division": ((A * B * C / (A + B), S.Zero), False),
    "read where it is chosen": ((A * B * C * A + Load("x", symbols("i")), S.Zero), False),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name: str) -> None:
    branches, wanted = BRANCHES[name]
    assert is_long_arithmetic(branches, {A, B, C}) == wanted


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([1.0, 2.0, 1e-30, 1e30, 0.0, float("inf"), float("nan"), -3.0]), min_size=1, max_size=9)
)
def test_powers_of_any_number(values: list[float]) -> None:
    """1/x² + 1/x as the definition has it in wider arithmetic, where no part of it leaves the range of float32."""
    [x] = ra.tensors("x[i,j]")
    form = ra.fuse(ra.sum(W / x**2 - 1 / x, j), axes="i")
    data = {"x": torch.tensor([values]), "w": torch.ones(len(values))}
    found = form(**data, backend="tilelang").double()
    parts = data["x"].double()
    wanted = (1 / parts**2 - 1 / parts).float().double().sum(1)
    if wanted.isfinite().all():
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0.0)
    else:
        assert not found.isfinite().all()
