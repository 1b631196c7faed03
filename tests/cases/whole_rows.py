"""Rows of every kind for the passes that load them: forms, tensors, plans, and kernels run in every way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sympy import Ne, oo

import redalg as ra
from redalg.fused import Fused
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.text.emit import emit
from redalg.runtime.compile.compile import compile_source
from redalg.strategies.plan import Plan
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import outputs_of

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
    """A form under a plan of whole rows: one row a block, of 32 threads, if choices name no others."""
    dtypes = {name: "int32" if name == "length" else dtype for name in form.cascade.inputs()}
    options = {"sizes": dict(zip("bhn", shape, strict=True)), "dtypes": dtypes}
    whole = 1 << max(5, (shape[-1] - 1).bit_length())
    own = {"block_row": 1, "segments": 1, "threads": 32, "stages": 0, "block_streamed": whole, **choices}
    own |= {"threads": 1} if target == "c" else {}
    return form.lower(target, **options, plan=with_choices(form.lower(target, **options).plan, **own))


ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}
"""The share of the largest number that an output of a dtype may be off by."""


def of_short_axis(elements: int, length: int, plan: Any) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A softmax over the first elements of rows of a length under a plan, its data, and what it is in float64."""
    short, x = ra.axis("n", size=elements), torch.randn((9, length), generator=torch.Generator().manual_seed(0))
    form = ra.fuse(ra.softmax(ra.Tensor("x")[ra.axis("b"), short], short), axes="b n")
    lowering = form.lower("sm_90a", {"b": 9}, "float32", shapes={"x": (9, length)}, plan=plan)
    return lowering, x, torch.softmax(x[:, :elements].double(), 1)


def is_near(out: Any, wanted: torch.Tensor, dtype: str) -> bool:
    """Within rounding of what is large beside it."""
    error = torch.from_numpy(np.asarray(out)).double().reshape(wanted.shape) - wanted
    return bool(error.abs().max() <= ROUNDING[dtype] * (1 + wanted.abs().max()))


def check_near(found: Mapping[str, Any], form: Fused, tensors: Mapping[str, torch.Tensor], dtype: str) -> None:
    """Outputs are near those of the definition, in float64."""
    exact = {key: one if key == "length" else one.double() for key, one in tensors.items()}
    for key, value in outputs_of(form.reference(**exact)).items():
        assert is_near(found[key], value, dtype), key


def interpreted(program: TileProgram, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, Any]:
    """The outputs of a program by its interpreter, which reads no element that a tensor lacks."""
    out: Mapping[str, Any] = interpret(program, {key: one.numpy() for key, one in tensors.items()})
    return out


def run_on_c(program: TileProgram, plan: Plan, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The outputs of a compiled program, whose tensors end where their last row ends."""
    verify(program)
    given = {one.key: one for one in program.parameters}
    arguments = {key: torch.full(one.shape, torch.nan) if one.role == "output" else tensors[key].reshape(one.shape)
                 for key, one in given.items()}  # fmt: skip
    compile_source(emit(program, plan, "", "")).run(*arguments.values())
    return {key: one.numpy() for key, one in arguments.items()}


def run_on_gpu(form: Fused, tensors: Mapping[str, torch.Tensor], dtype: str) -> dict[str, Any]:
    """The outputs of a call on a GPU, as the rules plan it."""
    placed = {key: (one if key == "length" else one.to(getattr(torch, dtype))).cuda() for key, one in tensors.items()}
    return {key: one.double().cpu().numpy() for key, one in outputs_of(form(**placed)).items()}
