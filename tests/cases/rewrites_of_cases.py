"""The properties of rewrites by what takes few values, by bounds and by the total (see `test_rewrites`)."""

from collections.abc import Callable

from sympy import Abs, Max, Min, Mod, cos, cosh, exp, log, oo, pi, sign, sqrt, tanh

import redalg as ra
from tests.cases import decided
from tests.cases.decided import LARGEST, LEAST, MEAN, as_defined, b, n, w, x, y

N = n.extent
NEXT = ra.Tensor("x")[b, n + 1]
BY_TOTAL = (
    ra.sum(ra.where(n + 1 < N, x, 0), n), ra.mean(ra.where(n + 1 < N, (x - MEAN) ** 2, y), n),
    ra.sum(Abs(N - n) * x, n), ra.sum(ra.where(ra.eq(n, N - 1), x, 0), n) / N, ra.max(ra.where(n + 2 < N, x, -oo), n),
    ra.sum(cos(2 * pi * n / N) * x, n), ra.prod(ra.where(n < N - 1, 1 + tanh(w) / 8, 1), n),
    ra.sum(ra.where(n + 1 < N, x - MEAN, 0) ** 2, n) / N, ra.argmax(ra.where(n + 1 < N, x, -oo), n),
)  # fmt: skip
"""A term that reads the last place, or how far it is."""
OF_DATA = (ra.sum(w * exp(-MEAN * sign(y)), n), ra.sum(cosh(x * sign(y) - MEAN * sign(y)), n),
           ra.max(tanh(w) + MEAN * sign(x), n), ra.sum(Abs(sign(x) - tanh(MEAN)), n),
           ra.sum(w * Max(sign(y), tanh(LARGEST)), n))  # fmt: skip
"""Signs of data beside values."""
BY_PLACE = (ra.max(x + MEAN * Mod(n, 2), n), ra.sum(tanh(MEAN * Mod(n, 3)) * x, n),
            ra.sum(Abs(MEAN - Mod(n + 1, 2)) * w, n), ra.min(x * MEAN ** Mod(n, 2), n))  # fmt: skip
BY_NUMBER = (
    ra.sum(exp(x * ra.max(sign(y), n)), n), ra.sum(tanh(x - ra.min(ra.where(y > 0, 2, -1), n)) * w, n),
    ra.max(tanh(x * ra.max(ra.where(w > 0, 1, 0), n)) - w, n),
    ra.sum(Abs(x - ra.max(ra.where(x > 0, sign(w), 2), n)), n),
)  # fmt: skip
NEGATED = (ra.sum(Max(x - MEAN, 0) - Max(MEAN - x, 0), n), ra.sum(w * Max(x, MEAN) - w * Max(-x, -MEAN), n),
           ra.sum(Min(x, MEAN) - Min(-x, -MEAN) - exp(x - LARGEST), n))  # fmt: skip
