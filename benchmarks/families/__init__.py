"""The families, each in a file of its own. A new one is a file here and a name in `FAMILIES`."""

from benchmarks.families.mha import Mha
from benchmarks.families.quant import Quant
from benchmarks.family import Family

FAMILIES: dict[str, Family] = {one.name: one for one in (Mha(), Quant())}
