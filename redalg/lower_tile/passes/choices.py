"""Choose between the numbers of a tile after they are computed.

u = a·where(c, z, exp(s + …))           →   u = exp(s + …);  u = where(c, z, u);  u = a·u
where(r, where(c ∨ d, 0, e), 0)         →   where(r ∧ ¬d, where(c, 0, e), 0)

In the first, c asks s, a product on tensor cores, or the kernel reduces nothing. Exact: beside the block's buffers the
exponential reads only what is read whatever c is, and where c holds, it is not chosen, whatever it is. A branch for
every element around an exponential takes longer than that.

In the second, r and d are the same for a whole row, and the kernel reduces nothing: one test is left for an element.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import And, Expr, Not, Or, Pow, S, exp
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.lower_tile.ir.mentions import bound_names, product_names, reduces_nothing
from redalg.lower_tile.ir.program import Kernel, Parallel, Statement, Store, innermost
from redalg.lower_tile.ir.scalars import Instruction, Load
from redalg.strategies.plan import Plan


def choose_after(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel with such choices made after what they choose is computed."""
    elementwise = reduces_nothing(kernel) and plan.device.target != "c"
    if not plan.tensor_cores and not elementwise:
        return kernel
    products, inside = product_names(kernel), frozenset((*bound_names(kernel), *(one.name for one in kernel.buffers)))

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Parallel):
            return statement
        stores = statement.body
        if elementwise:
            stores = tuple(replace(one, expr=with_conditions_of_rows(one)) for one in stores)
        asked = None if elementwise else products
        return replace(statement, body=tuple(part for one in stores for part in apart_from_choice(one, asked, inside)))

    return replace(kernel, body=tuple(innermost(one, change) for one in kernel.body))


def with_conditions_of_rows(store: Store) -> Expr:
    """The expression of a store whose conditions of whole rows are asked ahead of those of elements."""
    if not store.indices:
        return store.expr
    along = store.indices[-1]

    def ahead(condition: Boolean, inner: Expr, other: Expr) -> Expr:
        if other != 0 or condition.has(along) or not isinstance(inner, Where) or inner.args[1] != 0:
            return Where(condition, inner, other)
        parts = Or.make_args(inner.args[0])
        by_element = [one for one in parts if one.has(along)]
        by_row = [Not(one) for one in parts if not one.has(along)]
        return Where(And(condition, *by_row), Where(Or(*by_element), S.Zero, inner.args[2]), S.Zero)

    return store.expr.replace(Where, ahead)


def apart_from_choice(store: Store, products: frozenset[str] | None, inside: frozenset[str]) -> tuple[Store, ...]:
    """A store that reads one such choice as three: of the exponential, of the choice, and of what is computed of it.

    Any other store stays as it is. `products`: the names that the choice has to ask; None if it may ask any.
    """
    asking = [one for one in store.expr.atoms(Where) if products is None or asks(one, products)]
    choices = [one for one in asking if exponentials_of(one)]
    if len(choices) != 1 or store.guard != S.true or store.once:
        return (store,)
    reads = store.expr.atoms(Load)
    outside = {one for one in reads if one.name not in inside}
    if any(one.name == store.target for one in reads) or not outside <= read_anyway(store.expr):
        return (store,)
    [choice], target = choices, Load(store.target, *store.indices)
    [exponential] = exponentials_of(choice)
    condition, *branches = choice.args
    of_target = Where(condition, *(target if one is exponential else one for one in branches))
    parts = (exponential, of_target, store.expr.xreplace({choice: target}))
    return tuple(replace(store, expr=one) for one in parts if one != target)


def read_anyway(expr: Basic) -> set[Load]:
    """The reads of an expression that no condition chooses."""
    if isinstance(expr, Load):
        return {expr}
    parts = expr.args[:1] if isinstance(expr, Where) else expr.args
    return set[Load]().union(*map(read_anyway, parts))


def exponentials_of(choice: Where) -> list[Expr]:
    """The exponential that a choice is between; none of two."""
    found = [one for one in choice.args[1:] if is_exponential(one)]
    return found if len(found) == 1 else []


def is_exponential(expr: Expr) -> bool:
    """Tell if an expression is an exponential."""
    if isinstance(expr, Instruction):
        return expr.name == "power_of_two"
    return isinstance(expr, exp) or (isinstance(expr, Pow) and expr.base == 2)


def asks(choice: Where, products: frozenset[str]) -> bool:
    """Tell if the condition of a choice reads a product."""
    return any(one.name in products for one in choice.args[0].atoms(Load))
