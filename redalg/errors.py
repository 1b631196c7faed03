"""One hierarchy of errors. Every message says what, where, what was needed, what was found and what to do.

RedalgError
  ExpressionError      a cascade that cannot be written so         (raised while building expressions)
    OperationError     an expression used as an array or a number  (raised by what is done to it)
  LawViolation         a monoid that is none as declared           (raised where one is registered)
  NotFusible           no state of fixed size exists               (raised by `fuse`)
  NotDecided           neither a form nor a refusal was found      (raised by `fuse`)
  GradientError        no derivative is known                      (raised by `vjp` and `jvp`, and by a recorded call)
  InputError           tensors that do not fit the expression      (raised at a call)
  PlanError            a plan that the device cannot hold          (raised while planning)
  BackendError         a backend that is missing or cannot do it   (raised at a call)
  GraphError           a program of tensors that does not fit      (raised where one is made, or is run)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, final

TERM = "term: "
"""The beginning of the evidence that is the term of the reduction."""
GENERATED = re.compile(r"(sum|prod|max|min|any|all|argmax|argmin)_\d+")
"""The names that redalg gives to reductions."""


@final
class Text:
    """Words and expressions, written out when they are read: an expression may be large.

    >>> str(Text("`", 1, "` is ", Text("a ", "number")))
    '`1` is a number'
    """

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def map(self, change: Callable[[Any], Any]) -> Text:
        """The text with its expressions changed, and its words as they are."""
        return Text(*(
            part.map(change) if isinstance(part, Text) else part if isinstance(part, str) else change(part)
            for part in self.parts
        ))  # fmt: skip


class RedalgError(Exception):
    """Base of every error that redalg raises on purpose.

    >>> import redalg as ra
    >>> try:
    ...     ra.Grid("b", 0)
    ... except ra.RedalgError as error:
    ...     print(f"{type(error).__name__}: {error}")
    PlanError: Grid(tile=0) should be a whole number, 1 or more.
    """


class ExpressionError(RedalgError, ValueError):
    """The expression is not a cascade that redalg can read; the message says which part and how to write it.

    >>> import redalg as ra
    >>> ra.axes("2b")
    Traceback (most recent call last):
    ...
    redalg.errors.ExpressionError: axes: `2b` is not a name. Write identifiers separated by spaces.
    """


@final
class OperationError(ExpressionError, TypeError, AttributeError):
    """An expression is used as an array or a number; the message says how redalg writes it.

    It is Python's own error of such a use as well, so that `hasattr`, `iter` and their callers find what they look for.
    `about` is the expression, which is written out in the place of `{}` when the message is read: `hasattr` never does.

    >>> import redalg as ra
    >>> len(ra.tensor("x[b,n]"))
    Traceback (most recent call last):
    ...
    redalg.errors.OperationError: `x[b, n]` has no length: it is one element, whose axes get their sizes at the ...
    """

    def __init__(self, message: str, about: object = None) -> None:
        super().__init__(message)
        self.message, self.about = message, about

    def __str__(self) -> str:
        return self.message if self.about is None else self.message.replace("{}", str(self.about), 1)


@final
class LawViolation(RedalgError, ValueError):  # noqa: N818 - a finding, named as it reads
    """A law that a monoid declares fails.

    Attributes:
        law: the law, such as `"a ⊕ b = b ⊕ a (commutativity)"`.
        elements: a, b and c, each a tuple of components, as many as the law is about.
        left, right: what its two sides are there.

    >>> import redalg as ra
    >>> minus = {"components": {"a": 0}, "combine": lambda a, b: (a[0] - b[0],)}
    >>> try:
    ...     ra.register_monoid("minus", **minus)
    ... except ra.LawViolation as error:
    ...     print(error.law, error.elements, error.left, error.right, sep="; ")
    e ⊕ a = a (identity); ((2,),); (-2,); (2,)
    """

    def __init__(self, message: str, law: str, elements: tuple[Any, ...], left: Any, right: Any) -> None:
        super().__init__(message, law, elements, left, right)
        self.law, self.elements, self.left, self.right = law, elements, left, right

    def __str__(self) -> str:
        return str(self.args[0])


@final
class GradientError(RedalgError, ValueError):
    """A derivative that redalg does not know.

    >>> import redalg as ra
    >>> n = ra.axes("n")
    >>> ra.fuse(ra.sum(ra.tensor("x[n]") % 2, n)).vjp()
    Traceback (most recent call last):
    ...
    redalg.errors.GradientError: `Mod(x[n], 2)` has no derivative that redalg knows: a remainder jumps. Write it ...
    """


@final
class InputError(RedalgError, ValueError):
    """The tensors or options of a call do not fit the expression.

    >>> import numpy as np, redalg as ra
    >>> ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))(x=np.zeros(3))
    Traceback (most recent call last):
    ...
    redalg.errors.InputError: tensor `x` has 1 dimensions (3,), but `x[b, n]` needs 2.
    """


@final
class PlanError(RedalgError, ValueError):
    """A plan needs more than the device has; the message gives both figures.

    >>> import redalg as ra
    >>> ra.Grid("b", 0)
    Traceback (most recent call last):
    ...
    redalg.errors.PlanError: Grid(tile=0) should be a whole number, 1 or more.
    """


@final
class BackendError(RedalgError, RuntimeError):
    """The backend asked for is missing here, or cannot do what was asked.

    >>> import numpy as np, redalg as ra
    >>> total = ra.fuse(ra.sum(ra.tensor("x[n]"), ra.axes("n")))
    >>> total(x=np.zeros(3), backend="jax")
    Traceback (most recent call last):
    ...
    redalg.errors.BackendError: backend='jax' is not known. Use one of 'tilelang', 'torch', 'numpy'.
    """


class Reasons:
    """The words of a verdict other than yes, which are written when they are read: a hint may take a search."""

    reduction: str
    why: object
    advice: object
    looked: tuple[object, ...]

    @property
    def term(self) -> str:
        """The term that the reduction reduces; empty if it is not known.

        >>> import redalg as ra
        >>> x, n = ra.tensor("x[n]"), ra.axes("n")
        >>> ra.analyze(ra.sum(abs(x - ra.mean(x, n)), n)).term
        'Abs(x[n] - mean(x[n], n))'
        """
        return next((fact.removeprefix(TERM) for fact in self.evidence if fact.startswith(TERM)), "")

    @property
    def subject(self) -> str:
        """The reduction in words: its name, or what it reduces if the name is none of the user's.

        >>> import redalg as ra
        >>> x, n = ra.tensor("x[n]"), ra.axes("n")
        >>> ra.analyze(ra.sum(abs(x - ra.mean(x, n)), n)).subject
        'the sum of `Abs(x[n] - mean(x[n], n))`'
        """
        kind = GENERATED.fullmatch(self.reduction)
        return f"the {kind[1]} of `{self.term}`" if kind and self.term else f"reduction `{self.reduction}`"

    @property
    def reason(self) -> str:
        """The reason, in a sentence or two: `why` prints as it."""
        return str(self.why)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The terms and findings that were looked at, in sentences: `looked` prints as them."""
        return tuple(map(str, self.looked))

    @property
    def hint(self) -> str:
        """The remedy, in a sentence or two: `advice` prints as it."""
        return str(self.advice)


