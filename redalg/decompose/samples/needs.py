"""The need of outputs for reductions without a state: sums may cancel, and an output may ignore one.

    out(S_1 + ε·F_1(x_i, d), …, S_p + ε·F_p(x_i, d)) = out + ε·G(x_i, d) + …          G = Σ_s ∂out/∂S_s · F_s

An element that is taken ε times more moves the outputs by ε·G, and through d. So a state of the prefix that serves the
outputs holds at least as many numbers as the rank of G(x_i, d_j) less the number of values that d is made of. If G has
a small rank, a theorem about one F_s says nothing about the outputs. For an extremum the element that attains it
counts, for a product the logarithm of its factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from sympy import Add, Expr, Max, Min, Mul, Pow, Tuple, sign
from sympy.core.relational import Relational

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.samples.rank import AGAIN, FLOATS, SMALL, RankTest, Setting, Sizes, Unavailable
from redalg.decompose.samples.winners import ENDS
from redalg.decompose.separate.signs import Facts, KnownFacts, sign_of
from redalg.errors import Text
from redalg.expression import Value
from redalg.expression.contents import elements_of, nodes_of, of_kind, sympy_text, values_of
from redalg.expression.operators import operator_of

STEP = 2.0**-11
"""The step of a derivative, relative to the value."""
STENCIL = ((1, 8 / 12), (-1, -8 / 12), (2, -1 / 12), (-2, 1 / 12))
"""Steps and weights of a derivative of order 4."""
LOOKS = 6
"""Further draws in which an output may depend on the only reduction without a state."""
ROUNDED = 1e-10
"""Singular values below this share of what is added up are rounding."""
Terms: TypeAlias = Mapping[Reduction, Expr]


def needs(cascade: Cascade, reduction: Reduction, without: Iterable[Reduction]) -> bool:
    """Tell, without samples, if an output needs a reduction: nothing else `without` a state in it may cancel it."""
    others = {one.value for one in without if one is not reduction}
    for other in cascade.reductions:
        if not values_of(other.term).isdisjoint({reduction.value, *others}):
            others.add(other.value)
    return any(passes_on(one.expr, reduction.value, others - {reduction.value}) for one in cascade.outputs)


def passes_on(output: Expr, value: Value, others: Iterable[Value]) -> bool:
    """Tell, without samples, if an output moves with a value for any others: it stands once, under smooth functions."""
    if not values_of(output).isdisjoint(others):
        return False
    node = output
    while node != value:
        holding = [one for one in node.args if value in values_of(one)]
        operator = operator_of(node)
        if len(holding) != 1 or not (isinstance(node, Add | Mul | Pow) or (operator and operator.strict)):
            return False
        node = holding[0]
    return True


def output_rank_test(cascade: Cascade, terms: Terms, setting: Setting) -> RankTest | None:
    """The rank of G at samples, the largest over all outputs; None if it cannot be measured.

    If only one reduction has no state, nothing can cancel it. Its rank counts if an output depends on it at all.

    Args:
        cascade: the cascade.
        terms: the reductions that have no state, each with its term.
        setting: the setting of samples at which the first of them has a large rank.
    """
    facts = KnownFacts({one.value: (one.monoid.name, one.term) for one in cascade.reductions if one.is_scalar})
    tests, here = list[RankTest](), replace(setting, facts=facts, copies=0)
    looks = [(here, plan) for plan in ((AGAIN[setting.seed - 1][0],) if setting.seed else ()) + FLOATS[::2]]
    if len(terms) == 1:  # an output may be flat where values are large
        looks.append((replace(here, seed=1, copies=LOOKS, far=True), FLOATS[0]))
    for variant, plan in looks:
        tests += _at(variant, cascade, terms, plan)
        if any(one.grows for one in tests):
            break
    return max(tests, key=lambda one: one.ranks[1], default=None)


def _at(setting: Setting, cascade: Cascade, terms: Terms, plan: Sizes) -> list[RankTest]:
    """The rank of G of every output at the samples of a plan; empty if it cannot be measured."""
    import numpy as np

    from redalg.decompose.samples.arithmetic import Floats

    outputs = [one.expr for one in cascade.outputs]
    for positive in (False, True):
        try:
            [samples] = setting.samples([*terms.values(), *outputs], plan, (Floats(np.longdouble),), positive=positive)
            if len(terms) == 1:
                [reduction] = terms
                compared = _deciding_values(cascade, reduction, setting)
                return [_if_read(samples, one, reduction, compared) for one in outputs]
            return [_of_view(samples, view, terms) for one in outputs for view in _views(samples, one)]
        except Unavailable as why:
            if not why.data:
                break
    return []


def _deciding_values(cascade: Cascade, reduction: Reduction, setting: Setting) -> list[Value]:
    """The values that decide a choice, among those of a reduction and of later ones that hold its value.

    The compared difference has no known sign, and reaches 0 by the value or by the terms beside it. For example,
    tanh S > 2 decides nothing.
    """
    values, exprs = {reduction.value: None}, [one.expr for one in cascade.outputs]
    for other in cascade.reductions:
        if not values_of(other.term).isdisjoint(values):
            values[other.value] = None
            exprs.append(other.term)
    differences = [one.lhs - one.rhs for one in of_kind(Relational, *exprs)]
    differences += [one.args[0] for one in of_kind(sign, *exprs)]
    differences += [one.args[0] - one.args[1] for kind in (Max, Min) for one in of_kind(kind, *exprs)]
    unknown = [one for one in differences if sign_of(one, setting.facts) is None]
    return [value for value in values if any(_reaches(one, value, setting.facts) for one in unknown)]


def _reaches(difference: Expr, value: Value, facts: Facts) -> bool:
    """Tell, without samples, if a difference is 0 for some number as the value, whatever else it holds."""
    if without_bound(difference, value):
        return True
    holding = [one for one in Add.make_args(difference) if value in values_of(one)]
    beside = [one for one in Add.make_args(difference) if one not in holding]
    if len(holding) != 1 or not passes_on(holding[0], value, ()):
        return False
    return any(sign_of(leaf, facts) is None and without_bound(term, leaf)
               for term in beside for leaf in values_of(term) | elements_of(term))  # fmt: skip


def without_bound(node: Expr, value: Expr) -> bool:
    """Tell, without samples, if an expression grows with a value without bound: the value stands in it once."""
    while node != value:
        holding = [one for one in node.args if value in nodes_of(one)]
        operator = operator_of(node)
        unbounded = operator is not None and operator.strict and operator.unbounded
        grows = isinstance(node, Add | Mul) or unbounded or (isinstance(node, Pow) and node.exp.is_positive)
        if len(holding) != 1 or not grows:
            return False
        node = holding[0]
    return True


def _if_read(samples: Any, output: Expr, reduction: Reduction, compared: Iterable[Value]) -> RankTest:
    """A large rank if an output changes when a reduction takes the value of another data set; else 0.

    Samples need not reach a threshold: a compared value counts if it changes.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        numbers = samples.value(samples.node_of(reduction.value))
        rolled = samples.with_numbers(reduction.value, np.roll(numbers, 1, axis=0))
        pairs = [(samples.value(samples.node_of(one)), rolled.value(rolled.node_of(one))) for one in compared]
        pairs.append((_at_one(samples, output), _at_one(rolled, output)))
    differs = any(bool(((before != after) & ~(np.isnan(before) & np.isnan(after))).any()) for before, after in pairs)
    rank = samples.draws.rows if differs else 0
    return RankTest((min(rank, SMALL), rank), rows=samples.draws.rows)


