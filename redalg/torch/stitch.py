"""The groups of a plan as operators in the graph that they come from; everything else stays as it is.

    the statements of a group   →   redalg::run of its function, on tensors that are viewed as it reads them
    what leaves the group       →   the operator's result, in the shape and dtype that it had

The operator bears the text of the function: another process that loads the graph needs nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol, final

import torch
from sympy import Expr
from torch.fx import Graph, Node

import redalg.runtime.together.operator  # noqa: F401 - it registers an operator
from redalg.errors import RedalgError
from redalg.fused import Fused
from redalg.gradient.operators import Call, read_call
from redalg.gradient.recorded import backward_of
from redalg.graphs.fusion_plan import FusionPlan, Group
from redalg.graphs.lay import Laid
from redalg.graphs.parts import Parts
from redalg.graphs.program import Shape
from redalg.graphs.verdicts import Numbered, Structure, Verdicts
from redalg.graphs.vertices import Pattern, Vertices
from redalg.runtime.bind.functions import function_of_text, text_of
from redalg.runtime.call.sizes import axes_of_own_kernels
from redalg.torch.aten import nodes_by_tensor
from redalg.torch.sizes import Hints, SizeNodes, WriteSize, is_writable, length_of, sympy_size

ATEN, OWN = torch.ops.aten, torch.ops.redalg
INDUCTORS = {
    OWN.run.default: (OWN.compute.default, OWN.compute_only.default),
    OWN.compute.default: (OWN.compute.default, OWN.compute_only.default),
    OWN.gradients.default: (OWN.gradients.default, OWN.gradients_only.default),
    OWN.together.default: (OWN.together.default, OWN.together_only.default),
}
"""Operator -> those that Inductor's code calls in its place: for several tensors, and for one."""


class PatternCall(Protocol):
    """The call of an operator in the place of a pattern."""

    @property
    def group(self) -> Group:
        """The pattern's vertices, tensors and gain."""

    @property
    def text(self) -> str:
        """The text that the operator is told."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that it is given, in order."""

    @property
    def sizes(self) -> tuple[Expr, ...]:
        """The sizes that it is given, in order; they may vary."""

    def shape_of(self, name: str, shape: Sequence[Expr]) -> Sequence[Expr]:
        """The shape in which it is given a tensor of a shape."""

    def put(self, graph: Graph, nodes: dict[str, Node], size: WriteSize) -> None:
        """Put the operator into a graph: see `GroupCall.put`."""


@dataclass(frozen=True)
class NumberedCall:
    """The call of a group's function, with numbers in the place of names.

    Attributes:
        text: of the call, as `redalg::run` takes it.
        reads: the tensors that it is given, in order.
        writes: the tensors that it returns, in order.
        views: tensor that it reads as another shape -> that shape.
        sizes: the lengths of its axes, in order; they may vary.
        parts: of the tensors of which it reads the first places alone.
    """

    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    views: Mapping[str, Shape]
    sizes: tuple[Expr, ...]
    parts: Parts

    def of(self, group: Group, numbers: Mapping[str, str]) -> GroupCall:
        """The call of a group, whose tensors have these numbers."""
        names = {number: name for name, number in numbers.items()}
        reads, writes = (tuple(map(names.__getitem__, each)) for each in (self.reads, self.writes))
        views = {names[number]: shape for number, shape in self.views.items()}
        parts = {names[number]: part for number, part in self.parts.items()}
        return GroupCall(self.text, reads, writes, views, self.sizes, parts, group)


@final
@dataclass(frozen=True)
class GroupCall(NumberedCall):
    """The call of the function of a group, by the names of its tensors."""

    group: Group

    def shape_of(self, name: str, shape: Sequence[Expr]) -> Sequence[Expr]:
        """The shape in which a tensor of a shape is given: as a view, or the first places alone."""
        found = [*self.views.get(name, shape)]
        for dim, length in self.parts.get(name, ()):
            found[dim] = length
        return found

    def put(self, graph: Graph, nodes: dict[str, Node], size: WriteSize) -> None:
        """Put the operator into a graph, in which `size` writes sizes.

        `nodes` has the node of every tensor of the program, and then the results'.
        """
        lengths = [*map(size, self.sizes)]
        views = {name: [*map(size, shape)] for name, shape in self.views.items()}
        parts = {name: [(dim, size(length)) for dim, length in part] for name, part in self.parts.items()}
        shapes = {name: [size(sympy_size(one)) for one in nodes[name].meta["val"].shape] for name in self.writes}
        with graph.inserting_before(graph.output_node()):
            tensors = [view_as_read(graph, nodes[name], views.get(name), parts.get(name, ())) for name in self.reads]
            made = add_call(graph, torch.ops.redalg.run.default, self.text, tensors, [], lengths)
            results = dict[str, Node]()
            for number, name in enumerate(self.writes):
                value = add_call(graph, operator.getitem, made, number)
                value = add_call(graph, ATEN.reshape.default, value, shapes[name])
                results[name] = as_dtype(graph, value, nodes[name].meta["val"].dtype)
        for name, value in results.items():
            nodes[name].replace_all_uses_with(value)
            nodes[name] = value


