"""Steps → schedules whose blocks have one number of threads → programs → one program → source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from math import prod
from typing import Any, final

from sympy import Expr, Integer, Symbol

from redalg.display import Displayed, Printed
from redalg.errors import PlanError, RedalgError
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Bind, TileProgram
from redalg.lower_tile.place.rolled import PoolTensor, roll_programs
from redalg.lower_tile.place.together import MOST_BESIDE, Step, join_programs
from redalg.lower_tile.text.emit import Source, emit
from redalg.lower_tile.text.origins import Results
from redalg.lower_tile.text.together import grid_points
from redalg.pipeline import write_source
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import lower_passes, plannable, problem_of, run_time_sizes
from redalg.runtime.together.steps import FunctionStep, Kind, Size, Steps
from redalg.strategies.binding import bind_axes
from redalg.strategies.device import device_for
from redalg.strategies.schedule import Schedule, numbers_of
from redalg.strategies.search.candidates import rank_candidates
from redalg.strategies.search.space import Space
from redalg.strategies.varying import check_varying, with_symbols

THREADS = (128, 256)
"""The threads of a block, the preferred number first."""
NAME = "steps"
MOST_TEXTS = 40
"""Steps that have a text each; more are rounds of those that are alike."""
MOST_TRIED = 16
"""Schedules of a step that are tried."""
Table = tuple[tuple[int, ...], ...]


@final
@dataclass(frozen=True, repr=False)
class LoweredSteps(Displayed):
    """The text of one launch for all steps.

    Attributes:
        source: the text, with its program.
        tables: key -> the integers of a table that the program takes beside the inputs.
        stages: step -> its stages, of every step whose kernels the text has.
        results: step -> parameter -> the output of its function that it holds.
    """

    source: Source
    tables: Mapping[str, Table]
    stages: Mapping[int, Stages]
    results: Results

    def listing(self) -> str:
        """The text, every line numbered, with the slots of its step that it serves; a legend has those of all steps."""
        return Printed(self._view.text(self))

    def __str__(self) -> str:
        return str(self.source)


def lower_steps(
    steps: Steps, target: str, dtypes: Mapping[str, str], lengths: tuple[int, ...] = ()
) -> LoweredSteps:  # fmt: skip
    """The launch of steps on a target.

    Args:
        steps: the functions.
        target: a card or an architecture.
        dtypes: of the inputs.
        lengths: of the sizes that vary, for which schedules are chosen: the launch takes others too.

    Raises:
        PlanError: the steps have no kernels of one number of threads, one of them needs several passes, or a schedule
            depends on a size that varies.
    """
    key = tuple(dtypes[name] for name in steps.inputs)
    return _lower_steps(steps, target, key, lengths)


@cache
def _lower_steps(steps: Steps, target: str, dtypes: tuple[str, ...], lengths: tuple[int, ...]) -> LoweredSteps:
    given, refused = dict(zip(steps.inputs, dtypes, strict=True)), list[PlanError]()
    for threads in THREADS:
        try:
            return lower_by_threads(steps, target, given, dict(zip(steps.sizes, lengths, strict=True)), threads)
        except PlanError as refusal:
            refused.append(refusal)
    raise refused[0]


def lower_by_threads(
    steps: Steps, target: str, dtypes: Mapping[str, str], sizes: Mapping[str, int], threads: int
) -> LoweredSteps:  # fmt: skip
    """As `lower_steps`, of blocks of so many threads; `sizes` has the lengths of those that vary."""
    known, lengths, levels, found = dict(dtypes), dict[str, int](), dict[str, int](), list[Step]()
    stages = list[Stages]()
    is_long = len(steps.steps) > MOST_TEXTS or any(any(step.offsets) for step in steps.steps)
    is_rolled, last = is_long and not steps.in_turn, 0
    if is_rolled and sizes:
        raise PlanError("steps that are rounds of one launch have sizes that are known, and here "
                        f"{', '.join(sizes)} vary. Take fewer steps.")  # fmt: skip
    width = most_alike(steps) if is_rolled else 1
    for step in steps.steps:
        lowered = lower_step(step, target, tuple(known[read] for read in step.reads), sizes, (threads, width))
        level = last if steps.in_turn else max((levels[name] for name in step.reads if name in levels), default=0)
        last = level + len(lowered.program.kernels)
        results = dict(zip(lowered.results, step.writes, strict=True))
        offsets = {name: offset for name, offset in zip(step.names, step.offsets, strict=True) if offset}
        keys = dict(zip(step.names, step.reads, strict=True)) | results
        symbols = symbols_of_call(step, lowered)
        stages.append(lowered.stages)
        found.append(Step(lowered.program, numbers_of(lowered.plan), level, keys, offsets, symbols))
        levels |= dict.fromkeys(step.writes, last)
        known |= {results[name]: dtype for name, dtype in lowered.results.items()}
        if is_rolled:
            lengths |= {results[one.key]: prod(one.shape) for one in lowered.program.parameters if one.key in results}
    outputs, first = [name for name, _, _ in steps.outputs], found[0].plan
    if not is_rolled:
        of_call = {size_of_call(name): length for name, length in sizes.items()}
        program, tables = join_programs(NAME, found, outputs, of_call), dict[str, Table]()
    else:
        lengths |= lengths_of_inputs(steps)
        tensors = [PoolTensor(name, length, known[name]) for name, length in lengths.items()]
        rolled = roll_programs(NAME, found, tensors, steps.inputs, outputs)
        program, tables = rolled.program, dict(rolled.tables)
    verify(program)
    own = [number for number in dict.fromkeys(program.together.owners if program.together else ()) if number >= 0]
    return LoweredSteps(
        emit(program, first, str(program.together), ""), tables, {number: stages[number] for number in sorted(own)},
        {number: results_of_step(found[number], program, number) for number in own},
    )  # fmt: skip


def results_of_step(step: Step, program: TileProgram, number: int) -> dict[str, str]:
    """The names in the whole of what holds a step's outputs: of tensors, or of the rows of pools."""
    outputs = [own.key if own.role == "output" else "" for own in step.program.parameters]
    if program.together and program.together.rounds:
        kernel = program.kernels[program.together.owners.index(number)]
        rows = [one.name for one in kernel.body if isinstance(one, Bind)]  # first those of the parameters
        return {row: key for row, key in zip(rows, outputs, strict=False) if key}
    keys = {step.keys[key]: key for key in outputs if key}
    return {one.name: keys[one.key] for one in program.parameters if one.key in keys}


