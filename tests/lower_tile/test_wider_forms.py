"""Kernels of what no one loop with one matrix product holds, against the definition: in stages, by pairs of axes, as
plain sums; under several plans, in one segment and in three."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import exp, tanh

import redalg as ra
from redalg.expression import Cast
from redalg.library import PATTERNS
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.lowered import Lowered
from redalg.strategies.binding import bind_axes
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import problem, worst_error
from tests.cases.wider import AFTER, AHEAD, APART, BESIDE, FORMS, PRODUCTS, ROUNDED, SIZES, SUMS, drawn
from tests.sweeps import draws

TOLERANCE = 5e-6


@cache
def fused(name: str) -> ra.Fused:
    return FORMS[name]()


@cache
def tensors(name: str) -> dict[str, torch.Tensor]:
    return drawn(name)(torch.Generator().manual_seed(0))


@cache
def wanted(name: str) -> dict[str, torch.Tensor]:
    out = fused(name).reference(**tensors(name))
    return dict(out._asdict()) if hasattr(out, "_asdict") else {"out": out}


def lowered(name: str, target: str = "c", **options: Any) -> Lowered:
    lowering: Lowered = fused(name).lower(target, **problem(fused(name), tensors(name)), **options)
    return lowering


def assert_defined(name: str, made: Mapping[str, Any], empty: str = "nan") -> None:
    for key, expected in wanted(name).items():
        assert worst_error(torch.as_tensor(made[key]), expected, empty) <= TOLERANCE, key


def interpreted(name: str, one: Lowered) -> dict[str, Any]:
    out: dict[str, Any] = interpret(one.program, {key: array.numpy() for key, array in tensors(name).items()})
    return out


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["c", "sm_90a"])
@pytest.mark.parametrize("name", FORMS)
def test_the_tile_program_equals_the_definition(name: str, target: str) -> None:
    assert_defined(name, interpreted(name, lowered(name, target)))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", [name for name in FORMS if "scan" not in name])
def test_three_segments_equal_the_definition(name: str) -> None:
    plan = lowered(name).plan
    plan = with_choices(plan, segments=3, block_streamed=16, level="block")
    assert_defined(name, interpreted(name, lowered(name, plan=plan)))


@pytest.mark.parametrize(("name", "segments"), [("where the third is largest", 1), ("attention, normalised", 3)])
def test_the_c_target_equals_the_definition(name: str, segments: int) -> None:
    plan = with_choices(lowered(name).plan, segments=segments)
    assert_defined(name, {"out": fused(name)(**tensors(name), backend="tilelang", plan=plan)})


@pytest.mark.parametrize("name", FORMS)
def test_the_derived_form_equals_the_definition(name: str) -> None:
    out = fused(name)(**tensors(name), backend="torch")
    assert_defined(name, out._asdict() if hasattr(out, "_asdict") else {"out": out})


@given(st.sampled_from(sorted({*FORMS} - {"a scan beside a product", "a scan of scores"})),
       st.fixed_dictionaries({"block_row": st.sampled_from([1, 3, 16]), "block_streamed": st.sampled_from([5, 16, 80]),
                              "block_column": st.sampled_from([3, 16, 32]), "block_inner": st.sampled_from([0, 16]),
                              "segments": st.sampled_from([1, 2, 3])}))  # fmt: skip
@settings(max_examples=draws(10))
def test_stages_and_sums_keep_their_meaning_under_any_plan(name: str, tile: dict[str, int]) -> None:
    """p, then Σ f(x, p); out, then out'; t, then s = Σ g(t, u); r, then Σ s·r; d, then Σ_j f(d[j]); Σ (f·h)·g by c."""
    plan = lowered(name).plan
    tile = {**tile, "block_row": 1} if plan.binding.row is None else tile
    plan = with_choices(plan, **tile, level="block")
    assert_defined(name, interpreted(name, lowered(name, plan=plan)))


@pytest.mark.parametrize("name", [*PRODUCTS, *SUMS])
def test_what_is_a_matrix_product_and_what_is_not(name: str) -> None:
    lowering = lowered(name)
    assert lowering.plan.binding == bind_axes(lowering.form, SIZES)
    assert lowering.plan.binding.contracted == (name in PRODUCTS)
    assert ("products as plain sums" in str(lowering.plan)) == (name in SUMS)


