"""The verdict on a finding: a refusal if a theorem and samples, or samples in 120 digits, say no; else undecided."""

from __future__ import annotations

from math import prod

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.parse.parse import UNROLL_LIMIT
from redalg.decompose.samples.memberships import MEMBERS
from redalg.decompose.samples.rank import SMALL, RankTest
from redalg.decompose.samples.winners import ENDS
from redalg.decompose.separate.theorems import NotSeparable
from redalg.errors import NotDecided, NotFusible, Text
from redalg.expression.contents import elements_of, free_axes, values_of


def verdict_of_finding(
    reduction: Reduction, finding: NotSeparable, test: RankTest, cascade: Cascade, *, whole: bool = True
) -> NotFusible | NotDecided:
    """The exception for a finding: a refusal if a theorem and the samples, or the samples in digits, say no.

    Args:
        reduction, finding, test, cascade: a reduction without a state, the reason, its test at samples, its cascade.
        whole: False if the samples are of the outputs, which may not need the reduction.
    """
    reason, general = finding.text, isinstance(finding.reason, Text) and finding.reason.parts[-1] == GENERAL
    looked: tuple[object, ...] = (Text("term: ", reduction.term), reason, Text("rank test: ", test))
    extremum = reduction.monoid.name in {**ENDS, **MEMBERS}  # whose theorems are about elements, not about ranks
    if not whole:
        text = Text(reason, f"{GENERAL}. {needlessness_remark(test)}.")
        return NotDecided(reduction.name, text, finding.hint, looked)
    if not has_data_of_any_length(reduction, cascade):
        looked += ("its elements take few values, for which the theorem and the samples do not speak",)
    elif finding.certain and (test.grows or extremum):
        reason = Text(reason, f". {no_state(cascade)} holds what d, once known, would need of the elements "
                       "already read.")  # fmt: skip
        return NotFusible(reduction.name, reason, finding.hint, looked, True)
    elif test.grows and test.proven:
        reason = Text(reason, f"; {PROVEN}.")
        return NotFusible(reduction.name, reason, finding.hint, looked)
    if test.settles:
        looked += (f"the rank looks like {test.ranks[1]}; no separation was found",)
        if finding.certain or general:
            reason = Text(reason, "" if general else GENERAL, f". {contradiction_remark(test)}")
    return NotDecided(reduction.name, Text(reason, "."), finding.hint, looked)


GENERAL = " in general"
"""The remark on a theorem that does not cover the term."""


PROVEN = (f"it is no sum of at most {SMALL} products of a function of x and one of d, since its matrix at samples, in "
          f"120 digits, has a minor of order {SMALL + 1} that is not 0")  # fmt: skip
"""The fact that samples prove alone: every such minor of such a sum is 0."""


def contradiction_remark(test: RankTest) -> str:
    """The remark on samples that contradict a theorem, which is about its node alone."""
    rank = test.ranks[1]
    if not rank:
        return "Yet the term is 0 at every sample, as where a condition is seldom met: samples do not tell"
    product = "of a function of x and one of d"
    products = f"one product {product}" if rank == 1 else f"a sum of {rank} products {product}"
    return f"Yet at {test.rows} samples of x the term has the rank of {products}, which redalg did not find"


def needlessness_remark(test: RankTest) -> str:
    """The remark on samples of outputs that may not need a reduction."""
    if not test.ranks[1]:
        return "Yet at samples no output moves with it"
    return (f"Yet at {test.rows} samples of x the outputs move with all that has no form in {test.ranks[1]} ways at "
            "most, in which it may cancel")  # fmt: skip


def no_state(cascade: Cascade) -> str:
    """The state that does not exist: one of fixed size; over axes of known sizes the elements themselves are one."""
    if any(axis.size is None for axis in cascade.reduced_axes):
        return "No state of fixed size"
    return "No state whose size does not grow with " + "·".join(f"|{axis}|" for axis in cascade.reduced_axes)


def has_data_of_any_length(reduction: Reduction, cascade: Cascade) -> bool:
    """Tell if x is data of any length: not the index alone, and not so few elements that a state may hold them.

    The theorems say that functions of x at different d are independent, which takes enough of x; the samples show if d
    takes enough values.
    """
    inputs = elements_of(reduction.term) | (values_of(reduction.term) - set(cascade.values))
    data = any(set(cascade.reduced_axes) & free_axes(one) for one in inputs)
    sizes = [axis.size for axis in cascade.reduced_axes if axis.size is not None]
    return data and (len(sizes) < len(cascade.reduced_axes) or prod(sizes) > UNROLL_LIMIT)
