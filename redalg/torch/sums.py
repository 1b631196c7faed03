"""Rules of operators that reduce: sums, extrema, statistics, norms, weights of exponentials, products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sympy import Eq, Expr, Integer, Mul, S, exp, floor, log, sqrt
from sympy.core.basic import Basic

from redalg.expression import Axis, Where
from redalg.expression.reduce import all as all_of
from redalg.expression.reduce import any as any_of
from redalg.expression.reduce import max as max_of
from redalg.expression.reduce import min as min_of
from redalg.expression.reduce import prod as product_of
from redalg.expression.reduce import sum as sum_of
from redalg.expression.structured import argmax, argmin
from redalg.graphs.views import broadcast
from redalg.torch.site import Operand, Site, Unwritten, rules_by_name

Reduction = Callable[..., Expr]
LARGEST, LEAST = "max", "min"

# ---- one reduction ---------------------------------------------------------------------------------------------------


def reduce_rule(reduction: Reduction, at: Site) -> Basic:
    """A reduction over some dimensions, or all."""
    operand = at["self"]
    place, axes = at.across(operand, at.dimensions(operand))
    return reduction(at.value(operand, place), *axes) if axes else at.value(operand, place)


def truth_rule(reduction: Reduction, at: Site) -> Basic:
    """The truth that any element is true, or all are."""
    operand = at["self"]
    place, axes = at.across(operand, at.dimensions(operand))
    return reduction(at.truth(operand, place), *axes)


def number_of_elements(at: Site, axes: Sequence[Axis]) -> Expr:
    """The number of elements that axes run over."""
    return Mul(*(at.lengths[axis] for axis in axes))


def average(at: Site, term: Expr, axes: Sequence[Axis]) -> Expr:
    """Σ of a term over axes, by the number of its elements."""
    return sum_of(term, *axes) / number_of_elements(at, axes) if axes else term


def mean_rule(at: Site) -> Basic:
    """The mean over some dimensions, or all."""
    operand = at["self"]
    place, axes = at.across(operand, at.dimensions(operand))
    return average(at, at.value(operand, place), axes)


def spread_of(at: Site, x: Expr, axes: Sequence[Axis], correction: Expr = S.Zero) -> Expr:
    """The variance of a term over axes."""
    squares = sum_of((x - average(at, x, axes)) ** 2, *axes)
    return squares / (number_of_elements(at, axes) - correction)


def variance_rule(at: Site) -> Basic | tuple[Basic, ...]:
    """The variance over some dimensions, or all; of `var_mean` beside the mean."""
    operand, given = at["self"], at["correction"]
    correction = S.One if given is None and at["unbiased"] is not False else Integer(given or 0)
    place, axes = at.across(operand, at.dimensions(operand))
    x = at.value(operand, place)
    found = spread_of(at, x, axes, correction)
    return (found, average(at, x, axes)) if at.operator == "var_mean" else found


def prepared_softmax_rule(at: Site) -> tuple[Basic, ...]:
    """The largest element along a dimension, and the sum of exponentials about it: an operator of Inductor's.

    The sum reads the maximum, so that whatever holds both and reads them is convex.
    """
    operand = at["a"]
    place, axes = at.across(operand, [at.dimension(operand)])
    x = at.value(operand, place)
    return max_of(x, *axes), sum_of(exp(x - at.result(0)), *axes)


def best_rule(kind: str, at: Site) -> Basic | tuple[Basic, ...]:
    """The largest or least element: of a whole tensor, along a dimension with its place, or of two tensors."""
    operand, largest = at["self"], kind == LARGEST
    if at["other"] is not None:
        raise Unwritten("an extremum of two tensors by this name")
    reduction, where = (max_of, argmax) if largest else (min_of, argmin)
    whole = at["dim"] is None
    place, axes = at.across(operand, range(operand.rank) if whole else [at.dimension(operand)])
    x = at.value(operand, place)
    return reduction(x, *axes) if whole else (reduction(x, *axes), where(x, *axes))


def place_rule(kind: str, at: Site) -> Basic:
    """The place of the largest or the least element along a dimension."""
    operand = at["self"]
    if at["dim"] is None and operand.rank > 1:
        raise Unwritten("the place of an extremum in a whole tensor")
    place, axes = at.across(operand, [at.dimension(operand)])
    return (argmax if kind == LARGEST else argmin)(at.value(operand, place), *axes)


# ---- exponentials ----------------------------------------------------------------------------------------------------


def weights_rule(at: Site) -> Basic:
    """e^(x − m)/Σ e^(x − m) along a dimension, m the largest x; or its logarithm."""
    operand, place = at["self"], list[Expr](at.axes())
    dim = at.dimension(operand)
    axis = at.bound(operand.type.shape[dim])
    along = at.value(operand, [*place[:dim], axis, *place[dim + 1 :]])
    largest = max_of(along, axis)
    total, x = sum_of(exp(along - largest), axis), at.value(operand, place)
    return x - largest - log(total) if "log" in at.operator else exp(x - largest) / total


def log_of_sum_rule(at: Site) -> Basic:
    """m + log Σ e^(x − m) over some dimensions, m the largest x."""
    operand = at["self"]
    place, axes = at.across(operand, at.dimensions(operand))
    x = at.value(operand, place)
    largest = max_of(x, *axes)
    return largest + log(sum_of(exp(x - largest), *axes))


# ---- norms -----------------------------------------------------------------------------------------------------------


def scale_and_shift(at: Site, x: Expr, place: Sequence[Expr]) -> Expr:
    """w·x + b, of which either may be missing."""
    weight, bias = at["weight"], at["bias"]
    scaled = x if weight is None else x * at.value(weight, place)
    return scaled if bias is None else scaled + at.value(bias, place)


def layer_norm_rule(at: Site) -> tuple[Basic, ...]:
    """(x − μ)/√(σ² + ε) over the last dimensions, by weight and bias; μ and the reciprocal root."""
    operand, first = at["input"], at["input"].rank - len(at["normalized_shape"])
    dims, place = range(first, operand.rank), at.axes()
    epsilon, inside = at.value(at["eps"]), list[Axis]()
    for dim in dims:
        inside.append(at.bound(operand.type.shape[dim]))
    row = at.value(operand, [*place[:first], *inside])
    center, root = average(at, row, inside), sqrt(spread_of(at, row, inside) + epsilon)
    made = scale_and_shift(at, (at.value(operand, place) - center) / root, place[first:])
    return (made, center, 1 / root)[: len(at.results)]


def group_norm_rule(at: Site) -> tuple[Basic, ...]:
    """(x − μ)/√(σ² + ε) over a group of channels and all places, by weight and bias; μ and the reciprocal root."""
    operand, count = at["input"], Integer(at["group"])
    n, c, *places = at.axes()
    each = operand.type.shape[1] / count
    channel, *rest = (at.bound(size) for size in (each, *operand.type.shape[2:]))
    epsilon = at.value(at["eps"])

    def statistics(group: Expr) -> tuple[Expr, Expr]:
        row = at.value(operand, [n, group * each + channel, *rest])
        return average(at, row, [channel, *rest]), sqrt(spread_of(at, row, [channel, *rest]) + epsilon)

    center, root = statistics(floor(c / each))
    made = scale_and_shift(at, (at.value(operand, [n, c, *places]) - center) / root, [c])
    center, root = statistics(c)  # of the other results the second axis counts groups
    return (made, center, 1 / root)


def batch_norm_rule(at: Site) -> tuple[Basic, ...]:
    """(x − μ)/√(σ² + ε) by running statistics, weight and bias; its other results are empty."""
    place = at.axes()
    channel = [place[1]]
    center, square = at.value(at["running_mean"], channel), at.value(at["running_var"], channel)
    x = (at.value(at["input"], place) - center) / sqrt(square + at.value(at["eps"]))
    return (scale_and_shift(at, x, channel), *[S.Zero] * (len(at.results) - 1))


# ---- products --------------------------------------------------------------------------------------------------------


def matrix_product(at: Site, a: Operand, b: Operand, places: tuple[Sequence[Expr], Sequence[Expr]]) -> Expr:
    """Σ_k of the elements at places, to which k is added last of the first, and ahead of the last of the second."""
    k = at.bound(a.type.shape[-1])
    first, second = places
    return sum_of(at.value(a, [*first, k]) * at.value(b, [*second[:-1], k, *second[-1:]]), k)


def multiply_rule(at: Site) -> Basic:
    """A product of matrices, of each of a batch, of a matrix and a vector, or of vectors."""
    a, b = at["self"], next(at[name] for name in ("mat2", "vec", "tensor", "other") if at[name] is not None)
    place = at.axes()
    if a.rank == 1 or b.rank == 1:
        k = at.bound(a.type.shape[-1])
        return sum_of(at.value(a, [*place, k][-a.rank :]) * at.value(b, [k]), k)
    if a.rank != b.rank or a.rank != len(place):
        raise Unwritten("a product of tensors of several ranks")
    *batch, row, column = place
    return matrix_product(at, a, b, ([*batch, row], [*batch, column]))


def multiply_and_add_rule(at: Site) -> Basic:
    """β·c + α·a b."""
    first, second = ("mat1", "mat2") if at.operator == "addmm" else ("batch1", "batch2")
    *batch, row, column = at.axes()
    term = matrix_product(at, at[first], at[second], ([*batch, row], [*batch, column]))
    alpha, beta = (at.value(1 if at[name] is None else at[name]) for name in ("alpha", "beta"))
    return beta * at.value(at["self"]) + alpha * term


def convolution_rule(at: Site) -> Basic:
    """Σ_c w[o, c]·x[n, c, s·place] + bias[o], of windows of one place; larger windows are a library's."""
    operand, weight = at["input"], at["weight"]
    numbers = (*((one, 0) for one in at["padding"]), (at["groups"], 1), (at["transposed"], False))
    if any(size != 1 for size in weight.type.shape[2:]) or any(found != wanted for found, wanted in numbers):
        raise Unwritten("a product over windows, which a library multiplies")
    n, o, *places = at.axes()
    c = at.bound(operand.type.shape[1])
    places = [step * place for step, place in zip(at["stride"], places, strict=True)]
    term = sum_of(at.value(operand, [n, c, *places]) * at.value(weight, [o, c, *[S.Zero] * len(places)]), c)
    return term if at["bias"] is None else term + at.value(at["bias"], [o])


