"""The rewrites of a form, in order: before it is planned, FusedForm -> Stages, with one loop for each; and after.

Every rewrite is exact, and says what it changes and where. The lists are data: `REWRITES`, `REWRITES_AFTER_PLANNING`
and `REWRITES_IN_KERNELS` are read from the top. Each rewrite gets the stages and the problem that the one before gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.incremental.arrange.arrange_products import arrange_products
from redalg.incremental.arrange.bounded_weights import drop_bounded_pivots
from redalg.incremental.arrange.coalesce import coalesce_axes, restore_places
from redalg.incremental.arrange.elementwise import (
    join_neighbours,
    separate_elementwise,
    separate_epilogues,
)
from redalg.incremental.arrange.flatten import flatten_tensors
from redalg.incremental.arrange.one_row import weigh_columns
from redalg.incremental.arrange.prune_extrema import prune_extrema, take_values_of_places
from redalg.incremental.arrange.reductions import check_reductions
from redalg.incremental.arrange.share_stages import share_stages
from redalg.incremental.arrange.stages import REPEATED, apart, divide_form, names_of, separate_outputs
from redalg.incremental.arrange.unroll import may_unroll, unroll_axis
from redalg.incremental.arrange.vectors import write_out_vectors
from redalg.incremental.derive.scales import in_kernels
from redalg.incremental.form import FusedForm
from redalg.incremental.rewrite import Rewrite
from redalg.incremental.stages import Stages, single
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.plan import Problem

Rewritten = tuple[Stages, Problem]
FormRewrite = Rewrite[Callable[[Stages, Problem], Rewritten]]


def rewrite_stages(rewrites: Iterable[FormRewrite], stages: Stages, problem: Problem) -> Rewritten:
    """Apply rewrites in order: the stages as loops hold them, and the problem with the names that they have there."""
    for rewrite in rewrites:
        stages, problem = rewrite.apply(stages, problem)
    return stages, problem


# ---- the rewrites ----------------------------------------------------------------------------------------------------


def _remove_scales(stages: Stages, problem: Problem) -> Rewritten:
    return single(in_kernels(stages.loop, problem.dtypes, wide=problem.precision == "wide")), problem


def _separate(stages: Stages, problem: Problem) -> Rewritten:
    return separate_outputs(stages.loop, problem.sizes), problem


def _separate_epilogues(stages: Stages, problem: Problem) -> Rewritten:
    if problem.varying or len(stages.forms) > 1:
        return stages, problem
    return separate_epilogues(stages.loop, problem.sizes), problem


def _separate_elementwise(stages: Stages, problem: Problem) -> Rewritten:
    parts = [separate_elementwise(form) for form in stages.forms]
    forms = tuple(form for part in parts for form in part.forms)
    return replace(stages, forms=forms, place=sum(len(part.forms) for part in parts[: stages.place])), problem


def _join(stages: Stages, problem: Problem) -> Rewritten:
    if len(stages.forms) > 1:  # another stage may read a tensor's dimensions apart
        return stages, problem
    return stages.map_forms(partial(join_neighbours, sizes=problem.sizes)), problem


def _write_out(stages: Stages, problem: Problem) -> Rewritten:
    return stages.map_forms(partial(write_out_vectors, sizes=problem.sizes, dtypes=problem.dtypes)), problem


def _drop_pivots(stages: Stages, problem: Problem) -> Rewritten:
    return stages.map_forms(drop_bounded_pivots), problem


def _weigh_columns(stages: Stages, problem: Problem) -> Rewritten:
    return stages.map_forms(partial(weigh_columns, sizes=problem.sizes, dtypes=problem.dtypes)), problem


def _divide(stages: Stages, problem: Problem) -> Rewritten:
    """Sizes of stages do not vary, so all that may stay in the loop does where sizes are to vary."""
    taken, parts = names_of_stages(stages.forms), list[Stages]()
    for form in stages.forms:
        parts.append(divide_stages(form, problem.sizes, together=bool(problem.varying), taken=taken))
        taken |= names_of_stages(parts[-1].forms)
    forms = tuple(form for part in parts for form in part.forms)
    place = sum(len(part.forms) for part in parts[: stages.place]) + parts[stages.place].place
    return Stages(forms, place, stages.original), problem


def _share(stages: Stages, problem: Problem) -> Rewritten:
    """Axes whose sizes vary are equal to no others: they may be so where a plan is made, and not in a call."""
    fixed = {name: size for name, size in problem.sizes.items() if name not in problem.varying}
    return share_stages(stages, fixed), problem


def _arrange(stages: Stages, problem: Problem) -> Rewritten:
    return stages.map_forms(partial(arrange_products, sizes=problem.sizes)), problem


def _restore(stages: Stages, problem: Problem) -> Rewritten:
    return restore_places(stages), problem


def _flatten(stages: Stages, problem: Problem) -> Rewritten:
    if problem.varying or len(stages.forms) > 1:
        return stages, problem
    form, problem = flatten_tensors(stages.loop, problem)
    return replace(stages, forms=(form,)), problem


def _prune(stages: Stages, problem: Problem) -> Rewritten:
    return stages.map_forms(prune_extrema), problem


def _take_values(stages: Stages, problem: Problem) -> Rewritten:
    return stages.map_forms(take_values_of_places), problem


REWRITES: tuple[FormRewrite, ...] = (
    Rewrite("scales", "u/c, c near the largest |u|", "u", "where the dtype's range holds every power of u",
            _remove_scales),
    Rewrite("partial axes", "out = Σ_n d[n], d over n, c", "d, then out", "where n and c are reduced at once",
            _separate),
    Rewrite("epilogues", "out[b, e] = f(Σ_n d[b, n])", "Σ_n d, then out", "where e is long, and no reduction has it",
            _separate_epilogues),
    Rewrite("elementwise outputs", "out = Σ_n d, out' = g", "out, then out'", "where no loop of out is one of out'",
            _separate_elementwise),
    Rewrite("neighbours", "out[b, n] = f(x[b, n])", "out[p] = f(x[p])", "where all have b and n side by side", _join),
    Rewrite("one axis", "Σ over (n, c)", "Σ over n_c", "where several axes are reduced at once", coalesce_axes),
    Rewrite("vectors", "Σ_d f(x[i, d], y[k, d])", "f(x[i, 0], y[k, 0]) + …", "where terms pair rows with elements",
            _write_out),
    Rewrite("bounded weights", "exp(m)·Σ exp(u − m)", "Σ exp(u)", "where u ≤ 0 is known", _drop_pivots),
    Rewrite("one row", "Σ_k w(k)·g(k,e)", "w a row, g a matrix", "where e is long, and g in 16 bits or shared",
            _weigh_columns),
    Rewrite("stages", "Σ_k f(x, p), p = ⊕_m g(y)", "p, then Σ_k f(x, p)", "where no loop holds both", _divide),
    Rewrite("equal stages", "s[n] = f(n), s'[m] = f(m)", "s[n], s[m] for s'[m]", "where |n| = |m|", _share),
    Rewrite("products", "Σ_k f(q,k)·g(k,e)·h(k,c)", "Σ_k (f·h)·g, for every c", "where one pair of axes holds them",
            _arrange),
    Rewrite("places", "out[n_c]", "out[n, c]", "where a caller has them apart", _restore),
)  # fmt: skip
"""The rewrites before planning, in order; the modules of this folder say each one in full."""

REWRITES_AFTER_PLANNING: tuple[FormRewrite, ...] = (
    Rewrite("one row", "r[b, n, k]", "r[b, 3·n + k]", "where sizes are constant and one loop is all", _flatten),
)
"""The rewrites after planning, in order: a plan is chosen for the stages as they are before these."""

REWRITES_IN_KERNELS: tuple[FormRewrite, ...] = (
    Rewrite(
        "places' values", "m = max u, (v, n) = argmax u", "v for m in outputs", "where both are of one u", _take_values
    ),
    Rewrite("unread extrema", "extrema (m, …)", "extrema (…)", "where nothing reads m", _prune),
)
"""The rewrites of each stage as its kernels are placed, in order: a file's header shows the state as it was derived."""


