"""The worth of each choice, as the papers ask: `python -m benchmarks run funnel smem levels incremental exhaustive`.

`transformations` is of graphs; `choices` are the rules' own.
"""

from benchmarks.ablations.ablation import Ablation
from benchmarks.ablations.choices import Choices
from benchmarks.ablations.exhaustive import Exhaustive
from benchmarks.ablations.funnel import Pruning
from benchmarks.ablations.incremental import Incremental
from benchmarks.ablations.levels import Levels
from benchmarks.ablations.model import Model
from benchmarks.ablations.smem import SharedMemory
from benchmarks.ablations.transformations import Worth
from benchmarks.ablations.tuning import Tuning

EVERY = (
    Pruning(), SharedMemory(), Model(), Levels(), Incremental(), Tuning(), Exhaustive(), Choices(), Worth(),
)  # fmt: skip
ABLATIONS: dict[str, Ablation] = {ablation.name: ablation for ablation in EVERY}
