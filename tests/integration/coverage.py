"""The share of a model that redalg takes: `python -m tests.integration.coverage` prints the table of docs/GRAPHS.md.

Models are compiled for the CPU, so that the graphs are those that Inductor hands over at the end of its passes.
Memory-intensive is what is neither a convolution nor a product of matrices.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph

from redalg.graphs.alone import reasons_alone
from redalg.graphs.analysis import Kind, analyze_program
from redalg.graphs.candidates import explore
from redalg.graphs.fusion_plan import plan_fusion
from redalg.graphs.gain import Gain
from redalg.graphs.vertices import vertices_of
from redalg.strategies.device import device_for
from redalg.torch.aten import import_graph
from redalg.torch.groups import complete_values, fixed_inputs_of, is_part
from redalg.torch.sizes import hints_of
from redalg.torch.stitch import calls_of

LIBRARIES = {"convolution", "grouped_mm_fallback", "convolution_backward"}
"""Operators without an expression that multiply."""
CARD = device_for("sm_90a")


@final
@dataclass(frozen=True)
class Coverage:
    """A model's memory-intensive statements and reductions.

    Attributes:
        expressions: the number of statements that are tensor expressions.
        left: operator and reason -> how many are PyTorch's.
        grouped: the number of reductions in groups.
        alone: operator and reason -> how many reductions are in no group.
        groups: their number.
    """

    expressions: int = 0
    left: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    grouped: int = 0
    alone: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    groups: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            self.expressions + other.expressions, Counter(self.left) + Counter(other.left),
            self.grouped + other.grouped, Counter(self.alone) + Counter(other.alone), self.groups + other.groups,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Of memory-intensive statements, those that are expressions."""
        return self.expressions / max(1, self.expressions + sum(self.left.values()))

    @property
    def share_of_reductions(self) -> float:
        """Of reductions, those in groups."""
        return self.grouped / max(1, self.grouped + sum(self.alone.values()))


def coverage_of(graph: Graph) -> Coverage:
    """The share of a graph that Inductor hands over."""
    complete_values(graph)
    imported, hints = import_graph(graph), hints_of(graph)
    program = imported.program.live()
    analysis = analyze_program(program)
    vertices = vertices_of(analysis, fixed_inputs_of(graph), products=not is_part(graph))
    candidates = explore(Gain(vertices, CARD, hints))
    plan = plan_fusion(candidates)
    members = {name for call in calls_of(candidates.verdicts, plan, hints) for name in call.group.members}
    origins = {name: each.origin.partition(":")[0] for each in program.statements for name in each.results}
    left = Counter((each.operator, each.reason) for each in program.externals() if each.operator not in LIBRARIES)
    alone = reasons_alone(candidates, plan, members)
    return Coverage(
        sum(analysis.kinds[each.name].is_memory_intensive for each in program.expressions()), left,
        sum(analysis.kinds[name] is Kind.REDUCTION for name in members),
        Counter((origins[name], reason) for name, reason in alone.items()), len(plan.groups),
    )  # fmt: skip


class Recorded(CustomGraphPass):
    """A pass of a user's that records what each graph is."""

    def __init__(self) -> None:
        self.found: list[Coverage] = []

    def __call__(self, graph: Graph) -> None:
        self.found.append(coverage_of(graph))

    def uuid(self) -> Any:
        """None: no graph comes from a cache, without the pass."""
        return


def cover(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Coverage:
    """The coverage of a model's graphs for inference."""
    torch._dynamo.reset()
    recorded = Recorded()
    with torch.no_grad():
        torch.compile(model, options={"post_grad_custom_post_pass": recorded})(*inputs)
    return sum(recorded.found, Coverage())


def print_table(names: list[str]) -> None:
    """Print a line for each model, and one for all."""
    from tests.integration.catalogue import MODELS

    total = Coverage()
    for name in names or MODELS:
        torch.manual_seed(0)
        sample = MODELS[name]
        found = cover(sample.make().eval(), sample.draw(sample.sizes[0]))
        total += found
        print(row(name, found), flush=True)
    print(row("all", total))
    for (operator, reason), count in Counter(total.alone).most_common():
        print(f"alone: {operator} ({count}): {reason}")
    for (operator, reason), count in Counter(total.left).most_common():
        print(f"left: {operator} ({count}): {reason}")


def row(name: str, found: Coverage) -> str:
    """A model's line of the table."""
    count, reductions = found.expressions + sum(found.left.values()), found.grouped + sum(found.alone.values())
    named = ", ".join(f"{operator} {number}" for (operator, _), number in found.left.items())
    alone = ", ".join(f"{operator} {number}" for (operator, _), number in found.alone.items())
    return (f"| {name} | {found.expressions} of {count} | {100 * found.share:.1f} % | {named} | {found.groups} | "
            f"{found.grouped} of {reductions} | {alone} |")  # fmt: skip


if __name__ == "__main__":
    print_table(sys.argv[1:])
