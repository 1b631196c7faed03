"""The verdict on a cascade, as a value: what `analyze` gives where `fuse` returns or raises.

    Verdict := Exact(fused)                                                 a one-pass form, equal up to rounding
             | Approximate(fused)                                           one that rounds otherwise, within a bound
             | Refused(reduction, reason, hint, evidence, certificate)      no state of fixed size
             | Undecided(reduction, reason, hint, evidence)                 neither was found

`Exact` rests on an algebraic identity. `Refused` rests on a theorem (`certificate`), or on samples in 120 digits that
exclude every separation of a small rank. What is `Undecided` is neither: the rank test may hint at a state, and no
separation was found.

In a notebook a verdict shows its derivation, or its reasons, as HTML or LaTeX; `explain()` gives them as text, and
`str` a refusal in sentences.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, final

from sympy import Expr

from redalg.decompose.separate.rounding import exact_forms, one_pass_sentence
from redalg.decompose.verdict.verdict import Decomposition
from redalg.display import Brief
from redalg.errors import InputError, NotDecided, NotFusible, Reasons
from redalg.explain import (
    Request,
    conditions_text,
    explain_form,
    explain_html,
    explain_latex,
    explain_refusal,
    explain_verdict,
)
from redalg.expression.arguments import answer_methods
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes


class Analysed(Protocol):
    """The parts of a fused cascade that verdicts read."""

    @property
    def decomposition(self) -> Decomposition:
        """The reductions, separated."""

    @property
    def form(self) -> FusedForm:
        """The state, and how it is made, merged and finished."""

    @property
    def passes(self) -> Passes:
        """The forms of all passes, in order."""

    @property
    def bound(self) -> dict[str, Expr]:
        """By reduction, the most by which roundings may move it."""


F = TypeVar("F", bound=Analysed)


@answer_methods(InputError)
@dataclass(frozen=True, repr=False)
class Derived(Brief, Generic[F]):
    """A verdict with a form, shown as its derivation.

    Attributes:
        fused: the form, as `fuse` gives it.
    """

    fused: F

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions under which the form is the definition, in sentences: none as a rule.

        They are about data that are not finite, of which `decompose.conventions` says what they mean; `explain` and the
        verdict's text hold them too.

        >>> import redalg as ra
        >>> from sympy import exp
        >>> x, n = ra.tensor("x[n]"), ra.axes("n")
        >>> ra.analyze(ra.logsumexp(x, n)).conditions
        ()
        >>> ra.analyze(ra.sum(exp(x) * x, n) / ra.sum(exp(x), n)).conditions[0]
        'Where x[n] is −∞ an element has no weight: its terms are 0, whatever stands beside the weight.'
        """
        return conditions_text(self.fused.decomposition, self.fused.form)

    @abstractmethod
    def __str__(self) -> str: ...

    def explain(
        self, section: str | Sequence[str] | None = None, *, brief: bool = False, width: int | None = None,
        format: str = "text",
    ) -> str:  # fmt: skip
        """The derivation: all of it, its brief form, or sections by name. Arguments and errors as of `Fused.explain`.

        >>> import redalg as ra
        >>> print(ra.analyze(ra.mean(ra.tensor("x[b,n]"), ra.axes("n"))).explain(section="state", width=60))
        out[b] in one pass over n
        ═════════════════════════
        One pass, with a state of 1 float per b and 1 integer,
        whatever |n| is.
        <BLANKLINE>
        1  The state, and what is placed where ─────────────────────
        <BLANKLINE>
                 slot    what              one per    of
             1   count   count (integer)   all rows   1
             2   sum_0   sum               b          x[b,n]
        """
        request = Request(section, brief, width, format)
        return explain_form(self.fused.decomposition, self.fused.passes, request)

    def __repr__(self) -> str:
        return self.explain(brief=True)

    def _repr_latex_(self) -> str:
        return explain_latex(self.fused.decomposition, self.fused.passes)

    def _repr_html_(self) -> str:
        return explain_html(self.fused.decomposition, self.fused.passes)


@answer_methods(InputError)
@dataclass(frozen=True, repr=False)
class Reasoned(Reasons, Brief):
    """A verdict without a form, shown as its reasons.

    Attributes:
        reduction: name of the reduction that decides it, such as `"sum_1"`.
        why: prints as the reason.
        advice: prints as the hint.
        looked: prints as the evidence.
    """

    reduction: str
    why: object
    advice: object
    looked: tuple[object, ...]

    @abstractmethod
    def __str__(self) -> str: ...

    def explain(
        self, section: str | Sequence[str] | None = None, *, brief: bool = False, width: int | None = None,
        format: str = "text",
    ) -> str:  # fmt: skip
        """The verdict in plain words, the reason, the evidence, and at last the call to make.

        Args:
            section: a label or several, such as `"evidence"`; None for all.
            brief: without the reason and the evidence.
            width, format: as of `Fused.explain`.

        >>> import redalg as ra
        >>> n, x = ra.axes("n"), ra.tensor("x[n]")
        >>> print(ra.analyze(ra.sum(abs(x - ra.mean(x, n)), n)).explain(section="call"))
        Not fusible: no state of fixed size exists
        ──────────────────────────────────────────
        call   `ra.fuse(…, passes=2)`
        """
        return explain_verdict(self, Request(section, brief, width, format))

    def __repr__(self) -> str:
        return self.explain(brief=True)

    def _repr_latex_(self) -> str:
        return explain_refusal(self, "latex")

    def _repr_html_(self) -> str:
        return explain_refusal(self, "html")


