"""Sizes that vary: as expressions, as nodes, as the lengths of now."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sympy import Expr, Integer, Mod, Symbol, floor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from redalg.torch.sizes import SizeNodes, hints_of, is_size, is_writable, sympy_size, with_hints


def traced(function: Any, *given: torch.Tensor) -> GraphModule:
    """A graph whose sizes vary."""
    return make_fx(function, tracing_mode="symbolic")(*given)


def sizes_of(module: GraphModule) -> tuple[Expr, ...]:
    """The sizes of a graph's first input."""
    [node, *_] = module.graph.find_nodes(op="placeholder")
    return tuple(map(sympy_size, node.meta["val"].shape))


def test_hints_are_the_lengths_of_now() -> None:
    module = traced(lambda x: x.reshape(-1) + 1, torch.ones(6, 4))
    rows, columns = sizes_of(module)
    assert hints_of(module.graph) == {rows: 6, columns: 4}
    assert hints_of(torch.fx.symbolic_trace(torch.nn.Linear(2, 3)).graph) == {}


@pytest.mark.parametrize(
    "size",
    [
        lambda n, m: n,
        lambda n, m: n * m,
        lambda n, m: 3 * n**2 + m + 5,
        lambda n, m: n * m / 2,
        lambda n, m: 7 * m * n / n,
        lambda n, m: Integer(9),
    ],
    ids=["one", "product", "polynomial", "quotient", "multiple", "number"],
)
def test_a_size_is_written_as_nodes(size: Any) -> None:
    module = traced(lambda x: x + 1, torch.ones(6, 4))
    wanted = size(*sizes_of(module))
    assert is_writable(wanted, hints_of(module.graph))
    module.graph.output_node().args = (SizeNodes(module.graph)(wanted),)
    module.graph.lint()
    module.recompile()
    for rows, columns in ((6, 4), (10, 8)):
        assert module(torch.ones(rows, columns)) == size(Integer(rows), Integer(columns))


def test_a_size_that_is_there_is_read() -> None:
    module = traced(lambda x: x.new_zeros(x.shape[0] * x.shape[1]), torch.ones(6, 4))
    rows, columns = sizes_of(module)
    [there] = [node for node in module.graph.nodes if is_size(node) and node.meta["val"].node.expr == rows * columns]
    assert SizeNodes(module.graph)(rows * columns) is there


def test_other_sizes_are_none_that_can_be_written() -> None:
    module = traced(lambda x: x + 1, torch.ones(6, 4))
    rows, columns = sizes_of(module)
    hints = hints_of(module.graph)
    assert not is_writable(floor(rows / 4), hints)
    assert not is_writable(Mod(rows, columns), hints)
    assert not is_writable(rows + Symbol("of_data"), hints)


def test_values_have_the_lengths_of_now() -> None:
    module = traced(lambda x: x.T * 2, torch.ones(6, 4))
    [*_, node, _] = module.graph.nodes
    found = with_hints(node.meta["val"], hints := hints_of(module.graph))
    assert (tuple(found.shape), found.stride()) == ((4, 6), (1, 4))
    assert all(type(size) is int for size in found.shape)
    assert with_hints((node.meta["val"], None, 3), hints)[1:] == (None, 3)
