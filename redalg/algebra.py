"""The algebra of a fused function: its terms' parts, their ranks and bounds, pivots, forms and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TypeVar, final

from sympy import Expr, S, Tuple

from redalg.decompose.separate.rounding import bounds
from redalg.decompose.verdict.verdict import Decomposition
from redalg.expression import Value
from redalg.expression.spelling import did_you_mean
from redalg.incremental.arrange.variants import variants
from redalg.incremental.form import FusedForm, Slot

Part = TypeVar("Part")


class Algebra(ABC):
    """The parts of a decomposition and of its form, each printable.

    >>> import redalg as ra
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> rows = ra.fuse(ra.logsumexp(x, n))
    >>> rows.g["sum_0"], rows.h["sum_0"], rows.otimes["sum_0"], rows.rank["sum_0"]
    (exp(x[n]), exp(-max_0), '×', 1)
    >>> rows.pivots
    {'max_0': (x[n], max_0)}
    >>> [one.kind for one in rows.forms], [str(slot) for slot in rows.state]
    (['online', 'unfused'], ['max_0[] extremum', 'sum_0[] accumulator'])
    >>> rounded = ra.fuse(ra.sum(ra.cast(x / ra.max(abs(x), n), "float16"), n))
    >>> rounded.bound["sum_0"]
    sum(Abs(x[n]/max_0)/1024 + 1/16777216, n)
    """

    decomposition: Decomposition

    @property
    @abstractmethod
    def form(self) -> FusedForm:
        """Pivots, accumulators, leaf / merge / finish."""

    @cached_property
    def g(self) -> dict[str, Expr]:
        """The x-part of each reduction: one expression at rank 1, a SymPy Tuple at rank r."""
        return ByReduction({one.reduction.name: _one_or_tuple(one.g) for one in self.decomposition.separations})

    @cached_property
    def h(self) -> dict[str, Expr]:
        """The d-part of each reduction, in the order of `g`."""
        return ByReduction({one.reduction.name: _one_or_tuple(one.h) for one in self.decomposition.separations})

    @cached_property
    def otimes(self) -> dict[str, str]:
        """The sign of ⊗ of each reduction."""
        return ByReduction({one.reduction.name: one.times for one in self.decomposition.separations})

    @cached_property
    def rank(self) -> dict[str, int]:
        """The separable rank of each reduction's term."""
        return ByReduction({one.reduction.name: one.rank for one in self.decomposition.separations})

    @cached_property
    def bound(self) -> dict[str, Expr]:
        """By reduction, how far its value may lie from the definition's for roundings that mix x and d (SymPy)."""
        errors = bounds(self.decomposition.cascade, self.decomposition.roundings)
        return ByReduction({reduction.name: most for reduction, most in errors.items()})

    @cached_property
    def pivots(self) -> dict[str, tuple[Expr, Value]]:
        """Each pivot's name -> (what it shifts or scales, its symbol)."""
        return ByPivot({one.value.name: (one.base, one.value) for one in self.form.pivots})

    @property
    def forms(self) -> tuple[FusedForm, ...]:
        """The forms of this cascade, in order of preference; `Schedule.form` names one by its `kind`."""
        return variants(self.form)

    @property
    def state(self) -> tuple[Slot, ...]:
        """The slots of the state: name, kind and axes of each."""
        return self.form.slots


def _one_or_tuple(parts: tuple[Expr, ...]) -> Expr:
    return parts[0] if len(parts) == 1 else Tuple(*parts) if parts else S.Zero


class ByName(dict[str, Part], ABC):
    """Values by the name of something; a name that nothing has is refused with the nearest."""

    noun = "value"

    def __missing__(self, name: str) -> Part:
        there = f"There are {', '.join(self)}." if self else "There is none."
        raise KeyError(f"no {self.noun} is named {name!r}.{did_you_mean(str(name), self)} {there}")


@final
class ByReduction(ByName[Part]):
    """Values by reduction."""

    noun = "reduction"


@final
class ByPivot(ByName[Part]):
    """Values by pivot."""

    noun = "pivot"
