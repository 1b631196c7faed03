"""The forms of one cascade, in order of preference; a plan names one.

online            one pass, the derived state
unfused           the definition: one pass for every reduction in the chain (always exact, never bounded)
"""

from __future__ import annotations

from dataclasses import replace

from redalg.incremental.form import FusedForm


def variants(form: FusedForm) -> tuple[FusedForm, ...]:
    """The forms that are offered for a cascade whose online form is `form`; a plan names one by its `kind`."""
    return (form, replace(form, kind="unfused"))
