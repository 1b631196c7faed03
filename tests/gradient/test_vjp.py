"""Derived backwards of patterns from the literature, against PyTorch's differentiation of what was written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sympy import log, oo, sqrt

import redalg as ra
from redalg.definition import evaluate_definition
from tests.cases.corpus import Pattern
from tests.cases.literature import PATTERNS

b, n, k = ra.axes("b n k")
x, y = ra.tensors("x[b,n] y[b,n]")
EXACT = [one for one in PATTERNS if one.verdict == "Exact"]


def gradients_of_definition(
    pattern: Pattern, form: ra.Fused, data: dict[str, torch.Tensor], cotangents: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """By PyTorch, node by node of the expression as it was written."""
    leaves = {name: one.clone().requires_grad_() for name, one in data.items() if one.is_floating_point()}
    outputs = {name: (expr, out.axes) for (name, expr), out in zip(form.written, form.cascade.outputs, strict=True)}
    made = evaluate_definition(outputs, {**data, **leaves}, pattern.scalars, sizes_of(pattern, form))
    total = sum((made[name] * one).sum() for name, one in cotangents.items())
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {name: torch.zeros_like(leaves[name]) if one is None else one
            for name, one in zip(leaves, found, strict=True)}  # fmt: skip


def sizes_of(pattern: Pattern, form: ra.Fused) -> dict[str, int]:
    return {axis.name: pattern.extents()[axis.name] for axis in form.cascade.axes() if axis.size is None}


@pytest.mark.parametrize("pattern", EXACT, ids=lambda one: one.name)
def test_a_derived_backward_is_the_derivative(pattern: Pattern) -> None:
    form = pattern.fuse()
    backward = form.vjp()
    names = set(form.cascade.inputs())
    data = {name: torch.as_tensor(one) for name, one in pattern.tensors("float64").items() if name in names}
    outputs = form.reference(**data, **pattern.scalars, sizes=sizes_of(pattern, form))
    named = {"out": outputs} if form.single else outputs._asdict()
    generator = torch.Generator().manual_seed(0)
    cotangents = {name: torch.randn(one.shape, generator=generator, dtype=torch.float64)
                  for name, one in named.items() if one.is_floating_point()}  # fmt: skip
    found = backward(cotangents, sizes=sizes_of(pattern, form), **data, **pattern.scalars)
    wanted = gradients_of_definition(pattern, form, data, cotangents)
    for name, one in wanted.items():
        got = found.get(name, torch.zeros_like(one))
        torch.testing.assert_close(got, one, rtol=0, atol=1e-11 * float(one.abs().max()) + 1e-300, msg=name)


@pytest.mark.parametrize(
    ("cotangent", "found"),
    [(np.ones(shape), r"has shape .*, and the output has \(3,\)") for shape in ((1,), (4,), (3, 5))]
    + [(1.0, r"is a float, and the output is a ndarray of shape \(3,\)"), (torch.ones(3), "is a Tensor")],
)
def test_a_cotangent_is_like_its_output(cotangent: Any, found: str) -> None:
    """A stage that reduces over nothing took four numbers for three rows."""
    backward = ra.fuse(ra.sum(x**2, n), axes="b").vjp()
    with pytest.raises(ra.InputError, match=f"that of `out` {found}"):
        backward(cotangent, x=np.ones((3, 5)))


def test_attention_saves_rows_and_differentiates_no_maximum() -> None:
    d = ra.axes("d")
    queries, keys, values = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    form = ra.fuse(ra.sum(ra.softmax(ra.sum(queries * keys, d), k) * values, k), axes="b h q e")
    backward = form.vjp()
    assert set(backward.saved) == {"row_max_0", "row_sum_0"}
    assert [stage.name for stage in backward.stages] == ["grad_row_sum_0", "grad_Q", "grad_K", "grad_V"]
    assert all(len(stage.function.passes) == 1 for stage in backward.stages)
    assert "No output depends on it" in str(backward)
    assert list(form.vjp(wrt=["V"]).gradients) == ["V"]
    assert backward.forward.form.extrema == form.form.extrema  # the state of the forward does not grow
    sizes = {"b": 2, "h": 2, "q": 128, "k": 128, "d": 64, "e": 64}
    assert list(backward.source("c", sizes=sizes, dtypes="float32")) == ["grad_row_sum_0", "grad_Q", "grad_K", "grad_V"]
    assert list(backward.source(sizes=sizes, dtypes="float16")) == ["grad_row_sum_0, log_sum", "grad_Q",
                                                                    "grad_K, grad_V"]  # fmt: skip


def test_what_is_added_at_a_maximum_gets_the_gradient() -> None:
    form = ra.fuse(ra.sum_at_max(x, y**2, n), axes="b")
    data = {"x": np.array([[1.0, 3.0, 3.0]]), "y": np.array([[5.0, 7.0, 2.0]])}
    found = form.vjp()(np.full(1, 10.0), **data)
    np.testing.assert_array_equal(found["y"], [[0, 140, 40]])
    assert "x" not in found


def test_an_extremum_that_is_an_output_has_a_gradient() -> None:
    backward = ra.fuse((x - ra.min(x, n)) / (ra.max(x, n) - ra.min(x, n)), axes="b n").vjp()
    assert not backward.proofs
    ties = ra.fuse(ra.max(x, n), axes="b").vjp()(np.ones(1), x=np.array([[1.0, 3.0, 3.0]]))["x"]
    np.testing.assert_array_equal(ties, [[0, 0.5, 0.5]])


def test_what_a_mask_hides_stays_hidden() -> None:
    """The logarithm of a number that is masked is never taken: no NaN in any gradient, and 0 at its place."""
    form = ra.fuse(ra.sum(ra.where(x > 0, log(x) * y, 0), n), axes="b")
    found = form.vjp()(np.ones(1), x=np.array([[2.0, -1.0, 0.0]]), y=np.array([[3.0, 5.0, 7.0]]))
    np.testing.assert_allclose(found["x"], [[1.5, 0, 0]])
    np.testing.assert_allclose(found["y"], [[np.log(2), 0, 0]])


@pytest.mark.parametrize("mask", [x > 1, ra.tensor("z[k]") * x > 1], ids=str)
def test_what_masks_hide_of_all_terms_stays_hidden(mask: Any) -> None:
    """A factor of the rows is not read either, by the gradient that sums what they share."""
    form = ra.fuse(ra.sum(ra.where(mask, ra.tensor("z[k]") / x**2, 0), k), axes="b n")
    found = form.vjp(wrt=["x"])(np.ones((1, 3)), x=np.array([[2.0, 0.0, np.nan]]), z=np.array([2.0, 3.0]))
    np.testing.assert_allclose(found["x"], [[-5 / 4, 0, 0]])


def test_a_row_of_which_nothing_counts_has_gradients_of_zero() -> None:
    """PyTorch's are NaN there; the other rows are as ever."""
    weights = ra.tensor("w[b,n]")
    form = ra.fuse(ra.sum(ra.softmax(ra.where(weights > 0, x, -oo), n) * y, n), axes="b")
    generator = np.random.default_rng(0)
    data = {name: generator.standard_normal((3, 5)) for name in "xy"}
    data["w"] = np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1.0]])
    found = form.vjp()(np.ones(3), **data)
    for name in "xy":
        np.testing.assert_array_equal(found[name][1], 0)
    kept = torch.tensor(data["x"], requires_grad=True)
    scores = kept.masked_fill(torch.tensor(data["w"]) <= 0, -torch.inf)[[0, 2]]
    (scores.softmax(1) * torch.tensor(data["y"])[[0, 2]]).sum().backward()
    assert kept.grad is not None
    np.testing.assert_allclose(found["x"], kept.grad.nan_to_num().numpy(), atol=1e-15)


