"""Rows that begin within a 16-byte load are taken by vectors: the same numbers, whatever their length and place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Ne, exp, oo

import redalg as ra
from redalg.fused import Fused
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.passes import aligned_rows
from redalg.lower_tile.passes.aligned_rows import rows_by_vectors
from redalg.lower_tile.passes.order import run_passes
from redalg.lower_tile.place.build import assemble
from redalg.lower_tile.text.emit import emit
from redalg.runtime.compile.compile import compile_only, compile_source
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import outputs_of
from tests.sweeps import draws

n = ra.axis("n")
x, y, w, gate, length = ra.tensors("x[b,h,n] y[b,h,n] w[n] gate[h,n] length[b]")
FORMS = {
    "softmax": ra.fuse(ra.softmax(x, n), axes="b h n"),
    "log softmax": ra.fuse(x - ra.logsumexp(x, n), axes="b h n"),
    "weights of all rows": ra.fuse(ra.softmax(x * w / 3, n), axes="b h n"),
    "a gate of some rows": ra.fuse(ra.softmax(ra.where(Ne(gate, 0), x, -oo), n), axes="b h n"),
    "lengths": ra.fuse(ra.softmax(ra.where(n < length, x, -oo), n), axes="b h n"),
    "places": ra.fuse(x - ra.sum(x * n, n) / n.extent**2, axes="b h n"),
    "two tensors": ra.fuse(ra.softmax(x, n) * y - ra.max(y, n), axes="b h n"),
    "layer norm": ra.fuse((x - ra.mean(x, n)) / ra.std(x, n), axes="b h n"),
    "root mean square": ra.fuse(w * x / ra.norm(x, n), axes="b h n"),
    "least and largest": ra.fuse((x - ra.min(x, n)) / (ra.max(x, n) - ra.min(x, n) + 1), axes="b h n"),
    "a number beside": ra.fuse({"out": (ra.softmax(x, n), "b h n"), "log": (ra.logsumexp(x, n), "b h")}),
    "a variance alone": ra.fuse(ra.var(x, n), axes="b h"),
}
WAYS: dict[str, dict[str, Any]] = {"whole": {"level": "row"}, "tiles": {"level": "block", "block_streamed": 64}}


@pytest.fixture(scope="module", autouse=True)
def short_rows() -> Iterator[None]:
    """Rows of any length are cut, so that they need not be long to be tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligned_rows, "LEAST_ROW", 16)
        yield


def drawn(form: Fused, shape: tuple[int, int, int], dtype: str, seed: int) -> dict[str, torch.Tensor]:
    """Tensors of a form, with the digits of a dtype."""
    generator, (rows, heads, elements) = torch.Generator().manual_seed(seed), shape
    shapes = {"x": shape, "y": shape, "w": (elements,), "gate": (heads, elements)}
    tensors = {name: torch.randn(shapes[name], generator=generator).to(getattr(torch, dtype)).float()
               for name in form.cascade.inputs() if name in shapes}  # fmt: skip
    if "gate" in tensors:
        tensors["gate"] = (tensors["gate"] > 0).float()
        tensors["gate"][:, 0] = 1
    if "length" in form.cascade.inputs():
        tensors["length"] = torch.randint(1, elements + 1, (rows,), generator=generator).int()
    return tensors


def lowered(form: Fused, shape: tuple[int, int, int], dtype: str, target: str = "sm_90a", **choices: Any) -> Any:
    """A form under a plan of one row a block."""
    dtypes = {name: "int32" if name == "length" else dtype for name in form.cascade.inputs()}
    options = {"sizes": dict(zip("bhn", shape, strict=True)), "dtypes": dtypes}
    whole = 1 << max(5, (shape[-1] - 1).bit_length())
    threads = 1 if target == "c" else 32
    own = {"block_row": 1, "segments": 1, "threads": threads, "stages": 0, "block_streamed": whole, **choices}
    return form.lower(target, **options, plan=with_choices(form.lower(target, **options).plan, **own))


ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}
"""The share of the largest number that an output of a dtype may be off by."""