def sdpa_rule(at: Site) -> Basic | tuple[Basic, ...]:
    """Σ_k w_k v_k, w the weights of the scores q·k/√d, to which a mask is added; shared heads count over.

    A row that a mask leaves nothing of is 0, as PyTorch's.
    """
    q, k, v = at["query"], at["key"], at["value"]
    if at["dropout_p"]:
        raise Unwritten("it draws random numbers")
    *batch, head, row, column = at.axes()
    heads = head if q.type.shape[-3] == k.type.shape[-3] else floor(head * k.type.shape[-3] / q.type.shape[-3])
    inner, key = at.bound(q.type.shape[-1]), at.bound(k.type.shape[-2])
    scale = 1 / sqrt(q.type.shape[-1]) if at["scale"] is None else at.value(at["scale"])
    dot = sum_of(at.value(q, [*batch, head, row, inner]) * at.value(k, [*batch, heads, key, inner]), inner)
    scores = dot * scale
    if at["attn_mask"] is not None:
        scores = add_mask(at, scores, at["attn_mask"], (*batch, head, row, key))
    if at["is_causal"]:
        scores = Where(key <= row, scores, S.NegativeInfinity)
    largest = max_of(scores, key)
    raised = exp(scores - largest)
    total = sum_of(raised, key)
    out = sum_of(raised / total * at.value(v, [*batch, heads, key, column]), key)
    if at["attn_mask"] is not None:
        out = Where(Eq(largest, S.NegativeInfinity), S.Zero, out)
    if len(at.results) == 1:
        return out
    if len(at.results) != len(("out", "log of the sum")):
        raise Unwritten("it hands on the state of a random generator")
    return out, largest + log(total)


