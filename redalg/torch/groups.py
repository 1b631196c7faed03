"""The groups of a graph, found, judged and put: whoever compiles the graph, and at whatever stage.

graph  →  program  →  subprograms of small statements                 →  calls  →  decisions of the gate  →  the graph
the rest           →  analysis  →  candidates  →  plan of its groups  →  calls  →  decisions of the gate  →  the graph
"""

from __future__ import annotations

import gc
import operator
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import final

import torch
from torch._guards import TracingContext
from torch._subclasses import FakeTensor
from torch.fx import Graph, Node

from redalg.graphs.alone import reasons_alone
from redalg.graphs.analysis import analyze_program
from redalg.graphs.candidates import Candidates, explore
from redalg.graphs.fusion_plan import FusionPlan, plan_fusion
from redalg.graphs.gain import Gain
from redalg.graphs.padding import remove_padding
from redalg.graphs.program import TensorProgram
from redalg.graphs.tables import equal_tables
from redalg.graphs.transformations import ALL, Transformations
from redalg.graphs.vertices import Pattern, Vertices, vertices_of
from redalg.runtime.lowering import target_of
from redalg.strategies.device import DeviceSpec, device_for
from redalg.torch.aten import import_graph, is_tensor, nodes_by_tensor, tensor_name
from redalg.torch.decisions import Decision
from redalg.torch.explored import calls_kept
from redalg.torch.gate import decide_on_regions
from redalg.torch.regions import Region, region_of
from redalg.torch.report import (
    GraphReport,
    GroupReport,
    OperatorInputs,
    graph_drawing,
    lines_of,
    reasons_of,
    with_areas,
)
from redalg.torch.sizes import Hints, hints_of, length_of
from redalg.torch.stitch import (
    GroupCall,
    PatternCall,
    calls_of,
    calls_with_backwards,
    reason_against_sizes,
    stitch,
)
from redalg.torch.subprograms import subprogram_calls

PRIMAL, TANGENT = "primals_", "tangents_"
"""The names of inputs of a forward or a backward alone, before their numbers."""


def put_groups(
    graph: Graph, gate: str, budget_s: float, *, fixed: Sequence[str] | None = None,
    needed: Collection[str] = (), subprograms: bool | None = None, transformations: Transformations = ALL,
) -> GraphReport:  # fmt: skip
    """Put the groups of a graph that the gate lets pass, in place.

    Args:
        graph: of operators of ATen, with fake values.
        gate, budget_s: its word, and the seconds for trials and measurements.
        fixed: the inputs that stay where they are from call to call; as PyTorch says of the graph that it compiles.
        subprograms: true if small statements are put together in one launch; None: on GPUs.
        needed: tensors that have gradients. If there are any, groups that hold products are put, with their backward.
        transformations: those that groups and subprograms may make.
    """
    started = time.monotonic()
    complete_values(graph)
    device = device_of(graph)
    if device is None:
        return GraphReport(0, (), {}, "its tensors are on several devices, or on none that has kernels")
    card = card_for(device)
    imported, compiled, explored = import_graph(graph), fixed is None, Stopwatch()
    products, fixed = not compiled or not is_part(graph), fixed_inputs_of(graph) if fixed is None else fixed
    with explored, without_cycle_search():
        vertices = vertices_to_fuse(imported.program, fixed, transformations, products=products)
        if share_tables(graph, equal_tables(vertices.analysis)):
            imported = import_graph(graph)
            vertices = vertices_to_fuse(imported.program, fixed, transformations, products=products)
    drawing = graph_drawing(graph, vertices)
    small, until, hints = tuple[GroupReport, ...](), started + budget_s, hints_of(graph)
    whole = Exploration(Gain(vertices, card, hints))
    if compiled and (device.type == "cuda" if subprograms is None else subprograms):
        small = put_subprograms(graph, whole, device, (gate, until), explored)
    rest = import_graph(graph) if any(each.decision.is_put for each in small) else None
    with explored, without_cycle_search():
        if rest is not None:
            vertices = vertices_to_fuse(rest.program, fixed, transformations, products=products)
            whole = Exploration(Gain(vertices, card, hints), whole)
        calls, alone = (trained_calls(whole, device, needed), {}) if needed else calls_and_reasons(whole)
    groups = (*small, *Judge(graph, vertices, device, calls, needed, hints).put(gate, until))
    seconds, count = time.monotonic() - started, len(imported.program.statements)
    return GraphReport(count, groups, reasons_of(imported), seconds=seconds, explored_s=explored.seconds,
                       drawing=with_areas(drawing, groups), alone=alone)  # fmt: skip


