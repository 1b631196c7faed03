"""Sizes of a graph's tensors that vary: as SymPy expressions, as the graph's own nodes, and as the lengths of today.

A graph of varying sizes holds nodes of whole numbers. A group's sizes are computed from these by further nodes; a
region, which is measured, has the lengths that the sizes have while the model is compiled (PyTorch's hints).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Any, final

import torch
from sympy import Add, Expr, Integer, Mul, Pow, Rational, Symbol, preorder_traversal
from torch._subclasses import FakeTensor
from torch.fx import Graph, Node

Hints = Mapping[Symbol, int]
"""Symbol of a size -> the length that it has while the model is compiled."""
WriteSize = Callable[[Expr], "int | Node"]
"""Size -> what stands for it in a graph."""


def sympy_size(size: Any) -> Any:
    """A size as SymPy's."""
    return size.node.expr if isinstance(size, torch.SymInt) else Integer(size)


def hints_of(graph: Graph) -> dict[Symbol, int]:
    """The lengths of a graph's varying sizes; none for a size that data decide."""
    found = (
        size for node in graph.nodes for size in sizes_of_value(node.meta.get("val")) if isinstance(size, torch.SymInt)
    )
    return {size.node.expr: int(size.node.hint) for size in found
            if size.node.expr.is_Symbol and size.node.hint is not None}  # fmt: skip


def is_size(node: Node) -> bool:
    """Tell if a node is a size, which may vary."""
    return isinstance(node.meta.get("val"), torch.SymInt)


def sizes_of_value(value: Any) -> Iterator[Any]:
    """Yield the sizes that a node's value is, or has."""
    if isinstance(value, torch.SymInt):
        yield value
    elif isinstance(value, torch.Tensor):
        yield from value.shape


def is_writable(size: Expr, hints: Hints) -> bool:
    """Tell if a size is made of varying sizes by sums, products and whole quotients."""
    parts = all(isinstance(part, Add | Mul | Pow | Rational | Symbol) for part in preorder_traversal(size))
    return parts and size.free_symbols <= hints.keys()


def length_of(size: Expr, hints: Hints) -> int:
    """The length that a size has now."""
    return int(size.xreplace(dict(hints)))


def with_hints(value: Any, hints: Hints) -> Any:
    """A node's value with the lengths of today: a number, a fake tensor, or several of them."""
    if isinstance(value, torch.SymInt):
        return length_of(value.node.expr, hints)
    if isinstance(value, tuple | list):
        return type(value)(with_hints(one, hints) for one in value)
    if not isinstance(value, FakeTensor) or not any(isinstance(one, torch.SymInt) for one in sizes_of_value(value)):
        return value
    shape, strides = ([with_hints(one, hints) for one in some] for some in (value.shape, value.stride()))
    with value.fake_mode:
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


@final
class SizeNodes:
    """Sizes as nodes of a graph, which stand before its output."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[Expr, int | Node] = {}
        for node in filter(is_size, graph.nodes):
            self.known.setdefault(node.meta["val"].node.expr, node)
        for node in graph.find_nodes(op="placeholder"):
            value = node.meta.get("val")
            for place, size in enumerate(map(sympy_size, value.shape if isinstance(value, torch.Tensor) else ())):
                if size.is_Symbol and size not in self.known:
                    self.known[size] = self.add(torch.ops.aten.sym_size.int, node, place)

    def __call__(self, size: Expr) -> int | Node:
        """A size as a number, or as a node."""
        if size.is_Integer:
            return int(size)
        if size not in self.known:
            above, below = size.as_numer_denom()
            self.known[size] = (
                self.compute(above) if below == 1 else self.add(operator.floordiv, self(above), self(below))
            )
        return self.known[size]

    def compute(self, size: Expr) -> int | Node:
        """A new node for a sum, a product or a power of sizes."""
        if isinstance(size, Pow):
            parts, call = [size.base] * int(size.exp), operator.mul
        else:
            parts, call = [*size.args], operator.add if isinstance(size, Add) else operator.mul
        return reduce(partial(self.add, call), map(self, parts))

    def add(self, call: Callable[..., Any], *args: Any) -> Node:
        """A call that makes a size."""
        with self.graph.inserting_before(self.graph.output_node()):
            node = self.graph.call_function(call, args)
        node.meta["val"] = call(*torch.fx.node.map_arg(args, lambda read: read.meta["val"]))
        return node
