"""The library's patterns against NumPy in float64, on both array backends, and their kernels as text."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sympy import tanh

import redalg as ra
from redalg import library
from redalg.library import PATTERNS, attention, paged_attention

Array = npt.NDArray[np.float64]
Tensors = dict[str, Any]
BACKENDS = ("numpy", "torch")
LENGTHS = (1, 77, 513)
TOLERANCE = 2e-6


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def logsumexp(x: Array) -> Array:
    m = x.max(-1)
    return m + np.log(np.exp(x - m[..., None]).sum(-1))


def inertia(m: Array, r: Array) -> Array:
    centre = np.einsum("bn,bni->bi", m, r) / m.sum(1)[:, None]
    return np.asarray(np.einsum("bn,bni->b", m, (r - centre[:, None]) ** 2))


def weighted_variance(x: Array, w: Array) -> Array:
    mean = np.average(x, axis=1, weights=w)
    return np.asarray(np.average((x - mean[:, None]) ** 2, axis=1, weights=w))


def rows(n: int) -> Tensors:
    return {"x": random(5, n) * 3 + 100}


def weighted_rows(n: int) -> Tensors:
    return {**rows(n), "w": np.abs(random(5, n, seed=1)) + 0.1}


def bodies(n: int) -> Tensors:
    return {"m": np.abs(random(5, n)) + 0.1, "r": random(5, n, 3, seed=1) + 10}


DEFINITIONS: list[tuple[Callable[[], ra.Fused], Callable[..., Array], Callable[[int], Tensors]]] = [
    (library.variance, lambda x: x.var(1), rows),
    (library.weighted_mean, lambda x, w: np.average(x, axis=1, weights=w), weighted_rows),
    (library.weighted_variance, weighted_variance, weighted_rows),
    (library.inertia, inertia, bodies),
    (library.logsumexp, logsumexp, rows),
]


def error(got: npt.ArrayLike, want: npt.ArrayLike) -> float:
    """max|got - want| / max|want|; 0 / 0 counts as 0."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    return float(np.abs(got - want).max() / (np.abs(want).max() or 1.0))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("pattern", "definition", "data"), DEFINITIONS, ids=lambda one: getattr(one, "__name__", None))
def test_statistics_are_their_definitions(
    pattern: Callable[[], ra.Fused],
    definition: Callable[..., Array],
    data: Callable[[int], Tensors],
    n: int,
    backend: str,
) -> None:
    inputs = {name: array.astype(np.float32) for name, array in data(n).items()}
    want = definition(**{name: array.astype(np.float64) for name, array in inputs.items()})
    assert error(pattern()(**inputs, backend=backend), want) <= TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_denominator_comes_with_its_maximum(backend: str) -> None:
    x = (random(4, 77) * 100).astype(np.float32)
    m, l = library.softmax_denominator()(x=x, backend=backend)
    assert error(m, x.max(1)) == 0
    assert error(l, np.exp((x - x.max(1, keepdims=True)).astype(np.float64)).sum(1)) <= TOLERANCE


# ---- attention -------------------------------------------------------------------------------------------------------


def heads(q: int = 9, k: int = 33, d: int = 8, e: int = 5) -> Tensors:
    shapes = {"Q": (2, 3, q, d), "K": (2, 3, k, d), "V": (2, 3, k, e)}
    return {name: random(*shape, seed=seed).astype(np.float32) for seed, (name, shape) in enumerate(shapes.items())}


def defined(scores: Array, values: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ values)