class VerdictError(Reasons, RedalgError):
    """A verdict other than yes, raised by `fuse`.

    Attributes:
        reduction: name of the reduction that decides it, such as `"sum_1"`.
        reason: why, in one sentence.
        hint: what could be done instead, in sentences; where that takes a search, it is made when the hint is read.
        evidence: what was looked at, term by term (a tuple of sentences).
        certificate: whether a theorem says so; False where the samples alone do, or where nothing is settled.
    """

    VERDICT: ClassVar[str] = "has no one-pass form"

    def __init__(
        self, reduction: str, why: object, advice: object, looked: tuple[object, ...] = (), certificate: bool = False
    ) -> None:
        """`why` prints as the reason, `advice` as the hint, and `looked` as the evidence."""
        super().__init__(reduction, why, advice, looked, certificate)
        self.reduction, self.why, self.advice, self.looked = reduction, why, advice, looked
        self.certificate = certificate

    def __str__(self) -> str:
        about = self.reason.removeprefix(f"`{self.term}` ")
        about = f"it {about}" if about != self.reason and GENERATED.fullmatch(self.reduction) else self.reason
        return f"{self.subject} {self.VERDICT}: {about} {self.hint}"


@final
class NotFusible(VerdictError):  # noqa: N818 - a verdict, named as it reads
    """The cascade has no state of fixed size, so no one-pass form: the message names the term that forbids it.

    >>> import redalg as ra
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> try:
    ...     ra.fuse(ra.mean(abs(x - ra.mean(x, n)), n))
    ... except ra.NotFusible as error:
    ...     print(error.reduction, error.certificate, len(error.evidence))
    ...     print(len(error.reason) < 300, error.hint)
    ...     print(error)
    sum_1 True 3
    True Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[n], n)` first, then the rest with it as a tensor.
    the sum of `Abs(x[n] - mean(x[n], n))` has no one-pass form: it has a kink where its argument is 0, which moves ...
    """


@final
class NotDecided(VerdictError):  # noqa: N818 - a verdict, named as it reads
    """No one-pass form was found and none was excluded; the message names the term that was not understood.

    >>> import redalg as ra
    >>> x, n, base = ra.tensor("x[n]"), ra.axes("n"), ra.scalars("base")
    >>> try:
    ...     ra.fuse(ra.sum(base ** (x - ra.sum(x, n)), n))
    ... except ra.NotDecided as error:
    ...     print(error.reduction, error.certificate, len(error.evidence))
    ...     print(error.reason)
    ...     print(error.hint)
    sum_1 False 4
    `base**(x[n] - sum(x[n], n))` is real only where `base` is not negative, which is not known.
    Declare it: `ra.scalars('base', positive=True)`. Or run two passes: `ra.fuse(…, passes=2)` computes `sum(x[n], ...
    """

    VERDICT = "has no one-pass form that redalg found"


class GraphError(RedalgError, ValueError):
    """A program of tensor expressions does not fit together, or the arrays do not fit it.

    >>> import redalg as ra
    >>> ra.optimize("a model")
    Traceback (most recent call last):
    ...
    redalg.errors.GraphError: optimize takes an exported program, and was given a str. Write ...
    """
