"""Errors of a function beside those of its formula evaluated naively, on families of data.

reference   the definition in float64 or wider (`reference`)
redalg      the call
naive       the definition as it was written, by plain operations in the dtype of the result
inputs      the reference of data that are moved by half of their last binary digit, beside that of the data: an
            error that no algorithm avoids, since the data are known no better
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np

from redalg.errors import InputError, RedalgError
from redalg.expression.arguments import answer_methods, short_text
from redalg.expression.dtypes import DTYPES, is_float
from redalg.expression.spelling import did_you_mean
from redalg.instruments.drawing import Measurable, Setting, Tensors, dtype_of_result
from redalg.instruments.errors import Output, Outputs, Truth, error_text, named_results, output_error
from redalg.instruments.families import DATA_FAMILIES, Family
from redalg.instruments.plotting import draw_errors
from redalg.instruments.reference import FLOAT64, Definition, is_finite_array
from redalg.progress import progress_bar
from redalg.runtime.bind.inputs import array_dtype, library_name
from redalg.runtime.bind.options import Sizes, named_sizes
from redalg.strategies.table import Table, Tabled

GIVEN = "data"
"""The name of what the user gives, in place of a family's."""
LEGEND = """\
error: max|out - ref| / max|ref|, ref in {}; -: the definition has no value
naive: the formula as written, in the data's dtype
inputs: what rounding the data alone changes"""
BESIDE = 2.0
"""Errors that differ by less are alike."""
DOUBTFUL = 4.0
"""An error of less than so many times the reference's own is not told apart from it."""
UNCERTAIN = """\
< and "reference errs by": the formula cancels in the reference, too, and too many numbers go into one output for 120 \
digits; smaller sizes tell the error"""


@final
@dataclass(frozen=True)
class AccuracyRow:
    """The errors of one output on one family: max|out - ref| / max|ref|, infinite where only one of both is finite.

    Attributes:
        data: the family.
        dtype: of the data.
        output: its name.
        redalg, naive: errors; NaN where it failed.
        inputs: the error that rounding the data alone makes.
        note: said in place of a comparison, where the reference does not tell all values.
        failure: the reasons why there is no error of a contestant.
        reference: the arithmetic of the reference.
        doubt: the error of the reference itself, where the dtype does not hide it.

    >>> row = AccuracyRow("offset 1e6", "float32", "out", 0.7, 0.9, 0.3, doubt=0.5)
    >>> row.is_told, row.verdict
    (False, 'reference errs by 5.0e-01')
    """

    data: str
    dtype: str
    output: str
    redalg: float
    naive: float
    inputs: float
    note: str = ""
    failure: str = ""
    reference: str = FLOAT64
    doubt: float = 0.0

    @property
    def is_told(self) -> bool:
        """Tells if redalg's error is more than what the reference may err by itself."""
        return not self.doubt or self.redalg > DOUBTFUL * self.doubt

    @property
    def texts(self) -> tuple[str, str, str]:
        """The errors of redalg, of the naive formula and of the inputs, as a table shows them."""
        errors = [error_text(one) for one in (self.redalg, self.naive, self.inputs)]
        own, naive, inputs = errors if self.is_told else [f"<{one}" for one in errors]
        return own, naive, inputs

    @property
    def verdict(self) -> str:
        """The nearer of both, in words."""
        if self.failure:
            return "failed"
        if not self.is_told:
            return f"reference errs by {error_text(self.doubt)}" if math.isfinite(self.doubt) else "uncertain reference"
        if self.note:
            return self.note
        floor = DTYPES[self.dtype].roundoff
        own, other = max(self.redalg, floor), max(self.naive, floor)
        if math.isinf(own) or math.isinf(other):
            names = [name for name, one in (("redalg", own), ("naive", other)) if math.isfinite(one)]
            return f"only {names[0]} is finite" if names else "neither is finite"
        if own <= BESIDE * other and other <= BESIDE * own:
            return "alike"
        return f"{times_text(other / own)} less" if own < other else f"{times_text(own / other)} more"


