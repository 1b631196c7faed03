"""docs/PUBLISHED.md: FusionStitching's and SOUFFLE's tables in kind, from what was measured of whole models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.ablations.transformations import LEVELS
from benchmarks.compete import OWN
from benchmarks.markdown import Table
from benchmarks.models import AUTOTUNED, MODELS, PEER, PLAIN, contestants_of
from benchmarks.papers.aims import MODULES, aims_table
from benchmarks.papers.figures import (
    FUSED,
    SOUFFLE,
    SPEEDUPS_OF_MODULES,
    STATED_BY_SOUFFLE,
    STATED_BY_STITCHING,
    STITCHED,
    TENSORRT,
    XLA,
    Fused,
    Stitched,
)
from benchmarks.papers.measured import Measured, arithmetic, cell, geometric, rows_by_name, steps
from benchmarks.traffic import FIELDS, MEGABYTE

Document = dict[str, Any]
Find = Callable[[str], Measured]
LIBRARY = "cuDNN"
HEAD = """# Published tables, in kind

Made by `python -m benchmarks report` from the whole models and the ablation of transformations in
[benchmarks/results](../benchmarks/results). Beside what FusionStitching (Zheng et al., 2020) and SOUFFLE (Xia et al.,
ASPLOS '24) state stands what redalg does for models of their kind ([GRAPHS.md](GRAPHS.md)). A speedup is the other's
time over one's own: above 1, one is faster. It is marked * if the other could not be captured in a CUDA graph, so that
its time holds launches. An empty cell was not measured yet, and each section names the rows of which something lacks.
"""
OF_STITCHING = """The paper has a V100, TensorFlow and XLA of 2020, without CUDA graphs; here are an H100 or an H200,
PyTorch and Inductor, with CUDA graphs. Ratios can be compared in kind: Inductor is to PyTorch what XLA is to
TensorFlow. Times cannot, and neither can counts of kernels: a norm is four kernels of XLA, one of FusionStitching's,
and one of Inductor's, so most of what the paper gains is Inductor's already. Its counts leave products out; ours are
all kernels of a call. DIEN and CRNN are written out for few steps here. The paper's Transformer and its speech model
have no row."""
OF_SOUFFLE = """The paper has an A100, products in float16 and all else in float32; here all is in 16 bits, but for
MMoE. TensorRT, Ansor, Rammer, Apollo and IREE are not on our machines: their figures are the paper's, and the longest
search of Inductor stands where TensorRT does there. That compares in kind at most. The large speedups of the paper
are over compilers that fail on grouped convolutions (ResNeXt) and on recurrent cells that are written out (LSTM);
over TensorRT at home, in BERT and Swin, they are 1.07 and 1.12. The paper does not show cuDNN's LSTM; here it stands
beside ours."""
OF_TRAFFIC = """Counts of kernels and of bytes do not depend on clocks, and compare best. SOUFFLE computes products in
kernels of its own; here products with weights of many rows stay in a library, a kernel each, so that kernels cannot
become as few. Bytes of memory are Nsight Compute's in both, but an H100's L2 of 50 MB keeps between two kernels what
an A100's of 40 MB does not, and models here move 16 bits where the paper moves 32 for all but products. Bytes of L2
are all that kernels ask for. Inductor's count, at the end of its passes, has each tensor once that a kernel reads or
writes; it needs no profiler."""
OF_LEVELS = """V0 to V4 switch on in both what bears one name: no transformation, horizontal fusion, vertical fusion,
grid synchronisation, reuse of data. SOUFFLE's V0 is Ansor's code, with its fusion; here V0 is a kernel for each
statement, so that the step from V0 to V2 is larger by construction. Kernels and bytes are counted on graphs here, and
times are measured with every group put, whether it is faster or not. EfficientNet's last figure in the paper's Table
4 is not that of its Table 3 (0.63 and 0.66 ms)."""


def page(models: Document | None, ablation: Document | None) -> str:
    """The document."""
    find = rows_by_name(models)
    return "\n".join([HEAD, *sections(find, ablation or {"rows": []})]).rstrip() + "\n"


def sections(find: Find, ablation: Document) -> Iterator[str]:
    """Yield its parts."""
    yield f"## FusionStitching, Table 2\n\n{OF_STITCHING}\n\n{stitched_table(find)}\n\n{stitched_means(find)}\n"
    yield lacking(find, {one.row for one in STITCHED if one.row}, ("time", "kernels", "bytes"))
    yield f"## SOUFFLE, Table 3: times\n\n{OF_SOUFFLE}\n\n{fused_table(find)}\n\n{fused_means(find)}\n"
    yield lacking(find, {one.row for one in FUSED}, ("time",))
    yield f"## SOUFFLE, Table 5: kernels and bytes\n\n{OF_TRAFFIC}\n\n{traffic_table(find)}\n"
    yield lacking(find, {one.row for one in FUSED}, ("kernels", "bytes"))
    yield f"## SOUFFLE, Table 4: transformations, one after another\n\n{OF_LEVELS}\n\n{levels_table(ablation)}\n"
    yield lacking_levels(ablation)
    yield f"## SOUFFLE, Figure 6: squeeze and excite\n\n{modules_text(find)}\n"
    yield f"## Aims\n\n{aims_table(find)}\n"


# ---- FusionStitching -------------------------------------------------------------------------------------------------


def stitched_table(find: Find) -> Table:
    """A line for each model of the paper."""
    header = ("model, batch", "speedup over XLA, over TensorFlow",
              "memory-intensive kernels, TensorFlow → XLA → its own", "row here",
              "redalg's speedup over Inductor, over PyTorch", "kernels, PyTorch → Inductor → redalg",
              "MB, Inductor → redalg", "differs")  # fmt: skip
    return Table(header, [stitched_cells(one, find(one.row)) for one in STITCHED])


def stitched_cells(one: Stitched, here: Measured) -> tuple[str, ...]:
    """The line of a model; one without a row here has dashes."""
    stated = (one.model, f"{one.xla.ms / one.own.ms:.2f}, {one.tensorflow.ms / one.own.ms:.2f}",
              steps([each.kernels for each in (one.tensorflow, one.xla, one.own)], "d"))  # fmt: skip
    if not one.row:
        return *stated, "none", *["–"] * 4
    known = [speedup_cell(here, peer) for peer in (PEER, PLAIN)]
    return (*stated, one.row, ", ".join(known) if any(known) else "",
            steps([here.kernels(name) for name in (PLAIN, PEER, OWN)], "d"),
            steps([here.megabytes(name) for name in (PEER, OWN)]), one.differs)  # fmt: skip


def speedup_cell(here: Measured, *peers: str) -> str:
    """redalg's speedup over the first of some peers that has a time, marked if it was not captured."""
    peer = next((name for name in peers if here.time_us(name) is not None), "")
    is_marked = here.contestant(peer).get("method") == "cuda events"
    return cell(here.speedup(*peers)) + ("*" if is_marked else "")


def stitched_means(find: Find) -> str:
    """The means that the paper states, that its table gives, and that are found here."""
    by_peer = {"XLA": [one.xla.ms / one.own.ms for one in STITCHED],
               "TensorFlow": [one.tensorflow.ms / one.own.ms for one in STITCHED]}  # fmt: skip
    told = [f"over {peer} {STATED_BY_STITCHING[peer]} (arithmetic {arithmetic(found):.2f}, geometric "
            f"{geometric(found):.2f})" for peer, found in by_peer.items()]  # fmt: skip
    return (f"Mean speedups as the paper states them, and as its table gives them: {', '.join(told)}; "
            f"{own_mean(find, [one.row for one in STITCHED if one.row])}.")  # fmt: skip


# ---- SOUFFLE ---------------------------------------------------------------------------------------------------------


def fused_table(find: Find) -> Table:
    """A line for each model of the paper."""
    header = ("model", "speedup over XLA", "over TensorRT", "row here", "redalg's speedup over Inductor",
              "over Inductor's longest search", "over PyTorch, or cuDNN", "redalg, ms", "differs")  # fmt: skip
    return Table(header, [fused_cells(one, find(one.row)) for one in FUSED])


def fused_cells(one: Fused, here: Measured) -> tuple[str, ...]:
    """The line of a model; a contestant that its row does not have is a dash."""
    time_us, contestants = here.time_us(OWN), contestants_of(MODELS[one.row.rpartition("-x")[0]], autotuned=True)
    beside = [speedup_cell(here, name) if name in contestants else "–" for name in (PEER, AUTOTUNED)]
    return (one.model, *(f"{speedup:.2f}" for speedup in speedups_of(one)), one.row, *beside,
            speedup_cell(here, LIBRARY, PLAIN), cell(None if time_us is None else time_us / 1e3, ".4g"),
            one.differs)  # fmt: skip


def speedups_of(one: Fused) -> list[float]:
    """SOUFFLE's speedups over XLA and over TensorRT."""
    return [one.ms[name] / one.ms[SOUFFLE] for name in (XLA, TENSORRT)]


def fused_means(find: Find) -> str:
    """The means that the abstract states, that its table gives, and that are found here."""
    found = {name: [one.ms[name] / one.ms[SOUFFLE] for one in FUSED] for name in (TENSORRT, XLA)}
    told = [f"{STATED_BY_SOUFFLE[name]} over {name} (arithmetic {arithmetic(each):.2f}, geometric "
            f"{geometric(each):.2f})" for name, each in found.items()]  # fmt: skip
    return (f"The abstract states geometric means of {' and '.join(told)}: they are the arithmetic ones of Table 3; "
            f"{own_mean(find, [one.row for one in FUSED])}.")  # fmt: skip


def own_mean(find: Find, rows: Sequence[str]) -> str:
    """The mean of redalg's speedups over Inductor, of the rows that were measured, as text."""
    here = geometric(find(row).speedup(PEER) for row in rows)
    known = "not measured yet" if here is None else f"{here:.2f}, geometric, of the rows that are measured"
    return f"redalg's over Inductor: {known}"


def traffic_table(find: Find) -> Table:
    """A line for each model: kernels and megabytes, as stated and here."""
    header = ("model", "kernels, XLA → TensorRT → SOUFFLE", "MB, TensorRT → SOUFFLE", "row here",
              "kernels, PyTorch → Inductor → redalg", *(f"{title}, Inductor → redalg" for title in FIELDS.values()),
              )  # fmt: skip
    return Table(header, [traffic_cells(one, find(one.row)) for one in FUSED])


def traffic_cells(one: Fused, here: Measured) -> tuple[str, ...]:
    """The line of a model."""
    peer = LIBRARY if LIBRARY in here.line.get("contestants", {}) else PEER
    return (one.model, steps([one.kernels[name] for name in (XLA, TENSORRT, SOUFFLE)], "d"),
            steps([one.megabytes[name] for name in (TENSORRT, SOUFFLE)]),
            one.row + (f", {LIBRARY} for Inductor" if peer == LIBRARY else ""),
            steps([here.kernels(name) for name in (PLAIN, peer, OWN)], "d"),
            *(steps([here.megabytes(name, field) for name in (peer, OWN)]) for field in FIELDS),
            )  # fmt: skip


def levels_table(ablation: Document) -> Table:
    """The paper's times by level, and below each the figures of the model's kind here."""
    lines = {line["name"]: line for line in ablation["rows"]}
    rows = list[tuple[str, ...]]()
    for one in FUSED:
        rows.append((one.model, "SOUFFLE, ms", *(f"{ms:g}" for ms in one.levels_ms)))
        for name in one.ablated:
            levels = lines.get(name, {}).get("levels", {})
            if levels or name == one.ablated[0]:
                rows += [(name, quantity, *(level_cell(levels.get(level), field, by) for level in LEVELS))
                         for quantity, (field, by) in QUANTITIES.items()]  # fmt: skip
    return Table(("model", "of", *LEVELS), rows)


QUANTITIES = {"kernels": ("kernels", 1.0), "MB": ("bytes", MEGABYTE), "µs": ("time_us", 1.0)}
"""What is found at a level: its field in the document, and its unit."""


def level_cell(level: Mapping[str, Any] | None, field: str, by: float) -> str:
    """A figure of a level; empty if it is not there."""
    value = None if level is None else level[field]
    return "" if value is None else f"{value / by:.4g}"


def lacking_levels(ablation: Document) -> str:
    """The models of which levels were not measured, or counted alone."""
    lines = {line["name"]: line for line in ablation["rows"]}
    known = [name for one in FUSED for name in one.ablated if name in lines]
    absent = [one.model for one in FUSED if lines.keys().isdisjoint(one.ablated)]
    untimed = [name for name in known if any(level["time_us"] is None for level in lines[name]["levels"].values())]
    told = {"Not measured yet": absent, "Counted without times, on a machine without a GPU": untimed}
    return " ".join(f"{title}: {'; '.join(names)}." for title, names in told.items() if names) + "\n"


def modules_text(find: Find) -> str:
    """The means over modules as the paper states them, and here."""
    stated = " and ".join(f"{value} with {name}" for name, value in SPEEDUPS_OF_MODULES.items())
    said = f"The paper states average speedups over unfused kernels of {stated}, of ten modules in float32."
    found = {name: [find(row).speedup(peer) for row in MODULES] for name, peer in
             (("PyTorch's kernels", PLAIN), ("Inductor's", PEER))}  # fmt: skip
    lacks = [row for row, value in zip(MODULES, found["Inductor's"], strict=True) if value is None]
    here = ", ".join(f"{geometric(values):.2f} over {name} (arithmetic {arithmetic(values):.2f})"
                     for name, values in found.items() if geometric(values) is not None)  # fmt: skip
    own = f"Here, of the modules' published sizes in CUDA graphs, geometric means: {here}." if here else ""
    absent = f"Not measured yet: {', '.join(lacks)}." if lacks else ""
    compared = ("Unfused kernels of Ansor's are not PyTorch's, and modules here begin after the convolution of each "
                "channel; the sizes are the paper's.")  # fmt: skip
    return " ".join(filter(None, (said, own, absent, compared)))


# ---- what lacks ------------------------------------------------------------------------------------------------------


def lacking(find: Find, rows: set[str], kinds: tuple[str, ...]) -> str:
    """A line that names the rows that were not measured, by what lacks."""
    has: dict[str, Callable[[Measured], bool]] = {
        "time": lambda here: here.time_us(OWN) is not None,
        "kernels": lambda here: here.kernels(OWN) is not None,
        "bytes": lambda here: here.megabytes(OWN) is not None,
    }
    found = {kind: sorted(row for row in rows if not has[kind](find(row))) for kind in kinds}
    told = [f"{kind} of {', '.join(names)}" for kind, names in found.items() if names]
    return f"Not measured yet: {'; '.join(told)}.\n" if told else "All of these were measured.\n"
