"""Groups of a graph that is trained, put before PyTorch derives its backward: rows times columns are not stored.

    Dynamo's graph   →   the operators of ATen that its forward calls, on fake tensors
                     →   the same with groups that hold products, as operators that make what their backward reads
    PyTorch          →   derives the backward of all, and of an operator by its own: the engine's derived backward

After PyTorch has derived the backward, forward and backward are two graphs, and whatever one hands the other is stored:
for a group across a product that is rows times columns. All other groups are found there, by the pass of `backend`.

Sizes may vary: the trace has the symbols of the graph, and makes none of them a number.

A graph stays as it is if it holds what a trace does not keep: parts without gradients, functions with a backward of
their own, varying numbers that are no sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch._decomp import core_aten_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.func import functionalize
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from redalg.errors import GraphError
from redalg.graphs.transformations import ALL, Transformations
from redalg.torch.aten import is_tensor, tensor_name
from redalg.torch.groups import put_groups
from redalg.torch.records import LEFT, failure_report, keep_report
from redalg.torch.report import GraphReport

Inputs = Sequence[Any]
SWITCH, INFERENCE = "_set_grad_enabled", ("_enter_inference_mode", "_exit_inference_mode")
WITHOUT_GRADIENTS = ("detach", "detach_", "data")
"""Calls of Dynamo's graphs that begin or end a part without gradients, or make one: a trace does not keep them."""


def put_trained_groups(
    module: GraphModule, inputs: Inputs, gate: str, budget_s: float, transformations: Transformations = ALL
) -> GraphModule:  # fmt: skip
    """A graph with groups whose backward the engine derives; as it is if there is none, or if it is not trained."""
    if not is_trained(inputs):
        return module
    try:
        traced, report = with_trained_groups(module, inputs, gate, budget_s, transformations)
    except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
        traced, report = module, failure_report(LEFT, failure)
    keep_report(report)
    return traced if any(group.decision.is_put for group in report.groups) else module


def with_trained_groups(
    module: GraphModule, inputs: Inputs, gate: str, budget_s: float, transformations: Transformations = ALL
) -> tuple[GraphModule, GraphReport]:  # fmt: skip
    """A trace of a graph with its groups put, and the report; the graph and the reason if it cannot be traced."""
    reason = reason_against_trace(module, inputs)
    if reason:
        return module, GraphReport(0, (), {}, reason)
    traced = trace_forward(module, inputs)
    fixed, needed = names_of_parameters(traced.graph, inputs), names_with_gradients(traced.graph, inputs)
    report = put_groups(traced.graph, gate, budget_s, fixed=fixed, needed=needed, transformations=transformations)
    traced.recompile()
    check_gradients(module, traced, inputs)
    return traced, report


def is_trained(inputs: Inputs) -> bool:
    """Tell if a backward is derived of a graph that takes these inputs."""
    return torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs)


def reason_against_trace(module: GraphModule, inputs: Inputs) -> str:
    """The reason why a trace would not be the graph, if there is any.

    A part without gradients is no reason if nothing that it reads has any, as the positions of a model.
    """
    numbers = [
        *(given for given in inputs if not isinstance(given, torch.Tensor)),
        *map(known_value, module.graph.nodes),
    ]
    if any(isinstance(number, float | torch.SymFloat | torch.SymBool) and not is_fixed(number) for number in numbers):
        return "numbers vary that are no sizes"
    needed = differentiable_inputs(module.graph, inputs)
    enabled = True
    for node in module.graph.nodes:
        name, reads = getattr(node.target, "__name__", node.target), not needed.isdisjoint(node.all_input_nodes)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return f"it calls `{node.target}`, whose backward is its own"
        if node.op == "get_attr" and getattr(getattr(module, str(node.target), None), "requires_grad", False):
            return "it holds a parameter"
        if name in INFERENCE or (reads and (not enabled or name in WITHOUT_GRADIENTS or "data" in node.args)):
            return "a part of it records no gradient"
        enabled = bool(node.args[0]) if name == SWITCH else enabled
        needed |= {node} if reads else set()
    return ""


def trace_forward(module: GraphModule, inputs: Inputs) -> GraphModule:
    """The operators of ATen that a graph calls, each with its fake value; it takes the same, and returns the same.

    Lines of the user's source stay with them.
    """
    with torch.no_grad(), fakes_beside_constants(inputs) as mode:
        fakes = [one.detach() if isinstance(one, torch.Tensor) else one for one in as_fakes(mode, inputs)]
        traced = make_fx(with_origins(module))(*fakes)  # `functionalize` would make sizes of a linear layer numbers
        traced = trace(traced, fakes, core_aten_decompositions())
        traced = trace(traced, fakes, {})  # what a decomposition changes in place is functional now
    keep_origins(module, traced)
    read_copies_of_changed_inputs(traced.graph)
    return traced


def read_copies_of_changed_inputs(graph: Graph) -> None:
    """Have a copy read of each input that the graph changes at its end, as batch norms do running statistics.

    PyTorch refuses a backward for which the input itself was saved.
    """
    for change in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        given = change.args[0]
        readers = [user for user in given.users if user is not change] if isinstance(given, Node) else []
        if isinstance(given, Node) and given.op == "placeholder" and readers:
            with graph.inserting_before(graph.find_nodes(op="placeholder")[-1].next):
                copy = graph.call_function(torch.ops.aten.clone.default, (given,))
            copy.meta.update(given.meta)
            for reader in readers:
                reader.replace_input_with(given, copy)


