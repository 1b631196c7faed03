"""The workloads as data, and their definitions in the surface language.

Shapes H1 to H9 are those that RedFuser publishes (appendix A.5); C1 to C3 are small ones for machines without a GPU.
"""

from dataclasses import dataclass
from typing import Any

import redalg as ra


@dataclass(frozen=True)
class Mha:
    """One row of multi-head attention: sizes by axis name, and the dtype of Q, K and V."""

    name: str
    b: int
    h: int
    q: int
    k: int
    d: int
    dtype: str = "float16"

    @property
    def sizes(self) -> dict[str, int]:
        return {"b": self.b, "h": self.h, "q": self.q, "k": self.k, "d": self.d, "e": self.d}

    @property
    def dtypes(self) -> dict[str, str]:
        return dict.fromkeys(("Q", "K", "V"), self.dtype)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        rows, keys = (self.b, self.h, self.q, self.d), (self.b, self.h, self.k, self.d)
        return {"Q": rows, "K": keys, "V": keys}

    @property
    def flops(self) -> int:
        """Multiplications and additions of the two contractions."""
        return 4 * self.b * self.h * self.q * self.k * self.d


MHA_CUDA = (
    Mha("H1", 32, 8, 512, 512, 64),
    Mha("H2", 32, 12, 512, 512, 64),
    Mha("H3", 32, 16, 512, 512, 64),
    Mha("H4", 32, 12, 256, 256, 64),
    Mha("H5", 32, 16, 256, 256, 64),
    Mha("H6", 32, 16, 256, 256, 80),
    Mha("H7", 32, 64, 1, 1024, 128),
    Mha("H8", 32, 64, 1, 2048, 128),
    Mha("H9", 32, 64, 1, 4096, 128),
)
MHA_CPU = (
    Mha("C1", 1, 4, 256, 256, 64, "float32"),
    Mha("C2", 1, 4, 77, 1000, 64, "float32"),
    Mha("C3", 4, 8, 1, 4096, 128, "float32"),
)


def mha() -> Any:
    """Softmax attention as a fused function of Q[b,h,q,d], K[b,h,k,d] and V[b,h,k,e]."""
    from sympy import sqrt

    k, d = ra.axes("k d")
    Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    score = ra.sum(Q * K, d) / sqrt(d.extent)
    return ra.fuse(ra.sum(ra.softmax(score, k) * V, k), axes="b h q e")
