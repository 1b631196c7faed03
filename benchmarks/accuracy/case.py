"""One case: what is run on which inputs, and how every contestant's error is taken and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import torch

from benchmarks.compete import OWN
from benchmarks.family import Contestant, Problem, Row, Tensors

Outputs = dict[str, torch.Tensor]
TIMES, MAX_FLOOR, RMS_FLOOR = 2.0, 4.0, 2.0


@dataclass(frozen=True)
class Case:
    """See the package.

    Attributes:
        family, kind: of its name, with the row's.
        row: sizes, shapes and dtypes.
        fused: redalg's function, derived once.
        inputs: a seeded generator -> tensors by name.
        reference: tensors -> sampled outputs in float64.
        outputs: what a contestant gives, and the tensors -> the same samples of it, those that it has.
        peers: by name, called with the tensors by keyword.
        options: of redalg's call.
        call: a contestant and tensors -> what it gives of them.
        problems: redalg's function and its data -> the functions whose kernels are compiled for it.
        exact: names of outputs that must equal the reference.
        scores: tensors -> the largest score that is exponentiated, on the samples.
    """

    family: str
    row: Row
    kind: str
    fused: Callable[[], Any]
    inputs: Callable[[torch.Generator], Tensors]
    reference: Callable[[Tensors], Outputs]
    outputs: Callable[[Any, Tensors], Outputs]
    peers: Mapping[str, Contestant]
    options: Mapping[str, Any] = field(default_factory=dict)
    call: Callable[[Contestant, Tensors], Any] = lambda contestant, tensors: contestant(**tensors)
    problems: Callable[[Problem], Iterable[Problem]] = lambda problem: (problem,)
    exact: frozenset[str] = frozenset()
    scores: Callable[[Tensors], float] = lambda _: 0.0

    @property
    def name(self) -> str:
        return f"{self.family} {self.row.name}, {self.kind}"

    def drawn(self, device: torch.device) -> Tensors:
        """The inputs, seeded by the case's name."""
        return self.inputs(torch.Generator(device).manual_seed(crc32(self.name.encode())))

    def own(self, **tensors: torch.Tensor) -> Any:
        """redalg's kernel."""
        return self.fused()(**tensors, backend="tilelang", **self.options)


@dataclass(frozen=True)
class Error:
    """Of one output of one contestant: relative to the largest and to the root mean square of the reference."""

    max: float
    rms: float


@dataclass(frozen=True)
class Judged:
    """One output: every contestant's error, what was allowed, and whether redalg's is within it."""

    errors: Mapping[str, Error]
    allowed: Error
    dtype: str
    ok: bool


@dataclass(frozen=True)
class Result:
    """One case: its outputs by name, and why a contestant gave nothing."""

    case: Case
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    outputs: Mapping[str, Judged]
    failures: Mapping[str, str]
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return bool(self.outputs) and all(one.ok for one in self.outputs.values()) and OWN not in self.failures


def run(case: Case, device: torch.device) -> Result:
    """Every contestant on one draw; what a contestant raises is recorded, so that the others still run."""
    tensors = case.drawn(device)
    reference = case.reference(tensors)
    errors: dict[str, dict[str, Error]] = {name: {} for name in reference}
    dtypes, failures = dict[str, str](), dict[str, str]()
    plain = {name: one.contiguous() for name, one in tensors.items()}  # several peers take no other layout
    for name, call in {OWN: case.own, **case.peers}.items():
        try:
            out = case.outputs(case.call(call, tensors if name == OWN else plain), tensors)
        except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
            failures[name] = f"{type(failure).__name__}: {str(failure).strip()[:300]}"
            continue
        if name == OWN:
            dtypes = {key: str(one.dtype).removeprefix("torch.") for key, one in out.items()}
        for key, tensor in out.items():
            errors[key][name] = error(tensor, reference[key], strict=name == OWN)
        del out
    shapes = {name: tuple(one.shape) for name, one in tensors.items()}
    kinds = {name: str(one.dtype).removeprefix("torch.") for name, one in tensors.items()}
    floor = 2.0**-24 * case.scores(tensors)
    judged = dict[str, Judged]()
    for key, found in errors.items():
        dtype = dtypes.get(key, "float32")
        exact = key in case.exact or "float" not in dtype
        judged[key] = judge(found, dtype, None if exact else floor, single=reference[key].numel() == 1)
    return Result(case, shapes, kinds, judged, failures)


def error(out: torch.Tensor, wanted: torch.Tensor, *, strict: bool) -> Error:
    """Relative errors where the reference is finite; infinite where `strict` and finite in other places."""
    if out.shape != wanted.shape:
        raise ValueError(f"the output has shape {tuple(out.shape)}, and the reference {tuple(wanted.shape)}")
    out, wanted = out.double(), wanted.double()
    finite = wanted.isfinite()
    if strict and not torch.equal(out.isfinite(), finite):
        return Error(torch.inf, torch.inf)
    both = finite & out.isfinite()
    if not both.any():
        return Error(0.0, 0.0) if strict else Error(torch.inf, torch.inf)
    difference, wanted = (out - wanted)[both], wanted[finite]
    top, mean = wanted.abs().max(), wanted.square().mean().sqrt()
    tiny = torch.finfo(torch.float64).tiny
    largest = difference.abs().max() / top.clamp_min(tiny)
    return Error(float(largest), float(difference.square().mean().sqrt() / mean.clamp_min(tiny)))


def judge(errors: Mapping[str, Error], dtype: str, floor: float | None, *, single: bool = False) -> Judged:
    """redalg's error beside twice the least of its peers' and the floors (None: it must be exact).

    An output that no peer has is not proved. The root mean square of a `single` number is its largest error.
    """
    peers = [one for name, one in errors.items() if name != OWN]
    unit = torch.finfo(getattr(torch, dtype)).eps / 2 if "float" in dtype else 0.0
    if floor is None:
        allowed = Error(0.0, 0.0)
    elif peers:
        rms_floor = MAX_FLOOR if single else RMS_FLOOR
        allowed = Error(TIMES * min(one.max for one in peers) + MAX_FLOOR * unit + floor,
                        TIMES * min(one.rms for one in peers) + rms_floor * unit + floor)  # fmt: skip
    else:
        allowed = Error(float("nan"), float("nan"))
    own = errors.get(OWN)
    return Judged(errors, allowed, dtype, own is not None and own.max <= allowed.max and own.rms <= allowed.rms)
