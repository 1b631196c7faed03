"""The generated program on the CPU: TileLang's C target and the tile interpreter against the float64 definition."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from sympy import Expr, Integer, exp, tanh

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Bind, Loop, ReduceTile, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from tests.cases.kernels import CASES, Case, cast, fused, problem, tensors_of, worst_error

SMALL = [case for case in CASES if "1e8" not in case.name and case.name not in ("513 x 1000", "width 128")]


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


def plan_of(case: Case) -> Schedule:
    """The default plan of a case on the C target."""
    form = fused(case.form)
    plan: Schedule = form.lower("c", **problem(form, tensors_of(case)), empty=case.empty).plan
    return plan


@pytest.mark.sweep(12)
@pytest.mark.parametrize("case", named(list(CASES)))
def test_c_target_equals_the_definition(case: Case) -> None:
    tensors, form = tensors_of(case), fused(case.form)
    out = form(**tensors, backend="tilelang", empty=case.empty, sizes=case.sizes)
    assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= case.tolerance


@pytest.mark.sweep(8)
@pytest.mark.parametrize("case", named(SMALL))
@pytest.mark.parametrize("target", ["sm_90a", "c"])
def test_tile_interpreter_equals_the_definition(case: Case, target: str) -> None:
    tensors, form = tensors_of(case), fused(case.form)
    lowered = form.lower(target, **problem(form, tensors, case.sizes), empty=case.empty)
    out = interpret(lowered.program, {name: array.numpy() for name, array in tensors.items()})
    outputs = {one.name: torch.from_numpy(out[one.name]) for one in form.cascade.outputs}
    for one in form.cascade.outputs:
        wanted = form.reference(**tensors, sizes=case.sizes)
        wanted = wanted if len(outputs) == 1 else getattr(wanted, one.name)
        assert worst_error(outputs[one.name], wanted, case.empty) <= case.tolerance


def has_levels(case: Case) -> bool:
    """Whether a plan may choose at what level it fuses: rows of numbers, without matrix products."""
    form = fused(case.form).form
    products = form.cascade.producers or any(len(one.factors) > 1 for one in form.accumulators)
    return form.cascade.axis.name == "n" and "1e8" not in case.name and not form.structures and not products


ROWS = list(filter(has_levels, CASES))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("case", named(ROWS))
@pytest.mark.parametrize("level", ["thread", "row"])
def test_every_level_equals_the_definition(case: Case, level: str) -> None:
    tensors, form = tensors_of(case), fused(case.form)
    plan = plan_of(case)
    length = problem(form, tensors)["sizes"][plan.binding.streamed.name]
    plan = with_choices(plan, level=level, block_streamed=length if level == "row" else 16)
    out = form(**tensors, backend="tilelang", plan=plan, empty=case.empty)
    bound = case.tolerance if level == "thread" else max(case.tolerance, length * 2.0**-24)  # summed one by one
    assert worst_error(out, form.reference(**tensors), case.empty) <= bound


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["ragged, d ≠ e", "boolean mask", "rows", "weighted variance"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float16, 2e-3)])
def test_c_target_dtypes(name: str, dtype: torch.dtype, tolerance: float) -> None:
    case = next(one for one in CASES if one.name == name)
    tensors, form = cast(tensors_of(case), dtype), fused(case.form)
    assert worst_error(form(**tensors, backend="tilelang"), form.reference(**tensors)) <= tolerance


def test_c_target_takes_bfloat16_as_float32() -> None:
    case = CASES[0]
    tensors, form = cast(tensors_of(case), torch.bfloat16), fused(case.form)
    out = form(**tensors, backend="tilelang")
    assert out.dtype == torch.bfloat16
    assert worst_error(out, form.reference(**tensors)) <= 8e-3


NOTHING, UNORDERED = -torch.inf, torch.nan


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("k", [3, 20])
def test_selection_of_odd_values(k: int, segments: int) -> None:
    """NaN first, both zeros as one, -inf before no element at all, ties by the lower index; in one part and three."""
    rows = torch.tensor([[NOTHING] * 9, [1.0, UNORDERED, 2.0, torch.inf, UNORDERED, *[NOTHING] * 4],
                         [-0.0, 0.0, -0.0, 0.0, -1.0, 0.0, -0.0, 1e-45, -1e-45]])  # fmt: skip
    form = fused("best of rows" if k == 3 else "20 best of rows")
    options = problem(form, {"x": rows})
    plan = with_choices(form.lower("c", **options).plan, segments=segments, block_streamed=2)
    wanted, out = form.reference(x=rows), interpret(form.lower("c", **options, plan=plan).program, {"x": rows.numpy()})
    generated = form(x=rows, backend="tilelang", plan=plan)
    for one in ("values", "indices", "first", "least"):
        expected = getattr(wanted, one).double()
        torch.testing.assert_close(torch.from_numpy(out[one]).double(), expected, equal_nan=True, rtol=0, atol=1e-44)
        torch.testing.assert_close(getattr(generated, one).double(), expected, equal_nan=True, rtol=0, atol=1e-44)


@pytest.mark.parametrize("splits", [2, 5])
def test_split_contractions_equal_the_definition(splits: int) -> None:
    case = next(one for one in CASES if one.name == "routing")
    tensors, form = tensors_of(case), fused(case.form)
    plan = with_choices(form.lower("c", **problem(form, tensors)).plan, splits=splits, block_inner=32)
    assert worst_error(form(**tensors, backend="tilelang", plan=plan), form.reference(**tensors)) <= case.tolerance


def test_an_axis_without_a_place_is_refused() -> None:
    """A maximum over i that needs a sum over i and, for every i, a maximum over k."""
    i, j, k = ra.axes("i j k")
    x, y, w = map(ra.Tensor, "xyw")
    inner = ra.max(w[i, k] * abs(x[j] - x[k]), k)
    nested = ra.sum(ra.max(tanh(tanh(y[i]) * ra.sum(x[i], i)) * inner, i) - ra.sum(y[j], j), j)
    with pytest.raises(PlanError, match="reads axis j, of which the kernel has no place"):
        ra.fuse(nested).source("c", {"i": 8, "j": 8, "k": 8}, dtypes="float64")


def test_a_split_of_what_is_no_sum_is_refused() -> None:
    case = next(one for one in CASES if one.name == "long inner axis, maximum")
    form, options = fused(case.form), problem(fused(case.form), tensors_of(case))
    plan = with_choices(form.lower("c", **options).plan, splits=2, block_inner=32)
    with pytest.raises(PlanError, match="no plain sum"):
        form.lower("c", **options, plan=plan)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("name", ["lengths", "spans", "no length"])
def test_what_lies_beyond_a_length_is_never_read(name: str, segments: int) -> None:
    """A cache holds anything behind its end; a weight of 0 does not hide a NaN."""
    case = next(one for one in CASES if one.name == name)
    tensors, form = tensors_of(case), fused(case.form)
    spoilt = {key: array.clone() for key, array in tensors.items()}
    for row, size in enumerate(tensors["length"].tolist()):
        spoilt["K"][row, :, size:] = spoilt["V"][row, :, size:] = torch.nan
    options = problem(form, tensors)
    plan = with_choices(form.lower("c", **options).plan, segments=segments)
    lowered = form.lower("c", **options, plan=plan, empty=case.empty)
    out = interpret(lowered.program, {key: array.numpy() for key, array in spoilt.items()})
    assert worst_error(torch.from_numpy(out["out"]), form.reference(**tensors), case.empty) <= case.tolerance


@pytest.mark.parametrize(
    ("form", "sizes", "read"),
    [
        ("causal", {"q": 256, "k": 256}, 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8),
        ("window", {"q": 256, "k": 256}, 1 + 7 * 2),
        ("attention", {"q": 256, "k": 256}, 8 * 8),
    ],
)
def test_tiles_that_a_mask_rules_out_are_skipped(form: str, sizes: dict[str, int], read: int) -> None:
    """Tiles of 32: causal takes half of 8 x 8, a window of 24 two a row of tiles."""
    sizes = {"b": 1, "h": 1, "d": 16, "e": 16} | sizes
    fully = fused(form)
    program = fully.lower("c", sizes, dict.fromkeys("QKV", "float32")).program
    [kernel] = program.kernels
    [loop] = [one for one in kernel.body if isinstance(one, Loop)]
    steps = 0
    for places in product(*(range(extent) for _, extent in kernel.grid)):
        variables = (variable for variable, _ in kernel.grid)
        values: dict[Expr, Expr] = dict(zip(variables, map(Integer, places), strict=True))
        for one in kernel.body:
            if isinstance(one, Bind):
                values[Load(one.name)] = one.value.xreplace(values)
        steps += int(loop.stop.xreplace(values)) - int(loop.start.xreplace(values))
    assert steps == read


def test_strided_and_expanded_tensors() -> None:
    tensors, form = tensors_of(CASES[0]), fused("attention")
    strided = {name: array.transpose(2, 3).contiguous().transpose(2, 3) for name, array in tensors.items()}
    strided["K"] = strided["K"][:, :1].expand(-1, 2, -1, -1)
    assert worst_error(form(**strided, backend="tilelang"), form.reference(**strided)) <= 2e-6


def test_a_scalar_rate_multiplies_what_is_left_of_the_maximum() -> None:
    n, scale, x = ra.axes("n"), ra.scalars("scale", positive=True), ra.tensor("x[b,n]")
    form = ra.fuse(ra.sum(exp(scale * (x - ra.max(x, n))), n))
    far = (1e8 + 30 * torch.randn(4, 70, generator=torch.Generator().manual_seed(0))).float()
    for backend in ("tilelang", "torch"):
        assert worst_error(form(x=far, scale=0.3, backend=backend), form.reference(x=far, scale=0.3)) <= 1e-6


def test_empty_axes_need_no_kernel() -> None:
    form = fused("rows")
    out = form(x=torch.zeros(3, 0), backend="tilelang")
    assert out.top.tolist() == out.lse.tolist() == [-torch.inf] * 3
    assert out.denominator.tolist() == [0.0] * 3


def test_heads_that_share_keys_are_the_rows_of_one_tile() -> None:
    """K is read once for a group: its tile is indexed by the group, and rows are (head in the group, query)."""
    sizes = {"b": 2, "h": 8, "q": 3, "k": 500, "d": 64, "e": 64}
    shapes = {"K": (2, 2, 500, 64), "V": (2, 2, 500, 64)}
    dtypes = {"Q": "float16", "K": "float16", "V": "float16", "length": "int32"}
    lowering = fused("shared heads").lower("sm_90a", sizes, dtypes, shapes=shapes)
    binding = lowering.plan.binding
    assert binding.packing is not None
    assert [(axis.name, length) for axis, length in binding.packing.digits] == [("h", 4), ("q", 3)]
    assert [axis.name for axis in binding.grid] == ["b", "h_group"]
    assert "T.copy(K[b, h_group, " in lowering.source.text


def test_one_axis_of_many_rows_is_not_packed() -> None:
    sizes = {"b": 1, "h": 4, "q": 100, "k": 100, "d": 32, "e": 32}
    shapes = {"K": (1, 2, 100, 32), "V": (1, 2, 100, 32)}
    lowering = fused("shared heads, causal").lower("sm_90a", sizes, dict.fromkeys("QKV", "float16"), shapes=shapes)
    assert lowering.plan.binding.packing is None


@pytest.mark.parametrize(("page", "copies"), [(64, True), (4, False)])
def test_a_page_is_one_copy_where_tiles_lie_within_pages(page: int, copies: bool) -> None:
    case = next(one for one in CASES if one.name == f"pages of {page}")
    tensors, form = tensors_of(case), fused(case.form)
    lowering = form.lower("sm_90a", **problem(form, tensors, case.sizes))
    assert ("T.copy(K[pages[" in lowering.source.text) == copies


def test_a_tile_that_would_span_pages_is_cut_to_one() -> None:
    """At width 128 tiles of 128 keys are chosen by themselves."""
    sizes = {"b": 8, "h": 8, "q": 1, "k": 4096, "d": 128, "e": 128}
    dtypes = {**dict.fromkeys("QKV", "bfloat16"), "pages": "int32", "length": "int32"}
    shapes = {"K": (512, 64, 8, 128), "V": (512, 64, 8, 128), "pages": (8, 64)}
    lowering = fused("pages of 64").lower("sm_90a", sizes, dtypes, shapes=shapes)
    assert numbers_of(lowering.plan).block_streamed == 64
    assert "T.copy(K[pages[" in lowering.source.text


def test_an_extremum_that_nothing_reads_costs_nothing() -> None:
    """The maximum that a user writes is not the pivot where a part of the scores stands outside of it."""
    k, d = ra.axes("k d")
    queries, keys, values, of_row = ra.tensors("Q[q,d] K[k,d] V[k,e] r[q]")
    scores = ra.sum(queries * keys, d) + of_row
    weights = exp(scores - ra.max(scores, k))
    form = ra.fuse(ra.sum(weights * values, k) / ra.sum(weights, k), axes="q e")
    lowering = form.lower("sm_90a", {"q": 64, "k": 64, "d": 32, "e": 32}, dict.fromkeys("QKVr", "float16"))
    reduced = [one for one in nested_statements(lowering.program.kernels[0].body) if isinstance(one, ReduceTile)]
    assert [one.kind for one in reduced] == ["max", "sum"]
    assert len(form.form.extrema) == 2


def test_a_soft_cap_is_computed_once() -> None:
    sizes = {"b": 1, "h": 2, "q": 64, "k": 64, "d": 32, "e": 32}
    lowering = fused("soft cap").lower("sm_90a", sizes, dict.fromkeys("QKV", "float16"))
    assert lowering.source.text.count("T.tanh(") == 1
