"""Generated kernels compile for sm_80, sm_86, sm_89 and sm_90a, within their shared memory, on sm_90a without spills.

Needs nvcc and no GPU. Each problem is compiled for sm_90a and, in turn, for one of the others; the rest is slow.
"""

from __future__ import annotations

import shutil

import pytest
from sympy import Max

import redalg as ra
from redalg.errors import PlanError
from redalg.library import attention, quantized_product
from redalg.lower_tile.check.fit import smem_bytes
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.lowered import Lowered
from redalg.strategies.device import targets
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import fused

PROBLEMS = {
    "attention, d 64": ("attention", {"b": 32, "h": 16, "q": 512, "k": 512, "d": 64, "e": 64}, "float16"),
    "attention, d 128": ("attention", {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": 128, "e": 128}, "float16"),
    "attention, segments": ("attention", {"b": 1, "h": 8, "q": 1, "k": 65536, "d": 128, "e": 128}, "bfloat16"),
    "attention, float32": ("attention", {"b": 4, "h": 16, "q": 1024, "k": 1024, "d": 64, "e": 64}, "float32"),
    "causal": ("causal", {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 64, "e": 64}, "float16"),
    "product": ("product", {"b": 4096, "e": 1536, "n": 2560}, "float16"),
    "centred product": ("centred product", {"b": 4096, "e": 1536, "n": 2560}, "bfloat16"),
    "covariance": ("covariance", {"b": 1000, "e": 500, "n": 3000}, "float32"),
    "variance of values": ("variance of values", {"b": 1000, "e": 128, "n": 3000}, "bfloat16"),
    "regression": ("regression", {"b": 1024, "n": 32768}, "float32"),
    "variance": ("variance", {"b": 1024, "n": 32768}, "float32"),
    "variance, segments": ("variance", {"b": 1, "n": 1 << 20}, "float32"),
    "logsumexp": ("logsumexp", {"b": 1000, "n": 1000}, "float16"),
    "softmax, on chip": ("softmax", {"b": 8192, "n": 8192}, "bfloat16"),
    "softmax, segments": ("softmax", {"b": 32, "n": 131072}, "bfloat16"),
    "layer_norm, second pass": ("layer_norm", {"b": 4096, "n": 16384}, "bfloat16"),
    "argmax": ("argmax", {"b": 1024, "n": 8192}, "float16"),
    "last": ("last", {"b": 1024, "n": 8192}, "float32"),
    "compensated": ("compensated", {"b": 1024, "n": 8192}, "float32"),
    "compensated, segments": ("compensated", {"b": 2, "n": 1 << 20}, "float32"),
    "argmax, segments": ("argmax", {"b": 2, "n": 1 << 20}, "float16"),
    "batch norm of planes": ("batch norm of planes", {"b": 32, "c": 64, "n": 784}, "float32"),
    "inertia": ("inertia", {"b": 1024, "n": 8192}, "float32"),
    "latent": ("latent", {"b": 32, "h": 128, "k": 4096, "c": 512, "r": 64, "e": 512}, "float16"),
    "latent, segments": ("latent", {"b": 1, "h": 128, "k": 4096, "c": 512, "r": 64, "e": 512}, "bfloat16"),
    "best of rows": ("best of rows", {"b": 64, "n": 131072}, "float16"),
    "routing": ("routing", {"t": 2048, "c": 4096, "n": 128}, "float16"),
    "routing to one": ("routing to one", {"t": 2048, "c": 768, "n": 128}, "float16"),
    "routing, float32": ("routing", {"t": 2048, "c": 2560, "n": 64}, "float32"),
    "long inner axis": ("long inner axis", {"t": 2048, "c": 8192, "n": 128}, "float16"),
    "long inner axis, transposed": ("long inner axis, transposed", {"t": 2048, "c": 4000, "n": 1000}, "bfloat16"),
    "long inner axis, float32": ("long inner axis", {"t": 2048, "c": 8192, "n": 128}, "float32"),
    "weights of scores": ("weights of scores", {"t": 2048, "c": 2048, "n": 32000}, "bfloat16"),
    "window, d 128": ("window", {"b": 4, "h": 16, "q": 2048, "k": 2048, "d": 128, "e": 128}, "float16"),
    "lengths, d 80": ("lengths", {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 80, "e": 80}, "bfloat16"),
    "bias, d 96": ("linear bias", {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 96, "e": 96}, "float16"),
    "soft cap, d 192, e 128": ("soft cap", {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 192, "e": 128}, "float16"),
    "sinks, d 256": ("sinks", {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 256, "e": 256}, "float16"),
    "shared heads, one query": ("shared heads", {"b": 1, "h": 32, "q": 1, "k": 8192, "d": 128, "e": 128}, "float16"),
    "norm of attention": ("norm of attention", {"q": 1024, "k": 2048, "d": 64, "e": 64}, "float16"),
    "pages of 64": ("pages of 64", {"b": 8, "h": 8, "q": 1, "k": 4096, "d": 128, "e": 128}, "bfloat16"),
}
INTEGERS = {"length": "int32", "begin": "int32", "pages": "int32", "target": "int64"}
CACHE, PAGED = (1, 8, 8192, 128), (512, 64, 8, 128)
SHAPES = {
    "inertia": {"r": (1024, 8192, 3)},
    "shared heads, one query": {"K": CACHE, "V": CACHE},
    "pages of 64": {"K": PAGED, "V": PAGED, "pages": (8, 64)},
}

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


OTHERS = ("sm_89", "sm_86", "sm_80")
OFTEN = {
    ("attention, d 64", "sm_90a"), ("attention, d 128", "sm_90a"), ("softmax, on chip", "sm_90a"),
    ("layer_norm, second pass", "sm_86"), ("norm of attention", "sm_80"),
}  # fmt: skip
"""What compiles in every CI run: products by either generation of matrix units, rows, two passes. The rest is slow."""
COMPILED = [
    pytest.param(name, target, marks=[pytest.mark.slow] * ((name, target) not in OFTEN))
    for name in PROBLEMS
    for target in ("sm_90a", *OTHERS)
]


@pytest.mark.parametrize(("name", "target"), COMPILED)
def test_compiles_within_limits(name: str, target: str) -> None:
    form, sizes, dtype = PROBLEMS[name]
    one = fused(form)
    dtypes = {tensor: INTEGERS.get(tensor, dtype) for tensor in one.cascade.inputs()}
    lowered = one.lower(target, sizes, dtypes, shapes=SHAPES.get(name))
    for kernel in compile_only(lowered.source):
        assert 0 < kernel.smem_bytes <= targets()[target].smem_bytes or kernel.smem_bytes == 0
        assert kernel.spill_bytes == 0 or target != "sm_90a", f"{kernel.name} spills {kernel.spill_bytes} bytes"
        if name == "attention, d 128" and target == "sm_90a":
            assert "wgmma" in kernel.cuda
            assert "tma_load" in kernel.cuda


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ["causal", "window", "lengths"])
def test_run_time_sizes_compile(name: str, target: str) -> None:
    """Where the domain bounds the loop too, whose trip count is no number then."""
    one, sizes = fused(name), {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 64, "e": 64}
    dtypes = {tensor: INTEGERS.get(tensor, "float16") for tensor in one.cascade.inputs()}
    for kernel in compile_only(one.lower(target, sizes, dtypes, varying="bhqk").source):
        assert 0 < kernel.smem_bytes <= targets()[target].smem_bytes
        assert kernel.spill_bytes == 0 or target != "sm_90a", f"{kernel.name} spills {kernel.spill_bytes} bytes"


@pytest.mark.sweep(6)
@pytest.mark.parametrize("target", ["sm_90a", "sm_86", "sm_80"])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_products_of_eight_bits_compile(target: str, power_of_two: bool) -> None:
    """In 8 bits where the chip multiplies them; elsewhere in float16, and never in what compiles to an assertion."""
    form = quantized_product(power_of_two=power_of_two, result="bfloat16")
    dtypes = {"x": "float16", "W": "float8_e4m3fn", "w": "float32"}
    lowered = form.lower(target, {"m": 4096, "n": 1536, "k": 2560}, dtypes)
    for kernel in compile_only(lowered.source):
        assert 0 < kernel.smem_bytes <= targets()[target].smem_bytes
        assert kernel.spill_bytes == 0 or target != "sm_90a", f"{kernel.name} spills {kernel.spill_bytes} bytes"
        assert ("wgmma" in kernel.cuda) == (target == "sm_90a")


@pytest.mark.sweep(12)
@pytest.mark.parametrize("width", [64, 96, 128])
@pytest.mark.parametrize("name", ["causal", "soft cap", "statistics", "linear bias"])
def test_three_warpgroups_have_registers(name: str, width: int) -> None:
    """A thread of 384 that multiply has 160, beside 128 that load: the tile fits them, whatever the scores become."""
    sizes = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": width, "e": width}
    one = fused(name)
    dtypes = {tensor: INTEGERS.get(tensor, "bfloat16") for tensor in one.cascade.inputs()}
    ruled = one.lower("sm_90a", sizes, dtypes).plan
    tile = {"block_row": 192, "block_streamed": 128, "stages": 1 if width == 64 else 2, "threads": 384}
    plan = with_choices(ruled, **tile, warp_specialized=True)
    for kernel in compile_only(one.lower("sm_90a", sizes, dtypes, plan=plan).source):
        assert kernel.spill_bytes == 0, f"{kernel.name} spills {kernel.spill_bytes} bytes"
        assert kernel.smem_bytes <= targets()["sm_90a"].smem_bytes
        assert "warpgroup_reg_alloc<160>" in kernel.cuda


def of_one_row(block: int, threads: int) -> Lowered:
    """Moments of 32768 particles, so many of them at a time by all of a block's threads."""
    one, known = fused("inertia"), {"shapes": {"r": (512, 32768, 3)}}
    by_rules = one.lower("sm_90a", {"b": 512, "n": 32768}, "float32", **known).plan
    tile = {"block_row": 1, "block_streamed": block, "threads": threads, "segments": 1, "stages": 0}
    plan = with_choices(by_rules, level="block", **tile)
    return one.lower("sm_90a", {"b": 512, "n": 32768}, "float32", plan=plan, **known)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("block", "threads"), [(4096, 1024), (8192, 512), (2048, 128)])
