"""The part of a graph about a group that a compiler would fuse: on its own, as it is and with the group's operator.

An operator is a wall: what is computed before and after it is no longer fused with what it replaces. A group is
therefore judged with the memory-intensive statements around it, which are read or made by it through no product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, final

import torch
from torch.fx import Graph, GraphModule, Node

from redalg.graphs.vertices import Pattern, Vertices
from redalg.torch.aten import is_tensor
from redalg.torch.stitch import GroupCall, stitch

MOST_AROUND = 12
"""Vertices around a group that are judged with it, at most."""


@final
@dataclass(frozen=True)
class Region:
    """A part of a graph, as it is and with an operator in it; both take the same tensors, and return the same.

    Attributes:
        plain, fused: the two.
        inputs: the fake tensors that they take.
    """

    plain: GraphModule
    fused: GraphModule
    inputs: tuple[torch.Tensor, ...]

    @property
    def text(self) -> str:
        """The part with the operator, by its calls alone: the same for parts that are alike."""
        numbers = {node: f"v{number}" for number, node in enumerate(self.fused.graph.nodes)}
        lines = list[str]()
        for node in self.fused.graph.nodes:
            args = torch.fx.node.map_arg((node.args, node.kwargs), lambda read: numbers[read])
            lines.append(f"{numbers[node]} = {node.op} {node.target if node.op == 'call_function' else ''} {args}")
        return "\n".join((*lines, *map(layout, self.inputs)))


def region_of(nodes: Mapping[str, Node], vertices: Vertices, call: GroupCall, taken: Collection[str]) -> Region:
    """The region of a group; `nodes` has the node of every tensor, `taken` are the vertices of other groups."""
    pattern = with_neighbours(vertices, Pattern(call.group.members), taken)
    graph = nodes[call.group.members[0]].graph
    plain = cut_out(graph, {nodes[name] for name in vertices.with_views(pattern)})
    fused = deepcopy(plain)
    stitch(fused.graph, [call])
    fused.recompile()
    inputs = [node.meta["val"] for node in plain.graph.nodes if node.op == "placeholder"]
    return Region(plain, fused, tuple(inputs))


def with_neighbours(vertices: Vertices, pattern: Pattern, taken: Collection[str]) -> Pattern:
    """A pattern with memory-intensive vertices around it, as long as no path leaves it and comes back."""
    most, grown = len(pattern) + MOST_AROUND, True
    while grown:
        grown = False
        for name in neighbours(vertices, pattern):
            wider = pattern | {name}
            alone = name not in taken and vertices.analysis.kinds[name].is_memory_intensive
            if len(pattern) < most and alone and vertices.is_convex(wider):
                pattern, grown = wider, True
    return pattern


def neighbours(vertices: Vertices, pattern: Pattern) -> list[str]:
    """The vertices that a pattern reads, or that read it."""
    members, known = vertices.in_order(pattern), {*vertices.names}
    found = dict.fromkeys(one for name in members for one in (*vertices.sources[name], *vertices.readers[name]))
    return [name for name in found if name in known and name not in pattern]


def cut_out(graph: Graph, members: Collection[Node]) -> GraphModule:
    """Nodes of a graph as a graph of their own, which takes what they read and returns what others read of them."""
    inside = {*members, *(source for node in members for source in node.all_input_nodes if not is_tensor(source))}
    ordered, part, copies = [node for node in graph.nodes if node in inside], Graph(), dict[Node, Node]()
    for source in dict.fromkeys(source for node in ordered for source in node.all_input_nodes):
        if source not in inside:
            copies[source] = part.placeholder(source.name)
            copies[source].meta["val"] = source.meta["val"]
    for node in ordered:
        copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(tuple(copies[node] for node in ordered if is_tensor(node) and {*node.users} - inside))
    return GraphModule(torch.nn.Module(), part)


def layout(tensor: torch.Tensor) -> str:
    """The shape, strides, dtype and device of a tensor."""
    return f"{tensor.dtype} {[*tensor.shape]} {[*tensor.stride()]} {tensor.device.type}"


def drawn_inputs(inputs: Iterable[torch.Tensor]) -> Sequence[Any]:
    """Tensors like fake ones: normal numbers; integers are 0, which is a place of any dimension; truths hold."""
    drawn = list[torch.Tensor]()
    for fake in inputs:
        tensor = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        drawn.append(tensor.normal_() if fake.dtype.is_floating_point else tensor.fill_(fake.dtype is torch.bool))
    return drawn
