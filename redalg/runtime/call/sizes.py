"""The kernel that a call takes as its sizes change.

    the first sizes of a family                  a kernel for these sizes alone (constant strides and trip counts)
    others, of free axes (batch, rows)           one kernel whose free sizes are run-time ones serves them all
    others, of the streamed axis too             one whose trip count is a run-time one as well
    others, of a form in several stages          one loop like these, where one loop may hold the form, else one each
    sizes compiled ahead by `Fused.compile`      the kernel compiled for them
    sizes for which the call gives a plan        the kernel of that plan for them: a plan is made for sizes
    sizes that were tuned                        the kernel of the plan that was found for them, likewise
    sizes at which no kernel is as fast          none: PyTorch's operations (`redalg.runtime.unfused.unfused`)

A family is one form, target, dtypes and options, with one size of every axis that tiles hold whole: another size of
such an axis begins a family. Plans depend on sizes (few rows, many segments): run-time sizes share a kernel where they
share a plan, chosen for the powers of two above them, so that there are as many kernels as plans, not as sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.incremental.stages import Stages
from redalg.pipeline import plan_stages, write_source
from redalg.runtime.bind.inputs import Bound
from redalg.runtime.known.tuned import tuned_schedules, was_measured
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import (
    ByLibrary,
    checked_plan,
    choose_library,
    choose_library_for,
    lower_passes,
    options_of,
    plannable,
    problem_of,
    sized_axes,
    space_for,
    target_of,
)
from redalg.strategies.binding import bind_axes
from redalg.strategies.device import device_for
from redalg.strategies.plan import Problem, shape_of
from redalg.strategies.schedule import AnySchedule, Schedule
from redalg.strategies.varying import fits_launch, may_vary, unnamed_dimensions, with_symbols

INDEX_LIMIT = 2**31
"""Elements of a tensor beyond which constant sizes let the compiler see that indices need 64 bits."""

_LOWERED: dict[Hashable, tuple[FusedForm, Lowered | ByLibrary]] = {}
"""Lowerings by the form's `id` (the form is kept alive beside them): hashing its expressions would cost more than a
call."""
_FIRST: dict[Hashable, Mapping[Any, int]] = {}
_VARIED: dict[Hashable, frozenset[Any]] = {}


def lowering_for(
    form: FusedForm, bound: Bound, tensors: Mapping[str, Any], options: Mapping[str, Any]
) -> Lowered | ByLibrary:
    """The lowering for a call's sizes, or the unfused form, kept in process by what it depends on."""
    shapes = {name: tuple(array.shape) or (1,) for name, array in tensors.items()}
    target, settings = target_of(bound.device), {**options_of(options), "result": bound.result}
    if not isinstance(settings["plan"], Hashable):
        checked_plan(settings["plan"], target)  # which refuses it
    key = key_of(form, target, bound.sizes, bound.dtypes, shapes, settings)
    if key not in _LOWERED:
        plan = settings.pop("plan")
        problem = problem_of(form, target, bound.sizes, bound.dtypes, shapes=shapes, **settings)
        _LOWERED[key] = form, newly(form, target, problem, plan)
    return _LOWERED[key][1]


def measured_plan(form: FusedForm, bound: Bound, options: Mapping[str, Any]) -> Schedule | None:
    """The plan that was measured for a form at a call's sizes; None if none was."""
    settings = {**options_of({**options, "plan": None}), "result": bound.result}
    space = space_for(form, target_of(bound.device), bound.sizes, bound.dtypes, **settings)
    return next((one for one in tuned_schedules(form, space) if isinstance(one, Schedule)), None)


def key_of(form: FusedForm, target: str, *parts: Mapping[str, Any]) -> Hashable:
    """The key of a lowering of constant sizes; `parts` are its sizes, dtypes, shapes and options."""
    return (id(form), device_for(target).target, *(frozenset(part.items()) for part in parts))


def newly(form: FusedForm, target: str, problem: Problem, plan: AnySchedule | None) -> Lowered | ByLibrary:
    """The lowering of sizes not met before: their own for the first of a family, else the one that they share."""
    plain = choose_library(form, target, problem, plan)
    if plain is not None:
        return plain
    original = problem
    planable, plans, problem = plan_stages(form, target, original, plan)
    if plan is not None or was_measured(form, problem, plans[0]):
        return write_source(planable, plans, problem)
    one_loop, within, binding = planable, problem, plans[0].binding
    if len(planable.forms) > 1:
        one_loop, within = in_one_loop(form, planable, problem, original)
        binding = bind_axes(one_loop.loop, within.sizes)
    loop, several = one_loop.loop, len(one_loop.forms) > 1
    free = frozenset[str]() if several else may_vary(loop, binding, within.dtypes)
    fixed = frozenset((name, size) for name, size in problem.sizes.items() if name not in free)
    options = (problem.empty, problem.precision, problem.result)  # `memory` limits no kernel
    family = (id(form), target, fixed, frozenset(problem.dtypes.items()), free, options)
    problem = replace(
        problem,
        varying=changed_axes(family, {**problem.sizes, **unnamed_dimensions(loop, within)}, str(loop.cascade.axis.name))
        & free,
    )
    large = any(prod(shape) >= INDEX_LIMIT for shape in problem.shapes.values())
    if not problem.varying or large or not fits_launch(plans[0].binding, problem):
        return write_source(planable, plans, replace(problem, varying=frozenset()))
    original = replace(original, varying=problem.varying)
    planable, plans, problem = plan_stages(form, target, original, None)  # trip counts are no longer known
    problem = replace(problem, varying=problem.varying & may_vary(planable.loop, plans[0].binding, problem.dtypes))
    symbolic = with_symbols(problem, planable.loop)
    key = (family, plans[0], frozenset(symbolic.sizes.items()), frozenset(symbolic.shapes.items()))
    if key not in _LOWERED:
        _LOWERED[key] = form, write_source(planable, plans, problem)
    return _LOWERED[key][1]


