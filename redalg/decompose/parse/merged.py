"""Sums and products that outputs hold together, as one reduction: terms without a state may cancel there. Exact:

    Σ F·a + Σ G·b → a·Σ (F + G·b/a)                  b/a a number
                  → Σ (a·F + b·G)                    a and b of d alone
    Π F · Π G     → Π F·G

It serves if samples show that an output moves in few ways with terms that have no state (`needs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sympy import Add, Expr, Mul, S

from redalg.decompose.cascade import Cascade, Output, Reduction
from redalg.decompose.domain import with_domain
from redalg.expression import Value
from redalg.expression.contents import axes_by_name, free_axes, values_of
from redalg.expression.expanded import expansion


def merge_reductions(cascade: Cascade, parts: Sequence[Reduction]) -> Cascade | None:
    """The cascade with several reductions of an output as one; None if an output allows no such form, or holds none."""
    reductions, outputs = list[Reduction](), list[Output]()
    for output in cascade.outputs:
        beside = [one for one in parts if one.value in values_of(output.expr)]
        if not beside:
            outputs.append(output)
            continue
        form = _sum(cascade, output.expr, beside) or _product(output.expr, beside)
        if form is None:
            return None
        h, term, rest = form
        axes = free_axes(term) - set(cascade.reduced_axes)
        name = f"{beside[0].name}_{'_'.join(one.name for one in beside[1:])}"
        reductions.append(replace(beside[0], name=name, term=term, axes=axes_by_name(axes)))
        outputs.append(replace(output, expr=h * reductions[-1].value + rest))
    if not reductions:
        return None
    whole = replace(cascade, reductions=(*cascade.reductions, *reductions), outputs=tuple(outputs), domain=S.true)
    return with_domain(_without_unused(whole))


def _sum(cascade: Cascade, output: Expr, parts: Sequence[Reduction]) -> tuple[Expr, Expr, Expr] | None:
    """h, F and rest of an output that is h·Σ F + rest; or None."""
    values = [one.value for one in parts]
    if len(parts) < 2 or any(one.monoid.name != "sum" for one in parts):
        return None
    whole = expansion(output)
    factors = [whole.coeff(one) for one in values]
    rest = Add(*(one for one in Add.make_args(whole) if values_of(one).isdisjoint(values)))
    linear = expansion(whole - rest - Add(*(h * one for h, one in zip(factors, values, strict=True))))
    if linear is not S.Zero or any(not values_of(one).isdisjoint(values) for one in factors):
        return None
    ratios = [(h / factors[0]).cancel() for h in factors]
    if all(one.is_number for one in ratios):
        return factors[0], Add(*(h * one.term for h, one in zip(ratios, parts, strict=True))), rest
    if any(free_axes(one) & set(cascade.reduced_axes) for one in factors):
        return None
    return S.One, Add(*(h * one.term for h, one in zip(factors, parts, strict=True))), rest


def _product(output: Expr, parts: Sequence[Reduction]) -> tuple[Expr, Expr, Expr] | None:
    """h, F and 0 of an output that is h·Π F; or None."""
    factors = Mul.make_args(output)
    if len(parts) < 2 or any(one.monoid.name != "prod" or one.value not in factors for one in parts):
        return None
    h = Mul(*(one for one in factors if one not in [part.value for part in parts]))
    return h, Mul(*(one.term for one in parts)), S.Zero


def _without_unused(cascade: Cascade) -> Cascade:
    """The cascade without the reductions that nothing reads."""
    used: set[Value] = {value for one in cascade.outputs for value in values_of(one.expr)}
    reductions = list[Reduction]()
    for reduction in reversed(cascade.reductions):
        if reduction.value in used:
            reductions.append(reduction)
            used |= values_of(reduction.term)
    return replace(cascade, reductions=tuple(reversed(reductions)))
