"""Tensor elements: `Q[b, h, q, d]` is a SymPy expression, indexed by axes or by integer expressions."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Never, final

from sympy import Abs, Expr, Integer, KroneckerDelta, Max, Min, Mul, Pow, S, Symbol, sign
from sympy.core.assumptions import StdFactKB

from redalg.errors import ExpressionError, OperationError
from redalg.expression.arguments import answer_arguments, answer_methods
from redalg.expression.axis import AS_WRITTEN, Axis, split_names
from redalg.expression.known import no_more_known
from redalg.expression.node import Node
from redalg.expression.operand import expression_of
from redalg.expression.spelling import no_other

UNINDEXED = "`{}` is the name of a tensor, without indices. Index it first, as in `x[b, n]`."
ELEMENT = re.compile(r"\s*([^\W\d]\w*)\s*(?:\[([^\]]*)\])?\s*")


@final
class Label(Symbol):
    """The name of a tensor, an argument of its elements so that it can be substituted.

    `assumption` is `positive`, `nonnegative` or `finite` if the elements are declared so, else empty.
    """

    __slots__ = ("assumption",)
    assumption: str

    def __new__(cls, name: str, assumption: str = "") -> Label:
        return _label(name, assumption)

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name, self.assumption), {}


@lru_cache(1 << 10)
def _label(name: str, assumption: str) -> Label:
    """One label for a name: SymPy deduces a symbol's facts anew for each symbol that is made."""
    label: Label = Symbol.__xnew__(Label, name, extended_real=True, **_assumptions_of(assumption))
    label.assumption = assumption
    return label


