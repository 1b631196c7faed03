"""Measure plans on a device and remember the fastest: the work of `Fused.tune`.

    task      form and tensors of the last pass, its space of plans, the unfused definition's outputs; the unfused form
              as a plan where it is admitted, which needs no compiler
    measure   build → compile, side by side, until a deadline → check → time (graph replay, inputs rotated past L2)
    result    every trial; the fastest is kept in the cache folder, and calls of this process take it from now on

On the CPU the C target's plans are timed by the wall, one at a time, when all compilers are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from os import cpu_count
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, final

from redalg.errors import InputError, RedalgError
from redalg.expression.arguments import short_text
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.pipeline import write_source
from redalg.progress import progress_bar
from redalg.runtime.bind import backends
from redalg.runtime.bind.gathers import gathers_any
from redalg.runtime.bind.inputs import Bound, check_choice, check_memory, scalars_of
from redalg.runtime.call import prepared, sizes
from redalg.runtime.call.dispatch import bind_pass, define, start_earlier_passes
from redalg.runtime.call.kernels import check_device, check_indices, recipe_of, refuse_missing_torch, steps_of_product
from redalg.runtime.call.prepared import Step
from redalg.runtime.compile.cache import one_at_a_time
from redalg.runtime.compile.compile import compile_source
from redalg.runtime.known import stored, tuned
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import ByLibrary, offer_product, space_for, target_of
from redalg.runtime.tune.compiling import STOPPED, Compilers, Job
from redalg.runtime.unfused import unfused
from redalg.runtime.unfused.product import ProductPass
from redalg.runtime.unfused.unfused import Unfused
from redalg.strategies.schedule import AnySchedule, Definition, LibraryProduct, Schedule
from redalg.strategies.search.candidates import Neighbourhood
from redalg.strategies.search.search import Found, Limits, Outcome, Trial, search, time_of
from redalg.strategies.search.space import Space
from redalg.strategies.table import Table, Tabled

if TYPE_CHECKING:
    from redalg.runtime.tune.verified import Verifier

SAMPLES = 7
"""Samples of each plan: replays of a graph, or calls on the CPU."""
AGAIN = 3
"""The number of the fastest plans that are timed once more when the search is over: a lucky moment is no speed."""
SHARE = 0.5
"""The share of the time left that the compilers of one round get."""
FEW = Limits(population=16, batch=4, patience=1)
"""Limits on the CPU, where plans are compiled beside each other on few cores."""
Inputs = Mapping[str, Any]
Attempt = tuple[Lowered, Job] | ByLibrary | str


@final
@dataclass(frozen=True)
class Tuning:
    """The options of `Fused.tune`."""

    budget_s: float = 35.0
    seed: int = 0
    progress: bool = True
    empty: str = "nan"
    precision: str = "ieee"
    memory: int | None = None

    def check(self) -> None:
        """Refuse options that no tuning has."""
        check_choice("empty", self.empty, "tune: ")
        check_choice("precision", self.precision, "tune: ")
        check_memory(self.memory, "tune: ")
        if not isinstance(self.seed, int):
            raise InputError(f"tune: seed={short_text(self.seed)} should be an int.")
        if getattr(self.budget_s, "ndim", 0) or not self.budget_s > 0:
            raise InputError(f"tune: budget_s={short_text(self.budget_s)} is no time. Give seconds, more than 0.")


@final
@dataclass(frozen=True, repr=False)
class Tuned(Tabled):
    """The result of tuning; it prints as a table of trials, fastest first.

    Attributes:
        found: the search's result.
        rules: the plan that was taken before.
        card: the device that it holds for.
        wall_s: seconds that all took, compilers and checks included.
        path: the file that remembers the fastest; None if no plan worked.

    >>> import redalg as ra, torch
    >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> found = total.tune(x=torch.ones(64, 4096), budget_s=10)  # doctest: +SKIP
    >>> found.best.candidate, len(found.trials)  # doctest: +SKIP
    >>> print(found.table(3))  # doctest: +SKIP
    >>> print(found.tables()[0])  # doctest: +SKIP
    """

    found: Found[AnySchedule]
    rules: AnySchedule
    card: str
    wall_s: float
    path: Path | None

    @property
    def trials(self) -> tuple[Trial[AnySchedule], ...]:
        """Every plan that was tried: `candidate`, `predicted_us`, `measured_us`, `failure`."""
        return self.found.trials

    @property
    def best(self) -> Trial[AnySchedule] | None:
        """The fastest; None if none worked."""
        return self.found.best

    def table(self, most: int | None = 16) -> Table:
        """The first `most` trials, None for all."""
        table = self.found.table(f"tuned for {self.card} in {self.wall_s:.1f} s", most)
        if self.best is None and self.found.stopped == "budget":
            return replace(table, note=f"{table.note}; none was measured in time: give a larger budget_s")
        before = next((one.measured_us for one in self.trials if one.candidate == self.rules), None)
        if before is None or self.best is None or self.best.measured_us is None:
            return table
        faster = f"the rules' plan {before:.2f} µs, the best {before / self.best.measured_us:.2f} times as fast"
        return replace(table, note=f"{table.note}; {faster}")

    def tables(self) -> list[Table]:
        """The table alone."""
        return [self.table()]


def tune(passes: Passes, inputs: Inputs, extents: Mapping[str, int], how: Tuning) -> Tuned:
    """Search the plans of the last pass on these tensors, and remember the fastest."""
    start = monotonic()
    how.check()
    refuse_missing_torch()
    with one_at_a_time("tuning", "begins to tune"):  # whether the folder can be written is found out before, not after
        pass
    task = task_of(passes, inputs, extents, how)
    rules, *_ = task.space.plans()
    estimates: dict[AnySchedule, float] = {plan: prediction.time_us for prediction, plan in task.space.rank()}
    estimates |= {one.plan: one.prediction.time_us for one in task.by_library}
    plans, on_cpu, end = list(estimates), task.bound.device == "cpu", start + how.budget_s
    limits = FEW if on_cpu else Limits(population=len(plans))  # all are estimated: the model's best are the first
    with (
        Compilers(max(1, (cpu_count() or 1) - on_cpu)) as compilers,
        progress_bar("tuning", how.budget_s, enabled=how.progress) as tell,
    ):
        measuring = Measuring(task, compilers, end, lambda text: tell(min(monotonic() - start, how.budget_s), text))
        result = search(plans, lambda plan: estimates.get(plan) or task.predicted_us(plan), measuring,
                        Neighbourhood.of(plans).beside, starts=first_plans(task, rules), seed=how.seed,
                        over=lambda: monotonic() >= end, limits=limits)  # fmt: skip
        result = time_fastest_again(with_late(result, measuring), measuring)
    return keep_fastest(task, result, rules, start)


def with_late(result: Found[AnySchedule], measuring: Measuring) -> Found[AnySchedule]:
    """The result with plans that were compiled after their round; if none was measured, the first are waited for."""
    outcomes = {plan: measuring.outcome(plan, attempt, monotonic() if measuring.times else measuring.end)
                for plan, attempt in list(measuring.late.items())}  # fmt: skip

    def with_outcome(trial: Trial[AnySchedule]) -> Trial[AnySchedule]:
        outcome = outcomes.get(trial.candidate)
        if outcome is None:
            return trial
        return replace(trial, measured_us=outcome.measured_us, failure=outcome.failure)

    return replace(result, trials=tuple(map(with_outcome, result.trials)))


def time_fastest_again(result: Found[AnySchedule], measuring: Measuring) -> Found[AnySchedule]:
    """Time the fastest once more when all others are done, and give them the mean of both times."""
    measured = [one for one in result.trials if one.measured_us is not None]
    fastest = sorted(measured, key=time_of)[:AGAIN]
    again = {one.candidate: measuring.again(one) for one in fastest} if len(fastest) > 1 else {}
    trials = (replace(one, measured_us=again.get(one.candidate, one.measured_us)) for one in result.trials)
    return replace(result, trials=tuple(trials))


def first_plans(task: Task, rules: AnySchedule) -> list[AnySchedule]:
    """The plans that are measured first: the plan of the rules, no kernel at all, the plans remembered.

    The result is no slower than they are.
    """
    schedules = (one for one in tuned.tuned_schedules(task.form, task.space) if isinstance(one, Schedule))
    return [
        rules,
        *(one.plan for one in task.by_library),
        *(replace(one, predicted_us=None, origin=rules.origin) for one in schedules),
    ]


def keep_fastest(task: Task, result: Found[AnySchedule], rules: AnySchedule, start: float) -> Tuned:
    """Remember the fastest of each form, a kernel or not; let calls of this process take the fastest of all."""
    path, problem = None, task.space.problem
    for kind in (Schedule, Definition, LibraryProduct):
        same = [one for one in result.trials if isinstance(one.candidate, kind)]
        best = Found(tuple(same), result.listed, result.stopped).best
        if best is not None and best.measured_us is not None:
            key = tuned.problem_key(task.form, problem, task.space.device)
            entry_sizes, plan = tuned.key_sizes(task.form, problem), stored.write_line(best.candidate)
            path = tuned.remember(tuned.Entry(key, entry_sizes, plan, best.measured_us, best.predicted_us))
    if path is not None:
        sizes.forget(task.form)
        prepared.forget(task.form)
    return Tuned(result, rules, tuned.card_name(task.space.device), monotonic() - start, path)


# ---- the task --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Task:
    """The task of tuning: the last pass, its tensors, its plans (`by_library`: no kernels), the wanted outputs."""

    passes: Passes
    whole: Inputs
    extents: Mapping[str, int]
    inputs: Inputs
    bound: Bound
    space: Space
    by_library: tuple[ByLibrary, ...]
    options: Mapping[str, Any]

    @property
    def form(self) -> FusedForm:
        """The last pass."""
        return self.passes.last

    def predicted_us(self, plan: AnySchedule) -> float:
        """The time that the model predicts; ∞ for what is no kernel and is not offered."""
        if not isinstance(plan, Schedule):
            found = self.without_kernel(plan)
            return inf if found is None else found.prediction.time_us
        return self.space.predict(plan).time_us

    def without_kernel(self, plan: AnySchedule) -> ByLibrary | None:
        """The form that a plan without a kernel stands for; None if it is not offered."""
        return next((one for one in self.by_library if one.plan == plan), None)

    @cached_property
    def verifier(self) -> Verifier:
        """The verifier, which knows the unfused definition's outputs on these tensors."""
        from redalg.runtime.tune.verified import Verifier, shake

        def outputs(moved: float) -> Mapping[str, Any]:
            return define(self.passes, shake(self.whole, moved), self.extents)

        return Verifier.of(self.form, self.bound, outputs)

    @cached_property
    def scalars(self) -> dict[str, float]:
        """The run-time scalars."""
        return scalars_of(self.form.cascade, self.inputs)

    @cached_property
    def sets(self) -> list[dict[str, Any]]:
        """Copies of the tensors that together exceed L2, as many as half of the free memory holds."""
        import torch

        from redalg.runtime.tune.timing import input_sets

        if self.bound.device == "cpu":
            return [dict(self.inputs)]
        tensors = {name: self.inputs[name] for name in self.bound.tensors}
        set_bytes = max(1, sum(tensor.nbytes for tensor in tensors.values()))
        free = torch.cuda.mem_get_info(self.bound.device)[0] // 2 // set_bytes
        count = max(1, min(input_sets(set_bytes, torch.device(self.bound.device)), 1 + free))
        copies = [{name: tensor.clone() for name, tensor in tensors.items()} for _ in range(count - 1)]
        return [dict(self.inputs), *({**self.inputs, **copy} for copy in copies)]


