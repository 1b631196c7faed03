"""Expressions as Python: the line that a finding is reported by, which runs as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from sympy import And, Eq, Expr, Ne, Not, Or, preorder_traversal
from sympy.core.basic import Basic
from sympy.printing.str import StrPrinter

from redalg.expression import Axis, Element, Extent, Reduce, Scalar, Where

ORDERED = ("first", "last", "sum_at_max", "argmax", "argmin", "compensated_sum")
PLAIN = ("sum", "prod", "max", "min", "any", "all")


@final
class Python(StrPrinter):
    """Prints an expression by the functions that a person writes."""

    printmethod = "_python"

    def _print_Element(self, node: Element) -> str:
        indices = ", ".join(map(self._print, node.indices))
        return f"ra.Tensor('{node.name}')[{indices}]" if not node.is_plain else node.name

    def _print_Extent(self, node: Any) -> str:
        return f"{node.name}.extent"

    def _print_Where(self, node: Any) -> str:
        return f"ra.where({', '.join(map(self._print, node.args))})"

    def _print_Let(self, node: Any) -> str:
        return f"ra.let('{node.name}', {self._print(node.expr)})"

    def _print_Cast(self, node: Any) -> str:
        return f"ra.cast({self._print(node.args[0])}, '{node.dtype}')"

    def _print_Reduce(self, node: Reduce) -> str:
        given = ", ".join(map(self._print, node.operands))
        axes = ", ".join(axis.name for axis in node.bound)
        if node.kind in ("first", "last"):
            value, counts = node.operands
            live = "" if counts == 1 else f", where={self._print(counts.args[0])}"
            return f"ra.{node.kind}({self._print(value)}, {axes}{live})"
        if node.kind in ("any", "all"):
            condition = node.expr.args[0] if isinstance(node.expr, Where) else node.expr
            return f"ra.{node.kind}({self._print(condition)}, {axes})"
        if node.kind == "topk" and node.place is not None:
            return f"ra.topk({given}, {axes}, {node.place.name})[{int(node.result == 'indices')}]"
        if node.kind == "affine":
            return f"ra.affine({given}, {axes})[{int(node.result == 'shift')}]"
        if node.kind in PLAIN or node.kind in ORDERED:
            return f"ra.{node.kind}({given}, {axes})"
        return f"ra.reduce('{node.kind}', {given}, axis={axes})"

    def _print_Relational(self, node: Any) -> str:
        left, right = self._print(node.lhs), self._print(node.rhs)
        if isinstance(node, Eq | Ne):
            return f"ra.{'eq' if isinstance(node, Eq) else 'ne'}({left}, {right})"
        return f"({left} {node.rel_op} {right})"

    def _print_And(self, node: And) -> str:
        return f"ra.logical_and({', '.join(map(self._print, node.args))})"

    def _print_Or(self, node: Or) -> str:
        return f"ra.logical_or({', '.join(map(self._print, node.args))})"

    def _print_Not(self, node: Not) -> str:
        return f"ra.logical_not({self._print(node.args[0])})"

    def _print_Rational(self, node: Any) -> str:
        return str(node) if node.is_Integer else f"Rational({node.p}, {node.q})"

    def _print_Half(self, _node: Any) -> str:
        return "Rational(1, 2)"


def spelled(expr: Basic) -> str:
    """An expression as Python."""
    return str(Python().doprint(expr))


def line(outputs: Mapping[str, tuple[Expr, str]], call: str = "ra.analyze") -> str:
    """A program of one line that asks for outputs.

    >>> import redalg as ra
    >>> n, x = ra.axes("n"), ra.tensor("x[n]")
    >>> line({"out": (ra.sum(ra.where(n > 0, x, 0), n), "")})
    'import redalg as ra; from sympy import *; n = ra.axes("n"); x, = ra.tensors("x[n]"); \
print(ra.analyze({"out": (ra.sum(ra.where((n > 0), x, 0), n), "")}))'
    """
    given = ", ".join(f'"{name}": ({spelled(expr)}, "{axes}")' for name, (expr, axes) in outputs.items())
    return f"{preamble(outputs)}; print({call}({{{given}}}))"


def preamble(outputs: Mapping[str, tuple[Expr, str]]) -> str:
    """The names that outputs are written with."""
    nodes = {node for expr, _ in outputs.values() for node in preorder_traversal(expr)}
    axes = {node for node in nodes if isinstance(node, Axis)}
    extents = {str(node.name) for node in nodes if isinstance(node, Extent)} - {axis.name for axis in axes}
    sized = sorted((axis for axis in axes if axis.size is not None), key=str)
    plain = sorted({axis.name for axis in axes if axis.size is None} | extents)
    scalars = sorted(str(node) for node in nodes if isinstance(node, Scalar))
    elements = sorted({str(node) for node in nodes if isinstance(node, Element) and node.is_plain})
    parts = ["import redalg as ra", "from sympy import *"]
    parts += [f'{", ".join(plain)} = ra.axes("{" ".join(plain)}")'] * bool(plain)
    parts += [f'{axis.name} = ra.axis("{axis.name}", size={axis.size})' for axis in sized]
    names = ", ".join(one.split("[")[0] for one in elements)
    parts += [
        f'{names}{"," * (len(elements) == 1)} = ra.tensors("{" ".join(one.replace(" ", "") for one in elements)}")'
    ] * bool(elements)
    parts += [f'{", ".join(scalars)} = ra.scalars("{" ".join(scalars)}", positive=True)'] * bool(scalars)
    return "; ".join(parts)
