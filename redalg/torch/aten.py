"""The import of a graph of ATen operators: fx graph → TensorProgram, node after node.

placeholder            an input
call of an operator    its rule's terms; an external statement where it has no rule, or the rule cannot say it
getitem                another name of one of several results
sizes                  numbers: SymPy expressions in the graph's own symbols
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from sympy import Expr
from sympy.core.basic import Basic
from torch.fx import Graph, Node

from redalg.errors import ExpressionError, GraphError
from redalg.expression import Axis
from redalg.expression.contents import bound_axes
from redalg.graphs.program import External, Statement, TensorExpression, TensorProgram, TensorType
from redalg.torch.elementwise import ELEMENTWISE
from redalg.torch.moves import MOVES
from redalg.torch.places import PLACES
from redalg.torch.scalings import node_in_plain_form
from redalg.torch.site import Operand, Rule, Site, Unwritten
from redalg.torch.sizes import sympy_size
from redalg.torch.sums import SUMS

RULES: Mapping[str, Rule] = {**ELEMENTWISE, **MOVES, **SUMS, **PLACES}
"""Operator of ATen, without its overload -> its rule."""
REASONS: Mapping[str, str] = {
    "grouped_mm_fallback": "products of the rows of each group, which a library multiplies",
    "max_pool2d_with_indices": "a window around each element, with its places",
    "_low_memory_max_pool_with_offsets": "a window around each element, with its places",
}
"""Operators that no rule is meant for, and why."""
CASTS, SELECTIONS = ("_to_copy", "convert_element_type", "to"), ("topk", "sort")
"""Operators whose results have the numbers of what they read, and those whose second result are places of a row, once
each."""


@final
@dataclass(frozen=True)
class Imported:
    """A graph as a program.

    Attributes:
        program: the program; its tensors bear the nodes' names.
        nodes: the first result's name of every external statement -> its node.
    """

    program: TensorProgram
    nodes: Mapping[str, Node]

    def compute(self, statement: External, arrays: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results of an external statement, by PyTorch: the framework of `graphs.interpret.run`."""
        node, known = self.nodes[statement.names[0]], dict(zip(statement.reads, arrays, strict=True))

        def value(given: Node) -> Any:
            return known[tensor_name(given)] if is_tensor(given) else given.meta["val"]

        call: Callable[..., Any] = node.target  # type: ignore[assignment]
        made = call(*torch.fx.node.map_arg(node.args, value), **torch.fx.node.map_arg(dict(node.kwargs), value))
        return [made] if isinstance(made, torch.Tensor) else [one for one in made if isinstance(one, torch.Tensor)]


def import_graph(graph: Graph) -> Imported:
    """A graph of ATen operators, whose nodes have values of fake tensors, as a program of tensor expressions.

    Constant tensors are inputs of the program.

    Raises:
        GraphError: a node calls what is no operator of ATen, or has no value.
    """
    inputs, statements, nodes, outputs = dict[str, TensorType](), list[Statement](), dict[str, Node](), list[str]()
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") and is_tensor(node):
            inputs[node.name] = type_of(node.meta["val"])
        elif node.op == "output":
            outputs += [tensor_name(one) for one in node.all_input_nodes if is_tensor(one)]
        elif node.op == "call_function" and is_of_tensors(node):
            made = statements_of(node)
            statements += made
            nodes |= {one.names[0]: node for one in made if isinstance(one, External)}
        elif node.op not in ("placeholder", "call_function"):
            raise GraphError(
                f"node `{node.name}` is a {node.op}. Import a graph of operators alone, as `torch.export` makes."
            )
    return Imported(TensorProgram(inputs, tuple(statements), tuple(outputs)), nodes)


