"""Fuse what a user writes, or give the verdict on it: the first half of the pipeline, with the options of a caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from redalg import verdicts
from redalg.errors import ExpressionError, NotDecided, NotFusible
from redalg.expression import Element
from redalg.expression.arguments import answer_arguments
from redalg.expression.spelling import no_other
from redalg.fused import Fused
from redalg.verdicts import Approximate, Exact, Refused

__all__ = ["Fused", "analyze", "from_json", "fuse", "fuse_outputs"]


@answer_arguments(ExpressionError)
def fuse(
    expr: Any, axes: str | None = None, *, inputs: Sequence[Element] = (), exact: bool = False,
    passes: int | None = None, **others: Never,
) -> Fused:  # fmt: skip
    """Derive the one-pass form of a cascade of reductions: analysis only, in milliseconds.

    An expression that reduces nothing is a pass without a state. What an output reduces over an axis that no other
    reduction has to do with is computed ahead.

    Args:
        expr: a SymPy expression, or a dict `{"name": expression}` or `{"name": (expression, "b h q")}` of several.
        axes: the output's axes in order, `"b h q e"`; may be left out when the tensors' index orders fix one order. The
            output repeats along an axis that the expression lacks.
        inputs: the tensors in the order in which a call may give them by position.
        exact: refuse to approximate roundings (`cast`) of what mixes data and reduced values: such a cascade is then
            run exactly, in two passes over the data.
        passes: the most passes over the data that the form may take; it takes the fewest that are exact. The values
            that a term cannot do without are computed by the passes before it, and are tensors to it. None: one, and
            two where `exact`.

    Returns:
        A `Fused`: call it on tensors, ask it to `explain`, take its kernel's `source`.

    Raises:
        NotFusible: no state of fixed size exists; `.reduction`, `.reason`, `.hint`, `.evidence` say why.
        NotDecided: neither a form nor a refusal was found.
        ExpressionError: the expression is not a cascade that redalg can read, or `passes` is no number of passes.

    Source: RedFuser (ASPLOS '26), Eqs. 1-16, in the general form of separable rank r.

    >>> import redalg as ra
    >>> n = ra.axes("n")
    >>> ra.fuse(ra.var(ra.tensor("x[b,n]"), n)).rank["sum_1"]
    3
    >>> x = ra.tensor("x[b,n]")
    >>> len(ra.fuse(ra.mean(abs(x - ra.mean(x, n)), n), passes=2).passes)
    2
    """
    no_other("fuse", others, ("axes", "inputs", "exact", "passes"))
    fused = fuse_outputs(expr, axes, inputs, exact=exact, passes=passes)
    fused.passes  # noqa: B018 - derived here, and not in `analyze`
    return fused


@answer_arguments(ExpressionError)
def from_json(text: str) -> Fused:
    """The function that a text of `Fused.to_json` defines, derived anew: nothing in the text is evaluated.

    Raises:
        ExpressionError: the text is none of this version; the message has the row that is wrong, or the format.

    >>> import redalg as ra
    >>> best = ra.fuse(ra.max(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> ra.from_json(best.to_json()).written
    (('out', max(x[b, n], n)),)
    """
    fused = Fused.of_text(text)
    fused.passes  # noqa: B018 - derived here, as in `fuse`
    return fused


def fuse_outputs(
    expr: Any, axes: str | None, inputs: Sequence[Element], *, exact: bool = False, passes: int | None = None
) -> Fused:
    """The cascade and its decomposition, which decides the verdict; the rest is derived when it is first asked for."""
    return Fused.of_outputs(expr, axes, passes, inputs, exact=exact)


@answer_arguments(ExpressionError)
def analyze(
    expr: Any, axes: str | None = None, *, inputs: Sequence[Element] = (), passes: int | None = None, **others: Never
) -> Exact[Fused] | Approximate[Fused] | Refused | verdicts.Undecided:
    """The verdict of `fuse` as a value: it raises nothing for a cascade without a form.

    Args:
        expr, axes, inputs, passes: as those of `fuse`.

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
    no_other("analyze", others, ("axes", "inputs", "passes"))
    try:
        fused = fuse_outputs(expr, axes, inputs, passes=passes)
        return Approximate(fused) if fused.decomposition.roundings else Exact(fused)
    except (NotFusible, NotDecided) as other:
        return verdicts.of_error(other)
