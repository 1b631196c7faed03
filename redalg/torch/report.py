"""Reports of compiled graphs: the groups that were found, what became of each, and what was left to PyTorch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import torch
from torch.fx import Graph, Node

from redalg.errors import PlanError
from redalg.gradient.operators import read_call
from redalg.graphs.analysis import Kind
from redalg.graphs.fusion_plan import Group
from redalg.graphs.program import External, Statement
from redalg.graphs.vertices import Vertices, is_view
from redalg.runtime.bind.functions import function_of_text
from redalg.runtime.lowered import Lowered
from redalg.runtime.together.lower import LoweredSteps, lower_steps
from redalg.runtime.together.steps import is_of_steps, read_steps
from redalg.torch.aten import Imported, is_of_tensors, result_types
from redalg.torch.decisions import Decision
from redalg.torch.drawing import Area, Box, Drawing

PLACE = re.compile(r'File "([^"]+)", line (\d+), in ([\w<>]+)\n\s*(.*)')
MOST_LINES, MOST_LETTERS = 6, 240
"""Lines of the user's source that a report shows of a group, and letters of an expression."""
PENDING = "pending"
"""The state of a graph that runs Inductor's code until it is compiled with its groups."""
FRAMEWORK = f"{Path(torch.__file__).parent}/"
WHOLE_OPERATOR = "scaled_dot_product"
"""Part of the names of PyTorch's operators that compute products, and exponentials between them, as one."""
IS_WHOLE = "one operator already: you called it, or PyTorch made it of your products and what is between them"
OUTSIDE: Mapping[str, str] = {
    Kind.CONTRACTION: "a product that a library multiplies: with weights always, else if no group with it saves time",
    Kind.REDUCTION: "a reduction that no group holds",
}
OF_INDUCTOR = "no group with it saves time: Inductor fuses it with what is beside it"
"""Why no group holds a statement: of products, reductions, and others."""


@final
@dataclass(frozen=True)
class OperatorInputs:
    """The tensors and the sizes that a group's operator is given, in order.

    Attributes:
        dtypes, shapes: of the tensors, as the operator reads them.
        lengths: those that sizes have while the model is compiled.
    """

    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]


