"""On a GPU: every case against the float64 definition, and float16 against cuDNN's own error."""

from __future__ import annotations

import pytest
import torch
from sympy import oo, sqrt

import redalg as ra
from benchmarks.families import FAMILIES
from redalg.library import chained_product
from redalg.runtime.lowering import space_for, target_of
from redalg.runtime.unfused import unfused
from redalg.strategies.levels import Grid, Loop, Parts, TensorCores
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from tests.cases.kernels import CASES, Case, cast, fused, problem, tensors_of, worst_error

pytestmark = pytest.mark.gpu

NARROW = [case for case in CASES if not any(word in case.name for word in ("huge", "1e8", "doubles", "inertia"))]
BOUNDS = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", named(list(CASES)))
def test_float32_equals_the_definition(case: Case) -> None:
    tensors, form = tensors_of(case, "cuda"), fused(case.form)
    out = form(**tensors, empty=case.empty, sizes=case.sizes)
    bound = 4e-6 if case.form in ("attention", "latent") and case.tolerance < 1e-5 else case.tolerance
    assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= bound


@pytest.mark.parametrize("case", named(NARROW))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_equal_the_definition(case: Case, dtype: torch.dtype) -> None:
    tensors, form = cast(tensors_of(case, "cuda"), dtype), fused(case.form)
    out = form(**tensors, empty=case.empty, sizes=case.sizes)
    bound = BOUNDS[dtype] * (4 if case.form == "weighted variance" else 1)
    assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= bound


@pytest.mark.parametrize("name", ["513 x 1000", "width 80", "width 128", "one query"])
def test_float16_is_no_worse_than_twice_cudnn(name: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    case = next(one for one in CASES if one.name == name)
    tensors, form = cast(tensors_of(case, "cuda"), torch.float16), fused(case.form)
    wanted = form.reference(**tensors)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        peer = torch.nn.functional.scaled_dot_product_attention(tensors["Q"], tensors["K"], tensors["V"])
    assert worst_error(form(**tensors), wanted) <= 2 * worst_error(peer, wanted)


def test_segments_equal_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"Q": (1, 8, 1, 128), "K": (1, 8, 20_000, 128), "V": (1, 8, 20_000, 128)}
    tensors = {name: torch.randn(shape, generator=generator).half().cuda() for name, shape in shapes.items()}
    form = fused("attention")
    sizes = {"b": 1, "h": 8, "q": 1, "k": 20_000, "d": 128, "e": 128}
    assert numbers_of(form.lower("sm_90a", sizes, dict.fromkeys(shapes, "float16")).plan).segments > 1
    assert worst_error(form(**tensors), form.reference(**tensors)) <= 2e-3


def test_strided_tensors() -> None:
    tensors, form = tensors_of(CASES[0], "cuda"), fused("attention")
    strided = {name: array.transpose(2, 3).contiguous().transpose(2, 3) for name, array in tensors.items()}
    assert worst_error(form(**strided), form.reference(**strided)) <= 4e-6


@pytest.mark.parametrize("rows", [1, 200])
def test_an_extremum_that_met_nan_is_nan(rows: int) -> None:
    """Also where the row is cut into segments (one row does not fill the chip)."""
    data = torch.arange(rows * 300_000, dtype=torch.float32).reshape(rows, 300_000).cuda()
    data[0, 7] = torch.nan
    out = fused("rows")(x=data)
    assert out.top.isnan().tolist() == out.lse.isnan().tolist() == [True] + [False] * (rows - 1)


@pytest.mark.parametrize("segments", [2, 3])
@pytest.mark.parametrize("name", ["causal", "window", "spans", "no length", "shared heads", "pages of 64"])
def test_segments_share_the_live_tiles(name: str, segments: int) -> None:
    case = next(one for one in CASES if one.name == name)
    tensors, form = cast(tensors_of(case, "cuda"), torch.float16), fused(case.form)
    plan = with_choices(form.lower("sm_90a", **problem(form, tensors, case.sizes)).plan, segments=segments)
    out = form(**tensors, empty=case.empty, sizes=case.sizes, plan=plan)
    assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= BOUNDS[torch.float16]


def test_parts_of_one_tile_that_a_mask_rules_out() -> None:
    b, h, q, k, d, e = ra.axes("b h q k d e")
    Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    form = ra.fuse(ra.sum(ra.softmax(ra.where(k <= q, ra.sum(Q * K, d) / 8, -oo), k) * V, k), axes="b h q e")
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn((1, 4, 1024, 128), generator=generator).half().cuda() for name in "QKV"}
    blocks = Grid(b), Grid(h), Grid(q, 128), Grid(e, 64), Parts(k, 8)
    plan = Schedule(*blocks, Loop(k, 128, stages=4, specialised=True), Loop(d, 64), TensorCores(256))
    assert worst_error(form(**tensors, plan=plan), form.reference(**tensors)) <= BOUNDS[torch.float16]


