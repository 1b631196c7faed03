"""Dispatch of a call to its backend, by the option or by where the tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redalg.errors import BackendError
from redalg.incremental.form import FusedForm
from redalg.runtime import arrays
from redalg.runtime.inputs import CHOICES, bind, check_choice

BACKENDS = ("tilelang", "torch", "numpy")


def call(
    form: FusedForm, given: Mapping[str, Any], backend: str | None, sizes: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a form on tensors: the default backend is `tilelang` on CUDA and `torch` on the CPU."""
    for name in CHOICES:
        check_choice(name, options[name])
    if backend is not None and backend not in BACKENDS:
        raise BackendError(f"backend={backend!r} is not known. Use one of {', '.join(map(repr, BACKENDS))}.")
    bound = bind(form.cascade, given, sizes)
    chosen = backend or ("tilelang" if bound.device.startswith("cuda") else "torch")
    if chosen == "tilelang":
        from redalg.runtime.kernels import run

        return run(form, bound, options)
    if options["plan"] is not None:
        raise BackendError(f'plan= belongs to backend="tilelang"; this call runs on {chosen!r}. Leave one of them out.')
    return arrays.run(form, bound, chosen, options["empty"])
