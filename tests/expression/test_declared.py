"""Tensors that are declared positive or nonnegative: what follows, that the declaration travels, what breaks it."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, IndexedBase, Rational, Sum, Symbol, exp, log, sqrt

import redalg as ra
from redalg.expression import UNDEFINED
from tests.cases.refusals import Case, each

b, n, m = ra.axes("b n m")
plain, positive = ra.tensor("x[b,n]"), ra.tensor("x[b,n]", positive=True)
nonnegative = ra.tensor("x[b,n]", nonnegative=True)
DATA = np.abs(np.random.default_rng(0).normal(size=(2, 6))) + 0.1
logs = ra.fuse(ra.sum(log(positive), n))

FORMS: dict[str, Callable[[Any], Any]] = {
    "Theil's index": lambda x: ra.sum(x * log(x / ra.mean(x, n)), n) / ra.sum(x, n),
    "roots of shares": lambda x: ra.sum(sqrt(x / ra.sum(x, n)), n),
    "logarithms of products": lambda x: ra.sum(log(x * ra.sum(x, n)), n),
    "powers": lambda x: ra.sum((x / ra.max(x, n)) ** Rational(3, 2), n),
    "geometric over arithmetic mean": lambda x: exp(ra.mean(log(x), n)) / ra.mean(x, n),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("x", [positive, nonnegative], ids=["positive", "nonnegative"])
def test_nothing_is_unreal(name: str, x: Any) -> None:
    fused, general = ra.fuse(FORMS[name](x)), ra.fuse(FORMS[name](plain))
    assert not any(one.term.has(UNDEFINED, Abs) for one in fused.form.accumulators)
    assert len(fused.form.slots) <= len(general.form.slots)
    for backend in ("numpy", "torch"):
        np.testing.assert_allclose(fused(x=DATA, backend=backend), general.reference(x=DATA), rtol=1e-13)
    parts = [fused.leaf({"x": DATA[:, i:k]}, start={n: i}) for i, k in ((0, 2), (2, 6))]
    np.testing.assert_allclose(fused.finish(fused.merge(*parts)), general.reference(x=DATA), rtol=1e-12)


def test_a_kernel_of_a_declared_tensor() -> None:
    fused = ra.fuse(FORMS["Theil's index"](positive))
    got = fused(x=torch.from_numpy(DATA), backend="tilelang").numpy()
    np.testing.assert_allclose(got, fused.reference(x=DATA), rtol=1e-12)


def test_a_declared_tensor_is_another_one() -> None:
    assert len({plain, positive, nonnegative}) == 3
    assert positive == ra.tensor("x[b,n]", positive=True) == ra.Tensor("x", positive=True)[b, n]
    assert ra.tensors("x[b,n] y[n]", nonnegative=True)[0] == nonnegative
    assert (plain.is_extended_positive, positive.is_extended_positive, nonnegative.is_extended_positive) == \
        (None, True, None)  # fmt: skip
    assert positive.is_finite is None  # +oo is positive


@pytest.mark.parametrize("travel", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
def test_the_declaration_travels(travel: Callable[[Any], Any]) -> None:
    for one in (plain, positive, nonnegative):
        again = travel(one)
        assert again == one
        assert again.label.assumption == one.label.assumption
        assert again.is_extended_nonnegative == one.is_extended_nonnegative
    assert positive.xreplace({n: m}).is_extended_positive
    assert positive.subs(n, m).is_extended_positive
    assert travel(logs)(x=DATA).tolist() == logs(x=DATA).tolist()


def test_what_sympy_declares_is_taken_over() -> None:
    i, last = Symbol("i", integer=True), Symbol("last", integer=True)
    fused = ra.fuse(Sum(log(IndexedBase("A", positive=True)[i]), (i, 0, last - 1)))
    assert [one.label.assumption for one in fused.cascade.elements()] == ["positive"]
    np.testing.assert_allclose(fused(A=DATA[0]), np.log(DATA[0]).sum(), rtol=1e-14)


def test_nan_and_infinity_are_let_through() -> None:
    assert np.isnan(logs(x=np.array([[1.0, np.nan]]), check=True)).all()
    assert logs(x=np.array([[1.0, np.inf]]), check=True) == np.inf


REFUSED: dict[str, Case] = {
    "a zero": Case(
        lambda: logs(x=np.array([[1.0, 0.0, 2.0], [-1.0, 1.0, 1.0]]), check=True),
        ra.InputError,
        "tensor `x` was declared positive, and 2 of its elements are not, such as 0.0. The form was derived on that "
        "assumption: pass such numbers, or declare the tensor without it.",
    ),
    "less than zero": Case(
        lambda: ra.fuse(ra.sum(sqrt(nonnegative), n))(x=torch.tensor([[0.0, -0.5]]), check=True),
        ra.InputError,
        "tensor `x` was declared nonnegative, and 1 of its elements are not, such as -0.5. The form was derived on "
        "that assumption: pass such numbers, or declare the tensor without it.",
    ),
    "two declarations": Case(
        lambda: ra.fuse(ra.sum(positive * plain, n)),
        ra.ExpressionError,
        "tensor `x` is declared of any sign and positive. Declare it once, and use that.",
    ),
}


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()
