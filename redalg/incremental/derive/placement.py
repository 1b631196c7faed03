"""Placement: the pivots that the basis needs, and how each is chosen (THEORY section 3).

a factor of d alone (1/l, 1/σ)   deferred to `finish`: it never enters the loop
an exponential E[k·v]            pivot = running max of v, k > 0 a number or scalar; an extremum that the user wrote is
                                 reused (a minimum as the max of −v), otherwise an auxiliary max is added
a scaled generator (u/c)^p       c = running max |u|, where the term divides by it, or a power of 2 near it (`scales`)
a shifted generator z = u − c    its centre when that is u's own extremum (running); else the natural centre of
                                 each block (tile-local), where it moves as u does and has no axes that u and the
                                 weights lack; else the block's mean
a sized generator u/m        m a power of 2 near the largest |u|; then y = u/m − c as a shifted generator is (`scales`)
a whole generator E[k·v]^q·f     exponentials as above, y = exp(q·k·(v − c))·f; then y as a shifted generator is
a residual y − v − b·x           slope pivots β, found from each block, and shifts that are elements of the data

    (m·2^e)·h^n → (m·2^k)·2^(e + n·e' + ⌊n·log₂ b⌋)        |h| = b·2^e', k what the floor leaves, h finite and not 0

so that no power of a factor of d is computed, which may leave the range where the product does not;

    exp(k·v − k·d) → exp(k·(v − c))·exp(k·(c − d))                          k positive, a number or made of scalars

so that v − c, which is exact near c, is rounded before it is multiplied;

    exp(u)·[c] → exp(where(c, u, −∞))·[c]                                   wherever exp(u) stands: a pivot is not of
                                                                            what a mask hides
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import count
from typing import final

from sympy import Abs, Add, Expr, S, Tuple, expand_mul, log
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.extrema.extremal import Extremal
from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Polynomial
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import Axis, Element, Label, Value, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, is_indicator, sympy_text, values_of
from redalg.expression.rebuild import replace_nodes
from redalg.incremental.derive.auxiliary import mean_of
from redalg.incremental.derive.basis import FIRST_SLOPE, Pool
from redalg.incremental.derive.centre import Centred
from redalg.incremental.derive.exponents import split_rate
from redalg.incremental.derive.lines import regresses
from redalg.incremental.derive.maxima import at_maximum
from redalg.incremental.derive.peaks import about_peak, peak_of
from redalg.incremental.derive.scales import counting_condition, scale_of
from redalg.incremental.derive.selected import selected_index, selected_value
from redalg.incremental.derive.structures import structure_of
from redalg.incremental.derive.vanished import where_kept
from redalg.incremental.form import Extremum, Pivot, PivotPolicy, Structure
from redalg.monoids import Monoid, monoid
from redalg.monoids.functions import Powered, Scaled
from redalg.monoids.peaks import ARGPEAK, PEAK

FIRST_SIZE = 1 << 21
"""Keys of the magnitudes of atoms follow those of slopes."""


@final
class Placement:
    """The pivots by atom number, the extrema that the state holds, and the values that follow from them alone.

    `rates` are those of exponentials: u = rate·base. Filled once per derivation, by `place_pivots`.
    """

    def __init__(self, decomposition: Decomposition) -> None:
        self.decomposition = decomposition
        self.extrema: list[Extremum] = []
        self.structures: list[Structure] = []
        self.pivots: dict[int, Pivot] = {}
        self.rates: dict[int, Expr] = {}
        self.finals: dict[Value, Expr] = {}
        self.slopes: dict[int, tuple[tuple[Value, int, Expr], ...]] = {}  # y -> (β, x, the shift of x)

    def symbol(self, name: str, axes: AbstractSet[Axis]) -> Value:
        """A slot's symbol with the given free axes."""
        return Value(Label(name), *axes_by_name(axes - set(self.decomposition.cascade.reduced_axes)))

    def maximum(self, term: Expr, name: str) -> Value:
        """The slot of a term's maximum, a new one unless the state holds it."""
        slots = [one.value for one in self.extrema if (one.monoid.name, one.term) == ("max", term)]
        if slots:
            return slots[0]
        number = sum(one.value.name.startswith(f"{name}_") for one in self.extrema)
        value = self.symbol(f"{name}_{number}", free_axes(term) | free_axes(self.decomposition.cascade.domain))
        self.extrema.append(Extremum(value, monoid("max"), term))
        return value


