"""The worth of each transformation of graphs, as they are switched on one after another (SOUFFLE, Tables 4 and 5).

V0   none of them: every statement is a kernel of its own
V1   horizontal fusion: statements that do not rely on each other share a launch
V2   vertical fusion too: statements are computed where they are read
V3   grid synchronisation too: levels of small statements are one launch
V4   data reuse too: what is loaded once serves several outputs of a kernel

Kernels and bytes are counted on the graph that Inductor hands over at the end of its passes, for an H100 (no GPU). A
statement that is in no group counts as a kernel of its own, although Inductor fuses those that are computed element by
element. A kernel moves every tensor once that it reads from outside, and every one of its own that is read outside.
Views are no kernels where PyTorch makes none. On a GPU the plans that were counted are timed too, in CUDA graphs, with
every group put.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node

from benchmarks import report
from benchmarks.ablations.ablation import Document, Measured
from benchmarks.environment import device, environment
from benchmarks.family import Row
from benchmarks.markdown import Table
from benchmarks.models import EAGER, MODELS, Hidden, Model, drawn_model
from benchmarks.small_models import Excite, Mixture, WrittenOut
from benchmarks.timing import measure
from redalg.graphs.analysis import Kind
from redalg.graphs.gain import Gain
from redalg.graphs.program import External
from redalg.graphs.transformations import ALL, Transformations
from redalg.graphs.vertices import Vertices
from redalg.strategies.device import device_for
from redalg.torch.aten import import_graph, nodes_by_tensor
from redalg.torch.groups import Exploration, complete_values, fixed_inputs_of, vertices_to_fuse
from redalg.torch.stitch import stitch
from redalg.torch.subprograms import subprogram_calls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE = Transformations(horizontal_fusion=False, vertical_fusion=False, grid_sync=False, data_reuse=False)
LEVELS = {
    "V0": NONE,
    "V1": replace(NONE, horizontal_fusion=True),
    "V2": replace(ALL, grid_sync=False, data_reuse=False),
    "V3": replace(ALL, data_reuse=False),
    "V4": ALL,
}
CARD = device_for("H100")
SAMPLES, BUDGET_S = 5, 400.0
FEW: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512,
                       "vocab_size": 100}  # fmt: skip
WINDOWS: dict[str, Any] = {"image_size": 56, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)}
SMALL = {
    "MMoE": Model(Mixture, (100,), 1, dtype="float32"),
    "SE-240x14": Model(partial(Excite, 240, 10), (240, 14, 14), 1, dtype="float32"),
    "LSTM-10x10": Model(WrittenOut, (10, 256), 1, dtype="float32"),
    "BERT, 2 layers of 128": Model(partial(Hidden, "Bert", **FEW, **EAGER), (64, 128), 1, dtype="float32"),
    "Swin, 4 layers of 32": Model(partial(Hidden, "Swin", pictures=True, **WINDOWS, **EAGER), (3, 56, 56), 1,
                                  dtype="float32"),
}  # fmt: skip
"""The models of machines without a GPU; those of SOUFFLE at small sizes."""
LARGE = {name: MODELS[name] for name in
         ("MMoE", "SE-240x14", "LSTM-10x10", "EfficientNet-B0", "BERT-384", "Swin-T", "ResNeXt-50")}  # fmt: skip
"""The models of a GPU: SOUFFLE's six or their kin, and a module of one."""


# ---- counts ----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Count:
    """The kernels of a graph, the bytes that they move, and how many of them are groups and subprograms."""

    kernels: int = 0
    bytes: int = 0
    groups: int = 0
    subprograms: int = 0

    def with_kernel(self, moved: int) -> Count:
        """One kernel more, which moves so many bytes."""
        return replace(self, kernels=self.kernels + 1, bytes=self.bytes + moved)


def count_kernels(graph: Graph, made: Transformations) -> Count:
    """The kernels of a graph with its subprograms and groups, all of which are put; the graph is changed.

    Subprograms are judged beside the groups that the graph has without them, as they are when a model is compiled.
    """
    complete_values(graph)
    fixed = fixed_inputs_of(graph)
    whole = explored(graph, fixed, made)
    program = whole.gain.vertices.analysis.program
    _, launches = subprogram_calls(program, CARD, made, groups=whole.patterns)
    if launches:
        stitch(graph, launches)
        whole = explored(graph, fixed, made, whole)
    vertices, groups = whole.gain.vertices, [call.group for call in whole.calls]
    found, nodes = Count(groups=len(groups), subprograms=len(launches)), nodes_by_tensor(graph)
    members = {name for group in groups for name in group.members}
    alone = kernels_alone(nodes, vertices, members)
    for read, written in (*((group.reads, group.writes) for group in groups), *alone):
        behind = dict.fromkeys(tensor_behind(vertices, nodes, name) for name in read)
        found = found.with_kernel(sum(map(whole.gain.bytes_of, (*behind, *written))))
    return found


