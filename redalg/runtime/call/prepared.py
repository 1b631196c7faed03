"""Prepared calls: later calls of a kind use what the first call of that kind has checked and chosen.

kind  := the passes, backend and options, sizes, and what is given: of every tensor its type, shape, strides, dtype,
         device and whether it requires a gradient; of every scalar its type
call  := a new kind:  bind, check, plan, compile, run; the steps are kept
         a known one: the steps alone, which check what calls of one kind differ in: what scalars were declared to be,
                      indices of gathers (where they are checked), the alignment of addresses

A call whose kind a glance does not tell (a subclass of tensor, a sparse layout, a value that is no number) has none: it
is bound and checked every time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

import numpy as np

from redalg.decompose.cascade import Cascade
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.runtime.bind.frameworks import imported_torch
from redalg.runtime.bind.inputs import UNSIGNED, Bound, native, scalars_of

Step = Callable[[Mapping[str, Any]], dict[str, Any]]
"""One pass over the data: everything that was given by name -> outputs by name."""

KINDS = 4096
"""Number of kinds that are kept; beyond it, all are forgotten at once."""


@final
@dataclass(frozen=True)
class Prepared:
    """The steps of one kind of call, one a pass; by the identity of `passes`' forms and of `plan` the kind is known."""

    steps: tuple[Step, ...]
    passes: Passes
    plan: Any

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run pass after pass; each takes the given tensors and the outputs of the passes before it."""
        *earlier, last = self.steps
        for step in earlier:
            inputs = {**inputs, **step(inputs)}
        return last(inputs)


_PREPARED: dict[Hashable, Prepared] = {}
_TIMES_FORGOTTEN = [0]


def kind_of(
    passes: Passes, inputs: Mapping[str, Any], backend: str | None,
    sizes: Mapping[str, int], options: Mapping[str, Any],
) -> Hashable:  # fmt: skip
    """The kind of a call, as a glance tells it; None if that does not tell enough."""
    tensors = kind_of_tensors(inputs)
    if tensors is None:
        return None
    key: list[Any] = [*map(id, passes.forms), backend, id(options["plan"]), bool(options["check"])]
    key += (options["empty"], options["precision"], options["memory"])
    key += tensors
    if sizes:
        key += [(name, type(size), size) for name, size in sizes.items()]
    return tuple(key)


def kind_of_tensors(inputs: Mapping[str, Any]) -> list[Any] | None:
    """The kind of tensors and scalars by name, as a glance tells it; None if that does not tell enough."""
    torch = imported_torch()
    tensor, strided = (torch.Tensor, torch.strided) if torch is not None else (None, None)
    key: list[Any] = []
    try:
        for name, value in inputs.items():
            kind = type(value)
            if is_unsigned(getattr(value, "dtype", None)):  # converted at every call
                return None
            if kind is tensor and value.layout is strided:
                key += (name, value.shape, value.dtype, value.stride(), value.device)
                key += (value.requires_grad, value.is_neg())
            elif kind is np.ndarray:
                key += (name, value.shape, value.dtype, value.strides, value.flags.writeable)
            elif kind is float or kind is int or issubclass(kind, np.generic):
                key += [name, kind]
            else:
                return None
    except RuntimeError:  # a nested tensor, which has no shape
        return None
    return key


@cache
def is_unsigned(dtype: Any) -> bool:
    """Tell if a dtype is one of wide unsigned integers, of any library."""
    return str(dtype).endswith(UNSIGNED)


def find_prepared(kind: Hashable) -> Prepared | None:
    """The steps of a kind of call that was met before; None if it was not, or if there is no kind."""
    try:
        return _PREPARED.get(kind)
    except TypeError:  # an option that cannot be hashed is none that there is: the checks say so
        return None


def keep(kind: Hashable, steps: tuple[Step, ...], passes: Passes, plan: Any) -> None:
    """Remember the steps of a kind, and keep alive what it is known by."""
    if kind is None:
        return
    if len(_PREPARED) >= KINDS:
        _PREPARED.clear()
    _PREPARED[kind] = Prepared(steps, passes, plan)


def forget(form: FusedForm) -> None:
    """Forget the kinds of calls of a form: another plan has been found for it."""
    _TIMES_FORGOTTEN[0] += 1
    for kind in [kind for kind, one in _PREPARED.items() if any(form is other for other in one.passes)]:
        _PREPARED.pop(kind, None)


def times_forgotten() -> int:
    """The number of times that another plan was found: what was taken from here before is not to be kept longer."""
    return _TIMES_FORGOTTEN[0]


def rebind(bound: Bound, cascade: Cascade, inputs: Mapping[str, Any]) -> Bound:
    """The binding of another call of the same kind."""
    tensors = {name: native(inputs[name]) for name in bound.tensors}
    return replace(bound, tensors=tensors, scalars=scalars_of(cascade, inputs))


def without_tensors(bound: Bound) -> Bound:
    """A binding that keeps no tensor alive: their names alone."""
    return replace(bound, tensors=dict.fromkeys(bound.tensors), scalars={})
