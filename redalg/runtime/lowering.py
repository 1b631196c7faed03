"""The choices between a form and its source, for given sizes and dtypes; `pipeline` has their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from redalg.errors import BackendError, InputError, PlanError, RedalgError
from redalg.expression.dtypes import DTYPES, is_emulated, is_float
from redalg.incremental.arrange.order import REWRITES, REWRITES_AFTER_PLANNING, rewrite_stages
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.incremental.stages import Stages, single
from redalg.lower_tile.check.fit import check_fit, check_operands, check_registers, fits
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.ir.runtime_sizes import sizes_in
from redalg.lower_tile.place.build import build
from redalg.lower_tile.place.parameters import problem_of_stage
from redalg.lower_tile.text.emit import Source, emit
from redalg.lower_tile.text.header import header, self_check
from redalg.runtime.bind.arrays import output_dtype
from redalg.runtime.bind.inputs import check_choice, check_memory, promote_dtypes
from redalg.runtime.bind.options import missing_dtypes_error
from redalg.runtime.known.tuned import tuned_schedules
from redalg.runtime.lowered import Lowered
from redalg.runtime.unfused.product import (
    ProductPass,
    beats_kernel,
    first_product,
    multiplies_slowly,
    part_problem,
    product_pass,
    product_refusal,
    require_product,
    rows_of_part,
    shapes_of_part,
)
from redalg.runtime.unfused.unfused import (
    Unfused,
    admit_unfused,
    moved_bytes,
    obstacle,
    offer_unfused,
    outruns_kernel,
)
from redalg.strategies.binding import bind_axes
from redalg.strategies.device import CARDS, card_of, device_for
from redalg.strategies.plan import Plan, Problem, shape_of
from redalg.strategies.schedule import (
    TUNED,
    AnySchedule,
    Definition,
    LibraryProduct,
    Schedule,
    check_tiles,
    for_form,
    numbers_of,
    schedule_of,
    warn_of_flat_names,
)
from redalg.strategies.search.candidates import Candidates, rank_candidates
from redalg.strategies.search.choice import loses_to, preferred_schedule
from redalg.strategies.search.space import Space
from redalg.strategies.varying import check_varying, with_symbols
from redalg.unfused.standalone import Example, check_script

Result = TypeVar("Result")
ByLibrary = Unfused | ProductPass
"""What a call may leave to PyTorch."""
REPLACEABLE = (*TUNED, "model")
"""Origins of schedules that give way to the rules' if they have no program, or none that fits."""


def plans_for(
    form: FusedForm, stages: Stages, problem: Problem, target: str, plan: AnySchedule | None
) -> list[Schedule]:
    """The schedules to try for the stages of a form: the given one, or the tuned, the model's and the rules'."""
    plan = checked_plan(plan, target)
    if plan is not None and not isinstance(plan, Schedule):
        raise PlanError(
            f"the plan `{plan}` has no kernel of its own: it takes PyTorch's operations. Pass it to a call, or leave "
            "plan= out."
        )
    if plan is not None:
        binding = bind_axes(stages.loop, problem.sizes)
        schedule = for_form(plan, binding, device_for(target))
        check_tiles(schedule, binding.all_sizes(problem.sizes), problem.varying)
        return [replace(schedule, origin="given")]
    space = Space(stages, problem, target)
    by_rules, tuned = space.rules_schedule, [one for one in tuned_schedules(form, space) if isinstance(one, Schedule)]
    # where there is one, the model need not rank them all
    preferred = [] if problem.varying or tuned else [preferred_schedule(space)]
    return [*tuned, *(one for one in preferred if one != by_rules), *space.by_rules]


def checked_plan(plan: AnySchedule | Plan | None, target: str) -> AnySchedule | None:
    """Refuse anything but a schedule, and one for another target; an old plan becomes the schedule of its numbers."""
    if isinstance(plan, Plan):
        warn_of_flat_names("`plan=` with a flat plan in place")
        plan = schedule_of(plan)
    if plan is not None and not isinstance(plan, AnySchedule):
        raise InputError(
            f"plan= should be a `Schedule`, not a {type(plan).__name__}. Take one from `fused.plan(…)` or "
            "`fused.plans(…)`, or write `ra.Schedule(…)`."
        )
    limits = plan.device if isinstance(plan, Definition) else None if plan is None else plan.limits
    chip = None if limits is None else limits.target
    if chip is not None and chip != device_for(target).target:
        raise PlanError(f"the plan is for {chip}, and the kernel for {target}. Make a plan for {target}.")
    return plan


