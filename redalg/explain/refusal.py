"""A verdict without a form, in text, LaTeX and HTML: the reduction, the reason, the evidence, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from redalg.errors import TERM, NotDecided
from redalg.explain import html, latex, text
from redalg.explain.model import Notice, Sentence, sentence


class Negative(Protocol):
    """The properties that a refusal and an undecided verdict share, as errors or as values."""

    @property
    def subject(self) -> str:
        """The reduction that decides, in words."""

    @property
    def term(self) -> str:
        """The term that it reduces."""

    @property
    def reason(self) -> str:
        """The reason for the verdict."""

    @property
    def hint(self) -> str:
        """The advice: what could be done instead."""

    @property
    def evidence(self) -> tuple[str, ...]:
        """The evidence that was looked at."""


def explain_refusal(found: Negative, medium: str = "text", width: int = text.WIDTH) -> str:
    """Explain a refusal or an undecided verdict to a reader.

    Args:
        found: `NotFusible` or `NotDecided`, as an error or as the value that `analyze` gives.
        medium: "text", "latex" (one displayed block for MathJax) or "html".
        width: the most columns of a line of text.

    Returns:
        The explanation; code, such as a term, stands in typewriter letters.

    Raises:
        KeyError: the medium is none of the three.

    >>> import redalg as ra
    >>> n, x = ra.axes("n"), ra.tensor("x[n]")
    >>> refused = ra.analyze(ra.sum(abs(x - ra.mean(x, n)), n))
    >>> explain_refusal(refused).splitlines()[0]
    'Not fusible: no state of fixed size exists'
    """
    with text.at_most(width):
        return MEDIA[medium](notice(found))


MEDIA = {"text": text.notice_text, "latex": latex.notice_latex, "html": html.notice_html}
CALL = re.compile(r"`(ra\.fuse\([^`]*\)|redalg [^`]*)`")
"""The call in a hint, or the command."""
MEANING = re.compile(r"`\w+` is the ")
"""The beginning of a fact that says what a reduction is."""


def notice(found: Negative, *, brief: bool = False) -> Notice:
    """The heading and the labelled sentences about a verdict; if brief, without the reason and the evidence."""
    return Notice(heading(found), tuple(entry for entry in entries(found) if not brief or entry[0] in BRIEF))


def heading(found: Negative) -> str:
    """The heading, which states how sure the verdict is: only a refusal says if a theorem stands behind it."""
    if not refuses(found):
        return "Undecided: no form found, and none excluded"
    if getattr(found, "certificate", False):
        return "Not fusible: no state of fixed size exists"
    return "Not fusible, as far as samples show: no state of fixed size found"


def refuses(found: Negative) -> bool:
    """Tell if the verdict is a refusal, not an undecided one."""
    return hasattr(found, "certificate") and not isinstance(found, NotDecided)


def entries(found: Negative) -> Iterator[tuple[str, Sentence]]:
    """The labelled sentences: the verdict in plain words, then its proof or evidence, then the call to make."""
    named = f", which reduces `{found.term}`" if found.term and found.term not in found.subject else ""
    yield "reduction", sentence(found.subject.removeprefix("reduction ") + named)
    for fact in found.evidence:
        if MEANING.match(fact):
            yield "where", sentence(fact)
    yield "means", sentence(plain_words(found))
    yield "because", sentence(found.reason)
    for fact in found.evidence:
        if fact not in found.reason and not fact.startswith(TERM) and not MEANING.match(fact):
            yield "evidence", sentence(fact)
    yield "instead" if refuses(found) else "try", sentence(found.hint)
    if calls := CALL.findall(found.hint):
        yield "call", sentence(f"`{calls[-1]}`")


BRIEF = ("reduction", "where", "means", "instead", "try", "call")
"""The labels of the brief form."""


def plain_words(found: Negative) -> str:
    """The verdict for a reader who knows no algebra."""
    if not refuses(found):
        return ("redalg found no way to compute it in one pass, and no proof that there is none. "
                "Another spelling, or a fact about the inputs, may decide it.")  # fmt: skip
    if getattr(found, "certificate", False):
        return ("One pass over the data cannot give it, however it is written: at every element it "
                "needs a result that is known at the end, and no fixed amount of memory stands for the elements that "
                "are gone by then. This is proved.")  # fmt: skip
    return ("At every element, it needs a result that is known at the end. A few sums that one pass "
            "could keep do not replace the elements: samples exclude it. They are evidence, not a proof.")  # fmt: skip