def task_of(passes: Passes, inputs: Inputs, extents: Mapping[str, int], how: Tuning) -> Task:
    """The task of tensors: the passes before the last are run with the plans that they have."""
    form = passes.last
    options = {"empty": how.empty, "precision": how.precision, "plan": None, "memory": how.memory, "check": True}
    _, tensors = start_earlier_passes(passes, inputs, "tilelang", extents, options)
    bound, own = bind_pass(passes, form, tensors, extents), passes.tensors_of(form, tensors)
    check_device(bound)
    none = [name for name, size in bound.sizes.items() if size == 0]
    if none:
        raise InputError(
            f"tune: axis {none[0]} has no elements, so that no kernel runs. Tune on tensors that have some."
        )
    if gathers_any(form.cascade):
        check_indices(form, bound)
    shapes = {name: tuple(one.shape) or (1,) for name, one in backends.tensors_for(bound, "torch").items()}
    space = space_for(form, target_of(bound.device), bound.sizes, bound.dtypes, shapes=shapes, empty=how.empty,
                      precision=how.precision, result=bound.result, memory=how.memory)  # fmt: skip
    offered = (unfused.offer_unfused(form, space), offer_product(form, space))
    return Task(passes, inputs, extents, own, bound, space, tuple(one for one in offered if one is not None), options)


