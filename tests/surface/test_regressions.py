"""What a first user broke: each once, on the generated kernel, beside the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, Expr, Max, Min, Rational, exp, oo, sign, sqrt

import redalg as ra
from redalg.errors import InputError, PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import CASES as KERNEL_CASES
from tests.cases.kernels import SCORE, V, fused, problem, qkv, tensors_of, worst_error
from tests.fuzz import one_axis
from tests.fuzz.executions import WAYS, Executions, data_of, judged

b, n, q, k = ra.axes("b n q k")
x, y = ra.tensors("x[b,n] y[b,n]")
DATA = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_a_constant_index_out_of_range(backend: str) -> None:
    form = ra.fuse(ra.sum(x * ra.Tensor("x")[b, 50], n), axes="b")
    with pytest.raises(InputError) as error:
        form(x=DATA, backend=backend)
    assert str(error.value) == "`x[b, 50]`: index 50 is out of range for dimension 1, which has 10 elements."


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_nan_is_not_forgotten_when_the_maximum_grows(backend: str) -> None:
    data = torch.zeros(1, 1000)
    data[0, 0], data[0, 900] = torch.nan, 500.0
    assert ra.fuse(ra.logsumexp(x, n), axes="b")(x=data, backend=backend).isnan().all()


@pytest.mark.parametrize("segments", [1, 3])
def test_an_extremum_that_met_nan_is_nan(segments: int) -> None:
    form = ra.fuse({"top": (1 * ra.max(x, n), "b"), "low": (2 * ra.min(x, n), "b")})
    data = torch.arange(600.0).reshape(2, 300)
    data[0, 7] = torch.nan
    plan = with_choices(form.lower("c", **problem(form, {"x": data})).plan, segments=segments, block_streamed=16)
    for backend, options in (("numpy", {}), ("torch", {}), ("tilelang", {"plan": plan})):
        made = form(x=data, backend=backend, **options)
        assert torch.stack([made.top, made.low]).isnan().tolist() == [[True, False], [True, False]]
        assert (made.top[1], made.low[1]) == (599.0, 600.0)


def test_an_axis_named_block_on_a_grid_of_many_dimensions() -> None:
    axes = ra.axes("a1 a2 a3 block a5")
    data = torch.randn(2, 2, 2, 4, 3, 9)
    form = ra.fuse(ra.sum(ra.Tensor("w")[(*axes, n)], n), axes="a1 a2 a3 block a5")
    assert worst_error(form(w=data, backend="tilelang"), form.reference(w=data)) <= 1e-6


@pytest.mark.parametrize("name", ["out", "t", "int", "block", "double", "device", "compiled", "e"])
def test_tensors_may_bear_any_name(name: str) -> None:
    form = ra.fuse(ra.sum(ra.tensor(f"{name}[b,n]") ** 2, n), axes="b")
    assert worst_error(form(**{name: DATA}, backend="tilelang"), form.reference(**{name: DATA})) <= 1e-6


def test_an_output_named_as_an_input() -> None:
    form = ra.fuse({"x": (ra.sum(x, n), "b"), "y": (ra.max(x, n), "b")})
    made = form(x=DATA, backend="tilelang")
    assert worst_error(made, form.reference(x=DATA)) <= 1e-6


def test_columns_go_to_blocks_of_the_grid() -> None:
    """Of blocks that hold other columns of the same rows, one stores what has no columns."""
    m = ra.let("m", ra.max(SCORE, k))
    form = ra.fuse({"out": (ra.sum(ra.softmax(SCORE, k) * V, k), "b h q e"), "top": (m, "b h q")})
    tensors = qkv(1, 1, 8, 40, 8, 24)(torch.Generator().manual_seed(0))
    plan = form.lower("c", **problem(form, tensors)).plan
    for segments in (1, 2):
        made = form(**tensors, backend="tilelang", plan=with_choices(plan, block_column=16, segments=segments))
        assert worst_error(made, form.reference(**tensors)) <= 2e-6


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_integer_casts_saturate(backend: str) -> None:
    form = ra.fuse(ra.sum(ra.cast(x * 100, "int8"), n), axes="b")
    made = form(x=torch.tensor([[5.0, -7.0, 0.014]]), backend=backend)
    assert made.tolist() == [127 - 128 + 1]


def test_states_of_different_scalars_do_not_merge() -> None:
    rate = ra.scalars("rate")
    form = ra.fuse(ra.sum(exp(rate * (x - ra.max(x, n))), n), axes="b")
    parts = [form.leaf({"x": DATA, "rate": rate_value}) for rate_value in (1.0, 2.0)]
    with pytest.raises(InputError, match="the states were made with different scalars"):
        form.merge(*parts)


def test_finish_checks_its_tensors() -> None:
    form = ra.fuse(ra.sum(x * y, n) * ra.tensor("c[b]"), axes="b")
    state = form.leaf({"x": DATA, "y": DATA, "c": torch.ones(3)})
    for wrong in (torch.ones(5), torch.ones(3, dtype=torch.int64), np.ones(3), torch.ones(3, 1)):
        with pytest.raises(InputError, match="finish: tensor `c`"):
            form.finish(state, {"c": wrong})
    with pytest.raises(InputError, match="the function has no tensor `z`"):
        form.finish(state, {"c": torch.ones(3), "z": torch.ones(3)})
    with pytest.raises(InputError, match="finish: empty='zilch' is not an option"):
        form.finish(state, {"c": torch.ones(3)}, empty="zilch")


def test_a_scalar_in_a_mask_that_bounds_the_loop() -> None:
    shift = ra.scalars("shift", integer=True)
    s = ra.tensor("s[q,k]")
    form = ra.fuse(ra.sum(ra.softmax(ra.where(k <= q + shift, s, -oo), k) * ra.tensor("v[k]"), k), axes="q")
    data = {"s": torch.randn(5, 9), "v": torch.randn(9), "shift": 2}
    assert worst_error(form(**data, backend="tilelang"), form.reference(**data)) <= 1e-6


def test_a_tensor_without_dimensions() -> None:
    form = ra.fuse(ra.sum(x, n) * ra.tensor("c"), axes="b")
    data = {"x": DATA, "c": torch.tensor(2.0)}
    assert worst_error(form(**data, backend="tilelang"), form.reference(**data)) <= 1e-6


@pytest.mark.parametrize("target", ["sm_86", "sm_80", "sm_90a"])
@pytest.mark.parametrize(("width", "dtype"), [(192, "float32"), (256, "float32"), (256, "float16")])
def test_the_chosen_plan_fits(target: str, width: int, dtype: str) -> None:
    sizes = {"b": 1, "h": 4, "q": 512, "k": 512, "d": width, "e": width}
    assert fused("attention").source(target=target, sizes=sizes, dtypes=dtype)


def test_tiles_on_cuda_cores_come_in_sixteens() -> None:
    form, tensors = fused("attention"), tensors_of(KERNEL_CASES[0])
    plan = form.lower("sm_90a", **problem(form, tensors)).plan
    with pytest.raises(PlanError, match="whose tiles are a multiple of 16 streamed elements"):
        form.lower("sm_90a", **problem(form, tensors), plan=with_choices(plan, block_streamed=30))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dtypes": "fp12"}, "no such dtype"),
        ({"sizes": {"b": 2, "n": -10}}, "give every axis a positive int"),
        ({"sizes": {"b": 2, "n": 3, "z": 4}}, "the axes are b, n"),
        ({"precision": "bf16"}, "precision='bf16' is not an option"),
        ({"plan": "fast"}, "plan= should be a `Schedule`, not a str"),
    ],
)
def test_source_checks_its_options(wrong: dict[str, object], said: str) -> None:
    options = {"sizes": {"b": 2, "n": 3}, "dtypes": "float32"} | wrong
    with pytest.raises(InputError, match=said):
        fused("logsumexp").source(target="c", **options)


def test_an_array_is_no_expression() -> None:
    for wrong in (torch.ones(3), np.ones(3), [1, 2]):
        with pytest.raises(ra.ExpressionError, match="is not an expression"):
            ra.sum(wrong, n)


def test_a_fused_form_is_hashable() -> None:
    assert len({ra.fuse(ra.var(x, n)), ra.fuse(ra.var(x, n))}) == 1


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("sinks", [[0.5], [-torch.inf]])
def test_a_parameter_beside_an_empty_row_in_an_exponent_is_no_nan(segments: int, sinks: list[float]) -> None:
    """exp(t + aux − m) of a row of −∞ is exp(−∞ + ∞), and 0 as in every other backend."""
    n = ra.axes("n")
    x, s, t = ra.tensors("x[b,n] s[b,n] t[b]")
    form = ra.fuse(ra.sum(exp(t + s - ra.max(t + s, n)) * x, n))
    tensors = {"x": torch.ones(1, 40), "s": torch.full((1, 40), -torch.inf), "t": torch.tensor(sinks)}
    known = problem(form, tensors)
    plan = with_choices(form.lower("c", **known).plan, segments=segments)
    made = interpret(form.lower("c", **known, plan=plan).program, {key: one.numpy() for key, one in tensors.items()})
    assert made["out"].tolist() == form(**tensors).tolist() == [0.0]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_rate_of_two_signs_does_not_mask_infinity(backend: str) -> None:
    """(2 − p)·∞ is ∞ for p < 2, though −p·∞ alone is −∞, and exp −∞ = 0."""
    p = ra.scalars("p", positive=True)
    form = ra.fuse(ra.sum(exp((2 - p) * x) / (2 - p) - exp((1 - p) * x) * y, n), axes="b")
    made = form(x=np.array([[np.inf, 1.0], [0.0, 1.0]]), y=np.ones((2, 2)), p=0.3, backend=backend)
    assert np.isfinite(np.array(made)).tolist() == [False, True]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_large_values_cancel_beside_a_small_one(backend: str) -> None:
    """Σ (y − d)·x where d = max y' − mean |y'| is a difference of numbers near 10⁸: d is exact here, and y is near 1.

    Of Σ (y − d)·x the terms have the size of d·x, |d| ≤ 64: n + 8 roundings of each (Higham, section 3.3).
    """
    large = torch.tensor([[1e8, 1e8 + 64], [1e8, 1e8]])
    data = {"x": torch.tensor([[0.5, 1.5], [-1.25, 3.0]]), "y": torch.tensor([[1.1, 0.9], [1.3, -0.7]])}
    z = ra.tensor("z[b,n]")
    d = ra.max(z, n) - ra.mean(Abs(z), n)
    made = ra.fuse(ra.sum((y - d) * x, n), axes="b")(**data, z=large, backend=backend)
    exact = {name: one.double() for name, one in {**data, "z": large}.items()}
    gap = (exact["z"].amax(1) - exact["z"].mean(1))[:, None]
    size = ((exact["y"].abs() + gap) * exact["x"].abs()).sum(1)
    off = (made.double() - ((exact["y"] - gap) * exact["x"]).sum(1)).abs()
    assert (off <= (2 + 8) * 2.0**-24 * size).all()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_elements_at_a_maximum_that_something_infinite_moves(backend: str) -> None:
    """u + ∞ is tied or NaN whatever u is: not the sum over the elements at which u is largest."""
    form = ra.fuse(ra.sum_at_max(y + ra.max(x, n), y, n), axes="b")
    made = form(x=np.array([[np.inf, 1.0], [0.0, 1.0]]), y=np.array([[2.0, 3.0], [2.0, 3.0]]), backend=backend)
    np.testing.assert_array_equal(np.array(made), [np.nan, 3.0])


def test_a_chips_maximum_forgets_no_nan() -> None:
    """max(a, b) of data, of what attains a maximum, and of reduced values is NaN where one of both is."""
    data = {"x": DATA.clone(), "y": DATA.flip(1).clone()}
    data["y"][1, 3] = torch.nan
    largest = ra.max(y, n)
    others = ra.max(ra.where(ra.ne(n, ra.argmax(y, n)), y, -oo), n)
    for expr in (
        ra.sum(Max(x, y), n), ra.sum(Min(y, x, 0), n), Max(ra.max(x, n), largest), ra.sum_at_max(y, x, n),
        largest - others, ra.sum(Max(x, y, x * y, 2 - y, x - y), n),
        Min(ra.max(x, n), largest, ra.sum(x, n), ra.sum(x * y, n)),
    ):  # fmt: skip
        made = ra.fuse(expr, axes="b")
        given = {name: one for name, one in data.items() if name in made.cascade.inputs()}
        got, wanted = made(**given, backend="tilelang"), made(**given, backend="torch")
        assert wanted.isnan().tolist() == [False, True, False]
        assert got.isnan().tolist() == [False, True, False]
        torch.testing.assert_close(got, wanted, equal_nan=True)


def test_a_mask_hides_nan_in_a_kernel() -> None:
    data = {"x": DATA.clone(), "y": DATA.abs() + 0.1}
    data["x"][1, 3], data["y"][1, 3] = torch.nan, -1.0
    made = ra.fuse(ra.sum(ra.where(y > 0, x / ra.sum(Abs(y), n), 0), n), axes="b")
    wanted = (torch.where(data["y"] > 0, data["x"], 0) / data["y"].abs().sum(1, keepdim=True)).sum(1)
    for backend in ("numpy", "torch", "tilelang"):
        torch.testing.assert_close(torch.as_tensor(made(**data, backend=backend)), wanted)


GAUSSIANS = {
    "a sum": ra.sum(exp(-(x**2) / 4 - y), n),
    "of two": ra.sum(exp(-(x**2) - y**2) * x, n),
    "a largest": ra.max(exp(-Abs(x) - y**2), n),
    "a weight": ra.sum(ra.softmax(-(x**2) / (1 + y**2) - exp(y), n) * x, n),
    "of an exponential": ra.logsumexp(exp(-(x**2) / 4 - y), n),
    "carried": ra.softmax(-(x**2) - Abs(y), n),
}


@pytest.mark.parametrize("target", ["c", "sm_90a"])
@pytest.mark.parametrize("name", GAUSSIANS)
def test_what_is_below_0_is_not_taken_for_minus_infinity(name: str, target: str) -> None:
    """exp(u + v) is 0 where u or v is −∞: SymPy holds −x² = −∞ for true of every x, and such kernels gave 0."""
    made = ra.fuse(GAUSSIANS[name], axes="b n" if name == "carried" else "b")
    data = {"x": DATA, "y": DATA.flip(1)}
    one = made.lower(target, **problem(made, data))
    got = interpret(one.program, {key: value.numpy() for key, value in data.items()})["out"]
    assert worst_error(torch.as_tensor(got), made.reference(**data)) <= 2e-6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_that_cancel_do_not_round_their_weights_apart(dtype: str) -> None:
    """Σ p·v moves Σ p·(x − c)·v: with p rounded to 16 bits in the one alone, (x − max y)² lost all its digits where the
    weights lie far from c."""
    d = ra.Axis("d")
    v, Q, K = ra.tensors("v[n,e] Q[b,d] K[n,d]")
    made = ra.fuse(ra.sum((x - ra.max(y, n)) ** 2 * ra.softmax(ra.sum(Q * K, d), n) * v, n), axes="b e")
    rng = np.random.default_rng(3)
    near = np.arange(32) % 2 == 0
    given = {
        "x": np.where(near, 0.3 * rng.normal(size=(4, 32)), -30), "y": 0.3 * rng.normal(size=(4, 32)),
        "v": 1 + rng.random((32, 8)), "Q": 1 + rng.random((4, 1)), "K": np.where(near, -rng.random(32), -20.0)[:, None],
    }  # fmt: skip
    data = {name: torch.from_numpy(one).to(getattr(torch, dtype)) for name, one in given.items()}
    known = problem(made, data)
    one = made.lower("c", **known, plan=with_choices(made.lower("c", **known).plan, block_streamed=4))
    got = torch.as_tensor(interpret(one.program, {key: value.double().numpy() for key, value in data.items()})["out"])
    eps = torch.finfo(getattr(torch, dtype)).eps
    torch.testing.assert_close(got.double(), made.reference(**data).double(), rtol=2 * eps, atol=0)
    assert not numbers_of(made.lower("sm_90a", **known).plan).tensor_cores


def test_sums_about_a_maximum_round_their_weights() -> None:
    """Σ p·(s − max s)·v moves by Σ p·v, and all is of one sign: it stays on tensor cores."""
    d = ra.Axis("d")
    v, Q, K = ra.tensors("v[n,e] Q[b,d] K[n,d]")
    s = ra.sum(Q * K, d)
    made = ra.fuse(ra.sum((s - ra.max(s, n)) * ra.softmax(s, n) * v, n), axes="b e")
    sizes = {"b": 128, "n": 256, "d": 64, "e": 64}
    assert numbers_of(made.lower("sm_90a", sizes, dict.fromkeys("vQK", "bfloat16")).plan).tensor_cores
    apart = ra.sum((s - ra.max(s, n)) * ra.softmax(s, n) * v, n)
    both = apart - (ra.logsumexp(s, n) - ra.max(s, n)) * ra.sum(ra.softmax(s, n) * v, n)
    put_together = ra.fuse(both, axes="b e")
    assert not numbers_of(put_together.lower("sm_90a", sizes, dict.fromkeys("vQK", "bfloat16")).plan).tensor_cores


@pytest.mark.parametrize("columns", [5, 33])
@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_a_norm_of_attention_over_nothing_is_zero_where_that_is_asked(columns: int, backend: str) -> None:
    """Written out over 5 columns, a stage of its own over 33: its condition is of all columns, max |Σ| = 0."""
    e = ra.Axis("e")
    attended = ra.sum(ra.softmax(ra.where(y > 0, x, -oo), n) * ra.Tensor("v")[n, e], n)
    rng = torch.Generator().manual_seed(0)
    data = {"x": torch.randn(3, 7, generator=rng), "y": torch.randn(3, 7, generator=rng)}
    data["y"][1], data["v"] = -1.0, torch.randn(7, columns, generator=rng)
    for made in (ra.norm(attended, e), ra.sum(attended**2, e)):
        form = ra.fuse(made, axes="b")
        wanted = form.reference(**data)
        got = torch.as_tensor(form(**data, backend=backend, empty="zero"))
        assert wanted.isnan().tolist() == [False, True, False]
        torch.testing.assert_close(got.double(), wanted.nan_to_num(0.0), rtol=1e-5, atol=0)


# ---- found by the fuzzer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_a_choice_of_0_that_is_no_mask_hides_nothing(backend: str) -> None:
    """NaN·0 is NaN; of a mask of 1 and 0 it is 0."""
    given = {"x": torch.tensor([[torch.nan, 1.0]]), "y": torch.tensor([[-1.0, 1.0]])}
    assert ra.fuse(ra.sum(x * ra.where(y > 0, 2, 0), n))(**given, backend=backend).isnan().all()
    assert ra.fuse(ra.sum(x * ra.where(y > 0, 1, 0), n))(**given, backend=backend).tolist() == [1.0]


def test_a_value_is_as_often_there_as_its_axis_is_long() -> None:
    m = ra.axis("m")
    u = ra.tensor("u[n,m]")
    given = {"u": np.arange(6.0).reshape(2, 3)}
    for expr, wanted in ((ra.sum(ra.sum(u, n, m), n), 30.0), (ra.sum(ra.max(u, n, m), m), 15.0)):
        total = ra.fuse(expr)
        assert float(total(**given, backend="numpy")) == wanted
        state = total.leaf(given, extents={"n": 2, "m": 3})
        assert float(total.finish(state)) == wanted


def test_an_output_may_hold_an_exponential_of_a_sum_of_elements_and_values() -> None:
    m = ra.axis("m")
    r, u, w = ra.tensors("r[b,n,m] u[n,m] w[b,n]")
    form = ra.fuse(ra.sum(exp(ra.sum(w * ra.sum(u, n, m), n)) + ra.sum(ra.sum(u * r, n, m), n), n))
    rng = np.random.default_rng(0)
    given = {"r": rng.normal(size=(2, 3, 4)), "u": rng.normal(size=(3, 4)), "w": rng.normal(size=(2, 3))}
    wanted = 3 * (np.exp(given["w"].sum(1) * given["u"].sum()) + 3 * np.einsum("nm,bnm->b", given["u"], given["r"]))
    np.testing.assert_allclose(form(**given, backend="numpy"), wanted)


def test_the_pivot_of_a_mask_has_the_axes_of_the_mask() -> None:
    c, lengths = ra.tensors("c[n] l[b]")
    form = ra.fuse(ra.sum(ra.where(n < lengths, exp(c), 0), n))
    given = {"c": np.array([1.0, 800.0, -3.0]), "l": np.array([1, 3])}
    parts = [form.leaf({**given, "c": given["c"][first:stop]}, start={n: first}) for first, stop in ((0, 1), (1, 3))]
    made = form.finish(form.merge(*parts))
    assert made[0] == pytest.approx(np.exp(1.0))
    assert np.isinf(made[1])


def test_what_a_condition_does_not_choose_is_not_subtracted() -> None:
    """Σ where(c, 1, v) as Σ [c] + v·Σ [¬c]: beside a v of 1e48 the elements that pass are counted."""
    form = ra.fuse(ra.sum(ra.where(y * ra.sum(1, n) > 0, 1, ra.sum(x**6, n)), n))
    given = {"x": np.full((1, 2), 1e8), "y": np.array([[1.0, 2.0]])}
    assert form(**given, backend="numpy").tolist() == [2.0]


@pytest.mark.parametrize("name", ["a mask within the same mask", "a product over a known total", "a line on a root"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_forms_that_long_fuzzing_could_not_derive(name: str, backend: str) -> None:
    best = ra.argmax(x, n) / 8
    expr = {
        "a mask within the same mask": ra.sum(ra.where(best > 0, x, ra.where(best > 0, y, best * x)), n),
        "a product over a known total": ra.sum(ra.prod(ra.max(x, n), n) * ra.where(n + 1 < n.extent, y, 0), n),
        "a line on a root": ra.sum((x * ra.sum(sqrt(x), n) + y - 1) ** 2, n),
    }[name]
    form = ra.fuse(expr, axes="b")
    data = {"x": DATA.double().abs(), "y": DATA.double().flip(1)}
    assert worst_error(form(**data, backend=backend), form.reference(**data)) <= 1e-6


def test_a_kernel_multiplies_by_the_power_of_a_value() -> None:
    form = ra.fuse({"far": (ra.prod(x / ra.mean(x, n), n), "b"), "ends": (ra.prod(x * ra.max(x, n), n), "b")})
    far = torch.linspace(0.9e-30, 1.1e-30, 300)  # whose product alone is 0
    ends = torch.ones(5, 300)
    ends[:, :2] = torch.tensor([[-2, -3], [0, -1], [torch.nan, 1], [torch.inf, 1], [-1, 1]])
    data = torch.cat([far[None], ends, -ends[4:]])
    made, wanted = form(x=data, backend="tilelang"), form.reference(x=data.double())
    torch.testing.assert_close(made.far.double(), wanted.far, rtol=1e-4, atol=0, equal_nan=True)
    torch.testing.assert_close(made.ends.double(), wanted.ends, rtol=1e-4, atol=0, equal_nan=True)


@pytest.mark.parametrize("seed", [3800523, pytest.param(3900637, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_a_form_whose_terms_are_many_is_derived(seed: int) -> None:
    """Written out, a value has a million terms, or a function that SymPy looks at for minutes."""
    drawn, tally = one_axis.case(seed), Executions()
    [data] = data_of(seed, 1)
    assert [*judged(drawn.outputs, ra.fuse(drawn.outputs), data, tally, ways=[*WAYS][:1])] == []
    assert tally.ran


@pytest.mark.parametrize("expr", [
    ra.affine(Rational(9, 10), x / 10, n)[1],
    ra.sum(ra.where(x > 0, Rational(9, 10), Rational(1, 7)), n),
    ra.sum(ra.where(x > Rational(1, 10), 1, Rational(1, 10)) * x, n) / 10,
], ids=str)  # fmt: skip
def test_constants_of_a_kernel_of_doubles_are_doubles(expr: Expr) -> None:
    """TileLang takes a literal that stands alone, as either branch of a choice, for a float32."""
    made, data = ra.fuse(expr, axes="b"), torch.linspace(-3, 4, 34, dtype=torch.float64).reshape(2, 17)
    got, wanted = made(x=data, backend="tilelang"), made.reference(x=data)
    assert float((got - wanted).abs().max()) < 1e-13


def test_a_branch_of_doubles_is_of_doubles_where_both_are_computed() -> None:
    """4·Σ (r⁻¹² − r⁻⁶) of pairs, and another sum of two powers."""
    i, j, d = ra.axes("i j d")
    a, c = ra.tensors("p[i,d] p[j,d]")
    s, points = ra.sum(a * c, d), torch.linspace(0.3, 1.2, 18, dtype=torch.float64).reshape(6, 3)
    for expr in (4 * ra.where(i < j, s**-6 - s**-3, 0), 2 * ra.where(s > Rational(3, 10), s**4 - s**2, 0)):
        made = ra.fuse(ra.sum(expr, i, j))
        got, wanted = made(p=points, backend="tilelang"), made.reference(p=points)
        assert float((got - wanted).abs()) < 1e-12 * float(wanted.abs())


@pytest.mark.parametrize(("index", "wanted"), [
    (lambda q, k: Abs(k - q), [15, 11, 9, 9, 11]), (lambda q, k: Min(Abs(k - q), 4), [14, 11, 9, 9, 11]),
    (lambda q, k: 1 + sign(k - q), [11, 9, 7, 5, 3]),
])  # fmt: skip
@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_absolute_values_and_signs_of_integers_are_indices(index: Any, wanted: list[int], backend: str) -> None:
    q, k = ra.axes("q k")
    made = ra.fuse(ra.sum(ra.Tensor("B")[index(q, k)] * ra.tensor("s[q,k]"), k), axes="q")
    assert made(B=np.arange(9.0), s=np.ones((5, 6)), backend=backend).tolist() == wanted


@pytest.mark.parametrize("expr", [ra.last(x, n), ra.sum_at_max(x, x, n), ra.affine(x, x, n)[1]], ids=str)
def test_the_operands_of_a_monoid_of_several_stand_in_arithmetic(expr: Expr) -> None:
    """One dtype for all tensors is theirs, and whole numbers are refused, as under a sum."""
    made = ra.fuse(expr, axes="b")
    assert "x[3, 17] float64" in str(made.lower("c", sizes={"b": 3, "n": 17}, dtypes="float64").program)
    with pytest.raises(InputError, match="stands in arithmetic"):
        made(x=torch.arange(6).reshape(2, 3))