def choose_library(form: FusedForm, target: str, problem: Problem, plan: AnySchedule | None) -> ByLibrary | None:
    """The part of a call that is left to PyTorch: the whole definition, or a product before its pass; None if none is.

    A call takes either if the plan asks for it (`PlanError` if it is not admitted), or if it is the fastest remembered
    at these sizes. If nothing is remembered, a call takes it if the model promises more gain than the model errs by.
    """
    plan = checked_plan(plan, target)
    kept = bool(obstacle(form, problem, device_for(target)))  # the cheap part: most forms have neither
    if isinstance(plan, Schedule) or (plan is None and kept and first_product(form) is None):
        return None
    space = Space(*plannable(form, problem), target)
    if isinstance(plan, LibraryProduct):
        return admit_product(form, space, plan.rows).by("given")
    if plan is not None:
        return admit_unfused(form, space).by("given")
    tuned = next(tuned_schedules(form, space), None)
    if isinstance(tuned, Schedule):
        return None
    if isinstance(tuned, LibraryProduct):
        product = offer_product(form, space, tuned.rows)
        return None if product is None else product.by(tuned.origin, tuned.predicted_us)
    unfused = offer_unfused(form, space)
    if unfused is not None and tuned is not None:
        return unfused.by(tuned.origin, tuned.predicted_us)
    if unfused is not None and (outruns_kernel(unfused, space) or loses_to(space, unfused.prediction.time_us)):
        return unfused
    product = offer_product(form, space) if multiplies_slowly(space) else None
    return product if product is not None and beats_kernel(product, space) else None


def choose_library_for(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], *,
    plan: AnySchedule | None = None, varying: Collection[str] = (), **options: Any,
) -> ByLibrary | None:  # fmt: skip
    """The part of a call of these sizes that is left to PyTorch; None if it takes a kernel."""
    if varying:
        return None
    return choose_library(form, target, problem_of(form, target, sizes, dtypes, **options), plan)


def admit_product(form: FusedForm, space: Space, rows: int | None = None) -> ProductPass:
    """The plan of a product by the library; `PlanError` if there is none, or if its parts exceed the memory limit."""
    problem, target = space.problem, space.target
    if reason := product_refusal(form, problem):
        raise PlanError(f"a product by the library is not offered: {reason}. Take one of the kernels that "
                        "`fused.plans` lists.")  # fmt: skip
    split = require_product(form).at(problem.sizes)
    rows = rows_of_part(split, problem, rows, moved_bytes(form, problem))
    sizes, dtypes = part_problem(split, problem, rows)
    part = problem_of(split.form, target, sizes, dtypes, shapes=shapes_of_part(split, problem, sizes),
                      empty=problem.empty, precision=problem.precision, result=problem.result)  # fmt: skip
    return product_pass(split, space, Space(*plannable(split.form, part), target), rows)


def offer_product(form: FusedForm, space: Space, rows: int | None = None) -> ProductPass | None:
    """The plan of a product by the library; None if it is not admitted."""
    try:
        return None if product_refusal(form, space.problem) else admit_product(form, space, rows)
    except PlanError:
        return None


def plannable(form: FusedForm, problem: Problem) -> tuple[Stages, Problem]:
    """The stages of a form as tile programs hold them, and the problem with the dtypes of what the loop reads."""
    stages, problem = rewrite_stages(REWRITES, single(form), problem)
    return stages, problem_of_stage(stages.loop, stages, problem)


def program_of(stages: Stages, plans: list[Schedule], problem: Problem) -> tuple[Schedule, TileProgram]:
    """The first schedule whose program fits its device, and the program."""
    check_varying(problem.varying, stages, plans[0].binding, problem)
    schedule, plan, program = first_that_fits(programs(stages, plans, problem))
    check_operands(program, plan, problem.precision)
    if schedule.origin == "given":
        check_registers(program, plan)
    return schedule, program


def source_of(stages: Stages, problem: Problem, schedule: Schedule, program: TileProgram) -> Source:
    """The text of a program, with a main that runs it on random data."""
    check = self_check(program, run_time_sizes(program, problem, stages.loop))
    return emit(program, numbers_of(schedule), header(stages, schedule, problem), check)


def results(stages: Stages, problem: Problem) -> dict[str, str]:
    """The dtype in which a call returns each output."""
    return {one.name: output_dtype(one, stages.original, problem.result) for one in stages.outputs}


