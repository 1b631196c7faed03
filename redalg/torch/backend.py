"""torch.compile(model, backend="redalg"): Inductor, with operators in its graphs in the place of groups.

    compile_graph   Dynamo's graph   →  Inductor's compilation, with a pass at the end of its post-grad passes
    GroupPass       a post-grad graph → the same graph: its program, explored, its groups judged by the gate and put

Everything else stays Inductor's: decompositions, caches, modes, CUDA graphs, the passes of the user. If anything fails
here, the graph stays as it was, and one line of log says why. Options, beside Inductor's own:

    redalg.gate       "measured" (by default): a group stays if its region was measured to be faster with it
                      "predicted": every group that exploration finds, and that a trial lets pass
    redalg.budget_s   the time for a graph's trials and measurements, 120 s by default: groups that were not reached are
                      left to Inductor, also by its caches until the budget is another
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast, final

import torch
from torch._guards import TracingContext
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule, Node

import redalg.gradient.operators  # noqa: F401 - it registers the operators that graphs call
from redalg.errors import PlanError
from redalg.graphs.analysis import analyze_program
from redalg.graphs.candidates import explore
from redalg.graphs.fusion_plan import plan_fusion
from redalg.graphs.gain import Gain
from redalg.graphs.vertices import Pattern, Vertices, vertices_of
from redalg.runtime.lowering import target_of
from redalg.strategies.device import device_for
from redalg.torch.aten import import_graph, is_tensor, nodes_by_tensor, tensor_name
from redalg.torch.decisions import Decision, environment_of
from redalg.torch.gate import GATES, MEASURED, decide_on_regions, first_line
from redalg.torch.regions import Region, region_of
from redalg.torch.report import GraphReport, GroupReport, lines_of, reasons_of
from redalg.torch.stitch import GroupCall, calls_of, stitch

LOG = logging.getLogger("redalg.torch")
FIRST, LAST = (2, 11), (2, 13)
"""The versions of PyTorch that this was tested with, from the first to the last."""
GATE, BUDGET, PASS = "redalg.gate", "redalg.budget_s", "post_grad_custom_post_pass"
BUDGET_S = 120.0
REPORTS: ContextVar[list[GraphReport] | None] = ContextVar("reports", default=None)


def compile_graph(
    module: GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend "redalg" of `torch.compile`.

    Args:
        module, inputs: Dynamo's graph, and examples of what it takes.
        mode: as of Inductor: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs".
        options: Inductor's, `redalg.gate` and `redalg.budget_s` (seconds).

    Raises:
        PlanError: `redalg.gate` is none of its words, or `redalg.budget_s` no number of seconds.
    """
    from torch._inductor import config as inductor
    from torch._inductor.compile_fx import compile_fx

    gate, budget_s, patches = read_options(mode, options)
    if is_tested(torch.__version__):
        patches[PASS] = GroupPass(gate, budget_s, patches.get(PASS, getattr(inductor, PASS)))
    else:
        say_once(f"PyTorch {torch.__version__} is not one that redalg was tested with ({FIRST} to {LAST}): Inductor "
                 "compiles the model alone.")  # fmt: skip
    return cast(Callable[..., Any], compile_fx(module, list(inputs), config_patches=patches))


def read_options(mode: str | None, options: Mapping[str, Any] | None) -> tuple[str, float, dict[str, Any]]:
    """The gate, its budget in seconds, and what is Inductor's, of a mode and options.

    Raises:
        PlanError: as of `compile_graph`.
    """
    from torch._inductor import list_mode_options

    patches = {**(list_mode_options(mode) if mode else {}), **(options or {})}
    gate, budget_s = patches.pop(GATE, MEASURED), patches.pop(BUDGET, BUDGET_S)
    if gate not in GATES:
        raise PlanError(f"options={{{GATE!r}: {gate!r}}}: the gate should be one of {', '.join(map(repr, GATES))}.")
    if isinstance(budget_s, bool) or not isinstance(budget_s, int | float) or not budget_s >= 0:
        raise PlanError(f"options={{{BUDGET!r}: {budget_s!r}}}: the budget should be a number of seconds, at least 0.")
    return gate, budget_s, patches


@final
class GroupPass(CustomGraphPass):
    """Inductor's pass that puts groups into a post-grad graph, after the passes that the user has there."""

    def __init__(self, gate: str, budget_s: float = BUDGET_S, others: Any = None) -> None:
        self.gate, self.budget_s = gate, budget_s
        self.others = tuple(others) if isinstance(others, list | tuple) else () if others is None else (others,)

    def __call__(self, graph: Graph) -> None:
        """Put the groups of a graph, in place."""
        for other in self.others:
            other(graph)
        try:
            report = put_groups(graph, self.gate, self.budget_s)
        except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
            reason = first_line(failure)
            say_once(f"a graph is left to Inductor as it is: {reason}")
            report = GraphReport(0, (), {}, reason)
        reports = REPORTS.get()
        if reports is not None:
            reports.append(report)
        LOG.info("%s, in %.1f s", report.summary, report.seconds)

    def uuid(self) -> Any:
        """All that the pass depends on beside the graph; None, so that nothing is cached, if another pass has none.

        Decisions follow from these and from the graph, and are kept once they are made.
        """
        others = [one.uuid() if isinstance(one, CustomGraphPass) else None for one in self.others]
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return (
            None if None in others else (sources_digest(), *environment_of(device), self.gate, self.budget_s, *others)
        )


