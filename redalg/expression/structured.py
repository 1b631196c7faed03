"""Reductions that give indices, several results, or depend on the order of elements; and those of registered monoids.

They are over one axis each. Indices are int64 and count along the whole axis, whatever pieces it comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Expr, S, Tuple

from redalg.errors import ExpressionError
from redalg.expression.arguments import answer_arguments
from redalg.expression.axis import Axis
from redalg.expression.reduce import Reduce, checked_axes, checked_place, term_of, truth_value
from redalg.expression.spelling import no_other
from redalg.monoids import Monoid, monoid


@answer_arguments(ExpressionError, "Write `ra.argmax(x, n)`.")
def argmax(expr: Any, axis: Any = None, *more: Any, **options: Any) -> Reduce:
    """Index of the largest `expr` along `axis`, the lowest of several (int64; −1 over an empty axis).

    The first NaN counts as the largest, as in torch and NumPy.

    >>> from redalg import axes, tensor
    >>> argmax(tensor("x[b,n]"), axes("n"))
    argmax(x[b, n], n)
    """
    no_other("argmax", options)
    return _only(reductions("argmax", (expr,), axis, more=more))


@answer_arguments(ExpressionError, "Write `ra.argmin(x, n)`.")
def argmin(expr: Any, axis: Any = None, *more: Any, **options: Any) -> Reduce:
    """Index of the smallest `expr` along `axis`, the lowest of several (int64; −1 over an empty axis; see `argmax`).

    >>> from redalg import axes, tensor
    >>> argmin(tensor("x[b,n]"), axes("n"))
    argmin(x[b, n], n)
    """
    no_other("argmin", options)
    return _only(reductions("argmin", (expr,), axis, more=more))


@answer_arguments(ExpressionError, "Write `values, indices = ra.topk(x, n, j)`.")
def topk(expr: Any, axis: Any = None, place: Any = None, **options: Any) -> tuple[Reduce, Reduce]:
    """The largest elements of `expr` along `axis` with their indices, in falling order; of equal ones the lower first.

    Args:
        expr: the term.
        axis: the axis along which it is selected.
        place: a new axis of fixed size, `j = ra.axis("j", size=4)`, that numbers the results: the size is k, and the
            results carry j in place of `axis`.

    Returns:
        (values, indices). A NaN counts as larger than any number. Where the axis has fewer than k elements, the places
        left over hold −∞ and the index −1.

    >>> import redalg as ra
    >>> k, j = ra.axis("k"), ra.axis("j", size=4)
    >>> ra.topk(ra.tensor("s[t,k]"), k, j)
    (topk(s[t, k], k, j).values, topk(s[t, k], k, j).indices)

    No tensor has the new axis, so `fuse` is told where it stands in the output:

    >>> ra.fuse(ra.topk(ra.tensor("s[t,k]"), k, j)[0], axes="t j").cascade.outputs[0].axes
    (t, j)
    """
    if options or not isinstance(axis, Axis) or not isinstance(place, Axis):
        raise _misspelt_topk(axis, place, options)
    checked_place(place, term_of("topk", expr), Tuple(*checked_axes("topk", (axis,))))
    values, indices = reductions("topk", (expr,), axis, place)
    return values, indices


def _misspelt_topk(axis: Any, place: Any, options: Mapping[str, Any]) -> ExpressionError:
    """The error for a `topk` that is called as in another library."""
    arguments = {"axis": axis, "place": place, **options}
    size = next((one for one in arguments.values() if isinstance(one, int)), 4)
    listed = ", ".join(f"{name}={one!r}" for name, one in arguments.items() if one is not None)
    return ExpressionError(
        f"topk: it takes a term, the axis that it selects along and a new axis, whose size is k; found "
        f'{listed or "no axis"}. Write `ra.topk(x, n, j)` with `n = ra.axes("n")` and `j = ra.axis("j", size={size})`.'
    )


@answer_arguments(ExpressionError, "Write `ra.sum_at_max(value, weight, n)`.")
def sum_at_max(value: Any, weight: Any, axis: Any = None, **options: Any) -> Reduce:
    """Σ `weight` over the elements whose `value` is the largest along `axis` (0 over an empty axis; NaN beside a NaN).

    With weight 1 it counts the ties of the maximum.

    >>> from redalg import axes, tensors
    >>> x, w = tensors("x[b,n] w[b,n]")
    >>> sum_at_max(x, w, axes("n"))
    sum_at_max(x[b, n], w[b, n], n)
    """
    no_other("sum_at_max", options, called="x, w, n")
    return _only(reductions("sum_at_max", (value, weight), axis))


@answer_arguments(ExpressionError, "Write `ra.first(x, n)`.")
def first(expr: Any, axis: Any = None, where: Any = None, **options: Any) -> Reduce:
    """`expr` at the first element along `axis` (of those at which the condition `where` holds); NaN where none is.

    Its pieces are merged in the order of the axis.

    >>> from redalg import axes, tensor
    >>> first(tensor("x[b,n]"), axes("n"))
    first(x[b, n], 1, n)
    """
    no_other("first", options, ("where",))
    return _only(reductions("first", (expr, _counts(where, "first")), axis))


@answer_arguments(ExpressionError, "Write `ra.last(x, n)`.")
def last(expr: Any, axis: Any = None, where: Any = None, **options: Any) -> Reduce:
    """`expr` at the last element along `axis` (of those at which the condition `where` holds); see `first`.

    >>> from redalg import axes, tensor
    >>> x, n = tensor("x[b,n]"), axes("n")
    >>> last(x, n), last(x, n, where=x > 0)
    (last(x[b, n], 1, n), last(x[b, n], where(x[b, n] > 0, 1, 0), n))
    """
    no_other("last", options, ("where",))
    return _only(reductions("last", (expr, _counts(where, "last")), axis))


def _counts(where: Any, caller: str) -> Expr:
    return S.One if where is None else truth_value(where, caller)


@answer_arguments(ExpressionError, "Write `ra.affine(a, b, n)`.")
def affine(scale: Any, shift: Any, axis: Any = None, **options: Any) -> tuple[Reduce, Reduce]:
    """The linear recurrence h_n = scale_n·h_(n−1) + shift_n along `axis`, as (A, B) with h = A·h_0 + B at its end.

    B alone is the result for h_0 = 0. Over an empty axis (1, 0). Its pieces are merged in the order of the axis.

    Source: Blelloch, Prefix sums and their applications (1990), section 1.4.

    >>> from redalg import axes, tensors
    >>> a, u = tensors("a[b,n] u[b,n]")
    >>> affine(a, u, axes("n"))[1]
    affine(a[b, n], u[b, n], n).shift
    """
    no_other("affine", options, called="a, u, n")
    a, b = reductions("affine", (scale, shift), axis)
    return a, b


@answer_arguments(ExpressionError, "Write `ra.compensated_sum(x, n)`.")
def compensated_sum(expr: Any, axis: Any = None, *more: Any, **options: Any) -> Reduce:
    """Σ of `expr` along `axis`, with the rounding error carried beside the sum: nearly twice the digits.

    Source: Knuth, The Art of Computer Programming 2, section 4.2.2 (TwoSum), within blocks as a tree.

    >>> from redalg import axes, tensor
    >>> compensated_sum(tensor("x[b,n]"), axes("n"))
    compensated_sum(x[b, n], n)
    """
    no_other("compensated_sum", options)
    return _only(reductions("compensated_sum", (expr,), axis, more=more))


@answer_arguments(ExpressionError, "Write `ra.reduce(name, x, axis=n)`.")
def reduce(name: str, *exprs: Any, axis: Any = None) -> Any:
    """A reduction by the monoid of that name, registered by `register_monoid` or redalg's own.

    Args:
        name: the monoid's name.
        exprs: its operands, each an expression.
        axis: the axis that is reduced.

    Returns:
        One reduction, or a tuple of its results.

    >>> from redalg import axes, tensor
    >>> reduce("logsumexp", tensor("x[b,n]"), axis=axes("n"))
    logsumexp(x[b, n], n)
    """
    if axis is None:
        raise ExpressionError(f"reduce: no axis given. Write `ra.reduce({name!r}, …, axis=n)` with `n = ra.axes('n')`.")
    results = reductions(name, exprs, axis)
    return results[0] if len(results) == 1 else results


def reductions(
    name: str, exprs: tuple[Any, ...], axis: Any, place: Axis | None = None, *, more: tuple[Any, ...] = ()
) -> tuple[Reduce, ...]:  # fmt: skip
    """Every result of one reduction, over one axis; `more` axes are refused by the reductions that take one."""
    kind = monoid(name)
    bound = checked_axes(name, () if axis is None else (axis, *more))
    terms = [term_of(name, one) for one in exprs]
    _check(kind, terms, bound, place)
    operand = terms[0] if len(terms) == 1 else Tuple(*terms)
    return tuple(Reduce(name, operand, bound, one.name, place) for one in kind.results if not one.hidden)


def _check(kind: Monoid, terms: list[Expr], bound: list[Axis], place: Axis | None) -> None:
    if kind.name == "gcd":
        raise ExpressionError("reduce: gcd is a monoid of natural numbers, and redalg's terms are extended reals.")
    if len(terms) != len(kind.domains):
        index = " (the last argument of its `lift` is the index)" if len(terms) == len(kind.domains) + 1 else ""
        raise ExpressionError(
            f"{kind}: {len(terms)} operands are given, and the monoid has {len(kind.domains)}{index}. Give each as an "
            "expression of its own."
        )
    if len(bound) != 1:
        raise ExpressionError(
            f"{kind}: {len(bound)} axes are given ({', '.join(map(str, bound))}). Its indices and its order are those "
            "of one axis: give one, and pass data over several axes with these as one."
        )
    if kind.name == "topk" and place is None:
        raise ExpressionError("reduce: topk needs a new axis for its results. Write `ra.topk(expr, n, j)`.")


def _only(results: tuple[Reduce, ...]) -> Reduce:
    [reduction] = results
    return reduction