# ---- one loop for each stage -----------------------------------------------------------------------------------------


def divide_stages(form: FusedForm, sizes: Mapping[str, int], *, together: bool, taken: Collection[str]) -> Stages:
    """The stages of a form, and the stages of those: short sums written out, each with a loop that holds it.

    No two of them make tensors of one name, and none makes one of a name that is `taken`.
    """
    for axis in form.summed_axes:
        if may_unroll(form, axis, sizes[axis.name]):
            form = unroll_axis(form, axis, sizes[axis.name])
    stages = divide_form(form, sizes, partial(tile_of, sizes=sizes), together=together, taken=taken)
    check_reductions(stages.loop)
    if not fits_one_loop(stages.loop, sizes):
        stages = apart(stages, partial(fits_one_loop, sizes=sizes))
    names, forms, place = {*taken} | names_of_stages(stages.forms), list[FusedForm](), 0
    for stage in stages.forms:
        if stage is stages.loop:
            place = len(forms)
        part = (stage,) if stage is stages.loop else divide_stages(stage, sizes, together=together, taken=names).forms
        names |= names_of_stages(part)
        forms += part
    return Stages(tuple(forms), place, form)


def names_of_stages(forms: Iterable[FusedForm]) -> set[str]:
    """The names of the tensors that stages make, and those in their definitions."""
    return {name for form in forms for name in (*names_of(form.cascade), *(one.name for one in form.outputs))}


def fits_one_loop(form: FusedForm, sizes: Mapping[str, int]) -> bool:
    """Tell if one loop holds a form's products as matrix products."""
    binding = form_binding(form, sizes)
    return binding is not None and not binding.plain


def tile_of(form: FusedForm, sizes: Mapping[str, int]) -> tuple[frozenset[Axis], Axis | None]:
    """The axes of a tile's rows if it has many (matrix products take 16 and more), and the axis of its columns."""
    binding = form_binding(form, sizes)
    if binding is None or binding.row is None:
        return frozenset(), binding.column if binding is not None else None
    many = binding.contracted or sizes[binding.row.name] > REPEATED
    return binding.rows if many else frozenset(), binding.column


def form_binding(form: FusedForm, sizes: Mapping[str, int]) -> Binding | None:
    """The binding of a form's axes in the loop; None if there is none."""
    try:
        return bind_axes(arrange_products(form, sizes), sizes)
    except PlanError:
        return None
