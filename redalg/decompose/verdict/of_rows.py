"""Functions of a row's values, which the pass that makes the values computes: once a row, not once an element.

    d = ⊕ …;  Σ g(x)·F(d)   →   first pass: e = F(d);  second pass: Σ g(x)·e

F is more than arithmetic: a maximum, a root, a logarithm; the number before it goes with it, and a divisor stays one.
Exact: the tensor e is of the dtype in which F(d) would be computed. The values go only if the later pass reads them in
such functions alone, and no more tensors are stored than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from sympy import Add, Basic, Expr, Mul, Number, NumberSymbol, Pow

from redalg.decompose.cascade import Cascade
from redalg.decompose.mapped import map_cascade
from redalg.expression import Axis, Element, Label, Scalar
from redalg.expression.contents import elements_of, nodes_of

Name = Callable[[str], str]
"""A name → one that nothing else bears."""


def read_functions_of_rows(
    cascade: Cascade, rows: Iterable[Element], name: Name
) -> tuple[Cascade, dict[Element, Expr]]:
    """A later pass that reads functions of these tensors as tensors, and the functions; none if that does not pay.

    Args:
        cascade: of the later pass.
        rows: the tensors that an earlier pass makes of values.
        name: makes the new tensors' names.
    """
    rewrite = RowFunctions(frozenset(rows), name)
    found = map_cascade(cascade, rewrite)
    functions = {tensor: expr for expr, tensor in rewrite.tensors.items()}
    used = {one for expr in functions.values() for one in elements_of(expr)}
    pays = len(functions) <= len(used) and used.isdisjoint(found.elements())
    return (found, functions) if pays else (cascade, {})


@final
class RowFunctions:
    """The rewrite of expressions.

    Attributes:
        rows: the tensors of values.
        name: makes the names.
        tensors: the tensor that stands for each function found.
    """

    def __init__(self, rows: frozenset[Element], name: Name) -> None:
        self.rows, self.name = rows, name
        self.tensors: dict[Expr, Element] = {}
        self._rewritten: dict[Basic, Basic] = {}

    def __call__(self, expr: Basic) -> Basic:
        if expr not in self._rewritten:
            self._rewritten[expr] = self._rewrite(expr)
        return self._rewritten[expr]

    def _rewrite(self, expr: Basic) -> Basic:
        if isinstance(expr, Element) or not elements_of(expr) & self.rows:
            return expr
        if isinstance(expr, Expr) and not _is_divisor(expr) and self._is_function(expr):
            return self._tensor(expr)
        if isinstance(expr, Mul):
            return self._rewrite_product(expr)
        return expr.func(*map(self, expr.args))

    def _rewrite_product(self, product: Mul) -> Expr:
        number, factors = product.as_coeff_mul()
        own = [one for one in factors if not _is_divisor(one) and self._is_function(one)]
        rest = [self(one) for one in factors if one not in own]
        if len({_places(one) for one in own}) != 1:
            return Mul(number, *map(self, factors))
        return Mul(self._tensor(Mul(number, *own)), *rest)

    def _tensor(self, function: Expr) -> Element:
        if function not in self.tensors:
            first, *_ = sorted(elements_of(function), key=str)
            self.tensors[function] = Element(Label(self._free(f"of_{first.name}")), *first.indices)
        return self.tensors[function]

    def _free(self, name: str) -> str:
        name = self.name(name)
        return self._free(f"{name}_") if any(one.name == name for one in self.tensors.values()) else name

    def _is_function(self, expr: Expr) -> bool:
        """Tell if an expression is one of such tensors alone, all of the same places, and more than arithmetic."""
        read = elements_of(expr)
        if not read or not read <= self.rows or len(_places(expr)) != 1:
            return False
        parts = {part for one in read for part in nodes_of(one)}
        nodes = nodes_of(expr) - parts
        leaves = {one for one in nodes if not one.args}
        alone = all(isinstance(one, Number | NumberSymbol | Scalar) for one in leaves)
        return alone and not all(map(_is_arithmetic, nodes - leaves))


def _places(expr: Expr) -> frozenset[tuple[Axis, ...]]:
    """The places at which an expression reads tensors."""
    return frozenset(one.indices for one in elements_of(expr))


def _is_arithmetic(node: Basic) -> bool:
    return isinstance(node, Add | Mul) or (isinstance(node, Pow) and bool(node.exp.is_integer))


def _is_divisor(factor: Basic) -> bool:
    return isinstance(factor, Pow) and bool(factor.exp.is_negative)
