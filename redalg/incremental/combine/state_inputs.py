"""A form whose inputs are a state, for kernels that finish states: it reduces nothing.

    values v = g(s), outputs o = f(v, x)   →   outputs o = f(g(s), x)        s the slots, x tensors in the outputs

Exact: every line of `finish` stands in the outputs under one node, so that nothing is added or cancelled across lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import final

from sympy import Expr, S

from redalg.decompose.cascade import Cascade, Output
from redalg.decompose.parse.axes import innermost_axis
from redalg.errors import PlanError
from redalg.expression import Cast, Element, Label, Let
from redalg.incremental.combine.finish import finish_program, output_program, value_of_output
from redalg.incremental.combine.let import Assign, Program
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.state_outputs import values_of_slots

Reads = dict[Expr, Expr]
"""A value -> the expression that stands for it."""


@final
@dataclass(frozen=True)
class FinishForm:
    """A form that finishes states: `form` reads tensors by these names; `slots` tells which slot a name is, if one."""

    form: FusedForm
    slots: Mapping[str, str]


def with_state_for_inputs(form: FusedForm, compute: str, dtypes: Mapping[str, str], empty: str) -> FinishForm:
    """The form that makes the outputs of a state.

    Args:
        form: of the state.
        compute: the dtype of arithmetic.
        dtypes: of the outputs, by name.
        empty: what a ratio over no elements is, `nan` or `zero`.

    Raises:
        PlanError: an output reduces tensors itself.
    """
    known = set(form.cascade.inputs()) | {str(one.name) for one in form.cascade.scalars()}
    names = {slot.name: name_beside(slot.name, known) for slot in form.slots}
    values, reads = values_of_slots(form), Reads()
    for slot in form.slots:
        element = Element(Label(names[slot.name]), *slot.axes)
        reads[values[slot.name]] = Cast(element, compute) if slot.kind == "count" else element
    finished = finish_program(form)
    written = lines_in_full(finished, reads)
    reads |= {value: written[line] for value, line in finished.results.items() if value not in reads}
    exprs = dict[str, Expr]()
    for carries in (False, True):
        program = output_program(form, carries=carries, empty=empty)
        outputs = lines_in_full(program, reads)
        for output in form.outputs:
            if output.carries is carries:
                line = outputs[program.results[value_of_output(output)]]
                exprs[output.name] = in_dtype(line, dtypes[output.name])
    return FinishForm(elementwise_form(form, exprs), {name: slot for slot, name in names.items()})


def name_beside(name: str, known: set[str]) -> str:
    """The name, with underscores appended if it is known."""
    return next(f"{name}{'_' * more}" for more in count() if f"{name}{'_' * more}" not in known)


def lines_in_full(program: Program, reads: Reads) -> Reads:
    """The expression of every line of a program, in terms of what the program reads, and `reads` itself."""
    known = dict(reads)
    for let in program.lets:
        if not isinstance(let, Assign):
            raise PlanError(f"{', '.join(map(str, let.values))} is reduced when a state is finished.")
        expr = let.expr.xreplace(known)
        known[let.value] = expr if expr.is_Atom or isinstance(expr, Element) else Let(let.value.name, expr)
    return known


def in_dtype(expr: Expr, dtype: str) -> Expr:
    """An output as it is returned."""
    while isinstance(expr, Let):
        expr = expr.expr
    return expr if isinstance(expr, Cast) and expr.dtype == dtype else Cast(expr, dtype)


def elementwise_form(form: FusedForm, exprs: Mapping[str, Expr]) -> FusedForm:
    """The form of outputs that reduce nothing, over the axes of those of a form."""
    streamed = innermost_axis(exprs, {one.name: one.axes for one in form.outputs})
    outputs = tuple(Output(one.name, exprs[one.name], one.axes, streamed in one.axes) for one in form.outputs)
    cascade = Cascade(streamed, (), (), outputs)
    cascade.verify()
    made = tuple(FormOutput(one.name, one.expr, one.axes, S.false, one.carries) for one in outputs)
    return replace(form, cascade=cascade, extrema=(), structures=(), pivots=(), accumulators=(), assignments=(),
                   outputs=made, unscaled=None, level=False)  # fmt: skip