def is_near(out: Any, wanted: torch.Tensor, dtype: str) -> bool:
    """Within rounding of what is large beside it."""
    error = torch.from_numpy(np.asarray(out)).double().reshape(wanted.shape) - wanted
    return bool(error.abs().max() <= ROUNDING[dtype] * (1 + wanted.abs().max()))


def takes_vectors(program: TileProgram) -> bool:
    """Tell if rows are two tiles."""
    return any(one.name.endswith("_ends") for kernel in program.kernels for one in kernel.buffers)


@given(
    st.sampled_from(list(FORMS)),
    st.sampled_from(list(WAYS)),
    st.tuples(st.integers(1, 5), st.integers(1, 3)),
    st.integers(16, 300),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rows_mean_the_definition(
    name: str, way: str, rows: tuple[int, int], elements: int, dtype: str, seed: int
) -> None:
    """By the program's interpreter, which reads no element that a tensor lacks."""
    form, shape = FORMS[name], (*rows, elements)
    tensors = drawn(form, shape, dtype, seed)
    program = lowered(form, shape, dtype, **WAYS[way]).program
    out = interpret(program, {key: one.numpy() for key, one in tensors.items()})
    wanted = form.reference(**{key: one if key == "length" else one.double() for key, one in tensors.items()})
    for key, value in outputs_of(wanted).items():
        assert is_near(out[key], value, dtype), key


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORMS)
def test_each_form_takes_vectors(name: str, way: str) -> None:
    """Else the test above would show nothing. Loops whose tiles data tell stay as they are."""
    program = lowered(FORMS[name], (3, 2, 197), "bfloat16", **WAYS[way]).program
    assert takes_vectors(program) == ((name, way) != ("lengths", "tiles"))


@pytest.mark.parametrize(("elements", "dtype", "wide"), [
    (197, "bfloat16", 8), (198, "bfloat16", 8), (196, "bfloat16", None), (200, "bfloat16", None),
    (197, "float32", 4), (198, "float32", None), (196, "float32", None), (17, "bfloat16", 8), (15, "bfloat16", None),
])  # fmt: skip
def test_rows_of_short_loads_alone_are_cut(elements: int, dtype: str, wide: int | None) -> None:
    """Rows that begin at multiples of 8 bytes are loaded as they are, and so are short ones."""
    program = lowered(FORMS["softmax"], (3, 2, elements), dtype, level="row").program
    assert takes_vectors(program) == (wide is not None)
    if wide is not None:
        assert {one.shape for kernel in program.kernels for one in kernel.buffers if "_ends" in one.name} == {
            (1, 2 * wide)
        }


@pytest.mark.parametrize(("elements", "dtype", "wide"), [
    (197, "bfloat16", 2), (198, "bfloat16", 4), (196, "bfloat16", None), (197, "float32", 2), (198, "float32", None),
])  # fmt: skip
def test_weights_that_begin_elsewhere_leave_short_vectors(elements: int, dtype: str, wide: int | None) -> None:
    """Threads load weights one by one: neighbours then lie side by side."""
    program = lowered(FORMS["root mean square"], (3, 2, elements), dtype, level="row").program
    ends = {one.shape for kernel in program.kernels for one in kernel.buffers if "_ends" in one.name}
    assert ends == ({(1, 2 * wide)} if wide else set())


def test_tensors_whose_elements_32_bits_do_not_count_stay() -> None:
    assert takes_vectors(lowered(FORMS["softmax"], (2**20, 1, 2047), "bfloat16", level="row").program)
    assert not takes_vectors(lowered(FORMS["softmax"], (2**20, 2, 2047), "bfloat16", level="row").program)


def test_tiles_that_a_mask_leaves_out_stay() -> None:
    """The tiles of a window are counted from the row's first element."""
    b = ra.axis("b")
    (scores,) = ra.tensors("scores[b,n]")
    form = ra.fuse(ra.softmax(ra.where((n <= b) & (b < n + 70), scores, -oo), n), axes="b n")
    options: dict[str, Any] = {"sizes": {"b": 301, "n": 301}, "dtypes": "bfloat16"}
    plan = with_choices(form.lower("sm_90a", **options).plan, level="block", threads=32, block_row=1, block_streamed=64)
    program = form.lower("sm_90a", **options, plan=plan).program
    assert not takes_vectors(program)
    values = torch.randn((301, 301), generator=torch.Generator().manual_seed(0)).bfloat16().float()
    out = interpret(program, {"scores": values.numpy()})["out"]
    assert is_near(out, form.reference(scores=values.double()), "bfloat16")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["softmax", "two tensors", "layer norm", "a number beside"])
