"""Share what several sums multiply their terms by.

s += a·b·x;  t += a·b·y   →   s += x·(a·b);  t += y·(a·b)      to a rounding of each product, where both read the same
                                                               a and b; the pass after it gives a·b a name

A force on a body has a component for every dimension of space, each of which is a difference times one and the same
number. Terms that a loop adds to its sums are never compared with each other, so that their factors may change places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from sympy import Add, Expr, Mul

from redalg.lower_tile.ir.powers import above_and_below, factors_of_power
from redalg.lower_tile.ir.program import Parallel, Statement, Store, innermost
from redalg.lower_tile.ir.scalars import Kept, Load

Factors = Counter[tuple[Expr, int]]
"""The factors of a term, each with the number of stores before it that overwrote what it reads."""


def share_factors(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements whose sums multiply by what they have in common as one number."""
    return tuple(innermost(statement, share_in_loop) for statement in body)


def share_in_loop(statement: Statement) -> Statement:
    """An elementwise loop whose sums share their factors."""
    if not isinstance(statement, Parallel):
        return statement
    stores, rest = list(statement.body), dict[int, Factors]()
    for place, store in enumerate(stores):
        if (term := added_term(store)) is not None:
            rest[place] = factors_of(term, stores[:place])
    shared = dict[int, list[Expr]]()
    while common := largest_common(rest):
        for place in rest:
            if common <= rest[place]:
                rest[place] -= common
                shared.setdefault(place, []).append(Mul(*(factor for factor, _ in common.elements())))
    for place, products in shared.items():
        sum_of, term = Load(stores[place].target, *stores[place].indices), (one for one, _ in rest[place].elements())
        stores[place] = replace(stores[place], expr=sum_of + Mul(*term, *map(Kept, products)))
    return replace(statement, body=tuple(stores)) if shared else statement


def added_term(store: Store) -> Expr | None:
    """The product that a store adds to what its target holds; None if it does anything else."""
    before = Load(store.target, *store.indices)
    terms = [term for term in Add.make_args(store.expr) if term != before]
    is_sum = len(terms) == 1 and before in Add.make_args(store.expr) and not terms[0].has(before)
    return terms[0] if is_sum and terms[0].is_Mul else None


def factors_of(term: Expr, before: list[Store]) -> Factors:
    """The factors of a term that stands after stores."""
    targets = [store.target for store in before]
    reads = {factor: {load.name for load in factor.atoms(Load)} for factor in term.args}
    return Counter((factor, sum(target in reads[factor] for target in targets)) for factor in term.args)


def largest_common(rest: Mapping[int, Factors]) -> Factors | None:
    """The factors that save most products if the terms that have them share one product; None if none does."""
    best, most = None, 0
    for first, second in combinations(rest.values(), 2):
        both = (first & second).items()
        common = Counter({(factor, place): times for (factor, place), times in both if not factor.is_number})
        users = sum(common <= factors for factors in rest.values())
        saves = (users - 1) * (sum(map(products_in, common.elements())) - 1)
        if saves > most:
            best, most = common, saves
    return best


def products_in(item: tuple[Expr, int]) -> int:
    """The numbers that a factor multiplies a term by, as its text has them."""
    above, below = above_and_below((item[0],))
    return sum(len(factors_of_power(factor)) or 1 for factor in (*above, *below))
