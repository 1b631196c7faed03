"""The uses of attention that must run through every backend, as data: (name, form, tensors) and what is not usual.

`tests.cases.kernels` takes them among its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from sympy import tanh

import redalg as ra
from redalg.library import attention

q, k = ra.axes("q k")
length, begin, slope = ra.tensors("length[b] begin[b] slope[h]")
A, M = ra.tensors("A[q,k] M[q,k]")
CAUSAL, WITHIN = k <= q, k < length
NAN = torch.nan

FORMS: dict[str, Callable[[], ra.Fused]] = {
    "window": lambda: attention(mask=(k <= q) & (k > q - 24)),
    "band": lambda: attention(mask=(k <= q + 3) & (k >= q - 5)),
    "lengths": lambda: attention(mask=WITHIN),
    "spans": lambda: attention(mask=(k >= begin) & WITHIN),
    "shared heads": lambda: attention(groups=4, mask=WITHIN, also=["lse", "top"]),
    "shared heads, causal": lambda: attention(groups=2, mask=CAUSAL),
    "pages of 4": lambda: attention(page=4, groups=2, mask=WITHIN),
    "pages of 64": lambda: attention(page=64, mask=WITHIN),
    "sinks": lambda: attention(sinks=True, mask=CAUSAL, also=["lse"]),
    "linear bias": lambda: attention(score=lambda s: s - slope * (q - k), mask=CAUSAL),
    "soft cap": lambda: attention(score=lambda s: 30 * tanh(s / 30), mask=CAUSAL),
    "statistics": lambda: attention(also=["lse", "top"], mask=ra.ne(M, 0)),
}

Draw = Callable[[torch.Generator], torch.Tensor]


def qkv(sizes: Mapping[str, int], groups: int = 1, page: int = 0, **more: Draw) -> Any:
    """Random Q, K, V, and more tensors; K and V in pages, in random order, where `page` says how long they are."""

    def make(g: torch.Generator) -> dict[str, torch.Tensor]:
        b, h, nq, nk, d, e = (sizes[name] for name in "bhqkde")
        rows = (b, h // groups, nk)
        made = {"Q": torch.randn(b, h, nq, d, generator=g)}
        if page:
            count = -(-nk // page)
            made["pages"] = torch.randperm(b * count, generator=g).reshape(b, count).int()
            rows = (b * count, page, h // groups)
        made |= {"K": torch.randn(*rows, d, generator=g), "V": torch.randn(*rows, e, generator=g)}
        return made | {name: draw(g) for name, draw in more.items()}

    return make


def whole(*values: int, dtype: torch.dtype = torch.int32) -> Draw:
    """The integers given."""
    return lambda g: torch.tensor(values, dtype=dtype)


def normal(*shape: int) -> Draw:
    """Standard normal numbers."""
    return lambda g: torch.randn(shape, generator=g)


def bernoulli(rows: int, columns: int) -> Draw:
    """A boolean mask, without an empty row."""
    return lambda g: (torch.rand(rows, columns, generator=g) < 0.6) | (torch.arange(columns) == 0)


def sized(text: str) -> dict[str, int]:
    """Sizes b, h, q, k, d, e."""
    return dict(zip("bhqkde", map(int, text.split()), strict=True))


def padded(make: Any, lengths: tuple[int, ...]) -> Any:
    """Keys and values that are NaN from each row's length on: what a cache holds behind its end is never read."""

    def spoilt(g: torch.Generator) -> dict[str, torch.Tensor]:
        made: dict[str, torch.Tensor] = make(g)
        for row, size in enumerate(lengths):
            made["K"][row, :, size:] = NAN
            made["V"][row, :, size:] = NAN
        return made

    return spoilt


SMALL = sized("2 2 100 180 32 48")


def case(name: str, form: str, tensors: Any, **unusual: Any) -> dict[str, Any]:
    """The fields of a `Case`."""
    return {"name": name, "form": form, "tensors": tensors, **unusual}


CASES: tuple[dict[str, Any], ...] = (
    case("window", "window", qkv(sized("1 2 200 200 64 64"))),
    case("window over more keys", "window", qkv(sized("1 2 77 300 32 32"))),
    case("window behind the keys", "window", qkv(sized("1 1 150 70 32 32")), empty="zero"),
    case("band", "band", qkv(sized("1 2 130 130 64 32"))),
    case("lengths", "lengths", qkv(SMALL, length=whole(130, 7))),
    case("lengths beyond the axis", "lengths", qkv(SMALL, length=whole(2**40, 180, dtype=torch.int64))),
    case("no length", "lengths", qkv(SMALL, length=whole(0, 64)), empty="zero"),
    case("spans", "spans", qkv(SMALL, begin=whole(70, 3), length=whole(170, 64))),
    case("shared heads", "shared heads", qkv(sized("2 8 3 150 64 64"), groups=4, length=whole(150, 40))),
    case("one shared head, one query", "shared heads", qkv(sized("1 4 1 700 64 64"), groups=4, length=whole(601))),
    case("shared heads, causal", "shared heads, causal", qkv(sized("1 4 100 100 32 32"), groups=2)),
    case("pages of 4", "pages of 4", qkv(sized("2 2 5 90 32 32"), 2, 4, length=whole(90, 33)), sizes={"k": 90}),
    case("pages of 64", "pages of 64", qkv(sized("2 2 5 200 64 64"), 1, 64, length=whole(200, 65)), sizes={"k": 200}),
    case("sinks", "sinks", qkv(sized("1 3 70 70 32 32"), sinks=normal(3))),
    case("linear bias", "linear bias", qkv(sized("1 3 70 70 32 32"), slope=normal(3)), tolerance=2**-18),  # u at 64
    case("soft cap", "soft cap", qkv(sized("1 2 70 70 32 32"))),
    case("statistics", "statistics", qkv(sized("1 2 33 77 32 48"), M=bernoulli(33, 77))),
    case("width 96", "lengths", qkv(sized("1 2 100 200 96 96"), length=whole(190))),
    case("width 192, values of 128", "lengths", qkv(sized("1 1 70 200 192 128"), length=whole(190))),
    case("width 256", "lengths", qkv(sized("1 1 70 130 256 256"), length=whole(120))),
)