def plain_value(value: Any) -> Any:
    """A value as JSON has it: a number that is not finite is a string."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def times_text(ratio: float) -> str:
    """A ratio in words.

    >>> times_text(3.2), times_text(1234.0), times_text(2e8)
    ('3 times', '1,234 times', '2e+08 times')
    """
    return f"{ratio:,.0f} times" if ratio < 1e6 else f"{ratio:.0e} times"


@answer_methods(InputError)
@final
@dataclass(frozen=True, repr=False)
class Accuracy(Tabled):
    """The errors of a function, by family of data and output; it prints as a table.

    Attributes:
        title: the sizes and the backend.
        rows: in the order of the families.

    >>> found = Accuracy("accuracy, n=4", (AccuracyRow("offset 1e6", "float32", "out", 1e-7, 1e-2, 1e-3),))
    >>> found.worst.verdict
    '100,000 times less'
    >>> found.table().rows
    (('offset 1e6', '1.0e-07', '1.0e-02', '1.0e-03', '100,000 times less'),)
    >>> len(found.tables()), found.reference
    (1, 'float64')
    >>> found.to_json()[:28], found.plot().axes[0].get_xlabel()
    ('{"title": "accuracy, n=4", "', 'error: max|out − ref| / max|ref|')
    """

    title: str
    rows: tuple[AccuracyRow, ...]

    @property
    def reference(self) -> str:
        """The arithmetics of the references, each named once."""
        return " or ".join(dict.fromkeys(row.reference for row in self.rows))

    @property
    def worst(self) -> AccuracyRow:
        """The row of redalg's largest error, of those that the reference tells."""
        return max(self.rows, key=lambda row: row.redalg if row.is_told and not math.isnan(row.redalg) else -1.0)

    def table(self) -> Table:
        """The table; outputs and dtypes have columns where there are several."""
        several = {name: len({getattr(row, name) for row in self.rows}) > 1 for name in ("dtype", "output")}
        extra = [name for name, is_column in several.items() if is_column]
        rows = tuple((row.data, *(getattr(row, name) for name in extra), *row.texts, row.verdict) for row in self.rows)
        note = LEGEND.format(self.reference) + ("" if all(row.is_told for row in self.rows) else f"\n{UNCERTAIN}")
        failed = dict.fromkeys(f"{row.data}: {row.failure}" for row in self.rows if row.failure)
        columns = ("data", *extra, "redalg", "naive", "inputs", "redalg beside naive")
        return Table(self.title, columns, rows, "\n".join([note, *failed]))

    def tables(self) -> list[Table]:
        """The table alone."""
        return [self.table()]

    def to_json(self) -> str:
        """The rows as JSON; what is not finite is written as a string."""
        rows = [{name: plain_value(each) for name, each in asdict(row).items()} for row in self.rows]
        return json.dumps({"title": self.title, "reference": self.reference, "rows": rows}, ensure_ascii=False)

    def plot(self) -> Any:
        """A figure of Matplotlib: the errors on a logarithmic scale, redalg's beside the naive formula's, by family.

        Raises:
            BackendError: Matplotlib is not installed.
        """
        return draw_errors(self.title, [(label_of(row, self.rows), row.redalg, row.naive) for row in self.rows])


def label_of(row: AccuracyRow, rows: Sequence[AccuracyRow]) -> str:
    """The name of a row in a plot: its family, and what else tells rows apart."""
    extra = [name for name in ("dtype", "output") if len({getattr(each, name) for each in rows}) > 1]
    return ", ".join([row.data, *(getattr(row, name) for name in extra)])


# ---- measuring -------------------------------------------------------------------------------------------------------


def measure_accuracy(
    settings: Sequence[Setting], backend: str | None, chosen: Sequence[Family] = DATA_FAMILIES
) -> Accuracy:  # fmt: skip
    """The errors on drawn data, for every setting and family."""
    cases = [(setting, family) for setting in settings for family in chosen]
    rows = list[AccuracyRow]()
    with progress_bar("accuracy", len(cases)) as tell:
        for number, (setting, family) in enumerate(cases):
            tell(number, f"{family.name}, {setting.result}")
            tensors = drawn_data(setting, family)
            if tensors is not None:
                judge = Judge.of(setting.fused, tensors, setting.absent_sizes, backend)
                rows += judge.rows(family.name, lenient=family.infinite > 0)
    sizes = " ".join(f"{axis}={size}" for axis, size in settings[0].all_sizes.items())
    dtypes = ", ".join(dict.fromkeys(setting.result for setting in settings))
    title = f"accuracy, {sizes}, {dtypes}{'' if backend is None else f', {backend}'}"
    return Accuracy(title, tuple(rows))


def drawn_data(setting: Setting, family: Family) -> Tensors | None:
    """Tensors of a family; None if it suits none of those that are reduced."""
    data = [name for name in setting.shapes if is_float(setting.dtypes[name])]
    streamed = [name for name in data if setting.numbers(name).streamed_place is not None] or data
    suited = [name for name in streamed if family.suits(setting.numbers(name))]
    return setting.draw(family.make, suited, name=family.name) if suited else None