def is_tensor(node: Node) -> bool:
    """Tell if a node's value is one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def is_of_tensors(node: Node) -> bool:
    """Tell if a call makes tensors: it asserts nothing, computes no size, and takes no result that is known already."""
    schema = getattr(node.target, "_schema", None)
    if node.target is operator.getitem or (schema is not None and not schema.returns):
        return False
    if "val" not in node.meta:
        raise GraphError(f"node `{node.name}` has no value. Trace the graph with fake tensors, as `torch.export` does.")
    made = node.meta["val"]
    return isinstance(made, torch.Tensor) or (isinstance(made, tuple | list) and len(made) > 0)


def statements_of(node: Node) -> list[Statement]:
    """The statements of a call: an expression of every result, or one external statement."""
    written, results = node_in_plain_form(node), result_types(node)
    name, names, types = operator_name(written), tuple(results), tuple(results.values())
    origin = origin_of(node, name)
    try:
        site = Site(name, schema_arguments(written), types, names, readers_of(node))
        terms = rule_of(name)(site)
        each = terms if isinstance(terms, tuple) else (terms,)
        if len(each) != len(names):
            raise Unwritten("some of its results are not asked for")
        return [
            TensorExpression(result, types[number], site.axes(number), term, lengths_in(site, term), origin)
            for number, (result, term) in enumerate(zip(names, each, strict=True))
        ]
    except (Unwritten, ExpressionError, GraphError) as said:
        reads = dict.fromkeys(tensor_name(one) for one in node.all_input_nodes if is_tensor(one))
        return [External(names, types, tuple(reads), name, str(said), origin)]


def lengths_in(site: Site, term: Basic) -> tuple[tuple[Axis, Expr], ...]:
    """The extents of the axes that a term reduces over."""
    over = bound_axes(term)
    return tuple((axis, size) for axis, size in site.lengths.items() if axis in over)


def rule_of(name: str) -> Rule:
    """The rule of an operator; `Unwritten` if it has none."""
    if name not in RULES:
        raise Unwritten(REASONS.get(name, f"redalg has no expression for {name}"))
    return RULES[name]


def operator_name(node: Node) -> str:
    """An operator's name, without the overload."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        raise GraphError(f"node `{node.name}` calls `{node.target}`, which is no operator of PyTorch's dispatcher.")
    return str(schema.name).split("::")[1]


def schema_arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call by the schema's names, with its defaults."""
    schema = node.target._schema  # type: ignore[union-attr]
    given = dict(zip([one.name for one in schema.arguments], node.args, strict=False)) | node.kwargs
    defaults = {one.name: one.default_value for one in schema.arguments if one.has_default_value()}
    return {name: argument(one) for name, one in {**defaults, **given}.items()}


def argument(given: Any) -> Any:
    """An argument as a rule takes it: an operand, an expression of sizes, a list, or as it is."""
    if isinstance(given, Node):
        value = given.meta["val"]
        return tensor_operand(given) if isinstance(value, torch.Tensor) else argument(value)
    if isinstance(given, tuple | list):
        return [argument(one) for one in given]
    return sympy_size(given) if isinstance(given, torch.SymInt) else given


def tensor_operand(node: Node) -> Operand:
    """A tensor as a rule takes it, with what its node says of its numbers."""
    each, source = type_of(node.meta["val"]), node.all_input_nodes[0] if node.all_input_nodes else node
    is_cast = getattr(node.target, "_schema", None) is not None and operator_name(node) in CASTS
    is_whole = "int" in each.dtype or (is_cast and "int" in type_of(source.meta["val"]).dtype)
    selected = node.target is operator.getitem and node.args[1] == 1 and operator_name(source) in SELECTIONS
    dim = schema_arguments(source)["dim"] % max(len(each.shape), 1) if selected else None
    return Operand(tensor_name(node), each, is_whole, dim)


def readers_of(node: Node) -> dict[int, frozenset[str]]:
    """Number of one of several results of a node -> the operators that read it, "output" for the caller."""
    found = dict[int, frozenset[str]]()
    for part in (user for user in node.users if user.target is operator.getitem):
        number, has_schema = int(str(part.args[1])), [hasattr(user.target, "_schema") for user in part.users]
        names = (operator_name(user) if known else user.op for user, known in zip(part.users, has_schema, strict=True))
        found[number] = found.get(number, frozenset()) | {*names}
    return found


def tensor_name(node: Node) -> str:
    """The tensor that a node stands for."""
    if node.target is not operator.getitem:
        return node.name
    whole, place = node.args
    return f"{whole.name}_{place}"  # type: ignore[union-attr]


def nodes_by_tensor(graph: Graph) -> dict[str, Node]:
    """The node of every tensor of a graph."""
    return {tensor_name(node): node for node in graph.nodes if is_tensor(node)}


def result_types(node: Node) -> dict[str, TensorType]:
    """The tensors that a node makes, by their names; of several results, some may be none."""
    made = node.meta["val"]
    if isinstance(made, torch.Tensor):
        return {node.name: type_of(made)}
    return {f"{node.name}_{place}": type_of(one) for place, one in enumerate(made) if isinstance(one, torch.Tensor)}


def type_of(value: torch.Tensor) -> TensorType:
    """The type of a fake tensor."""
    return TensorType(tuple(map(sympy_size, value.shape)), str(value.dtype).removeprefix("torch."))


def origin_of(node: Node, name: str) -> str:
    """An operator's name, and the last line of the user's program on a node's record, if it has one."""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    return f"{name}: {lines[-1].strip()}" if lines else name
