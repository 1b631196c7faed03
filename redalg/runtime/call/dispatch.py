"""Dispatch of a call to its backend, by the option or by where the tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, final

from redalg.errors import BackendError, InputError
from redalg.expression.arguments import short_text
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
    check_memory,
    library_name,
    native,
    promote_dtypes,
)
from redalg.runtime.call import prepared
from redalg.runtime.call.prepared import Step, keep, kind_of, rebind, without_tensors

DEFAULTS = {"empty": "nan", "precision": "ieee", "plan": None, "memory": None, "check": False}
"""The options of a call that has none."""
KERNELS = "tilelang"
"""The backend that runs generated kernels; the others are array backends."""


def call(
    passes: Passes, inputs: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Run all passes on tensors, one after another.

    The default backend is `tilelang` on CUDA and `torch` on the CPU; `numpy` for its arrays where there is no torch.
    """
    if options["check"] is not False and is_flag("check", options["check"]):
        check_assumptions(passes, inputs)
    kind = kind_of(passes, inputs, backend, sizes, options)
    prepared_call = prepared.find_prepared(kind)
    if prepared_call is not None:
        return prepared_call.run(inputs)
    inputs = {name: native(one) for name, one in inputs.items()} if kind is None else inputs
    for name in CHOICES:
        check_choice(name, options[name])
    check_memory(options["memory"])
    check_known_backend(backend)
    steps, tensors = start_earlier_passes(passes, inputs, backend, sizes, options)
    last, outputs = start_pass(passes.last, bind_pass(passes, passes.last, tensors, sizes), tensors, backend, options)
    keep(kind, (*steps, last), passes, options["plan"])
    return outputs


def is_flag(option: str, value: Any) -> bool:
    """A flag's value; what is neither True nor False is refused.

    >>> is_flag("check", 3)
    Traceback (most recent call last):
    redalg.errors.InputError: check=3 should be True or False.
    """
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):  # NumPy has its own
        raise InputError(f"{option}={short_text(value)} should be True or False.")
    return bool(value)


def check_known_backend(backend: Any) -> None:
    """Refuse a backend that there is not; None chooses one."""
    names = (KERNELS, *ARRAY_BACKENDS)
    if backend is not None and (not isinstance(backend, str) or backend not in names):
        raise BackendError(f"backend={backend!r} is not known. Use one of {', '.join(map(repr, names))}.")


def call_again(
    passes: Passes, inputs: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> dict[str, Any] | None:  # fmt: skip
    """As `call`, if a call of this kind was met before; None if none was. Nothing but the kind is looked at."""
    prepared_call = prepared.find_prepared(kind_of(passes, inputs, backend, sizes, options))
    return None if prepared_call is None else prepared_call.run(inputs)


def start_earlier_passes(
    passes: Passes, inputs: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int],
    options: Mapping[str, Any],
) -> tuple[list[Step], dict[str, Any]]:  # fmt: skip
    """The steps of the passes before the last, and these tensors with what they make of them."""
    check_inputs(passes, inputs)
    steps, tensors = list[Step](), dict(inputs)
    for form in passes.earlier:
        bound = bind_pass(passes, form, tensors, sizes)
        wide = not bound.tensors and bound.compute == "float64"  # a kernel of no tensor computes in float32
        own = bound.library if wide else backend
        step, outputs = start_pass(form, bound, tensors, own, {**options, "plan": None})
        steps.append(step)
        tensors |= outputs
    return steps, tensors


def start_pass(
    form: FusedForm, bound: Bound, inputs: Mapping[str, Any], backend: str | None, options: Mapping[str, Any]
) -> tuple[Step, dict[str, Any]]:
    """The step that runs a form on tensors bound like these, and what it makes of these."""
    name = backend or default_backend(bound)
    for option in ("plan", "memory"):
        if name != KERNELS and options[option] is not None:
            raise BackendError(
                f'{option}= belongs to kernels, and this call runs on {name!r}. Add backend="tilelang", which compiles '
                f"C on the CPU; or leave {option}= out."
            )
    step: Step = Interpreted(form, without_tensors(bound), name, options["empty"])
    if name == KERNELS:
        from redalg.runtime.call import kernels

        step = kernels.step(form, bound, options)
    return step, step(inputs)


