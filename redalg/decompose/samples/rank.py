"""The rank test: the separable rank of a term, measured on samples. It audits verdicts and never makes a yes.

F(x, d) = Σ_{k≤r} h_k(d)·g_k(x) gives every matrix F(x_i, d_j) a rank of at most r. The samples (`samples`) are 24 x_i
and 64 d_j, each d_j of data that hold all x_i. A rank above 8 excludes every state of a lower rank; one of at most 8 is
evidence, not proof: a term that moves seldom seems to have a finite rank, so more samples are drawn then.

    in floats     the singular values that exceed what rounding could make of them, measured by float64 against long
                  double, count; those below do not, where a gap of 10⁴ parts the two
    in digits     where there is no such gap, or the platform has no long double: 16 × 16 samples are eliminated with
                  complete pivoting at 120 digits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

from sympy import Abs, Add, Expr, Mul
from sympy.core.basic import Basic

from redalg.decompose.cascade import Reduction
from redalg.decompose.samples.digits import context
from redalg.decompose.separate.signs import Facts
from redalg.errors import Text
from redalg.expression import Axis, Value

if TYPE_CHECKING:
    from redalg.decompose.samples.arithmetic import Arithmetic
    from redalg.decompose.samples.samples import Node, Samples

SMALL = 8
"""The rank up to which a state is looked for."""
FLOATS = ((24, 64, 1.0), (48, 96, 0.5), (32, 96, 0.25), (48, 64, 2.0))
"""Rows, columns and size of the x_i: in floats the next is drawn where the rank is at most 8 at those before."""
AGAIN = (((48, 96, 1.0), 12, False), ((48, 96, 4.0), 12, False), ((48, 64, 1.0), 24, True))
"""Plans of further samples: their sizes, the number of draws side by side, and True if leaves differ much in size."""
ELSEWHERE = (1, 3, 2)
"""The numbers of these plans, the one first that shows growth most often: they are the seeds too."""
DIGITS = (16, 16, 1.0)
"""Rows, columns and size of the x_i at 120 digits."""
COMPARED = (16, 6, 1.0)
"""Rows, columns and size of the x_i for a comparison of two terms, at 120 digits."""
NEGLIGIBLE = 90
"""Pivots below 10^-90 of the largest are rounding: 30 digits are left for cancellation in the terms."""
Axes: TypeAlias = Axis | Sequence[Axis]
Matrix: TypeAlias = list[list[Any]]
Sizes: TypeAlias = tuple[int, int, float]


@final
@dataclass(frozen=True)
class RankTest:
    """The result of the rank test at the samples.

    Attributes:
        ranks: lower bounds of the rank of F at 8 and at all x_i; () if the term could not be evaluated.
        missing: the reason why it could not.
        rows: the number of x_i.
        proven: True if the rank is that of samples in 120 digits.
    """

    ranks: tuple[int, ...]
    missing: object = ""
    rows: int = 0
    proven: bool = False

    @property
    def grows(self) -> bool:
        """Tell if a rank of at most 8 is excluded."""
        return len(self.ranks) == 2 and self.ranks[1] > SMALL

    @property
    def settles(self) -> bool:
        """Tell if the rank is at most 8 at all samples."""
        return len(self.ranks) == 2 and self.ranks[1] <= SMALL

    def __str__(self) -> str:
        if not self.ranks:
            return f"unavailable: {self.missing}"
        size = f"a rank above {SMALL}" if self.grows else f"rank {self.ranks[1]}"
        return f"the matrix of the term at {self.rows} elements, in data sets that hold them all, has {size}"


@final
@dataclass(frozen=True)
class Setting:
    """The setting of samples: the reduced axes, the values and their facts, and the values that are not numbers."""

    axes: Axes
    values: tuple[Value, ...]
    facts: Facts
    others: Mapping[Value, Reduction] = field(default_factory=dict)
    seed: int = 0
    copies: int = 0
    far: bool = False
    nodes: dict[Basic, Node] = field(default_factory=dict, compare=False, repr=False)
    drawn: dict[object, tuple[Samples, ...]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def meanings(self) -> dict[Value, tuple[str, Expr, str]]:
        """The meaning of each value: its monoid, its term or terms, and the name of its result if there are several."""
        result: dict[Value, tuple[str, Expr, str]] = {one: ("", one, "") for one in self.values}
        result |= {one: (*self.facts[one], "") for one in self.values if one in self.facts}
        return result | {one: (other.monoid.name, other.term, other.result) for one, other in self.others.items()}

    def audit(self, term: Expr) -> Audit:
        """The rank test of a term, with its samples; in digits if floats decide at no samples."""
        alone, first = replace(self, copies=0), None
        for plan in FLOATS if has_long_double() else ():
            audit = _audit(replace(self, copies=1) if first else alone, term, plan)
            if audit is not None and (audit.test.grows or not (first or audit.test.settles)):
                return audit
            first = first or audit
        if first is None and has_long_double():
            first = self.elsewhere(term, ELSEWHERE[:1])
        return first or _audit(alone, term, None) or Audit(RankTest(()))

    def elsewhere(self, term: Expr, seeds: Sequence[int] = ELSEWHERE) -> Audit | None:
        """The first test that shows growth at other samples, in which tensors and parameters differ in size."""
        for seed in seeds:
            plan, copies, far = AGAIN[seed - 1]
            audit = _audit(replace(self, seed=seed, copies=copies, far=far), term, plan)
            if audit is not None and audit.test.grows:
                return audit
        return None

    def samples(
        self, terms: Sequence[Expr], plan: Sizes, kinds: Sequence[Arithmetic], *, positive: bool
    ) -> tuple[Samples, ...]:
        """Samples for terms, the same in every arithmetic; those that another term was tested at, if they may serve."""
        from redalg.decompose.samples.draws import FAR, LEAVES, Draws, Plan, integers, log_arguments
        from redalg.decompose.samples.samples import Samples

        axes = (self.axes,) if isinstance(self.axes, Axis) else tuple(self.axes)
        known = self.meanings
        parts = [*terms, *(part for _, part, _ in known.values())]
        labels, positives = integers(parts, plan[0]), log_arguments(parts, self.facts)
        key = (
            plan,
            *map(type, kinds),
            positive,
            self.seed,
            self.copies,
            self.far,
            *labels.items(),
            frozenset(positives),
        )
        if key not in self.drawn:
            draws = Draws(axes, self.facts, labels, positives, Plan(*plan), positive=positive, seed=self.seed,
                          copies=self.copies, leaves=FAR if self.far else LEAVES)  # fmt: skip
            self.drawn[key] = tuple(Samples(draws, known, kind, self.nodes) for kind in kinds)
        return self.drawn[key]

    def in_floats(self, term: Expr, plan: Sizes, *, positive: bool) -> tuple[Samples, ...]:
        """The samples in float64 and in long double."""
        import numpy as np

        from redalg.decompose.samples.arithmetic import Floats

        return self.samples([term], plan, (Floats(np.float64), Floats(np.longdouble)), positive=positive)

    def in_digits(self, terms: Sequence[Expr], plan: Sizes, *, positive: bool) -> Samples:
        """The samples in 120 digits."""
        from redalg.decompose.samples.arithmetic import Digits

        return self.samples(terms, plan, (Digits(),), positive=positive)[0]


@final
@dataclass(frozen=True)
class Audit:
    """The rank test of a term, and where its samples come from, for tests of its parts."""

    test: RankTest
    setting: Setting | None = None
    positive: bool = False
    floats: tuple[Samples, ...] = ()
    digits: Samples | None = None

    def again(self, term: Expr) -> Audit:
        """The test at other samples, if it shows growth there."""
        return (self.setting.elsewhere(term) if self.setting and has_long_double() else None) or self

    def in_digits(self, term: Expr) -> RankTest:
        """The test, marked as proven if 120 digits confirm that the rank grows at samples where floats show it."""
        from redalg.decompose.samples.arithmetic import Digits

        if not self.test.grows or not self.floats:
            return self.test
        for samples in _growing_draws(self.floats[0], term):
            columns = _leading_columns(samples.matrix(term))
            try:
                test = _rank_in_digits(samples.of_some(columns, Digits()), term)
            except Unavailable:
                continue
            if test.grows:
                return replace(self.test, proven=True)
        return self.test

    def of_part(self, node: Expr) -> RankTest:
        """The rank test of a node: first at the term's samples, where most of its values are known, then at more."""
        if self.setting is None:
            return self.test
        try:
            test = _in_floats(node, self.floats) if self.floats else None
            if self.digits is not None:
                test = _rank_in_digits(self.digits, node)
        except Unavailable:
            test = None
        if test is not None and test.grows:
            return test
        audit = self.setting.audit(node)
        return (audit.again(node) if audit.test.settles else audit).test


