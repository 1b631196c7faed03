"""The base of redalg's nodes: it answers in words if an expression is treated as an array.

An expression stands for one element, and its axes have names. SymPy's own sums and products know nothing of this base:
`np.exp(x)` is answered here, `np.exp(x + 1)` by NumPy. Conditions are SymPy's as well. The truth value of a relation
that holds one of our nodes is refused here, so that `x > 0 and y > 0` is answered too. The error is the one that SymPy
raises (a TypeError), with what to write instead. `mask` and `(x > 0) & mask` are true to SymPy, as all that is no
relation: code of SymPy and of redalg gets this answer, and all other code the error.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any

from sympy import Expr
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanFunction

from redalg.errors import OperationError
from redalg.expression.spelling import spelling_of

NUMBERS = (Expr, int, float)
ARRAYS = {"numpy": "NumPy", "torch": "torch"}
COMPARISONS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
OPERATORS = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__pow__": "**", "__radd__": "+",
    "__rsub__": "-", "__rmul__": "*", "__rtruediv__": "/", "__rpow__": "**", **COMPARISONS,
}  # fmt: skip
UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "true_divide": operator.truediv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "power": operator.pow, "negative": operator.neg, "absolute": operator.abs, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne,
}  # fmt: skip
"""NumPy's functions that are operators: between a NumPy number and an expression NumPy is asked first."""
TOTALS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


class Node(Expr):
    """A node of redalg. It is no array: it has no dimensions, no data and no value."""

    __slots__ = ()
    _iterable = False
    """The attribute that SymPy reads before it tries to iterate."""

    def __getattr__(self, name: str) -> Any:
        """Refuse attributes of arrays, with their spelling here; SymPy asks for many, whose names begin with `_`."""
        advice = None if name.startswith("_") else spelling_of(name)
        if advice is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise OperationError(f"`{{}}` has no `{name}`: it is an expression, not an array. {advice}", self)

    def __getitem__(self, index: Any) -> Any:
        raise OperationError(
            f"`{self}` is indexed by `{index}`, or iterated over, and is one element. Index a tensor where it is "
            'named, as in `ra.Tensor("x")[b, 0]`; reduce over an axis by `ra.sum(x, n)`, `ra.max(x, n)` and their like.'
        )

    def __len__(self) -> int:
        raise OperationError(f"`{self}` has no length: it is one element, whose axes get their sizes at the call. The "
                             "size of an axis n is `n.extent`.")  # fmt: skip

    def __bool__(self) -> bool:
        """True to SymPy, as every expression (without it Python would ask for the length); refused to other code."""
        if _is_asked_by_user():
            raise _unknown_truth(self)
        return True

    def __matmul__(self, other: Any) -> Any:
        raise OperationError(f"`@` is given `{self}`, which is one element, not a matrix. {spelling_of('matmul')}")

    def __and__(self, other: Any) -> Any:
        raise OperationError(
            f"`{self}` is joined with `{other}` by `&`, `|`, `^` or `~`, which bind tighter than `<` and `>`. Write "
            "`ra.logical_and(x > 0, y > 0)`, `ra.logical_or`, `ra.logical_not`; and a power as `x**2`."
        )

    def __invert__(self) -> Any:
        raise OperationError(f"`~` is given `{self}`, which is a number. Write `ra.logical_not({self})`.")

    __rmatmul__ = __matmul__
    __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __and__

    def __float__(self) -> float:
        raise _not_a_number(self, "float")

    def __int__(self) -> int:
        raise _not_a_number(self, "int")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
        """An operator between a NumPy number and an expression; other functions of NumPy are refused."""
        apply = UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        numbers = [one.item() if hasattr(one, "item") and one.ndim == 0 else one for one in inputs]
        if apply is not None and all(isinstance(one, NUMBERS) for one in numbers):
            return apply(*numbers)
        name = TOTALS.get(ufunc.__name__, ufunc.__name__) if method == "reduce" else ufunc.__name__
        raise _refusal(f"np.{name}", name, inputs)

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        """Refuse functions of NumPy."""
        raise _refusal(f"np.{function.__name__}", function.__name__, _flat((*args, *kwargs.values())))

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse functions of torch."""
        name = getattr(function, "__name__", str(function))
        raise _refusal(f"torch.{name.strip('_')}", name.strip("_"), _flat((*args, *(kwargs or {}).values())))


def _operator_with_check(name: str) -> Callable[[Any, Any], Any]:
    """SymPy's operator of that name, which refuses an array or a condition as the other operand."""
    plain = getattr(Expr, name)

    def operation(self: Any, other: Any) -> Any:
        if not isinstance(other, NUMBERS):
            _check_operand(self, OPERATORS[name], other)
        return plain(self, other)

    operation.__name__ = name
    return operation


