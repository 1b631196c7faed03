"""The part of a graph about a group that a compiler would fuse: on its own, as it is and with the group's operator.

An operator is a wall: what is computed before and after it is no longer fused with what it replaces. A group is
therefore judged with the memory-intensive statements around it, which are read or made by it through no product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import final

import torch
from torch._inductor.decomposition import select_decomp_table
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from redalg.graphs.vertices import Pattern, Vertices
from redalg.torch.aten import is_tensor, tensor_name, tensor_operand
from redalg.torch.sizes import Hints, is_size, length_of, with_hints
from redalg.torch.stitch import PatternCall, stitch

MOST_AROUND = 12
"""Vertices around a group that are judged with it, at most."""


@final
@dataclass(frozen=True)
class Region:
    """A part of a graph, as it is and with an operator in it; both take the same tensors, and return the same.

    Attributes:
        plain, fused: the two.
        inputs: the fake tensors that they take.
        needed: of every input, true if it has a gradient.
        gain_us: what exploration expects of the group.
        distinct: of every input, the dimension along which it holds places that stand there once each, if any.
    """

    plain: GraphModule
    fused: GraphModule
    inputs: tuple[torch.Tensor, ...]
    needed: tuple[bool, ...]
    gain_us: float = 0.0
    distinct: tuple[int | None, ...] = ()

    @property
    def text(self) -> str:
        """The part with the operator, by its calls alone: the same for parts that are alike."""
        numbers = {node: f"v{number}" for number, node in enumerate(self.fused.graph.nodes)}
        lines = list[str]()
        for node in self.fused.graph.nodes:
            args = torch.fx.node.map_arg((node.args, node.kwargs), lambda read: numbers[read])
            lines.append(f"{numbers[node]} = {node.op} {node.target if node.op == 'call_function' else ''} {args}")
        gradients = [f"gradient of {number}" for number, needed in enumerate(self.needed) if needed]
        gradients += [f"places along {dim} of {number}" for number, dim in enumerate(self.distinct) if dim is not None]
        return "\n".join((*lines, *map(layout, self.inputs), *gradients))

    @property
    def is_trained(self) -> bool:
        """Tell if it is judged with its backward."""
        return any(self.needed)

    def draw(self) -> list[torch.Tensor]:
        """Tensors to call it with, and the cotangents of its outputs if it is trained.

        Numbers are normal; integers are 0, which is a place of any dimension, or count up if none may stand twice;
        truths hold, and so do integers that are read as truths alone. If a result is not finite, no number is negative:
        a variance is none.
        """
        seeded = {each: torch.Generator(each).manual_seed(0) for each in {fake.device for fake in self.inputs}}
        inputs = [draw_like(fake, seeded[fake.device]) for fake in self.inputs]
        for each, node in zip(inputs, self.plain.graph.find_nodes(op="placeholder"), strict=True):
            if not each.dtype.is_floating_point and are_truths(node):
                each.fill_(1)
        for each, dim in zip(inputs, self.distinct, strict=False):
            if dim is not None and each.dim():
                each.movedim(dim, -1).copy_(torch.arange(each.shape[dim], device=each.device))
        if not all(bool(each.isfinite().all()) for each in self.plain(*inputs)):
            inputs = [each.abs_() if each.dtype.is_floating_point else each for each in inputs]
        if not self.is_trained:
            return inputs
        outputs = self.plain(*map(torch.Tensor.requires_grad_, inputs, self.needed))
        cotangents = [torch.randn_like(each) for each in outputs if each.requires_grad]
        return [each.detach() for each in (*inputs, *cotangents)]

    def whole(self, part: GraphModule, arguments: Sequence[torch.Tensor]) -> GraphModule:
        """One of the two; if it is trained, with its backward in one graph, which returns gradients after the outputs.

        In one graph it can be compiled while PyTorch compiles the model: a backward alone waits for that to end.
        """
        if not self.is_trained:
            return part
        forward = partial(with_gradients, part, self.needed)
        return make_fx(forward, decomposition_table=select_decomp_table(), tracing_mode="fake")(*arguments)


def with_gradients(part: GraphModule, needed: Sequence[bool], *arguments: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of a part of a graph, and the gradients of inputs; after these come the cotangents of outputs."""
    inputs = [each.detach().requires_grad_(flag) for each, flag in zip(arguments, needed, strict=False)]
    with torch.enable_grad():
        outputs = part(*inputs)
    differentiable, wanted = ([each for each in some if each.requires_grad] for some in (outputs, inputs))
    found = torch.autograd.grad(differentiable, wanted, arguments[len(needed) :], materialize_grads=True)
    return [*(each.detach() for each in outputs), *found]


