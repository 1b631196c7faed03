"""SymPy's own notation, brought to redalg's: `IndexedBase`, `Sum`, `Product`, `Piecewise`, plain symbols.

x[i]  (Indexed)              → Element
Sum(f, (i, 0, n − 1))        → Reduce("sum", f, i), and n → i.extent
Piecewise((a, c), (b, True)) → where(c, a, b)
Symbol("t")                  → Scalar("t")
u^2.0                        → u^2, and u^0.5 → √u: floats that are integers or halves of one
exp2(u), log2(u), hypot(a, b), fma(a, b, c), sec(u) … → 2**u, log(u)/log(2), √(a² + b²), a·b + c, 1/cos(u) …
Heaviside(u, h)              → where(u > 0, 1, where(u < 0, 0, h))
a ⇒ b, a ⊻ b, ITE(c, a, b)   → ¬a ∨ b, (a ∧ ¬b) ∨ (¬a ∧ b), (c ∧ a) ∨ (¬c ∧ b)

A node that is left and that no backend can evaluate is refused here, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sympy import (
    Abs,
    Add,
    And,
    Eq,
    Expr,
    Indexed,
    Integer,
    Mul,
    Not,
    Number,
    NumberSymbol,
    Or,
    Piecewise,
    Pow,
    Product,
    Rational,
    S,
    Sum,
    Symbol,
    SympifyError,
    Tuple,
    cos,
    cosh,
    erf,
    floor,
    log,
    sign,
    sin,
    sinh,
    sqrt,
    sympify,
    tan,
    tanh,
)
from sympy.core.basic import Basic
from sympy.core.function import Application, AppliedUndef
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanAtom

from redalg.errors import ExpressionError
from redalg.expression import Axis, Element, Extent, Label, Reduce, Scalar, Where
from redalg.expression.contents import nodes_of, of_kind
from redalg.expression.operators import OPERATORS
from redalg.expression.rebuild import with_args
from redalg.expression.tensor import sign_assumption

OURS = (Axis, Extent, Label, Scalar)


def _xor(a: Boolean, b: Boolean, *more: Boolean) -> Boolean:
    first = Or(And(a, Not(b)), And(Not(a), b))
    return _xor(first, *more) if more else first


RESPELLED: Mapping[str, Callable[..., Any]] = {
    "exp2": lambda u: Pow(2, u),
    "log2": lambda u: log(u) / log(2),
    "log10": lambda u: log(u) / log(10),
    "Sqrt": sqrt,
    "Cbrt": lambda u: sign(u) * Abs(u) ** Rational(1, 3),
    "hypot": lambda a, b: sqrt(a**2 + b**2),
    "fma": lambda a, b, c: a * b + c,
    "sec": lambda u: 1 / cos(u),
    "csc": lambda u: 1 / sin(u),
    "cot": lambda u: 1 / tan(u),
    "sech": lambda u: 1 / cosh(u),
    "csch": lambda u: 1 / sinh(u),
    "coth": lambda u: 1 / tanh(u),
    "sinc": lambda u: Where(Eq(u, 0), 1, sin(u) / u),
    "erf2": lambda a, b: erf(b) - erf(a),
    "frac": lambda u: u - floor(u),
    "Heaviside": lambda u, h=S.Half: Where(u > 0, 1, Where(u < 0, 0, h)),
    "KroneckerDelta": lambda i, j: Where(Eq(i, j), 1, 0),
    "Implies": lambda a, b: Or(Not(a), b),
    "Xor": _xor,
    "ITE": lambda c, a, b: Or(And(c, a), And(Not(c), b)),
}
"""SymPy's other functions, in terms of those that redalg reads."""


def adopt(expr: Any) -> Expr:
    """The expression in redalg's own nodes, with one `Axis` for every name."""
    [result] = one_axis_per_name([in_own_nodes(expr)])
    return result


