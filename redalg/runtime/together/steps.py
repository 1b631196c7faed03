"""Functions that run one after another, as text: the tensors that each reads, and what it makes.

{"format": "redalg steps, 1",
 "inputs": [name, …],                                       in the order in which they are given
 "steps": [{"function": {…}, "names": …, "reads": …, "views": …, "offsets": …, "sizes": …, "writes": …}, …],
 "outputs": [[name, shape, dtype], …]}                      in the order in which they are returned

Nothing in the text is evaluated; a process that has only the text derives the functions of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, final

from redalg.errors import ExpressionError
from redalg.expression.portable import compact_json, parse_json
from redalg.runtime.bind.functions import MOST_TEXTS, function_of_text

FORMAT = "redalg steps, 1"
Shape = tuple[int, ...]


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
    sizes: tuple[tuple[str, int], ...]
    writes: tuple[str, ...]

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
    """

    inputs: tuple[str, ...]
    steps: tuple[FunctionStep, ...]
    outputs: tuple[tuple[str, Shape, str], ...]

    @property
    def text(self) -> str:
        """The functions as JSON, each definition's text as it is."""
        steps = list[str]()
        for step in self.steps:
            others = compact_json({name: each for name, each in asdict(step).items() if name != "function"})
            steps.append(f'{{"function":{step.function},{others[1:]}')
        head = compact_json({"format": FORMAT, "inputs": self.inputs, "outputs": self.outputs})
        return f'{head[:-1]},"steps":[{",".join(steps)}]}}'


@lru_cache(MOST_TEXTS)
def read_steps(text: str) -> Steps:
    """The functions of a text.

    Raises:
        ExpressionError: it is none of `Steps.text`.
    """
    found = parse_json(text, "redalg::together")
    if not isinstance(found, dict) or [*found] != ["format", "inputs", "outputs", "steps"] or found["format"] != FORMAT:
        told = ", ".join(found) if isinstance(found, dict) else repr(found)
        raise ExpressionError(f"redalg::together: the text has {told}, and this version of redalg reads {FORMAT!r}. "
                              "Compile the model anew, with this version.")  # fmt: skip
    outputs = tuple((str(name), tuple(map(int, shape)), str(dtype)) for name, shape, dtype in found["outputs"])
    return Steps(tuple(map(str, found["inputs"])), tuple(map(step_of, found["steps"])), outputs)


def is_of_steps(text: str) -> bool:
    """Tell if a text is one of `Steps.text`."""
    return text.startswith(f'{{"format":{compact_json(FORMAT)},"inputs":')


def step_of(fields: Mapping[str, Any]) -> FunctionStep:
    """A function of its fields in the text."""
    names, reads, writes = (tuple(map(str, fields[name])) for name in ("names", "reads", "writes"))
    views = tuple(tuple(map(int, shape)) for shape in fields["views"])
    offsets, sizes = tuple(map(int, fields["offsets"])), tuple((str(name), int(size)) for name, size in fields["sizes"])
    return FunctionStep(compact_json(fields["function"]), names, reads, views, offsets, sizes, writes)
