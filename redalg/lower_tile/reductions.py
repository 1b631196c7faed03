"""Which monoids the tile program reduces: those of one number by one of the vocabulary's own reductions."""

from __future__ import annotations

from redalg.decompose import Cascade
from redalg.errors import PlanError
from redalg.incremental.form import FusedForm

SCALAR = ("sum", "max", "min")
STREAMED = (*SCALAR, "argmax", "argmin", "topk")
PRODUCED = (*SCALAR, "prod")
"""A producer's reduction is a loop of the monoid's own `combine`."""


def check_reductions(form: FusedForm) -> None:
    """Refuse a monoid that the tile program does not know, in the cascade or in a producer."""
    _check(form.cascade, STREAMED)


def _check(cascade: Cascade, known: tuple[str, ...]) -> None:
    for one in cascade.reductions:
        if one.monoid.name not in known:
            raise PlanError(
                f"`{one.name}` is reduced by {one.monoid}, which the tile program does not do yet. Run it with "
                'backend="torch".'
            )
    for producer in cascade.producers:
        _check(producer.cascade, PRODUCED)
