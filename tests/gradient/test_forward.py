"""Forward mode, derived: tangents beside functorch's of the definition, by hand, in calls, and of derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Max, exp, floor, log, oo
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jacrev, jvp

import redalg as ra
from redalg.definition import evaluate_definition
from redalg.lower_tile.check.interpret import interpret
from tests.cases.corpus import Pattern
from tests.fuzz import one_axis, two_axes
from tests.gradient.test_drawn import drawn
from tests.gradient.test_recorded import FORMS, tensors
from tests.gradient.test_vjp import EXACT, sizes_of

b, n, k, d, e, q = ra.axes("b n k d e q")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
Tensors = dict[str, torch.Tensor]
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
"""PyTorch's own, of its first level of forward mode."""


def derivative(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """The tangent of a function's value, by functorch."""
    made: Any = jvp(function, primals, tangents)
    return made[1]


def tangents_of_definition(form: ra.Fused, data: Tensors, tangents: Tensors,
                           scalars: Mapping[str, float] | None = None,
                           sizes: Mapping[str, int] | None = None) -> Tensors:  # fmt: skip
    """By functorch, node by node of the expression as it was written."""
    outputs = {name: (expr, out.axes) for (name, expr), out in zip(form.written, form.cascade.outputs, strict=True)}

    def definition(leaves: Tensors) -> Tensors:
        return evaluate_definition(outputs, {**data, **leaves}, dict(scalars or {}), dict(sizes or {}))

    found = derivative(definition, ({name: data[name] for name in tangents},), (tangents,))
    return {name: one for name, one in found.items() if one.is_floating_point()}


def directions(data: Tensors) -> Tensors:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(one.shape, generator=generator, dtype=one.dtype)
            for name, one in data.items() if one.is_floating_point()}  # fmt: skip


def in_float64(data: Tensors) -> Tensors:
    return {name: one.double() for name, one in data.items()}


def only(form: ra.Fused, tangents: Tensors) -> Tensors:
    """The tangents that some output reads."""
    return {name: one for name, one in tangents.items() if name in form.jvp().names}


@pytest.mark.parametrize("pattern", EXACT, ids=lambda one: one.name)
def test_a_derived_tangent_is_the_derivative(pattern: Pattern) -> None:
    form = pattern.fuse()
    names = set(form.cascade.inputs())
    data = {name: torch.as_tensor(one) for name, one in pattern.tensors("float64").items() if name in names}
    tangents, sizes = directions(data), sizes_of(pattern, form)
    forward = form.jvp()
    assert [len(stage.function.passes) for stage in forward.stages] == [1]
    found = forward(only(form, tangents), sizes=sizes, **data, **pattern.scalars)
    for name, one in tangents_of_definition(form, data, tangents, pattern.scalars, sizes).items():
        got = found.get(name, torch.zeros_like(one))
        torch.testing.assert_close(got, one, rtol=0, atol=1e-12 * float(one.abs().max()) + 1e-300, msg=name)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("first", range(7_000_000, 7_000_060, 10))
@pytest.mark.parametrize("module", [one_axis, two_axes], ids=["one axis", "two axes"])
def test_drawn_cascades_have_their_tangents(module: ModuleType, first: int) -> None:
    assert sum(is_compared(module.case(seed).outputs, seed) for seed in range(first, first + 10)) > 1


def test_those_that_were_wrong() -> None:
    """An extremum of computed values; and a pass that reads no tensor, before one that does."""
    assert all(is_compared(one_axis.case(seed).outputs, seed) for seed in (7_000_098, 7_000_132, 7_000_185))


def is_compared(outputs: Mapping[str, Any], seed: int) -> bool:
    """Compare the tangents of a cascade; False if it is refused, or has no derivative."""
    case = drawn(outputs, seed, lambda form: form.jvp())
    if case is None or not case.derivative.names:
        return False
    form, forward, data, scalars, sizes, generator = case
    tangents = {name: torch.as_tensor(generator.standard_normal(tuple(one.shape))) for name, one in data.items()}
    found = forward(only(form, tangents), sizes=sizes, **data, **scalars)
    for name, want in tangents_of_definition(form, data, tangents, scalars, sizes).items():
        if want.isfinite().all():
            got = found.get(name, torch.zeros_like(want))
            bound = 1e-8 * float(want.abs().max()) + 1e-12
            torch.testing.assert_close(got, want, rtol=0, atol=bound, msg=f"{name} of seed {seed}")
    return True


