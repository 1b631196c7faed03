"""Texts of PyTorch with named dimensions: what lines tensors up, joins them, and reduces along some of their axes.

    a[b, h, q, k] - m[b, h, q]   is written   a - m[:, :, :, None]        where m lacks an axis, None stands for it
    a[k, b] - m[b, k]            is written   a.permute(1, 0) - m         in one order of axes

A term's axes are those of its text's dimensions, in order; PyTorch's own broadcasting does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from string import ascii_letters
from typing import final

from sympy import Expr
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis, Element, Value

RELATION, SUM, PRODUCT, POWER, ATOM = range(5)
"""The levels at which texts bind; a higher level binds more tightly."""


@final
@dataclass(frozen=True)
class Term:
    """A text, the axes of its dimensions in order, its level of binding, and True if it is a tensor, not a number."""

    text: str
    axes: tuple[Axis, ...] = ()
    level: int = ATOM
    tensor: bool = True

    @property
    def atom(self) -> str:
        """The text in a form that a dot, a power or an index may follow."""
        return self.text if self.level == ATOM else f"({self.text})"

    def above(self, level: int) -> str:
        """The text as an operand of what binds at that level."""
        return self.text if self.level > level else f"({self.text})"


@final
@dataclass(frozen=True)
class Layout:
    """One order of all axes, and their sizes: it joins terms."""

    order: tuple[Axis, ...]
    sizes: Mapping[str, int]

    def union(self, terms: Iterable[Term]) -> tuple[Axis, ...]:
        """The axes of all, in one order."""
        axes = {axis for one in terms for axis in one.axes}
        return tuple(axis for axis in self.order if axis in axes)

    def align(self, term: Term, axes: Sequence[Axis], level: int = -1) -> str:
        """A text that broadcasts against tensors of these axes."""
        own = tuple(axis for axis in axes if axis in term.axes)
        aligned = term
        if own != term.axes:
            aligned = Term(f"{term.atom}.permute({', '.join(str(term.axes.index(axis)) for axis in own)})", own)
        if own and own != tuple(axes[-len(own) :]):
            start = axes.index(own[0])
            marks = [":" if axis in own else "None" for axis in axes[start:]]
            aligned = Term(f"{aligned.atom}[{', '.join(marks)}]", own)
        return aligned.above(level)

    def join_terms(self, sign: str, terms: Sequence[Term], level: int) -> Term:
        """Terms joined by an operator."""
        axes = self.union(terms)
        return Term(sign.join(self.align(one, axes, level - (not place)) for place, one in enumerate(terms)), axes,
                    level, any(one.tensor for one in terms))  # fmt: skip

    def spread(self, term: Term, axes: tuple[Axis, ...]) -> Term:
        """A tensor of exactly these axes, in their order."""
        text = self.align(term, [axis for axis in axes if axis in term.axes])
        if len(term.axes) == len(axes) and term.tensor:
            return Term(text, axes, term.level if text == term.text else ATOM)
        sizes = ", ".join("-1" if axis in term.axes else str(self.sizes[axis.name]) for axis in axes)
        if not term.tensor:
            return Term(f"torch.full(({sizes}{',' * (len(axes) == 1)}), {term.text}, device=device)", axes)
        view = Term(self.align(term, axes), axes, term.level if self.align(term, axes) == term.text else ATOM)
        return Term(f"{view.atom}.expand({sizes})", axes) if sizes else view

    def along(self, word: str, term: Term, axes: tuple[Axis, ...]) -> Term:
        """`x.word(dim)`; what does not vary along an axis is written out along it."""
        absent = [axis for axis in axes if axis not in term.axes]
        length = prod(self.sizes[axis.name] for axis in absent)
        if absent and word == "sum":
            term = self.join_terms(" * ", [Term(str(length), tensor=False), term], PRODUCT)
        elif absent:
            ones = f"torch.ones({', '.join(str(self.sizes[axis.name]) for axis in absent)}, device=device)"
            term = self.join_terms(" * ", [term, Term(ones, tuple(absent))], PRODUCT)
        dims = sorted(term.axes.index(axis) for axis in axes if axis in term.axes)
        rest = tuple(axis for axis in term.axes if axis not in axes)
        if len(dims) > 1 and word != "prod":  # which takes one dimension at a time
            return Term(f"{term.atom}.{word}({tuple(dims)})", rest)
        return Term(term.atom + "".join(f".{word}({dim})" for dim in reversed(dims)), rest) if dims else term

    def divide(self, top: Term, below: list[Term]) -> Term:
        """top / (a * b)."""
        if not below:
            return top
        under = self.join_terms(" * ", below, PRODUCT) if len(below) > 1 else below[0]
        axes = self.union([top, under])
        text = f"{self.align(top, axes, SUM)} / {self.align(under, axes, PRODUCT)}"
        return Term(text, axes, PRODUCT, top.tensor or under.tensor)

    def select(self, condition: Term, a: Term, b: Term, *, swap: bool = False) -> Term:
        """torch.where."""
        a, b = (b, a) if swap else (a, b)
        axes = self.union([condition, a, b])
        holds = self.align(condition, axes) if condition.tensor else f"torch.tensor({condition.text}, device=device)"
        numbers = not a.tensor and not b.tensor
        texts = [f"float({one.text})" if numbers else self.align(one, axes) for one in (a, b)]
        return Term(f"torch.where({holds}, {', '.join(texts)})", axes)

    def extreme(self, name: str, parts: list[Term]) -> Term:
        """The larger or smaller of tensors and numbers."""
        word, bound = ("maximum", "min") if name == "Max" else ("minimum", "max")
        tensors = [one for one in parts if one.tensor]
        if not tensors:
            return Term(f"{name.lower()}({', '.join(one.text for one in parts)})", tensor=False)
        axes, result = self.union(parts), tensors[0]
        for tensor in tensors[1:]:
            result = Term(f"torch.{word}({self.align(result, axes)}, {self.align(tensor, axes)})", axes)
        for part in parts:
            result = result if part.tensor else Term(f"{result.atom}.clamp({bound}={part.text})", result.axes)
        return result


def axis_letters(axes: Iterable[Axis]) -> dict[Axis, str]:
    """A letter for each axis: its own if it has one."""
    letters: dict[Axis, str] = {}
    for axis in axes:
        own = [str(axis)] if len(str(axis)) == 1 and str(axis).isascii() else []
        letters[axis] = next(letter for letter in (*own, *str(axis).lower()[:1], *ascii_letters)
                             if letter in ascii_letters and letter not in letters.values())  # fmt: skip
    return letters


def repeated_expressions(cascade: Cascade) -> frozenset[Basic]:
    """The expressions of data and values that stand at more than one place."""
    seen, twice = set[Basic](), set[Basic]()

    def look(node: Basic) -> None:
        if isinstance(node, Element | Value) or not node.args:
            return
        if node in seen:
            twice.add(node)
            return
        seen.add(node)
        for arg in node.args:
            look(arg)

    for expr in cascade.expressions():
        look(expr)
    return frozenset(one for one in twice if isinstance(one, Expr) and worth_a_name(one))


def worth_a_name(expr: Expr) -> bool:
    """Tell if an expression of tensors is more than one step."""
    return bool((expr.count_ops() > 1 or expr.is_Function) and expr.has(Element, Value) and not is_reciprocal(expr))


def is_reciprocal(node: Expr) -> bool:
    """Tell if a node is 1 / something."""
    return bool(node.is_Pow and node.exp.is_Rational and node.exp.is_negative)
