"""A call by groups: the state of every key in one pass, and what it finishes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redalg.errors import BackendError, InputError
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.runtime.bind.finish_groups import finish_by_groups
from redalg.runtime.bind.inputs import check_choice, is_recorded, library_name
from redalg.runtime.bind.state import State
from redalg.runtime.call.dispatch import KERNELS, check_assumptions
from redalg.runtime.call.finish_kernels import Results, finish_state
from redalg.runtime.call.states import form_of_states, leaf

CALL = "the call"
"""What is called, in messages of errors of its keys."""


def call_by_groups(
    passes: Passes, inputs: Mapping[str, Any], options: Mapping[str, Any], *, by: Any, groups: Any
) -> dict[str, Any]:  # fmt: skip
    """The outputs of every group, by the operations of the tensors' library, or by kernels where they are asked for.

    Raises:
        BackendError: another backend, or a plan, is asked for; or no kernel makes these states.
        InputError: an option is none, a tensor asks for a gradient, or the keys do not fit (`read_keys`).
    """
    for name in ("empty", "precision"):
        check_choice(name, options[name], "by=: ")
    for name in ("plan", "memory"):
        if options[name] is not None:
            raise BackendError(f"by=: {name}= belongs to kernels, and the tensors' library reduces groups. Leave one "
                               "of them out.")  # fmt: skip
    libraries = {library_name(one) for one in inputs.values()} - {None}
    if options["backend"] not in (None, KERNELS, *libraries):
        raise BackendError(f"by=: the tensors' own library reduces groups, or kernels do, and "
                           f"backend={options['backend']!r} is neither. Leave it out.")  # fmt: skip
    if is_recorded(inputs):
        raise InputError("by=: a tensor requires a gradient, and calls by groups record none. Work under "
                         "`torch.no_grad()`, or pass `tensor.detach()`, if no gradient is needed.")  # fmt: skip
    if options["check"]:
        check_assumptions(passes, inputs)
    form = passes.last
    backend = KERNELS if options["backend"] == KERNELS else None
    state = leaf(form, inputs, None, options["sizes"] or {}, backend, by=by, groups=groups, caller=CALL)
    keys = by if any(one.carries for one in form.outputs) else None
    [outputs] = finish_any(form, state, inputs, options["empty"], None, condition=False, by=keys)
    return outputs


def finish_any(form: FusedForm, state: State, inputs: Mapping[str, Any] | None, empty: str, start: Any, *,
               condition: bool = False, by: Any = None, backend: str | None = None) -> Results:  # fmt: skip
    """The outputs of a state, by group or not, and their condition numbers if they are asked for."""
    if form_of_states(form, state) is form:
        if by is not None:
            raise InputError("finish: the state is not by group, and `by=` is given. Make it by `leaf(…, by=)`.")
        return finish_state(form, state, inputs, empty, start, condition=condition, backend=backend)
    if backend == KERNELS:
        raise BackendError(f'finish: no kernel finishes states by group. Leave backend="{KERNELS}" out.')
    return finish_by_groups(form, state, inputs, empty, start, by=by, condition=condition)