def most_alike(steps: Steps) -> int:
    """The most steps of one kind in a level: of what relies on each other, each is a level later."""
    levels, counts = dict[str, int](), Counter[tuple[Kind, int]]()
    for step in steps.steps:
        level = max((levels[name] for name in step.reads if name in levels), default=0)
        counts[step.kind, level] += 1
        levels |= dict.fromkeys(step.writes, level + 1)
    return max(counts.values())


def lengths_of_inputs(steps: Steps) -> dict[str, int]:
    """The elements of every input that steps read, as far as they read it."""
    lengths = dict[str, int]()
    for step in steps.steps:
        for name, shape, offset in zip(step.reads, step.views, step.offsets, strict=True):
            if name in steps.inputs:
                lengths[name] = max(lengths.get(name, 0), offset + prod(shape))
    return lengths


def size_of_call(name: str) -> Symbol:
    """The symbol of a size that a call gives."""
    return Symbol(name, integer=True, positive=True)


def symbols_of_call(step: FunctionStep, lowered: Lowered) -> dict[Symbol, Expr]:
    """The run-time sizes of a step's kernels, and what they are in the call: a size of it, or a number.

    Raises:
        PlanError: a kernel takes a size that varies for a number.
    """
    if fixed := step.varying_axes.keys() - lowered.problem.varying:
        raise PlanError(f"a kernel takes the length of axis {', '.join(sorted(fixed))} for a number, and it varies.")
    symbolic = with_symbols(lowered.problem, lowered.stages.loop)
    found = {symbolic.sizes[axis]: value_of_call(size) for axis, size in step.varying_axes.items()}
    views = dict(zip(step.names, step.views, strict=True))
    for name, shape in symbolic.shapes.items():  # dimensions that places index have symbols too
        own = views.get(name, ())
        found |= {each: value_of_call(size) for each, size in zip(shape, own, strict=len(own) == len(shape))
                  if isinstance(each, Symbol) and each not in found}  # fmt: skip
    return found


