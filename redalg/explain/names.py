"""The user's words in an explanation: names that `ra.let` gave, products by their factors, letters that are free.

    mu = sum_0/count                   every other expression says mu, mu² for (sum_0/count)²
    sum_d_0 = Σ_d K·Q                  is called QK: nobody typed sum_d_0, which kernels keep
    h, where an axis is called h       is called H throughout

Prose holds no name of the user's (`model`), so that a letter which stands alone there is the notation's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

from sympy import Expr, Mul, Symbol

from redalg.decompose.cascade import Cascade, Producer
from redalg.decompose.parse.names import given_pairs, put_names
from redalg.decompose.verdict.words import is_generated
from redalg.explain.model import (
    Code,
    Equation,
    Equations,
    Line,
    Matrices,
    Part,
    Section,
    Sentence,
    Table,
    column,
    sentence,
)
from redalg.explain.notation import free_letters, split_marks
from redalg.expression import Axis, Element, Label, Value
from redalg.expression.contents import free_axes
from redalg.expression.rebuild import with_args

ALONE = re.compile(r"(?<![\w′])([A-Za-zφ])(?=_\d|\b)")


@final
@dataclass(frozen=True)
class Words:
    """The words of an explanation.

    Attributes:
        given: what a name stands for, as values of the cascade and names before it, and the name: `name_pairs`.
        called: the name of a producer or a reduction in the cascade -> its name here.
        letters: a letter of the notation -> the letter that stands for it, where it is another.
    """

    given: tuple[tuple[Expr, Value], ...]
    called: dict[str, str]
    letters: dict[str, str]

    def write(self, expr: Any) -> Any:
        """An expression in these words."""
        return self._call(put_names(expr, self.given))

    def _call(self, node: Any) -> Any:
        if isinstance(node, Value):
            base, marks = split_marks(node.name)
            return Value(Label(self.called[base] + marks), *node.indices) if base in self.called else node
        if type(node) is Symbol:
            base, _, rest = node.name.partition("_")
            return Symbol("_".join(filter(None, (self.letters.get(base, base), rest))))
        if isinstance(node, Element):
            return Element(Label(self.called[node.name]), *node.indices) if node.name in self.called else node
        if not node.args:
            return node
        args = [self._call(one) for one in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else with_args(node, args)

    def say(self, part: Part) -> Part:
        """A part of prose in these words."""
        if isinstance(part, Code):
            return part
        if isinstance(part, str):
            return ALONE.sub(lambda found: self.letters.get(found[1], found[1]), part)
        return self.write(part)

    def say_all(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Parts of prose in these words."""
        return tuple(map(self.say, parts))

    def line(self, line: Line) -> Line:
        """A line of an explanation in these words."""
        if isinstance(line, Sentence):
            return Sentence(self.say_all(line.parts))
        if isinstance(line, Equations):
            rows = tuple(tuple(map(self._equation, row)) for row in line.rows)
            return Equations(self.say_all(line.title), rows, line.source)
        if isinstance(line, Table):
            return Table(line.header, tuple(tuple(map(self.say_all, row)) for row in line.cells))
        sides = (tuple(tuple(map(self.write, row)) for row in side) for side in (line.left, line.first, line.second))
        return Matrices(self.say_all(line.title), *sides)

    def _equation(self, row: Equation) -> Equation:
        """An equation in these words; the definition of a given name by the names before it."""
        names = [value.name for _, value in self.given]
        defined = row.left.name if isinstance(row.left, Element | Label) else ""
        known = replace(self, given=self.given[: names.index(defined)]) if defined in names else self
        return replace(row, left=self.write(row.left), right=known.write(row.right))


def in_users_words(section: Section, cascade: Cascade) -> Section:
    """A section with the names that the user gave, and letters that are no name of the cascade's."""
    return replace(section, lines=tuple(lines_in_users_words(section.lines, cascade)))


