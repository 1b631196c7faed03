"""Dispatch of a call to its backend, by the option or by where the tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from redalg.errors import BackendError
from redalg.incremental.form import FusedForm
from redalg.runtime import arrays
from redalg.runtime.inputs import CHOICES, Bound, bind, check_choice
from redalg.runtime.prepared import Step, bound_again, keep, kind_of, known, without_tensors

BACKENDS = ("tilelang", "torch", "numpy")


def call(
    forms: tuple[FusedForm | None, FusedForm], given: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Run a form on tensors, after the first of two passes if there is one.

    The default backend is `tilelang` on CUDA and `torch` on the CPU.
    """
    kind = kind_of(forms, given, backend, sizes, options)
    met = known(kind) if kind is not None else None
    if met is not None:
        return met.run(given)
    first, form = forms
    for name in CHOICES:
        check_choice(name, options[name])
    if backend is not None and backend not in BACKENDS:
        raise BackendError(f"backend={backend!r} is not known. Use one of {', '.join(map(repr, BACKENDS))}.")
    if first is None:
        step, made = began(form, bind(form.cascade, given, sizes), given, backend, options)
        keep(kind, (step,), forms, options["plan"])
        return made
    one, after = began_first((first, form), given, backend, sizes, options)
    two, made = began(form, bind(form.cascade, after, sizes), after, backend, options)
    keep(kind, (one, two), forms, options["plan"])
    return made


def began_first(
    forms: tuple[FusedForm, FusedForm], given: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int],
    options: Mapping[str, Any],
) -> tuple[Step, dict[str, Any]]:  # fmt: skip
    """The step of the first of two passes, and what the second takes of these tensors."""
    first, form = forms
    before = bind_first(first, given, sizes)
    one, found = began(first, replace(before, result=before.compute), given, backend, {**options, "plan": None})
    return one, {**of_second(given, first, form), **found}


def began(
    form: FusedForm, bound: Bound, given: Mapping[str, Any], backend: str | None, options: Mapping[str, Any]
) -> tuple[Step, dict[str, Any]]:
    """The step that runs a form on tensors bound like these, and what it makes of these."""
    chosen = backend or ("tilelang" if bound.device.startswith("cuda") else "torch")
    if chosen != "tilelang" and options["plan"] is not None:
        raise BackendError(f'plan= belongs to backend="tilelang"; this call runs on {chosen!r}. Leave one of them out.')
    step: Step = Interpreted(form, without_tensors(bound), chosen, options["empty"])
    if chosen == "tilelang":
        from redalg.runtime import kernels

        step = kernels.step(form, bound, options)
    return step, step(given)


@final
@dataclass(frozen=True)
class Interpreted:
    """A pass by the interpreter, over tensors bound as `bound` says."""

    form: FusedForm
    bound: Bound
    backend: str
    empty: str

    def __call__(self, given: Mapping[str, Any]) -> dict[str, Any]:
        bound = bound_again(self.bound, self.form.cascade, given)
        return arrays.run(self.form, bound, self.backend, self.empty)


def define(
    forms: tuple[FusedForm | None, FusedForm], given: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """The unfused definition, in float64."""
    first, form = forms
    if first is not None:
        made = arrays.reference(first, bind_first(first, given, sizes))
        given = {**of_second(given, first, form), **made}
    return arrays.reference(form, bind(form.cascade, given, sizes))


def bind_first(first: FusedForm, given: Mapping[str, Any], sizes: Mapping[str, int]) -> Bound:
    """The part of a call's tensors and sizes that the first of two passes takes, bound."""
    names = {axis.name for axis in first.cascade.axes()} | set(first.cascade.extents())
    return bind(first.cascade, part_of(given, first), {name: size for name, size in sizes.items() if name in names})


def of_second(given: Mapping[str, Any], first: FusedForm, second: FusedForm) -> dict[str, Any]:
    """What the second pass takes, and what neither does (which its binding refuses by name)."""
    before = part_of(given, first)
    return {name: one for name, one in given.items() if name not in before or name in part_of(given, second)}


def part_of(given: Mapping[str, Any], form: FusedForm) -> dict[str, Any]:
    """The tensors and scalars that a form takes."""
    wanted = {*form.cascade.inputs(), *(one.name for one in form.cascade.scalars())}
    return {name: one for name, one in given.items() if name in wanted}
