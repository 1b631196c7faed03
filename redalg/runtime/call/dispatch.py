"""Dispatch of a call to its backend, by the option or by where the tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

from redalg.errors import BackendError, InputError
from redalg.expression.dtypes import is_float
from redalg.incremental.form import FusedForm
from redalg.runtime.bind import arrays
from redalg.runtime.bind.backends import ARRAY_BACKENDS
from redalg.runtime.bind.inputs import (
    CHOICES,
    Bound,
    array_dtype,
    bind,
    check_call_names,
    check_choice,
    library_name,
    native,
    promoted,
)
from redalg.runtime.call import prepared
from redalg.runtime.call.prepared import Step, bound_again, keep, kind_of, without_tensors

KERNELS = "tilelang"
"""The backend that runs generated kernels; the others are array backends."""


def call(
    forms: tuple[FusedForm, ...], given: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Run the forms of all passes on tensors, one after another.

    The default backend is `tilelang` on CUDA and `torch` on the CPU; `numpy` for its arrays where there is no torch.
    """
    if options["check"]:
        check_signs(forms, given)
    kind = kind_of(forms, given, backend, sizes, options)
    met = prepared.known(kind) if kind is not None else None
    if met is not None:
        return met.run(given)
    given = {name: native(one) for name, one in given.items()} if kind is None else given
    for name in CHOICES:
        check_choice(name, options[name])
    if backend is not None and backend not in (names := (KERNELS, *ARRAY_BACKENDS)):
        raise BackendError(f"backend={backend!r} is not known. Use one of {', '.join(map(repr, names))}.")
    steps, known = began_earlier(forms, given, backend, sizes, options)
    last, outputs = began(forms[-1], bind_last(forms, known, sizes), known, backend, options)
    keep(kind, (*steps, last), forms, options["plan"])
    return outputs


def began_earlier(
    forms: tuple[FusedForm, ...], given: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int],
    options: Mapping[str, Any],
) -> tuple[list[Step], dict[str, Any]]:  # fmt: skip
    """The steps of the passes before the last, and these tensors with what they make of them."""
    check_given(forms, given)
    steps, known = list[Step](), dict(given)
    for form in forms[:-1]:
        step, outputs = began(form, bind_earlier(form, known, sizes), known, backend, {**options, "plan": None})
        steps.append(step)
        known |= outputs
    return steps, known


def began(
    form: FusedForm, bound: Bound, given: Mapping[str, Any], backend: str | None, options: Mapping[str, Any]
) -> tuple[Step, dict[str, Any]]:
    """The step that runs a form on tensors bound like these, and what it makes of these."""
    chosen = backend or default_backend(bound)
    if chosen != KERNELS and options["plan"] is not None:
        raise BackendError(f'plan= belongs to backend="tilelang"; this call runs on {chosen!r}. Leave one of them out.')
    step: Step = Interpreted(form, without_tensors(bound), chosen, options["empty"])
    if chosen == KERNELS:
        from redalg.runtime.call import kernels

        step = kernels.step(form, bound, options)
    return step, step(given)


def check_signs(forms: tuple[FusedForm, ...], given: Mapping[str, Any]) -> None:
    """Refuse tensors that are not what they were declared to be (a NaN is neither)."""
    declared = {one.name: one.label.sign for form in forms for one in form.cascade.elements() if one.label.sign}
    for name, sign in declared.items():
        array = given.get(name)
        if array is None or library_name(array) is None:  # refused when it is bound
            continue
        wrong = (array <= 0) if sign == "positive" else (array < 0)
        if bool(wrong.any()):
            raise InputError(
                f"tensor `{name}` was declared {sign}, and {int(wrong.sum())} of its elements are not, such as "
                f"{float(array[wrong].reshape(-1)[0])}. The form was derived on that assumption: pass such numbers, or "
                "declare the tensor without it."
            )


def default_backend(bound: Bound) -> str:
    """`tilelang` on CUDA, else `torch`; `numpy` for its arrays where torch is not installed."""
    if bound.device.startswith("cuda"):
        return KERNELS
    return "torch" if bound.library == "torch" or has_torch() else "numpy"


@cache
def has_torch() -> bool:
    """Tells whether torch can be imported."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


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


def define(forms: tuple[FusedForm, ...], given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The unfused definition, in float64."""
    check_given(forms, given)
    known = dict(given)
    for form in forms[:-1]:
        known |= arrays.reference(form, bind_earlier(form, known, sizes))
    return arrays.reference(forms[-1], bind_last(forms, known, sizes))


def bind_earlier(form: FusedForm, given: Mapping[str, Any], sizes: Mapping[str, int]) -> Bound:
    """The part of a call's tensors and sizes that a pass before the last takes, bound; it stores as it computes."""
    bound = bind(form.cascade, part_of(given, form), {name: size for name, size in sizes.items() if has(form, name)})
    return replace(bound, result=bound.compute)


def bind_last(forms: tuple[FusedForm, ...], given: Mapping[str, Any], sizes: Mapping[str, int]) -> Bound:
    """The inputs of the last pass, bound; the outputs' dtype is that of the caller's tensors, not of earlier values."""
    *earlier, last = forms
    own = {name: size for name, size in sizes.items() if has(last, name) or not any(has(one, name) for one in earlier)}
    bound = bind(last.cascade, of_last(given, forms), own)
    if not earlier:
        return bound
    names = {name for one in forms for name in one.cascade.inputs()} - computed(forms)
    floats = [dtype for name in names if is_float(dtype := array_dtype(given[name]))]
    return replace(bound, result=promoted(floats)[1])


def has(form: FusedForm, axis: str) -> bool:
    """Tells whether a form has an axis of that name, or holds its extent."""
    return axis in form.cascade.extents() or any(axis == one.name for one in form.cascade.axes())


def of_last(given: Mapping[str, Any], forms: tuple[FusedForm, ...]) -> dict[str, Any]:
    """The inputs of the last pass, and those of no pass (which its binding refuses by name)."""
    *earlier, last = forms
    before = {name for one in earlier for name in part_of(given, one)} | computed(forms)
    return {name: one for name, one in given.items() if name not in before or name in part_of(given, last)}


def check_given(forms: tuple[FusedForm, ...], given: Mapping[str, Any]) -> None:
    """Refuse what does not fit several passes together, before the first one runs."""
    if len(forms) == 1:
        return
    own = computed(forms)
    for name in sorted(own & given.keys()):
        raise InputError(f"`{name}` is what an earlier pass computes, and is no input. Leave it out.")
    tensors = {one.name: str(one) for form in forms for one in form.cascade.elements() if one.name not in own}
    scalars = dict.fromkeys(str(one.name) for form in forms for one in form.cascade.scalars())
    check_call_names(dict(sorted(tensors.items())), scalars, given)


def computed(forms: tuple[FusedForm, ...]) -> set[str]:
    """The names of what the passes before the last compute."""
    return {output.name for one in forms[:-1] for output in one.outputs}


def part_of(given: Mapping[str, Any], form: FusedForm) -> dict[str, Any]:
    """The tensors and scalars that a form takes."""
    wanted = {*form.cascade.inputs(), *(one.name for one in form.cascade.scalars())}
    return {name: one for name, one in given.items() if name in wanted}