SPREAD, TOP, SQUARES = LARGEST - LEAST, ra.max(Abs(x), n), ra.sum(x**2, n)
SHARE = exp(x - LARGEST) / ra.sum(exp(x - LARGEST), n)
BOUNDED = (
    ra.sum(Max(-1, Min(1, x / TOP)) * y, n), ra.sum(Min(127, Max(-127, 127 * x / TOP)) * y, n),
    ra.sum(Max(-1, Min(1, x / sqrt(SQUARES))) * y, n),
    ra.sum(Max(0, Min(1, (x - LEAST) / SPREAD)) * y, n), ra.sum(Abs(1 - SHARE) * w, n), ra.sum(Min(SHARE, 1) * w, n),
    ra.sum(Abs(x**2 - SQUARES), n), ra.sum(Abs(ra.log_softmax(x, n)) * y, n), ra.sum(Abs(ra.logsumexp(x, n) - x), n),
    ra.sum(Max(Abs(w) / ra.sum(Abs(w), n), -1), n), ra.max(Min(1, x / (TOP + 1)) * sqrt(SQUARES), n),
    ra.sum(Abs(log(ra.sum(exp(x / 4), n)) - x / 4), n),
)  # fmt: skip
"""Clips and kinks that nothing reaches, since a value bounds what stands in them."""
COMPARED = (ra.sum(ra.where(Abs(x) <= sqrt(SQUARES), y, w), n), ra.sum(ra.where(Abs(x) > ra.sum(Abs(x), n), w, y), n))
RISING = (
    ra.sum_at_max(x * (1 + tanh(MEAN) ** 2), w, n), ra.sum_at_max(x / sqrt(Abs(tanh(MEAN)) + 1), w * MEAN, n),
    ra.sum_at_max(exp(tanh(MEAN)) * x - MEAN, y, n), ra.sum_at_max(-tanh(x / 8) * exp(-Abs(tanh(LARGEST))), w, n),
)  # fmt: skip
OTHER = ra.mean(w, n)
MERGED = (
    ra.sum(Max(x, MEAN), n) + ra.sum(Min(x, MEAN), n),
    ra.sum(Abs(x - OTHER), n) - 2 * ra.sum(Max(x - OTHER, 0), n),
    (x - MEAN) * ra.sum(Max(x, MEAN), n) + (x - MEAN) * ra.sum(Min(x, MEAN), n),
    ra.sum(ra.where(x > MEAN, y, 0), n) + ra.sum(ra.where(x <= MEAN, y, 0), n),
    ra.sum(ra.where(x > OTHER, y, w), n) + ra.sum(ra.where(x <= OTHER, y, w), n),
)  # fmt: skip
WEIGHED = (
    OTHER * ra.sum(Max(x, MEAN), n) + LARGEST * ra.sum(x - Min(x, MEAN) - Max(x, MEAN), n) - OTHER * ra.sum(MEAN / 2, n)
    + OTHER * ra.sum(Min(x, MEAN), n), OTHER * ra.sum(Abs(x - MEAN), n) - 2 * OTHER * ra.sum(Max(x, MEAN), n),
)  # fmt: skip
MULTIPLIED = (ra.prod(ra.where(x > MEAN, tanh(y), 1), n) * ra.prod(ra.where(x > MEAN, 1, tanh(y)), n),)
"""Reductions whose kinks and jumps cancel in an output."""
SIDES = (
    ra.sum(Max(x, MEAN) + Min(x, MEAN), n), ra.sum(x * Abs(x - OTHER) - 2 * x * Max(x - OTHER, 0), n),
    ra.sum(ra.where(x > OTHER, y, w) + ra.where(x <= OTHER, y, w), n), ra.mean(ra.where(x >= OTHER, y, 0)
    + ra.where(x < OTHER, y, 0), n), ra.sum(Max(x, MEAN) + Min(x, MEAN) + (x - MEAN) ** 10, n),
)  # fmt: skip
"""Those in a term."""
PROPERTIES: dict[str, Callable[[], None]] = {
    "sum_at_max(φ(u, d), w·h)": lambda: as_defined(*RISING),
    "f(x, Σ1)": lambda: as_defined(*BY_TOTAL),
    "f(x, sign u)": lambda: as_defined(*decided.BY_SIGN, *OF_DATA),
    "f(i mod k, d)": lambda: as_defined(*BY_PLACE),
    "f(x, max u)": lambda: as_defined(*BY_NUMBER),
    "k·max(a, b) − k·max(−a, −b)": lambda: as_defined(*NEGATED),
    "c·d^q + r, c·log d + r": lambda: as_defined(*COMPARED),
    "f + g": lambda: as_defined(*SIDES),
    "Σ F·a + Σ G·b": lambda: as_defined(*MERGED),
    "→ Σ (a·F + b·G)": lambda: as_defined(*WEIGHED),
    "Π F · Π G": lambda: as_defined(*MULTIPLIED),
    "a/h + b": lambda: as_defined(*BOUNDED),
}
