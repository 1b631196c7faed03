"""Cascade -> the fewest decompositions that compute it, one a pass over the data; or the refusal, with its hint."""

from __future__ import annotations

from redalg.decompose.cascade import Cascade
from redalg.decompose.separate.rounding import one_pass_sentence
from redalg.decompose.verdict.passes import Advice, decompose_in_passes, passes_in_words
from redalg.decompose.verdict.verdict import Decomposition, decompose
from redalg.decompose.verdict.words import in_words_of, meanings
from redalg.errors import NotDecided, NotFusible, Text


def fewest_decompositions(cascade: Cascade, most: int, *, exact: bool) -> tuple[Decomposition, ...]:
    """F = Σ h·g of each reduction, in the fewest passes, or a witness that there is none."""
    try:
        decomposition = decompose(cascade)
        if not decomposition.roundings or not (exact or most > 1):
            return (decomposition,)
        [reduction, rounding], *_ = decomposition.roundings
        why: NotFusible | NotDecided = NotFusible(
            reduction.name, one_pass_sentence(rounding), "", (Text("term: ", reduction.term),)
        )
    except (NotFusible, NotDecided) as refusal:
        why = refusal
    several = decompose_in_passes(cascade, most, exact=exact) if most > 1 else None
    if several is not None:
        return several
    advice = Advice(cascade, str(in_words_of(cascade, why.advice, why.why)))
    said, *looked = (in_words_of(cascade, one, why.why) for one in (why.why, *why.looked))
    looked[1:1] = meanings(cascade, *why.looked)
    reason = f"{said} {too_few(advice, most)}" if most > 1 else said
    raise type(why)(why.reduction, reason, advice, tuple(looked), why.certificate) from None


def too_few(advice: Advice, most: int) -> str:
    """The sentence that says how many passes there would have to be."""
    if advice.passes is None:
        return f"In {passes_in_words(most)} neither."
    return (
        f"It takes {passes_in_words(advice.passes)}, and `passes={most}` allows no more than {passes_in_words(most)}."
    )
