"""A product of 8-bit floats with scales, by PyTorch's own operation: what it is taken for, and that it is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Max

import redalg as ra
from benchmarks import training
from redalg.library import quantized_product
from redalg.runtime.bind.arrays import reference
from redalg.runtime.bind.inputs import bind
from redalg.runtime.lowering import space_for
from redalg.runtime.unfused.scaled import scaled_product
from redalg.runtime.unfused.unfused import admit_unfused, offer_unfused
from tests.cases.kernels import worst_error
from tests.sweeps import FIRST, draws

k, m, n, b = ra.axes("k m n b")
A, B, C, a, c, t, g = ra.tensors("A[m,k] B[n,k] C[b,k] a[m] c[n] t[m,n] g[b]")
s = ra.scalars("s")
E4, E5, F32 = "float8_e4m3fn", "float8_e5m2", "float32"
SIZES = {"m": 48, "n": 32, "k": 64, "b": 16}


def scaled(scales: Any, product: Any = A * B, axes: str = "m n", result: str = "bfloat16") -> ra.Fused:
    """A product with scales, rounded once."""
    return ra.fuse(ra.cast(ra.sum(product, k) * scales, result), axes=axes)


FORMS = {
    "a scale each": scaled(a * c),
    "turned": scaled(a * c / 3, axes="n m"),
    "computed scales": scaled(Max(a, 1e-3) / 448 * (1 + c) ** 2 * s),
    "the second pass": quantized_product(exact=True, result="bfloat16"),
}


def dtypes_of(form: ra.Fused, **others: str) -> dict[str, str]:
    """8 bits for matrices, float32 for scales."""
    eight = {name: E4 for name in form.form.cascade.inputs() if name in ("A", "B", "C", "W", "rounded_0")}
    return {**dict.fromkeys(form.form.cascade.inputs(), F32), **eight, **others}


def space(form: ra.Fused, card: str = "H200", sizes: dict[str, int] = SIZES, **others: str) -> Any:
    names = {str(axis) for axis in form.form.cascade.axes()}
    held = {name: size for name, size in sizes.items() if name in names}
    return space_for(form.form, card, held, dtypes_of(form, **others))


def drawn(form: ra.Fused, sizes: dict[str, int], seed: int = 0) -> dict[str, torch.Tensor]:
    """8-bit matrices and positive scales."""
    generator, made = torch.Generator().manual_seed(seed), {}
    for one in form.form.cascade.elements():
        drawn = torch.randn([sizes[str(axis)] for axis in one.indices], generator=generator)
        made[one.name] = drawn.abs() + 0.1 if len(one.indices) == 1 else drawn.to(torch.float8_e4m3fn)
    return made


@settings(max_examples=draws(10))
@given(st.tuples(st.integers(1, 70), st.integers(1, 5), st.integers(1, 5)), st.integers(0, 99))
@pytest.mark.parametrize("name", FORMS)
def test_it_is_the_product(name: str, extents: tuple[int, int, int], seed: int) -> None:
    """out = bfloat16((Σ A·B)·a·b)   →   torch._scaled_mm(A, Bᵀ, scale_a=a, scale_b=b), on PyTorch's CPU."""
    form, sizes = FORMS[name], dict(zip("mnk", (16 * one for one in extents), strict=True))
    tensors = drawn(form, sizes, seed)
    scalars = {str(one.name): 0.5 for one in form.form.cascade.scalars()}
    module: dict[str, Any] = {"torch": torch}
    exec(admit_unfused(form.form, space(form, sizes=sizes)).text, module)
    [got] = module["definition"](*tensors.values(), *map(torch.tensor, scalars.values()))
    wanted = reference(form.form, bind(form.form.cascade, {**tensors, **scalars}))["out"]
    assert got.dtype == torch.bfloat16
    assert worst_error(got.double(), wanted) <= 2**-7


