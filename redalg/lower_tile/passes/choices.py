"""Choose between the numbers of a tile after they are computed.

u = a·where(c, z, exp(s + …))   →   u = exp(s + …);  u = where(c, z, u);  u = a·u

There c asks s, a product on tensor cores. Exact: the exponential reads nothing outside the block's buffers, and where c
holds, it is not chosen, whatever it is. A branch for every element around an exponential takes longer than that.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, Pow, S, exp

from redalg.expression import Where
from redalg.lower_tile.ir.mentions import bound_names, product_names
from redalg.lower_tile.ir.program import Kernel, Parallel, Statement, Store, innermost
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan


def choose_after(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel with such choices made after what they choose is computed."""
    if not plan.tensor_cores:
        return kernel
    products, inside = product_names(kernel), frozenset((*bound_names(kernel), *(one.name for one in kernel.buffers)))

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Parallel):
            return statement
        stores = tuple(part for one in statement.body for part in apart_from_choice(one, products, inside))
        return replace(statement, body=stores)

    return replace(kernel, body=tuple(innermost(one, change) for one in kernel.body))


def apart_from_choice(store: Store, products: frozenset[str], inside: frozenset[str]) -> tuple[Store, ...]:
    """A store that reads one such choice as three: of the exponential, of the choice, and of what is computed of it.

    Any other store stays as it is.
    """
    reads = {one.name for one in store.expr.atoms(Load)}
    choices = [one for one in store.expr.atoms(Where) if exponentials_of(one) and asks(one, products)]
    if len(choices) != 1 or store.guard != S.true or store.once or not reads <= inside - {store.target}:
        return (store,)
    [choice], target = choices, Load(store.target, *store.indices)
    [exponential] = exponentials_of(choice)
    condition, *branches = choice.args
    of_target = Where(condition, *(target if one is exponential else one for one in branches))
    parts = (exponential, of_target, store.expr.xreplace({choice: target}))
    return tuple(replace(store, expr=one) for one in parts if one != target)


def exponentials_of(choice: Where) -> list[Expr]:
    """The exponential that a choice is between; none of two."""
    found = [one for one in choice.args[1:] if isinstance(one, exp) or (isinstance(one, Pow) and one.base == 2)]
    return found if len(found) == 1 else []


def asks(choice: Where, products: frozenset[str]) -> bool:
    """Tell if the condition of a choice reads a product."""
    return any(one.name in products for one in choice.args[0].atoms(Load))