def region_of(
    nodes: Mapping[str, Node], vertices: Vertices, call: PatternCall, *, taken: Collection[str] = (),
    needed: Collection[str] = (), hints: Hints = MappingProxyType({}),
) -> Region:  # fmt: skip
    """The region of a group, with the lengths that varying sizes have now.

    Args:
        nodes: the node of every tensor.
        vertices, call: of the graph, and the group's.
        taken: the vertices of all groups.
        needed: the tensors that have gradients.
        hints: the lengths.
    """
    pattern = with_neighbours(vertices, Pattern(call.group.members), taken)
    members = with_sources_between(vertices, {nodes[name] for name in vertices.with_views(pattern)})
    read = [nodes[name] for name in call.reads]
    (plain, copies), (fused, own) = (cut_out(members, read, hints) for _ in range(2))
    known = {tensor_name(node): copy for node, copy in own.items() if is_tensor(node)}
    stitch(fused.graph, [call], known, lambda size: length_of(size, hints))
    fused.recompile()
    differentiable = {copies.get(nodes[name]) for name in needed}
    taken_in = plain.graph.find_nodes(op="placeholder")
    inputs, flags = (node.meta["val"] for node in taken_in), (node in differentiable for node in taken_in)
    originals = {copy: node for node, copy in copies.items()}
    distinct = (tensor_operand(originals[node]).distinct for node in taken_in)
    return Region(plain, fused, tuple(inputs), tuple(flags), call.group.gain_us, tuple(distinct))


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
    members = vertices.in_order(pattern)
    found = dict.fromkeys(one for name in members for one in (*vertices.sources[name], *vertices.readers[name]))
    return [name for name in found if name in vertices.inside and name not in pattern]


def with_sources_between(vertices: Vertices, members: set[Node]) -> set[Node]:
    """Nodes with those that they read and the program does not have: its statements read what these are made of."""
    known, found, waiting = vertices.analysis.types, {*members}, [*members]
    while waiting:
        between = [source for source in waiting.pop().all_input_nodes if source.op == "call_function"
                   and is_tensor(source) and tensor_name(source) not in known and source not in found]  # fmt: skip
        found |= {*between}
        waiting += between
    return found


def cut_out(
    members: Collection[Node], read: Iterable[Node], hints: Hints
) -> tuple[GraphModule, dict[Node, Node]]:  # fmt: skip
    """Nodes of a graph as a graph of their own, which takes what they read and returns what others read of them.

    It takes the tensors `read` too. Beside it: the copy of every node, also of those that it takes. Sizes that vary are
    numbers in it.
    """
    sources = {source for node in members for source in node.all_input_nodes}
    sizes = {source: with_hints(source.meta["val"], hints) for source in sources if is_size(source)}
    inside = {*members, *(source for source in sources if not is_tensor(source) and source not in sizes)}
    ordered, part, copies = sorted(inside), Graph(), dict[Node, Node]()
    for source in dict.fromkeys((*(source for node in ordered for source in node.all_input_nodes), *read)):
        if source not in inside and source not in sizes:
            copies[source] = part.placeholder(source.name)
            copies[source].meta["val"] = with_hints(source.meta["val"], hints)
    for node in ordered:
        copies[node] = part.node_copy(node, lambda read: sizes[read] if read in sizes else copies[read])
        copies[node].meta["val"] = with_hints(node.meta["val"], hints)
    part.output(tuple(copies[node] for node in ordered if is_tensor(node) and {*node.users} - inside))
    return GraphModule(torch.nn.Module(), part), copies


def layout(tensor: torch.Tensor) -> str:
    """The shape, strides, dtype and device of a tensor."""
    return f"{tensor.dtype} {[*tensor.shape]} {[*tensor.stride()]} {tensor.device.type}"


def are_truths(node: Node) -> bool:
    """Tell if all that reads a tensor of integers makes truths of it, as of a mask of tokens."""
    return bool(node.users) and all(is_tensor(user) and user.meta["val"].dtype is torch.bool for user in node.users)


def draw_like(fake: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A tensor like a fake one; the program's own random numbers go on as if nothing was drawn."""
    tensor = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    if fake.dtype.is_floating_point:
        return tensor.normal_(generator=generator)
    return tensor.fill_(fake.dtype is torch.bool)
