"""ra.optimize(program): a program of `torch.export`, with operators in the place of groups.

    ExportedProgram  →  the same program of core ATen  →  its groups put by the gate  →  ExportedProgram

The signature of the program names nodes that it returns, and is written again with those that stand in their place. If
anything fails here, the program stays as it was, and one line of log says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram, ExportGraphSignature, ModuleCallEntry
from torch.export.graph_signature import InputKind
from torch.fx import Node

from redalg.errors import GraphError, PlanError
from redalg.expression.arguments import answer_arguments
from redalg.graphs.transformations import ALL
from redalg.torch.backend import BUDGET, FIRST, GATE, LAST, is_tested, read_options
from redalg.torch.groups import put_groups
from redalg.torch.records import failure_report, keep_report, say_once
from redalg.torch.report import GraphReport

KEPT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
"""Inputs of a program's graph that are its own: they stay where they are from call to call."""


@answer_arguments(GraphError)
def optimize(program: ExportedProgram, *, options: Mapping[str, Any] | None = None) -> ExportedProgram:
    """A copy of an exported program, of core ATen, with redalg's groups in it as operators.

    The copy has the parameters, buffers and constants of the program, whose own graph stays as it is. It is saved,
    loaded, called and compiled as any other, if the process imports redalg. It is for inference: where a gradient is
    asked for, a group is computed twice. As a group may cross modules, `torch.export.unflatten` does not take it, and
    signatures of modules inside it are not preserved. A program that is on several devices or calls more than operators
    of ATen has no groups put.

    Args:
        program: of `torch.export.export(model, args)`.
        options: `redalg.gate`, "measured" (by default: a group is put if its region, compiled by Inductor, was measured
            to be faster with it) or "predicted"; `redalg.budget_s`, the seconds for trials and measurements, 120 by
            default.

    Raises:
        GraphError: `program` is no exported program.
        PlanError: an option is none of these two, `redalg.gate` is none of its words, or `redalg.budget_s` is no number
            of seconds.

    >>> import torch, redalg as ra
    >>> program = torch.export.export(torch.nn.Softmin(-1), (torch.ones(2, 4),))
    >>> ra.optimize(program, options={"redalg.gate": "predicted"}).module()(torch.ones(2, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.2500, 0.2500, 0.2500, 0.2500]])
    """
    if not isinstance(program, ExportedProgram):
        raise GraphError(
            f"optimize takes an exported program, and was given a {type(program).__name__}. "
            "Write `ra.optimize(torch.export.export(model, args))`."
        )
    gate, budget_s, subprograms, transformations, asynchronous, others = read_options(None, options)
    if others or subprograms is not None or transformations != ALL or asynchronous:
        raise PlanError(
            f"options={options!r}: optimize takes {GATE!r} and {BUDGET!r} alone, as exported programs are not "
            "Inductor's. Give its options to `torch.compile(optimized.module(), options=…)`."
        )
    if not is_tested(torch.__version__):
        say_once(f"PyTorch {torch.__version__} is not one that redalg was tested with ({FIRST} to {LAST}): exported "
                 "programs stay as they are.")  # fmt: skip
        return to_core_aten(program)
    try:
        found, report = with_groups(to_core_aten(program), gate, budget_s)
    except Exception as failure:  # noqa: BLE001 - whatever fails here, the program is as it was
        found, report = to_core_aten(program), failure_report("an exported program stays as it is", failure)
    keep_report(report)
    return found


def with_groups(program: ExportedProgram, gate: str, budget_s: float) -> tuple[ExportedProgram, GraphReport]:
    """A program of core ATen with its groups put, and the report; the graph that is given is changed."""
    inputs = zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True)
    with torch.no_grad():
        report = put_groups(
            program.graph, gate, budget_s, fixed=[node.name for node, spec in inputs if spec.kind in KEPT]
        )
    program.graph_module.recompile()
    if not any(one.decision.is_put for one in report.groups):
        return program, report
    stitched = ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=with_outputs(program.graph_signature, program.graph.output_node().args[0]),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=[ModuleCallEntry(entry.fqn, None if entry.fqn else entry.signature)
                           for entry in program.module_call_graph],  # nodes that inner modules returned may be gone
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )  # fmt: skip
    return to_core_aten(stitched), report  # of views and casts around the operators


def to_core_aten(program: ExportedProgram) -> ExportedProgram:
    """A copy of a program, of core ATen."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*treespec, LeafSpec", FutureWarning)  # of PyTorch 2.13's own copy of one
        return program.run_decompositions()


def with_outputs(signature: ExportGraphSignature, returned: Sequence[Any]) -> ExportGraphSignature:
    """A signature, for a graph that returns other nodes at the places of those that it returned."""
    specs = [
        replace(spec, arg=replace(spec.arg, name=node.name)) if isinstance(node, Node) else spec
        for spec, node in zip(signature.output_specs, returned, strict=True)
    ]
    return replace(signature, output_specs=specs)
