"""What each choice is worth, as the papers ask: `python -m benchmarks.ablations NAME --out DIR`."""

from typing import Any

from matplotlib.figure import Figure

from benchmarks.ablations.ablation import Ablation
from benchmarks.ablations.funnel import Pruning
from benchmarks.ablations.incremental import Incremental
from benchmarks.ablations.levels import Levels
from benchmarks.ablations.model import Model
from benchmarks.ablations.smem import SharedMemory
from benchmarks.ablations.tuning import Tuning

ABLATIONS: dict[str, Ablation] = {
    one.name: one for one in (Pruning(), SharedMemory(), Model(), Levels(), Incremental(), Tuning())
}


def picture_of(content: dict[str, Any]) -> Figure:
    """The picture of an ablation's document."""
    return ABLATIONS[content["ablation"]].picture(content)
