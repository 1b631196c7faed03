"""The gradients of tensors that several rows share: each element sums its own rows, and no others."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import floor, sin, sqrt

import redalg as ra
from redalg.errors import InputError
from redalg.expression.contents import elements_of, quotient_of, reductions_of
from redalg.gradient.places import WRITTEN

b, h, q, k, d = ra.axes("b h q k d")


def shared_sums(count: int) -> Any:
    """log Σ_k exp(Σ_d Q·K) of positions and heads, of which `count` share K."""
    scores = ra.sum(ra.tensor("Q[b,h,q,d]") * ra.Tensor("K")[b, floor(h / count), k, d], d)
    return ra.fuse(ra.logsumexp(scores, k), axes="b h q")


def defined(Q: torch.Tensor, K: torch.Tensor, count: int) -> torch.Tensor:
    """The same by PyTorch, of K repeated."""
    repeated = K.repeat_interleave(count, 1)[:, : Q.shape[1]]
    return torch.einsum("bhqd,bhkd->bhqk", Q, repeated).logsumexp(-1)


@given(st.integers(1, 20), st.integers(1, 24), st.integers(0, 2))
def test_heads_that_share_a_tensor_sum_their_gradients(count: int, heads: int, unread: int) -> None:
    """Heads that are no multiple of the group, and shared heads that no head reads, whose gradient is 0."""
    generator = torch.Generator().manual_seed(count)
    own = -(-heads // count) + (unread if count > 1 else 0)
    shapes = {"Q": (2, heads, 4, 3), "K": (2, own, 5, 3)}
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for name, shape in shapes.items()}  # fmt: skip
    cotangent = torch.randn(2, heads, 4, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad(shared_sums(count)(**data), [*data.values()], cotangent)
    expected = torch.autograd.grad(defined(**data, count=count), [*data.values()], cotangent)
    for own_gradient, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(own_gradient, gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [4, WRITTEN, WRITTEN + 1])
def test_no_head_of_another_group_is_read(count: int) -> None:
    """A masked sum over all heads would read each as often as there are shared ones."""
    *_, stage = shared_sums(count).vjp(["K"]).stages
    [part] = stage.parts
    read = [one for one in elements_of(part.expr) if one.name == "grad_K_part"]
    bound = [axis for one in reductions_of(part.expr) for axis in one.bound]
    if count <= WRITTEN:
        assert (len(read), bound) == (count, [])
    else:
        assert (len(read), [axis.size for axis in bound]) == (1, [count])


def test_what_several_rows_make_of_a_shared_tensor_is_a_stage_of_theirs() -> None:
    """In every dtype: products in a sum over the rows would be made again for each shared element."""
    for dtypes in ({}, {"Q": "bfloat16", "K": "bfloat16"}):
        backward = shared_sums(4).vjp(["K"])
        stages = (backward.again(dtypes) if dtypes else backward).stages
        assert [part.name for stage in stages for part in stage.parts][-2:] == ["grad_K_part", "grad_K"]


def test_what_a_mask_hides_stays_hidden_in_second_derivatives() -> None:
    """Debye's sum over pairs of sin(k·r)/(k·r): of a point and itself r is 0, and no root of it is divided by."""
    i, j, a = ra.axes("i j a")
    points, wave = ra.Tensor("x"), ra.tensor("k[q]")
    apart = sqrt(ra.sum((points[i, a] - points[j, a]) ** 2, a))
    form = ra.fuse(ra.sum(ra.where(ra.eq(apart, 0), 1, sin(wave * apart) / (wave * apart)), i, j), axes="q")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    waves = torch.tensor([0.5, 2.0], dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda x: form(x=x, k=waves), x)

    def plain(x: torch.Tensor) -> torch.Tensor:
        same = torch.eye(4, dtype=torch.bool)
        phase = waves[:, None, None] * torch.where(same, 1, ((x[:, None] - x) ** 2).sum(2)).sqrt()
        return torch.where(same, 1, phase.sin() / phase).sum((1, 2))

    torch.testing.assert_close(second(lambda x: form(x=x, k=waves), x), second(plain, x))


def second(function: Any, x: torch.Tensor) -> torch.Tensor:
    """A derivative of the gradient of a sum, in a direction."""
    [first] = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad((first * torch.arange(x.numel()).reshape(x.shape)).sum(), x)[0]


def test_two_indices_of_one_axis_are_both_met() -> None:
    """X[h // 2, h // 3] is read by the heads of a pair that are in a triple too."""
    form = ra.fuse(ra.sum(ra.tensor("x[h,d]") * ra.Tensor("K")[floor(h / 2), floor(h / 3)], d), axes="h")
    x, K = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((7, 2), (4, 3)))
    places = torch.arange(7)
    [found] = torch.autograd.grad(form(x=x, K=K).sum(), [K])
    [expected] = torch.autograd.grad((x.sum(1) * K[places // 2, places // 3]).sum(), [K])
    torch.testing.assert_close(found, expected)


def test_sums_over_the_same_heads_keep_their_own_places() -> None:
    """Beside the heads of a group, a sum over all heads reads the tensor where it did."""
    x, K = ra.tensor("x[b,h]"), ra.Tensor("K")[b, floor(h / 3)]
    form = ra.fuse(ra.sum(x * K, h) * ra.logsumexp(K, h) + ra.sum(ra.softmax(K * x, h) * K, h), axes="b")
    data = {name: torch.randn(shape, dtype=torch.float64, requires_grad=True)
            for name, shape in {"x": (2, 8), "K": (2, 3)}.items()}  # fmt: skip
    found = torch.autograd.grad(form(**data).sum(), [*data.values()])
    repeated = data["K"].repeat_interleave(3, 1)[:, :8]
    weights = torch.softmax(repeated * data["x"], 1)
    expected = (repeated * data["x"]).sum(1) * repeated.logsumexp(1) + (weights * repeated).sum(1)
    for own, gradient in zip(found, torch.autograd.grad(expected.sum(), [*data.values()]), strict=True):
        torch.testing.assert_close(own, gradient)


def test_only_quotients_by_a_number_are_shared_indices() -> None:
    assert quotient_of(floor(h / 3), h) == 3
    assert quotient_of(h, h) == 1
    assert quotient_of(floor(h * k / 3), h) == 1
    assert quotient_of(floor(h / k), h) == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sources_find_the_sizes_of_dimensions_without_an_axis(dtype: str) -> None:
    """By `shapes`, and by the axis that another element of the tensor has there."""
    label = ra.tensor("label[b]")
    loss = ra.fuse(ra.logsumexp(ra.tensor("x[b,k]"), k) - ra.Tensor("x")[b, label], axes="b")
    sizes, dtypes = {"b": 64, "k": 1000}, {"x": dtype, "label": "int64"}
    assert list(loss.vjp().source("H200", sizes, dtypes)) == ["grad_x"]
    heads, sizes = shared_sums(4), {"b": 1, "h": 8, "q": 64, "k": 64, "d": 32}
    for derived, name in ((heads.vjp(), "grad_K"), (heads.jvp(), "tangent_out")):
        assert name in derived.source("H200", sizes, dtype, shapes={"K": (1, 2, 64, 32)})
        with pytest.raises(InputError, match=r"does not tell its extent|missing"):
            derived.source("H200", sizes, dtype)