def explored(
    graph: Graph, fixed: Sequence[str], made: Transformations, before: Exploration | None = None
) -> Exploration:  # fmt: skip
    """The groups of a graph as it is now; verdicts of an exploration before it hold."""
    vertices = vertices_to_fuse(import_graph(graph).program, fixed, made, products=True)
    return Exploration(Gain(vertices, CARD), before)


def tensor_behind(vertices: Vertices, nodes: Mapping[str, Node], name: str) -> str:
    """The tensor of which another is a view, to PyTorch."""
    while name in vertices.known and vertices.known[name].reads and makes_no_kernel(nodes, name):
        name = vertices.known[name].reads[0]
    return name


def kernels_alone(
    nodes: Mapping[str, Node], vertices: Vertices, members: set[str]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:  # fmt: skip
    """Yield the tensors that each statement reads and makes which is a kernel of its own: no member of a group."""
    kinds = vertices.analysis.kinds
    stored = stored_views(vertices, nodes)
    for statement in vertices.analysis.program.statements:
        names = tuple(statement.results)
        is_view = all(kinds[name].is_of_readers for name in names) and stored.isdisjoint(names)
        if members.isdisjoint(names) and not is_view and not all(makes_no_kernel(nodes, name) for name in names):
            yield tuple(dict.fromkeys(source for name in names for source in vertices.sources[name])), names


def stored_views(vertices: Vertices, nodes: Mapping[str, Node]) -> set[str]:
    """The views and expansions that a library, PyTorch or the caller reads, and that are no views to PyTorch."""
    program, kinds = vertices.analysis.program, vertices.analysis.kinds
    waiting = [*program.outputs]
    for statement in program.statements:
        if isinstance(statement, External) or kinds[statement.name] is Kind.CONTRACTION:
            waiting += statement.reads
    found, known = set[str](), {one.name: one for one in program.expressions()}
    while waiting:
        name = waiting.pop()
        if name in known and kinds[name].is_of_readers:
            if makes_no_kernel(nodes, name):
                waiting += known[name].reads
            else:
                found.add(name)
    return found


def makes_no_kernel(nodes: Mapping[str, Node], name: str) -> bool:
    """Tell if PyTorch makes a tensor without a kernel: a view of another, or memory that nothing is written to."""
    node = nodes[name]
    target = node.args[0].target if node.target is getitem and isinstance(node.args[0], Node) else node.target
    schema = getattr(target, "_schema", None)
    is_alias = schema is not None and any(each.alias_info is not None for each in schema.returns)
    return is_alias or str(target).startswith("aten.empty")


class Counted(Exception):  # noqa: N818 - no error: the rest of the compilation is not needed
    """A graph was counted."""


@final
class Counting(CustomGraphPass):
    """A pass that counts the kernels of a graph, and stops the compilation."""

    def __init__(self, made: Transformations) -> None:
        self.made, self.found = made, list[Count]()

    def __call__(self, graph: Graph) -> None:
        self.found.append(count_kernels(graph, self.made))
        raise Counted

    def uuid(self) -> Any:
        """None: no graph comes from a cache, without the pass."""
        return


def count_model(model: nn.Module, x: torch.Tensor, made: Transformations) -> Count:
    """The count of a model's one graph."""
    torch._dynamo.reset()
    counting = Counting(made)
    options: dict[str, Any] = {"post_grad_custom_post_pass": counting}
    try:
        torch.compile(model, fullgraph=True, options=options)(x)
    except Exception:
        if not counting.found:
            raise
    return counting.found[0]


def time_model(model: nn.Module, x: torch.Tensor, made: Transformations) -> float | None:
    """Microseconds of a call of a model with every group put; None where there is no GPU."""
    from redalg.torch.backend import BUDGET, GATE, SUBPROGRAMS, SWITCHES, compile_graph
    from redalg.torch.gate import PREDICTED

    if x.device.type != "cuda":
        return None
    torch._dynamo.reset()
    switches = {option: getattr(made, name) for option, name in SWITCHES.items()}
    options = {GATE: PREDICTED, BUDGET: BUDGET_S, SUBPROGRAMS: True, **switches}
    compiled = torch.compile(model, backend=compile_graph, options=options)
    compiled(x)
    return measure([partial(compiled, x)], x.device, SAMPLES).median_us


def row_of(name: str, model: Model, where: torch.device) -> dict[str, Any]:
    """The counts and times of a model at a batch of one, by level."""
    dtype = getattr(torch, model.dtype or "bfloat16")
    shape = (1, *model.sample)
    made, x = drawn_model(Row(name, {}, {"x": shape}, {}), model, where)
    made, x = made.to(dtype), x.to(dtype)
    with torch.no_grad():
        levels = {level: asdict(count_model(made, x, each)) | {"time_us": time_model(made, x, each)}
                  for level, each in LEVELS.items()}  # fmt: skip
    return {"name": name, "sizes": list(x.shape), "dtype": str(dtype).removeprefix("torch."), "levels": levels}


# ---- the ablation ----------------------------------------------------------------------------------------------------


@final
class Worth(Measured):
    """See the module."""

    name, title = "transformations", "Transformations of graphs, switched on one after another (SOUFFLE, Tables 4, 5)"

    def run(self, options: argparse.Namespace) -> Document:
        """The rows of the models that are asked for, and those that an earlier run on this device left in the file."""
        models = LARGE if device().type == "cuda" else SMALL
        if unknown := sorted({*options.models} - models.keys()):
            sys.exit(f"no model {', '.join(unknown)} for {device().type}; there are {', '.join(models)}")
        rows = self.kept_rows(options.out) if options.models else {}
        rows |= {name: row_of(name, models[name], device()) for name in options.models or models}
        return {"card": "H100", "rows": [rows[name] for name in models if name in rows]}

    def kept_rows(self, folder: Path | None) -> dict[str, Any]:
        """The rows of the file in a folder, by their names, if they are of this device."""
        path = folder / f"ablation-{self.name}.json" if folder else None
        if path is None or not path.exists():
            return {}
        earlier = report.load(path)
        is_own = earlier["environment"]["device"] == environment()["device"]
        return {row["name"]: row for row in earlier["rows"]} if is_own else {}

    def picture(self, content: Document) -> Figure:
        from benchmarks.plots.figure import SERIES, canvas, legend

        names = [line["name"] for line in content["rows"]]
        figure, axes = canvas("Kernels, beside a kernel for every statement", "", "kernels / V0", 2 + 1.2 * len(names))
        width = 0.8 / len(LEVELS)
        for place, level in enumerate(LEVELS):
            values = [line["levels"][level]["kernels"] / line["levels"]["V0"]["kernels"] for line in content["rows"]]
            left = [at + width * (place - len(LEVELS) / 2) for at in range(len(names))]
            axes.bar(left, values, width, label=level, color=SERIES[place])
        axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
        legend(axes)
        return figure

    def table(self, content: Document) -> Table:
        return Table(("model", "of", *LEVELS), [
            (named(line), quantity, *(cell(line["levels"][level]) for level in LEVELS))
            for line in content["rows"] for quantity, cell in CELLS.items()
        ])  # fmt: skip

    def said(self, content: Document) -> str:
        times = [each["time_us"] is not None for line in content["rows"] for each in line["levels"].values()]
        counted = ("V0: no transformation; V1: horizontal fusion; V2: and vertical fusion; V3: and grid "
                   "synchronisation; V4: and data reuse. Kernels and bytes are counted on the graphs, for the "
                   f"{content['card']}; a statement in no group counts as a kernel, although Inductor fuses "
                   "some.")  # fmt: skip
        if all(times):
            return counted
        return f"{counted} Times need a GPU, and {'some rows had none' if any(times) else 'none was there'}."


def named(line: Mapping[str, Any]) -> str:
    """A model's name and dtype, and the device if the row was added from another than the file's."""
    return ", ".join((line["name"], line["dtype"], *([line["device"]] if "device" in line else [])))


CELLS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "kernels": lambda found: str(found["kernels"]),
    "MB": lambda found: f"{found['bytes'] / 1e6:.3g}",
    "µs": lambda found: "-" if found["time_us"] is None else f"{found['time_us']:.1f}",
}
"""Quantity -> its cell, of what was found at a level."""