def place_pivots(decomposition: Decomposition, centred: dict[str, Centred], pool: Pool) -> Placement:
    """Place extrema first, then a pivot for every exponential of the basis and for every centred generator."""
    placement = Placement(decomposition)
    for separation in decomposition.separations:
        if separation.reduction.monoid.name != "sum":
            _hold(placement, separation)
    atoms = decomposition.separator.atoms.list
    scales = {atom for whole in pool.wholes.values() for atom, _ in whole.exponentials}
    for number in sorted(scales | {atom for function in pool.functions for atom, _ in function.grade}):
        if number in pool.scaled:
            placement.pivots[number] = _scale_pivot(placement, atoms[number], rooted=number in pool.rooted)
        else:
            atom = _mask_atom(number, atoms[number], pool)
            placement.pivots[number], placement.rates[number] = _exponential_pivot(placement, atom)
    for number in sorted(pool.sized):
        size = _scale_pivot(placement, atoms[number], rooted=True, where=counting_condition(number, pool))
        placement.pivots[FIRST_SIZE + number] = size
    place_slopes(placement, pool, centred)
    for number in pool.pivoted:
        if number in placement.pivots:
            continue
        centres = [one.centres[number] for one in centred.values() if number in one.centres]
        pivot = _shift_pivot(placement, number, centres, pool) if centres else _auxiliary_pivot(placement, number, pool)
        placement.pivots[number] = _with_scales(pivot, number, placement, pool)
    return placement


def _with_scales(pivot: Pivot, number: int, placement: Placement, pool: Pool) -> Pivot:
    """The pivot with its scales: of a whole generator the pivots of its exponentials, of a sized one its magnitude."""
    if number in pool.sized:
        return replace(pivot, scales=((placement.pivots[FIRST_SIZE + number], S.One),), rest=pivot.base)
    if number not in pool.wholes:
        return pivot
    return replace(pivot, scales=_scales(placement, number, pool), rest=pool.wholes[number].rest)


def _scales(placement: Placement, number: int, pool: Pool) -> tuple[tuple[Pivot, Expr], ...]:
    """The pivots of the exponentials of a generator, with their rates."""
    exponentials = pool.wholes[number].exponentials if number in pool.wholes else ()
    return tuple((placement.pivots[atom], placement.rates[atom] * laurent.fraction(q)) for atom, q in exponentials)


def place_slopes(placement: Placement, pool: Pool, centred: dict[str, Centred]) -> None:
    """Place a slope pivot for every pair (y, x), y taken less β·x; the shifts of both are elements of the data."""
    atoms = placement.decomposition.separator.atoms
    for atom in dict.fromkeys(x for _, x in pool.slopes if x in pool.pivoted or x in pool.wholes):
        placement.pivots[atom] = _on_line(atom, placement, pool)
    for number, (y, x) in enumerate(pool.slopes):
        slopes = [slope for one in centred.values() if (slope := one.slopes(y).get(x)) is not None]
        fitted = not slopes or not all(regresses(y, x, one, placement.decomposition.separator) for one in slopes)
        exprs = [*map(atoms.polynomial_expr, slopes), *([atoms.list[y].base] if fitted else [])]
        axes = {axis for expr in exprs for axis in free_axes(expr)}
        value = placement.symbol(f"slope_{number}", axes)
        base = atoms.list[x].base
        scales, onto = (_scales(placement, atom, pool) for atom in (y, x))
        pivot = Pivot(value, base, PivotPolicy.SLOPE, S.Zero, scales=scales, onto=onto)
        placement.pivots[FIRST_SLOPE + number] = pivot
        centre = placement.pivots[x].value if x in pool.pivoted else S.Zero
        placement.slopes[y] = (*placement.slopes.get(y, ()), (value, x, centre))
    for key in range(FIRST_SLOPE, FIRST_SLOPE + len(pool.slopes)):
        pairs = ((placement.pivots[one].value for one in pair) for pair in pool.links(key))
        placement.pivots[key] = replace(placement.pivots[key], slopes=tuple((a, b) for a, b in pairs))
    for y in placement.slopes:
        slopes_of = tuple((value, centre) for value, _, centre in placement.slopes[y])
        if y in pool.pivoted or y in pool.wholes:
            placement.pivots[y] = _on_line(y, placement, pool, slopes_of)


