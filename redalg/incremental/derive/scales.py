"""Scale pivots: generators are divided by c, a magnitude near their largest, so that no power leaves the range.

    Σ (u/max|u|)^p → c^p/max|u|^p · Σ (u/c)^p        c = max|u|, p ≥ 2, where every term that holds u divides it so
    f(Σ u^p) → f(c^p · Σ (u/c)^p)                    c = 2^k ≤ max|u|, p ≥ 2

Exact: c is a pivot. The second pays if the result is in range though Σ u^p is not (nrm2: Blue, 1978), that is, if
f takes roots or ratios, so that c leaves it to no power beyond the first: √(Σ u²) = c·√(Σ (u/c)²), and in a cosine
similarity the scales of all three sums cancel; log (c^p·a) = p·log c + log a. It is tried if a sum of one u^p stands
under a root, a division or a logarithm, and kept if nothing needs the sum itself: a mean of squares needs the plain
sum. Beside a number, √(Σ u²/n + ε), terms are shares of the largest (`exponents.as_shares`), but not in kernels
(`for_kernels`).
A generator that is shifted is divided by its scale first:

    f(Σ w·(u − v)^p) → f(m^p · Σ w·(u/m − c)^p)          m = 2^k ≤ max |u| of the elements of w ≠ 0

It is tried if a sum of total degree 2 or more in shifted generators stands in a root, a ratio or a logarithm, and kept
if some output has no m left to a power beyond the first (std, a correlation, a skewness, std/mean). Exponential
weights may vanish where u is largest: a generator that they weigh keeps to plain shifts, and so does a contraction's
operand. A weighed power, w·u², stays plain: where u is largest its weight may vanish. A product u·v of two generators
that have scales is scaled if both have the same axes (else it is a contraction, of plain operands).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sympy import Abs, Add, And, Expr, Max, Min, Mul, Ne, Or, Pow, S, floor, log
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.decompose.extrema.truth import fails
from redalg.decompose.separate.laurent import Atom, Ratio
from redalg.decompose.verdict.verdict import Decomposition
from redalg.expression import Element, Let, Value, Where
from redalg.expression.contents import elements_of, free_axes, is_indicator, values_of
from redalg.expression.dtypes import DTYPES, is_float
from redalg.incremental.derive.auxiliary import expressions_after_loop
from redalg.incremental.derive.basis import Pool
from redalg.incremental.derive.centre import Centred
from redalg.incremental.derive.data_orders import DataOrders, data_names
from redalg.incremental.form import FusedForm, PivotPolicy

Powers = dict[int, set[tuple[Ratio, Ratio]]]


def divided_atoms(decomposition: Decomposition, centred: dict[str, Centred]) -> frozenset[int]:
    """Generators u that stand as (u/max|u|)^p, p ≥ 2, in every term that holds them: taken apart, u^p overflows."""
    atoms = decomposition.separator.atoms
    largest = {slot.term.args[0]: separation.reduction.value
               for separation in decomposition.separations if separation.extremal
               for slot in separation.extremal.slots if slot.kind == "max" and isinstance(slot.term, Abs)
               and separation.extremal.final == slot.symbol}  # fmt: skip
    powers: Powers = {}
    for centred_sum in centred.values():
        for x, d in centred_sum.polynomial:
            by_d = {atoms.list[number].base: q for number, q in d}
            for number, q in x:
                divisor = by_d.get(largest.get(atoms.list[number].base, S.Zero), 0)
                powers.setdefault(number, set()).add((q, divisor))
    centres = {atom for one in centred.values() for atom in one.centres}
    return frozenset(number for number, pairs in powers.items() if number not in centres
                     and all(q >= 2 and divisor == -q for q, divisor in pairs))  # fmt: skip


def rooted_atoms(decomposition: Decomposition, centred: dict[str, Centred]) -> frozenset[int]:
    """Generators u of a sum Σ u^p, p ≥ 2, whose value stands under a root, a division or a logarithm."""
    under = set[Value]()
    for expr in expressions_after_loop(decomposition):
        for node in expr.atoms(Pow, log):
            if isinstance(node, log) or is_root(node.exp):
                under |= values_of(node.args[0])
    atoms = decomposition.separator.atoms.list
    centres = {atom for one in centred.values() for atom in one.centres}
    numbers = {atom for one in _sums_under(under, decomposition, centred) for atom in _alone(one, atoms)}
    return frozenset(atom for atom in numbers - centres if _scalable(atoms[atom].base) and not atoms[atom].exponential)


def sized_atoms(decomposition: Decomposition, centred: dict[str, Centred], pool: Pool) -> frozenset[int]:
    """Generators that are shifted, of a sum of degree 2 or more that stands in a root, a ratio or a logarithm."""
    counts = {one.value for one in decomposition.cascade.reductions if one.is_count}
    under = set[Value]()
    for expr in expressions_after_loop(decomposition):
        for node in expr.atoms(Mul, Pow, log):
            if isinstance(node, log) or any(_divides(one, counts) for one in Mul.make_args(node)):
                under |= values_of(node)
    atoms, sums = decomposition.separator.atoms.list, _sums_under(under, decomposition, centred)
    moving = set(pool.pivoted) - {atom for pair in pool.slopes for atom in pair}
    monomials = [[(atom, q) for atom, q in x if atom in moving] for one in sums for x, _ in one.polynomial]
    numbers = {atom for x in monomials if sum(q for _, q in x) >= 2 for atom, _ in x}
    foreign = _foreign(decomposition, centred)
    return frozenset(atom for atom in numbers - foreign if _scalable(atoms[atom].base) and _is_elementwise(atom, pool))


def _sums_under(
    under: AbstractSet[Value], decomposition: Decomposition, centred: dict[str, Centred]
) -> Iterator[Centred]:
    """The sums whose values are `under` a root or a division after the loop, or so in the term of a reduction."""
    atoms = decomposition.separator.atoms.list
    inside = {atoms[number].base for separation in decomposition.separations for _, d in separation.polynomial
              for number, q in d if q < 0 or q.denominator > 1}  # fmt: skip
    return (centred[separation.reduction.name] for separation in decomposition.separations
            if separation.reduction.value in under | inside and separation.reduction.name in centred)  # fmt: skip


def _foreign(decomposition: Decomposition, centred: dict[str, Centred]) -> frozenset[int]:
    """Generators with a centre that does not go to 0 as they do: over the scale of the generator it may overflow.

    It is of other data, or of another order in them, as a number of elements is, or a mean of x beside x².
    """
    atoms = decomposition.separator.atoms.list
    reductions = {one.value: one for one in decomposition.cascade.reductions}
    shifts = ((atom, d) for one in centred.values() for atom in one.centres for _, d in one.shift(atom))
    return frozenset(
        atom
        for atom, d in shifts
        if not _shrinks_with(Mul(*(atoms[number].power(q) for number, q in d)), atoms[atom].base, reductions)
    )


def _shrinks_with(v: Expr, u: Expr, reductions: Mapping[Value, Reduction]) -> bool:
    """Tell if v goes to 0 as fast as u if the data of u do, those of one name or all."""
    names = data_names(u, reductions)
    if not names & data_names(v, reductions):
        return False
    for some in (names, *({name} for name in names)):
        orders = DataOrders(some, reductions)
        of_u, of_v = orders.order(u), orders.order(v)
        if (of_u > 0 and of_v < of_u) or (of_u < 0 and of_v > of_u):
            return False
    return True


def _divides(factor: Expr, counts: AbstractSet[Value]) -> bool:
    """Tell if a factor is a root of values, or divides by values other than numbers of elements."""
    return isinstance(factor, Pow) and is_root(factor.exp) and bool(values_of(factor.base) - counts)


def _is_elementwise(atom: int, pool: Pool) -> bool:
    """Tell if a generator is summed beside no factor that has further axes, and beside no exponential."""
    axes = free_axes(pool.atoms.list[atom].base)
    beside = ((number, one) for number, one in enumerate(pool.functions) if any(atom in dict(x) for x in one.vector))
    return all(not one.grade and pool.axes_of(number, S.true) <= axes for number, one in beside)


def counting_condition(atom: int, pool: Pool) -> Boolean:
    """The condition that an element of a generator counts: some function of the basis does not weigh it by 0."""
    weights = [[other for other, _ in x if other != atom and other not in pool.pivoted]
               for function in pool.functions for x in function.vector if atom in dict(x)]  # fmt: skip
    return Or(*(And(*(_is_weight(pool.atoms.list[other].base) for other in one)) for one in weights))


def _is_weight(factor: Expr) -> Boolean:
    if is_indicator(factor):
        condition, then, _ = factor.args
        return condition if then is S.One else fails(condition)
    return Ne(factor, 0)


def is_root(exponent: Expr) -> bool:
    """Tell if a power divides or takes a root."""
    return bool(exponent.is_negative or (exponent.is_Rational and not exponent.is_Integer))


def _alone(centred: Centred, atoms: list[Atom]) -> Iterator[int]:
    """The generators of a polynomial c·u^p, |u| taken for u (SymPy writes |u|³ as u²·|u|)."""
    if len(centred.polynomial) == 1:
        [(x, _)] = centred.polynomial
        if sum(q for _, q in x) >= 2 and len({Abs(atoms[atom].base) for atom, _ in x}) == 1:
            yield from (atom for atom, _ in x)


def _scalable(base: Expr) -> bool:
    """Tell if u is data and holds no logarithm, as 0·log 0 counts for nothing."""
    return base.has(Element, Value) and not base.has(log)


def scale_of(largest: Value) -> Expr:
    """2^k in (max/4, max]: a division by it rounds nothing. Without elements it is NaN, of zeros alone 0."""
    return S(2) ** (floor(log(largest) / log(2)) - 1)


EXACT_DEGREE = 4
"""Highest power of small floats whose sums float32 holds; a term that vanishes in it has no weight."""


def is_small(dtype: str | None) -> bool:
    """Tell if float32 holds the powers of the numbers of a float up to `EXACT_DEGREE`."""
    largest = DTYPES["float32"].largest
    return dtype is not None and is_float(dtype) and DTYPES[dtype].largest ** EXACT_DEGREE <= largest


def for_kernels(form: FusedForm, dtypes: Mapping[str, str] | None = None, *, wide: bool = False) -> FusedForm:
    """The form as kernels take it: with magnitudes of shifted generators only if a call asks for a wide range.

    They cost a running maximum and a rescaling of every element's state: a deviation of rows took 1.2 to 5 times as
    long on an H200. States and the array backends hold them always. They save nothing if powers of the inputs stay
    within the arithmetic's range. Beside a number, such as the ε of a normalisation, they only serve data beyond the
    square root of the largest float, and kernels never hold them.
    """
    form = form.unscaled if form.level and form.unscaled is not None else form
    if form.unscaled is None or not wide:
        return form if form.unscaled is None else form.unscaled
    terms = [factor for one in form.unscaled.accumulators for factor in (Mul(*one.factors),)]
    names = {element.name for term in terms for element in elements_of(term)}
    known = dtypes or {}
    small = all(is_small(known.get(name)) for name in names) and max(map(_degree, terms)) <= EXACT_DEGREE
    return form.unscaled if small else form


def in_kernels(form: FusedForm, dtypes: Mapping[str, str] | None = None, *, wide: bool = False) -> FusedForm:
    """The form as kernels take it, and nothing beside it."""
    form = for_kernels(form, dtypes, wide=wide)
    return form if form.unscaled is None else replace(form, unscaled=None)


def _degree(expr: Expr) -> int:
    """The highest power of inputs in a term; more than `EXACT_DEGREE` if it holds anything but sums and products."""
    if isinstance(expr, Element):
        return 1
    if isinstance(expr, Let):
        return _degree(expr.expr)
    if isinstance(expr, Add):
        return max(map(_degree, expr.args))
    if isinstance(expr, Mul):
        return sum(map(_degree, expr.args))
    if isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp > 0:
        return int(expr.exp) * _degree(expr.base)
    return EXACT_DEGREE + 1 if elements_of(expr) else 0


def pays(form: FusedForm) -> bool:
    """Tell if no scale is left to a power beyond the first; one is if a scaled sum is needed itself."""
    scales = {one.value for one in form.pivots if one.policy is PivotPolicy.SCALE}
    exprs = [one.expr for one in form.assignments] + [one.expr for one in form.outputs]
    return all(abs(power.exp) <= 1 for expr in exprs for power in expr.atoms(Pow) if power.base in scales)


Degrees = dict[Value, Expr]
"""The power of every scale that an expression is proportional to."""


def pays_of_shifts(form: FusedForm, bounded: AbstractSet[Value]) -> bool:
    """Tell if some output needs sums of degree 2 or more of sized generators, and no scale beyond its first power.

    `bounded` are values that are at most 1 in size, whatever they are made of.
    """
    scales = {pivot.magnitude.value for pivot in form.slot_pivots if pivot.magnitude is not None}
    ratios = {pivot.ratio for pivot in form.slot_pivots if pivot.magnitude is not None}
    high = {accumulator.value for accumulator in form.accumulators
            if sum(_powers(dict(accumulator.transition).get(accumulator.value, S.One), ratios)) >= 2}  # fmt: skip
    known: dict[Value, Degrees | None] = {one: {one: S.One} for one in scales}
    reached = {one: {one} for one in high}
    for assignment in form.assignments:
        known[assignment.value] = {} if assignment.value in bounded else degrees(assignment.expr, known)
        reached[assignment.value] = {value for inner in values_of(assignment.expr) for value in reached.get(inner, ())}
    return any(_is_in_range(degrees(output.expr, known)) and any(reached.get(value) for value in values_of(output.expr))
               for output in form.outputs)  # fmt: skip


def _powers(coefficient: Expr, ratios: AbstractSet[Value]) -> Iterator[Expr]:
    for factor in Mul.make_args(coefficient):
        base, power = factor.as_base_exp()
        if base in ratios:
            yield power


def _is_in_range(powers: Degrees | None) -> bool:
    return powers is not None and all(abs(one) <= 1 for one in powers.values())


def degrees(expr: Expr, known: Mapping[Value, Degrees | None]) -> Degrees | None:
    """The powers of scales that an expression is proportional to, None if terms differ in them beyond the first."""
    if isinstance(expr, Value):
        return known.get(expr, {})
    if not values_of(expr) & known.keys():
        return {}
    if isinstance(expr, Let):
        return degrees(expr.expr, known)
    if isinstance(expr, Pow) and expr.exp.is_Rational:
        base = degrees(expr.base, known)
        return base if base is None else {scale: power * expr.exp for scale, power in base.items()}
    parts = [degrees(arg, known) for arg in expr.args if isinstance(arg, Expr)]
    if any(one is None for one in parts):
        return None
    powers_of = [{scale: power for scale, power in one.items() if power} for one in parts if one is not None]
    if isinstance(expr, Mul):
        return {scale: sum((one.get(scale, S.Zero) for one in powers_of), S.Zero) for one in powers_of for scale in one}
    if isinstance(expr, log):
        return {}
    if isinstance(expr, Add | Abs | Max | Min | Where) and (all(one == powers_of[0] for one in powers_of)
                                                            or all(map(_is_in_range, powers_of))):  # fmt: skip
        return max(powers_of, key=len)
    return None
