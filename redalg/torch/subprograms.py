"""Subprograms as operators in the graph that they come from: several levels of functions, and one launch on a GPU."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch.fx import Graph, Node

import redalg.runtime.together.operator  # noqa: F401 - it registers the operator that graphs call
from redalg.fuse import fuse
from redalg.fused import Fused
from redalg.graphs.fusion_plan import Group, group_of
from redalg.graphs.program import TensorProgram
from redalg.graphs.subprograms import Subprogram, subprograms_of
from redalg.graphs.verdicts import Verdicts
from redalg.graphs.vertices import Pattern, Vertices
from redalg.runtime.bind.functions import text_of
from redalg.runtime.together.steps import FunctionStep, Shape, Steps
from redalg.strategies.device import DeviceSpec
from redalg.torch.sizes import WriteSize
from redalg.torch.stitch import add_call, view_as_read


@final
@dataclass(frozen=True)
class SubprogramCall:
    """The call of a subprogram.

    Attributes:
        group: its vertices, tensors and gain.
        text: of its steps, as `redalg::together` takes it.
        reads: the tensors that it is given, in order.
        writes: those that it returns.
    """

    group: Group
    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def put(self, graph: Graph, nodes: dict[str, Node], _: WriteSize) -> None:
        """Put the operator into a graph; `nodes` has the node of every tensor, and then the results'."""
        with graph.inserting_before(graph.output_node()):
            tensors = [view_as_read(graph, nodes[name], None) for name in self.reads]
            made = add_call(graph, torch.ops.redalg.together.default, self.text, tensors)
            values = {name: add_call(graph, operator.getitem, made, number) for number, name in enumerate(self.writes)}
        for name, value in values.items():
            nodes[name].replace_all_uses_with(value)
            nodes[name] = value


def subprogram_calls(program: TensorProgram, device: DeviceSpec) -> tuple[Vertices, list[SubprogramCall]]:
    """The vertices of a program, and the calls of its subprograms."""
    vertices, found = subprograms_of(program, device)
    verdicts = Verdicts(vertices)
    return vertices, [subprogram_call(verdicts, each) for each in found]


def subprogram_call(verdicts: Verdicts, subprogram: Subprogram) -> SubprogramCall:
    """The call of a subprogram."""
    vertices, types = verdicts.vertices, verdicts.vertices.analysis.types
    whole = group_of(vertices, Pattern(subprogram.members), subprogram.gain_us)
    steps = tuple(step_of_part(verdicts, part) for part in subprogram.parts)
    made = {name for step in steps for name in step.writes}
    reads = tuple(dict.fromkeys(name for step in steps for name in step.reads if name not in made))
    outputs = tuple((name, lengths(types[name].shape), types[name].dtype) for name in whole.writes)
    return SubprogramCall(whole, Steps(reads, steps, outputs).text, reads, whole.writes)


def step_of_part(verdicts: Verdicts, part: Group) -> FunctionStep:
    """A part of a subprogram as a step."""
    laid, types = verdicts.lay(Pattern(part.members)), verdicts.vertices.analysis.types
    function: Fused = fuse(verdicts.definition(part.names, laid))
    names, axes = verdicts.numbers(part.names), {axis.name for axis in function.cascade.axes()}
    reads = tuple(dict.fromkeys(name for output in laid.outputs for name in output.reads))
    sizes = {
        axis.name: int(size) for output in laid.outputs for axis, size in output.sizes.items() if axis.name in axes
    }
    views = tuple(lengths(laid.views.get(name, types[name].shape)) for name in reads)
    return FunctionStep(text_of(function.number), tuple(names[name] for name in reads), reads, views,
                        tuple(sizes.items()), tuple(output.name for output in laid.outputs))  # fmt: skip


def lengths(shape: Sequence[object]) -> Shape:
    """A shape of known sizes."""
    return tuple(int(str(size)) for size in shape)
