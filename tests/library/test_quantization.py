"""Products of 8-bit floats through every backend: against the definition, within what the rounding itself allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.decompose.separate.rounding import half_step, roundoff
from redalg.library import quantized_product
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Contract, nested_statements
from redalg.runtime.call.sizes import lower
from redalg.runtime.lowered import Lowered
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import worst_error

E4M3 = torch.float8_e4m3fn
ONLINE, TWO_PASSES, POWER = quantized_product(), quantized_product(exact=True), quantized_product(power_of_two=True)
EXACT = {"two passes": TWO_PASSES, "power of two": POWER}
m, n, k, b = ra.axes("m n k b")


def drawn(rows: int, columns: int, length: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """x whose largest magnitude is a power of 2 times 7 in every row, so that every scale is a power of 2 (a tie is
    then a tie in any arithmetic); 8-bit weights, and their scales."""
    generator = torch.Generator().manual_seed(rows + columns + length)
    x = torch.randn(rows, length, generator=generator)
    x = (x / x.abs().amax(1, keepdim=True) * 6.5).to(dtype)
    x[:, length // 2] = 7.0
    x *= 2.0 ** torch.randint(-6, 6, (rows, 1), generator=generator)
    W = torch.randn(columns, length, generator=generator) * 50
    return {"x": x, "W": W.to(E4M3), "w": torch.rand(columns, generator=generator) + 0.1}


def known(form: ra.Fused, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Sizes and dtypes for `lower`."""
    rows, length = tensors["x"].shape
    dtypes = {name: str(one.dtype).removeprefix("torch.") for name, one in tensors.items()}
    return {"sizes": {"m": rows, "n": tensors["W"].shape[0], "k": length}, "dtypes": dtypes}