def as_expression(value: Any) -> Expr:
    """Return an expression as it was given; for anything else raise an error that says what to give."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, list | tuple | Tuple | set | frozenset):
        raise ExpressionError(
            f"several outputs are given as a {type(value).__name__}. Give them names, in a dict: "
            '`ra.fuse({"a": first, "b": second})`, or `{"a": (first, "b h q"), …}` with their axes.'
        )
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise ExpressionError(
            f"a {kind} is given, not an expression. Write the expression with tensor elements, such as "
            '`ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))`, and pass arrays when the result is called.'
        )
    if isinstance(value, str):
        raise ExpressionError(
            f"`{value}` is a str, not an expression of tensor elements. Build one from `ra.tensors`, such as "
            '`ra.sum(x * y, n)` with `x, y = ra.tensors("x[n] y[n]")`. The command `redalg explain "…"` reads text.'
        )
    if hasattr(value, "cascade") and callable(value):
        raise ExpressionError(
            "what `fuse` gave is given to it again. Call it with tensors; to go on from it, name its result as a "
            'tensor, as in `ra.tensor("y[b]")`, or write both expressions as one.'
        )
    try:
        expr = sympify(value)
    except (SympifyError, TypeError, ValueError):
        expr = None
    if not isinstance(expr, Expr):
        subject = f"`{value}` is a {kind}" if value is None else f"a {kind} is given"
        raise ExpressionError(
            f"{subject}, not an expression of tensor elements. Build one from `ra.tensors`, such as `ra.sum(x * y, n)`."
        )
    return expr


def in_own_nodes(expr: Any) -> Expr:
    """The expression in redalg's own nodes."""
    expr = as_expression(expr)
    nodes = nodes_of(expr)
    if S.ImaginaryUnit in nodes:
        raise ExpressionError(f"`{expr}` holds the imaginary unit: redalg's values are extended reals. Write the real "
                              "and the imaginary part as two outputs.")  # fmt: skip
    return expr if all(map(_is_ours, nodes)) else _rebuild(expr, _known_axes(expr))


def _known_axes(expr: Expr) -> dict[Basic, Expr]:
    """The axes that SymPy's indices stand for, and the extents that the ends of their ranges stand for."""
    indices = {symbol for one in of_kind(Indexed, expr) for index in one.indices for symbol in index.free_symbols}
    limits = [limit for node in of_kind(Sum | Product, expr) for limit in node.limits]
    known: dict[Basic, Expr] = {variable: Axis(str(variable.name))
                                for variable in {*indices, *(limit[0] for limit in limits)}
                                if not isinstance(variable, Axis)}  # fmt: skip
    for index, *edges in sorted(limits, key=str):
        if len(edges) == 2 and (edges[1] + 1).is_Symbol:  # n of (i, 0, n − 1) is |i|, wherever it stands
            known.setdefault(edges[1] + 1, Axis(str(index.name)).extent)
    return known


def _is_ours(node: Basic) -> bool:
    """Tell if a node stays as it is."""
    kind: Any = type(node)  # whose metaclass mypy takes for unhashable
    return _is_our_kind(kind) and not _has_plain_exponent(node)


@lru_cache(1 << 8)
def _is_our_kind(kind: type[Basic]) -> bool:
    """Tell if nodes of a kind stay as they are, apart from their arguments."""
    foreign = issubclass(kind, Indexed | Piecewise) or (issubclass(kind, Symbol) and not issubclass(kind, OURS))
    return not foreign and kind.__name__ not in RESPELLED and _readable(kind)


def _has_plain_exponent(node: Basic) -> bool:
    """Tell if a node is a power by a float that is an integer or half of one."""
    return isinstance(node, Pow) and bool(node.exp.is_Float) and float(2 * node.exp).is_integer()


def _rebuild(node: Basic, axes: dict[Basic, Expr]) -> Any:
    if node in axes:
        return axes[node]
    if isinstance(node, Sum | Product):
        return _reduce(node, axes)
    if isinstance(node, Symbol) and not isinstance(node, OURS):
        positive = {key: True for key in ("positive", "nonnegative") if getattr(node, f"is_extended_{key}")}
        return Scalar(node.name, **{f"extended_{key}": True for key in positive})
    if not node.args or (isinstance(node, Element) and not axes):
        return node
    if isinstance(node, Indexed):
        sign = sign_assumption(positive=bool(node.base.is_positive),
                        nonnegative=bool(node.base.is_nonnegative))  # fmt: skip
        return Element(Label(str(node.base), sign), *(_rebuild(index, axes) for index in node.indices))
    if isinstance(node, Piecewise):
        out: Any = S.NaN
        for value, condition in reversed(node.args):
            out = Where(_rebuild(condition, axes), _rebuild(value, axes), out)
        return out
    args = [_rebuild(arg, axes) for arg in node.args]
    name = type(node).__name__
    if _has_plain_exponent(node):
        return Pow(args[0], Rational(int(2 * args[1]), 2))
    if name in RESPELLED:
        return RESPELLED[name](*args)
    if not _readable(type(node)):
        raise ExpressionError(unreadable(node))
    return with_args(node, args)


def unreadable(node: Basic) -> str:
    """The message for a node that no backend evaluates."""
    functions = ", ".join(sorted(OPERATORS, key=str.lower))
    if isinstance(node, AppliedUndef):
        return (f"`{node}` is an undefined function. The functions are {functions}; the reductions are `ra.sum`, "
                "`ra.max` and their like, whose states of fixed size merge. What has no such state, as a median has "
                "none, must be computed beforehand and passed as a tensor.")  # fmt: skip
    return (f"`{node}` is made by `{type(node).__name__}`, which redalg cannot evaluate. It reads sums, products, "
            f"powers, conditions and the functions {functions}. Write it by these, or compute it beforehand and pass "
            "it as a tensor.")  # fmt: skip