def test_what_warps_hand_each_other_is_counted(block: int, threads: int) -> None:
    """A reduction of a row that lies in several warps takes a cell of every thread, beside the loop's tile."""
    lowered = of_one_row(block, threads)
    (made,) = compile_only(lowered.source)
    assert smem_bytes(lowered.program.kernels[0], numbers_of(lowered.plan)) == made.smem_bytes > 3 * 4 * block


def test_what_warps_hand_each_other_may_be_too_much() -> None:
    with pytest.raises(PlanError, match=r"needs \d+ bytes of shared memory .* has 232448"):
        of_one_row(16384, 1024)


@pytest.mark.slow
def test_choices_within_choices_compile() -> None:
    """Sinks beside the largest logit, which is NaN where a logit is: TileLang did not end with it written out, nor with
    its name given within the store's guard."""
    q, k = ra.axes("q k")
    form = attention(sinks=True, mask=k <= q, also=["lse", "top"])
    sizes = {"b": 2, "h": 4, "q": 33, "k": 77, "d": 32, "e": 48}
    lowered = form.lower("sm_90a", sizes, dict.fromkeys(form.cascade.inputs(), "float32"))
    assert "choice = " in lowered.source.text
    assert all(kernel.spill_bytes == 0 for kernel in compile_only(lowered.source))


