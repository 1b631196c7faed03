"""The passes of one call: forms in order, each of which reads the data once, and as tensors the values of those before.

Every pass is planned and lowered by itself, and may be several stages (`incremental.stages`) of one program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, final

from redalg.display import Displayed
from redalg.expression import Element, Scalar
from redalg.incremental.form import FormOutput, FusedForm

T = TypeVar("T")


@final
@dataclass(frozen=True, repr=False)
class Passes(Displayed):
    """Forms in the order in which a call computes them.

    Attributes:
        forms: the form of each pass; what one computes is a tensor to those after it.
    """

    forms: tuple[FusedForm, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.forms))

    def __iter__(self) -> Iterator[FusedForm]:
        return iter(self.forms)

    def __len__(self) -> int:
        return len(self.forms)

    @property
    def last(self) -> FusedForm:
        """The form that computes what a call returns."""
        return self.forms[-1]

    @property
    def earlier(self) -> tuple[FusedForm, ...]:
        """The forms before the last."""
        return self.forms[:-1]

    @property
    def intermediates(self) -> tuple[FormOutput, ...]:
        """The outputs that one pass computes for another."""
        return tuple(output for form in self.earlier for output in form.outputs)

    @property
    def elements(self) -> tuple[Element, ...]:
        """The elements of the caller's tensors, pass by pass."""
        computed = {output.name for output in self.intermediates}
        return tuple(one for form in self.forms for one in form.cascade.elements() if one.name not in computed)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The run-time scalars, pass by pass."""
        return tuple(one for form in self.forms for one in form.cascade.scalars())

    def tensors_of(self, form: FusedForm, known: Mapping[str, T]) -> dict[str, T]:
        """The part of what is known by the name of a tensor or scalar that a pass takes.

        The last pass takes also what no pass reads: what it does not know is refused there, by name.
        """
        earlier = {output.name for output in self.intermediates}.union(*map(names_read, self.earlier))
        return self._part(form, known, names_read(form), earlier)

    def sizes_of(self, form: FusedForm, sizes: Mapping[str, T]) -> dict[str, T]:
        """The sizes of the axes that a pass has, or whose extents it holds; the last takes also those of no pass."""
        return self._part(form, sizes, axes_read(form), set[str]().union(*map(axes_read, self.earlier)))

    def _part(self, form: FusedForm, known: Mapping[str, T], own: set[str], earlier: set[str]) -> dict[str, T]:
        left = known.keys() - earlier if form is self.last else set[str]()
        return {name: one for name, one in known.items() if name in own or name in left}


def names_read(form: FusedForm) -> set[str]:
    """The names of the tensors and scalars that a form reads."""
    return {*form.cascade.inputs(), *(str(one.name) for one in form.cascade.scalars())}


def axes_read(form: FusedForm) -> set[str]:
    """The names of the axes that a form has, or whose extents it holds."""
    return {*form.cascade.extents(), *(str(one.name) for one in form.cascade.axes())}
