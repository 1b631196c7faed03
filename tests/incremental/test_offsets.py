"""Products about offsets where a value chooses between them: small differences keep their digits in every branch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sympy import Expr

import redalg as ra
from tests.oracle import Oracle

b, n = ra.axes("b n")
w, x, y = ra.tensors("w[b,n] x[b,n] y[b,n]")
TOP, SQUARES = ra.max(w, n), ra.sum(x**2, n)
CHOICE = ra.mean(y, n) > 0
CHOSEN = {
    "a square or a number": (ra.where(CHOICE, (x + TOP) ** 2, -1) - SQUARES) ** 2,
    "the other way round": (ra.where(CHOICE, -1, (x + TOP) ** 2) - SQUARES) ** 2,
    "two squares": (ra.where(CHOICE, (x + TOP) ** 2, (x - TOP) ** 2) - SQUARES) ** 2,
    "of other data": (ra.where(CHOICE, (x + TOP) ** 2, y) - SQUARES) ** 2,
    "within a choice": ra.where(CHOICE, ((x + TOP) ** 2 - SQUARES) ** 2, ra.where(TOP > 1, y, 0)),
}


def results(term: Expr, data: dict[str, np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The definition in 80 bits; the call, and pieces merged."""
    form = ra.fuse(ra.sum(term, n), axes="b")
    sizes = dict(zip("bn", data["x"].shape, strict=True))
    wanted, _ = Oracle(data, {}, sizes).output(ra.sum(term, n), "b")
    given = {name: data[name] for name in form.cascade.inputs()}
    edges = [0, 2, 5, sizes["n"]]
    pieces = [form.leaf({name: one[:, i:j] for name, one in given.items()}, start={n: i}) for i, j in pairwise(edges)]
    merged = form.finish(form.merge(pieces[1], form.merge(pieces[0], pieces[2])))
    return wanted, [form(**given, backend="numpy"), merged]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_difference_far_from_0_keeps_its_digits(name: str) -> None:
    """Found by the fuzzer: written out, (x + m)⁴ of 1e32 hid all that was left of the square."""
    rng = np.random.default_rng(0)
    data = {one: rng.uniform(0.5, 1, (2, 9)) for one in "wxy"}
    data["x"] = 1e8 + data["x"]
    data["w"], data["y"] = 2e8 + data["w"], data["y"] * np.array([[1], [-1]])  # 9·1e16 is (1e8 + 2e8)²
    wanted, found = results(CHOSEN[name], data)
    for result in found:
        np.testing.assert_allclose(result, wanted.astype(float), rtol=1e-6)


def test_a_branch_that_is_not_taken_may_be_no_number() -> None:
    """The offset of (y + m)² is NaN, and so is the pivot of y; nothing reads them where m ≤ 0."""
    data = {one: np.random.default_rng(1).uniform(0.5, 1, (2, 9)) for one in "wxy"}
    data["y"][:, 3], data["w"][0] = np.nan, -data["w"][0]
    form = ra.fuse(ra.sum((ra.where(TOP > 0, (y + TOP) ** 2, x - TOP) - SQUARES) ** 2, n), axes="b")
    found, wanted = (call(**data) for call in (form, form.reference))
    assert np.isfinite(wanted).tolist() == [True, False]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