@pytest.mark.parametrize("name", APART)
def test_outputs_that_no_axes_serve_together_are_made_apart(name: str) -> None:
    stages = lowered(name).stages
    assert len(stages.forms) == 2
    assert [one.name for one in stages.outputs] == [one.name for one in fused(name).form.outputs]
    assert bind_axes(stages.loop, SIZES).contracted


@pytest.mark.parametrize("name", [*AHEAD, *BESIDE, *AFTER, *ROUNDED])
def test_which_stages_there_are(name: str) -> None:
    stages = lowered(name).stages
    assert bool(stages.ahead) == (name in AHEAD)
    assert bool(stages.after) == (name in AFTER)
    assert bool(lowered(name).program.kernels[0].plan) == (name in AHEAD)
    assert [one.name for one in stages.outputs] == [one.name for one in fused(name).form.outputs]


def test_of_two_ways_apart_the_fewer_numbers_are_made() -> None:
    """Queries are projected ahead (q x d numbers, not q x k); of attention it is what it gives, not its weights."""
    assert [one.outputs[0].axes for one in lowered("projected queries").stages.ahead] == [ra.axes("d q")]
    assert [one.outputs[0].axes for one in lowered("projected attention").stages.ahead] == [ra.axes("e q")]


@pytest.mark.parametrize("length", [32, 33])
def test_what_every_row_would_reduce_again_is_made_ahead(length: int) -> None:
    """Σ_i f(x[i,k], s), s[i] = Σ_k g: one loop where there are few k, s ahead of it where there are many."""
    form, rng = fused("shares of rows, of columns"), torch.Generator().manual_seed(0)
    data = {"w": torch.rand(5, length, generator=rng) + 0.1}
    one = form.lower("c", {"b": 5, "n": length}, {"w": "float32"})
    assert bool(one.stages.ahead) == (length > 32)
    got = torch.as_tensor(interpret(one.program, {"w": data["w"].numpy()})["out"])
    assert worst_error(got, form.reference(**data)) <= TOLERANCE


@pytest.mark.parametrize("columns", [512, 513])
@pytest.mark.parametrize("rounded", [True, False])
def test_an_operand_of_more_columns_than_a_block_holds_is_made_ahead(columns: int, *, rounded: bool) -> None:
    """Σ_k f(s)·r: as a whole if it is rounded, so that the loop multiplies two tensors; else s is made ahead."""
    k, d = ra.axes("k d")
    score = ra.sum(ra.tensor("a[q,d]") * ra.tensor("b[k,d]"), d)
    operand = tanh(score * ra.tensor("g[k]"))
    operand = ra.cast(operand, "bfloat16") if rounded else operand
    form, rng = ra.fuse(ra.sum(operand * ra.tensor("r[k,e]"), k), axes="q e"), torch.Generator().manual_seed(0)
    shapes = {"a": (5, 3), "b": (7, 3), "g": (7,), "r": (7, columns)}
    data = {name: torch.rand(shape, generator=rng) for name, shape in shapes.items()}
    one = form.lower("c", {"q": 5, "k": 7, "d": 3, "e": columns}, dict.fromkeys(data, "float32"))
    ahead = [output.expr for stage in one.stages.ahead for output in stage.outputs]
    assert [isinstance(expr, Cast) for expr in ahead] == ([rounded] if columns > 512 else [])
    got = torch.as_tensor(interpret(one.program, {name: tensor.numpy() for name, tensor in data.items()})["out"])
    assert worst_error(got, form.reference(**data)) <= (1e-2 if rounded else TOLERANCE)


def test_a_stage_reads_what_is_as_narrow_as_before() -> None:
    """A stage after the loop's, which reads float32, leaves the loop's own products to tensor cores."""
    sizes = {"q": 128, "k": 256, "d": 64, "e": 64}
    assert numbers_of(
        fused("norm of attention").lower("sm_90a", sizes, dict.fromkeys("QKV", "float16")).plan
    ).tensor_cores