def _readable(kind: type[Basic]) -> bool:
    if str(kind.__module__).startswith("redalg."):  # an undefined function has none
        return True
    if issubclass(kind, Application) and not issubclass(kind, Boolean):
        return kind.__name__ in OPERATORS
    if issubclass(kind, Boolean):
        return issubclass(kind, And | Or | Not | Relational | BooleanAtom)
    return issubclass(kind, Add | Mul | Pow | Number | NumberSymbol) or not issubclass(kind, Expr)


def _reduce(node: Any, axes: dict[Basic, Expr]) -> Expr:
    expr = _rebuild(node.function, axes)
    kind = "sum" if isinstance(node, Sum) else "prod"
    for index, *edges in node.limits:
        if len(edges) != 2:
            raise ExpressionError(f"`{node}`: {index} has no limits. Write them as ({index}, 0, n − 1).")
        low, high = edges
        axis = axes.get(index) or Axis(str(index.name))
        extent = high + 1
        if low != 0 or not (extent.is_Symbol or extent.is_Integer):
            raise ExpressionError(
                f"`{node}`: {index} runs from {low} to {high}; redalg's axes start at 0 and end at their extent − 1. "
                f"Write the limits as ({index}, 0, n − 1), and a mask by `ra.where` for the rest."
            )
        if isinstance(extent, Integer):
            axis = Axis(axis.name, int(extent))
        expr = Reduce(kind, expr, [axis])
    return expr


def one_axis_per_name(exprs: Sequence[Expr]) -> list[Expr]:
    """Make axes of one name one axis, of the size that it was declared with; refuse two sizes.

    Axes of other names that index the same dimension of a tensor have its size: α-renaming keeps it so.

    >>> from redalg.expression import Axis, Tensor, max as maximum, sum as total
    >>> b, n, k = Axis("b"), Axis("n"), Axis("k", 8)
    >>> x = Tensor("x")
    >>> [product] = one_axis_per_name([total(x[b, k], k) * maximum(x[b, n], n)])
    >>> sorted((axis.name, axis.size) for axis in of_kind(Axis, product))
    [('b', None), ('k', 8), ('n', 8)]
    """
    axes, known = of_kind(Axis, *exprs), dict[str, int | None]()
    for axis in sorted(axes, key=lambda one: (one.name, one.size or 0)):
        if axis.size is not None and known.get(axis.name) not in (None, axis.size):
            raise ExpressionError(f"axis {axis.name} has sizes {known[axis.name]} and {axis.size} in one expression.")
        known[axis.name] = known.get(axis.name) if axis.size is None else axis.size
    if not any(size is not None for size in known.values()):
        return list(exprs)
    known |= _sizes_of_dimensions(exprs, known)
    swap: dict[Basic, Basic] = {axis: Axis(axis.name, known[axis.name]) for axis in axes
                                if axis.size != known[axis.name]}  # fmt: skip
    swap |= {one: Integer(known[one.name]) for one in of_kind(Extent, *exprs) if known.get(one.name) is not None}
    return [expr.xreplace(swap) for expr in exprs] if swap else list(exprs)


def _sizes_of_dimensions(exprs: Sequence[Expr], declared: Mapping[str, int | None]) -> dict[str, int]:
    """The sizes of axes, by name, that index a dimension of a tensor which an axis of declared size indexes, too."""
    names = dict[tuple[str, int], set[str]]()
    for element in of_kind(Element, *exprs):
        for place, index in enumerate(element.indices):
            if isinstance(index, Axis):
                names.setdefault((element.name, place), set()).add(index.name)
    sizes = {name: size for name, size in declared.items() if size is not None}
    together = [(place, found) for place, found in sorted(names.items()) if len(found) > 1]
    for _ in together:  # sizes go from dimension to dimension, through axes that index both
        for (tensor, place), found in together:
            stated = {sizes[name]: name for name in sorted(found, reverse=True) if name in sizes}
            if len(stated) > 1:
                (size, first), (other, second) = sorted(stated.items(), key=lambda pair: pair[1])[:2]
                raise ExpressionError(f"axes {first} of size {size} and {second} of size {other} index the same "
                                      f"dimension of {tensor} (dimension {place}). Declare them alike.")  # fmt: skip
            sizes |= dict.fromkeys(found, next(iter(stated))) if stated else {}
    return sizes
