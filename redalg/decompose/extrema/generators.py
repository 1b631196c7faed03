"""The parts of x alone of a term that mixes x and d, and the term as a function of the one that gives the others."""

from __future__ import annotations

from typing import final

from sympy import Abs, Dummy, Expr, Max, Min, Mul, Pow, S, exp
from sympy.core.basic import Basic

from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.signs import absolute
from redalg.decompose.separate.theorems import X
from redalg.expression import Axis, Element, Value
from redalg.expression.contents import nodes_of, operations_of, sympy_text
from redalg.expression.rebuild import extremum_as_written


@final
class PartsOfX:
    """The finder of the maximal parts of x alone; each has a symbol, in which the term is written."""

    def __init__(self, separator: Separator) -> None:
        self.separator = separator

    def of(self, node: Expr) -> dict[Expr, Dummy]:
        """The maximal parts of x alone of a node, without their numbers, each with a symbol for it."""
        generators: dict[Expr, Dummy] = {}

        def visit(part: Expr) -> None:
            side = self.separator.side(part)
            if side == X:
                u = _without_numbers(part)[2]
                generators[u] = generators[u] if u in generators else _variable(u)
            elif side & X and (part.is_Add or part.is_Mul):
                sides = [(arg, self.separator.side(arg)) for arg in part.args]
                for arg in (arg for arg, own in sides if own != X):
                    visit(arg)
                if alone := [arg for arg, own in sides if own == X]:
                    visit(part.func(*alone))
            elif side & X:
                for arg in part.args:
                    visit(arg)

        visit(node)
        return generators

    def replace(self, node: Expr, generators: dict[Expr, Dummy]) -> Expr:
        """The node with its maximal parts of x alone replaced by symbols; equal parts share one."""
        if self.separator.side(node) == X:
            factor, number, u = _without_numbers(node)
            if u not in generators:
                generators[u] = _variable(u)
            return factor * generators[u] + number
        if not self.separator.side(node) & X or not node.args:
            return node
        if node.is_Add or node.is_Mul:
            of_x = [arg for arg in node.args if self.separator.side(arg) == X]
            rest = [self.replace(arg, generators) for arg in node.args if self.separator.side(arg) != X]
            return node.func(*rest, self.replace(node.func(*of_x), generators)) if of_x else node.func(*rest)
        args = [self.replace(arg, generators) for arg in node.args]
        if isinstance(node, Max | Min):
            return extremum_as_written(node.func, args)
        return absolute(args[0], self.separator.facts) if isinstance(node, Abs) else node.func(*args)

    def as_function(self, node: Expr, generators: dict[Expr, Dummy]) -> tuple[Expr, Dummy, Expr] | None:
        """The function of x that gives all generators, its symbol, and the node as a function of it; or None."""
        if (form := self.sole(generators)) is None:
            return None
        u, variable, meaning = form
        opened = self.replace(node, generators)
        return u, variable, opened.xreplace(meaning) if meaning else opened

    def sole(self, generators: dict[Expr, Dummy]) -> tuple[Expr, Dummy, dict[Dummy, Expr]] | None:
        """The function of x that gives all generators, its symbol, and each generator's symbol by it; or None."""
        if len(generators) == 1:
            [(u, variable)] = generators.items()
            return u, variable, {}
        leaves_of = {u: self._leaves(u) for u in generators}
        leaves = frozenset().union(*leaves_of.values())
        parts = {part for u in generators if leaves_of[u] == leaves for part in nodes_of(u)
                 if isinstance(part, Expr) and self.separator.side(part) == X
                 and not isinstance(part, Axis) and leaves <= self._leaves(part)}  # fmt: skip
        for u in sorted(parts, key=lambda one: (-operations_of(one), sympy_text(one))):
            variable, meaning = _variable(u), dict[Dummy, Expr]()
            for generator, symbol in generators.items():
                if (expr := self._in_terms_of(u, variable, generator)) is None:
                    break
                meaning[symbol] = expr
            else:
                return u, variable, meaning
        return None

    def _leaves(self, node: Expr) -> frozenset[Basic]:
        """The elements, values and places of x in a node, all of which stand in what the node is a function of."""
        nodes = (one for one in nodes_of(node) if isinstance(one, Element | Value | Axis))
        return frozenset(one for one in nodes if self.separator.side(one) == X)

    def _in_terms_of(self, u: Expr, variable: Dummy, node: Expr) -> Expr | None:
        """A node as a function of u; None if it is not seen to be one."""
        if not self.separator.side(result := node.xreplace({u: variable})) & X:
            return result
        if not isinstance(node, Pow | Mul | exp):
            return None
        return next((variable**power for power in (2, 3, 4) if node == u**power), None)


def _without_numbers(node: Expr) -> tuple[Expr, Expr, Expr]:
    """A part of x as k·u + c with numbers k and c: 2·u, u + 1 and −u give one u; if u is a sum, k is no fraction."""
    c, u = node.as_coeff_Add() if node.is_Add else (S.Zero, node)
    k, rest = u.as_coeff_Mul() if u.is_Mul else u.primitive() if u.is_Add else (S.One, u)
    k, u = (k, rest) if not u.is_Add or k.is_Integer else (S.One, u)
    return (-k, c, -u) if u.is_Add and u.could_extract_minus_sign() else (k, c, u)


def _variable(u: Expr) -> Dummy:
    """A symbol for a function of x, of the sign that SymPy knows of it."""
    return Dummy("g", **({"nonnegative": True} if u.is_extended_nonnegative else {"extended_real": True}))
