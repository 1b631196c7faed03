"""Input that is odd and must work: layouts, empty axes, mixed dtypes, awkward names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Rational

import redalg as ra

b, n, e, k, q = ra.axes("b n e k q")
x, w, v = ra.tensors("x[b,n] w[b,n] v[n,e]")
mean = ra.sum(x * w, n) / ra.sum(w, n)
fused = ra.fuse(mean)
T = torch.ones(3, 5)

ODD_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.T.contiguous().T,
    "strided": lambda t: torch.stack([t, -t], -1)[..., 0],
    "expanded": lambda t: t[:1].expand(3, 5),
    "offset": lambda t: torch.cat([t, t], 1)[:, 5:],
}
ODD_NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "negative strides": lambda a: a[::-1, ::-1],
    "transposed": np.asfortranarray,
    "broadcast": lambda a: np.broadcast_to(a[:1], (3, 5)),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ODD_TORCH)
def test_torch_layouts(name: str, backend: str) -> None:
    data = {"x": torch.arange(15.0).reshape(3, 5), "w": torch.arange(1.0, 16.0).reshape(3, 5)}
    odd: dict[str, Any] = {key: ODD_TORCH[name](one) for key, one in data.items()}
    got = fused(**odd, backend=backend)
    want = (odd["x"] * odd["w"]).double().sum(1) / odd["w"].double().sum(1)
    torch.testing.assert_close(got, want.float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ODD_NUMPY)
def test_numpy_layouts(name: str, backend: str) -> None:
    data = {"x": np.arange(15.0).reshape(3, 5), "w": np.arange(1.0, 16.0).reshape(3, 5)}
    odd: dict[str, Any] = {key: ODD_NUMPY[name](one) for key, one in data.items()}
    before = {key: one.copy() for key, one in odd.items()}
    got = fused(**odd, backend=backend)
    np.testing.assert_allclose(got, (odd["x"] * odd["w"]).sum(1) / odd["w"].sum(1), rtol=1e-14)
    for key, one in odd.items():
        np.testing.assert_array_equal(one, before[key])


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_numpy_scalars_are_arrays_without_axes(backend: str) -> None:
    form, data = ra.fuse(ra.sum(ra.tensor("x[n]") * ra.tensor("s[]"), n)), np.array([1.0, 2.0])
    for _ in range(2):  # the second call is prepared
        assert form(x=data, s=np.float64(3), backend=backend) == 9
    assert form.finish(form.leaf({"x": data, "s": np.float64(3)}), {"s": np.float64(3)}) == 9
    backward, made = form.vjp(), {"out": np.float64(9)}
    found = backward.from_saved(np.float64(2), made, {"x": data, "s": np.float64(3)}, {})
    np.testing.assert_array_equal([*found["x"], found["s"]], [6, 6, 6])


EMPTY: dict[str, tuple[Any, float]] = {
    "sum": (ra.sum(x, n), 0.0),
    "prod": (ra.prod(x, n), 1.0),
    "max": (ra.max(x, n), -np.inf),
    "min": (ra.min(x, n), np.inf),
    "mean": (ra.mean(x, n), np.nan),
    "variance": (ra.var(x, n), np.nan),
    "logsumexp": (ra.logsumexp(x, n), -np.inf),
    "weighted sum": (ra.sum(ra.softmax(x, n) * w, n), 0.0),
}


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_axis_gives_the_identity(name: str, backend: str) -> None:
    """Each reduction is its monoid's identity, and the output what the definition makes of them."""
    expr, want = EMPTY[name]
    form = ra.fuse(expr)
    tensors: dict[str, Any] = {key: np.zeros((2, 0), np.float32) for key in form.cascade.inputs()}
    np.testing.assert_array_equal(form(**tensors, backend=backend), np.full(2, want, np.float32))
    np.testing.assert_array_equal(form.reference(**tensors), np.full(2, want))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_an_empty_ratio_may_be_zero(backend: str) -> None:
    got = ra.fuse(ra.mean(x, n))(x=np.zeros((2, 0), np.float32), backend=backend, empty="zero")
    np.testing.assert_array_equal(got, np.zeros(2, np.float32))


def test_no_rows_give_no_rows() -> None:
    assert fused(x=np.zeros((0, 5)), w=np.zeros((0, 5))).shape == (0,)


@pytest.mark.parametrize(
    ("dtypes", "want"),
    [
        ((torch.float16, torch.float16), torch.float16),
        ((torch.bfloat16, torch.bfloat16), torch.bfloat16),
        ((torch.float16, torch.bfloat16), torch.float32),
        ((torch.float16, torch.float32), torch.float32),
        ((torch.float32, torch.float64), torch.float64),
    ],
)
def test_dtypes_promote_as_in_torch(dtypes: tuple[torch.dtype, torch.dtype], want: torch.dtype) -> None:
    first, second = dtypes
    assert fused(x=T.to(first), w=T.to(second)).dtype == want == torch.promote_types(first, second)


def test_option_like_names_do_not_clash() -> None:
    form = ra.fuse(ra.sum(ra.tensor("self[n]") * Rational(1, 2), n))
    assert form(self=np.ones(4)) == 2