def _on_line(number: int, placement: Placement, pool: Pool, slopes: tuple[tuple[Value, Expr], ...] = ()) -> Pivot:
    """The pivot of a generator on a line: an element of the data, or 0 if it is scaled and not shifted."""
    atom = pool.atoms.list[number]
    policy = PivotPolicy.MEMBER if number in pool.pivoted else PivotPolicy.RUNNING
    own = slopes if number in pool.pivoted else ()
    known = placement.pivots.get(number)
    value = _symbol(placement, atom) if known is None else known.value
    return _with_scales(Pivot(value, atom.base, policy, S.Zero, own), number, placement, pool)


def _hold(placement: Placement, separation: Separation) -> None:
    """Add the slots of a reduction that is not a sum: its own value if F is of x alone, else extrema of x."""
    if separation.extremal is not None:
        _hold_extrema(placement, separation, separation.extremal)
        return
    reduction, [g], [h] = separation.reduction, separation.g, separation.h
    value, results = reduction.value, tuple[Expr, ...]()
    places = reduction.monoid.name in ("argmax", "argmin") and separation.times == "∘"
    if places and (peak := peak_of(reduction.monoid.name, g, h)) is not None:
        weight, _, index = _hold_peak(placement, reduction, peak, "", ARGPEAK)
        facts = placement.decomposition.separator.facts
        placement.finals[value] = selected_index(separation, index, weight, facts)
        return
    if reduction.monoid.state_kind or not reduction.is_scalar:
        structure, results = structure_of(separation, placement.decomposition)
        if structure not in placement.structures:
            placement.structures.append(structure)
        value = results[reduction.monoid.result(reduction.result)[0]]
    else:
        placement.extrema.append(Extremum(value, reduction.monoid, g))
    if separation.times == "∘":
        index, best = _selection(structure)
        facts = placement.decomposition.separator.facts
        value = (
            selected_index(separation, index, best, facts)
            if reduction.dtype
            else selected_value(separation, index, best)
        )
    elif h is not S.Zero:  # Π g·h = (Π g)·h^n
        base, power = h.as_base_exp()
        base, power = (base, power) if power.is_Integer else (h, S.One)
        count = separation.count or S.Zero
        value = Powered(*value.args, base, power * count) if isinstance(value, Scaled) else value * h**count
    if value != reduction.value:
        placement.finals[reduction.value] = value


def _selection(structure: Structure) -> tuple[Value, Value]:
    """The slots of a selection: its index and its value."""
    [index] = structure.integers
    [value] = set(structure.values) - {index}
    return index, value


def _hold_extrema(placement: Placement, separation: Separation, extremal: Extremal) -> None:
    """Add a slot for every extremum of x that the reduction follows from, unless it is held already."""
    reduction, values, final = separation.reduction, dict[Expr, Value](), extremal.final
    for slot in extremal.slots:
        if (peak := peak_of(slot.kind, slot.term, extremal.final)) is not None:
            final = about_peak(final, slot, *_hold_peak(placement, reduction, peak, f"_{slot.kind}"))
            continue
        slots = [one.value for one in placement.extrema if (one.monoid.name, one.term) == (slot.kind, slot.term)]
        if not slots:
            axes = free_axes(slot.term) | free_axes(placement.decomposition.cascade.domain)
            name = "any" if slot.term is S.Zero else "x" if len(extremal.g) == 1 else slot.kind
            own = placement.symbol(f"{reduction.name}_{name}", axes)
            slots = [reduction.value if extremal.final == slot.symbol else _with_free_name(own, placement)]
            placement.extrema.append(Extremum(slots[0], monoid(slot.kind), slot.term))
        values[slot.symbol] = slots[0]
    final = replace_nodes(final, values)
    if reduction.monoid.name in ("max", "min"):  # any and all are truths, of NaN too
        final = where_kept(final, extremal, values, placement.decomposition.separator.facts)
    if final != reduction.value:
        placement.finals[reduction.value] = final


