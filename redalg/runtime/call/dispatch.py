"""Dispatch of a call to its backend, by the option or by where the tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

from redalg.errors import BackendError, InputError
from redalg.expression.dtypes import is_float
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
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
    promote_dtypes,
)
from redalg.runtime.call import prepared
from redalg.runtime.call.prepared import Step, bound_again, keep, kind_of, without_tensors

KERNELS = "tilelang"
"""The backend that runs generated kernels; the others are array backends."""


def call(
    passes: Passes, given: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Run all passes on tensors, one after another.

    The default backend is `tilelang` on CUDA and `torch` on the CPU; `numpy` for its arrays where there is no torch.
    """
    if options["check"]:
        check_signs(passes, given)
    kind = kind_of(passes, given, backend, sizes, options)
    met = prepared.find_prepared(kind) if kind is not None else None
    if met is not None:
        return met.run(given)
    given = {name: native(one) for name, one in given.items()} if kind is None else given
    for name in CHOICES:
        check_choice(name, options[name])
    if backend is not None and backend not in (names := (KERNELS, *ARRAY_BACKENDS)):
        raise BackendError(f"backend={backend!r} is not known. Use one of {', '.join(map(repr, names))}.")
    steps, known = began_earlier(passes, given, backend, sizes, options)
    last, outputs = began(passes.last, bind_pass(passes, passes.last, known, sizes), known, backend, options)
    keep(kind, (*steps, last), passes, options["plan"])
    return outputs


def began_earlier(
    passes: Passes, given: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int],
    options: Mapping[str, Any],
) -> tuple[list[Step], dict[str, Any]]:  # fmt: skip
    """The steps of the passes before the last, and these tensors with what they make of them."""
    check_given(passes, given)
    steps, known = list[Step](), dict(given)
    for form in passes.earlier:
        bound = bind_pass(passes, form, known, sizes)
        step, outputs = began(form, bound, known, backend, {**options, "plan": None})
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


def check_signs(passes: Passes, given: Mapping[str, Any]) -> None:
    """Refuse tensors that are not what they were declared to be (a NaN is neither)."""
    declared = {element.name: element.label.sign for element in passes.elements if element.label.sign}
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


def define(passes: Passes, given: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The unfused definition, in float64."""
    check_given(passes, given)
    known = dict(given)
    for form in passes.earlier:
        known |= arrays.reference(form, bind_pass(passes, form, known, sizes))
    return arrays.reference(passes.last, bind_pass(passes, passes.last, known, sizes))


def bind_pass(passes: Passes, form: FusedForm, known: Mapping[str, Any], sizes: Mapping[str, int]) -> Bound:
    """The part of a call's tensors and sizes that a pass takes, bound.

    A pass before the last stores as it computes; the outputs of the last have the dtype of the caller's tensors.
    """
    bound = bind(form.cascade, passes.tensors_of(form, known), passes.sizes_of(form, sizes))
    if form is not passes.last:
        return replace(bound, result=bound.compute)
    if not passes.earlier:
        return bound
    names = {element.name for element in passes.elements}
    floats = [dtype for name in names if is_float(dtype := array_dtype(known[name]))]
    return replace(bound, result=promote_dtypes(floats)[1])


def check_given(passes: Passes, given: Mapping[str, Any]) -> None:
    """Refuse what does not fit several passes together, before the first one runs."""
    if not passes.earlier:
        return
    for name in sorted({output.name for output in passes.intermediates} & given.keys()):
        raise InputError(f"`{name}` is what an earlier pass computes, and is no input. Leave it out.")
    tensors = {element.name: str(element) for element in passes.elements}
    scalars = dict.fromkeys(str(scalar.name) for scalar in passes.scalars)
    check_call_names(dict(sorted(tensors.items())), scalars, given)