def test_the_largest_of_many_compiles() -> None:
    """Each element stands twice, for its NaN and for itself, however many there are."""
    n = ra.axes("n")
    xs = [ra.tensor(f"x{number}[b,n]") for number in range(7)]
    form = ra.fuse({"sum": (ra.sum(Max(*xs), n), "b"), "top": (Max(*(ra.sum(x, n) for x in xs)), "b")})
    lowered = form.lower("sm_90a", {"b": 64, "n": 256}, "float32")
    assert max(map(len, lowered.source.text.splitlines())) < 600
    assert compile_only(lowered.source)


def test_boxes_that_the_load_unit_does_not_take_compile() -> None:
    """304 elements of a dimension that is not the last: TileLang would not divide them."""
    i, k = ra.axes("i k")
    form = ra.fuse(ra.max(ra.logsumexp(ra.tensor("x[i,k]"), i), k), axes="")
    whole = ra.Schedule(ra.Pad(16), ra.Loop("k", 64), ra.ScalarCores(128))
    lowered = form.lower("sm_90a", {"i": 300, "k": 200}, "float32", plan=whole)
    assert "x[0:+304, " in str(lowered.program)
    assert "by threads" in str(lowered.program)
    assert compile_only(lowered.source)


def test_sums_that_no_row_shares_are_not_split() -> None:
    """The kernel of the parts would have no row to tell which of them exist."""
    i, k = ra.axes("i k")
    x, v = ra.tensors("x[i,k] v[k]")
    form = ra.fuse(ra.mean(1 / (1 + x**2 + v**2), k) + ra.mean(1 / (1 + x**2), i), axes="i k")
    for one in form.plans({"i": 300, "k": 200}, "float32", "H200")[:50]:
        assert numbers_of(one.plan).splits == 1
    assert compile_only(form.lower("sm_90a", {"i": 300, "k": 200}, "float32").source)