@pytest.mark.parametrize(("width", "stages"), [(64, 1), (64, 2), (96, 2), (128, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_three_warpgroups_take_rows_that_fill_no_tile(width: int, stages: int, masked: bool) -> None:
    """In bfloat16, of 1000 rows and 776 keys: under the mask the first five rows have no key."""
    b, h, q, k, d, e = ra.axes("b h q k d e")
    Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    scores = ra.sum(Q * K, d) / 8
    scores = ra.where(k <= q - 5, scores, -oo) if masked else scores
    out = ra.sum(ra.softmax(scores, k) * V, k)
    form = ra.fuse({"out": (out, "b h q e"), "lse": (ra.logsumexp(scores, k), "b h q")})
    generator = torch.Generator().manual_seed(width)
    shapes = {"Q": (1, 3, 1000, width), "K": (1, 3, 776, width), "V": (1, 3, 776, width)}
    tensors = {key: torch.randn(shape, generator=generator).bfloat16().cuda() for key, shape in shapes.items()}
    blocks = Grid(b), Grid(h), Grid(q, 192), Grid(e, width)
    plan = Schedule(*blocks, Loop(k, 128, stages=stages, specialised=True), TensorCores(384))
    found = form(**tensors, plan=plan, empty="zero")
    assert worst_error(found, form.reference(**tensors), "zero") <= BOUNDS[torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_whole_rows_about_means_far_from_zero(dtype: torch.dtype) -> None:
    """Layer norms about the mean that one sum finds: what it lost in rounding, the sums about it give back."""
    b, n = ra.axes("b n")
    x = ra.Tensor("x")[b, n]
    form = ra.fuse((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + 1e-5), axes="b n")
    generator = torch.Generator().manual_seed(0)
    for length in (777, 1024, 9000, 16384):
        data = torch.randn((5, length), generator=generator) + torch.tensor([[0.0], [1e2], [1e3], [1e4], [-1e5]])
        data[4] = data[4].round()
        data = data.to("cuda", dtype)
        error = worst_error(form(x=data), form.reference(x=data))
        assert error <= (2e-5 if dtype == torch.float32 else BOUNDS[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_what_lies_beyond_a_length_is_never_read(dtype: torch.dtype) -> None:
    """A cache holds anything behind its end, for widths that warps load ahead and for those that they do not."""
    for width in (64, 128):
        shapes = {"Q": (2, 4, 100, width), "K": (2, 4, 300, width), "V": (2, 4, 300, width)}
        generator = torch.Generator().manual_seed(width)
        tensors = {key: torch.randn(shape, generator=generator).to("cuda", dtype) for key, shape in shapes.items()}
        tensors["length"] = torch.tensor([170, 33], device="cuda", dtype=torch.int32)
        wanted = fused("lengths").reference(**tensors)
        for row, size in enumerate((170, 33)):
            tensors["K"][row, :, size:] = tensors["V"][row, :, size:] = torch.nan
        assert worst_error(fused("lengths")(**tensors), wanted) <= 2e-3


@pytest.mark.parametrize("row", ["G1", "G6", "G11"])
def test_chains_as_operations_of_pytorch_are_captured_in_a_graph(row: str) -> None:
    """In bfloat16: the unfused form's plan, replayed on other tensors, beside the definition and the kernel."""
    one = next(one for one in FAMILIES["chains"].rows(torch.device("cuda")) if one.name == row)
    form, bound = chained_product(), 4 * 2.0**-8
    tensors = {name: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for name, shape in one.shapes.items()}
    plan = unfused.admit_unfused(form.form, space_for(form.form, target_of("cuda:0"), one.sizes, one.dtypes)).plan
    assert worst_error(form(**tensors, plan=plan), form.reference(**tensors)) <= bound
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = form(**tensors, plan=plan)
    kernel = form.lower(target_of("cuda:0"), one.sizes, one.dtypes).plan
    for seed in (1, 2):
        torch.manual_seed(seed)
        for tensor in tensors.values():
            tensor.copy_(torch.randn_like(tensor))
        graph.replay()
        torch.cuda.synchronize()
        assert worst_error(out, form.reference(**tensors)) <= bound
        assert worst_error(out, form(**tensors, plan=kernel)) <= 2 * bound
