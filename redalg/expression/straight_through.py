"""`StraightThrough(value, source)`: what is computed, and the expression whose derivative it has.

    ⌊u⌋, ⌈u⌉                 ∂/∂u = 1
    cast(u, dtype)           1 where u is rounded to a number of the dtype, 0 where it saturates
    Max(u, c), Min(u, c)     1 where u is not beyond the number c, 0 where c stands in its place

These are PyTorch's of rounding and clamping together, which count u = c as inside; those of `gradient.rules` are the
true ones. The engine sees the value alone (`without_sources`).
"""

from __future__ import annotations

from typing import Any, final

from sympy import Abs, And, Expr, Integer, Max, Min, Rational, S, ceiling, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression.arguments import answer_arguments
from redalg.expression.contents import elements_of, free_axes, nodes_of, of_kind
from redalg.expression.dtypes import DTYPES, is_eight_bits
from redalg.expression.known import no_more_known
from redalg.expression.node import Node
from redalg.expression.nodes import Cast, Where
from redalg.expression.rebuild import with_args
from redalg.expression.reduce import term_of

HALF = Rational(1, 2)


@final
@no_more_known
class StraightThrough(Node):
    """`value`, with the derivative of `source`."""

    is_extended_real = True
    is_commutative = True

    def __new__(cls, value: Expr, source: Expr) -> StraightThrough:
        node: StraightThrough = Expr.__new__(cls, value, source)
        return node

    @property
    def value(self) -> Expr:
        """The expression that is computed."""
        return self.args[0]

    @property
    def source(self) -> Expr:
        """The expression that is differentiated."""
        return self.args[1]

    def _eval_derivative(self, symbol: Expr) -> Expr:
        return self.source.diff(symbol)

    def _sympystr(self, printer: Any) -> str:
        return f"straight_through({printer._print(without_sources(self.value))})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = str(printer._print(self.value))
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"


@answer_arguments(ExpressionError, "Write `ra.straight_through(value, source)`.")
def straight_through(value: Any, source: Any = None) -> Expr:
    """`value`, whose gradient passes the roundings in it (a straight-through estimator).

    Without it a gradient is the true one, as PyTorch's: 0 of a floor and of a cast to an integer.

    Args:
        value: an expression with roundings: `floor`, `ceiling`, `ra.cast` to an integer or to 8 bits. Each hands its
            gradient on to what it rounds, where that is in the range of its dtype, or of the numbers that clamp it by
            `Max` and `Min`; beyond, the gradient is 0.
        source: an expression of the same tensors whose derivative `value` has instead. So sign(x) takes that of
            `Max(-1, Min(x, 1))`.

    Raises:
        ExpressionError: there is no rounding in `value`, or `source` has tensors or axes that it lacks.

    Source: Bengio, Léonard, Courville (2013), section 4; Jacob et al. (2018), Eq. 12.

    >>> import numpy as np, redalg as ra
    >>> from sympy import floor
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> total = ra.fuse(ra.sum(straight_through(ra.cast(x, "int8")), n))
    >>> x = np.array([1.4, -200.0, 127.4])
    >>> float(total(x=x)), total.vjp()(np.array(1.0), x=x)["x"].tolist()
    (0.0, [1.0, 0.0, 1.0])
    """
    term = term_of("straight_through", value)
    if source is None:
        made: Expr = _through(term)
        if not of_kind(StraightThrough, made) - of_kind(StraightThrough, term):
            raise ExpressionError(f"straight_through: `{term}` has no rounding. Write `floor`, `ceiling` or `ra.cast` "
                                  "to an integer or an 8-bit float, or pass `source=`.")  # fmt: skip
        return made
    through = term_of("straight_through", source)
    own, others = ({one.name for one in elements_of(expr)} for expr in (term, through))
    foreign = sorted(others - own) or sorted(map(str, free_axes(through) - free_axes(term)))
    if foreign:
        raise ExpressionError(f"straight_through: source has {', '.join(foreign)}, which `{term}` lacks. The source is "
                              "an expression of the tensors and axes of the value.")  # fmt: skip
    return StraightThrough(term, through)


def without_sources(node: Basic) -> Any:
    """An expression with its values for what `straight_through` made: what is computed."""
    if not of_kind(StraightThrough, node):
        return node
    if isinstance(node, StraightThrough):
        return without_sources(node.value)
    return with_args(node, [without_sources(one) for one in node.args])


def _through(node: Basic) -> Any:
    """A node whose roundings, and the clamps about them, hand their gradients on."""
    if isinstance(node, StraightThrough) or not _rounds_within(node):
        return node
    args = [_through(one) for one in node.args]
    made = with_args(node, args)
    if isinstance(node, floor | ceiling):
        return StraightThrough(made, args[0])
    if isinstance(node, Cast):
        inside = _is_in_range(args[0], node.dtype)
        return made if inside is None else StraightThrough(made, Where(inside, args[0], S.Zero))
    if isinstance(node, Max | Min):
        return _clamp_through(made)
    return made


def _clamp_through(node: Expr) -> Expr:
    """The larger of a term and a number, or the smaller: the term's derivative where they are equal."""
    numbers = [one for one in node.args if one.is_number]
    if len(numbers) != 1:
        return node
    others = type(node)(*(one for one in node.args if one is not numbers[0]))
    inside = others >= numbers[0] if isinstance(node, Max) else others <= numbers[0]
    return StraightThrough(node, Where(inside, others, numbers[0]))


def _is_in_range(term: Expr, name: str) -> Boolean | None:
    """The condition that a term is rounded to a number of a dtype and does not saturate; None if it never does."""
    dtype = DTYPES[name]
    if dtype.kind == "integer":  # to the nearest, and to the even one of two
        return And(term >= -dtype.largest - 1 - HALF, term < dtype.largest + HALF)
    half = Integer(2) ** (dtype.largest.bit_length() - 1 - dtype.digits)
    return Abs(term) <= dtype.largest + half if is_eight_bits(name) else None


def _rounds_within(node: Basic) -> bool:
    """Tell if some rounding in a node has a derivative of its own under `straight_through`."""
    return any(isinstance(part, floor | ceiling) or (isinstance(part, Cast) and _saturates(part.dtype))
               for part in nodes_of(node))  # fmt: skip


def _saturates(name: str) -> bool:
    return DTYPES[name].kind == "integer" or is_eight_bits(name)