def operands(lowered: Lowered) -> set[str]:
    """The dtypes in which a program multiplies."""
    return {
        next(buffer.dtype for buffer in kernel.buffers if buffer.name == one.a)
        for kernel in lowered.program.kernels
        for one in nested_statements(kernel.body)
        if isinstance(one, Contract)
    }


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(70, 150, 200), (1, 1, 1), (33, 16, 129)])
@pytest.mark.parametrize("backend", ["torch", "tilelang"])
def test_a_scale_that_is_a_power_of_two_is_exact(backend: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows, columns, length = shape
    tensors = drawn(rows, columns, length, dtype)
    out = POWER(**tensors, backend=backend)
    assert worst_error(out, POWER.reference(**tensors)) <= 2e-6


@pytest.mark.parametrize("shape", [(70, 150, 200), (1, 1, 1)])
@pytest.mark.parametrize("backend", ["torch", "tilelang"])
def test_two_passes_are_exact(backend: str, shape: tuple[int, ...]) -> None:
    rows, columns, length = shape
    tensors = drawn(rows, columns, length)
    assert worst_error(TWO_PASSES(**tensors, backend=backend), TWO_PASSES.reference(**tensors)) <= 2e-6


def test_two_passes_round_once() -> None:
    """A row of x is rounded for all columns together: the second pass multiplies what lies in memory."""
    assert len(TWO_PASSES.passes) == 2
    assert [one.name for one in TWO_PASSES.passes.intermediates] == ["of_amax", "rounded_0"]
    made = TWO_PASSES.form.accumulators[0].factors
    assert sorted(map(str, made)) == ["W[n, k]", "rounded_0[m, k]"]


@pytest.mark.parametrize("backend", ["torch", "tilelang"])
def test_one_pass_is_within_its_bound(backend: str) -> None:
    """Whatever the running scales were, an element is off by 2u|q| + 2η in units of its scale (`running_rounding`)."""
    tensors = drawn(40, 72, 300, torch.float16)
    tensors["x"] = tensors["x"].sort(1).values
    x, W, w = (tensors[name].double() for name in ("x", "W", "w"))
    scale = x.abs().amax(1, keepdim=True) / 448
    element = 2 * float(roundoff("float8_e4m3fn")) * (x / scale).abs() + 2 * float(half_step("float8_e4m3fn"))
    bound = (element @ W.abs().T) * scale * w
    wanted = ONLINE.reference(**tensors)
    off = (ONLINE(**tensors, backend=backend).double() - wanted).abs()
    assert (off <= bound * 1.0001).all()
    if backend == "tilelang":  # in tiles: scales that grow along the row round otherwise than the last one
        assert (off / wanted.abs().max()).max() > 1e-4


@pytest.mark.parametrize("form", ["online", "power of two", "second of two passes"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_86", "c"])
def test_tile_interpreter(form: str, target: str) -> None:
    """One tile holds a row, so that the running scale is the last one, and all three forms give the definition."""
    one = {"online": ONLINE, "power of two": POWER}.get(form, TWO_PASSES)
    tensors = drawn(20, 40, 96)
    wanted = one.reference(**tensors)
    if len(one.passes) > 1:
        scale, x = tensors["x"].abs().amax(1), tensors.pop("x")
        tensors |= {"of_amax": scale / 448, "rounded_0": (x / scale[:, None] * 448).to(E4M3)}
    dtypes = {name: str(array.dtype).removeprefix("torch.") for name, array in tensors.items()}
    sizes = {"m": 20, "n": 40, "k": 96}
    plan = with_choices(lower(one.form, target, sizes, dtypes).plan, block_streamed=96)
    lowered = lower(one.form, target, sizes, dtypes, plan=plan)
    out = interpret(lowered.program, {name: array.float().numpy() for name, array in tensors.items()})
    assert worst_error(torch.from_numpy(out["out"]), wanted) <= 2e-6


@pytest.mark.parametrize(
    ("target", "dtype"), [("sm_90a", "float8_e4m3fn"), ("sm_86", "float16"), ("sm_80", "float16"), ("c", "float32")]
)
def test_the_dtype_in_which_a_target_multiplies(target: str, dtype: str) -> None:
    """Eight bits where the chip does; float16 holds them exactly; the C target has float32 alone."""
    tensors = drawn(256, 512, 512, torch.float16)
    lowered = ONLINE.lower(target, **known(ONLINE, tensors))
    assert operands(lowered) == {dtype}
    assert numbers_of(lowered.plan).tensor_cores == (target != "c")


def test_weights_alone_in_eight_bits() -> None:
    """x in float16 and W in 8 bits multiply in float16, into which W goes exactly."""
    x, W = ra.tensors("x[m,k] W[n,k]")
    form = ra.fuse(ra.sum(x * W, k), axes="m n")
    sizes, dtypes = {"m": 256, "n": 512, "k": 512}, {"x": "float16", "W": "float8_e4m3fn"}
    lowered = form.lower("sm_90a", sizes, dtypes)
    assert operands(lowered) == {"float16"}
    tensors = drawn(30, 40, 50, torch.float16)
    tensors = {"x": tensors["x"] / 512, "W": tensors["W"]}  # products within float16
    assert worst_error(form(**tensors, backend="tilelang"), form.reference(**tensors)) <= 2**-10


@pytest.mark.sweep(4)
@pytest.mark.parametrize("spelled", ["x[m,k] W[n,k]", "x[k,m] W[k,n]", "x[b,m,k] W[k,n]", "x[b,m,k] W[b,n,k]"])
@pytest.mark.parametrize("columns", [16, 48, 96])
def test_products_of_inputs_as_they_lie(spelled: str, columns: int) -> None:
    x, W = ra.tensors(spelled)
    batched = "b" in spelled
    form = ra.fuse(ra.sum(x * W, k), axes="b m n" if batched else "m n")
    sizes, generator = {"b": 2, "m": 37, "n": 90, "k": 70}, torch.Generator().manual_seed(columns)
    tensors = {one.name: torch.randn([sizes[axis.name] for axis in one.indices], generator=generator) for one in (x, W)}
    sizes = {name: size for name, size in sizes.items() if name != "b" or batched}
    plan = form.lower("c", sizes, dict.fromkeys(("x", "W"), "float32")).plan
    out = form(**tensors, backend="tilelang", plan=with_choices(plan, block_column=columns))
    assert worst_error(out, form.reference(**tensors)) <= 70 * 2**-24


def test_rows_of_the_outputs_are_rows_of_tiles() -> None:
    """Σ f(n,k)·g(m,k) → Σ g(m,k)·f(n,k), in the order of the output's axes."""
    x, W = ra.tensors("x[m,k] W[n,k]")
    for axes in ("m n", "n m"):
        form = ra.fuse(ra.sum(x * W, k), axes=axes)
        binding = form.lower("c", {"m": 20, "n": 30, "k": 40}, {"x": "float32", "W": "float32"}).plan.binding
        assert [str(binding.row), str(binding.column)] == axes.split()
        tensors = {"x": torch.randn(20, 40), "W": torch.randn(30, 40)}
        assert worst_error(form(**tensors, backend="tilelang"), form.reference(**tensors)) <= 2e-6


@pytest.mark.parametrize("backend", ["torch", "numpy", "tilelang"])
def test_a_power_of_two_near_a_step_is_the_same_power_everywhere(backend: str) -> None:
    """⌊log2(448/amax)⌋ where 448/amax is nearly a power of 2: spelled two ways, it would be two powers."""
    steps = torch.tensor([[2.0**e * 3.5 * (1 + j * 2**-23)] for e in range(-12, 12) for j in range(-20, 21)])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(steps), 64, generator=generator)
    tensors = {"x": x / x.abs().amax(1, keepdim=True) * steps, "W": torch.randn(8, 64, generator=generator).to(E4M3)}
    tensors["w"] = torch.ones(8)
    wanted, out = POWER.reference(**tensors), POWER(**tensors, backend=backend).double()
    assert ((out - wanted).abs().amax(1) / wanted.abs().amax(1)).max() <= 1e-2


def test_a_row_of_zeros_gives_zeros() -> None:
    tensors = drawn(3, 5, 40)
    tensors["x"][1] = 0
    for form in (ONLINE, POWER, TWO_PASSES):
        for backend in ("torch", "tilelang"):
            assert form(**tensors, backend=backend)[1].tolist() == [0.0] * 5


def test_numpy_arrays_of_eight_bits() -> None:
    dtypes = pytest.importorskip("ml_dtypes")
    tensors = drawn(5, 7, 40)
    arrays = {"x": tensors["x"].numpy(), "w": tensors["w"].numpy()}
    arrays["W"] = tensors["W"].float().numpy().astype(dtypes.float8_e4m3fn)
    for form in (POWER, TWO_PASSES):
        for backend in ("numpy", "torch"):
            out = form(**arrays, backend=backend)
            assert np.allclose(out, form.reference(**tensors).numpy(), rtol=2e-6)


def test_eight_bits_decide_no_dtype() -> None:
    """Beside wider floats they take theirs; alone they meet in float32."""
    x, W = ra.tensors("x[m,k] W[n,k]")
    form, tensors = ra.fuse(ra.sum(x * W, k), axes="m n"), drawn(3, 5, 40)
    eight = tensors["W"]
    assert form(x=eight, W=eight).dtype == torch.float32
    assert form(x=eight.half(), W=eight).dtype == torch.float16
    assert form(x=eight.bfloat16(), W=eight, backend="tilelang").dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_roundings_of_the_c_target(dtype: str) -> None:
    """Every number near every number of the dtype, halves and ends, as torch rounds it."""
    bits = 8 if dtype.startswith("float8") else 16
    kinds = {8: torch.uint8, 16: torch.int16}
    every = torch.arange(2**bits).to(kinds[bits]).view(getattr(torch, dtype)).float()
    finite = every[every.isfinite()].unique()
    halves = (finite[1:] + finite[:-1]) / 2
    x = torch.cat([finite, halves, halves.nextafter(finite[1:]), halves.nextafter(finite[:-1])])[None]
    X = ra.tensor("x[m,k]")
    form = ra.fuse(ra.sum(ra.cast(X, dtype), k))
    values = x.T.contiguous()
    wanted = values.to(getattr(torch, dtype)).float()
    assert torch.equal(form(x=values, backend="tilelang").flatten(), wanted.flatten())