def _hold_peak(
    placement: Placement, reduction: Reduction, peak: Tuple, name: str, kind: Monoid = PEAK
) -> tuple[Value, ...]:
    """The slots of a peak's components; each peak is held once."""
    for other in placement.structures:
        if (other.monoid, other.term) == (kind, peak):
            return other.values
    axes = free_axes(peak)
    own = (placement.symbol(f"{reduction.name}_{part.name}{name}", axes) for part in kind.components)
    values = tuple(_with_free_name(value, placement) for value in own)
    placement.structures.append(Structure(values, kind, peak))
    return values


def _with_free_name(value: Value, placement: Placement) -> Value:
    used = {one.value.name for one in placement.extrema}
    used |= {value.name for structure in placement.structures for value in structure.values}
    names = (value.name, *(f"{value.name}{number}" for number in range(len(used))))
    return Value(Label(next(name for name in names if name not in used)), *value.indices)


def _exponential_pivot(placement: Placement, atom: Atom) -> tuple[Pivot, Expr]:
    """c and the rate k of E[k·v]^q = exp(q·k·v), to be weighed as exp(q·k·(v − c)): v − c is rounded first."""
    shared = (_at_extremum(placement, atom, one) for one in placement.extrema if one.monoid.name in ("max", "min"))
    if (pair := next((one for one in shared if one is not None), None)) is not None:
        return pair
    atoms = placement.decomposition.separator.atoms.list
    rate, base = split_rate(atom.base, (one.base for one in atoms if one.exponential and not one.on_x))
    value = placement.maximum(base, "aux")
    return Pivot(value, base, PivotPolicy.RUNNING, value), rate


def _mask_atom(number: int, atom: Atom, pool: Pool) -> Atom:
    """E[u] as E[where(c, u, −∞)] if it always stands beside [c]: an element that [c] hides is no pivot."""
    beside = [{other for other, _ in x} for one in pool.functions if number in dict(one.grade) for x in one.vector]
    shared = sorted(set.intersection(*beside)) if beside else []
    base = atom.base
    for mask in (pool.atoms.list[one].base for one in shared):
        if is_indicator(mask):
            base = Where(mask.args[0], *(base if branch is S.One else S.NegativeInfinity for branch in mask.args[1:]))
    return replace(atom, base=base)


def _at_extremum(placement: Placement, atom: Atom, extremum: Extremum) -> tuple[Pivot, Expr] | None:
    """The pivot at an extremum if u is a multiple of its term: a positive one of a maximum, a negative of a minimum."""
    if elements_of(atom.base) != elements_of(extremum.term):
        return None
    rate = expand_mul(atom.base) / expand_mul(extremum.term)  # of scalars alone: a state holds them, and no tensors
    sign = S.One if extremum.monoid.name == "max" else S.NegativeOne
    if rate.atoms(Element, Value, Axis) or not (sign * rate).is_extended_positive:
        return None
    value = extremum.value if sign is S.One else _symbol(placement, atom)
    return Pivot(value, sign * extremum.term, PivotPolicy.RUNNING, sign * extremum.value), sign * rate


def _scale_pivot(placement: Placement, atom: Atom, *, rooted: bool, where: Boolean = S.true) -> Pivot:
    """The pivot at the largest |u| in `where` so far, which the term divides by; if `rooted`, a power of 2 near it."""
    size = Abs(atom.base)
    largest = placement.maximum(size if where is S.true else Where(where, size, S.Zero), "aux")
    source = scale_of(largest) if rooted else largest
    same = (one for one in placement.pivots.values() if one.policy is PivotPolicy.SCALE and one.source == source)
    return next(same, Pivot(_symbol(placement, atom), atom.base, PivotPolicy.SCALE, source))  # |u| has that of u


def _symbol(placement: Placement, atom: Atom, axes: AbstractSet[Axis] | None = None) -> Value:
    name = free_pivot_name(placement.pivots.values())
    return placement.symbol(name, free_axes(atom.base) if axes is None else axes)