def test_the_c_target_equals_the_definition(name: str, way: str) -> None:
    """A compiled kernel, whose tensors end where their last row ends."""
    form, shape = FORMS[name], (3, 2, 197)
    tensors = drawn(form, shape, "float32", 0)
    lowering = lowered(form, shape, "float32", "c", **WAYS[way])
    dtypes = {one.key: one.dtype for one in lowering.program.parameters if one.role == "output"}
    placed = assemble(lowering.stages, lowering.source.plan, lowering.problem, dtypes)
    program = run_passes(rows_by_vectors(placed), lowering.source.plan)
    verify(program)
    assert takes_vectors(program)
    assert not takes_vectors(lowering.program)
    arguments = {one.key: torch.full(one.shape, torch.nan) if one.role == "output" else tensors[one.key].flatten()
                 for one in program.parameters}  # fmt: skip
    compile_source(emit(program, lowering.source.plan, "", "")).run(*arguments.values())
    for key, value in outputs_of(form.reference(**{key: one.double() for key, one in tensors.items()})).items():
        assert is_near(arguments[key].numpy(), value, "float32"), key


def test_a_call_takes_tensors_as_they_are() -> None:
    """The kernel's own shape of a tensor, one dimension, is none of the caller's."""
    form, shape = FORMS["softmax"], (3, 2, 197)
    lowering = lowered(form, shape, "bfloat16", level="row")
    flat = [one for one in lowering.program.parameters if one.key in ("x", "out")]
    assert [(one.shape, one.folded) for one in flat] == [((3 * 2 * 197,), (3,))] * 2


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", ["softmax", "root mean square"])
def test_threads_load_and_store_vectors(name: str) -> None:
    (compiled,) = compile_only(lowered(FORMS[name], (30, 8, 1001), "bfloat16", level="row").source)
    vector = {"softmax": "uint4", "root mean square": "uint1"}[name]
    assert f"*({vector}*)(x +" in compiled.cuda
    assert compiled.spill_bytes == 0


def test_a_kernel_beside_others_stays() -> None:
    program = lowered(FORMS["softmax"], (3, 2, 197), "bfloat16", level="row", block_row=2).program
    assert not takes_vectors(program)
    form = ra.fuse(ra.softmax(exp(x), n), axes="b h n")
    alone = lowered(form, (3, 2, 197), "bfloat16", level="row").program
    assert takes_vectors(alone)
    assert rows_by_vectors(replace(alone)) == alone


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("elements", [1001, 8190, 20001, 70001])
@pytest.mark.parametrize("name", FORMS)
def test_rows_are_right_on_a_gpu(name: str, elements: int, dtype: str) -> None:
    """As the rules plan them; the last row ends where its tensor ends, within a vector."""
    form, shape = FORMS[name], (71, 3, elements)
    tensors = drawn(form, shape, dtype, 0)
    placed = {key: (one if key == "length" else one.to(getattr(torch, dtype))).cuda() for key, one in tensors.items()}
    out = outputs_of(form(**placed))
    wanted = form.reference(**{key: one if key == "length" else one.double() for key, one in tensors.items()})
    for key, value in outputs_of(wanted).items():
        assert is_near(out[key].double().cpu().numpy(), value, dtype), key


@pytest.mark.parametrize(("dtype", "fits"), [("bfloat16", True), ("float32", False)])
def test_the_largest_blocks_have_few_registers(dtype: str, fits: bool) -> None:
    """Of a long row in float32 a thread of 1024 holds all that it can; its ends would be kept in memory."""
    form = FORMS["softmax"]
    program = form.lower("H200", {"b": 1024, "h": 1, "n": 50257}, dtype).program
    assert {one.shape[-1] for kernel in program.kernels for one in kernel.buffers} > {1}
    assert takes_vectors(program) == fits
