"""The properties of rewrites by masks of products, choices of d, and who attains an extremum (see `test_rewrites`)."""

from collections.abc import Callable

import numpy as np
from sympy import Abs, Max, Min, exp, oo, sign, tanh

import redalg as ra
from tests.cases.decided import LARGEST, LEAST, MEAN, as_defined, n, w, x, y

LEVEL, TOP = ra.mean(w, n), ra.max(Abs(x), n)
MASKED = (
    ra.prod(ra.where(y > 0, w * MEAN, 1), n), ra.prod(ra.where(y <= 0, 1, w / MEAN), n),
    ra.prod(1 + ra.where(y > 0, w * MEAN - 1, 0), n), ra.prod(ra.where(y > 0, w, 1) * ra.where(y > 0, MEAN, 1), n),
    ra.prod(ra.where(ra.logical_and(y > 0, w > 0), -LARGEST, x), n), ra.prod(ra.where(n > 2, tanh(w) * MEAN, 1), n),
    ra.prod(ra.where(y > 0, exp(w - LARGEST), 1), n), ra.prod(x * ra.where(y > 0, MEAN**2, 3), n) + MEAN,
)  # fmt: skip
OF_SEVERAL = (
    ra.prod(ra.where(y > 0, w * MEAN, x * LARGEST), n),
    ra.prod(ra.where(y > 0, ra.where(x > 0, w * MEAN, LEAST), x * LARGEST), n),
    ra.prod(ra.where(y > 0, w * MEAN, 1), n) * ra.prod(ra.where(w > 0, MEAN, 1), n) * ra.prod(x * MEAN, n),
)  # fmt: skip
CHOSEN = (
    ra.argmax(ra.where(MEAN > 0, x, y), n), ra.argmin(ra.where(LARGEST > 1, x, -x), n),
    ra.argmax(ra.where(LEVEL > 0, x, 0), n), ra.sum_at_max(ra.where(MEAN > 0, x, y), w, n),
    ra.affine(tanh(x), ra.where(MEAN > 0, w, y), n)[1], ra.prod(ra.where(MEAN > 0, x * MEAN, 1), n),
    ra.prod(ra.where(ra.logical_and(y > 0, MEAN > 0), w * MEAN, 1), n),
    ra.first(ra.where(MEAN > 0, x, w), n), ra.sum(ra.where(MEAN > 0, x, y) * w, n),
)  # fmt: skip
ATTAINED = (
    ra.sum(ra.where(ra.eq(2 * x, 2 * LARGEST), w, 0), n), ra.sum(ra.where(ra.eq(x - LARGEST, 0), w, y), n),
    ra.sum(ra.where(ra.ne(3 - x, 3 - LARGEST), w, 0), n), ra.sum(ra.where(ra.ne(LEAST - x, 0), w, y), n),
    ra.sum(ra.where(LEAST - x >= 0, w, y), n), ra.max(ra.where(ra.eq(x - LARGEST, 0), w, -oo), n),
    ra.sum(ra.where(ra.eq(x, -ra.max(-x, n)), w, 0), n),
    ra.sum(ra.where(ra.logical_and(x - LARGEST < 0, w > 0), y, w), n),
)  # fmt: skip
PLACED = (ra.sum(ra.where(ra.eq(n - ra.argmax(x, n), 0), w, 0), n),)
SECOND, THIRD = ra.max(ra.where(x < LARGEST, x, -oo), n), ra.min(ra.where(x > LEAST, x, oo), n)
BELOW = (
    ra.sum(ra.where(x > SECOND, w, y), n), ra.sum(ra.where(x <= SECOND, w, y), n), ra.sum(ra.where(x < THIRD, w, 0), n),
    ra.sum(ra.where(2 * x > 2 * SECOND, w, 0), n),
)  # fmt: skip
CLIPPED = (ra.sum(Max(x, SECOND), n), ra.sum(Min(x, THIRD) * w, n), ra.mean(Max(SECOND, x) * y - w, n))
TRUTHS = (
    ra.any(ra.eq(2 * x, 2 * LARGEST), n), ra.any(ra.eq(x - LARGEST, 0), n), ra.all(ra.ne(LEAST - x, 0), n),
    ra.all(ra.ne(x - 3, LEAST - 3), n),
)  # fmt: skip
BY_D = (ra.any(ra.eq(y, ra.any(x > 0, n)), n), ra.all(ra.ne(y, ra.all(x > 0, n)), n),
        ra.any(ra.where(MEAN > 0, ra.where(x > 0, 1, 0), ra.where(y > MEAN, 1, 0)), n))  # fmt: skip
