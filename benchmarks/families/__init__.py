"""The families, each in a file of its own. A new one is a file here and a name in `FAMILIES`."""

from benchmarks.families.attention_small import SMALL
from benchmarks.families.backwards import Backwards
from benchmarks.families.beside import BESIDE
from benchmarks.families.chains import Chains
from benchmarks.families.columns import Columns
from benchmarks.families.covariances import Covariances
from benchmarks.families.losses import Losses
from benchmarks.families.masks import Masks
from benchmarks.families.mha import MHA
from benchmarks.families.mla import Mla
from benchmarks.families.moe import Moe
from benchmarks.families.pairs import PAIRS
from benchmarks.families.quant import Quant
from benchmarks.families.rows import Rows
from benchmarks.families.selection import Selection
from benchmarks.families.semirings import SEMIRINGS
from benchmarks.families.statistics import Inertia, Variance
from benchmarks.families.uses import USES
from benchmarks.families.workloads import WORKLOADS_OF_OTHERS
from benchmarks.family import Family

ALL: tuple[Family, ...] = (
    MHA, Mla(), Moe(), Quant(), Variance(), Inertia(), Rows(), PAIRS, SEMIRINGS, Covariances(), Selection(),
    Columns(), Losses(), Masks(), WORKLOADS_OF_OTHERS, BESIDE, Chains(), SMALL, USES,
    Backwards(),
)  # fmt: skip
FAMILIES = {family.name: family for family in ALL}
UNFITTED = frozenset({"pairs", "semirings", "covariances", "selection", "columns", "losses", "masks",
                      "workloads", "beside", "backwards"})  # fmt: skip
"""Families to which no constant of the cost model is fitted: their plans, where some are drawn, test it."""