def _views(samples: Any, output: Expr) -> Iterator[Expr]:
    """Yield an output, and each difference that its conditions and signs compare if both its signs occur at samples.

    A condition or a sign depends on the whole difference.
    """
    yield output
    for node in sorted(of_kind(Relational, output), key=sympy_text) + sorted(of_kind(sign, output), key=sympy_text):
        difference = node.lhs - node.rhs if isinstance(node, Relational) else node.args[0]
        if values_of(difference):
            numbers = _at_one(samples, difference)
            if (numbers > 0).any() and (numbers < 0).any():
                yield difference


def _of_view(samples: Any, output: Expr, terms: Terms) -> RankTest:
    """The rank of G for one view: an output, or a difference that it compares."""
    import numpy as np

    rows = samples.draws.rows
    with np.errstate(all="ignore"):
        parts = [_slope(samples, output, one) * _weight_change(samples, one, term) for one, term in terms.items()]
    whole, sizes = sum(parts), sum(map(np.abs, parts))
    columns = np.isfinite(sizes).all(axis=0)
    if columns.sum() <= SMALL:
        raise Unavailable(Text("`", output, "` is not a real number at the samples"), data=True)
    whole, sizes = whole[:, columns], sizes[:, columns]
    for axis in (0, 1):
        largest = sizes.max(axis=axis, keepdims=True)
        scale = 1 / np.where(largest > 0, largest, 1)
        whole, sizes = whole * scale, sizes * scale
    whole, sizes = whole.astype(np.float64), sizes.astype(np.float64)
    noise = ROUNDED * np.sqrt((sizes**2).sum())
    ranks = [int((np.linalg.svd(whole[:size], compute_uv=False) > noise).sum()) for size in (SMALL, rows)]
    return RankTest((ranks[0], ranks[1]), rows=rows)


def _slope(samples: Any, output: Expr, reduction: Reduction) -> Any:
    """∂out/∂S for each data set; if the output carries the axis, at one of its elements."""
    import numpy as np

    value = reduction.value
    base = samples.value(samples.node_of(value))
    step = STEP * np.where(base == 0, 1, np.abs(base))
    change = sum(weight * _at_one(samples.with_numbers(value, base + way * step), output) for way, weight in STENCIL)
    return change / step


def _at_one(samples: Any, output: Expr) -> Any:
    import numpy as np

    draws = samples.draws
    known = samples.node_of(output)
    if not known.on_x:
        return np.broadcast_to(samples.value(known), (draws.columns, *draws.copies))
    columns = np.arange(draws.columns)
    return samples.spread(known)[columns % draws.rows, columns]


def _weight_change(samples: Any, reduction: Reduction, term: Expr) -> Any:
    """The change of a reduction with the weight of each x_i."""
    import numpy as np

    kind = reduction.monoid.name
    compared = term.args[0] if isinstance(term, Tuple) else term
    if kind == "sum":
        return samples.matrix(term)
    if kind == "prod":
        return np.log(np.abs(samples.matrix(term))) * samples.value(samples.node_of(reduction.value))
    if kind not in ENDS:
        raise Unavailable(Text(f"a {kind} has no weights"))
    whole = ENDS[kind] * samples.whole(compared)
    first = np.where(np.isnan(whole), -np.inf, whole).argmax(axis=0)
    return (np.arange(len(whole))[:, None] == first)[: samples.draws.rows].astype(samples.arithmetic.dtype)
