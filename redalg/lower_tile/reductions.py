"""Which monoids the tile program reduces: those of one number by one of the vocabulary's own reductions, those of
several components by their own join, lane by lane (`folds`), or by ranks of their elements (`selection`)."""

from __future__ import annotations

from redalg.decompose import Cascade, Reduction
from redalg.errors import PlanError
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import PRODUCED

REFUSED = ("compensated_sum",)
"""Whose join in exact arithmetic says nothing of what rounding loses."""


def check_reductions(form: FusedForm) -> None:
    """Refuse a monoid that the tile program does not know, in the cascade or in a producer."""
    for one in form.cascade.reductions:
        if one.monoid.name in REFUSED:
            raise refusal(one)
    for producer in form.cascade.producers:
        _check(producer.cascade)


def _check(cascade: Cascade) -> None:
    for one in cascade.reductions:
        if one.monoid.name not in PRODUCED:
            raise refusal(one)
    for producer in cascade.producers:
        _check(producer.cascade)


def refusal(one: Reduction) -> PlanError:
    """By name, with what runs it."""
    return PlanError(
        f'`{one.name}` is reduced by {one.monoid}, which the tile program does not do yet. Run it with backend="torch".'
    )
