"""The properties of rewrites of extrema by one function of x, and of choices by a threshold (see `test_rewrites`)."""

from collections.abc import Callable

import numpy as np
from sympy import Abs, Max, Mod, exp, log, oo, sign, tanh

import redalg as ra
from tests.cases.decided import as_defined, n, w, x, y

MEAN, TOTAL = ra.mean(w, n), ra.sum(exp(x), n)
LEVEL = ra.mean(y, n)
PARABOLAS = (
    ra.max(x**2 - 2 * x * MEAN + MEAN**2, n), ra.max(x**2 + MEAN * x, n), ra.min(MEAN * x - x**2, n),
    ra.max(x**2 * y**2 + MEAN * x * y, n), ra.max(x * TOTAL + exp(x), n),
)  # fmt: skip
SHIFTS = (
    ra.max(ra.log_softmax(x, n) + y, n), ra.max(log(ra.softmax(x, n)) + w, n),
    ra.sum(ra.softmax(log(ra.softmax(x, n)) + w, n) * y, n),
)  # fmt: skip
FEW = (ra.max(x + MEAN * sign(y), n), ra.max(x + MEAN * Mod(n, 2), n), ra.min(x * MEAN + sign(w), n))
THRESHOLDS = (
    ra.max(ra.where(x > MEAN, x, -oo), n), ra.max(ra.where(x > MEAN, x, MEAN), n),
    ra.min(ra.where(x > LEVEL, x, LEVEL), n), ra.max(ra.where(x < MEAN, -x, -oo), n),
    ra.min(ra.where(x < LEVEL, x, oo), n), ra.max(ra.where(x >= MEAN, 1, 0), n), ra.min(ra.where(x >= LEVEL, 1, 0), n),
    ra.max(ra.where(x > MEAN, exp(x), -x), n), ra.max(ra.where(x > LEVEL, x - LEVEL, LEVEL - x), n),
    ra.min(ra.where(x <= MEAN, 3, x + 4 - MEAN), n), ra.min(ra.where(x > MEAN, MEAN, x), n),
    ra.max(ra.where(x**2 > MEAN, x**2, -oo), n), ra.max(ra.where(x * y > LEVEL, x * y, LEVEL), n),
    ra.min(ra.where(x < MEAN, -oo, x), n), ra.max(ra.where(x > LEVEL, 0, -x), n), ra.min(ra.where(x > MEAN, -x, oo), n),
)  # fmt: skip
SPELT = (
    ra.max(ra.where(2 * x > 2 * MEAN, x, MEAN), n), ra.max(3 * ra.where(x > LEVEL, x, LEVEL), n),
    ra.max(ra.where(x > LEVEL - 1, x + 1, LEVEL), n), ra.min(ra.where(2 * x + 1 < LEVEL, 3 - x, (7 - LEVEL) / 2), n),
    ra.max(ra.where(x + y > LEVEL, 2 * x + 2 * y, 2 * LEVEL), n), ra.max(Abs(x / 3 + y / 3 - LEVEL / 3 - 1), n),
)  # fmt: skip
MOVED = (
    ra.min(exp(-(x**2) + 2 * x * LEVEL - LEVEL**2), n), ra.max(Max(x, tanh(LEVEL)) * w**2, n),
    ra.min(x + Max(y, 2 * LEVEL - x), n),
)  # fmt: skip
MASKS = (ra.max(ra.where(y > 0, x * MEAN, w), n), ra.min(ra.where(x > 0, w - MEAN, y), n))


def alternating() -> None:
    """Signs that alternate along the axis are two cases."""
    fused, rng = ra.fuse(ra.max(x + MEAN * (-1) ** n, n)), np.random.default_rng(0)
    given = {"x": rng.standard_normal((3, 9)), "w": rng.standard_normal((3, 9))}
    wanted = (given["x"] + given["w"].mean(1, keepdims=True) * (-1.0) ** np.arange(9)).max(1)
    np.testing.assert_allclose(fused(**given, backend="numpy"), wanted, rtol=1e-12)


PROPERTIES: dict[str, Callable[[], None]] = {
    "max_l φ_d(g(u_l), h(u_l))": lambda: as_defined(*PARABOLAS, *SHIFTS, *FEW),
    "max_l where(u > d, a, b)": lambda: as_defined(*THRESHOLDS[:13], *SPELT),
    "→ max(max_l where(u > d, a, −∞), max_l where(u > d, −∞, b))": lambda: as_defined(*THRESHOLDS[13:], *MASKS),
    "f((−1)^i, d)": alternating,
}
