"""The instructions of a form's terms, by the axes along which each is given anew.

    x[i] − y[j]        one for every row and streamed element
    x[i]²              one for every row: it stands outside the loop, and is not counted
    Σ_d f(i, j, d)     those of f for every d as well

A product that is added is one instruction with the sum (a fused multiply-add); a sign or an absolute value is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

from sympy import Abs, Add, And, Basic, Expr, Mul, Number, Pow, Rational, cos, exp, log, sin
from sympy.core.operations import LatticeOp
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Element, Where
from redalg.expression.contents import elements_of, free_axes
from redalg.expression.nodes import Cast, Let
from redalg.expression.straight_through import StraightThrough
from redalg.expression.tensor import Value
from redalg.incremental.form import Accumulator, FusedForm

COMPARED = 3
"""Plain instructions of an extremum that has its place, or another state of several components."""
TURN = 28
"""Plain instructions of a sine or cosine (H100: a structure factor of 4096 x 65536 in 607 µs)."""
FUNCTION = 4
"""Plain instructions of a function that is not named here, beside its special one."""


@final
@dataclass(frozen=True)
class Count:
    """Instructions for every point of some axes.

    Attributes:
        axes: their names.
        plain, special: additions, products and comparisons; exponentials, logarithms, quotients and roots.
        producer: the name of the producer that they compute, if any.
        is_product: True if they are the sum of a product of factors over different axes.
    """

    axes: frozenset[str]
    plain: float
    special: float
    producer: str = ""
    is_product: bool = False


def counts_of(form: FusedForm) -> tuple[Count, ...]:
    """The instructions in the loop of a form, without those that depend on no streamed element."""
    streamed, sums, others = form.cascade.axis, list[Expr](), list[Expr]()
    products = list[frozenset[str]]()
    for accumulator in form.accumulators:
        left, *factors = scaled_factors(accumulator)
        if factors:
            others += [left, *factors]
            products.append(names(left, *factors))
        else:
            sums.append(left)
    sums += [pivot.base for pivot in form.slot_pivots]
    others += [part for one in form.structures for part in one.operands]
    masks = [one for one in And.make_args(form.cascade.domain) if elements_of(one)]
    reduced = [one.term for one in form.extrema]
    found = list(counts_of_terms(sums, (*reduced, *others, *masks), streamed))
    found += [Count(names(one), 1, 0) for one in masks]  # a choice of the element or none
    found += [Count(names(one), 1, 0) for one in reduced]
    found += [Count(names(one.term), COMPARED, 0) for one in form.structures]
    found += [Count(axes, 1, 0, is_product=True) for axes in products]
    for producer in form.cascade.producers:
        inner = producer.cascade.axis
        terms = [one.term for one in producer.cascade.reductions]
        outer = names(*producer.axes)
        for count in counts_of_terms(terms, (), inner):
            found.append(Count(count.axes | outer, count.plain, count.special, producer.name))
    return tuple(one for one in found if str(streamed) in one.axes)


def scaled_factors(accumulator: Accumulator) -> tuple[Expr, ...]:
    """The factors of a sum, the first with the exponentials that scale it."""
    first, *factors = accumulator.factors
    return Mul(*(exp(q * (pivot.base - pivot.value)) for pivot, q in accumulator.weight), first), *factors


def counts_of_terms(sums: Iterable[Expr], others: Iterable[Expr], axis: Axis) -> Iterator[Count]:
    """The instructions of terms that are summed along an axis, and of others; equal parts are counted once."""
    sums = [one for one in sums if axis in free_axes(one)]
    nodes = nodes_outside_indices((*sums, *others))
    plain, special = Counter[frozenset[str]](), Counter[frozenset[str]]()
    fused = set[Basic]()
    for term in sums:
        fused |= {term} if is_multiplied(term) else set()
        plain[names(term)] += 1
    for node in nodes:
        if isinstance(node, Add):
            multiplied = [part for part in node.args if is_multiplied(part)]
            fused |= set(multiplied[: len(node.args) - 1])
    for node in nodes:
        if axis in free_axes(node):
            own = cost_of_node(node)
            plain[names(node)] += max(0, own[0] - (node in fused))
            special[names(node)] += own[1]
    yield from (Count(axes, plain[axes], special[axes]) for axes in dict.fromkeys((*plain, *special)))


def names(*terms: Basic) -> frozenset[str]:
    """The names of the axes on which terms depend."""
    return frozenset(str(axis) for term in terms for axis in free_axes(term))


def nodes_outside_indices(terms: Iterable[Basic]) -> dict[Basic, None]:
    """The nodes of terms, each once, without those within an index."""
    found, todo = dict[Basic, None](), [*terms]
    while todo:
        node = todo.pop()
        if node not in found:
            found[node] = None
            todo += () if isinstance(node, Element | Value | Axis) else node.args
    return found


def is_multiplied(term: Basic) -> bool:
    """Tell if the last instruction of a term is a product."""
    if isinstance(term, Mul):
        return sum(part is not term.args[0] or abs(part) != 1 for part in term.args if isinstance(part, Expr)) > 1
    return isinstance(term, Pow) and term.exp.is_Integer is True and bool(term.exp > 1)


def cost_of_node(node: Basic) -> tuple[int, int]:
    """The plain and special instructions of a node, without its parts'.

    >>> from sympy import Symbol, exp
    >>> x, y = Symbol("x"), Symbol("y")
    >>> cost_of_node(x - y), cost_of_node(-x * y / 2), cost_of_node(x**2), cost_of_node(exp(x))
    ((1, 0), (2, 0), (1, 0), (0, 1))
    """
    if isinstance(node, Mul):
        signs = sum(isinstance(part, Number) and abs(part) == 1 for part in node.args)
        return len(node.args) - 1 - signs, 0
    if isinstance(node, Pow):
        return cost_of_power(node.exp)
    if isinstance(node, Add | LatticeOp):
        return len(node.args) - 1, 0
    if isinstance(node, exp):  # of base 2, whose factor is one instruction with the difference
        return 0, 1
    if isinstance(node, log):
        return 1, 1
    if isinstance(node, sin | cos):
        return TURN, 0
    if isinstance(node, Where | Relational | Cast):
        return 1, 0
    if isinstance(node, Abs | Let | StraightThrough | Number | Element | Value | Axis | Boolean) or not node.args:
        return 0, 0
    return FUNCTION, 1


def cost_of_power(power: Basic) -> tuple[int, int]:
    """The instructions of a power: products of squares; a root and a reciprocal are special ones.

    >>> from sympy import Rational
    >>> cost_of_power(Rational(5)), cost_of_power(Rational(-3, 2)), cost_of_power(Rational(1, 3))
    ((3, 0), (2, 1), (2, 2))
    """
    if not isinstance(power, Rational) or power.q > 2:
        return 2, 2
    times = abs(int(power.p))
    products = times.bit_length() - 1 + times.bit_count() - 1
    return products + (power.q == 2 and times == 1 and power.p > 0), int(power.q == 2 or power.p < 0)