class _Indexed(Node, Expr):
    """`args = (label, index, …)`. Extended real, never finite: SymPy would drop -oo from sums and maxima."""

    is_extended_real = True
    is_commutative = True
    _diff_wrt = True
    is_symbol = True

    @property
    def label(self) -> Label:
        """The tensor's name, a symbol."""
        label: Label = self.args[0]
        return label

    @property
    def name(self) -> str:
        """The tensor's name, a string."""
        return str(self.label.name)

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The index expressions, in order."""
        return tuple(self.args[1:])

    def _eval_derivative(self, symbol: Expr) -> Expr:
        if isinstance(symbol, _Indexed) and symbol.label == self.label and len(symbol.args) == len(self.args):
            deltas = (KroneckerDelta(i, j) for i, j in zip(self.indices, symbol.indices, strict=True))
            return Mul(*deltas)
        if isinstance(symbol, Axis) and symbol in self.free_symbols:
            raise ExpressionError(f"`{self}` cannot be differentiated by its index {symbol}: indices are discrete.")
        return S.Zero

    def _sympystr(self, printer: Any) -> str:
        return f"{self.name}[{', '.join(map(printer._print, self.indices))}]"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        name = printer._print(Symbol(self.name))
        body = f"{{{name}}}_{{{','.join(map(printer._print, self.indices))}}}" if self.indices else name
        return body if exp is None else f"{{{body}}}^{{{exp}}}"


@final
@no_more_known
class Element(_Indexed):
    """One element of an input tensor, of which its label declares an assumption.

    >>> import redalg as ra
    >>> x = ra.tensor("x[b,n]")
    >>> x.name, x.label, x.indices, x.is_plain
    ('x', x, (b, n), True)
    >>> b, n = ra.axes("b n")
    >>> ra.Tensor("x")[b, n // 2].is_plain
    False
    """

    def __new__(cls, label: Label, *indices: Expr) -> Element:
        element: Element = Expr.__new__(cls, label, *indices)
        if isinstance(label, Label) and label.assumption:
            element._assumptions = _facts(label.assumption).copy()
        return element

    @property
    def is_plain(self) -> bool:
        """Tell if every index is an axis or a number: any other index is computed, and may leave the tensor."""
        return all(isinstance(one, Axis) or one.is_Integer for one in self.indices)


@cache
def _facts(assumption: str) -> StdFactKB:
    """The facts of an element: of a sign, which need not be finite, or of one that is finite."""
    return StdFactKB(
        {**Element.default_assumptions, **StdFactKB({"extended_real": True, **_assumptions_of(assumption)})}
    )


def _assumptions_of(assumption: str) -> dict[str, bool]:
    """SymPy's assumptions of what is declared so."""
    return {"finite": True} if assumption == "finite" else {f"extended_{assumption}": True} if assumption else {}


@final
@no_more_known
class Value(_Indexed):
    """One element of something that redalg names: a reduction's value, a slot of the state, a producer.

    It prints without its indices, which are its free axes, as the papers write it.
    """

    def _sympystr(self, printer: Any) -> str:
        return self.name

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = str(printer._print(Symbol(self.name)))
        return body if exp is None else f"{{{body}}}^{{{exp}}}"


@answer_methods(ExpressionError, "__init__", otherwise=AS_WRITTEN["Tensor"])
@final
class Tensor:
    """A tensor by name, to be indexed by expressions: `Tensor("K")[b, h // 3, k, d]` (shared heads, gather, shift).

    `positive=True` and `nonnegative=True` declare the sign of its elements, as of `tensor`.

    >>> import redalg as ra
    >>> b, h, k = ra.axes("b h k")
    >>> K, page = ra.Tensor("K"), ra.tensor("page[b,k]")
    >>> K[b, h // 4, k], K[page, h // 4]
    (K[b, floor(h/4), k], K[page[b, k], floor(h/4)])
    """

    __slots__ = ("label",)

    def __init__(self, name: str, *, positive: bool = False, nonnegative: bool = False) -> None:
        [identifier] = split_names(name, "Tensor")
        self.label = Label(identifier, sign_assumption(positive=positive, nonnegative=nonnegative))

    def __getitem__(self, index: Any) -> Element:
        indices = index if isinstance(index, tuple) else (index,)
        return Element(self.label, *(_index(self.label.name, one) for one in indices))

    def __repr__(self) -> str:
        return f"Tensor({self.label.name!r})"

    if not TYPE_CHECKING:  # for a type checker a tensor would have every attribute

        def __getattr__(self, name: str) -> object:
            """Nothing: what is asked for is asked of an element."""
            if name.startswith("_") or name in Tensor.__slots__:
                raise AttributeError(f"'Tensor' object has no attribute {name!r}", name=name, obj=self)
            raise OperationError(f"{UNINDEXED} `{name}` is asked of it as it stands.", self)

        def _refuse_use(self, *_: object) -> Never:
            raise OperationError(f"{UNINDEXED} It stands for no value.", self)

        # without `__iter__` Python would index it by 0, 1, 2 … without end
        __iter__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_use
        __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = __matmul__ = __floordiv__ = __mod__ = _refuse_use
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmatmul__ = _refuse_use


def _index(name: str, index: Any) -> Expr:
    expr = expression_of(index)
    if isinstance(expr, _Indexed):
        return expr
    if isinstance(expr, Expr) and expr.is_integer is not False and not expr.is_Float:
        return _integer_index(name, expr)
    raise ExpressionError(f"tensor `{name}`: index `{index}` is not an integer expression. Index by axes, integers, "
                          "expressions of them (`h // 3`) or elements of integer tensors.")  # fmt: skip


def _integer_index(name: str, expr: Expr) -> Expr:
    """An index without absolute values and signs, of which extrema say the same in integers.

    Raises:
        ExpressionError: it is computed by a reduction, or by a power.
    """
    if expr.is_Atom:
        return expr
    from redalg.expression.reduce import Reduce

    if reductions := expr.atoms(Reduce):
        raise ExpressionError(
            f"tensor `{name}`: index `{expr}` is computed by a reduction, `{min(reductions, key=str)}`. Compute that "
            "by a call of its own, and index by its result: an integer tensor."
        )
    if powers := [one for one in expr.atoms(Pow) if one.exp != -1]:
        raise ExpressionError(
            f"tensor `{name}`: index `{expr}` holds the power `{min(powers, key=str)}`. Write indices by + - * // %, "
            "Min and Max of axes, integers and elements of integer tensors."
        )
    return expr.replace(Abs, lambda u: Max(u, -u)).replace(sign, lambda u: Max(-1, Min(1, u)))


def sign_assumption(*, positive: bool, nonnegative: bool) -> str:
    """The sign that is declared; empty for none."""
    return "positive" if positive else "nonnegative" if nonnegative else ""


@answer_arguments(ExpressionError, AS_WRITTEN["tensors"])
def tensor(spec: str, *indices: Any, positive: bool = False, nonnegative: bool = False, **other: Never) -> Element:
    """One tensor's element, `tensor("X[b,n]")`.

    Args:
        spec: the tensor's name and its axes.
        positive, nonnegative: that every element is > 0 (≥ 0), +∞ included. The derivation relies on it: logarithms and
            fractional powers come apart without cases. Data that break it give any result; a call with `check=True`
            refuses them.

    >>> tensor("X[b,n]").indices
    (b, n)
    >>> from sympy import sqrt
    >>> sqrt(tensor("x[n]") ** 2), sqrt(tensor("x[n]", positive=True) ** 2)
    (Abs(x[n]), x[n])
    """
    no_other("tensor", other, ("positive", "nonnegative"))
    if indices:
        inside = ",".join(name for index in indices for name in str(index).replace(",", " ").split())
        raise ExpressionError(f"tensor({spec!r}, {inside}): the axes stand in the string. Write "
                              f'`ra.tensor("{spec}[{inside}]")`.')  # fmt: skip
    elements = _parse(spec, sign_assumption(positive=positive, nonnegative=nonnegative))
    if len(elements) != 1:
        raise ExpressionError(f"tensor({spec!r}) names {len(elements)} tensors. Use `tensors` for several.")
    return elements[0]


@answer_arguments(ExpressionError, AS_WRITTEN["tensors"])
def tensors(spec: str, *, positive: bool = False, nonnegative: bool = False, **other: Never) -> tuple[Element, ...]:
    """Elements of several tensors, each given as `name[axis,axis,…]`; their sign as of `tensor`.

    >>> tensors("X[b,n] W[n]")
    (X[b, n], W[n])
    """
    no_other("tensors", other, ("positive", "nonnegative"))
    return tuple(_parse(spec, sign_assumption(positive=positive, nonnegative=nonnegative)))


def _parse(spec: str, sign: str) -> list[Element]:
    if not isinstance(spec, str):
        split_names(spec, "tensors")  # which refuses it
    elements, position = [], 0
    while position < len(spec.rstrip(" ,")):
        match = ELEMENT.match(spec, position)
        if not match:
            raise ExpressionError(f"tensors({spec!r}): cannot read `{spec[position:]}`. Write `X[b,n] W[n]`.")
        elements.append(
            Element(Label(match[1], sign), *map(_named_index, (match[2] or "").split(",") if match[2] else ()))
        )
        position = match.end() + (spec[match.end() : match.end() + 1] == ",")
    return elements


def _named_index(text: str) -> Expr:
    text = text.strip()
    if text.isdigit():
        return Integer(int(text))
    names = split_names(text, "tensors")
    if len(names) > 1:
        raise ExpressionError(
            f"tensors: `[… {text} …]` holds one index of {len(names)} names. Separate indices by commas."
        )
    return Axis(names[0])