def accuracy_of_data(
    fused: Measurable, data: Mapping[str, Any], backend: str | None, sizes: Sizes | None
) -> Accuracy:  # fmt: skip
    """The errors on a user's tensors."""
    if not any(library_name(one) for one in data.values()):
        raise InputError("accuracy: data= holds no tensor. Give tensors by name, as a call takes them.")
    with progress_bar("accuracy of the data"):
        judge = Judge.of(fused, dict(data), named_sizes(fused.cascade, sizes), backend)
        rows = tuple(judge.rows(GIVEN))
    shapes = ", ".join(f"{name} {tuple(one.shape)}" for name, one in data.items() if library_name(one))
    title = f"accuracy, {shapes}, {judge.dtype}{'' if backend is None else f', {backend}'}"
    return Accuracy(title, rows)


@final
@dataclass(frozen=True)
class Judge:
    """A call on tensors, and how it is judged.

    Attributes:
        fused: the function.
        tensors: tensors and scalars by name.
        sizes: those that no tensor has.
        backend: of the call.
        dtype: of its result.
    """

    fused: Measurable
    tensors: Tensors
    sizes: Mapping[str, int]
    backend: str | None
    dtype: str

    @staticmethod
    def of(fused: Measurable, tensors: Tensors, sizes: Mapping[str, int], backend: str | None) -> Judge:
        """The judge of a call."""
        dtypes = [array_dtype(one) for one in tensors.values() if library_name(one)]
        return Judge(fused, tensors, sizes, backend, dtype_of_result(dtypes))

    def rows(self, family: str, *, lenient: bool = False) -> Iterator[AccuracyRow]:
        """A row for each output.

        Args:
            family: of the data.
            lenient: an output may be not finite where the reference is finite.
        """
        names = [one.name for one in self.fused.cascade.outputs]
        finite_data = all(map(is_finite_array, self.tensors.values()))
        definition = Definition(self.fused, self.tensors, self.sizes, self.dtype)
        failures = dict[str, str]()
        own = try_contestant("redalg", lambda: named_results(
            self.fused(**self.tensors, backend=self.backend, sizes=self.sizes), names), failures)  # fmt: skip
        known = definition.reference(own)
        naive = try_contestant("naive", lambda: definition.evaluate(self.tensors, self.dtype), failures)
        told = "; ".join(f"{name}: {text}" for name, text in failures.items())
        for name in names:
            moved = known.moved[name]
            truth = Truth.of(known.outputs[name], finite_data=finite_data, lenient=lenient, beside=moved)
            mine, other = (None if one is None else known.part_of(name, one[name]) for one in (own, naive))
            own_error, naive_error = (math.nan if one is None else output_error(one, truth) for one in (mine, other))
            change = output_error(moved, replace(truth, lenient=True))
            note = "" if truth.is_whole or mine is None or other is None else unknown_note(mine, other, truth)
            arithmetic, doubt = known.arithmetic, known.doubts[name]
            yield AccuracyRow(family, self.dtype, name, own_error, naive_error, change, note, told, arithmetic, doubt)


def unknown_note(own: Output, naive: Output, truth: Truth) -> str:
    """The words on places whose value the reference does not tell, since it leaves its range there."""
    finite = [bool(np.isfinite(one.array[~truth.is_known]).all()) for one in (own, naive)]
    if finite[0] != finite[1]:
        return f"no reference; only {'redalg' if finite[0] else 'naive'} is finite"
    return "no reference"


def try_contestant(who: str, call: Callable[[], Outputs], failures: dict[str, str]) -> Outputs | None:
    """The outputs of a call; what it raises is written down."""
    try:
        return call()
    except (RedalgError, RuntimeError, ValueError, TypeError) as failure:
        failures[who] = (str(failure).strip().splitlines() or [type(failure).__name__])[0][:200]
        return None


def families_named(names: Iterable[str] | None) -> Sequence[Family]:
    """The families of these names, or all.

    Raises:
        InputError: there is none of a name.
    """
    if names is None:
        return DATA_FAMILIES
    known = {one.name: one for one in DATA_FAMILIES}
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if not isinstance(name, str) or name not in known]
    if unknown:
        near = did_you_mean(str(unknown[0]), known)
        raise InputError(f"accuracy: there is no family {short_text(unknown[0])}.{near} There are {', '.join(known)}.")
    return [known[name] for name in names]
