"""The table of contents: every stage, once, in order.

expression → Cascade → Decomposition → FusedForm → Plan → TileProgram → source → kernel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redalg import verdicts
from redalg.decompose import decompose, parse
from redalg.decompose.written import check_names, named_outputs
from redalg.errors import NotFusible, Undecided
from redalg.expression import Element
from redalg.fused import Fused
from redalg.incremental.two_pass import in_two_passes
from redalg.verdicts import Approximate, Exact, Refused

__all__ = ["Fused", "analyze", "decided", "fuse"]


def fuse(expr: Any, axes: str | None = None, *, inputs: Sequence[Element] = (), exact: bool = False) -> Fused:
    """Derive the one-pass form of a cascade of reductions: analysis only, in milliseconds.

    Args:
        expr: a SymPy expression, or a dict `{"name": expression}` or `{"name": (expression, "b h q")}` of several.
        axes: the output's axes in order, `"b h q e"`; may be left out when the tensors' index orders fix one order.
        inputs: the tensors in the order in which a call may give them by position.
        exact: refuse to approximate roundings (`cast`) of what mixes data and reduced values: such a cascade is then
            run exactly, in two passes over the data.

    Returns:
        A `Fused`: call it on tensors, ask it to `explain`, take its kernel's `source`.

    Raises:
        NotFusible: no state of fixed size exists; `.reduction`, `.reason`, `.hint`, `.evidence` say why.
        Undecided: neither a form nor a refusal was found.
        ExpressionError: the expression is not a cascade that redalg can read.

    Source: RedFuser (ASPLOS '26), Eqs. 1-16, in the general form of separable rank r.

    >>> import redalg as ra
    >>> n = ra.axes("n")
    >>> ra.fuse(ra.var(ra.tensor("x[b,n]"), n)).rank["sum_1"]
    3
    """
    fused = decided(expr, axes, inputs, exact=exact)
    fused.form  # noqa: B018 - derived here, and not in `analyze`
    return fused
    # Plan, TileProgram, source and kernel follow at the call, when sizes and dtypes are known: `Fused.lower`.


def decided(expr: Any, axes: str | None, inputs: Sequence[Element], *, exact: bool = False) -> Fused:
    """The cascade, its decomposition, which decides the verdict, and what is derived from it when first asked for."""
    wanted, single = named_outputs(expr, axes)
    cascade = parse(wanted)  #                     which axis, which reductions, which producers
    check_names(cascade, inputs)
    decomposition = decompose(cascade)  #          F = Σ h·g of each reduction, or a witness that there is none
    cascade, first = decomposition.cascade, None
    if exact and decomposition.roundings:  #       one pass would approximate them: two passes
        first, decomposition = in_two_passes(decomposition)
    return Fused(cascade, decomposition, tuple(one.name for one in inputs), single, exact, first)


def analyze(
    expr: Any, axes: str | None = None, *, inputs: Sequence[Element] = ()
) -> Exact[Fused] | Approximate[Fused] | Refused | verdicts.Undecided:
    """The verdict of `fuse` as a value, never raising for a cascade that has none.

    Args:
        expr, axes, inputs: as those of `fuse`.

    Returns:
        `Exact(fused)`; `Approximate(fused)`, where one pass rounds otherwise than the definition, by at most `.bound`;
        `Refused`, by a theorem where `.certificate`; or `Undecided`. All can `explain()` themselves. The form of
        `fused` is derived when it is first asked for: the decomposition decides, and every decomposition has a form.

    Raises:
        ExpressionError: the expression is not a cascade that redalg can read.

    >>> import redalg as ra
    >>> from sympy import Abs
    >>> n, x = ra.axes("n"), ra.tensor("x[n]")
    >>> verdict = ra.analyze(ra.sum(Abs(x - ra.mean(x, n)), n))
    >>> type(verdict).__name__, verdict.reduction, verdict.certificate
    ('Refused', 'sum_1', True)
    """
    try:
        fused = decided(expr, axes, inputs)
        return Approximate(fused) if fused.decomposition.roundings else Exact(fused)
    except (NotFusible, Undecided) as other:
        return verdicts.of_error(other)