@final
@dataclass(frozen=True, repr=False)
class Exact(Derived[F]):
    """A one-pass form exists and equals the definition up to rounding, under its `conditions` if it has any.

    >>> import redalg as ra
    >>> verdict = ra.analyze(ra.logsumexp(ra.tensor("x[n]"), ra.axes("n")))
    >>> isinstance(verdict, ra.Exact), [str(slot) for slot in verdict.fused.state]
    (True, ['max_0[] extremum', 'sum_0[] accumulator'])
    """

    def __str__(self) -> str:
        return self.explain()


@final
@dataclass(frozen=True, repr=False)
class Approximate(Derived[F]):
    """A one-pass form exists that rounds otherwise than the definition does; `bound` says by how much at most.

    The definition itself takes two passes: `fuse(…, exact=True)`.

    >>> import redalg as ra
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> verdict = ra.analyze(ra.sum(ra.cast(x / ra.max(abs(x), n), "float16"), n))
    >>> isinstance(verdict, ra.Approximate), verdict.bound
    (True, {'sum_0': sum(Abs(x[n]/max_0)/1024 + 1/16777216, n)})
    >>> verdict.evidence
    ('in `sum_0`, `cast(x[n]/max_0, float16)` differs by at most Abs(x[n]/max_0)/1024 + 1/16777216',)
    >>> print(verdict.reason)
    `cast(x[n]/max_0, float16)` rounds elements that a running value scales, and rounding does not commute with ...
    >>> print(verdict.hint)
    The definition takes two passes: `ra.fuse(…, exact=True)`. Or round the scale to a power of 2, as in ...
    """

    @property
    def reason(self) -> str:
        """The sentences that say what is rounded while what it depends on is still running."""
        return " ".join(one_pass_sentence(one) for _, one in self.fused.decomposition.roundings)

    @property
    def hint(self) -> str:
        """The exact forms."""
        (_, rounding), *_ = self.fused.decomposition.roundings
        return exact_forms(rounding)

    @property
    def bound(self) -> dict[str, Expr]:
        """By reduction, Σ over the elements of the most by which the rounded ones may move the sum."""
        return self.fused.bound

    @property
    def evidence(self) -> tuple[str, ...]:
        """The roundings, each with the reduction that it stands in and its bound for one element."""
        return tuple(f"in `{reduction.name}`, `{rounding.cast}` differs by at most {rounding.bound}"
                     for reduction, rounding in self.fused.decomposition.roundings)  # fmt: skip

    def __str__(self) -> str:
        """Say what is approximate, by how much at most, and what is exact."""
        return " ".join(
            [
                "One pass approximates the definition.",
                self.reason,
                *evidence_sentences("", self.evidence),
                self.hint,
                *self.conditions,
            ]
        )


@final
@dataclass(frozen=True, repr=False)
class Refused(Reasoned):
    """No state of fixed size exists, or no separation of a small rank.

    Attributes:
        reduction, why, advice, looked: as in `Reasoned`.
        certificate: True if a theorem says that none exists; False if samples in 120 digits exclude small ones.

    >>> import redalg as ra
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> verdict = ra.analyze(ra.mean(abs(x - ra.mean(x, n)), n))
    >>> isinstance(verdict, ra.Refused), verdict.reduction, verdict.certificate, verdict.evidence[0]
    (True, 'sum_1', True, 'term: Abs(x[n] - mean(x[n], n))')
    >>> print(verdict.reason)
    `Abs(x[n] - mean(x[n], n))` has a kink where its argument is 0, which moves with `mean(x[n], n)`: ...
    >>> print(verdict.hint)
    Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[n], n)` first, then the rest with it as a tensor.
    """

    certificate: bool = False

    def __str__(self) -> str:
        """The refusal in sentences: how sure it is, why, what was looked at and what to do."""
        sure = "no state of fixed size, by a theorem" if self.certificate else "no separation of small rank, by samples"
        return paragraph(f"{sentence_case(self.subject)} has {sure}.", self)


@final
@dataclass(frozen=True, repr=False)
class Undecided(Reasoned):
    """Neither a form nor a refusal was found.

    >>> import redalg as ra
    >>> x, n, base = ra.tensor("x[n]"), ra.axes("n"), ra.scalars("base")
    >>> verdict = ra.analyze(ra.sum(base ** (x - ra.sum(x, n)), n))
    >>> verdict.reduction, verdict.evidence[0]
    ('sum_1', 'term: base**(x[n] - sum(x[n], n))')
    >>> print(verdict.reason)
    `base**(x[n] - sum(x[n], n))` is real only where `base` is not negative, which is not known.
    >>> print(verdict.hint)
    Declare it: `ra.scalars('base', positive=True)`. Or run two passes: `ra.fuse(…, passes=2)` computes `sum(x[n], ...
    """

    def __str__(self) -> str:
        """Say in sentences what is open: where redalg stopped, what was looked at and what to do."""
        opening = f"{sentence_case(self.subject)} is undecided: no state was found, and none was excluded."
        return paragraph(opening, self)


def of_error(error: NotFusible | NotDecided) -> Refused | Undecided:
    """The value of a verdict that `fuse` raises."""
    if isinstance(error, NotFusible):
        return Refused(error.reduction, error.why, error.advice, error.looked, error.certificate)
    return Undecided(error.reduction, error.why, error.advice, error.looked)


def paragraph(opening: str, verdict: Refused | Undecided) -> str:
    """A verdict as a paragraph; evidence that the reason repeats is left out."""
    return " ".join([opening, verdict.reason, *evidence_sentences(verdict.reason, verdict.evidence), verdict.hint])


def evidence_sentences(reason: str, evidence: Sequence[str]) -> list[str]:
    """The evidence as sentences."""
    fresh = [one for one in evidence if not reason or one not in reason]
    return [f"{sentence_case(one)}." for one in fresh]


def sentence_case(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[:1].upper() + text[1:]
