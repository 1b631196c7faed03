"""Every part of a form with some of its symbols replaced, and its definition likewise.

The stages of one call (`stages`) read from memory what an earlier one made: its value is an element there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.decompose.mapped import map_cascade
from redalg.incremental.form import FusedForm
from redalg.incremental.mapped import map_form


def replace_in_form(form: FusedForm, others: Mapping[Expr, Expr]) -> FusedForm:
    """The form with symbols replaced; producers whose values are among them are gone."""

    def change(node: Any) -> Any:
        return node.xreplace(others)

    return map_form(replace(form, cascade=_without(form.cascade, others)), change)


def replace_in_cascade(cascade: Cascade, others: Mapping[Expr, Expr]) -> Cascade:
    """The definition with symbols replaced; producers whose values are among them are gone."""
    return map_cascade(_without(cascade, others), lambda node: node.xreplace(others))


def _without(cascade: Cascade, others: Mapping[Expr, Expr]) -> Cascade:
    """The cascade without the producers, at any depth, whose values are replaced."""
    producers = (one for one in cascade.producers if one.value not in others)
    return replace(cascade, producers=tuple(replace(one, cascade=_without(one.cascade, others)) for one in producers))
