"""Time and memory of a function beside its definition in PyTorch, and beside the user's own callables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, final

import torch

from redalg.errors import InputError
from redalg.expression.arguments import answer_methods
from redalg.instruments.drawing import Measurable, Setting, all_names, dtype_of_result
from redalg.instruments.errors import Outputs, check_shape, error_text, named_results
from redalg.instruments.measuring import (
    Contestant,
    Measured,
    Tensors,
    bytes_of,
    device_name,
    index_of_card,
    measure_contest,
    memory_text,
    time_text,
)
from redalg.instruments.plotting import draw_bars
from redalg.instruments.reference import FLOAT64, Definition, Reference
from redalg.runtime.bind.inputs import array_dtype, bind, library_name
from redalg.runtime.call.dispatch import check_known_backend
from redalg.runtime.lowering import target_of
from redalg.strategies.model.operations import form_operations
from redalg.strategies.table import Table, Tabled
from redalg.unfused.definition import EXPONENTIAL, definition

BACKENDS = {"tilelang": "redalg, kernel", "torch": "redalg, blocks", "numpy": "redalg, arrays"}
"""The rows of tables, by backend."""
EAGER, COMPILED, EXACT = "eager PyTorch", "torch.compile", "definition, float64"
WALL = {"cpu": "wall time", "cuda": "device time"}
GAPS = "no CUDA graph holds it, so that its time has the gaps between launches"


@final
@dataclass(frozen=True)
class CompareRow:
    """A contestant.

    Attributes:
        name: of it.
        microseconds: the median time of a call; NaN if it failed.
        ratio: its time over redalg's: above 1, redalg is faster.
        peak_bytes: memory that a call holds above its inputs.
        error: max|out - ref| / max|ref|.
        method: of the times.
        failure: the reason that it has none.
    """

    name: str
    microseconds: float
    ratio: float
    peak_bytes: int | None
    error: float
    method: str
    failure: str = ""


@answer_methods(InputError)
@final
@dataclass(frozen=True, repr=False)
class Comparison(Tabled):
    """Contestants on the same tensors, redalg first; it prints as a table.

    Attributes:
        title: sizes, dtypes and device.
        rows: the contestants.
        device: `cpu` or `cuda`.
        reference: the arithmetic that errors are told by, and its own error where it matters.

    >>> rows = (CompareRow("redalg, blocks", 20.0, 1.0, 4096, 1e-7, "wall"),
    ...         CompareRow("mine", 50.0, 2.5, 8192, 1e-7, "wall"))
    >>> found = Comparison("compare, b=8 n=64", rows, "cpu")
    >>> found.table().rows[1]
    ('mine', '2.50', '50.00 µs', '< 0.1 MiB', '1.0e-07')
    >>> len(found.tables())
    1
    >>> found.to_json()[:32], found.plot().axes[0].get_xlabel()
    ('{"title": "compare, b=8 n=64", "', 'wall time, ms')
    """

    title: str
    rows: tuple[CompareRow, ...]
    device: str
    reference: str = FLOAT64

    def table(self) -> Table:
        """The table, the ratio first."""
        rows = tuple((row.name, "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}", time_text(row.microseconds),
                      memory_text(row.peak_bytes), error_text(row.error)) for row in self.rows)  # fmt: skip
        note = f"over redalg: above 1, redalg is faster; {WALL[self.device]}, medians; memory above the inputs\n"
        note += error_legend(self.reference)
        told = [f"{row.name}: {GAPS}" for row in self.rows if row.method == "cuda events"]
        told += [f"{row.name}: {row.failure}" for row in self.rows if row.failure]
        return Table(self.title, ("", "over redalg", "time", "memory", "error"), rows, "\n".join([note, *told]),
                     figures_last=True)  # fmt: skip

    def tables(self) -> list[Table]:
        """The table alone."""
        return [self.table()]

    def to_json(self) -> str:
        """The rows as JSON; what has no number is null."""
        rows = [plain_row(row) for row in self.rows]
        return json.dumps({"title": self.title, "device": self.device, "reference": self.reference, "rows": rows},
                          ensure_ascii=False)  # fmt: skip

    def plot(self) -> Any:
        """A figure of Matplotlib: a bar for each contestant's time.

        Raises:
            BackendError: Matplotlib is not installed.
        """
        return draw_bars(self.title, f"{WALL[self.device]}, ms", [
            (row.name, row.microseconds / 1e3, time_text(row.microseconds)) for row in self.rows])  # fmt: skip


def error_legend(*references: str) -> str:
    """The line that tells what errors are.

    >>> error_legend("float64", "120 digits", "float64")
    'error: max|out - ref| / max|ref|, ref in float64 or 120 digits'
    """
    return f"error: max|out - ref| / max|ref|, ref in {' or '.join(dict.fromkeys(references))}"


def plain_row(row: Any) -> dict[str, Any]:
    """The fields of a row as JSON has them: what is not finite is null."""
    return {name: plain_number(one) for name, one in asdict(row).items()}


def plain_number(value: Any) -> Any:
    """A value as JSON has it: a number that is not finite is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compare_peers(problem: Problem, backends: Sequence[str], peers: Mapping[str, Any], *, compiled: bool) -> Comparison:
    """Measure redalg on some backends beside the definition in PyTorch and beside peers."""
    given = (
        {name: one for name, one in peers.items() if isinstance(name, str) and callable(one)}
        if isinstance(peers, Mapping)
        else {}
    )
    if not isinstance(peers, Mapping) or len(given) < len(peers):
        raise InputError("compare: peers= gives callables by name, as in peers={'mine': f}; they are called with the "
                         "tensors by keyword.")  # fmt: skip
    contestants = {**problem.own(backends), EAGER: problem.eager()}
    contestants |= {COMPILED: problem.eager(compiled=True)} if compiled else {}
    if taken := [name for name in given if name in contestants]:
        raise InputError(f"compare: peers= names {taken[0]!r}, which is a row of the table itself. Name it otherwise.")
    found = measure_contest(contestants | given, problem.tensors, problem.error, problem.device)
    rows = tuple(map(partial(compare_row, found[0]), found))
    return Comparison(problem.title("compared"), rows, problem.device, problem.truth.text)