def _shift_pivot(placement: Placement, number: int, centres: list[Polynomial], pool: Pool) -> Pivot:
    atom, to_expr = pool.atoms.list[number], pool.atoms.polynomial_expr
    candidates = list(dict.fromkeys(map(to_expr, centres)))
    plainest = min(candidates, key=_plainness) if len(candidates) > 1 else candidates[0]
    centre = _without_logs(_without_tensors(plainest, placement.decomposition.cascade))
    reduced = set(placement.decomposition.cascade.reduced_axes)
    for pivot in placement.pivots.values():  # an exponential's pivot serves the same u when it is centred there
        if pivot.base == atom.base and (
            pivot.source == centre or at_maximum(pivot, centre, placement.extrema, reduced)
        ):
            return pivot
    is_extremum = any(one.value == centre and one.term == atom.base for one in placement.extrema)
    if is_extremum and number not in pool.wholes and number not in pool.sized:  # within u's own range
        return Pivot(_symbol(placement, atom), atom.base, PivotPolicy.RUNNING, centre)
    if centre is S.Zero:
        return Pivot(_symbol(placement, atom), atom.base, PivotPolicy.BLOCK_MEAN, S.Zero)
    axes = free_axes(atom.base) | (free_axes(centre) & _weights_axes(number, pool, placement.decomposition.cascade))
    within = free_axes(centre) <= axes
    policy = PivotPolicy.TILE_LOCAL if within else PivotPolicy.BLOCK_MEAN
    return Pivot(_symbol(placement, atom, axes if within else None), atom.base, policy, centre if within else S.Zero)


def _weights_axes(number: int, pool: Pool, cascade: Cascade) -> AbstractSet[Axis]:
    """Axes that a generator may take on, as it is multiplied element by element with factors that have them.

    Exponentials, masks and weights lend their axes if they stand beside every power of the generator; so does the
    domain. A generator that varies along axes of its own is the operand of a contraction, and keeps to them.
    """
    shared: AbstractSet[Axis] | None = None
    for function in pool.functions:
        for monomial in (x for x in function.vector if number in dict(x)):
            beside = [*function.grade, *(one for one in monomial if one[0] != number)]
            factors = (cascade.domain, *(pool.atoms.list[atom].base for atom, _ in beside))
            axes = {axis for factor in factors for axis in free_axes(factor)}
            shared = axes if shared is None else shared & axes
    return shared if shared and free_axes(pool.atoms.list[number].base) <= shared else set()


def _plainness(centre: Expr) -> tuple[bool, int, str]:
    return centre.has(log), centre.count_ops(), sympy_text(centre)


def _auxiliary_pivot(placement: Placement, number: int, pool: Pool) -> Pivot:
    """The pivot that scales an exponential of u; else the block's mean, until the slots have names (`natural_move`)."""
    atom = pool.atoms.list[number]
    shared = (pivot for pivot in placement.pivots.values()
              if pivot.base == atom.base and not pivot.has_slot and pivot.policy is not PivotPolicy.SCALE)  # fmt: skip
    cascade = placement.decomposition.cascade
    axes = free_axes(atom.base) | _weights_axes(number, pool, cascade)
    fits = any(pool.axes_of(weighted, cascade.domain) <= axes for weighted, _ in mean_of(number, pool))
    mean = Pivot(_symbol(placement, atom, axes if fits else None), atom.base, PivotPolicy.BLOCK_MEAN, S.Zero)
    return next(shared, mean)


def _without_tensors(centre: Expr, cascade: Cascade) -> Expr:
    """Drop terms that hold parameters: a state holds no tensors, and merges without them."""
    parameters = {one.value for one in cascade.parameters}
    return Add(*(term for term in Add.make_args(centre) if not (elements_of(term) | values_of(term) & parameters)))


def _without_logs(centre: Expr) -> Expr:
    """Drop slowly varying terms: any finite pivot is exact, and max u alone is already at hand."""
    terms = [term for term in Add.make_args(centre) if not term.has(log)]
    return Add(*terms) if terms else centre


def free_pivot_name(pivots: Iterable[Pivot]) -> str:
    """The first of the names c_0, c_1, … that no pivot has."""
    names = {one.value.name for one in pivots}
    return next(name for number in count() if (name := f"c_{number}") not in names)
