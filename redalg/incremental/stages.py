"""The stages of one call: forms in order of their computation, each of which reads outputs of those before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from redalg.decompose.cascade import dtype_of
from redalg.display import Displayed
from redalg.expression import Element
from redalg.incremental.form import FormOutput, FusedForm


@final
@dataclass(frozen=True, repr=False)
class Stages(Displayed):
    """Forms in order, one of which is the loop that a plan is made for.

    Attributes:
        forms: the stages; what one hands on to another is a tensor there.
        place: the place of the loop among them.
        original: the form that they make together, as it was before it was divided.
    """

    forms: tuple[FusedForm, ...]
    place: int
    original: FusedForm

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.forms))

    @property
    def loop(self) -> FusedForm:
        """The form that a plan is made for."""
        return self.forms[self.place]

    @property
    def ahead(self) -> tuple[FusedForm, ...]:
        """The stages before the loop."""
        return self.forms[: self.place]

    @property
    def after(self) -> tuple[FusedForm, ...]:
        """The stages after the loop."""
        return self.forms[self.place + 1 :]

    @property
    def outputs(self) -> tuple[FormOutput, ...]:
        """The outputs that a call returns."""
        return self.original.outputs

    @property
    def intermediates(self) -> tuple[FormOutput, ...]:
        """The outputs that one stage makes for another."""
        returned = {output.name for output in self.outputs}
        return tuple(output for form in self.forms for output in form.outputs if output.name not in returned)

    @property
    def whole(self) -> dict[str, str]:
        """The outputs handed on that are no numbers of the arithmetic: name -> `int64` or `bool`."""
        dtypes = dict[str, str]()
        for form in self.forms:
            known = {value: "int64" for structure in form.structures for value in structure.integers}
            known |= {reduction.value: reduction.dtype for reduction in form.cascade.reductions}
            dtypes |= {output.name: dtype_of(output.expr, known) for output in form.outputs}
            dtypes |= {output.name: dtype_of(output.expr, known) for output in form.cascade.outputs}
        return {output.name: dtypes[output.name] for output in self.intermediates if dtypes.get(output.name)}

    @property
    def elements(self) -> tuple[Element, ...]:
        """The input elements that occur, stage by stage."""
        return tuple(element for form in self.forms for element in form.cascade.elements())

    @property
    def multiplies_apart(self) -> bool:
        """True if a stage beside the loop multiplies matrices; loading warps of the loop would take its pipeline."""
        return any(len(one.factors) > 1 for form in (*self.ahead, *self.after) for one in form.accumulators)

    def map_forms(self, change: Callable[[FusedForm], FusedForm]) -> Stages:
        """Every form changed; what a call returns stays."""
        return replace(self, forms=tuple(map(change, self.forms)))


def single(form: FusedForm) -> Stages:
    """A form as the only stage."""
    return Stages((form,), 0, form)