@final
class Exploration:
    """The groups that exploration finds in a program, once it is asked; verdicts of another one before it hold."""

    def __init__(self, gain: Gain, before: Exploration | None = None) -> None:
        self.gain, self.before = gain, before

    @cached_property
    def candidates(self) -> Candidates:
        """The patterns that may be fused."""
        before = None if self.before is None else vars(self.before).get("candidates")
        return explore(self.gain, None if before is None else before.verdicts)

    @cached_property
    def plan(self) -> FusionPlan:
        """Those of them that become groups."""
        return plan_fusion(self.candidates)

    @property
    def calls(self) -> list[GroupCall]:
        """The calls of the groups."""
        return calls_of(self.candidates.verdicts, self.plan, self.gain.hints)

    def patterns(self) -> list[Pattern]:
        """The vertices of every group."""
        return [Pattern(group.members) for group in self.plan.groups]


def calls_and_reasons(explored: Exploration) -> tuple[list[GroupCall], dict[str, str]]:
    """The calls of all groups that exploration finds, and the reductions that are in none, with the reasons."""
    calls = explored.calls
    members = {name for call in calls for name in call.group.members}
    return calls, reasons_alone(explored.candidates, explored.plan, members)


def trained_calls(explored: Exploration, device: torch.device, needed: Collection[str]) -> list[GroupCall]:
    """The calls of all groups that have a backward, which are kept for other processes."""
    gain, vertices, hints = explored.gain, explored.gain.vertices, explored.gain.hints

    def find() -> list[GroupCall]:
        return calls_with_backwards(explored.calls, vertices, needed)

    lengths = sorted((symbol.name, length) for symbol, length in hints.items())
    depends_on = gain.device, vertices.names, vertices.transformations, sorted(needed), lengths
    return calls_kept(vertices.analysis.program, device, depends_on, hints, find)


def program_to_fuse(program: TensorProgram, transformations: Transformations) -> TensorProgram:
    """A program as its groups are looked for: products are without padding, if a view may be computed with them."""
    return remove_padding(program) if transformations.vertical_fusion else program.live()


def vertices_to_fuse(
    program: TensorProgram, fixed: Sequence[str], transformations: Transformations, *, products: bool
) -> Vertices:
    """The vertices of a program as its groups are looked for."""
    analysis = analyze_program(program_to_fuse(program, transformations))
    return vertices_of(analysis, fixed, products=products, transformations=transformations)


def put_subprograms(
    graph: Graph, whole: Exploration, device: torch.device, gate: tuple[str, float], explored: Stopwatch
) -> tuple[GroupReport, ...]:  # fmt: skip
    """Put the subprograms of a graph that the gate lets pass, in place, until a time of the monotonic clock."""
    gain = whole.gain
    around, hints = gain.vertices, gain.hints
    with explored, without_cycle_search():
        vertices, calls = subprogram_calls(around.analysis.program, gain.device, around.transformations, hints,
                                           whole.patterns)  # fmt: skip
    return Judge(graph, vertices, device, calls, hints=hints).put(*gate)