# ---- the value -------------------------------------------------------------------------------------------------------


def test_outputs_and_tangents_are_one_pass_about_shifted_means() -> None:
    """Attention's tangent is a covariance of V and the scores' tangents under the weights: it is centred as one."""
    queries, keys, values = ra.tensors("Q[q,d] K[k,d] V[k,e]")
    form = ra.fuse(ra.sum(ra.softmax(ra.sum(queries * keys, d), k) * values, k), axes="q e")
    forward = form.jvp()
    [stage] = forward.stages
    assert len(stage.function.passes) == 1
    assert {str(one.base) for one in stage.fused.form.pivots} >= {"sum_d_1", "V[k, e]"}
    assert "No output depends on it" in forward.explain("pivots")
    assert "in one pass over k" in forward.explain("tangent_out")
    with pytest.raises(ra.InputError, match="There are tangents, pivots, stages, tangent_out"):
        forward.explain("saved")
    assert forward.names == {"K": "tangent_K", "Q": "tangent_Q", "V": "tangent_V"}
    assert list(form.jvp(wrt=["V"]).names) == ["V"]
    sizes = {"q": 128, "k": 128, "d": 64, "e": 64}
    assert "main" in forward.source(sizes=sizes, dtypes="float16")["tangent_out"]


def test_tangents_keep_their_digits_far_from_zero() -> None:
    """In float32 at an offset of 1e4, raw moments would lose all digits."""
    form = ra.fuse({"cov": (ra.mean((x - ra.mean(x, n)) * (y - ra.mean(y, n)), n), "b"), "var": (ra.var(x, n), "b")})
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(3, 500, generator=generator) + 1e4 for name in "xy"}
    tangents = {name: torch.randn(3, 500, generator=generator) + 1e4 for name in "xy"}
    found = form.jvp()(tangents, **data)
    wide = in_float64(data), in_float64(tangents)
    for name, one in tangents_of_definition(form, *wide).items():
        torch.testing.assert_close(found[name].double(), one, rtol=1e-4, atol=1e-5)


def test_a_spread_under_weights_that_underflow_has_a_tangent() -> None:
    """⟨x²⟩ − ⟨x⟩² under exp(−x): 0/0 unless the weights are taken about their largest, in every displacement."""
    weight = exp(-x)
    total = ra.sum(weight, n)
    form = ra.fuse(ra.sum(x**2 * weight, n) / total - (ra.sum(x * weight, n) / total) ** 2)
    near, tangents = np.random.default_rng(0).normal(size=(2, 40)), {"x": np.random.default_rng(1).normal(size=(2, 40))}
    wanted = form.jvp(wrt="x")(tangents, x=near)["out"]
    np.testing.assert_allclose(form.jvp(wrt="x")(tangents, x=near + 2000)["out"], wanted, rtol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "tilelang"])