def keep_origins(module: GraphModule, traced: GraphModule) -> None:
    """Tell PyTorch of a trace what Dynamo told it of the graph: where inputs come from, and which stay where they are.

    `aot_autograd` reads these private fields of a graph of Dynamo.
    """
    sources = getattr(module, "_param_name_to_source", None)
    if sources is None:  # no graph of Dynamo
        return
    own = {name: ConstantSource(name) for name, _ in traced.named_buffers()}
    vars(traced)["_param_name_to_source"] = {**own, **sources}
    traced.meta.update(module.meta)
    for node, told in zip(*(each.graph.find_nodes(op="placeholder") for each in (traced, module)), strict=True):
        node.meta = {**told.meta, **node.meta}
        node._dynamo_source = getattr(told, "_dynamo_source", None)


def trace(module: GraphModule, inputs: Inputs, decompositions: Mapping[Any, Any]) -> GraphModule:
    """The operators that a graph calls, decomposed, of which none changes a tensor in place but those of the inputs."""
    functional = functionalize(with_origins(module), remove="mutations")
    return make_fx(functional, decomposition_table=decompositions)(*inputs)


def with_origins(module: GraphModule) -> Callable[..., Any]:
    """A graph as a function, whose calls keep the lines of source of its nodes."""

    def run(*given: Any) -> Any:
        with preserve_node_meta():
            return FixedNumbers(module).run(*given)

    return run


@final
class FixedNumbers(Interpreter):
    """It runs a graph of Dynamo, and takes the numbers to which guards have fixed varying ones: no fake has them."""

    def run_node(self, n: Node) -> Any:
        """The value of a node."""
        return float(known_value(n)) if is_fixed(known_value(n)) else super().run_node(n)


def known_value(node: Node) -> Any:
    """The value that Dynamo knows of a node, if any."""
    return node.meta.get("example_value")


def is_fixed(value: Any) -> bool:
    """Tell if a value is a varying number that guards have fixed."""
    return isinstance(value, torch.SymFloat) and bool(value.node.expr.is_number)


def names_with_gradients(graph: Graph, inputs: Inputs) -> set[str]:
    """The tensors of a graph that depend on an input whose gradient is asked for."""
    needed = differentiable_inputs(graph, inputs)
    for node in graph.nodes:
        if not needed.isdisjoint(node.all_input_nodes) and not is_exact(node):
            needed.add(node)
    return {tensor_name(node) for node in needed if is_tensor(node)}


def differentiable_inputs(graph: Graph, inputs: Inputs) -> set[Node]:
    """The nodes of the inputs whose gradients are asked for."""
    pairs = zip(graph.find_nodes(op="placeholder"), inputs, strict=True)
    return {node for node, given in pairs if isinstance(given, torch.Tensor) and given.requires_grad}


def is_exact(node: Node) -> bool:
    """Tell if a node is a tensor of integers or truths, which have no gradient."""
    return is_tensor(node) and not node.meta["val"].dtype.is_floating_point


def names_of_parameters(graph: Graph, inputs: Inputs) -> list[str]:
    """The inputs that are parameters: they stay where they are from call to call."""
    placeholders = graph.find_nodes(op="placeholder")
    return [
        node.name for node, given in zip(placeholders, inputs, strict=True) if isinstance(given, torch.nn.Parameter)
    ]


def check_gradients(module: GraphModule, traced: GraphModule, inputs: Inputs) -> None:
    """Refuse a trace whose outputs have other gradients than the graph's: both run on fake tensors.

    Raises:
        GraphError: outputs that depend on the inputs differ.
    """
    with fakes_beside_constants(inputs) as mode, torch.enable_grad():
        fakes = as_fakes(mode, inputs)
        found = [differentiable_places(each, fakes) for each in (module, traced)]
    if found[0] != found[1]:
        raise GraphError(f"outputs {found[0]} of the graph have gradients, and of its trace {found[1]}")


def differentiable_places(module: GraphModule, fakes: Inputs) -> list[int]:
    """The numbers of the outputs that have gradients; the gradients are made, so that a backward that lacks fails."""
    outputs = FixedNumbers(module).run(*fakes)
    made = {number: one for number, one in enumerate(outputs) if isinstance(one, torch.Tensor) and one.requires_grad}
    needed = [one for one in fakes if isinstance(one, torch.Tensor) and one.requires_grad]
    torch.autograd.grad(list(made.values()), needed, list(map(torch.ones_like, made.values())), allow_unused=True)
    return [*made]


def as_fakes(mode: FakeTensorMode, inputs: Inputs) -> list[Any]:
    """Inputs as fake ones of a mode. Those that are stay as they are: a new each would have sizes of its own."""
    return [mode.from_tensor(each) if isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor) else each
            for each in inputs]  # fmt: skip


@contextmanager
def fakes_beside_constants(inputs: Inputs) -> Iterator[FakeTensorMode]:
    """Within it, the mode of a graph's fake inputs, or a new one; the constants of a graph may stand beside them."""
    mode = detect_fake_mode(list(inputs)) or FakeTensorMode()
    allowed = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        with mode, enable_python_dispatcher():
            yield mode
    finally:
        mode.allow_non_fake_inputs = allowed