def calls_of(verdicts: Verdicts, plan: FusionPlan, hints: Hints = MappingProxyType({})) -> list[GroupCall]:
    """The calls of a plan's groups; none of a group of sizes without a hint. Groups that are alike have one text."""
    alike, calls = dict[Structure, NumberedCall](), list[GroupCall]()
    for group in plan.groups:
        structure, numbers = verdicts.structure_and_numbers(Pattern(group.members))
        numbered, function = verdicts.lay(Pattern(group.members)), verdicts.of(Pattern(group.members)).fused
        if function is not None and is_callable(numbered.laid, hints):
            if structure not in alike:
                alike[structure] = call_by_numbers(numbered, function)
            calls.append(alike[structure].of(group, numbers))
    return calls


def call_by_numbers(numbered: Numbered, function: Fused) -> NumberedCall:
    """The call of a group's function; its forms are derived when it is tried."""
    known = {axis.name for axis in function.cascade.axes()}
    written = [output for output in numbered.laid.outputs if output.reads]
    read = {name for output in written for name in output.reads}
    reads = tuple(name for name in numbered.types if name in read)
    sizes = {axis.name: size for output in written for axis, size in output.sizes.items() if axis.name in known}
    call = Call(text_of(function.number), reads, (), tuple(sizes), "nan", "ieee", "", training=False)
    return NumberedCall(call.text, reads, tuple(output.name for output in written), numbered.laid.views,
                        tuple(sizes.values()), numbered.parts)  # fmt: skip


def calls_with_backwards(
    calls: Sequence[GroupCall], vertices: Vertices, needed: Collection[str]
) -> list[GroupCall]:  # fmt: skip
    """Of the calls of groups, those that hold a product and have a gradient, as calls that make what it reads.

    A group whose backward the engine does not derive is left out.
    """
    kinds = vertices.analysis.kinds
    return [replace(call, text=replace(read_call(call.text), training=True).text) for call in calls
            if any(not kinds[name].is_memory_intensive for name in call.group.members)
            and not {*needed}.isdisjoint(call.reads) and has_backward(call)]  # fmt: skip


def has_backward(call: GroupCall) -> bool:
    """Tell if the engine derives the backward of a group's function."""
    try:
        backward_of(function_of_text(read_call(call.text).function))
    except RedalgError:
        return False
    return True


def reason_against_sizes(call: GroupCall, dtypes: Mapping[str, str], hints: Hints, target: str) -> str:
    """The reason why a group's sizes may not vary, if there is any: kernels are compiled while the model runs.

    Args:
        call: the group's.
        dtypes: of the tensors that it reads.
        hints: the lengths that varying sizes have now.
        target: of its kernels.
    """
    told = read_call(call.text)
    varying = {name for name, size in zip(told.sizes, call.sizes, strict=True) if not size.is_Integer}
    if not varying:
        return ""
    sizes = {name: length_of(size, hints) for name, size in zip(told.sizes, call.sizes, strict=True)}
    by_name = {name: dtypes[tensor] for name, tensor in zip(told.names, call.reads, strict=True)}
    try:
        own = axes_of_own_kernels(function_of_text(told.function).passes, target, sizes, by_name)
    except RedalgError as refused:
        return f"its sizes vary, and no kernel is known for all: {refused}"
    return "a size varies for which its kernel is compiled anew, as the length of its rows" if own & varying else ""


def stitch(
    graph: Graph, calls: Sequence[PatternCall], nodes: Mapping[str, Node] | None = None, size: WriteSize | None = None
) -> None:
    """Put groups into the graph of their program, in place; or into a part of it.

    Of a part, `nodes` has the tensors, and `size` writes sizes.
    """
    known, size = dict(nodes_by_tensor(graph) if nodes is None else nodes), size or SizeNodes(graph)
    for call in calls:
        call.put(graph, known, size)
    sort_nodes(graph)
    graph.eliminate_dead_code()
    graph.lint()


def leave_autograd(graph: Graph) -> None:
    """Call operators as Inductor does best, in place, in a graph whose backward is derived.

    PyTorch's autograd does not look at them, and those that return one tensor return no list.
    """
    for target, (several, single) in INDUCTORS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            if len(node.meta["val"]) > 1 or any(user.target is not operator.getitem for user in node.users):
                node.target = several
                continue
            node.target, [node.meta["val"]] = single, node.meta["val"]
            for part in [*node.users]:
                part.replace_all_uses_with(node)
                graph.erase_node(part)


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


def is_callable(laid: Laid, hints: Hints) -> bool:
    """Tell if the sizes of a group's outputs, and of the views of what they read, are known when it is called."""
    sizes = chain(*(output.sizes.values() for output in laid.outputs), *laid.views.values())
    return all(is_writable(size, hints) for size in sizes)


def view_as_read(
    graph: Graph, node: Node, shape: list[int | Node] | None, part: Sequence[tuple[int, int | Node]]
) -> Node:  # fmt: skip
    """A tensor as a group reads it. Inductor hands no operator a constant of a graph, but a copy of it."""
    node = add_call(graph, ATEN.clone.default, node) if node.op == "get_attr" else node
    node = node if shape is None else add_call(graph, ATEN.reshape.default, node, shape)
    for dim, length in part:
        node = add_call(graph, ATEN.slice.Tensor, node, dim, 0, length)
    return node


def as_dtype(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    """A tensor in a dtype; by the operator that Inductor fuses with what reads it."""
    convert = torch.ops.prims.convert_element_type.default
    return node if node.meta["val"].dtype is dtype else add_call(graph, convert, node, dtype)


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
