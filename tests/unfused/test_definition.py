"""The definition as PyTorch code: executed, it is what the reference interpreter gives, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sympy import exp, floor, log, tanh

import redalg as ra
from redalg.unfused.definition import EXPONENTIAL, definition
from tests.cases.kernels import CASES, Case, fused, outputs_of, problem, tensors_of, worst_error

b, n, j, t, e = ra.axes("b n j t e")
x, w, y, u = ra.tensors("x[b,n] w[b,n] y[n,e] u[n]")
scale, rate = ra.scalars("scale rate", positive=True)
BOUND = 1e-9
"""Two evaluations in float64 differ by 1e-16 times the condition, which for values at 1e8 ± 30 is (1e8 / 30)² ~ 1e13 in
raw moments, and 1e6 as written here (differences from a mean)."""


def evaluated(form: ra.Fused, tensors: dict[str, torch.Tensor], sizes: Any = None, **scalars: float) -> Any:
    """The emitted definition on tensors, as outputs by name."""
    options = problem(form, tensors, sizes)
    extents = {axis.name: axis.size for axis in form.cascade.axes() if axis.size is not None} | options["sizes"]
    text = definition("definition", form.cascade, extents, options["shapes"]).text
    module: dict[str, Any] = {"torch": torch}
    exec(f"{EXPONENTIAL}\n\n\n{text}", module)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        given = [tensors[name].double() if tensors[name].is_floating_point() else tensors[name].long()
                 for name in form.cascade.inputs()]  # fmt: skip
        given += [torch.tensor(scalars[one.name]) for one in form.cascade.scalars()]
        out = module["definition"](*given)
    finally:
        torch.set_default_dtype(before)
    return dict(zip((one.name for one in form.cascade.outputs), out, strict=True))


class Named:
    """Outputs by name, as `worst_error` asks for them."""

    def __init__(self, made: dict[str, torch.Tensor]) -> None:
        self.made = made

    def _asdict(self) -> dict[str, torch.Tensor]:
        return self.made


def far(form: ra.Fused, tensors: dict[str, torch.Tensor], sizes: Any = None, **scalars: float) -> float:
    wanted = form.reference(**tensors, sizes=sizes, **scalars)
    return worst_error(Named(evaluated(form, tensors, sizes, **scalars)), Named(outputs_of(wanted)))


def has_nan(case: Case) -> bool:
    """What a NaN in the data becomes is the reference's own convention."""
    return any(bool(one.isnan().any()) for one in tensors_of(case).values() if one.is_floating_point())


@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in CASES if not has_nan(one)])
def test_the_definition_in_torch_is_the_reference(case: Case) -> None:
    assert far(fused(case.form), tensors_of(case), dict(case.sizes)) <= BOUND


def odd() -> dict[str, Any]:
    """Expressions that no case holds."""
    p = ra.softmax(x, n)
    place = ra.axis("j", size=3)
    return {
        "entropy": -ra.sum(p * log(p), n),
        "indicator": ra.sum(x * ra.where(x > 0, 1, 0), n) / scale,
        "shift": ra.sum(ra.where(n > 0, ra.Tensor("x")[b, n - 1], 0) * x, n),
        "rounded": ra.sum(ra.cast(x, "float8_e4m3fn") * ra.cast(w * 40, "int8"), n),
        "half": ra.sum(ra.cast(x, "float16"), n),
        "stride": ra.sum(ra.Tensor("u")[floor(n / 2)] * x, n),
        "count": ra.sum(ra.where(ra.logical_or(x > 1, ra.logical_not(w > 0)), 1, 0), n),
        "mean of powers": ra.mean(abs(x) ** rate, n) ** (1 / rate),
        "bounded": ra.sum(tanh(x / scale) * scale, n) - ra.max(x, n) * ra.min(w, n),
        "largest of both": ra.sum(ra.where(x >= w, x, w), n),
        "argmin beside": ra.argmin(x, n),
        "at the largest": ra.sum_at_max(x, w, n),
        "recurrence": ra.affine(w, x, n)[1],
        "recurrence, scale": ra.affine(w, x, n)[0],
        "best": ra.topk(x * w, n, place)[0],
        "first": ra.first(x, n, where=w > 0),
        "last": ra.last(x, n, where=w > 5),
        "pairs": ra.sum(x * y, n),
        "lse": ra.reduce("logsumexp", x, axis=n),
        "constant": ra.sum(exp(scale) * u, n),
    }


@pytest.mark.parametrize("name", odd())
def test_every_construct_is_spelled(name: str) -> None:
    generator = torch.Generator().manual_seed(len(name))
    drawn = {"x": (4, 37), "w": (4, 37), "y": (37, 5), "u": (37,)}
    form = ra.fuse(odd()[name], axes={"best": "b j", "pairs": "b e", "constant": ""}.get(name, "b"))
    tensors = {key: torch.randn(drawn[key], generator=generator) for key in form.cascade.inputs()}
    scalars = {str(one.name): 0.75 for one in form.cascade.scalars()}
    assert far(form, tensors, **scalars) <= BOUND
