"""Transforms of `torch.func`: of calls as of what they compute, in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, jacrev, vjp, vmap

import redalg as ra
from redalg.gradient.batched import lacks_batch, of_batch
from redalg.runtime.bind.inputs import is_recorded

b, n, m, batch = ra.axes("b n m batch")
x, w, y = ra.tensors("x[n] w[n] y[b,n]")
VARIANCE, SOFTMAX = ra.fuse(ra.var(x * w, n)), ra.fuse(ra.softmax(x * w, n), axes="n")
SEVERAL = ra.fuse({"s": (ra.sum(x * w, n), ""), "best": (ra.max(w, n), "")})
X, W = (torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) for shape in ((4, 7), (7,)))
WS = torch.randn(4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def variance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).var(correction=0)


def softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * w).softmax(0)


TRANSFORMS: dict[str, Callable[[Function, Function], Any]] = {
    "vmap": lambda f, _: vmap(f, (0, None))(X, W),
    "vmap of all": lambda f, _: vmap(f)(X, WS),
    "vmap of another dimension": lambda f, _: vmap(f, (1, 1))(X.T.contiguous(), WS.T.contiguous()),
    "vmap of vmap": lambda f, _: vmap(vmap(f, (0, None)), (None, 0))(X, WS),
    "gradients of samples": lambda f, _: vmap(grad(f, argnums=1), (0, None))(X, W),
    "gradient of a batch": lambda f, _: grad(lambda w: vmap(f, (0, None))(X, w).sum())(W),
    "second derivative": lambda f, _: jacrev(grad(f))(X[0], W),
    "vjp": lambda _, g: vjp(g, X[0], W)[1](WS[0]),
    "jacrev": lambda _, g: jacrev(g)(X[0], W),
    "jacrev twice": lambda _, g: jacrev(jacrev(g))(X[0], W),
    "vmap of jacrev": lambda _, g: vmap(jacrev(g), (0, None))(X, W),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_a_call_is_that_of_its_definition(name: str) -> None:
    found = TRANSFORMS[name](lambda x, w: VARIANCE(x=x, w=w), lambda x, w: SOFTMAX(x=x, w=w))
    torch.testing.assert_close(found, TRANSFORMS[name](variance, softmax))


def test_an_output_without_the_batch_is_repeated() -> None:
    s, best = vmap(lambda x: tuple(SEVERAL(x=x, w=W)))(X)
    torch.testing.assert_close(s, X @ W)
    torch.testing.assert_close(best, W.max().expand(4))
    assert lacks_batch(SEVERAL, ["x"])
    assert not lacks_batch(SEVERAL, ["w"])


def test_the_function_of_a_batch_is_derived_once_and_of_one_pass() -> None:
    form = ra.fuse(ra.sum(ra.softmax(y, n) * w, n), axes="b")
    made = of_batch(form, ["y"])
    assert made is of_batch(form, ("y",))
    assert len(made.passes) == 1
    assert [str(axis) for axis in made.cascade.outputs[0].axes] == ["batch", "b"]
    taken = ra.fuse(ra.sum(ra.tensor("z[batch,n]"), n), axes="batch")
    assert [str(axis) for axis in of_batch(taken, ["z"]).cascade.outputs[0].axes] == ["batch_1", "batch"]


def test_outputs_without_gradients_have_batches_too() -> None:
    form = ra.fuse({"place": (ra.argmax(x, n), ""), "some": (ra.any(ra.where(x > 1, 1, 0), n), "")})
    place, some = vmap(lambda x: tuple(form(x=x)))(X)
    torch.testing.assert_close(place, X.argmax(1))
    torch.testing.assert_close(some, (X > 1).any(1))


def test_the_private_question_has_its_answer() -> None:
    """`torch._C._functorch` is private: this says when PyTorch changes it."""
    asked = [is_recorded({})]

    def ask(x: torch.Tensor) -> torch.Tensor:
        asked.append(is_recorded({}))
        return x.sum()

    vmap(ask)(X)
    grad(ask)(X)
    assert [*asked, is_recorded({})] == [False, True, True, False]