def check_assumptions(passes: Passes, inputs: Mapping[str, Any]) -> None:
    """Refuse tensors that are not what they were declared to be (a NaN is neither)."""
    assumptions = {one.name: one.label.assumption for one in passes.elements if one.label.assumption}
    for name, assumption in assumptions.items():
        array = inputs.get(name)
        if array is None or library_name(array) is None:  # refused when it is bound
            continue
        wrong = abs(array) == inf if assumption == "finite" else array <= 0 if assumption == "positive" else array < 0
        if bool(wrong.any()):
            raise InputError(
                f"tensor `{name}` was declared {assumption}, and {int(wrong.sum())} of its elements are not, such as "
                f"{float(array[wrong].reshape(-1)[0])}. The form was derived on that assumption: pass such numbers, or "
                "declare the tensor without it."
            )


def takes_kernels(bound: Bound, backend: str | None) -> bool:
    """Tell if kernels compute: as the caller says, or else on CUDA. It does not import torch."""
    return backend == KERNELS if backend else bound.device.startswith("cuda")


def default_backend(bound: Bound) -> str:
    """`tilelang` on CUDA, else `torch`; `numpy` for its arrays where torch is not installed."""
    if takes_kernels(bound, None):
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

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        bound = rebind(self.bound, self.form.cascade, inputs)
        return arrays.run(self.form, bound, self.backend, self.empty)


def define(passes: Passes, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The unfused definition, in float64."""
    check_inputs(passes, inputs)
    tensors = dict(inputs)
    for form in passes.earlier:
        tensors |= arrays.reference(form, bind_pass(passes, form, tensors, sizes))
    return arrays.reference(passes.last, bind_pass(passes, passes.last, tensors, sizes))


def bind_pass(passes: Passes, form: FusedForm, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Bound:
    """The part of a call's tensors and sizes that a pass takes, bound.

    A pass before the last stores as it computes; the outputs of the last have the dtype of the caller's tensors.
    """
    bound = bind(form.cascade, passes.tensors_of(form, inputs), passes.sizes_of(form, sizes))
    if not bound.tensors:
        bound = _beside(bound, inputs)
    if form is not passes.last:
        return replace(bound, result=bound.compute)
    if not passes.earlier:
        return bound
    names = {element.name for element in passes.elements}
    floats = [dtype for name in names if is_float(dtype := array_dtype(inputs[name]))]
    return replace(bound, result=promote_dtypes(floats)[1])


def _beside(bound: Bound, inputs: Mapping[str, Any]) -> Bound:
    """A binding of no tensors, for results that lie where a call's tensors do, in the dtype of their arithmetic."""
    arrays_of_call = [one for one in inputs.values() if library_name(one) is not None]
    if not arrays_of_call:
        return bound
    library = library_name(arrays_of_call[0]) or bound.library
    device = str(arrays_of_call[0].device) if library == "torch" else "cpu"
    compute, result = promote_dtypes([dtype for one in arrays_of_call if is_float(dtype := array_dtype(one))])
    return replace(bound, library=library, device=device, compute=compute, result=result)


def check_inputs(passes: Passes, inputs: Mapping[str, Any]) -> None:
    """Refuse what does not fit several passes together, before the first one runs."""
    if not passes.earlier:
        return
    for name in sorted({output.name for output in passes.intermediates} & inputs.keys()):
        raise InputError(f"`{name}` is what an earlier pass computes, and is no input. Leave it out.")
    tensors = {element.name: str(element) for element in passes.elements}
    scalars = dict.fromkeys(str(scalar.name) for scalar in passes.scalars)
    check_call_names(dict(sorted(tensors.items())), scalars, inputs)
