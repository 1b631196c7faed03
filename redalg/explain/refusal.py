"""A verdict without a form, in text, LaTeX and HTML: which reduction, why, what was looked at, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from redalg.errors import Undecided
from redalg.explain import html, latex, text
from redalg.explain.model import Notice, Sentence, sentence


class Negative(Protocol):
    """What a refusal and what is undecided have, be they errors or values."""

    @property
    def reduction(self) -> str:
        """The name of the reduction that decides."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def hint(self) -> str:
        """What could be done instead."""

    @property
    def evidence(self) -> tuple[str, ...]:
        """What was looked at."""


def explain_refusal(found: Negative, medium: str = "text") -> str:
    """A refusal, or what is undecided, for a reader.

    Args:
        found: `NotFusible` or `Undecided`, as an error or as the value that `analyze` gives.
        medium: "text" (at most 100 columns), "latex" (one displayed block for MathJax) or "html".

    Returns:
        The explanation; what was typed, such as a term, stands in typewriter letters.

    Raises:
        KeyError: the medium is none of the three.

    >>> import redalg as ra
    >>> n, x = ra.axes("n"), ra.tensor("x[n]")
    >>> refused = ra.analyze(ra.sum(abs(x - ra.mean(x, n)), n))
    >>> explain_refusal(refused).splitlines()[0]
    'Not fusible: no state of fixed size exists'
    """
    return MEDIA[medium](notice(found))


MEDIA = {"text": text.noticed, "latex": latex.noticed, "html": html.noticed}


def notice(found: Negative) -> Notice:
    """What is said of it."""
    return Notice(heading(found), tuple(entries(found)))


def heading(found: Negative) -> str:
    """How sure it is: only a refusal says whether a theorem stands behind it."""
    if not refuses(found):
        return "Undecided: no form found, and none excluded"
    if getattr(found, "certificate", False):
        return "Not fusible: no state of fixed size exists"
    return "Not fusible, as far as samples show: no state of fixed size found"


def refuses(found: Negative) -> bool:
    """Whether it says no, rather than nothing."""
    return hasattr(found, "certificate") and not isinstance(found, Undecided)


def entries(found: Negative) -> Iterator[tuple[str, Sentence]]:
    """The labelled sentences."""
    yield "reduction", sentence(f"`{found.reduction}`")
    yield "because", sentence(found.reason)
    for one in found.evidence:
        if one not in found.reason:
            yield "looked at", sentence(typed(one))
    yield "instead" if refuses(found) else "try", sentence(found.hint)


def typed(evidence: str) -> str:
    """The term of the evidence as code."""
    label, colon, rest = evidence.partition(": ")
    return f"{label}: `{rest}`" if colon and label == "term" and "`" not in rest else evidence
