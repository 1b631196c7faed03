"""A node with other arguments, as SymPy writes it.

f(b) is not evaluated if f(a) was, b is of the same kind as a, and no sign moves out of b. Nor is a sum evaluated if no
two terms are multiples of one, nor a product if no two factors are powers of one. Its terms are put into SymPy's order.

What SymPy evaluates depends on the kinds of the arguments and on their signs. A value is as unknown to SymPy as the
reduction or the slot that it stands for. SymPy would thus find what it found before, at a cost that grows with the
arguments.
The order of terms may differ, and with it the one of u and −u that SymPy takes for the plain one. Such a node is
evaluated, unless SymPy moves no sign out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any

from sympy import Add, Dummy, Expr, Function, Max, Min, Mul, Pow, S, default_sort_key, exp, log, ordered
from sympy.core.basic import Basic
from sympy.core.relational import Relational, is_ge, is_le

from redalg.expression.axis import Extent
from redalg.expression.contents import operations_of, tree_size
from redalg.expression.reduce import Reduce
from redalg.expression.tensor import Value

COMPARED_LIMIT = 16
"""Operations above which parts of a max or min are compared neither with numbers nor with each other."""


def with_args(node: Basic, args: Sequence[Basic]) -> Any:
    """The node with other arguments; the node itself if they are its own.

    >>> from sympy import Symbol, exp, log
    >>> x = Symbol("x")
    >>> with_args(exp(x), [log(x)])
    x
    """
    if all(a is b for a, b in zip(args, node.args, strict=True)):
        return node
    if isinstance(node, log) and isinstance(args[0], Add) and args[0].free_symbols:
        return log(args[0], evaluate=False)  # SymPy would only ask whether it is 0
    if isinstance(node, Function | Pow | Max | Min | Relational) and _evaluated_alike(node, args):
        return plain_extremum(node.func, args) if isinstance(node, Max | Min) else node.func(*args, evaluate=False)
    if isinstance(node, Add | Mul) and _collected_alike(node, args):
        return node._new_rawargs(*canonical_order(args), reeval=False)
    return node.func(*args)


def replace_nodes(expr: Basic, others: Mapping[Any, Any]) -> Any:
    """The expression with some nodes replaced by others, the outermost first."""
    memo: dict[Basic, Basic] = {}

    def visit(node: Basic) -> Basic:
        if node not in memo:
            memo[node] = others[node] if node in others else with_args(node, [visit(arg) for arg in node.args])
        return memo[node]

    return visit(expr)


def extremum_as_written(lattice: type[Max | Min], parts: Iterable[Expr]) -> Expr:
    """The max or min of parts in no known order: SymPy would compare each two at length to find that out.

    >>> from sympy import Symbol
    >>> x, y, z = map(Symbol, "xyz")
    >>> extremum_as_written(Max, [Max(x, y), z])
    Max(x, y, z)
    """
    flat = list(dict.fromkeys(one for part in parts for one in (part.args if isinstance(part, lattice) else (part,))))
    if len(flat) == 1:
        return flat[0]
    inner = [arg for one in flat if isinstance(one, Max | Min) for arg in one.args]
    shared = len(set(inner)) < len(inner) or not set(inner).isdisjoint(flat)
    numbers = [one for one in flat if one.is_number]
    small = sum(map(operations_of, flat)) <= COMPARED_LIMIT
    if small and shared:
        return lattice(*flat)
    if len(numbers) > 1:
        flat = [lattice(*numbers), *(one for one in flat if not one.is_number)]
    if small and numbers:
        flat = _beside_number(lattice, list(lattice._collapse_arguments(frozenset(flat))))
    elif shared:
        flat = list(lattice._collapse_arguments(frozenset(flat)))
    return plain_extremum(lattice, flat)


def plain_extremum(lattice: type[Max | Min], parts: Iterable[Expr]) -> Expr:
    """The max or min of parts, as SymPy writes it unevaluated; to put them in order SymPy counts their nodes anew.

    >>> from sympy import Symbol
    >>> x, y = Symbol("x"), Symbol("y")
    >>> plain_extremum(Max, [y * x, x, y]) == Max(x, y, x * y, evaluate=False)
    True
    """
    distinct = frozenset(parts)
    if len(distinct) == 1:
        return next(iter(distinct))
    node = Expr.__new__(lattice, *ordered(distinct, (tree_size, default_sort_key), default=False))
    node._argset = distinct
    return node


def _beside_number(lattice: type[Max | Min], parts: list[Expr]) -> list[Expr]:
    """The parts of a max or min without those that a number among them exceeds; or without the number.

    No two other parts are compared: SymPy would write out and factor their difference.
    """
    number = next((one for one in parts if one.is_number), None)
    if number is None or number is lattice.identity:
        return [one for one in parts if one is not number] or parts
    if number is lattice.zero:
        return [number]
    above, below = (is_ge, is_le) if lattice is Max else (is_le, is_ge)
    others = [one for one in parts if one is not number and below(one, number) is not True]
    return others if any(above(one, number) is True for one in others) else [number, *others]


def canonical_order(args: Sequence[Basic]) -> list[Basic]:
    """Terms or factors as SymPy orders them, a number first."""
    numbers = [one for one in args if one.is_Number]
    return numbers + sorted((one for one in args if not one.is_Number), key=cmp_to_key(Basic.compare))


UNSIGNED = Pow | log | Relational
"""Functions out of which SymPy moves the sign of a product, but not that of a sum."""
PLAIN = exp | Max | Min
"""Functions out of which SymPy moves no sign."""


def _evaluated_alike(node: Basic, args: Sequence[Basic]) -> bool:
    signed = () if isinstance(node, PLAIN) else Mul if isinstance(node, UNSIGNED) else Expr
    return len(set(args)) == len(args) and all(_alike(a, b, signed) for a, b in zip(node.args, args, strict=True))


def _alike(old: Basic, new: Basic, signed: type[Expr] | tuple[()]) -> bool:
    """Tell if SymPy, which looks at an argument's head, evaluates a function of `new` as it did of `old`.

    `signed` is the kind of argument out of which it moves a sign.
    """
    if old is new or (isinstance(old, Reduce | Value | Dummy) and _is_unknown(new)):
        return True
    if new.func is not old.func or not len(new.args) == len(old.args) > 0:
        return False
    return not (isinstance(new, signed) and new.could_extract_minus_sign())


def _collected_alike(node: Expr, args: Sequence[Any]) -> bool:
    """Tell if a sum or product of the arguments has nothing to collect or to multiply out, as in the node."""
    if node.is_Mul and any(one.is_Pow and one.base.is_number for one in args):
        return False
    first, distributes = args[0], node.is_Mul and len(args) == 2 and any(one.is_Add for one in args)
    if distributes and any(one.is_Number for one in args):
        return False
    dropped = first is S.Zero or (node.is_Mul and first is S.One)
    if any(one.is_Number for one in args[1:]) or dropped or not all(map(_stands_for, node.args, args)):
        return False
    parts = {_collection_key(one) if node.is_Mul else one.as_coeff_Mul()[1] for one in args}
    return len(parts) == len(args) and not any(isinstance(one, node.func) for one in args)


def _collection_key(factor: Expr) -> Any:
    """The key by which SymPy collects a factor: its base, and u for exp(c·u)."""
    return (exp, factor.args[0].as_coeff_Mul()[1]) if isinstance(factor, exp) else factor.as_base_exp()[0]


def _stands_for(old: Any, new: Any) -> bool:
    """Tell if one term or factor is of the same kind as the other, or a value in place of an equally unknown node."""
    if old is new or (isinstance(old, Reduce | Extent | Value | Dummy) and _is_unknown(new)):
        return True
    return new.func is old.func and bool(new.args) and not (new.is_Pow and new.base.is_number)


def _is_unknown(node: Any) -> bool:
    """Tell if SymPy knows no more of a node than that it is an extended real number."""
    return isinstance(node, Value) or (isinstance(node, Dummy) and node.assumptions0 == UNKNOWN)


UNKNOWN = Dummy(extended_real=True).assumptions0