@final
@dataclass(frozen=True)
class GroupReport:
    """A group, and what became of it.

    Attributes:
        group: the group.
        lines: of the user's source, from which its statements come.
        call: the text of its operator's call.
        decision: of the gate.
        card: the GPU for which the gain is predicted; of a model on a CPU too.
        inputs: the dtypes, shapes and sizes of what its operator is given; None if data decide a size.
    """

    group: Group
    lines: tuple[str, ...]
    call: str
    decision: Decision
    card: str = ""
    inputs: OperatorInputs | None = None

    @property
    def summary(self) -> str:
        """One line; the prediction stands there as long as nothing is measured."""
        if self.decision.plain_us is not None:
            return self.group.summary
        return f"{self.group}{f' on {self.card}' if self.card else ''}"

    @property
    def whole_expressions(self) -> tuple[str, ...]:
        """The outputs as the engine was given them: `out_0 = …`, an expression for each."""
        texts = [step.function for step in read_steps(self.call).steps] if is_of_steps(self.call) else [
            read_call(self.call).function]  # fmt: skip
        return tuple(f"{name} = {expr}" for text in texts for name, expr in function_of_text(text).written)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The whole expressions, each cut at a length."""
        return tuple(each if len(each) <= MOST_LETTERS else f"{each[:MOST_LETTERS]}…"
                     for each in self.whole_expressions)  # fmt: skip

    def lower(self) -> Lowered | LoweredSteps:
        """The kernel of its operator on the card, at the sizes of the model: its text, and `listing` with the algebra.

        Statements that one launch computes, level after level, have one text (`LoweredSteps`).

        Raises:
            PlanError: the card has no kernel of it at these sizes, or data decide a size.
        """
        given = self.inputs
        if given is None:
            raise PlanError("lower: a kernel is planned at sizes, and data decide one of those that this group has. "
                            "Take a group whose sizes are known when the model is compiled.")  # fmt: skip
        if is_of_steps(self.call):
            steps = read_steps(self.call)
            return lower_steps(steps, self.card, dict(zip(steps.inputs, given.dtypes, strict=True)), given.lengths)
        told = read_call(self.call)
        dtypes = dict(zip(told.names, given.dtypes, strict=True))
        sizes = dict(zip(told.sizes, given.lengths, strict=True))
        shapes = dict(zip(told.names, given.shapes, strict=True))
        function = told.forward({name: torch.empty(0, dtype=getattr(torch, one)) for name, one in dtypes.items()})
        lowered: Lowered = function.lower(self.card, sizes, dtypes, shapes=shapes, empty=told.empty,
                                          precision=told.precision)  # fmt: skip
        return lowered

    def __str__(self) -> str:
        lines = [
            *self.lines[:MOST_LINES],
            *([f"… {len(self.lines) - MOST_LINES} more"] * (len(self.lines) > MOST_LINES)),
        ]
        return "\n".join((self.summary, *(f"    {line}" for line in (*lines, *self.expressions, self.decision))))


@final
@dataclass(frozen=True)
class GraphReport:
    """A compiled graph.

    Attributes:
        statements: their number.
        groups: that exploration found and a function can compute.
        left: operator -> the reason why it has no expression, and how often it is called.
        alone: reduction that is in no group -> the reason.
        failure: the reason why the graph stayed as it was; empty if it did not.
        seconds: that exploration, trials and measurements took.
        explored_s: those of exploration: from the program to the calls of its groups.
        drawing: its statements and groups, for a picture.
        swap: of a graph that is compiled in the background: `PENDING`, or the outcome.
    """

    statements: int
    groups: tuple[GroupReport, ...]
    left: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    failure: str = ""
    seconds: float = field(default=0.0, compare=False)
    explored_s: float = field(default=0.0, compare=False)
    drawing: Drawing = field(default=Drawing(), compare=False, repr=False)
    alone: Mapping[str, str] = field(default_factory=dict)
    swap: str = field(default="", compare=False)

    @property
    def summary(self) -> str:
        """One line."""
        if self.failure:
            return f"a graph left to Inductor: {self.failure}"
        if self.swap and not self.statements:
            return f"a graph whose groups are looked for in the background: {self.swap}"
        count, swap = sum(one.decision.is_put for one in self.groups), f", {self.swap}" if self.swap else ""
        return f"a graph of {self.statements} statements: {count} of {len(self.groups)} groups put{swap}"

    @property
    def outside(self) -> dict[str, tuple[str, int]]:
        """Operator with an expression that no group holds -> the reason, and how often it is called.

        Views and masks belong to whoever reads them, and are not here; reductions with a reason stand in `alone`.
        """
        known = {name for area in self.drawing.areas for name in area.members} | {*self.alone}
        free = [each for each in self.drawing.boxes if not each.reason and known.isdisjoint(each.names)]
        counts = Counter(each.operator for each in free)
        return {each.operator: (reason_outside(each), counts[each.operator]) for each in free}

    @property
    def remarks(self) -> tuple[str, ...]:
        """A line for all that is in no group: operators without an expression, reductions, and other operators."""
        left = (f"left to PyTorch: {name} ({count}): {reason}" for name, (reason, count) in self.left.items())
        alone = (f"in no group: {name}: {reason}" for name, reason in self.alone.items())
        alike = dict[str, list[str]]()
        for name, (reason, count) in self.outside.items():
            alike.setdefault(reason, []).append(f"{name} ({count})")
        outside = (f"in no group: {', '.join(names)}: {reason}" for reason, names in alike.items())
        return (*left, *alone, *outside)

    def __str__(self) -> str:
        groups = (f"{number}  {one}" for number, one in enumerate(self.groups))
        return "\n".join((self.summary, *groups, *self.remarks))


def reason_outside(box: Box) -> str:
    """The reason why no group holds a statement that has an expression."""
    return IS_WHOLE if WHOLE_OPERATOR in box.operator else OUTSIDE.get(box.kind, OF_INDUCTOR)


def graph_drawing(graph: Graph, vertices: Vertices) -> Drawing:
    """A graph that is not stitched yet, and its vertices, as a drawing: views and masks belong to who reads."""
    makers = {name: node for node in graph.nodes if node.op == "call_function" and is_of_tensors(node)
              for name in result_types(node)}  # fmt: skip
    statements = vertices.analysis.program.statements
    shown = [each for each in statements if not all(is_view(vertices.analysis, name) for name in each.results)]
    boxes = tuple(box_of(statement, vertices, makers) for statement in shown)
    return Drawing(boxes, (), len(statements) - len(shown))


def with_areas(drawing: Drawing, groups: Sequence[GroupReport]) -> Drawing:
    """A drawing with an area for each group."""
    areas = (Area(each.group.members, each.decision.is_put, f"{each.decision}\n{each.summary}") for each in groups)
    return replace(drawing, areas=tuple(areas))


def box_of(statement: Statement, vertices: Vertices, makers: Mapping[str, Node]) -> Box:
    """A statement as a box; `makers` has the node that makes each tensor."""
    names, types = tuple(statement.results), [*statement.results.values()]
    operator, reason = statement.origin.partition(":")[0], ""
    if isinstance(statement, External):
        operator, reason = statement.operator, statement.reason
    lines = lines_of(makers, names[:1])
    return Box(names, operator, str(vertices.analysis.kinds[names[0]]), str(types[0]), vertices.sources[names[0]],
               "".join(lines), reason, not vertices.outputs.isdisjoint(names))  # fmt: skip


def lines_of(nodes: Mapping[str, Node], names: Iterable[str]) -> tuple[str, ...]:
    """The lines of source from which tensors come, the user's and not PyTorch's: file, line, function and text."""
    found = dict[str, None]()
    for name in names:
        places = PLACE.findall(trace_of(nodes[name]))
        own = [place for place in places if not place[0].startswith(FRAMEWORK)] or places
        found |= dict.fromkeys(f"{file}:{line} {function}: {text}" for file, line, function, text in own[-1:])
    return tuple(found)


def trace_of(node: Node) -> str:
    """The record of a node's lines; of a node that a pass of Inductor's made, that of the nearest that reads it."""
    seen, waiting = {node}, [node]
    for each in waiting:
        if trace := each.meta.get("stack_trace"):
            return str(trace)
        waiting += [user for user in each.users if user not in seen]
        seen |= {*each.users}
    return ""


def reasons_of(imported: Imported) -> dict[str, tuple[str, int]]:
    """Operator -> why it has no expression, and how often it is called."""
    externals = list(imported.program.externals())
    counts = Counter(one.operator for one in externals)
    return {one.operator: (one.reason, counts[one.operator]) for one in externals}
