"""Functions that run one after another, as text: the tensors that each reads, and what it makes.

{"format": "redalg steps, 1",
 "inputs": [name, …],                                       in the order in which they are given
 "outputs": [[name, shape, dtype], …],                      in the order in which they are returned
 "in_turn": true,                                           if each waits for the one before; else left out
 "sizes": [name, …],                                        if sizes vary: their names, in the order of a call's lengths
 "kinds": [{"function": {…}, "names": …, "views": …, "sizes": …}, …],
 "steps": [[number of a kind, reads, offsets, writes], …]}

A size is a number, or the name of one that varies. In the text quotes are single ones (`as_literal`). Nothing in it is
evaluated; a process that has only the text derives the functions of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

from redalg.errors import ExpressionError
from redalg.expression.portable import as_literal, compact_json, of_literal, parse_json
from redalg.runtime.bind.functions import MOST_TEXTS, function_of_text

FORMAT = "redalg steps, 1"
Size = int | str
"""A number, or the name of a size that varies."""
Shape = tuple[Any, ...]
"""Sizes: those of a call are numbers."""
Kind = tuple[str, tuple[str, ...], tuple[Shape, ...], tuple[tuple[str, Any], ...]]
"""The text of a function, the names of its tensors, the shapes in which it reads them, the lengths of its axes."""


@final
@dataclass(frozen=True)
class FunctionStep:
    """One function of several.

    Attributes:
        function: the text of its definition.
        names: its tensors, as it calls them.
        reads: the tensors that it is given for these.
        views: the shapes in which it reads them.
        offsets: the places of the first elements that it reads of them.
        sizes: the lengths of its axes.
        writes: the names of what it makes, in the order of its outputs.
    """

    function: str
    names: tuple[str, ...]
    reads: tuple[str, ...]
    views: tuple[Shape, ...]
    offsets: tuple[int, ...]
    sizes: tuple[tuple[str, Any], ...]
    writes: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        """The fields that steps which are alike share."""
        return self.function, self.names, self.views, self.sizes

    @property
    def varying_axes(self) -> dict[str, str]:
        """Its axes whose lengths vary, and the names of these sizes."""
        return {axis: size for axis, size in self.sizes if isinstance(size, str)}

    def at(self, lengths: Mapping[str, int]) -> FunctionStep:
        """The step at lengths of the sizes that vary."""
        sizes = tuple((axis, at_lengths((size,), lengths)[0]) for axis, size in self.sizes)
        return replace(self, views=tuple(at_lengths(shape, lengths) for shape in self.views), sizes=sizes)

    def function_of_step(self) -> Any:
        """The function."""
        return function_of_text(self.function)


@final
@dataclass(frozen=True)
class Steps:
    """Functions in an order in which they can run.

    Attributes:
        inputs: the tensors that are given, in order.
        steps: the functions.
        outputs: name, shape and dtype of what is returned, in order.
        in_turn: true if each begins after the one before it, also if it does not read what that one makes.
        sizes: the names of those that vary, in the order in which a call gives their lengths.
    """

    inputs: tuple[str, ...]
    steps: tuple[FunctionStep, ...]
    outputs: tuple[tuple[str, Shape, str], ...]
    in_turn: bool = False
    sizes: tuple[str, ...] = ()

    def at(self, lengths: Sequence[int]) -> Steps:
        """The steps at lengths of the sizes that vary."""
        if not self.sizes:
            return self
        known = dict(zip(self.sizes, lengths, strict=True))
        outputs = tuple((name, at_lengths(shape, known), dtype) for name, shape, dtype in self.outputs)
        return Steps(self.inputs, tuple(step.at(known) for step in self.steps), outputs, self.in_turn)

    @property
    def text(self) -> str:
        """The functions as JSON, each definition's text once, written as a literal."""
        kinds = dict[Kind, int]()
        rows = [(kinds.setdefault(step.kind, len(kinds)), step.reads, step.offsets, step.writes) for step in self.steps]
        texts = list[str]()
        for function, names, views, sizes in kinds:
            others = compact_json({"names": names, "views": views, "sizes": sizes})
            texts.append(f'{{"function":{function},{others[1:]}')
        rest = ({"in_turn": True} if self.in_turn else {}) | ({"sizes": self.sizes} if self.sizes else {})
        head = compact_json({"format": FORMAT, "inputs": self.inputs, "outputs": self.outputs, **rest})
        return as_literal(f'{head[:-1]},"kinds":[{",".join(texts)}],"steps":{compact_json(rows)}}}')


@lru_cache(MOST_TEXTS)
def read_steps(text: str) -> Steps:
    """The functions of a text.

    Raises:
        ExpressionError: it is none of `Steps.text`.
    """
    found = parse_json(of_literal(text), "redalg::together")
    in_turn = isinstance(found, dict) and found.pop("in_turn", False)
    sizes = found.pop("sizes", ()) if isinstance(found, dict) else ()
    fields = ["format", "inputs", "outputs", "kinds", "steps"]
    if not isinstance(found, dict) or [*found] != fields or found["format"] != FORMAT:
        told = ", ".join(found) if isinstance(found, dict) else repr(found)
        raise ExpressionError(f"redalg::together: the text has {told}, and this version of redalg reads {FORMAT!r}. "
                              "Compile the model anew, with this version.")  # fmt: skip
    outputs = tuple((str(name), tuple(map(read_size, shape)), str(dtype)) for name, shape, dtype in found["outputs"])
    kinds = [*map(read_kind, found["kinds"])]
    steps = tuple(read_step(kinds[number], *row) for number, *row in found["steps"])
    return Steps(tuple(map(str, found["inputs"])), steps, outputs, bool(in_turn), tuple(map(str, sizes)))


def is_of_steps(text: str) -> bool:
    """Tell if a text is one of `Steps.text`."""
    return text.startswith(as_literal(f'{{"format":{compact_json(FORMAT)},"inputs":'))


def read_size(size: Any) -> Size:
    """A size of the text."""
    return size if isinstance(size, str) else int(size)


def at_lengths(shape: Sequence[Size], lengths: Mapping[str, int]) -> Shape:
    """A shape at lengths of the sizes that vary."""
    return tuple(lengths[size] if isinstance(size, str) else size for size in shape)


def read_kind(fields: Mapping[str, Any]) -> Kind:
    """A kind of steps, of its fields in the text."""
    views = tuple(tuple(map(read_size, shape)) for shape in fields["views"])
    sizes = tuple((str(name), read_size(size)) for name, size in fields["sizes"])
    return compact_json(fields["function"]), tuple(map(str, fields["names"])), views, sizes


def read_step(kind: Kind, reads: list[str], offsets: list[int], writes: list[str]) -> FunctionStep:
    """A step of a kind."""
    function, names, views, sizes = kind
    return FunctionStep(function, names, tuple(map(str, reads)), views, tuple(map(int, offsets)), sizes,
                        tuple(map(str, writes)))  # fmt: skip
