"""The surface language: axes, tensor elements, scalars, reductions and masks, all SymPy expressions.

Grammar of what a user writes (everything else is SymPy's own: `+ * ** exp log sqrt Abs Max tanh …`):

    expr   := Element(label, index, …)            one element of a tensor, Q[b, h, q, d]
            | Scalar | Extent | Axis | number
            | Reduce(kind, expr, axis, …)         kind: a monoid's name, sum prod max min any all topk …
            | Where(condition, expr, expr)        the mask
            | Cast(expr, dtype)                   a rounding
            | Let(name, expr)                     a display name
            | StraightThrough(expr, expr)         a value, and the expression whose derivative it has
            | any SymPy function of expr

Nodes carry nothing outside `args` (or, for symbols, outside their name): SymPy caches by equality.
"""

from redalg.expression.axis import Axis, Extent, Scalar, axes, axis, scalars
from redalg.expression.masks import eq, logical_and, logical_not, logical_or, ne, where
from redalg.expression.nodes import UNDEFINED, Cast, Let, RunningCast, Where, cast, let
from redalg.expression.reduce import Reduce, all, any, max, min, prod, sum  # noqa: A004 - the field's names
from redalg.expression.straight_through import StraightThrough, straight_through, without_sources
from redalg.expression.structured import (
    affine,
    argmax,
    argmin,
    compensated_sum,
    first,
    last,
    reduce,
    sum_at_max,
    topk,
)
from redalg.expression.tensor import Element, Label, Tensor, Value, tensor, tensors

__all__ = [
    "UNDEFINED", "Axis", "Cast", "Element", "Extent", "Label", "Let", "Reduce", "RunningCast", "Scalar",
    "StraightThrough", "Tensor",
    "Value", "Where", "affine", "all", "any", "argmax", "argmin", "axes", "axis", "cast", "compensated_sum", "eq",
    "first", "last", "let", "logical_and", "logical_not", "logical_or", "max", "min", "ne", "prod", "reduce",
    "scalars", "straight_through", "sum", "sum_at_max", "tensor", "tensors", "topk", "where", "without_sources",
]  # fmt: skip
