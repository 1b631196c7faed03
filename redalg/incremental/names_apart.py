"""Names that nothing of a form has, for inputs that a rewrite adds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from redalg.incremental.form import FusedForm


def names_apart(form: FusedForm) -> Callable[[str], str]:
    """A function that makes a name of a stem: a new one every time, which no input, axis or slot has."""
    cascade = form.cascade
    known = {*cascade.inputs(), *(str(one.name) for one in cascade.scalars()), *(str(one) for one in cascade.axes())}
    known |= {one.name for one in form.slots}

    def name_apart(stem: str) -> str:
        names = (f"{stem}_{number}" if number else stem for number in count())
        name = next(one for one in names if one not in known)
        known.add(name)
        return name

    return name_apart
