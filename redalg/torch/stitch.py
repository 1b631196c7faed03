"""The groups of a plan as operators in the graph that they come from; everything else stays as it is.

    the statements of a group   →   redalg::run of its function, on tensors that are viewed as it reads them
    what leaves the group       →   the operator's result, in the shape and dtype that it had

The operator bears the text of the function: another process that loads the graph needs nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from redalg.expression.contents import elements_of
from redalg.fuse import fuse
from redalg.fused import Fused
from redalg.gradient.operators import Call
from redalg.graphs.fusion_plan import FusionPlan, Group
from redalg.graphs.lay import Laid
from redalg.graphs.program import Shape, TensorType
from redalg.graphs.verdicts import Verdicts
from redalg.graphs.vertices import Pattern
from redalg.runtime.bind.functions import text_of
from redalg.torch.aten import is_tensor, tensor_name

ATEN = torch.ops.aten


def stitch(graph: Graph, verdicts: Verdicts, plan: FusionPlan) -> int:
    """Put a plan's groups into the graph of its program, in place; the number of those that are put.

    A group of sizes that vary is left as it is, and so is one that reads a part of a dimension.
    """
    nodes = {tensor_name(node): node for node in graph.nodes if is_tensor(node)}
    count = 0
    for group in plan.groups:
        laid = verdicts.lay(Pattern(group.members))
        if is_callable(laid, verdicts.vertices.analysis.types):
            put_group(graph, verdicts, (group, laid), nodes)
            count += 1
    sort_nodes(graph)
    graph.eliminate_dead_code()
    graph.lint()
    return count


def sort_nodes(graph: Graph) -> None:
    """Move nodes ahead of those that read them, in place; all others keep their order."""
    output, order = graph.output_node(), dict[Node, None]()
    for node in graph.nodes:
        waiting = [node]
        while waiting:
            sources = [source for source in waiting[-1].all_input_nodes if source not in order]
            if sources:
                waiting += sources
            else:
                order[waiting.pop()] = None
    for node in order:
        if node is not output:
            output.prepend(node)


def is_callable(laid: Laid, types: Mapping[str, TensorType]) -> bool:
    """Tell if a function of a group's outputs takes its tensors: sizes are numbers, and axes run along dimensions."""
    for output in laid.outputs:
        if not all(size.is_Integer for size in output.sizes.values()):
            return False
        for element in elements_of(output.term):
            shape = laid.views.get(element.name, types[element.name].shape)
            if any(output.sizes.get(index, size) != size for index, size in zip(element.indices, shape, strict=True)):
                return False
    return True


def put_group(graph: Graph, verdicts: Verdicts, found: tuple[Group, Laid], nodes: dict[str, Node]) -> None:
    """Put one group into a graph; `nodes` has the node of every tensor, and then those of the group's results."""
    group, laid = found
    function: Fused = fuse(verdicts.definition(group.names, laid))
    names = verdicts.numbers(group.names)
    written = [output for output in laid.outputs if output.reads]
    reads = list(dict.fromkeys(name for output in written for name in output.reads))
    sizes = {axis.name: int(size) for output in written for axis, size in output.sizes.items()}
    known = {axis.name for axis in function.cascade.axes()}
    sizes = {name: size for name, size in sizes.items() if name in known}
    call = Call(text_of(function.number), tuple(names[name] for name in reads), (), tuple(sizes), "nan", "ieee", "",
                training=False)  # fmt: skip
    with graph.inserting_before(graph.output_node()):
        tensors = [view_as_read(graph, nodes[name], laid.views.get(name)) for name in reads]
        made = add_call(graph, torch.ops.redalg.run.default, call.text, tensors, [], list(sizes.values()))
        for number, output in enumerate(written):
            old = nodes[output.name]
            value = add_call(graph, operator.getitem, made, number)
            value = add_call(graph, ATEN.reshape.default, value, list(old.meta["val"].shape))
            value = add_call(graph, ATEN.to.dtype, value, old.meta["val"].dtype)
            old.replace_all_uses_with(value)
            nodes[output.name] = value


def view_as_read(graph: Graph, node: Node, shape: Shape | None) -> Node:
    """A tensor as a group reads it."""
    return node if shape is None else add_call(graph, ATEN.reshape.default, node, [int(size) for size in shape])


def add_call(graph: Graph, target: Callable[..., Any], *args: Any) -> Node:
    """A call in a graph, with the fake value of what it makes."""
    node = graph.call_function(target, args)
    with fake_mode(args):
        node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda read: read.meta["val"]))
    return node


def fake_mode(args: Sequence[Any]) -> Any:
    """The mode of the fake tensors that a call reads."""
    found = list[Node]()
    torch.fx.node.map_arg(tuple(args), found.append)
    values = (value for node in found for value in fake_values(node.meta["val"]))
    return next(value.fake_mode for value in values if isinstance(value, torch._subclasses.FakeTensor))


def fake_values(value: Any) -> list[Any]:
    """A value, or the values of a list."""
    return list(value) if isinstance(value, tuple | list) else [value]