def compare_row(first: Measured, found: Measured) -> CompareRow:
    """The row of a contestant beside the first."""
    ratio = found.microseconds / first.microseconds
    return CompareRow(found.name, found.microseconds, ratio, found.peak_bytes, found.error, found.method, found.failure)


# ---- problems --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Problem:
    """A function, the tensors that it is called with, and what their outputs should be.

    Attributes:
        fused: the function.
        tensors: tensors and scalars by name.
        sizes: those that no tensor has.
        reference: the definition in float64.
        truth: the same, in 120 digits where float64 errs by more than the dtype of the result hides.
        setting: that drew the tensors; None of a user's own.
    """

    fused: Measurable
    tensors: Tensors
    sizes: Mapping[str, int]
    reference: Outputs
    truth: Reference
    setting: Setting | None = None

    @staticmethod
    def of_data(
        fused: Measurable, tensors: Tensors, sizes: Mapping[str, int], setting: Setting | None = None
    ) -> Problem:  # fmt: skip
        """The problem of these tensors.

        Raises:
            InputError: they do not fit the expression.
        """
        names = [one.name for one in fused.cascade.outputs]
        wanted = named_results(fused.reference(**tensors, sizes=sizes), names)
        dtypes = [array_dtype(one) for one in tensors.values() if library_name(one)]
        truth = Definition(fused, dict(tensors), sizes, dtype_of_result(dtypes)).reference_beside(wanted)
        return Problem(fused, tensors, sizes, wanted, truth, setting)

    @staticmethod
    def of_setting(setting: Setting) -> Problem:
        """The problem of drawn tensors."""
        return Problem.of_data(setting.fused, setting.draw(), setting.absent_sizes, setting)

    @property
    def arrays(self) -> dict[str, Any]:
        """The tensors without the scalars."""
        return {name: one for name, one in self.tensors.items() if library_name(one)}

    @property
    def scalars(self) -> dict[str, Any]:
        """The run-time scalars of the reductions."""
        return {one.name: self.tensors[one.name] for one in self.fused.cascade.scalars()}

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of every tensor."""
        return {name: array_dtype(one) for name, one in self.arrays.items()}

    @property
    def all_sizes(self) -> dict[str, int]:
        """The size of every axis that has none of its own."""
        unread = self.fused._unread_inputs
        bound = bind(self.fused.cascade, {name: one for name, one in self.tensors.items() if name not in unread},
                     self.sizes)  # fmt: skip
        free = {axis.name for axis in self.fused.cascade.axes() if axis.size is None}
        return {name: size for name, size in bound.sizes.items() if name in free}

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return next((one.device.type for one in self.arrays.values() if library_name(one) == "torch"), "cpu")

    @property
    def target(self) -> str:
        """The target of the device: a card, an architecture, or `c`."""
        return target_of("cpu" if self.device == "cpu" else f"cuda:{index_of_card(self.tensors.values())}")

    @property
    def bytes(self) -> int:
        """Bytes of the tensors, and of the outputs in the result's dtype."""
        result = getattr(torch, dtype_of_result(self.dtypes.values()))
        arrays = [one.array for one in self.reference.values()]
        written = [one.size * (result.itemsize if one.dtype.kind == "f" else one.itemsize) for one in arrays]
        return bytes_of(self.tensors) + int(sum(written))

    @property
    def operations(self) -> int:
        """Floating-point operations of a call, as the cost model counts them (`strategies.model.operations`)."""
        return sum(form_operations(form, self.all_sizes) for form in self.fused.passes)

    def title(self, what: str) -> str:
        """A line of sizes, dtypes and device."""
        sizes = " ".join(f"{axis}={size}" for axis, size in self.all_sizes.items())
        where = device_name(self.device, index_of_card(self.tensors.values()))
        return f"{what}, {sizes}, {', '.join(sorted(set(self.dtypes.values())))}, {where}"

    def error(self, made: Any) -> float:
        """The error of what a contestant returns."""
        found = named_results(made, list(self.reference))
        for name, wanted in self.reference.items():
            check_shape(found[name].array, wanted.array)
        return self.truth.error(found)

    def own(self, backends: Sequence[str]) -> dict[str, Contestant]:
        """redalg's calls, by the names of their rows."""
        return {BACKENDS.get(name, name): partial(self.fused, sizes=self.sizes, backend=name) for name in backends}

    def exact(self) -> Contestant:
        """The definition in float64."""
        return partial(self.fused.reference, sizes=self.sizes)

    def eager(self, *, compiled: bool = False) -> Contestant:
        """The definition in operations of PyTorch, as a person would write it; by torch.compile if asked."""
        cascade = self.fused.cascade
        sizes = self.all_sizes | {axis.name: axis.size for axis in cascade.axes() if axis.size is not None}
        shapes = {name: tuple(one.shape) for name, one in self.arrays.items()}
        names = (*cascade.inputs(), *(one.name for one in cascade.scalars()))
        result = dtype_of_result(self.dtypes.values())

        def write() -> Any:
            text = definition("definition", cascade, sizes, shapes).text
            text = text.replace("dtype = torch.get_default_dtype()", f"dtype = torch.{result}")
            module: dict[str, Any] = {"torch": torch}
            exec(compile(f"{EXPONENTIAL}\n\n\n{text}", "<definition>", "exec"), module)
            return torch.compile(module["definition"], dynamic=False) if compiled else module["definition"]

        made = list[Any]()

        def call(**tensors: Any) -> Any:
            """The outputs in the cascade's order."""
            if not made:
                made.append(write())
            found = made[0](*(as_tensor(tensors[name], result, self.device) for name in names))
            return found if len(found) > 1 else found[0]

        return call