@final
class Stopwatch:
    """The seconds that have passed within it, of all times together."""

    def __init__(self) -> None:
        self.seconds, self.started = 0.0, 0.0

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self.started


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Let Python look for no cycles of objects: exploration makes few, and each search walks over all of a compiler."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@final
@dataclass(frozen=True)
class Judge:
    """The surroundings in which a graph's groups are decided on.

    Attributes:
        graph, vertices, device: the graph, its vertices, and the device of its tensors.
        calls: of all groups.
        needed: the tensors that have gradients, of a graph that is trained.
        hints: the lengths that varying sizes have now.
    """

    graph: Graph
    vertices: Vertices
    device: torch.device
    calls: Sequence[PatternCall]
    needed: Collection[str] = ()
    hints: Hints = field(default_factory=dict)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The node of every tensor."""
        return nodes_by_tensor(self.graph)

    @cached_property
    def overwrites(self) -> set[str]:
        """The tensors that the graph changes in place."""
        return {tensor_name(source) for node in self.graph.nodes for source in targets_of(node)}

    @cached_property
    def members(self) -> set[str]:
        """The vertices of all groups."""
        return {name for call in self.calls for name in call.group.members}

    def decide(self, gate: str, until: float) -> list[Decision]:
        """The decisions on all groups, by the gate, until a time of the monotonic clock."""
        reasons = [self.reason_against(call) for call in self.calls]
        regions = [self.region_of(call) for call, reason in zip(self.calls, reasons, strict=True) if not reason]
        decisions = iter(decide_on_regions(regions, self.device, gate, until))
        return [Decision(is_put=False, reason=reason) if reason else next(decisions) for reason in reasons]

    def put(self, gate: str, until: float) -> tuple[GroupReport, ...]:
        """Put the operators that the gate lets pass into the graph, and tell what became of each."""
        found = [*zip(self.calls, self.decide(gate, until), strict=True)]
        card = card_for(self.device).part
        reports = tuple(GroupReport(call.group, lines_of(self.nodes, call.group.members), call.text, decision, card,
                                    self.operator_inputs(call)) for call, decision in found)  # fmt: skip
        stitch(self.graph, [call for call, decision in found if decision.is_put])
        return reports

    def operator_inputs(self, call: PatternCall) -> OperatorInputs | None:
        """The dtypes, shapes and sizes of what a call is given; None if data decide a size."""
        types = self.vertices.analysis.types
        dtypes = tuple(types[name].dtype for name in call.reads)
        shapes = [call.shape_of(name, types[name].shape) for name in call.reads]
        if not all(size.free_symbols <= self.hints.keys() for size in chain(call.sizes, *shapes)):
            return None
        lengths = [tuple(length_of(size, self.hints) for size in sizes) for sizes in (call.sizes, *shapes)]
        return OperatorInputs(dtypes, tuple(lengths[1:]), lengths[0])

    def reason_against(self, call: PatternCall) -> str:
        """The reason why a group cannot be put, if there is any."""
        if self.overwrites & {*self.vertices.inputs_of(Pattern(call.group.members))}:
            return "it reads a tensor that the graph changes in place"
        if any(self.nodes[name].meta["val"].device.type != self.device.type for name in call.reads):
            return "it reads a tensor of another device"
        kinds, types = self.vertices.analysis.kinds, self.vertices.analysis.types
        if isinstance(call, GroupCall) and all(kinds[name].is_memory_intensive for name in call.group.members):
            dtypes = {name: types[name].dtype for name in call.reads}
            return reason_against_sizes(call, dtypes, self.hints, card_for(self.device).target)
        return ""

    def region_of(self, call: PatternCall) -> Region:
        """The region of a group, without what other groups hold."""
        return region_of(self.nodes, self.vertices, call, taken=self.members, needed=self.needed, hints=self.hints)


# ---- what a graph says of itself -------------------------------------------------------------------------------------


def complete_values(graph: Graph) -> None:
    """Give fake values to constants, and to the parts of results that Inductor's patterns left without, in place."""
    values = [node.meta["val"] for node in graph.nodes if is_tensor(node)]
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    for node in graph.find_nodes(op="get_attr"):
        constant = getattr(graph.owning_module, str(node.target), None)
        if mode is not None and isinstance(constant, torch.Tensor) and "val" not in node.meta:
            node.meta["val"] = mode.from_tensor(constant)
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        whole, place = node.args
        if "val" not in node.meta and isinstance(whole, Node) and "val" in whole.meta:
            node.meta["val"] = whole.meta["val"][place]


def share_tables(graph: Graph, same: Mapping[str, str]) -> bool:
    """Let whoever reads a table read another that is equal to it, in place; true if any did.

    Tables that the graph changes in place stay.
    """
    nodes, overwritten = nodes_by_tensor(graph), {source for node in graph.nodes for source in targets_of(node)}
    pairs = [
        (nodes[name], nodes[other]) for name, other in same.items() if not overwritten & {nodes[name], nodes[other]}
    ]
    for node, other in pairs:
        node.replace_all_uses_with(other)
    if pairs:
        graph.eliminate_dead_code()
    return bool(pairs)


def card_for(device: torch.device) -> DeviceSpec:
    """The GPU for which groups are looked for: on a CPU a common one."""
    return device_for("sm_90a" if device.type == "cpu" else target_of(str(device)))


def device_of(graph: Graph) -> torch.device | None:
    """The device of all of a graph's tensors, a CPU or a GPU that has kernels; None if there is none."""
    devices = {node.meta["val"].device for node in graph.nodes if is_tensor(node)}
    [device, *others] = [one for one in devices if one.type != "cpu"] or [*devices] or [torch.device("meta")]
    return device if not others and device.type in ("cpu", "cuda") else None


def is_part(graph: Graph) -> bool:
    """Tell if a graph is a forward or a backward alone: groups with products were put before the two were parted."""
    return any(node.name.startswith((PRIMAL, TANGENT)) for node in graph.find_nodes(op="placeholder"))


def fixed_inputs_of(graph: Graph) -> list[str]:
    """The inputs that stay where they are from call to call: parameters and buffers.

    A forward or a backward alone takes inputs of the whole by their numbers: `primals_1` is the first.
    """
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    fixed = {*(() if metadata is None else metadata.static_input_indices or ())}
    names = [node.name for node in graph.find_nodes(op="placeholder")]
    if not is_part(graph):
        return [name for place, name in enumerate(names) if place in fixed]
    return [name for name in names if name.startswith(PRIMAL) and int(name.removeprefix(PRIMAL)) - 1 in fixed]


def targets_of(node: Node) -> Iterator[Node]:
    """Yield the tensors that a call changes in place, and those that they are views of."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for argument, given in zip(schema.arguments, node.args, strict=False):
        while argument.is_write and isinstance(given, Node) and is_tensor(given):
            yield given
            given = next(iter(given.all_input_nodes), None)  # noqa: PLW2901 - what a view reads first
