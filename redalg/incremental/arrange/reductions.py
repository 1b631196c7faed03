"""Which monoids the tile program reduces: those of one number by one of the vocabulary's own reductions, those of
several components by their own join, lane by lane (`folds`), or by ranks of their elements (`selection`).

An integer of a monoid that a user registered is held in 64 bits: it must come of integers by + − · mod, max, min,
choice and ⌊a / b⌋, and of indices, which a kernel has in 32 bits, by + and − alone.
"""

from __future__ import annotations

from sympy import Add, Expr, Integer, Max, Min, Mod, Mul, floor

from redalg.decompose.cascade import Cascade, Reduction
from redalg.errors import PlanError
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import free_axes
from redalg.incremental.arrange.stages import PRODUCED
from redalg.incremental.arrays.structured import join_of, lifted, parts_of
from redalg.incremental.form import FusedForm, Structure
from redalg.monoids.table import KNOWN


def check_reductions(form: FusedForm) -> None:
    """Refuse what the tile program does not know: integers that it would round, monoids in a producer."""
    for one in form.structures:
        _check_integers(one, form.cascade.axis)
    for producer in form.cascade.producers:
        _check(producer.cascade)


def _check_integers(one: Structure, axis: Axis) -> None:
    if one.monoid in KNOWN:
        return
    parts = [parts_of(one.monoid, name) for name in "ab"]
    known = {value for own in parts for value, part in zip(own, one.monoid.components, strict=True) if part.integer}
    for made in (lifted(one.monoid, one.operands, axis), join_of(one.monoid)):
        for expr, part in zip(made, one.monoid.components, strict=True):
            if part.integer and not whole(expr, known):
                raise PlanError(
                    f"component `{part.name}` of {one.monoid} is an integer, and a kernel would compute `{expr}` in "
                    'floating point or in 32 bits. Leave it out of integers=, or run it with backend="torch".'
                )


def whole(expr: Expr, known: set[Value]) -> bool:
    """Whether a kernel computes an expression on integers, of which `known` are the components."""
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