def as_tensor(value: Any, dtype: str, device: str) -> Any:
    """A tensor of torch: a scalar in the dtype of the result, floats of 8 bits too, for PyTorch computes in neither."""
    if library_name(value) == "torch":
        return value.to(getattr(torch, dtype)) if "float8" in str(value.dtype) else value
    if library_name(value) == "numpy":
        return torch.from_numpy(value)
    return torch.full((), value, dtype=getattr(torch, dtype), device=device)


def chosen_backends(backend: str | Sequence[str] | None, device: str) -> tuple[str, ...]:
    """The backends that are asked for; else the kernel and, on the CPU, the derived form block by block."""
    if backend is not None:
        names = (backend,) if isinstance(backend, str) else tuple(backend)
        for name in names:
            check_known_backend(name)
        return names
    kernels = ("tilelang",) if find_spec("tilelang") else ()
    return kernels if device == "cuda" and kernels else (*kernels, "torch")


def user_problem(fused: Measurable, data: Mapping[str, Any], sizes: Mapping[str, int]) -> Problem:
    """The problem of a user's tensors."""
    absent = [name for name in all_names(fused) if name not in data]
    if absent:
        raise InputError(f"data: {', '.join(absent)} not given. Give every tensor by name, as a call takes them.")
    return Problem.of_data(fused, dict(data), sizes)
