"""Subprograms as operators in the graph that they come from: several levels of functions, and one launch on a GPU."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod
from types import MappingProxyType
from typing import final

import torch
from sympy import Expr, S
from sympy.core.basic import Basic
from torch.fx import Graph, Node

import redalg.runtime.together.operator  # noqa: F401 - it registers the operator that graphs call
from redalg.expression import Element, Reduce, Tensor
from redalg.expression.contents import elements_of, of_kind
from redalg.fuse import fuse_outputs
from redalg.fused import Fused
from redalg.graphs.fusion_plan import Group, group_of
from redalg.graphs.lay import Laid
from redalg.graphs.program import TensorProgram
from redalg.graphs.subprograms import Subprogram, subprograms_of
from redalg.graphs.transformations import ALL, Transformations
from redalg.graphs.verdicts import Numbered, Outputs, Structure, Verdicts, numbered_outputs
from redalg.graphs.vertices import Pattern, Vertices
from redalg.runtime.bind.functions import text_of
from redalg.runtime.together.lower import MOST_TEXTS
from redalg.runtime.together.steps import FunctionStep, Shape, Steps
from redalg.strategies.device import DeviceSpec
from redalg.torch.sizes import Hints, WriteSize, is_writable
from redalg.torch.stitch import add_call, view_as_read

MOST_TENSORS = 200
"""Tensors that a launch takes and returns."""


@final
@dataclass(frozen=True)
class SubprogramCall:
    """The call of a subprogram.

    Attributes:
        group: its vertices, tensors and gain.
        text: of its steps, as `redalg::together` takes it.
        reads: the tensors that it is given, in order.
        writes: those that it returns.
        sizes: those that vary.
    """

    group: Group
    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    sizes: tuple[Expr, ...] = ()

    def shape_of(self, name: str, shape: Sequence[Expr]) -> Sequence[Expr]:
        """The shape in which a tensor of a shape is given: its own."""
        return shape

    def put(self, graph: Graph, nodes: dict[str, Node], size: WriteSize) -> None:
        """Put the operator into a graph, in which `size` writes sizes.

        `nodes` has the node of every tensor, and then the results'.
        """
        lengths = [[*map(size, self.sizes)]] if self.sizes else []
        with graph.inserting_before(graph.output_node()):
            tensors = [view_as_read(graph, nodes[name], None, ()) for name in self.reads]
            made = add_call(graph, torch.ops.redalg.together.default, self.text, tensors, *lengths)
            values = {name: add_call(graph, operator.getitem, made, number) for number, name in enumerate(self.writes)}
        for name, value in values.items():
            nodes[name].replace_all_uses_with(value)
            nodes[name] = value


@final
class VaryingSizes:
    """The sizes of a subprogram that vary, named by their order, as parts bring them."""

    def __init__(self) -> None:
        self.names: dict[Expr, str] = {}

    def shape(self, sizes: Iterable[Expr]) -> Shape:
        """Sizes as numbers, and as the names of those that vary."""
        return tuple(int(size) if size.is_Integer else self.names.setdefault(size, f"s{len(self.names)}")
                     for size in sizes)  # fmt: skip


def subprogram_calls(
    program: TensorProgram, device: DeviceSpec, transformations: Transformations = ALL,
    hints: Hints = MappingProxyType({}), groups: Callable[[], Collection[Pattern]] = tuple,
) -> tuple[Vertices, list[SubprogramCall]]:  # fmt: skip
    """The vertices of a program, and the calls of its subprograms; arguments as of `subprograms_of`."""
    verdicts, found = subprograms_of(program, device, transformations, hints, groups)
    calls = (subprogram_call(verdicts, each) for each in found)
    known = [call for call in calls if call is not None]
    return verdicts.vertices, [call for call in known if all(is_writable(size, hints) for size in call.sizes)]


def subprogram_call(verdicts: Verdicts, subprogram: Subprogram) -> SubprogramCall | None:
    """The call of a subprogram; None if too many of its parts are unlike, or if it has too many tensors.

    Tensors are named by their order: subprograms that are alike have one text. If sizes vary, parts have a text each.
    """
    vertices, types = verdicts.vertices, verdicts.vertices.analysis.types
    whole = group_of(vertices, Pattern(subprogram.members), subprogram.gain_us)
    is_long = len(subprogram.parts) > MOST_TEXTS
    apart, alike, sizes = is_long and not subprogram.in_turn, dict[Structure, FunctionStep](), VaryingSizes()
    steps = tuple(step_of_part(verdicts, part, alike, sizes, apart=apart) for part in subprogram.parts)
    if is_long and sizes.names:
        return None
    made = {name for step in steps for name in step.writes}
    reads = tuple(dict.fromkeys(name for step in steps for name in step.reads if name not in made))
    names = {name: f"x{number}" for number, name in enumerate(reads)}
    names |= {
        name: f"y{number}" for number, name in enumerate(dict.fromkeys(one for step in steps for one in step.writes))
    }
    outputs = tuple((names[name], sizes.shape(types[name].shape), types[name].dtype) for name in whole.writes)
    texts = len(steps) if subprogram.in_turn else len({step.kind for step in steps})
    if texts > MOST_TEXTS or len(reads) + len(outputs) > MOST_TENSORS:
        return None
    by_order = (replace(step, reads=tuple(map(names.__getitem__, step.reads)),
                        writes=tuple(map(names.__getitem__, step.writes))) for step in steps)  # fmt: skip
    given, of_call = tuple(names[name] for name in reads), tuple(sizes.names.values())
    text = Steps(given, tuple(by_order), outputs, subprogram.in_turn, of_call).text
    return SubprogramCall(whole, text, reads, whole.writes, tuple(sizes.names))


def step_of_part(
    verdicts: Verdicts, part: Group, alike: dict[Structure, FunctionStep], sizes: VaryingSizes, *, apart: bool
) -> FunctionStep:  # fmt: skip
    """A part of a subprogram as a step; `alike` keeps those of other structures, by numbers for tensors."""
    structure, numbers = verdicts.structure_and_numbers(Pattern(part.members))
    if structure not in alike:
        alike[structure] = step_by_numbers(verdicts.lay(Pattern(part.members)), sizes, apart=apart)
    step, names = alike[structure], {number: name for name, number in numbers.items()}
    reads, writes = (tuple(names[number] for number in each) for each in (step.reads, step.writes))
    return replace(step, reads=reads, writes=writes)


def step_by_numbers(numbered: Numbered, varying: VaryingSizes, *, apart: bool) -> FunctionStep:
    """A part as a step on numbers for tensors; `apart`: what it reads at numbers of leading dimensions, as tensors.

    Parts that read the rows of one tensor are alike then, each of its own row.
    """
    laid, definition = numbered.laid, numbered_outputs(numbered)
    shapes = {name: varying.shape(laid.views.get(name, each.shape)) for name, each in numbered.types.items()}
    apart = apart and not varying.names
    definition = at_only_places(definition, laid) if apart else definition
    rows = rows_read(definition, shapes) if apart else {}
    definition = {name: (at_rows_read(term, rows), axes) for name, (term, axes) in definition.items()}
    function: Fused = fuse_outputs(definition, None, ())
    axes = {axis.name for axis in function.cascade.axes()}
    names = tuple(dict.fromkeys(element.name for term, _ in definition.values() for element in elements_by_text(term)))
    sizes = {axis.name: size for output in laid.outputs for axis, size in output.sizes.items() if axis.name in axes}
    known = {row.name: row for row in rows.values()}
    read = [known.get(name) or Row(name, name, 0, shapes[name]) for name in names]
    lengths = tuple(zip(sizes, varying.shape(sizes.values()), strict=True))
    return FunctionStep(text_of(function.number), names, tuple(row.tensor for row in read),
                        tuple(row.shape for row in read), tuple(row.offset for row in read), lengths,
                        tuple(output.name for output in laid.outputs))  # fmt: skip


@final
@dataclass(frozen=True)
class Row:
    """A part of a tensor, at numbers of its leading dimensions: its name, the tensor, the first element, its shape."""

    name: str
    tensor: str
    offset: int
    shape: Shape


Rows = dict[tuple[str, tuple[Expr, ...]], Row]
"""A tensor, and the numbers of its leading dimensions -> the part of it."""


def at_only_places(definition: Outputs, laid: Laid) -> Outputs:
    """A definition in which tensors are read at 0 along axes of its outputs that have one place."""
    bound = {axis for term, _ in definition.values() for one in of_kind(Reduce, term) for axis in one.bound}
    sizes = {axis: output.sizes[axis] for output in laid.outputs for axis in output.axes}
    only: dict[Basic, Basic] = {axis: S.Zero for axis, size in sizes.items() if size == 1 and axis not in bound}

    def rewrite(term: Basic) -> Basic:
        return term.xreplace({element: element.xreplace(only) for element in elements_of(term)})

    return {name: (rewrite(term), axes) for name, (term, axes) in definition.items()}


def rows_read(definition: Outputs, shapes: Mapping[str, Shape]) -> Rows:
    """The parts of tensors that a definition reads at numbers of leading dimensions, named by their order."""
    found = {
        (element.name, leading_numbers(element))
        for term, _ in definition.values()
        for element in elements_by_text(term)
    }
    rows, counts = Rows(), Counter[str]()
    for name, leading in sorted(found, key=lambda each: (each[0], [*map(int, each[1])])):
        if leading:
            shape = shapes[name]
            strides = (prod(shape[place + 1 :]) for place in range(len(leading)))
            offset = sum(int(number) * stride for number, stride in zip(leading, strides, strict=True))
            rows[name, leading] = Row(f"{name}_{counts[name]}", name, offset, shape[len(leading) :])
            counts[name] += 1
    return rows


def at_rows_read(term: Basic, rows: Rows) -> Basic:
    """A term that reads parts of tensors as tensors of their own."""
    known = {element: rows.get((element.name, leading_numbers(element))) for element in elements_of(term)}
    return term.xreplace({element: Tensor(row.name)[element.indices[len(leading_numbers(element)) :]]
                          for element, row in known.items() if row is not None})  # fmt: skip


def leading_numbers(element: Element) -> tuple[Expr, ...]:
    """The numbers among an element's first indices; of the last one there is none."""
    return tuple(takewhile(lambda index: index.is_Integer, element.indices[:-1]))


def elements_by_text(term: Basic) -> list[Element]:
    """The elements of a term, in order of their text."""
    return sorted(elements_of(term), key=str)