def in_one_loop(form: FusedForm, stages: Stages, problem: Problem, original: Problem) -> tuple[Stages, Problem]:
    """A form of several stages in one loop, if it may hold the form: sizes of stages are constant, its need not be."""
    return plannable(form, replace(original, varying=frozenset(original.sizes) - constant(stages, problem)))


def axes_of_own_kernels(
    passes: Passes, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str]
) -> frozenset[str]:
    """The axes of passes of which every size has a kernel of its own, compiled when a call first has that size.

    Raises:
        PlanError: no kernel holds a pass.
    """
    return frozenset[str]().union(*lower_passes(passes, target, sizes, dtypes, axes_of_own_kernel))


def axes_of_own_kernel(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], *, result: str, **_: None
) -> frozenset[str]:
    """As `axes_of_own_kernels`, of one pass."""
    original = problem_of(form, target, sizes, dtypes, result=result)
    stages, problem = plannable(form, original)
    if len(stages.forms) > 1:
        stages, problem = in_one_loop(form, stages, problem, original)
    if len(stages.forms) > 1:
        return frozenset(sizes)
    free = may_vary(stages.loop, bind_axes(stages.loop, problem.sizes), problem.dtypes)
    return frozenset(sizes) - free.union(*(problem.together.get(name, ()) for name in free))


def constant(stages: Stages, problem: Problem) -> frozenset[str]:
    """The names of the axes that are streamed as one axis and needed apart: a kernel has their sizes as constants."""
    names = {str(axis.name) for form in stages.forms for axis in form.cascade.axes() if axis.size is not None}
    return frozenset(part for name in names for part in problem.together.get(name, ()))


def forget(form: FusedForm) -> None:
    """Forget the lowerings of a form for constant sizes: another plan has been found for it."""
    for key in [key for key in _LOWERED if isinstance(key, tuple) and key[0] == id(form)]:
        _LOWERED.pop(key, None)


def changed_axes(family: Hashable, sizes: Mapping[Any, int], streamed: str) -> frozenset[Any]:
    """The axes whose sizes become run-time ones: free axes once any size has changed, the streamed one once it has.

    A changing trip count costs more than changing bounds: the tail of every tile is masked.
    """
    first = _FIRST.setdefault(family, dict(sizes))
    now = {name for name, size in sizes.items() if first[name] != size}
    now |= set(sizes) - {streamed} if now else set()
    _VARIED[family] = _VARIED.get(family, frozenset()) | now
    return _VARIED[family]


def lower(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], *,
    plan: AnySchedule | None = None,
    **options: Any,
) -> Lowered:  # fmt: skip
    """The lowering for sizes and dtypes that a caller names; `plan` and the options are those of `Fused.lower`."""
    return write_source(*plan_stages(form, target, problem_of(form, target, sizes, dtypes, **options), plan))


def plan_taken(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], **options: Any
) -> AnySchedule:
    """The plan that a call takes: a kernel's, or the unfused form."""
    plain = choose_library_for(form, target, sizes, dtypes, **options)
    return plain.plan if plain is not None else lower(form, target, sizes, dtypes, **options).plan


def ahead(form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], **options: Any) -> Lowered:
    """Lower now; calls of these sizes take this lowering, unless they take the unfused form."""
    lowered = lower(form, target, sizes, dtypes, **options)
    settings = {name: options.get(name, default) for name, default in DEFAULTS.items()}
    settings["result"] = lowered.problem.result
    if not lowered.program.sizes and choose_library_for(form, target, sizes, dtypes, **options) is None:
        shapes, problem = (
            options.get("shapes") or {},
            replace(lowered.problem, sizes=sized_axes(form, sizes), shapes={}),
        )
        shapes = {name: tuple(shapes.get(name) or shape_of(name, form.cascade.elements(), problem)) or (1,)
                  for name in form.cascade.inputs()}  # fmt: skip
        _LOWERED[key_of(form, target, problem.sizes, dtypes, shapes, settings)] = form, lowered
    return lowered


DEFAULTS = {"plan": None, "empty": "nan", "precision": "ieee", "memory": None}
