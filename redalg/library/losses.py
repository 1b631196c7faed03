"""Losses of scores h·wᵀ over a large vocabulary. Nothing stores the scores: every pass makes them in its tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sympy import And, Expr, Max, nan

from redalg import sugar
from redalg.errors import ExpressionError
from redalg.expression import Tensor, axes, eq, ne, tensors, where
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern

REDUCTIONS = ("mean", "sum", "none")


@pattern("losses", i=4096, d=2048, v=32000, dtype="bfloat16")
def linear_cross_entropy(
    score: Callable[[Expr], Expr] | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int | None = -100,
    weighted: bool = False,
    biased: bool = False,
    reduction: str = "mean",
) -> Fused:
    """The cross entropy of scores s[i,v] = Σ_d h[i,d]·w[v,d] and integers target[i], without the scores in memory.

    Conventions are those of `torch.nn.functional.cross_entropy`. A target that is no word, and is not ignored, makes
    its loss NaN.

    Args:
        score: what becomes of a score, a function of one expression: a soft cap `lambda s: 30*tanh(s/30)`.
        label_smoothing: the share of the target that all words have in equal parts, from 0 to 1.
        z_loss: a factor of (log Σ exp(s))², which is added to every row's loss.
        ignore_index: the target of rows that do not count: their loss is 0, and no mean is of them. None: all count.
        weighted: whether a tensor weight[v] weighs the words.
        biased: whether a tensor bias[v] is added to the scores.
        reduction: `"mean"` over the rows that count (by the weights of their targets), `"sum"`, or `"none"`.

    Returns:
        The fused function, with the output out[] or out[i], of whose backward the scores are no part either.

    Raises:
        ExpressionError: an argument is none of those.

    Source: Good (1952), "Rational decisions"; label smoothing: Szegedy et al. (2016); z-loss: Chowdhery et al. (2022).

    >>> import numpy as np
    >>> loss = linear_cross_entropy(reduction="none")
    >>> h, w = np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros((2, 2))
    >>> loss(h=h, w=w, target=np.array([1, -100])).round(6).tolist()
    [0.693147, 0.0]
    """
    check_reduction("linear_cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ExpressionError(f"linear_cross_entropy: label_smoothing={label_smoothing!r} should be from 0 to 1.")
    v, d, word = axes("v d word")
    h, w, bias, weight, target = tensors("h[i,d] w[v,d] bias[v] weight[v] target[i]")
    s = sum_over(h * w, d) + (bias if biased else 0)
    s = s if score is None else score(s)
    total, own = sugar.logsumexp(s, v), eq(v, target)
    of_target = Tensor("weight")[Max(target, 0)] if weighted else 1
    loss = of_target * (total - sum_over(where(own, s, 0), v))
    if label_smoothing:
        every = total - sugar.mean(s, v)
        if weighted:  # the sum of the weights is the same for all rows: over an axis of its own it is made ahead
            every = (total * sum_over(Tensor("weight")[word], word) - sum_over(weight * s, v)) / v.extent
        loss = (1 - label_smoothing) * loss + label_smoothing * every
    loss = where(And(target >= 0, target < v.extent), loss + z_loss * total**2, nan)
    counts = of_target
    if ignore_index is not None:
        loss, counts = (where(ne(target, ignore_index), one, 0) for one in (loss, of_target))
    return reduced_loss(loss, counts, reduction)


@pattern("losses", i=4096, d=2048, c=4096, v=32000, dtype="bfloat16")
def linear_distillation(*, temperature: Any = 1, reduction: str = "mean") -> Fused:
    """The divergence KL(teacher ‖ student) of the words of two heads, without the scores of either in memory.

    Scores are Σ_d h[i,d]·w[v,d] and, of the teacher, Σ_c teacher_h[i,c]·teacher_w[v,c], both over the temperature T;
    the divergence is times T², so that gradients keep their size.

    Args:
        temperature: a positive number, or a scalar of the call (`ra.scalars("T", positive=True)`).
        reduction: `"mean"` over the rows, `"sum"`, or `"none"`.

    Returns:
        The fused function, with the output out[] or out[i].

    Source: Hinton, Vinyals, Dean (2015), section 2.

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> heads = {"h": one, "w": np.array([[0.0], [1.0]]), "teacher_h": one, "teacher_w": np.array([[0.0], [1.0]])}
    >>> abs(float(linear_distillation(temperature=2)(**heads).round(6)))
    0.0
    """
    check_reduction("linear_distillation", reduction)
    v, d, c = axes("v d c")
    h, w, of_teacher, teacher_w = tensors("h[i,d] w[v,d] teacher_h[i,c] teacher_w[v,c]")
    student, teacher = sum_over(h * w, d) / temperature, sum_over(of_teacher * teacher_w, c) / temperature
    means = sum_over(sugar.softmax(teacher, v) * (teacher - student), v)
    loss = temperature**2 * (means - sugar.logsumexp(teacher, v) + sugar.logsumexp(student, v))
    return reduced_loss(loss, 1, reduction)


def reduced_loss(loss: Any, counts: Any, reduction: str) -> Fused:
    """A loss of rows i, reduced over them; a mean is over the sum of what each counts."""
    i = axes("i")
    if reduction == "none":
        return fuse(loss, axes="i")
    total = sum_over(loss, i)
    if reduction == "sum":
        return fuse(total, axes="")
    return fuse(total / (i.extent if counts == 1 else sum_over(counts, i)), axes="")


def check_reduction(caller: str, reduction: str) -> None:
    """Refuse what is no reduction."""
    if reduction not in REDUCTIONS:
        raise ExpressionError(f"{caller}: reduction={reduction!r} is none of {', '.join(map(repr, REDUCTIONS))}.")
