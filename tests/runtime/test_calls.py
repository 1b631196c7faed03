"""Calls of a kind met before: no check is lost, and nothing is bound, planned or compiled again."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sympy import exp, sin

import redalg as ra
from redalg.runtime.call import dispatch, kernels, prepared
from tests.cases.kernels import CASES, fused, tensors_of, worst_error

n, j = ra.axes("n j")
x, I = ra.tensors("x[b,n] I[j]")
each_backend = pytest.mark.parametrize("backend", ["tilelang", "torch", "numpy"])


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@each_backend
def test_a_known_kind_is_neither_bound_nor_compiled_again(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, case = fused("rows"), rows(3, 7)
    other = rows(3, 7) * 5 + 1
    form(x=case, backend=backend)
    wanted = form.reference(x=other)
    for module, name in ((dispatch, "bind"), (kernels, "lowering_for"), (kernels, "kernel_for")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("asked again"))
    assert worst_error(form(x=other, backend=backend), wanted) <= 2e-6


@each_backend
def test_what_a_later_call_gets_wrong_is_refused(backend: str) -> None:
    form, case = fused("logsumexp"), rows(3, 7)
    form(x=case, backend=backend)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"x": case.to(torch.int64)}, "stands in arithmetic"),
        ({"x": case.to_sparse()}, "layout"),
        ({"x": case[0]}, "dimensions"),
        ({"x": case, "y": case}, "unknown: y"),
        ({}, "missing: x"),
        ({"x": case, "empty": "none"}, "empty="),
        ({"x": case, "empty": ["nan"]}, "empty="),
        ({"x": case, "sizes": {"n": 8}}, "several sizes"),
        ({"x": case, "sizes": {"n": True}}, "non-negative int"),
    ]
    for given, said in wrong:
        with pytest.raises(ra.InputError, match=said):
            form(**given, backend=backend)


@each_backend
def test_scalars_are_checked_at_every_call(backend: str) -> None:
    scale = ra.scalars("scale", positive=True)
    form = ra.fuse(ra.sum(scale * x, n))
    data = rows(2, 5)
    for value in (2.0, 3, np.float32(0.5), torch.tensor(4.0)):
        out = form(x=data, scale=value, backend=backend)
        assert worst_error(out, float(value) * data.double().sum(1)) <= 2e-6
    for value in (-1.0, -3, np.float32(-0.5), torch.tensor(-4.0)):
        with pytest.raises(ra.InputError, match="declared positive"):
            form(x=data, scale=value, backend=backend)
    with pytest.raises(ra.InputError, match="must be a number"):
        form(x=data, scale=True, backend=backend)


@each_backend
def test_gathers_are_checked_at_every_call(backend: str) -> None:
    form = ra.fuse(ra.sum(ra.Tensor("v")[ra.Tensor("I")[j]], j))
    values, places = rows(8), torch.tensor([1, 7, 0])
    assert float(form(v=values, I=places, backend=backend)) == pytest.approx(float(values[places].sum()), rel=1e-6)
    with pytest.raises(ra.InputError, match="range"):
        form(v=values, I=places + 1, backend=backend)


@pytest.mark.parametrize("layout", ["plain", "not aligned", "transposed", "every other", "expanded", "negated"])
def test_layouts_of_one_shape(layout: str) -> None:
    """One after the other, so that each meets what was prepared for those before."""
    form = fused("logsumexp")
    for other in ("plain", layout):
        base = rows(9, 14)
        laid = {
            "plain": lambda a: a[:6, :7].contiguous(),
            "not aligned": lambda a: a.flatten()[1:43].view(6, 7),
            "transposed": lambda a: a[:7, :6].T,
            "every other": lambda a: a[:6, ::2],
            "expanded": lambda a: a[:1, :7].expand(6, 7),
            "negated": lambda a: torch.complex(a, a).conj().imag[:6, :7],
        }[other](base)
        assert worst_error(form(x=laid, backend="tilelang"), laid.double().logsumexp(1)) <= 2e-6


def test_numpy_in_every_layout() -> None:
    form, base = fused("logsumexp"), rows(9, 14).numpy()
    frozen = base[:6, :7].copy()
    frozen.flags.writeable = False
    for laid in (base[:6, :7], base[:6, ::2], base[:6, ::-1][:, :7], base[:6, :7].astype(">f4"), frozen):
        for _ in range(2):
            out = form(x=laid, backend="tilelang")
            assert isinstance(out, np.ndarray)
            wanted = torch.from_numpy(laid.astype("float64")).logsumexp(1)
            assert worst_error(torch.from_numpy(out), wanted) <= 2e-6


def test_two_passes_are_prepared_together() -> None:
    scale = ra.let("scale", ra.max(ra.Tensor("y")[ra.axes("b"), n], n))
    form = ra.fuse(ra.sum(ra.cast(ra.Tensor("y")[ra.axes("b"), n] / scale * 100, "int8"), n), axes="b", exact=True)
    assert len(form.passes) == 2
    for seed in (1, 2, 2):
        data = torch.rand(4, 33, generator=torch.Generator().manual_seed(seed)) + 0.5
        assert worst_error(form(y=data), form.reference(y=data)) <= 1e-5


def test_a_called_form_pickles() -> None:
    form = fused("rows")
    form(x=rows(2, 3))
    again = pickle.loads(pickle.dumps(form))
    assert torch.equal(again(x=rows(2, 3)).lse, form(x=rows(2, 3)).lse)


def test_kinds_are_forgotten_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "KINDS", 3)
    monkeypatch.setattr(prepared, "_PREPARED", {})
    form = ra.fuse(ra.sum(exp(x), n))
    for length in (1, 2, 3, 4):
        form(x=rows(1, length))
    assert len(prepared._PREPARED) == 1


def test_a_prepared_call_keeps_no_tensor() -> None:
    import gc
    import weakref

    form, case = fused("logsumexp"), rows(5, 11)
    form(x=case, backend="tilelang")
    form(x=case, backend="torch")
    seen = weakref.ref(case)
    del case
    gc.collect()
    assert seen() is None


def test_every_case_again() -> None:
    """What is prepared gives what the first call gave."""
    for case in CASES[:8]:
        tensors, form = tensors_of(case), fused(case.form)
        first, second = (form(**tensors, backend="torch", empty=case.empty) for _ in range(2))
        assert worst_error(first, second, case.empty) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("backend", [None, "torch", "tilelang"])
def test_a_pass_that_reads_no_tensor_lies_beside_those_that_do(backend: str | None, dtype: torch.dtype) -> None:
    """In the library of the call's tensors, and in the dtype of their arithmetic."""
    form = ra.fuse(ra.sum(abs(x - ra.mean(sin(n), n)), n), axes="b", passes=2)
    data = rows(3, 7).to(dtype)
    assert not form.passes.earlier[0].cascade.inputs()
    wanted = (data.double() - torch.arange(7).double().sin().mean()).abs().sum(1)
    for _ in range(2):
        found = form(x=data, backend=backend, sizes={"n": 7})
        torch.testing.assert_close(found.double(), wanted, rtol=8 * torch.finfo(dtype).eps, atol=0)
