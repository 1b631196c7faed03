"""The backward of a cascade, derived: reverse mode on what the user wrote, as cascades that the same engine fuses.

written  →  RowValues  the reductions of row size, which the forward saves (`rows`), but for pivots (`invariant`)
         →  adjoints   the gradient of every row value and of every tensor, as expressions (`reverse`, `rules`)
         →  Backward   stages of such expressions, fused, in the order in which they are run (`derive`, `backward`)
"""

from redalg.gradient.backward import Backward, Stage
from redalg.gradient.derive import derive_backward

__all__ = ["Backward", "Stage", "derive_backward"]
