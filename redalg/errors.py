"""One hierarchy of errors. Every message says what, where, what was needed, what was found and what to do.

RedalgError
  ExpressionError      a cascade that cannot be written so         (raised while building expressions)
    OperationError     an expression used as an array or a number  (raised by what is done to it)
  LawViolation         a monoid that is none as declared           (raised where one is registered)
  NotFusible           no state of fixed size exists               (raised by `fuse`)
  Undecided            neither a form nor a refusal was found      (raised by `fuse`)
  GradientError        no derivative is known                      (raised by `vjp` and `jvp`, and by a recorded call)
  InputError           tensors that do not fit the expression      (raised at a call)
  PlanError            a plan that the device cannot hold          (raised while planning)
  BackendError         a backend that is missing or cannot do it   (raised at a call)
  GraphError           a program of tensors that does not fit      (raised where one is made, or is run)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final


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
    """Base of every error that redalg raises on purpose."""


class ExpressionError(RedalgError, ValueError):
    """The expression is not a cascade that redalg can read; the message says which part and how to write it."""


@final
class OperationError(ExpressionError, TypeError, AttributeError):
    """An expression is used as an array or a number; the message says how redalg writes it.

    It is Python's own error of such a use as well, so that `hasattr`, `iter` and their callers find what they look for.
    `about` is the expression, which is written out in the place of `{}` when the message is read: `hasattr` never does.
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
    """

    def __init__(self, message: str, law: str, elements: tuple[Any, ...], left: Any, right: Any) -> None:
        super().__init__(message, law, elements, left, right)
        self.law, self.elements, self.left, self.right = law, elements, left, right

    def __str__(self) -> str:
        return str(self.args[0])


@final
class GradientError(RedalgError, ValueError):
    """A derivative that redalg does not know."""


@final
class InputError(RedalgError, ValueError):
    """The tensors or options of a call do not fit the expression."""


@final
class PlanError(RedalgError, ValueError):
    """A plan needs more than the device has; the message gives both figures."""


@final
class BackendError(RedalgError, RuntimeError):
    """The backend asked for is missing here, or cannot do what was asked."""


class Reasons:
    """The words of a verdict other than yes, which are written when they are read: a hint may take a search."""

    why: object
    advice: object
    looked: tuple[object, ...]

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

    def __init__(
        self, reduction: str, why: object, advice: object, looked: tuple[object, ...] = (), certificate: bool = False
    ) -> None:
        """`why` prints as the reason, `advice` as the hint, and `looked` as the evidence."""
        super().__init__(reduction, why, advice, looked, certificate)
        self.reduction, self.why, self.advice, self.looked = reduction, why, advice, looked
        self.certificate = certificate

    def __str__(self) -> str:
        return f"reduction `{self.reduction}`: {self.reason} {self.hint}"


@final
class NotFusible(VerdictError):  # noqa: N818 - a verdict, named as it reads
    """The cascade has no state of fixed size, so no one-pass form: the message names the term that forbids it."""


@final
class Undecided(VerdictError):  # noqa: N818 - a verdict, named as it reads
    """No one-pass form was found and none was excluded; the message names the term that was not understood."""


class GraphError(RedalgError, ValueError):
    """A program of tensor expressions does not fit together, or the arrays do not fit it."""
