"""Seeded data of the kinds that break naive one-pass formulas: float32, one reduced axis by a few free rows.

`make(role, kind, seed)` gives an array of LENGTH elements of the reduced axis (first) by ROWS of the free axis
(logits have one row). Roles and kinds:

| role   | stands for                        | kinds                                                     |
|--------|-----------------------------------|-----------------------------------------------------------|
| logit  | what an exponential is taken of   | plain huge mask first allmask neg firstneg ramp           |
| value  | what a mean is subtracted from    | plain offset4 offset8 outlier drift zeros constant        |
| free   | anything else                     | plain zeros                                               |
| weight | positive weights                  | plain                                                     |

Measure errors as max |got - reference| / sum over the reduced axis of |summand|, with the reference in extended
precision.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

LENGTH, ROWS = 1000, 4

Array = NDArray[np.float32]
Float64 = NDArray[np.float64]


class Draw:
    """The random draws and the index from which every kind is made."""

    def __init__(self, seed: int, role: str, kind: str) -> None:
        self.rng = np.random.default_rng([seed, number_of(role), number_of(kind)])
        self.index = np.arange(LENGTH)[:, None]
        self.value = self.rng.standard_normal((LENGTH, ROWS)).astype(np.float32)
        self.logit = self.rng.standard_normal((LENGTH, 1)).astype(np.float32)

    def uniform(self, low: float, high: float) -> Float64:
        return self.rng.uniform(low, high, (LENGTH, 1))


KINDS: dict[tuple[str, str], Callable[[Draw], NDArray[np.floating]]] = {
    ("logit", "plain"): lambda draw: draw.logit,
    ("logit", "huge"): lambda draw: draw.uniform(-1e4, 1e4),
    ("logit", "mask"): lambda draw: np.where(draw.uniform(0, 1) < 0.5, -np.inf, 3 * draw.logit),
    ("logit", "first"): lambda draw: np.where(draw.index < 300, -np.inf, 3 * draw.logit),
    ("logit", "allmask"): lambda draw: np.full((LENGTH, 1), -np.inf),
    ("logit", "neg"): lambda draw: draw.logit - 1e4,
    ("logit", "firstneg"): lambda draw: np.where(draw.index < 300, -np.inf, draw.logit - 1e4),
    ("logit", "ramp"): lambda draw: draw.logit + 20 * draw.index,
    ("value", "plain"): lambda draw: draw.value,
    ("value", "offset4"): lambda draw: draw.value + 1e4,
    ("value", "offset8"): lambda draw: 30 * draw.value + 1e8,
    ("value", "outlier"): lambda draw: np.where(draw.index == 0, 1e6, draw.value),
    ("value", "drift"): lambda draw: draw.value + 10 * draw.index,
    ("value", "zeros"): lambda draw: np.zeros_like(draw.value),
    ("value", "constant"): lambda draw: np.full_like(draw.value, 3.1e4),
    ("free", "plain"): lambda draw: draw.value,
    ("free", "zeros"): lambda draw: np.zeros_like(draw.value),
    ("weight", "plain"): lambda draw: np.abs(draw.value) + 0.1,
}


def make(role: str, kind: str = "plain", seed: int = 0) -> Array:
    """The data of one role and kind; the same seed gives the same array on every machine."""
    return KINDS[role, kind](Draw(seed, role, kind)).astype(np.float32)


def weight_trap(seed: int = 0) -> tuple[Array, Array]:
    """Logits and values of which half of the weights vanish, while their values sit far from the others."""
    vanishing = np.arange(LENGTH)[:, None] < LENGTH // 2
    logit = make("logit", seed=seed) - 60 * vanishing
    value = 1e-2 * make("value", seed=seed) + 1 + 1e4 * vanishing
    return logit.astype(np.float32), value.astype(np.float32)


def number_of(name: str) -> int:
    """A seed made of a name's bytes: `hash` differs from process to process."""
    return int.from_bytes(name.encode(), "little") % 2**31