@final
class Unavailable(Exception):  # noqa: N818 - a finding
    """A node that cannot be evaluated; `data` if other samples may do, since it is not a finite real at these."""

    def __init__(self, reason: Text, *, data: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.data = reason, data


def rank_test(term: Expr, axes: Axes, values: Iterable[Value], facts: Facts) -> RankTest:
    """The rank test of a term over the reduced axes, whose reduced values are `values`."""
    return audit_of(term, axes, values, facts).test


def audit_of(
    term: Expr, axes: Axes, values: Iterable[Value], facts: Facts, others: Mapping[Value, Reduction] | None = None
) -> Audit:
    """The rank test of a term, with its samples; data that leave it undefined are drawn again as positive numbers.

    Args:
        term, axes, values, facts: the term, the reduced axes, the reduced values, and facts of those that are numbers.
        others: the reductions of the values that are not numbers.
    """
    return Setting(axes, tuple(values), facts, others or {}).audit(term)


def _audit(setting: Setting, term: Expr, plan: Sizes | None) -> Audit | None:
    """The test at the samples of one plan, or in digits if there is no plan; None if floats do not decide."""
    for positive in (False, True):
        try:
            if plan is None:
                return _audit_in_digits(setting, term, positive=positive)
            floats = setting.in_floats(term, plan, positive=positive)
            test = _in_floats(term, floats)
            return None if test is None else Audit(test, setting, positive, floats)
        except Unavailable as why:
            if positive or not why.data:
                return Audit(RankTest((), why.reason))
    raise AssertionError("one of the two draws returns")


def has_long_double() -> bool:
    """Tell if the platform's long double has at least ten bits more than float64."""
    import numpy as np

    return bool(np.finfo(np.longdouble).eps < np.finfo(np.float64).eps / 1024)


def _audit_in_digits(setting: Setting, term: Expr, *, positive: bool) -> Audit:
    """The test in digits, at some of the d_j if those show that the rank grows."""
    import numpy as np

    whole = setting.in_digits([term], DIGITS, positive=positive)
    with suppress(Unavailable):
        some = whole.of_some(np.arange(SMALL + 2), whole.arithmetic)
        if (test := _rank_in_digits(some, term)).grows:
            return Audit(test, setting, positive, digits=some)
    return Audit(_rank_in_digits(whole, term), setting, positive, digits=whole)


def _rank_in_digits(samples: Samples, term: Expr) -> RankTest:
    """The rank by elimination at 120 digits."""
    matrix, sizes = _finite([samples], term)[0], _finite([samples], _size(term))[0]
    if matrix.shape == sizes.shape:  # what is left of larger numbers that cancel is rounding
        matrix = matrix * (abs(matrix) > sizes * context().mpf(10) ** -NEGLIGIBLE)
    for axis in (0, 1):  # columns and rows of one size: scales change no rank
        size = abs(matrix).max(axis=axis, keepdims=True)
        matrix = matrix / (size + (size == 0))
    rows = [list(row) for row in matrix]
    return RankTest((rank(rows[:SMALL]), rank(rows)), rows=len(rows), proven=True)


def _growing_draws(samples: Samples, term: Expr) -> Iterator[Samples]:
    """Yield each draw at which the rank of a term may grow; the only one as it is."""
    import numpy as np

    from redalg.decompose.samples.singular import may_grow

    if not samples.draws.copies:
        yield samples
        return
    for number, block in samples.blocks():
        yield from (samples.alone(number + int(place)) for place in np.flatnonzero(may_grow(block.matrix(term))))


LEADING = 14
"""Data sets that are looked at in digits."""


def _leading_columns(matrix: Any) -> Any:
    """The columns that give a matrix its rank; those that add most are chosen first."""
    import numpy as np

    left = np.asarray(matrix, dtype=np.float64)
    left = np.where(np.isfinite(left).all(axis=0), left, 0.0)
    size = np.abs(left).max(axis=0)
    left, columns = left / np.where(size > 0, size, 1.0), list[int]()
    for _ in range(min(LEADING, left.shape[1])):
        sizes = (left**2).sum(axis=0)
        sizes[columns] = -1.0
        lead = int(sizes.argmax())
        columns.append(lead)
        if sizes[lead] > 0:
            unit = left[:, lead] / np.sqrt(sizes[lead])
            left = left - np.outer(unit, unit @ left)
    return np.sort(np.array(columns))


def _size(term: Expr) -> Expr:
    """The size of a term: the sum of its addends' sizes, or the product of its factors' sizes."""
    if isinstance(term, Add | Mul):
        return term.func(*map(_size, term.args))
    return Abs(term, evaluate=False)


def _finite(samples: Sequence[Samples], term: Expr) -> list[Any]:
    """A term's matrix in every arithmetic, at the d_j for which it is finite."""
    matrices = [one.matrix(term) for one in samples]
    columns = None
    for sample, matrix in zip(samples, matrices, strict=True):
        finite = sample.arithmetic.is_finite(matrix).all(axis=0)
        columns = finite if columns is None else columns & finite
    if columns is None or columns.sum() <= SMALL:
        raise Unavailable(Text("`", term, "` is not a real number at the samples"), data=True)
    return [matrix[:, columns] for matrix in matrices]


def _in_floats(term: Expr, samples: Sequence[Samples]) -> RankTest | None:
    """The rank in floats, or None if rounding may hide some of it; of several draws, the first at which it grows."""
    import numpy as np

    from redalg.decompose.samples.singular import may_grow

    first, second = samples
    if not first.draws.copies:
        return _of_floats(_finite(samples, term), second)
    seen, test = False, None
    for number, block in first.blocks():
        coarse = block.matrix(term)
        finite = np.isfinite(coarse).all(axis=0).sum(axis=0) > SMALL
        seen = seen or bool(finite.any())
        for place in np.flatnonzero(finite & may_grow(coarse)) if finite.any() else ():
            fine = second.alone(number + int(place))
            both = coarse[..., place], fine.matrix(term)
            columns = np.isfinite(both).all(axis=(0, 1))
            test = _of_floats([one[:, columns] for one in both], fine) if columns.sum() > SMALL else None
            if test is not None and test.grows:
                return test
    if not seen:
        raise Unavailable(Text("`", term, "` is not a real number at the samples"), data=True)
    return test


def _of_floats(matrices: Sequence[Any], fine: Samples) -> RankTest | None:
    """The rank of a matrix in float64 and as it is in finer samples; None if rounding may hide some of it."""
    from redalg.decompose.samples.singular import ranks_of

    coarse, finer = matrices
    ranks = ranks_of(coarse, finer, finer=fine.arithmetic.is_fine)
    return None if ranks is None else RankTest(ranks, rows=len(coarse))


def equal_on_samples(term: Expr, other: Expr, axes: Axes, values: Iterable[Value], facts: Facts) -> bool:
    """Tell if two terms agree at every sample, up to rounding."""
    setting = Setting(axes, tuple(values), facts)
    for positive in (False, True):
        try:
            samples = setting.in_digits([term, other], COMPARED, positive=positive)
            first, second = samples.whole(term), samples.whole(other)
        except Unavailable:
            return False
        finite = samples.arithmetic.is_finite(first)
        if finite.mean() < 0.5 and not positive:
            continue
        small = context().mpf(10) ** -NEGLIGIBLE
        alike = bool((finite == samples.arithmetic.is_finite(second)).all()) and bool(finite.any())
        return alike and all(
            abs(a - b) <= small * (1 + abs(a)) for a, b in zip(first[finite], second[finite], strict=True)
        )
    raise AssertionError("one of the two draws returns")


def rank(matrix: Matrix) -> int:
    """Rank by elimination with complete pivoting, in integers: no entry grows much, and smaller ones are negligible."""
    largest = max((abs(value) for row in matrix for value in row), default=0)
    if not largest:
        return 0
    ctx, count = context(), 0
    unit = ctx.prec - ctx.mag(largest)
    rows = [[int(ctx.ldexp(value, unit)) for value in row] for row in matrix]
    negligible = int(ctx.ldexp(largest, unit)) // 10**NEGLIGIBLE
    while rows:
        sizes = [max(map(abs, row), default=0) for row in rows]
        size = max(sizes)
        if size <= negligible:
            return count
        lead = rows.pop(sizes.index(size))
        column = [abs(value) for value in lead].index(size)
        pivot, count = lead.pop(column), count + 1
        rows = [_eliminate(row, lead, row.pop(column), pivot) for row in rows]
    return count


def _eliminate(row: list[int], lead: list[int], above: int, pivot: int) -> list[int]:
    return [a - above * b // pivot for a, b in zip(row, lead, strict=True)] if above else row