def value_of_call(size: Size) -> Expr:
    """A size as the whole has it: a number, or the symbol of one that a call gives."""
    return size_of_call(size) if isinstance(size, str) else Integer(size)


def lower_step(
    step: FunctionStep, target: str, dtypes: tuple[str, ...], lengths: Mapping[str, int], room: tuple[int, int]
) -> Lowered:  # fmt: skip
    """The kernels of a step; of steps that are alike once.

    `lengths` has those of sizes that vary. `room`: threads of a block, and steps beside each other.
    """
    alike = replace(step.at(lengths), reads=(), offsets=(), writes=())
    return _lower_alike(alike, target, dtypes, frozenset(step.varying_axes), room)


@cache
def _lower_alike(
    step: FunctionStep, target: str, dtypes: tuple[str, ...], varying: frozenset[str], room: tuple[int, int]
) -> Lowered:  # fmt: skip
    threads, width = room
    shapes, own = dict(zip(step.names, step.views, strict=True)), dict(zip(step.names, dtypes, strict=True))
    most = MOST_BESIDE * device_for(target).multiprocessors // width
    each = partial(lower_form, threads=threads, most_points=most, varying=varying)
    lowered = lower_passes(step.function_of_step().passes, target, dict(step.sizes), own, each, shapes=shapes)
    if len(lowered) != 1:
        raise PlanError("a step of one launch takes one pass over its data, and one here takes "
                        f"{len(lowered)}. Make each pass a step.")  # fmt: skip
    return lowered[0]


def lower_form(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], *, threads: int,
    most_points: int, **options: Any,
) -> Lowered:  # fmt: skip
    """The kernels of a form, by the first schedule whose blocks have so many threads.

    One whose grid has at most so many points comes before all others, among those that are tried.
    """
    options.pop("plan", None)
    problem = problem_of(form, target, sizes, dtypes, **options)
    stages, problem = plannable(form, problem)
    check_varying(problem.varying, stages, bind_axes(stages.loop, problem.sizes), problem)
    found = list[Lowered]()
    suitable = (plan for plan in schedules_of(Space(stages, problem, target)) if suits(plan, threads))
    for plan in islice(suitable, MOST_TRIED):
        with suppress(RedalgError):  # a schedule without a program
            found.append(write_source(stages, [plan], problem))
            sizes_now = run_time_sizes(found[-1].program, found[-1].problem, found[-1].stages.loop)
            if all(grid_points(kernel, sizes_now) <= most_points for kernel in found[-1].program.kernels):
                return found[-1]
    if not found:
        raise PlanError(f"`{form.outputs[0].name}` has no schedule of {threads} threads a block that can share a "
                        "launch. Leave what computes it out.")  # fmt: skip
    return found[0]


def schedules_of(space: Space) -> Iterator[Schedule]:
    """Yield the rules' schedules, and then all others, best first."""
    yield from space.by_rules
    yield from (each.plan for each in rank_candidates(space) if isinstance(each.plan, Schedule))


def suits(schedule: Schedule, threads: int) -> bool:
    """Tell if a schedule's blocks may share a launch with others of so many threads: all of them do the same."""
    plan = numbers_of(schedule)
    return plan.threads == threads and not plan.warp_specialized and not plan.persistent