def scores_of(t: Tensors) -> Array:
    return np.asarray(t["Q"].astype(np.float64) @ t["K"].swapaxes(-1, -2) / np.sqrt(t["Q"].shape[-1]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", LENGTHS)
def test_attention(k: int, backend: str) -> None:
    t = heads(k=k)
    assert error(attention()(**t, backend=backend), defined(scores_of(t), t["V"])) <= TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_with_a_causal_mask(backend: str) -> None:
    q, k = ra.axes("q k")
    t = heads()
    live = np.arange(33)[None] <= np.arange(9)[:, None]
    want = defined(np.where(live, scores_of(t), -np.inf), t["V"])
    assert error(attention(mask=k <= q)(**t, backend=backend), want) <= TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_with_a_mask_of_data_and_an_empty_row(backend: str) -> None:
    t = heads()
    live = np.random.default_rng(7).random((9, 33)) < 0.5
    live[4] = False
    fused = attention(mask=ra.ne(ra.tensor("M[q,k]"), 0))
    got = np.asarray(fused(**t, M=live, backend=backend, empty="zero"))
    scores = np.where(live, scores_of(t), -np.inf)
    scores[:, :, 4] = 0
    want = defined(scores, t["V"])
    want[:, :, 4] = 0
    assert error(got, want) <= TOLERANCE
    assert np.isnan(np.asarray(fused(**t, M=live, backend=backend))[:, :, 4]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_with_a_score_of_ones_own(backend: str) -> None:
    t = heads()
    bias = random(3, 33, seed=9).astype(np.float32)
    fused = attention(score=lambda s: 2 * tanh(s / 2) + ra.tensor("bias[h,k]"))
    want = defined(2 * np.tanh(scores_of(t) / 2) + bias[:, None], t["V"])
    assert error(fused(**t, bias=bias, backend=backend), want) <= TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("groups", [1, 3])
def test_attention_with_shared_heads_and_its_statistics(groups: int, backend: str) -> None:
    t = heads()
    shared = {"K": t["K"][:, : 3 // groups], "V": t["V"][:, : 3 // groups]}
    full = {name: np.repeat(array, groups, axis=1) for name, array in shared.items()}
    scores = scores_of(t | full)
    got = attention(groups=groups, also=["lse", "top"])(**(t | shared), backend=backend)
    assert error(got.out, defined(scores, full["V"])) <= TOLERANCE
    assert error(got.lse, logsumexp(scores)) <= TOLERANCE
    assert error(got.top, scores.max(-1)) <= TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("page", [4, 5])
def test_attention_over_a_paged_cache(page: int, backend: str) -> None:
    t = heads(k=20)
    count = 20 // page
    order = np.random.default_rng(3).permutation(2 * count).reshape(2, count)
    cache = {}
    for name in "KV":
        rows = t[name].swapaxes(1, 2).reshape(2 * count, page, 3, -1)
        cache[name] = np.empty_like(rows)
        cache[name][order.reshape(-1)] = rows
    got = attention(page=page)(Q=t["Q"], **cache, pages=order, sizes={"k": 20}, backend=backend)
    assert error(got, defined(scores_of(t), t["V"])) <= TOLERANCE


@pytest.mark.sweep(1)
@pytest.mark.parametrize("backend", [*BACKENDS, "tilelang"])
@pytest.mark.parametrize("unused", [-1, 2**40, -(2**62)])
def test_what_lies_beyond_a_length_is_never_read(unused: int, backend: str) -> None:
    """Entries of no page, the rest of a last page, and pages that nobody has."""
    t, lengths = heads(k=20), np.array([9, 17])
    pages = np.array([[5, 0, 7, unused, unused], [2, 1, 3, 6, 4]])
    cache = {name: np.full((8, 4, 3, t[name].shape[-1]), np.nan, np.float32) for name in "KV"}
    for row, length in enumerate(lengths):
        for place in range(length):
            for name in "KV":
                cache[name][pages[row, place // 4], place % 4] = t[name][row, :, place]
    pages = np.where(np.arange(5) * 4 < lengths[:, None], pages, unused)
    fused = paged_attention(page=4, groups=1)
    got = fused(Q=t["Q"], **cache, pages=pages, length=lengths, sizes={"k": 20}, backend=backend)
    for row, length in enumerate(lengths):
        part = {"Q": t["Q"][row : row + 1], **{name: t[name][row : row + 1, :, :length] for name in "KV"}}
        assert error(got[row : row + 1], defined(scores_of(part), part["V"])) <= TOLERANCE
    want = fused.reference(Q=t["Q"], **cache, pages=pages, length=lengths, sizes={"k": 20})
    assert error(got, want) <= TOLERANCE
    if backend == "tilelang":
        return
    empty = fused(Q=t["Q"], **cache, pages=pages, length=0 * lengths, sizes={"k": 20}, backend=backend, empty="zero")
    assert np.array_equal(np.asarray(empty), np.zeros_like(empty))


def test_kernels_read_no_page_beyond_a_length() -> None:
    """The number of a page is 0 where a place does not count, so that no load leaves the cache."""
    entry = PATTERNS["paged_attention"]
    fused, sizes = entry.build(), dict(entry.sizes)
    source = fused.source("H100", sizes, entry.dtypes(fused), shapes=entry.tensor_shapes(sizes))
    lines = [line.strip() for line in source.splitlines()]
    reads = [place for place, line in enumerate(lines) if re.search(r"pages\[b, t", line)]
    assert len(reads) == 2
    for place in reads:  # within a condition on the length
        assert re.search(r"if_then_else\( ?t \* \d+ \+ j < length", " ".join(lines[place - 2 : place + 1]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("level", [0.0, -1e4, 1e4])
def test_attention_with_sinks(level: float, backend: str) -> None:
    """A sink far above every score takes all weight; one far below takes none; neither overflows."""
    t = heads()
    sinks = (level + random(3, seed=5)).astype(np.float32)
    column = np.broadcast_to(sinks[None, :, None, None].astype(np.float64), (2, 3, 9, 1))
    scores = np.concatenate([scores_of(t), column], axis=-1)
    values = np.concatenate([t["V"], np.zeros_like(t["V"][:, :, :1])], axis=2)
    got = attention(sinks=True, also=["lse"])(**t, sinks=sinks, backend=backend)
    assert np.abs(np.asarray(got.out) - defined(scores, values)).max() <= TOLERANCE
    assert error(got.lse, logsumexp(scores)) <= TOLERANCE


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": 0}, "groups=0 should be a positive int"),
        ({"page": True}, "page=True should be a positive int"),
        ({"also": ["entropy"]}, "also='entropy' is not an output"),
        ({"also": "lse"}, "also='lse' is not an output"),
    ],
)
def test_attention_refuses_what_names_none(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ra.ExpressionError, match=said):
        attention(**options)
