"""The share of the device's limits that every contestant reaches.

A family of matrix products: TFLOP/s against FLOPs per byte, under the ceilings of memory and of matrix instructions
(`redalg.strategies.device`). One that counts no FLOPs: TB/s against bytes, under memory's.
"""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.plots.figure import COLOURS, canvas, legend, logarithmic
from redalg.strategies.device import CARDS, DeviceSpec, card_of

Document = dict[str, Any]
CAPABILITIES = {"sm_90a": (9, 0), "sm_89": (8, 9), "sm_86": (8, 6), "sm_80": (8, 0)}
EIGHT_BITS = "float8"


def card(content: Document) -> DeviceSpec | None:
    """The card that a document was measured on, where its limits are known."""
    where = content["environment"]
    name = card_of(where["device"], CAPABILITIES.get(where["target"], (0, 0)))
    return CARDS.get(name or "")


def roofline(content: Document) -> Figure:
    """The picture of a family's document."""
    counted = any(line["flops"] for line in content["rows"])
    across, up = ("FLOPs per byte", "TFLOP/s") if counted else ("bytes", "TB/s")
    what = "arithmetic" if counted else "bandwidth"
    title = f"{content['benchmark']} on {content['environment']['device']}: {what} against its ceiling"
    figure, axes = canvas(title, across, up, 6.4, 4.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, points in reached(content, counted=counted).items():
        across_of, up_of = zip(*points, strict=True)
        axes.scatter(across_of, up_of, s=18, color=COLOURS[name], label=name.lstrip("_"))
    spec = card(content)
    if spec is not None:
        ceilings(axes, content, spec, counted=counted)
    logarithmic(axes.xaxis)
    logarithmic(axes.yaxis)
    legend(axes)
    return figure


def reached(content: Document, *, counted: bool) -> dict[str, list[tuple[float, float]]]:
    """By contestant, a point a row: bytes are those of inputs and outputs, each once."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in content["rows"]:
        for name, contestant in line["contestants"].items():
            if "median_us" in contestant and (line["flops"] or not counted):
                found.setdefault(name, []).append(point(line, contestant["median_us"], counted=counted))
    return found


def point(line: Mapping[str, Any], time_us: float, *, counted: bool) -> tuple[float, float]:
    """The point of a time.

    >>> point({"flops": 4e9, "bytes": 1e6}, 10.0, counted=True), point({"bytes": 1e6}, 10.0, counted=False)
    ((4000.0, 400.0), (1000000.0, 0.1))
    """
    if counted:
        return line["flops"] / line["bytes"], line["flops"] / time_us / 1e6
    return line["bytes"], line["bytes"] / time_us / 1e6


def ceilings(axes: Axes, content: Document, spec: DeviceSpec, *, counted: bool) -> None:
    """The device's own lines, as far as the points reach."""
    low, high = axes.get_xlim()
    memory = spec.memory_gb_s / 1e3
    if not counted:
        axes.axhline(memory, color="black", linewidth=0.9, label=f"memory, {memory:g} TB/s")
        return
    eight = any(dtype.startswith(EIGHT_BITS) for line in content["rows"] for dtype in line["dtypes"].values())
    for peak, bits in ((spec.product_tflops, 16), *(((2 * spec.product_tflops, 8),) if eight else ())):
        ridge = peak / memory
        line = [(one, min(peak, memory * one)) for one in sorted({low, min(max(ridge, low), high), high})]
        style = "-" if bits == 16 else "--"
        axes.plot(*zip(*line, strict=True), style, color="black", linewidth=0.9,
                  label=f"memory, {memory:g} TB/s;\nproducts of {bits} bits, {peak} TFLOP/s")  # fmt: skip
    axes.set_xlim(low, high)