def test_other_backends_run_the_stages(backend: str) -> None:
    form, data = FORMS["causal"], {name: one.detach().float() for name, one in tensors(FORMS["causal"]).items()}
    tangents = directions(data)
    [stage] = form.jvp().stages
    known = {**data, **{form.jvp().names[name]: one for name, one in tangents.items()}}
    (found,) = stage.fused(**known, backend=backend)
    wide = in_float64(data), in_float64(tangents)
    wanted = tangents_of_definition(form, *wide)["out"]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_arrays_of_numpy_and_tangents_that_are_left_out() -> None:
    form = ra.fuse(ra.sum(x * y, n), axes="b")
    data = {"x": np.array([[1.0, 2.0]]), "y": np.array([[3.0, np.inf]])}
    assert form.jvp()({"x": np.array([[1.0, 0.0]])}, x=data["x"], y=np.ones((1, 2)))["out"].tolist() == [1]
    assert form.jvp(wrt=["y"])(np.ones((1, 2)), **data)["out"].tolist() == [3]
    assert form.jvp()({"y": np.ones((1, 2))}, **{**data, "y": np.ones((1, 2))})["out"].tolist() == [3]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"z": np.ones((1, 2))}, "tangents: z is no tensor with a tangent. Those are x, y"),
        ({"x": np.ones(2)}, r"that of `x` has shape \(2,\), and the tensor has \(1, 2\)"),
        (np.ones((1, 2)), "the tensors with a tangent are x, y. Pass a dict"),
    ],
    ids=["name", "shape", "several"],
)
def test_tangents_are_checked(given: Any, said: str) -> None:
    form = ra.fuse(ra.sum(x * y, n), axes="b")
    with pytest.raises(ra.InputError, match=said):
        form.jvp()(given, x=np.ones((1, 2)), y=np.ones((1, 2)))


def test_tangents_take_no_name_of_the_users() -> None:
    own, scalar = ra.tensor("tangent_x[b,n]"), ra.scalars("tangent_tangent_x")
    form = ra.fuse({"x": (ra.sum(x * own * scalar, n), "b")})
    data = {"x": torch.ones(1, 3), "tangent_x": torch.full((1, 3), 2.0), "tangent_tangent_x": 5.0}
    found = form.jvp()({"x": torch.full((1, 3), 7.0), "tangent_x": torch.full((1, 3), 11.0)}, **data)
    assert found["x"].tolist() == [3 * 5 * (7 * 2 + 11)]


def test_what_has_no_tangent_is_refused_by_name() -> None:
    with pytest.raises(ra.GradientError, match="no derivative of a reduction of this kind"):
        ra.fuse(ra.reduce("xor", ra.where(x > 0, 1, 0), axis=n)).jvp()
    with pytest.raises(ra.InputError, match="jvp: wrt names z, which is no tensor"):
        ra.fuse(ra.sum(x, n), axes="b").jvp(wrt=["z"])


# ---- conventions -----------------------------------------------------------------------------------------------------


def tangent(expr: Any, axes: str, tangents: Mapping[str, Any], **data: Any) -> Any:
    made = ra.fuse(expr, axes=axes).jvp()({name: np.asarray(one, dtype=float) for name, one in tangents.items()},
                                          **{name: np.asarray(one) for name, one in data.items()})  # fmt: skip
    return made["out"].tolist() if "out" in made else None


def test_ties_share_their_tangents() -> None:
    both = {"x": [[1, 2, 8], [7, 1, 1]]}
    assert tangent(ra.max(x, b, n), "", both, x=[[1.0, 3, 3], [3, 1, 1]]) == pytest.approx(17 / 3)
    assert tangent(ra.min(x, n), "b", {"x": [[1, 2, 8]]}, x=[[3.0, 1, 1]]) == [5]
    assert tangent(ra.sum_at_max(x, y, n), "b", {"y": [[1, 2, 8]]}, x=[[1.0, 3, 3]], y=[[0.0, 0, 0]]) == [10]
    assert tangent(ra.max(x, n), "b", {"x": [[1, 2, 8]]}, x=[[1.0, 3, 3]]) == [5]
    assert tangent(ra.sum(Max(x, y), n), "b", {"x": [[2.0]], "y": [[4.0]]}, x=[[1.0]], y=[[1.0]]) == [3]


def test_what_a_mask_hides_has_no_tangent() -> None:
    hidden = ra.sum(ra.where(x > 0, log(x) * y, 0), n)
    assert tangent(hidden, "b", {"x": [[4.0, 1, 1]]}, x=[[2.0, -1, 0]], y=[[3.0, 5, 7]]) == [6]