UNSIGNED = (
    ra.sum(ra.where(Abs(x / TOP) > 1, sign(x), x / TOP) * y, n), ra.mean(Max(Min(x / ra.max(Max(x, -x), n), 1), -1), n),
    ra.sum(ra.where(x / TOP > 1, 1, ra.where(x / TOP < -1, -1, x / TOP)) * y, n),
)  # fmt: skip
LOW, HIGH = ra.min(Min(x, w), n), ra.max(Max(x, w), n)
BOUNDS = (ra.sum(Max(x, LOW) * y, n), ra.sum(Abs(w - HIGH), n), ra.sum(Min(w, HIGH) - Max(x, LOW), n))


def masked_products() -> None:
    """Of factors of either sign and 0, of no element, and of powers that leave the range where the product does not."""
    as_defined(*MASKED)
    fused, near = ra.fuse(ra.prod(ra.where(y > 0, x / ra.max(Abs(x), n), 1), n)), 1 + np.arange(40.0)[None] / 64
    live = np.where(np.arange(40) % 3 == 0, 1.0, -1.0)[None]
    for scale in (1.0, 2.0**60, 2.0**-60, -(2.0**60)):
        wanted = np.prod(np.where(live > 0, near / near.max(), 1), 1) * np.sign(scale) ** 14
        parts = [fused.leaf({"x": scale * near[:, cut], "y": live[:, cut]}) for cut in (slice(7), slice(7, 40))]
        for got in (fused(x=scale * near, y=live, backend="numpy"), fused.finish(fused.merge(*parts))):
            np.testing.assert_allclose(got, wanted, rtol=1e-13)
    assert fused(x=near, y=-np.abs(live), backend="numpy") == 1
    assert fused(x=np.zeros((1, 4)), y=-np.ones((1, 4)), backend="numpy") == 1
    assert fused(x=near[:, :0], y=live[:, :0], backend="numpy") == 1


def chosen_by_d() -> None:
    as_defined(*CHOSEN)
    j = ra.axis("j", size=2)
    values, indices = ra.topk(ra.where(MEAN > 0, x, -x), n, j)
    fused = ra.fuse({"values": (values, "b j"), "indices": (indices, "b j")})
    given = np.random.default_rng(0).standard_normal((6, 9))
    turned = np.where(given.mean(1, keepdims=True) > 0, given, -given)
    got = fused(x=given, backend="numpy")
    np.testing.assert_array_equal(got.indices, np.argsort(-turned, axis=1)[:, :2])
    np.testing.assert_allclose(got.values, -np.sort(-turned, axis=1)[:, :2])
    assert got.indices.dtype == np.int64


def attained() -> None:
    as_defined(*ATTAINED)
    as_defined(*PLACED)


PROPERTIES: dict[str, Callable[[], None]] = {
    "Π where(c, g·h, f)": masked_products,
    "Π where(c, g·h, f·k)": lambda: as_defined(*OF_SEVERAL),
    "⊕ where(c, f, g)": chosen_by_d,
    "Σ where(k·u + c = k·max u + c, w, z), Σ where(u − max u = 0, w, z)": attained,
    "Σ where(u > v, w, z)": lambda: as_defined(*BELOW),
    "Σ max(u, v)·w": lambda: as_defined(*CLIPPED),
    "any_l (k·u = k·max u), any_l (u − max u = 0)": lambda: as_defined(*TRUTHS),
    "any_l where(c, p, q)": lambda: as_defined(*BY_D),
    "|h·w|": lambda: as_defined(*UNSIGNED, *BOUNDS),
}