REFUSED: dict[str, tuple[ra.Fused, dict[str, str], dict[str, int]]] = {
    "columns that are no multiple of 16": (FORMS["a scale each"], {}, {**SIZES, "n": 40}),
    "sums of no multiple of 16": (FORMS["a scale each"], {}, {**SIZES, "k": 24}),
    "two of e5m2": (FORMS["a scale each"], {"A": E5, "B": E5}, SIZES),
    "a wider matrix": (FORMS["a scale each"], {"A": "float16"}, SIZES),
    "narrower scales": (FORMS["a scale each"], {"a": "float16"}, SIZES),
    "float16 results": (scaled(a * c, result="float16"), {}, SIZES),
    "results that are not rounded": (ra.fuse(ra.sum(A * B, k) * a * c, axes="m n"), {}, SIZES),
    "no scale of rows": (scaled(c), {}, SIZES),
    "a scale of both": (scaled(t * a * c), {}, SIZES),
    "a sum of scales": (scaled(a + c), {}, SIZES),
    "a square": (ra.fuse(ra.cast(ra.sum(A * B, k) ** 2 * a * c, "bfloat16"), axes="m n"), {}, SIZES),
    "three axes": (scaled(a * c * g, axes="b m n"), {}, SIZES),
    "three factors": (scaled(a * c, A * B * ra.tensor("v[k]")), {"v": F32}, SIZES),
    "a mask": (scaled(a * c, ra.where(k > 3, A * B, 0)), {}, SIZES),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_have_no_such_operation(name: str) -> None:
    form, dtypes, sizes = REFUSED[name]
    one = space(form, sizes=sizes, **dtypes)
    assert scaled_product(form.form, one.problem, one.device) is None
    assert offer_unfused(form.form, one) is None


def test_one_of_e5m2_is_taken_and_a_card_without_8_bits_has_none() -> None:
    form = FORMS["a scale each"]
    assert offer_unfused(form.form, space(form, B=E5)) is not None
    one = space(form, "sm_86")
    assert offer_unfused(form.form, one) is None
    with pytest.raises(ra.PlanError, match="its tensors are of float32, float8_e4m3fn"):
        admit_unfused(form.form, one)


def test_it_is_listed_and_predicted_beside_the_kernels() -> None:
    form, sizes = FORMS["the second pass"], {"m": 4096, "n": 7168, "k": 2048}
    candidates = form.plans(sizes, {"x": "float16", "W": E4, "w": F32}, "H200")[:FIRST]
    [plain] = [one for one in candidates if one.plan.form == "unfused"]
    assert str(plain.plan).startswith("unfused form: 1 operations by PyTorch")
    assert plain.predicted_us < min(one.predicted_us for one in candidates if one.smem_bytes)


@pytest.mark.parametrize("sizes", [{"m": 4096, "n": 8192, "k": 3584}, {"m": 8192, "n": 4096, "k": 4096}])
@pytest.mark.parametrize("card", ["H100", "H200"])
def test_it_is_taken_unmeasured_where_no_kernel_promises_more(sizes: dict[str, int], card: str) -> None:
    form = FORMS["the second pass"]
    assert form.plan(sizes, {"x": "float16", "W": E4, "w": F32}, card).form == "unfused"


def test_a_kernel_is_taken_where_the_operation_costs_more() -> None:
    form, sizes = FORMS["computed scales"], {"m": 16, "n": 64, "k": 64}
    assert form.plan(sizes, dtypes_of(form), "H100").form != "unfused"


def test_the_model_follows_what_was_measured() -> None:
    """The second pass of a row that was tuned on an H200."""
    (content,) = training.read(training.TUNED, family="quant")
    form = FORMS["the second pass"]
    for line in content["rows"]:
        [measured] = [one["measured_us"] for one in line["trials"] if one.get("form") == "unfused"]
        plain = admit_unfused(form.form, space(form, sizes=line["sizes"]))
        assert plain.prediction.time_us == pytest.approx(measured, rel=0.16)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [{"m": 48, "n": 32, "k": 64}, {"m": 1000, "n": 768, "k": 512}])
def test_on_the_card_it_is_as_near_as_the_kernel(sizes: dict[str, int]) -> None:
    form = FORMS["the second pass"]
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(sizes["m"], sizes["k"], generator=generator, device="cuda").half()
    W = torch.randn(sizes["n"], sizes["k"], generator=generator, device="cuda").to(torch.float8_e4m3fn)
    w = torch.rand(sizes["n"], generator=generator, device="cuda") + 0.1
    plans = form.plans(sizes, {"x": "float16", "W": E4, "w": F32}, "H200")
    kernel = next(one.plan for one in plans if one.plan.form != "unfused")
    plain = next(one.plan for one in plans if one.plan.form == "unfused")
    wanted = form.reference(x=x, W=W, w=w)
    errors = [worst_error(form(x=x, W=W, w=w, plan=plan).double(), wanted) for plan in (kernel, plain)]
    assert max(errors) <= 2**-7