# ---- measuring -------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Measuring:
    """Measure batches of plans: all are compiled at once, then run one after another.

    Attributes:
        tell: takes what is known so far, in words.
        late: plans that still compile when their round is over.
        lost: the reason why nothing runs any more, if a kernel broke the device's context.
    """

    task: Task
    compilers: Compilers
    end: float
    tell: Callable[[str], None]
    times: list[float] = field(default_factory=list)
    steps: dict[AnySchedule, Step] = field(default_factory=dict)
    late: dict[AnySchedule, Attempt] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def __call__(self, plans: Sequence[AnySchedule]) -> list[Outcome]:
        self.compilers.make_room(len(plans))
        attempts = [self.start(plan) for plan in plans]
        self.task.verifier  # noqa: B018 - the definition is evaluated while the compilers run
        self.compilers.wait_until_started(self.end)
        now = monotonic()
        deadline = now + SHARE * max(0.0, self.end - now)
        if self.task.bound.device == "cpu":  # they would disturb the clock
            for attempt in attempts:
                if wait_for_kernel(attempt, deadline) == STOPPED and isinstance(attempt, tuple):
                    attempt[1].give_up()
        return [self.outcome(plan, one, deadline) for plan, one in zip(plans, attempts, strict=True)]

    def start(self, plan: AnySchedule) -> Attempt:
        """A plan's program and the job that compiles it, or the reason why it has none. The unfused form needs none."""
        if not isinstance(plan, Schedule):
            return self.task.without_kernel(plan) or f"`{plan}` is not offered"
        try:
            lowered = write_source(self.task.space.stages, [replace(plan, origin="given")], self.task.space.problem)
        except RedalgError as refusal:
            return f"{refusal}"
        return lowered, self.compilers.submit(lowered.source)

    def outcome(self, plan: AnySchedule, attempt: Attempt, deadline: float) -> Outcome:
        """The time of a plan that is compiled."""
        failure = wait_for_kernel(attempt, deadline)
        if failure == STOPPED:
            self.late[plan] = attempt
        if failure or isinstance(attempt, str):
            return Outcome(None, short(failure))
        if self.lost:
            return Outcome(None, self.lost[0])
        if monotonic() > self.end and (self.times or isinstance(attempt, ProductPass)):  # it is compiled when it runs
            return Outcome(None, "not measured: the time was over")
        try:
            self.steps[plan] = self.step(attempt)
            outcome = self.check_and_time(self.steps[plan])
        except Exception as wrong:  # noqa: BLE001 - a plan's failure is a result
            if is_lost(self.task.bound.device):
                self.lost.append(f"not measured: this process lost the device to plan `{plan}`")
            return Outcome(None, short(f"{type(wrong).__name__}: {wrong}"))
        self.times.extend([outcome.measured_us] if outcome.measured_us is not None else [])
        best = min(self.times, default=None)
        text = f"{len(self.times)} measured" + ("" if best is None else f", best {best:.2f} µs")
        self.tell(text)
        return outcome

    def again(self, trial: Trial[AnySchedule]) -> float:
        """The mean of a trial's time and of one more, in microseconds."""
        first = time_of(trial)
        if self.lost:
            return first
        second = self.check_and_time(self.steps[trial.candidate]).measured_us if trial.candidate in self.steps else None
        return first if second is None else (first + second) / 2

    def step(self, attempt: ByLibrary | tuple[Lowered, Job]) -> Step:
        """The step that runs a plan that is compiled."""
        task = self.task
        if isinstance(attempt, Unfused):
            return unfused.unfused_operations(attempt, task.bound)
        if isinstance(attempt, ProductPass):
            return steps_of_product(attempt, task.bound, task.options)
        lowered, tensors = attempt[0], backends.tensors_for(task.bound, "torch")
        recipe = recipe_of(lowered, compile_source(lowered.source), task.bound, tensors)
        return partial(recipe.launch, scalars=[task.scalars[name] for name in recipe.scalars])

    def check_and_time(self, step: Step) -> Outcome:
        """Check a plan's result, then time it."""
        import torch

        from redalg.runtime.tune.timing import measure

        task = self.task
        wrong = task.verifier.check(step(task.inputs))
        if wrong:
            return Outcome(None, wrong)
        calls = [partial(step, one) for one in task.sets]
        return Outcome(measure(calls, torch.device(task.bound.device), samples=SAMPLES).median_us)


def is_lost(device: str) -> bool:
    """Tell if a kernel broke the device's context, so that nothing more runs on it in this process."""
    if device == "cpu":
        return False
    import torch

    try:
        torch.cuda.synchronize(device)
    except Exception:  # noqa: BLE001 - whatever it says: nothing can be waited for
        return True
    return False


def wait_for_kernel(attempt: Attempt, deadline: float) -> str:
    """The reason why a plan has no kernel, at the deadline at the latest; empty if it has one, or needs none."""
    if isinstance(attempt, str | ByLibrary):
        return attempt if isinstance(attempt, str) else ""
    return attempt[1].wait(deadline - monotonic())


def short(text: str) -> str:
    """The first line of a message, cut to the room that a table has."""
    lines = text.strip().splitlines() or ["it failed without a word"]
    return lines[0][:200]
