"""The reasons of a verdict in the words of the cascade.

Reasons are written with two letters: x, for what an element brings, and d, for what is known at the end. Here the
tensors and the reductions that the reason is about stand in their places:

    moves with d                   moves with `mu`
    compares x with d              compares `price[sample]` with `mu`

A reduction without a name by `ra.let` is written out if it is short, as `mean(price[sample], sample)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

from sympy import Expr
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.parse.names import given_pairs, in_given_names, put_names
from redalg.errors import Text
from redalg.expression import Axis, Element, Label, Value
from redalg.expression.contents import free_axes, nodes_of, values_of

LETTER = re.compile(r"(?<![\w`·(′])(?:x|d)(?![\w(·′])")
MOST = 3
"""Names that stand for a letter; more of them are said in one word."""
SHORT = 64
"""Letters of the longest reduction that is written out in the place of its name."""
KINDS = {"sum": "sum", "prod": "product", "max": "maximum", "min": "minimum"}
"""Monoid -> its word in a sentence."""


@final
@dataclass(frozen=True)
class Letters:
    """The words for x and for d."""

    x: str
    d: str

    def say(self, said: Any) -> Any:
        """A text with the words in place of the letters, but for what stands between backticks."""
        parts, is_code = list[object](), False
        for part in flat_parts(said):
            if isinstance(part, str):
                pieces = part.split("`")
                parts.append(
                    "`".join(one if is_code ^ place % 2 else self._write(one) for place, one in enumerate(pieces))
                )
                is_code ^= len(pieces) % 2 == 0
            else:
                parts.append(part)
        return Text(*parts) if isinstance(said, Text) else parts[0]

    def _write(self, prose: str) -> str:
        return LETTER.sub(lambda found: str(getattr(self, found[0])), prose)


def in_words_of(cascade: Cascade, said: Any, about: Any) -> Any:
    """A text of a verdict in the names of its cascade.

    Args:
        cascade: as it was parsed.
        said: the text; one that is a string has no expressions.
        about: the text whose first expression tells x and d.
    """
    node = next(expressions_in(as_written(about, cascade)), None)
    return letters_of(node, cascade).say(as_written(said, cascade))


def as_written(said: Any, cascade: Cascade) -> Any:
    """A text with the names that were given, and with short reductions written out in the places of others."""
    named = in_given_names(said, cascade.names)
    return named.map(lambda part: put_names(part, short_reductions(cascade))) if isinstance(named, Text) else named


@lru_cache(maxsize=64)
def short_reductions(cascade: Cascade) -> tuple[tuple[Expr, Value], ...]:
    """Reductions that have a generated name, if they are short, each with a name that is its text.

    The mean of such a sum stands before the sum.
    """
    pairs, counts = list[tuple[Expr, Value]](), [one.value for one in cascade.reductions if one.is_count]
    unwritten = {one.value for one in cascade.reductions if is_generated(one)}
    for reduction in cascade.reductions:
        term = put_names(put_names(reduction.term, given_pairs(cascade)), pairs)
        if is_generated(reduction) and not reduction.is_count and not values_of(term) & unwritten:
            text = str(reduction.to_reduce(term, cascade.reduced_axes))
            mean = f"mean{text.removeprefix('sum')}"
            if len(mean) <= SHORT and text.startswith("sum("):
                pairs += [(reduction.value / count, Value(Label(mean), *reduction.axes)) for count in counts]
            if len(text) <= SHORT:
                pairs.append((reduction.value, Value(Label(text), *reduction.axes)))
                unwritten.remove(reduction.value)
    return tuple(pairs)


def is_generated(reduction: Reduction) -> bool:
    """Tell if redalg named the reduction, not the user."""
    return re.fullmatch(rf"{reduction.monoid.name}_\d+", reduction.name) is not None


def letters_of(node: Basic | None, cascade: Cascade) -> Letters:
    """The words for the letters in a reason about a node."""
    reduced = set(cascade.reduced_axes)
    leaves = [] if node is None else [one for one in nodes_of(node) if isinstance(one, Element | Value | Axis)]
    data = [one for one in leaves if reduced & free_axes(one)]
    counts = {one.value for one in cascade.reductions if one.is_count}
    values = [one for one in leaves if isinstance(one, Value) and one not in data]
    values = [one for one in values if one not in counts] or values
    places = [one for one in data if not isinstance(one, Axis)] or data
    return Letters(names_text(places, "the elements"), names_text(values, "the reduced values"))


def names_text(names: Iterable[Basic], otherwise: str) -> str:
    """Names as code, joined; another word if there are none, or many."""
    *others, last = [f"`{one}`" for one in sorted(map(str, names))] or [otherwise]
    if len(others) >= MOST:
        return otherwise
    return f"{', '.join(others)} and {last}" if others else last


def flat_parts(said: Any) -> Iterator[Any]:
    """The parts of a text and of the texts in it, in order."""
    for part in said.parts if isinstance(said, Text) else ():
        yield from flat_parts(part)
    if not isinstance(said, Text):
        yield said


def expressions_in(said: Any) -> Iterator[Basic]:
    """The expressions of a text, in order."""
    return (part for part in flat_parts(said) if isinstance(part, Basic))


def meanings(cascade: Cascade, *said: Any) -> Iterator[Text]:
    """Sentences that say of each reduction in texts, and of those that these need, what it is: `sum_0` is the sum …

    A name that `ra.let` gave needs none, nor does a reduction that is written out.
    """
    needed = {value for one in said for node in expressions_in(one) for value in values_of(node)}
    generated, written = list[Reduction](), dict(short_reductions(cascade))
    for reduction in reversed(cascade.reductions):
        if reduction.value in needed:
            needed |= values_of(reduction.term)
            generated += [reduction] if is_generated(reduction) and reduction.value not in written else []
    axes = " and ".join(map(str, cascade.reduced_axes))
    for reduction in reversed(generated):
        if not reduction.is_count:
            kind = KINDS.get(reduction.monoid.name, reduction.monoid.name)
            term = as_written(Text(reduction.term), cascade)
            yield Text(f"`{reduction.name}` is the {kind} over {axes} of `", term, "`")
        else:
            yield Text(f"`{reduction.name}` is the number of elements")
