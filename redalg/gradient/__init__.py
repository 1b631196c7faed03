"""The derivatives of a cascade, derived on what the user wrote, as cascades that the same engine fuses.

backward:
written  →  written    with sums of exponentials about their maxima (`exponentials`)
         →  RowValues  the reductions of row size, which the forward saves (`rows`), but for pivots (`invariant`)
         →  adjoints   the gradient of every row value and of every tensor, as expressions (`reverse`, `rules`)
         →  Backward   stages of such expressions, fused, in the order in which they are run (`derive`, `backward`)

forward mode:
written  →  tangents   of the outputs, linear in those of the tensors, by the rules of the adjoints (`tangents`)
         →  Forward    one stage of all, if one form makes them (`derive_forward`, `forward`)
"""

from redalg.gradient.backward import Backward
from redalg.gradient.derive import derive_backward
from redalg.gradient.derive_forward import derive_forward
from redalg.gradient.forward import Forward
from redalg.gradient.stage import JointStage, Stage

__all__ = ["Backward", "Forward", "JointStage", "Stage", "derive_backward", "derive_forward"]