def put_groups(graph: Graph, gate: str, budget_s: float) -> GraphReport:
    """Put the groups of a graph that the gate lets pass, in place."""
    started = time.monotonic()
    complete_values(graph)
    imported, device = import_graph(graph), device_of(graph)
    if device is None:
        return GraphReport(0, (), {}, "its tensors are on several devices, or on none that has kernels")
    card = device_for("sm_90a" if device.type == "cpu" else target_of(str(device)))
    vertices = vertices_of(analyze_program(imported.program.live()), fixed_inputs_of(graph))
    candidates = explore(Gain(vertices, card))
    calls = calls_of(candidates.verdicts, plan_fusion(candidates))
    judge = Judge(graph, vertices, device, calls)
    found = [*zip(calls, judge.decide(gate, started + budget_s), strict=True)]
    groups = tuple(GroupReport(call.group, lines_of(judge.nodes, call.group.members), call.text, decision)
                   for call, decision in found)  # fmt: skip
    stitch(graph, [call for call, decision in found if decision.is_put])
    seconds = time.monotonic() - started
    return GraphReport(len(imported.program.statements), groups, reasons_of(imported), seconds=seconds)


@final
@dataclass(frozen=True)
class Judge:
    """The surroundings in which a graph's groups are decided on.

    Attributes:
        graph, vertices, device: the graph, its vertices, and the device of its tensors.
        calls: of all groups.
    """

    graph: Graph
    vertices: Vertices
    device: torch.device
    calls: Sequence[GroupCall]

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The node of every tensor."""
        return nodes_by_tensor(self.graph)

    @cached_property
    def overwrites(self) -> set[str]:
        """The tensors that the graph changes in place."""
        return {tensor_name(source) for node in self.graph.nodes for source in targets_of(node)}

    def decide(self, gate: str, until: float) -> list[Decision]:
        """The decisions on all groups, by the gate, until a time of the monotonic clock."""
        reasons = [self.reason_against(call) for call in self.calls]
        regions = [self.region_of(call) for call, reason in zip(self.calls, reasons, strict=True) if not reason]
        decisions = iter(decide_on_regions(regions, self.device, gate, until))
        return [Decision(is_put=False, reason=reason) if reason else next(decisions) for reason in reasons]

    def reason_against(self, call: GroupCall) -> str:
        """The reason why a group cannot be put, if there is any."""
        if self.overwrites & {*self.vertices.inputs_of(Pattern(call.group.members))}:
            return "it reads a tensor that the graph changes in place"
        if any(self.nodes[name].meta["val"].device.type != self.device.type for name in call.reads):
            return "it reads a tensor of another device"
        return ""

    def region_of(self, call: GroupCall) -> Region:
        """The region of a group, without what other groups hold."""
        taken = {name for other in self.calls if other is not call for name in other.group.members}
        return region_of(self.nodes, self.vertices, call, taken)


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


def device_of(graph: Graph) -> torch.device | None:
    """The device of all of a graph's tensors, a CPU or a GPU that has kernels; None if there is none."""
    devices = {node.meta["val"].device for node in graph.nodes if is_tensor(node)}
    [device, *others] = [one for one in devices if one.type != "cpu"] or [*devices] or [torch.device("meta")]
    return device if not others and device.type in ("cpu", "cuda") else None


def fixed_inputs_of(graph: Graph) -> list[str]:
    """The inputs that stay where they are from call to call: parameters and buffers."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    fixed = () if metadata is None else metadata.static_input_indices or ()
    return [inputs[number].name for number in fixed if number < len(inputs)]


def targets_of(node: Node) -> Iterator[Node]:
    """Yield the tensors that a call changes in place, and those that they are views of."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for argument, given in zip(schema.arguments, node.args, strict=False):
        while argument.is_write and isinstance(given, Node) and is_tensor(given):
            yield given
            given = next(iter(given.all_input_nodes), None)  # noqa: PLW2901 - what a view reads first


# ---- the surroundings ------------------------------------------------------------------------------------------------


def is_tested(version: str) -> bool:
    """Tell if a version of PyTorch is one that this was tested with."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return FIRST <= (major, minor) <= LAST


@cache
def sources_digest() -> str:
    """The digest of redalg's sources and its tuned plans."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".json"))
    digest = sha256()
    for path in files:
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def say_once(message: str) -> None:
    """Log a warning once in a process."""
    LOG.warning("%s", message)


@contextmanager
def recorded_reports() -> Iterator[list[GraphReport]]:
    """Within it, the reports of all graphs that are compiled."""
    reports = list[GraphReport]()
    token = REPORTS.set(reports)
    try:
        yield reports
    finally:
        REPORTS.reset(token)
