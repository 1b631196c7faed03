"""A family of benchmarks: rows of sizes, a fused function, its peers, and the errors that are allowed.

Family := rows, fused(row), inputs(row), peers(row), error(row, out, inputs), tolerance(row)
          prepare(row, contestant, inputs): the call that is timed; problems(row): the kernels that it runs
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

Tensors = dict[str, torch.Tensor]
Contestant = Callable[..., Any]
"""Called with a row's tensors by keyword; gives a tensor, or a tuple of them in the order of the fused outputs."""


@dataclass(frozen=True)
class Row:
    """One row of a family, or of the proof of accuracy.

    Attributes:
        name: as published, such as `H1`.
        sizes: axis name -> extent.
        shapes, dtypes: of the inputs, by name.
        flops: multiplications and additions of the definition's contractions (0: bounded by bytes).
        out_bytes: bytes of the outputs.
        use: how the family's function is used, a value of the family's own; None where all rows use it alike.
    """

    name: str
    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    flops: float = 0
    out_bytes: int = 0
    use: Any = None

    @property
    def in_bytes(self) -> int:
        """Bytes of the inputs, each read once."""
        return sum(width(self.dtypes[name]) * torch.Size(shape).numel() for name, shape in self.shapes.items())


class Problem(NamedTuple):
    """A fused function, and the data that it is compiled for: sizes by axis, dtypes and shapes by tensor."""

    function: Any
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]


class Family(ABC):
    """See the module.

    Attributes:
        alike: all contestants of a row are timed by one method: if one cannot be captured in a graph, none is.
    """

    name: str
    title: str
    alike: bool = False

    @abstractmethod
    def rows(self, device: torch.device) -> tuple[Row, ...]:
        """The rows that a device is meant for: the published ones on CUDA, small ones on the CPU."""

    @abstractmethod
    def fused(self, row: Row) -> Any:
        """redalg's function of a row (a `Fused`)."""

    @abstractmethod
    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        """The peers on a device, by name."""

    @abstractmethod
    def tolerance(self, row: Row) -> float:
        """The largest error at which a contestant is still timed."""

    def problems(self, row: Row) -> tuple[Problem, ...]:
        """The functions whose kernels redalg runs in a row, in order."""
        return (Problem(self.fused(row), row.sizes, row.dtypes, row.shapes),)

    def timed(self, row: Row) -> str:
        """The part of a contestant's work that is timed, as the JSON says it."""
        return "a call"

    def prepare(self, row: Row, call: Contestant, inputs: Tensors) -> Callable[[], Any]:
        """The call of a contestant on one set of inputs that is timed; what comes before it is not."""
        return partial(call, **inputs)

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        """One set of inputs: standard normal numbers, unless a family says otherwise."""
        return {name: normal(shape, row.dtypes[name], generator) for name, shape in row.shapes.items()}

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """max|out - ref| / max|ref| against the unfused definition in float64, the largest over the outputs."""
        reference = self.fused(row).reference(**inputs)
        pairs = zip(outputs(out), outputs(reference), strict=True)
        return max(relative_error(one, wanted) for one, wanted in pairs)


def width(dtype: str) -> int:
    """Bytes of an element."""
    return torch.empty(0, dtype=getattr(torch, dtype)).element_size()


def normal(shape: tuple[int, ...], dtype: str, generator: torch.Generator) -> torch.Tensor:
    """Standard normal numbers on the generator's device."""
    numbers = torch.randn(*shape, generator=generator, device=generator.device, dtype=torch.float32)
    return numbers.to(getattr(torch, dtype))


def outputs(out: Any) -> tuple[torch.Tensor, ...]:
    """One output or several, as a tuple."""
    return (out,) if isinstance(out, torch.Tensor) else tuple(out)


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """max|out - ref| / max|ref|; NaN where either is not finite."""
    return float((out.double() - reference.double()).abs().max() / reference.double().abs().max())


def compiled(function: Contestant) -> Contestant:
    """The function through torch.compile, one static graph a shape."""
    graph: Contestant = torch.compile(function, dynamic=False)
    return graph


def eager_and_compiled(eager: Contestant, device: torch.device) -> dict[str, Contestant]:
    """An eager peer, and on CUDA the function through torch.compile beside it."""
    return {"eager": eager} | ({"torch.compile": compiled(eager)} if device.type == "cuda" else {})


def beforehand(prepare: Callable[[Tensors], Any], call: Callable[[Any, Tensors], Any]) -> Contestant:
    """A contestant that is given part of its work done: prepared once for every set of inputs."""
    prepared: dict[int, Any] = {}

    def run(**tensors: torch.Tensor) -> Any:
        key = tensors["x"].data_ptr()
        if key not in prepared:
            prepared[key] = prepare(tensors)
        return call(prepared[key], tensors)

    return run


def picks(length: int, count: int, seed: int = 0) -> list[int]:
    """At most so many of `length` places in order: the first, the last, and seeded ones between."""
    if length <= count:
        return list(range(length))
    drawn = torch.randperm(length, generator=torch.Generator().manual_seed(seed))[: max(0, count - 2)].tolist()
    return sorted({0, length - 1, *drawn} if count > 1 else {length - 1})
