"""Forward mode of calls: transforms of `torch.func`, dual tensors, and derivatives of derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sympy import sqrt
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import redalg as ra
from tests.gradient.test_forward import derivative, directions
from tests.gradient.test_recorded import FORMS, by_position

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
ROW, GAIN = ra.tensors("r[n] g[n]")
CALLS: dict[str, tuple[ra.Fused, Callable[..., torch.Tensor]]] = {
    "softmax": (ra.fuse(ra.softmax(ROW * GAIN, n), axes="n"), lambda r, g: (r * g).softmax(0)),
    "variance": (ra.fuse(ra.var(ROW * GAIN, n)), lambda r, g: (r * g).var(correction=0)),
    "logsumexp": (ra.fuse(ra.logsumexp(ROW * GAIN, n)), lambda r, g: (r * g).logsumexp(0)),
    "maximum": (ra.fuse(ra.max(ROW * GAIN, n)), lambda r, g: (r * g).amax(0)),
    "norm": (ra.fuse(ROW * GAIN / sqrt(ra.sum(ROW**2, n)), axes="n"), lambda r, g: r * g / r.norm()),
}
R, G, T = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
RS = torch.randn(4, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def dual_tangent(f: Function) -> torch.Tensor | None:
    with forward_ad.dual_level():
        found: torch.Tensor | None = forward_ad.unpack_dual(f(forward_ad.make_dual(R, T), G)).tangent
        return found


def dual_tangent_without_gradients(f: Function) -> torch.Tensor | None:
    """A parameter that requires a gradient is not detached from its tangent."""
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(R.clone().requires_grad_(), T)
        found: torch.Tensor | None = forward_ad.unpack_dual(f(dual, G.clone().requires_grad_())).tangent
        return found


def dual_gradient(f: Function) -> torch.Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(R.clone().requires_grad_(), T)
        (found,) = torch.autograd.grad((f(dual, G) ** 2).sum(), dual)
        made: torch.Tensor = forward_ad.unpack_dual(found).tangent
        return made


TRANSFORMS: dict[str, Callable[[Function], Any]] = {
    "jvp": lambda f: jvp(f, (R, G), (T, RS[0])),
    "jvp by one": lambda f: jvp(lambda r: f(r, G), (R,), (T,)),
    "jacfwd": lambda f: jacfwd(f, (0, 1))(R, G),
    "hessian": lambda f: hessian(lambda r: f(r, G).square().sum())(R),
    "hessian by both": lambda f: hessian(f, (0, 1))(R, G),
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(f))(R, G),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(f))(R, G),
    "jvp of jvp": lambda f: jvp(lambda r: jvp(lambda r: f(r, G), (r,), (T,))[1], (R,), (G,)),
    "gradient of jvp": lambda f: grad(lambda r: jvp(lambda r: f(r, G), (r,), (T,))[1].sum())(R),
    "vmap of jvp": lambda f: vmap(lambda r, t: jvp(lambda r: f(r, G), (r,), (t,))[1])(RS, RS.flip(0)),
    "jvp of vmap": lambda f: jvp(vmap(f, (0, None)), (RS, G), (RS.flip(0), T)),
    "vmap of jacfwd": lambda f: vmap(jacfwd(f), (0, None))(RS, G),
    "vmap of hessian": lambda f: vmap(hessian(lambda r: f(r, G).sum()))(RS),
    "third derivative": lambda f: jacfwd(hessian(lambda r: f(r, G).sum()))(R),
    "dual": dual_tangent,
    "dual under no_grad": dual_tangent_without_gradients,
    "dual of a gradient": dual_gradient,
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", CALLS)
def test_a_transform_of_a_call_is_that_of_its_definition(name: str, kind: str) -> None:
    form, written = CALLS[kind]
    found = TRANSFORMS[name](lambda r, g: form(r=r, g=g))
    torch.testing.assert_close(found, TRANSFORMS[name](written), rtol=1e-11, atol=1e-11)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
def test_first_and_second_derivatives(name: str) -> None:
    call, values = by_position(FORMS[name])
    assert gradcheck(call, values, check_forward_ad=True)
    assert gradgradcheck(call, values, check_fwd_over_rev=True, check_rev_over_rev=False,
                         check_undefined_grad=False, fast_mode=True)  # fmt: skip


def test_outputs_of_which_some_have_no_tangent() -> None:
    form = ra.fuse({"mean": (ra.mean(x * y, n), "b"), "place": (ra.argmax(x, n), "b"), "best": (ra.max(y, n), "b")})
    data, ones = torch.randn(2, 3, 5, dtype=torch.float64), torch.ones(3, 5, dtype=torch.float64)
    with forward_ad.dual_level():
        made = form(x=forward_ad.make_dual(data[0], ones), y=data[1])
        found = [forward_ad.unpack_dual(one).tangent for one in made]
    torch.testing.assert_close(found[0], data[1].mean(1))
    assert found[1] is None
    assert not found[2].any()


def test_a_model_is_mapped_forward() -> None:
    """Curvature of a loss along a direction of the parameters, by fused layers within a module of PyTorch."""
    norm = ra.fuse(ra.layer_norm(x, n), axes="b n")

    class Model(torch.nn.Module):
        def __init__(self, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
            super().__init__()
            self.linear, self.call = torch.nn.Linear(5, 6, dtype=torch.float64), call

        def forward(self, data: torch.Tensor) -> torch.Tensor:
            return self.call(self.linear(data)).tanh().square().sum()

    torch.manual_seed(0)
    mine = Model(lambda x: norm(x=x))
    plain = Model(lambda x: torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-5))
    parameters = {name: one.detach() for name, one in mine.named_parameters()}
    along = directions(parameters)
    data = torch.randn(3, 5, dtype=torch.float64)

    def curvature(model: Model) -> Any:
        def loss(values: dict[str, torch.Tensor]) -> Any:
            return functional_call(model, values, (data,))

        return derivative(grad(loss), (parameters,), (along,))

    torch.testing.assert_close(curvature(mine), curvature(plain))


def test_no_tangent_is_dropped_silently() -> None:
    form = ra.fuse(ra.sum(x * ra.scalars("s"), n), axes="b")
    data, one = torch.ones(2, 3), torch.tensor(2.0)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(data, data)
        for call in (lambda: form.leaf({"x": dual, "s": 2.0}), lambda: form.reference(x=dual, s=2.0)):
            with pytest.raises(ra.InputError, match=r"tensor `x` has a tangent .* states and the reference do not"):
                call()
        with pytest.raises(ra.GradientError, match="derivatives by tensors alone, not by the run-time scalar `s`"):
            form(x=data, s=forward_ad.make_dual(one, one))
        assert forward_ad.unpack_dual(form(x=data, s=one)).tangent is None
    given = {"x": data, "s": one.clone().requires_grad_()}
    compiled = torch.compile(lambda x, s: form(x=x, s=s), backend="eager", fullgraph=True)
    calls: list[tuple[Any, type[Exception]]] = [
        (form, ra.GradientError), (lambda **each: form.leaf(each), ra.GradientError), (compiled, Exception),
    ]  # fmt: skip
    for call, error in calls:
        with pytest.raises(error, match=r'`ra.tensor\("s\[\]"\)`, or pass `s.detach\(\)`'):
            call(**given)
        with torch.no_grad():
            call(**given)
    with pytest.raises(ra.GradientError, match="no derivative of a reduction of this kind"):
        jvp(lambda x: ra.fuse(ra.reduce("xor", ra.where(ROW > 0, 1, 0), axis=n))(r=x), (R,), (T,))


def test_within_a_graph_forward_mode_is_refused() -> None:
    form = ra.fuse(ra.softmax(ROW, n), axes="n")
    compiled = torch.compile(lambda r: form(r=r), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(R), R.softmax(0))
    with pytest.raises(Exception, match="do not reach a call within"):
        torch.compile(lambda r: jvp(lambda r: form(r=r), (r,), (T,))[1], backend="eager", fullgraph=True)(R)
    with pytest.raises(Exception, match="do not reach a call within"), forward_ad.dual_level():
        compiled(forward_ad.make_dual(R, T))


def test_the_private_questions_have_their_answers() -> None:
    """`forward_ad._current_level` and `_set_fwd_grad_enabled` are private: this says when PyTorch changes them."""
    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0
        with forward_ad._set_fwd_grad_enabled(False):
            assert not torch._C._is_fwd_grad_enabled()
        assert torch._C._is_fwd_grad_enabled()
    assert derivative(lambda x: x.sum() * (forward_ad._current_level + 1), (R,), (torch.ones_like(R),)) == 7