def lines_in_users_words(lines: Iterable[Line], cascade: Cascade) -> list[Line]:
    """Lines of an explanation of a cascade with the names that the user gave, and letters that are free."""
    return list(map(words_of(cascade).line, lines))


def named_expressions(cascade: Cascade) -> Iterator[Equations]:
    """The names that `ra.let` gave to what is no reduction, each with its definition."""
    definitions = {value: pattern for pattern, value in reversed(words_of(cascade).given)}
    if definitions:
        definitions = dict(reversed(definitions.items()))
        yield column(("Names that were given",), [Equation(Element(Label(value.name), *value.indices), pattern)
                                                  for value, pattern in definitions.items()])  # fmt: skip


def spelled_names(cascade: Cascade) -> Iterator[Line]:
    """The names of `named_expressions`, with the reductions that have a generated name written out."""
    words, meaning = words_of(cascade), dict[Expr, Expr]()
    for reduction in cascade.reductions:
        if is_generated(reduction) and reduction.name not in words.called:
            term = put_names(reduction.term, words.given).xreplace(meaning)
            meaning[reduction.value] = reduction.to_reduce(term, cascade.reduced_axes)
    for line in named_expressions(cascade):
        rows = (tuple(replace(one, right=one.right.xreplace(meaning)) for one in row) for row in line.rows)
        yield replace(line, rows=tuple(rows))


def given_names(cascade: Cascade) -> Iterator[Line]:
    """The names that `ra.let` gave to what is no reduction, and those that products have here alone."""
    yield from named_expressions(cascade)
    if called := words_of(cascade).called:
        pairs = [f"`{name}` is `{own}`" for own, name in called.items()]
        yield sentence(f"In kernels and in the stages {', '.join(pairs)}: a name by `ra.let` would stand everywhere.")


def other_letters(cascade: Cascade) -> Iterator[Line]:
    """The letters of RedFuser that are names of the cascade, and what stands for them."""
    pairs = [f"`{other}` stands for its `{one}`" for one, other in words_of(cascade).letters.items() if one in "Fghxd"]
    if pairs:
        yield sentence(f"Where a letter of RedFuser's is a name of yours, another stands for it: {', '.join(pairs)}.")


@lru_cache(maxsize=64)
def words_of(cascade: Cascade) -> Words:
    """The words of an explanation of a cascade."""
    taken = {*cascade.inputs(), *(str(one.name) for one in cascade.scalars()), *(axis.name for axis in cascade.axes())}
    taken |= {one.name for one in cascade.reductions} | {one.name for one in cascade.producers}
    taken |= {one.name for one in cascade.outputs} | {name for name, _ in cascade.names}
    called = dict[str, str]()
    for producer in cascade.producers:
        name = product_name(producer, cascade.axis)
        if name is not None and name not in taken:
            called[producer.name] = name
            taken.add(name)
    called |= {expr.name: name for name, expr in cascade.names if isinstance(expr, Value)}
    return Words(given_pairs(cascade), called, free_letters(taken))


def product_name(producer: Producer, streamed: Axis) -> str | None:
    """The factors of a sum of products that bears no name of the user's, as one name; None of any other producer.

    What is streamed comes last.

    >>> from redalg import axes, fuse, max, sum, tensors
    >>> Q, K = tensors("Q[q,d] K[k,d]")
    >>> k, d = axes("k d")
    >>> product_name(fuse(max(sum(Q * K, d), k)).cascade.producers[0], k)
    'QK'
    """
    generated = re.fullmatch("_".join(["sum", *map(str, producer.cascade.reduced_axes)]) + r"_\d+", producer.name)
    term = producer.cascade.sum_alone if generated else None
    factors = Mul.make_args(term) if term is not None else ()
    if not factors or not all(isinstance(one, Element) for one in factors):
        return None
    names = [one.name for one in sorted(factors, key=lambda one: streamed in free_axes(one))]
    return ("" if all(len(name) == 1 for name in names) else "_").join(names)