def programs(
    stages: Stages, plans: Iterable[Schedule], problem: Problem
) -> Iterator[tuple[Schedule, Plan, TileProgram]]:
    """The program of every schedule; a schedule without one is passed over, unless the caller wrote it, or the rules
    wrote it and offer no other."""
    refusal: RedalgError | None = None
    symbolic, result_dtypes = with_symbols(problem, stages.loop), results(stages, problem)
    planned = tuple((symbolic.sizes[name], problem.sizes[name]) for name in sorted(problem.varying))
    for schedule in plans:
        try:
            plan = numbers_of(schedule)
            dtypes = {name: kernel_dtype(dtype, plan.device.target) for name, dtype in result_dtypes.items()}
            program = build(stages, plan, symbolic, dtypes, planned)
            if schedule.origin in REPLACEABLE:
                check_operands(program, plan, problem.precision)
        except RedalgError as error:
            if schedule.origin not in REPLACEABLE:
                refusal = refusal or error
            continue
        refusal = None
        yield schedule, plan, program
    if refusal is not None:
        raise refusal


def lower_passes(
    passes: Passes,
    target: str,
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str],
    each: Callable[..., Result],
    **options: Any,
) -> tuple[Result, ...]:
    """The results of `each` for every pass, in order (`plan`, of the options, is the last one's)."""
    all_dtypes, lowered = dict(dtypes), list[Result]()
    _, result = promote_dtypes(list(filter(is_float, dtypes.values())))
    for form in passes:
        tensors = passes.tensors_of(form, all_dtypes)
        compute, _ = promote_dtypes(list(filter(is_float, tensors.values())))
        settings = {"result": result} if form is passes.last else {"plan": None, "result": compute}
        lowered.append(each(form, target, passes.sizes_of(form, sizes), tensors, **{**options, **settings}))
        all_dtypes |= {output.name: output_dtype(output, form, compute) for output in form.outputs}
    return tuple(lowered)


def sources(passes: Sequence[Lowered]) -> str:
    """The text of all passes in order, each a program of its own: `pass_1` is the kernel of the first, of `target_1`.

    A pass reads what an earlier one stores by its name, among its parameters.
    """
    if len(passes) == 1:
        return str(passes[0].source)
    rules = (f"# ==== pass {number} of {len(passes)} ".ljust(79, "=") for number in range(1, len(passes) + 1))
    texts = (f"{rule}\n{str(lowered.source).rstrip()}\n\npass_{number}, target_{number} = main, TARGET\n"
             for number, (rule, lowered) in enumerate(zip(rules, passes, strict=True), 1))  # fmt: skip
    return "\n\n".join(texts)


def space_for(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], *,
    shapes: Mapping[str, tuple[int, ...]] | None = None, empty: str = "nan", precision: str = "ieee",
    result: str | None = None, memory: int | None = None, scalars: Mapping[str, float] | None = None, **_: None,
) -> Space:  # fmt: skip
    """The space of plans that a pass could have (no plan is given)."""
    problem = problem_of(form, target, sizes, dtypes, shapes=shapes, empty=empty, precision=precision, result=result,
                         memory=memory, scalars=scalars)  # fmt: skip
    return Space(*plannable(form, problem), target)


def run_time_sizes(program: TileProgram, problem: Problem, form: FusedForm) -> dict[Any, int]:
    """The run-time sizes of a program in the problem that it was lowered for."""
    symbols = with_symbols(problem, form).sizes
    return {symbols[name]: problem.sizes[name] for name in problem.varying} | sizes_in(
        program.parameters, problem.shapes
    )


def standalone(
    lowered: Lowered, passes: Passes, sizes: Mapping[str, int], dtypes: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
) -> str:  # fmt: skip
    """The text of a file that runs on its own and checks its kernel (the last pass's) by the definition in PyTorch."""
    program, plan, problem = lowered.program, numbers_of(lowered.plan), lowered.problem
    kernel_dtypes = {name: kernel_dtype(dtype, plan.device.target) for name, dtype in dtypes.items()}
    example = run_time_sizes(program, problem, lowered.form)
    # as definitions name them
    problem = replace(problem, sizes={**sizes, **sized_axes(passes.last, sizes), **problem.sizes})
    text = check_script(Example(program, passes, problem, shapes, kernel_dtypes, example))
    return str(emit(program, plan, header(lowered.stages, lowered.plan, problem), text))


def plan_candidates(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], **options: Any
) -> Candidates:
    """The plans that a pass could have, best first by predicted time; the unfused form too if it is admitted."""
    space = space_for(form, target, sizes, dtypes, **options)
    for name in {element.name for element in form.cascade.elements()} - space.problem.shapes.keys():
        shape_of(name, form.cascade.elements(), space.problem)  # refuses a shape that cannot be known
    others = [one.candidate for one in (offer_unfused(form, space), offer_product(form, space)) if one is not None]
    return rank_candidates(space, others, partial(refusal_of_plan, space.stages, space.problem))