@pytest.mark.parametrize("rows", [1, 1024])
def test_what_is_the_same_for_all_queries_is_made_ahead(rows: int) -> None:
    """Σ_i f(x[i,k], s), s[i] = Σ_j g: sums of keys alone, which tiles of 16 queries and more would make for each; the
    products that read them stay on tensor cores."""
    one = fused("keys and their norms").lower(
        "sm_90a", {"q": rows, "k": 256, "d": 64, "e": 64}, dict.fromkeys("QKV", "float16")
    )
    assert [stage.outputs[0].axes for stage in one.stages.ahead] == [(ra.axes("k"),)]
    assert numbers_of(one.plan).tensor_cores


def test_values_of_the_same_axes_are_made_by_one_stage() -> None:
    """A log-sum-exp, a mean and a variance: one kernel reads their data, not one for each."""
    n, m = ra.axes("n m")
    w, z = ra.tensors("w[b,n] z[n,m]")
    form = ra.fuse(ra.sum(exp(w * (ra.logsumexp(z, m) - ra.mean(z, m)) / (1 + ra.var(z, m))), n), axes="b")
    one = form.lower("sm_90a", {"b": 400, "n": 100, "m": 50}, "float32")
    [stage] = one.stages.ahead
    assert len(stage.outputs) == len(form.cascade.producers) > 2
    assert len(one.program.kernels) == 2


def test_what_few_rows_share_stays_in_the_loop() -> None:
    """Without a matrix product a tile may be of one row."""
    n, m = ra.axes("n m")
    w, z = ra.tensors("w[b,n] z[n,m]")
    form = ra.fuse(ra.sum(exp(w * ra.sum(z, m)), n), axes="b")
    assert not form.lower("sm_90a", {"b": 32, "n": 100, "m": 50}, "float32").stages.ahead
    assert form.lower("sm_90a", {"b": 33, "n": 100, "m": 50}, "float32").stages.ahead


def test_an_empty_row_of_a_stage_is_zero_where_that_is_asked() -> None:
    name = "masked norm of attention"
    assert wanted(name)["out"].isnan().tolist() == [row == 3 for row in range(SIZES["q"])]
    assert_defined(name, interpreted(name, lowered(name, empty="zero")), "zero")


def test_sizes_of_stages_are_constant() -> None:
    with pytest.raises(ra.PlanError, match=r"axis q cannot change from call to call.*Those that can: none"):
        lowered("norm of attention", varying="q")


def test_each_stage_says_what_it_makes_and_compiles_apart() -> None:
    text = lowered("projected attention", "sm_90a").source.text
    assert "First sum_k_0" in text
    assert "launch_of_stage_1" in text
    assert "contract_of_stage_1(" in text
    compile(text, "stages", "exec")


def test_what_is_read_backwards_stays_a_branch_in_c() -> None:
    """GCC 12 reads beside the input otherwise (`compilers`)."""
    sizes, flag = {"b": 2, "n": 8}, "-fno-tree-loop-if-convert"
    assert flag in fused("a row and its mirror image").source("c", sizes=sizes, dtypes="float64")
    assert flag not in ra.library.softmax().source("c", sizes=sizes, dtypes="float64")


def test_sums_of_columns_come_to_a_product_over_shared_memory() -> None:
    """Σ_j k·(w − c) − δ·Σ_j k, with δ by column: TileLang refused its registers, laid out by the column's own lanes."""
    form = PATTERNS["kernel_projection"].build()
    lowered = form.lower("H200", {"i": 60, "j": 9, "d": 3, "e": 20}, "float32")
    scopes = {one.name: one.scope for one in lowered.program.kernels[-1].buffers}
    assert scopes["sum_0_acc"] == "fragment"
    assert scopes["sum_0_acc_shared"] == "shared"
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=shape).astype(np.float32)
            for name, shape in {"x": (60, 3), "y": (9, 3), "w": (9, 20)}.items()}  # fmt: skip
    found = interpret(lowered.program, data | {"rate": np.float32(0.5)})["out"]
    np.testing.assert_allclose(found, form.reference(**data, rate=0.5), rtol=1e-5, atol=1e-5)