def test_steps_have_no_tangent_and_absolute_values_none_at_zero() -> None:
    form = ra.fuse({"place": (ra.argmax(x, n), "b"), "step": (ra.sum(floor(x), n), "b"), "out": (ra.sum(x, n), "b")})
    assert list(form.jvp().tangents) == ["out"]
    assert tangent(ra.sum(abs(x), n), "b", {"x": [[1, 1, 1]]}, x=[[0.0, 2, -3]]) == [0]
    assert tangent(ra.sum(ra.cast(x, "float16"), n), "b", {"x": [[1.5, 2]]}, x=[[1.0001, 2]]) == [3.5]


@pytest.mark.parametrize("beside", [False, True])
def test_selected_elements_have_their_tangents(beside: bool) -> None:
    """Beside another reduction too, where the place of the list is renamed and keeps its size."""
    j = ra.axis("j", size=2)
    best = ra.topk(x, n, j)[0]
    outputs = (
        {"out": (ra.softmax(best, j), "b j"), "z": (ra.logsumexp(x, n), "b")} if beside else {"out": (best**2, "b j")}
    )
    form = ra.fuse(outputs)
    data = {"x": torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}
    tangents = directions(data)
    of_best = (lambda best: best.softmax(1)) if beside else torch.square
    wanted = derivative(lambda x: of_best(x.topk(2, 1).values), (data["x"],), (tangents["x"],))
    torch.testing.assert_close(form.jvp()(tangents, **data)["out"], wanted)


def test_an_index_reads_the_tangent_at_its_place() -> None:
    h, target = ra.axes("h"), ra.tensor("target[b]")
    picked = ra.fuse(ra.logsumexp(x, n) - ra.Tensor("x")[b, target], axes="b")
    shared = ra.fuse(ra.sum(ra.tensor("Q[h,d]") * ra.Tensor("K")[h // 2, d], d), axes="h")
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in {"x": (3, 5), "Q": (4, 2), "K": (2, 2)}.items()}  # fmt: skip
    tangents, at = directions(data), torch.tensor([4, 0, 4])
    wanted = derivative(lambda x: x.logsumexp(1) - x.gather(1, at[:, None])[:, 0], (data["x"],), (tangents["x"],))
    found = picked.jvp()({"x": tangents["x"]}, x=data["x"], target=at)["out"]
    torch.testing.assert_close(found, wanted)
    pair = {name: data[name] for name in "QK"}, {name: tangents[name] for name in "QK"}
    wanted = derivative(lambda pair: (pair["Q"] * pair["K"].repeat_interleave(2, 0)).sum(1), pair[:1], pair[1:])
    torch.testing.assert_close(shared.jvp()(pair[1], **pair[0])["out"], wanted)


def test_products_with_zeros_are_exact_once() -> None:
    data = torch.tensor([[2.0, 3, 4], [0, 3, 4], [0, 0, 4]], dtype=torch.float64)
    form = ra.fuse(ra.prod(x, n), axes="b")
    ones = torch.ones_like(data)
    assert form.jvp()(ones, x=data)["out"].tolist() == [26, 12, 0]
    found = derivative(lambda x: form(x=x), (data,), (ones,))
    assert found.tolist() == [26, 12, 0]
    with pytest.raises(ra.GradientError, match="has no second derivative"):
        jvp(lambda x: jvp(lambda x: form(x=x), (x,), (ones,))[1], (data,), (ones,))
    with pytest.raises(ra.GradientError, match="has no second derivative"):
        jacfwd(jacrev(lambda x: form(x=x)))(data)
    with pytest.raises(ra.GradientError, match="has no second derivative"):
        grad(lambda x: jvp(lambda x: form(x=x), (x,), (ones,))[1].sum())(data)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(data.clone().requires_grad_(), ones)
        made = form(x=dual).sum()
        with pytest.raises(ra.GradientError, match="has no second derivative"):
            torch.autograd.grad(made, dual)
    for once in (form.jvp().stages[0].fused, form.vjp().stages[-1].function):
        with pytest.raises(ra.GradientError, match="has no second derivative"):
            once.vjp()


EMPTY = {
    "softmax": (ra.softmax(ra.where(w > 0, x, -oo), n), "b n"),
    "logsumexp": (ra.logsumexp(ra.where(w > 0, x, -oo), n), "b"),
    "mean under weights": (ra.sum(ra.softmax(ra.where(w > 0, x, -oo), n) * y, n), "b"),
    "squared": (ra.sum(ra.softmax(ra.where(w > 0, x, -oo), n) * y, n) ** 2, "b"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_row_of_which_nothing_counts_has_tangents_of_zero(name: str) -> None:
    """PyTorch's are NaN there; the other rows are as ever."""
    form = ra.fuse(EMPTY[name][0], axes=EMPTY[name][1])
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(3, 5, generator=generator, dtype=torch.float64) for name in "xy"}
    data["w"] = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1.0]]).double()
    data = {name: one for name, one in data.items() if name in form.cascade.inputs()}
    tangents = {name: one for name, one in directions(data).items() if name != "w"}
    found = form.jvp()(tangents, **data)["out"]
    full = {name: one[[0, 2]] for name, one in data.items()}, {name: one[[0, 2]] for name, one in tangents.items()}
    assert not found[1].any()
    torch.testing.assert_close(found[[0, 2]], tangents_of_definition(form, *full)["out"])