def refusal_of_plan(stages: Stages, problem: Problem, plan: AnySchedule) -> str:
    """The reason why a plan has no program that keeps every rule and fits its device; empty if it has one.

    PyTorch's operations need none.
    """
    if not isinstance(plan, Schedule):
        return ""
    stages, problem = rewrite_stages(REWRITES_AFTER_PLANNING, stages, problem)
    try:
        program_of(stages, [replace(plan, origin="given")], problem)
    except RedalgError as refusal:
        return str(refusal).removeprefix(f"plan `{plan}`").lstrip(", ")
    return ""


def first_that_fits(candidates: Iterable[tuple[Schedule, Plan, TileProgram]]) -> tuple[Schedule, Plan, TileProgram]:
    """The first schedule whose program fits its device; when none does, the first is refused with both figures."""
    first: tuple[Schedule, Plan, TileProgram] | None = None
    for schedule, plan, program in candidates:
        if schedule.origin not in REPLACEABLE:
            first = first or (schedule, plan, program)
        if fits(program, plan):
            return schedule, plan, program
    if first is None:
        raise AssertionError("no plan was offered")
    check_fit(first[2], first[1])
    return first


def problem_of(
    form: FusedForm,
    target: str,
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    empty: str = "nan",
    precision: str = "ieee",
    varying: Collection[str] = (),
    result: str | None = None,
    memory: int | None = None,
    scalars: Mapping[str, float] | None = None,
) -> Problem:
    """The problem, with masks as bytes and, on the C target, bfloat16 as float32.

    `varying` names the axes whose size is a run-time one; `result` is the outputs' dtype if it is not that of these
    tensors. `scalars` gives values of run-time scalars, for predictions alone.
    """
    absent = [axis.name for axis in form.cascade.axes() if axis.name not in sizes and axis.size is None]
    if absent:
        example = ", ".join(f'"{name}": …' for name in absent)
        raise InputError(f"the sizes of axes {', '.join(absent)} are missing. Pass sizes={{{example}}}.")
    unknown = [name for name in form.cascade.inputs() if name not in dtypes]
    if unknown:
        raise missing_dtypes_error(unknown)
    names = {axis.name for axis in form.cascade.axes()} | set(form.cascade.extents())
    for name, size in sizes.items():
        if name not in names:
            axes = ", ".join(sorted(names))
            raise InputError(f"sizes={{{name!r}: {size!r}}}: the expression has no axis {name}; the axes are {axes}.")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError(
                f"sizes={{{name!r}: {size!r}}}: give every axis a positive int; the axes are "
                f"{', '.join(sorted(names))}."
            )
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            card = f" {dtype} is a card: pass it by name, as `device=` or `target=`." if dtype in CARDS else ""
            raise InputError(f"dtypes={{{name!r}: {dtype!r}}}: no such dtype. Use one of {', '.join(DTYPES)}.{card}")
    check_choice("empty", empty)
    check_choice("precision", precision)
    check_memory(memory)
    compute, own = promote_dtypes([dtype for dtype in dtypes.values() if is_float(dtype)])
    sizes, dtypes = (
        sized_axes(form, sizes),
        {name: kernel_dtype(dtypes[name], target) for name in form.cascade.inputs()},
    )
    return Problem(
        sizes, dict(shapes or {}), dtypes, compute, result or own, empty, precision, memory, frozenset(varying),
        scalars=scalars or {},
    )  # fmt: skip


def sized_axes(form: FusedForm, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes by axis, with those that the axes were declared with."""
    return {axis.name: axis.size for axis in form.cascade.axes() if axis.size is not None} | dict(sizes)


def kernel_dtype(dtype: str, target: str) -> str:
    """The dtype that a kernel declares: masks are bytes; the C target has no bfloat16 and no floats of 8 bits."""
    if dtype == "bool":
        return "uint8"
    return "float32" if is_emulated(dtype) and target == "c" else dtype


@cache
def target_of(device: str) -> str:
    """The target of a device: `c` on the CPU; a GPU's card, or its architecture if the card is not known."""
    if not device.startswith("cuda"):
        return "c"
    import torch

    name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
    card = card_of(name, capability)
    if card is None:
        raise BackendError(
            f"{device} is {name}, of compute capability {capability[0]}.{capability[1]}, for which redalg has no "
            'target. Run it with backend="torch".'
        )
    return card


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call that lowering needs."""
    return {name: options[name] for name in ("plan", "empty", "precision", "memory")}
