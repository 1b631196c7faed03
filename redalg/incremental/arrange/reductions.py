"""Monoids that the tile program reduces. Those of one number are reduced by one of the vocabulary's own reductions;
those of several components by their own join, lane by lane (`joins`), or by ranks of their elements (`selection`).

An integer of a monoid that a user registered is held in 64 bits. It must be computed from integers by + − · mod, max,
min, choice and ⌊a / b⌋, and from indices, which a kernel has in 32 bits, by + and − alone.
"""

from __future__ import annotations

from sympy import Add, Expr, Integer, Max, Min, Mod, Mul, floor

from redalg.decompose.cascade import Cascade, Reduction
from redalg.errors import PlanError
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import free_axes
from redalg.incremental.arrange.stages import PRODUCED
from redalg.incremental.combine.structures import component_symbols, join_of, lift_place
from redalg.incremental.form import FusedForm, Structure
from redalg.monoids.table import KNOWN


def check_reductions(form: FusedForm) -> None:
    """Refuse integers that the tile program would round, and monoids in a producer that it does not know."""
    for structure in form.structures:
        _check_integers(structure, form.cascade.axis)
    for producer in form.cascade.producers:
        _check(producer.cascade)


def _check_integers(structure: Structure, axis: Axis) -> None:
    if structure.monoid in KNOWN:
        return
    parts = [component_symbols(structure.monoid, name) for name in "ab"]
    known = {
        value for own in parts for value, part in zip(own, structure.monoid.components, strict=True) if part.integer
    }
    for exprs in (lift_place(structure.monoid, structure.operands, axis), join_of(structure.monoid)):
        for expr, part in zip(exprs, structure.monoid.components, strict=True):
            if part.integer and not whole(expr, known):
                raise PlanError(
                    f"component `{part.name}` of {structure.monoid} is an integer, and a kernel would compute `{expr}` "
                    'in floating point or in 32 bits. Leave it out of integers=, or run it with backend="torch".'
                )


def whole(expr: Expr, known: set[Value]) -> bool:
    """Tell if a kernel computes an expression on integers; `known` are the components that are integers."""
    if isinstance(expr, Integer | Axis) or expr in known:
        return True
    if isinstance(expr, Where):
        return all(whole(one, known) for one in expr.args[1:])
    args = expr.args[0].as_numer_denom() if isinstance(expr, floor) else expr.args
    plain = isinstance(expr, Add | Max | Min) or (isinstance(expr, Mul) and expr.args[0] == -1 and len(expr.args) == 2)
    if not plain and (not isinstance(expr, Mul | Mod | floor) or free_axes(expr)):
        return False
    return all(whole(one, known) for one in args)


def _check(cascade: Cascade) -> None:
    for reduction in cascade.reductions:
        if reduction.monoid.name not in PRODUCED:
            raise refusal(reduction)
    for producer in cascade.producers:
        _check(producer.cascade)


def refusal(reduction: Reduction) -> PlanError:
    """The error that names a reduction and the backend that runs it."""
    return PlanError(
        f"`{reduction.name}` is reduced by {reduction.monoid}, which the tile program does not do yet. "
        'Run it with backend="torch".'
    )