def test_norms_that_no_pass_streams_are_computed_again() -> None:
    """Cosine attention: the norms reduce over d, and the forward streams k."""
    d = ra.axes("d")
    queries, keys, values = ra.tensors("Q[b,d] K[k,d] V[k,e]")
    norms = sqrt(ra.sum(queries**2, d)) * sqrt(ra.sum(keys**2, d))
    form = ra.fuse(ra.sum(ra.softmax(ra.sum(queries * keys, d) / norms, k) * values, k), axes="b e")
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
            for name, shape in {"Q": (3, 4), "K": (6, 4), "V": (6, 2)}.items()}  # fmt: skip
    scores = torch.nn.functional.cosine_similarity(data["Q"][:, None], data["K"], dim=-1)
    wanted = torch.autograd.grad((scores.softmax(1) @ data["V"]).sum(), list(data.values()))
    found = torch.autograd.grad(form(**data).sum(), list(data.values()))
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, exact)


def test_a_gathered_tensor_gets_the_sum_of_its_places() -> None:
    h, q, d = ra.axes("h q d")
    shared = ra.Tensor("K")[b, h // 2, d]
    form = ra.fuse(ra.sum(ra.tensor("Q[b,h,d]") * shared, d), axes="b h")
    data = {"Q": np.random.default_rng(0).standard_normal((2, 4, 3)), "K": np.ones((2, 2, 3))}
    found = form.vjp()(np.ones((2, 4)), **data)
    np.testing.assert_allclose(found["K"], data["Q"].reshape(2, 2, 2, 3).sum(2))
    assert q not in form.cascade.axes()


def test_a_sum_over_places_takes_the_axes_that_are_no_places() -> None:
    """Of K[b, target[h], d] it is one over h: over b and d too it would have |b|·|d| times the terms."""
    q, d = ra.axes("q d")
    scores = ra.sum(ra.tensor("Q[b,h,q,d]") * ra.Tensor("K")[b, ra.tensor("target[h]"), d], d)
    *_, stage = ra.fuse(ra.sum(scores**2, q), axes="b h").vjp(["K"]).stages
    [part] = stage.parts
    assert [str(axis) for axis in part.expr.bound] == ["h"]
    repeated = ra.fuse(ra.sum(ra.Tensor("K")[n, n] * x, n), axes="b")
    data = {"x": torch.randn(2, 3, dtype=torch.float64), "K": torch.randn(3, 3, dtype=torch.float64)}
    found = repeated.vjp(["K"])(torch.ones(2, dtype=torch.float64), **data)["K"]
    torch.testing.assert_close(found, torch.diag(data["x"].sum(0)))


def test_cotangents_by_name_and_none() -> None:
    form = ra.fuse({"mean": (ra.mean(x, n), "b"), "var": (ra.var(x, n), "b")})
    data = {"x": np.array([[1.0, 2.0, 6.0]])}
    found = form.vjp()({"mean": np.ones(1)}, **data)["x"]
    np.testing.assert_allclose(found, np.full((1, 3), 1 / 3))
    with pytest.raises(ra.InputError, match="total is no output"):
        form.vjp()({"total": np.ones(1)}, **data)


def test_a_cotangent_that_is_left_out_is_zero_beside_an_infinite_output() -> None:
    """It was 0·lse, which is NaN in a row of which nothing counts."""
    form = ra.fuse({"mean": (ra.mean(y, n), "b"), "lse": (ra.logsumexp(ra.where(y > 0, x, -oo), n), "b")})
    data = {"x": np.ones((2, 2)), "y": np.array([[1.0, 1], [-1, -1]])}
    np.testing.assert_array_equal(form.vjp()({"mean": np.ones(2)}, **data)["y"], np.full((2, 2), 0.5))
    np.testing.assert_array_equal(form.vjp()({"mean": np.ones(2)}, **data)["x"], np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (ra.reduce("xor", ra.where(x > 0, 1, 0), axis=n), "no derivative of a reduction of this kind"),
        (ra.sum(x % 2, n), "a remainder jumps"),
    ],
    ids=["exclusive or", "remainder"],
)
def test_what_has_no_gradient_yet_is_refused_by_name(expr: Any, said: str) -> None:
    with pytest.raises(ra.GradientError, match=said):
        ra.fuse(expr).vjp()


def test_wrt_names_tensors() -> None:
    with pytest.raises(ra.InputError, match=r"wrt names z, which is no tensor .* The tensors are x, y"):
        ra.fuse(ra.sum(sqrt(x**2 + y**2), n), axes="b").vjp(wrt=["z"])


@pytest.mark.parametrize("power", [1, 2, -1])
def test_a_row_value_that_is_zero(power: int) -> None:
    """Σ x·r^p is 0 beside an r of 0 if p > 0, and its derivative by r is not 0/0."""
    n = ra.axes("n")
    x, y = ra.tensors("x[b,n] y[b,n]")
    form = ra.fuse(ra.sum(x * ra.sum(y, n) ** power, n), axes="b")
    data = {"x": torch.tensor([[1.0, 2.0, 4.0]]).double(), "y": torch.tensor([[1.0, -3.0, 2.0]]).double()}
    data["y"] += 0.0 if power > 0 else 1.0
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in data.items()}
    wanted = torch.autograd.grad((leaves["x"].sum(1) * leaves["y"].sum(1) ** power).sum(), list(leaves.values()))
    found = form.vjp()(torch.ones(1).double(), **data)
    for name, one in zip(data, wanted, strict=True):
        torch.testing.assert_close(found[name], one)
