"""Names of buffers and variables: the user's own where possible, never twice, never a word of Python or TileLang."""

from __future__ import annotations

import keyword
from typing import final

CPP = frozenset(
    """alignas alignof asm auto bool char class compl constexpr delete do double enum errno explicit export extern float
    friend goto inline int long mutable namespace new NULL operator private protected public register short signed
    sizeof static struct switch template this throw typedef typeid typename union unsigned using virtual void volatile
    xor case catch const default half main_kernel""".split()  # noqa: SIM905 - a list of words reads better than quotes
)
"""Words of the languages that TileLang emits."""

MATH = frozenset(
    """acos acosh asin asinh atan atan2 atanh ceil cos cosh erf erfc exp exp2 expm1 fabs floor fmod frexp isnan ldexp
    log log1p log2 max min nearbyint pow round rsqrt sin sinh sqrt tan tanh trunc""".split()  # noqa: SIM905 - as above
)
"""Functions of C that kernels call: of float64, by these very names."""
NATIVE = CPP | MATH
RESERVED = NATIVE | frozenset(
    {
        "T",
        "tilelang",
        "shared",
        "fragment",
        "parallel",
        "launch",
        "contract",
        "contract_transposed",
        "multiply",
        "add_transposed",
        "multiply_add",
        "rounded_product",
        "divided",
        "keep_in_l2",
        "line",
        "rate",
        "instruction",
        "join_best",
        "count_above",
        "power_of_two",
        "reciprocal_of",
        "root_of",
        "inverse_root_of",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "kernel",
        "main",
        "torch",
        "TARGET",
        "t",
        "z",
        "part",
        "again",
        "group",
        "turn",
        "round",
        "warp",
        "lane",
        "block",
        "warps_of_blocks",
        "constant",
        "compiled",
        "device",
        "arguments",
        "i",
        "j",
        "e",
        "u",
        "place",
        "nth",
        "only",
        "split",
        "spread",
        "grouped",
        "local",
        "arrive",
        "chunk",
        "worker",
        "ranked",
        "ranked_value",
        "ranked_index",
        "ordered",
        "ordered_value",
        "mantissa",
        "exponent",
        "scaled",
        "powered",
        "power",
        "modulo",
        "is_finite",
        "is_infinite",
    }
)


def kernel_name(name: str) -> str:
    """The kernel's name of the user's tensor, scalar or output: its own name, unless TileLang or a loop uses it.

    >>> kernel_name("Q"), kernel_name("t")
    ('Q', 't_')
    """
    return f"{name}_" if name in RESERVED or keyword.iskeyword(name) else name


@final
class Names:
    """A source of unique names: it adds a number if a name is taken."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = set(names) | RESERVED

    def fresh(self, stem: str) -> str:
        """`stem`, or `stem_1`, `stem_2` … if that is taken."""
        name, number = stem, 0
        while name in self.names or keyword.iskeyword(name):
            number += 1
            name = f"{stem}_{number}"
        self.names.add(name)
        return name