def test_what_is_beside_an_empty_row_keeps_its_tangent() -> None:
    """Terms without it; and a sum over rows, of which one is empty."""
    share = ra.sum(ra.softmax(ra.where(w > 0, x, -oo), n) * y, n)
    data = {"x": torch.ones(2, 2), "y": torch.ones(2, 2), "w": torch.tensor([[0.0, 0], [1, 1]])}
    tangents = {"y": torch.full((2, 2), 3.0)}
    assert ra.fuse(share + ra.sum(y, n), axes="b").jvp()(tangents, **data)["out"].tolist() == [6, 9]
    assert ra.fuse(ra.sum(share, b)).jvp()(tangents, **data)["out"].tolist() == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_tangents_are_rounded_once(dtype: torch.dtype) -> None:
    form = FORMS["layer norm"]
    data = {name: one.detach() for name, one in tensors(form, dtype).items()}
    tangents = directions(data)
    wide = in_float64(data), in_float64(tangents)
    wanted = tangents_of_definition(form, *wide)["out"]
    for found in (form.jvp()(tangents, **data)["out"],
                  derivative(lambda data: form(**data), (data,), (tangents,))):  # fmt: skip
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_tangents_of_16_bits_have_kernels() -> None:
    """In the tile interpreter: a thread of several columns keeps the weights that they share, about no shifted mean."""
    queries, keys, values = ra.tensors("Q[q,d] K[k,d] V[k,e]")
    weights = ra.softmax(ra.where(k <= q, ra.sum(queries * keys, d) / 8, -oo), k)
    form = ra.fuse(ra.sum(weights * values, k), axes="q e")
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(48, 64, generator=generator).half() for name in "QKV"}
    forward, tangents = form.jvp().for_tensors(data), directions(data)
    [stage] = forward.stages
    known = {**data, **{forward.names[name]: one for name, one in tangents.items()}}
    sizes, dtypes = {"q": 48, "k": 48, "d": 64, "e": 64}, dict.fromkeys(known, "float16")
    assert "main" in forward.source("sm_90a", sizes=sizes, dtypes=dtypes)["tangent_out"]
    program = stage.function.lower("sm_90a", sizes=sizes, dtypes=dtypes).program
    made = interpret(program, {name: one.numpy() for name, one in known.items()})
    wanted = tangents_of_definition(form, in_float64(data), in_float64(tangents))["out"]
    found = torch.as_tensor(made["tangent_out"]).double()
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-3 * float(wanted.abs().max()))


def test_a_tangent_has_the_dtype_of_its_output() -> None:
    form = ra.fuse({"lse": (ra.logsumexp(x, n), "b"), "mean": (ra.mean(x, n), "b")})
    data, ones = torch.randn(3, 5).bfloat16(), torch.ones(3, 5).bfloat16()
    found = derivative(lambda x: tuple(form(x=x)), (data,), (ones,))
    assert [one.dtype for one in found] == [one.dtype for one in form(x=data)] == [torch.float32, torch.bfloat16]