for _name in OPERATORS:
    setattr(Node, _name, _operator_with_check(_name))


def _check_operand(node: Basic, sign: str, other: Any) -> None:
    if isinstance(other, Boolean):
        raise OperationError(f"`{sign}` is given `{node}` and the condition `{other}`, which is no number. Choose by "
                             f"it: `ra.where({other}, a, b)`.")  # fmt: skip
    if getattr(other, "ndim", 0) or _library(other) == "torch":
        raise _array_inside(f"`{sign}`", node, other)


def _array_inside(caller: str, node: Any, array: Any) -> OperationError:
    """The error of an array that stands in an expression."""
    library = ARRAYS.get(_library(array), "an")
    return OperationError(
        f"{caller} is given the expression `{node}` and an array of {library}, of shape {tuple(array.shape)}. An "
        'expression holds no data: name the array, as in `w = ra.tensor("w[n]")`, and pass it when the result is '
        "called, `w=…`; or pass `float(…)` for a single number."
    )


def _refusal(caller: str, name: str, inputs: Iterable[Any]) -> OperationError:
    """The error of a function of an array library that is given an expression."""
    node = next((one for one in inputs if isinstance(one, Node)), "")
    array = next((one for one in inputs if _library(one) in ARRAYS and getattr(one, "ndim", 0) > 0), None)
    if array is not None:
        return _array_inside(f"`{caller}`", node, array)
    advice = spelling_of(name) or "Write expressions by SymPy's functions and redalg's reductions."
    return OperationError(f"`{caller}` is given the expression `{node}`, which is no array. {advice}")


def _not_a_number(node: Basic, kind: str) -> OperationError:
    return OperationError(
        f"`{kind}` is asked of `{node}`, which has no value until the call. Functions of expressions are SymPy's "
        "(`from sympy import exp`), not those of `math`."
    )


def _library(operand: Any) -> str:
    return type(operand).__module__.split(".")[0]


def _flat(args: Iterable[Any]) -> list[Any]:
    return [part for one in args for part in (one if isinstance(one, tuple | list) else (one,))]


# ---- the truth value of a condition ----------------------------------------------------------------------------------

UNKNOWN_TRUTH = Relational.__bool__
ANSWERED = ("redalg", "sympy")
"""The packages to which every expression is true that is no relation."""


def _truth(relation: Relational) -> bool:
    """Refuse the truth value of a condition on tensors, axes or scalars; for all others SymPy raises its own error."""
    if not relation.has(Node):
        return UNKNOWN_TRUTH(relation)
    raise _unknown_truth(relation)


def _truth_of_combination(condition: BooleanFunction) -> bool:
    """Refuse the truth value of conditions that are combined, if they are on tensors, axes or scalars."""
    if _is_asked_by_user() and condition.has(Node):
        raise _unknown_truth(condition)
    return True


def _is_asked_by_user() -> bool:
    """Tell if the code that asks for a truth value, two frames up, belongs to neither of the packages."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    return module.partition(".")[0] not in ANSWERED


def _unknown_truth(condition: Basic) -> OperationError:
    return OperationError(
        f"Python asks whether `{condition}` holds (`if`, `and`, `or`, `not`, `a < x < b`, `max(x, y)`), which is known "
        "of each element at the call alone. Combine conditions by `ra.logical_and`, `ra.logical_or`, `ra.logical_not`, "
        "choose by `ra.where(condition, a, b)`, and take the larger by `sympy.Max`. Whether an argument was given is "
        "`is not None`."
    )


Relational.__bool__ = _truth
BooleanFunction.__bool__ = _truth_of_combination
