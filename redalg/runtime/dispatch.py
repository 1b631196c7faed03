"""Dispatch of a call to its backend, by the option or by where the tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redalg.errors import BackendError
from redalg.incremental.form import FusedForm
from redalg.runtime import arrays
from redalg.runtime.inputs import CHOICES, Bound, bind, check_choice

BACKENDS = ("tilelang", "torch", "numpy")


def call(
    forms: tuple[FusedForm | None, FusedForm], given: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Run a form on tensors, after the first of two passes if there is one.

    The default backend is `tilelang` on CUDA and `torch` on the CPU.
    """
    first, form = forms
    for name in CHOICES:
        check_choice(name, options[name])
    if backend is not None and backend not in BACKENDS:
        raise BackendError(f"backend={backend!r} is not known. Use one of {', '.join(map(repr, BACKENDS))}.")
    if first is None:
        return run(form, bind(form.cascade, given, sizes), backend, options)
    before = bind_first(first, given, sizes)
    made = run(first, replace(before, result=before.compute), backend, {**options, "plan": None})
    return run(form, bind(form.cascade, {**of_second(given, first, form), **made}, sizes), backend, options)


def run(form: FusedForm, bound: Bound, backend: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run a form on bound tensors."""
    chosen = backend or ("tilelang" if bound.device.startswith("cuda") else "torch")
    if chosen == "tilelang":
        from redalg.runtime import kernels

        return kernels.run(form, bound, options)
    if options["plan"] is not None:
        raise BackendError(f'plan= belongs to backend="tilelang"; this call runs on {chosen!r}. Leave one of them out.')
    return arrays.run(form, bound, chosen, options["empty"])


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