def add_mask(at: Site, scores: Expr, mask: Operand, place: Sequence[Expr]) -> Expr:
    """Scores where a mask of truth values holds; with another mask added."""
    here = broadcast(mask.type.shape, place)
    if mask.type.dtype == "bool":
        return Where(at.truth(mask, here), scores, S.NegativeInfinity)
    return scores + at.value(mask, here)


SUMS = rules_by_name({
    "sum": partial(reduce_rule, sum_of), "prod": partial(reduce_rule, product_of), "amax": partial(reduce_rule, max_of),
    "amin": partial(reduce_rule, min_of), "any": partial(truth_rule, any_of), "all": partial(truth_rule, all_of),
    "mean": mean_rule, "var var_mean": variance_rule, "max": partial(best_rule, LARGEST),
    "min": partial(best_rule, LEAST), "argmax": partial(place_rule, LARGEST), "argmin": partial(place_rule, LEAST),
    "_softmax softmax _log_softmax log_softmax": weights_rule, "logsumexp": log_of_sum_rule,
    "prepare_softmax_online": prepared_softmax_rule,
    "native_layer_norm layer_norm": layer_norm_rule, "native_group_norm": group_norm_rule,
    "_native_batch_norm_legit_no_training": batch_norm_rule, "mm bmm mv dot matmul": multiply_rule,
    "addmm baddbmm": multiply_and_add_rule, "convolution": convolution_rule,
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu": sdpa_rule,
})  # fmt: skip
"""Operator -> its rule."""
