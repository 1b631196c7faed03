"""Decomposition -> FusedForm, step by step: centre, close the basis, place the pivots, resolve the values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import Abs, Add, And, Eq, Expr, Mul, Or, Pow, S
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate.laurent import Atom, Ratio, fraction
from redalg.decompose.separate.signs import is_nonnegative
from redalg.decompose.separate.whole import Whole
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import Let, Reduce, Value
from redalg.expression.contents import bound_axes, elements_of, free_axes, of_kind, values_of
from redalg.expression.rebuild import replace_nodes
from redalg.incremental.derive.auxiliary import Candidates, natural_move
from redalg.incremental.derive.basis import Function, Pool, Shift, is_alike, slope_order
from redalg.incremental.derive.carried import second_pass_expression
from redalg.incremental.derive.centre import Centred, centre
from redalg.incremental.derive.losable import Losable
from redalg.incremental.derive.nonnegative import kept_nonnegative
from redalg.incremental.derive.offsets import about_offsets
from redalg.incremental.derive.placement import Placement, place_pivots
from redalg.incremental.derive.resolve import Resolver
from redalg.incremental.derive.scales import divided_atoms, in_kernels, pays, pays_of_shifts, rooted_atoms, sized_atoms
from redalg.incremental.derive.tangents import about_tangents
from redalg.incremental.derive.vanished import sums_kept
from redalg.incremental.derive.weights import join_weights
from redalg.incremental.derive.wholes import is_needless, keep_wholes, whole_candidates
from redalg.incremental.factors import group_factors
from redalg.incremental.form import Accumulator, Assignment, FormOutput, FusedForm, Pivot, PivotPolicy
from redalg.incremental.mapped import mapped_accumulator, mapped_output, mapped_pivot

NONE: frozenset[int] = frozenset()


def derive(decomposition: Decomposition) -> FusedForm:
    """The online form of a decomposition: leaf, merge and finish of its monoid."""
    centred = centre_all(decomposition)
    form, paying = derive_about(decomposition, centred)
    for candidate in whole_candidates(decomposition):
        whole, generators = keep_wholes(decomposition, candidate)
        if is_needless(whole, decomposition, centred):
            continue
        about = centre_all(whole)
        other, pivots = derive_about(whole, about)
        scaled = other.structures and not other.is_lanewise  # lanes, which fold structures, share no pivot
        if paying | generators <= pivots and not scaled:  # its own pivot cancels, and those that did without it
            decomposition, centred, form, paying = whole, about, other, pivots
    if (kept := about_offsets(decomposition, centred, paying, unnatural(centred))) is not None:
        form, _ = derive_about(decomposition, kept)
    return complete(form)


def online_form(decomposition: Decomposition) -> FusedForm:
    """The online form as kernels take it."""
    return in_kernels(derive(decomposition))


def complete(form: FusedForm) -> FusedForm:
    """The form without unneeded assignments, every slot named and the emptiness of its outputs said; verified."""
    if form.unscaled is not None:
        form = replace(form, unscaled=complete(form.unscaled))
    form = mark_droppable(named_after_reductions(drop_unused(with_emptiness(about_tangents(form)))))
    form = kept_nonnegative(form)
    form.verify()
    return form


def derive_about(decomposition: Decomposition, centred: dict[str, Centred]) -> tuple[FusedForm, frozenset[int]]:
    """The form with sums that are centred so, and the generators that are centred or lose a pivot again."""
    wholes = tuple(dict.fromkeys(whole for one in sums_of(decomposition) for whole in one.wholes))
    regressors = {x for one in centred.values() for y in one.centres if one.shift(y) for x in one.slopes(y)}
    needed = frozenset(regressors - {atom for one in centred.values() for atom in one.centres} - unnatural(centred))
    possible, losable = Candidates(decomposition, centred), Losable(decomposition, centred)
    cleared = {x for one in centred.values() for y in one.centres if one.slope_divisor(y) for x in (y, *one.slopes(y))}
    powers, products = losable.among(possible.powers - cleared), losable.among(possible.products - cleared)

    attempts = Attempts(decomposition, centred, divided_atoms(decomposition, centred), wholes)
    atoms = powers | needed
    first = attempts.at(atoms)
    form, useful = first.form, first.useful | needed
    if products:
        further = useful | products
        other = attempts.at(further)
        if other.useful - useful:
            form, atoms, useful = other.form, further, other.useful | needed
    if useful != atoms:
        form = attempts.at(useful).form
    return attempts.add_scales(form, useful), paying_atoms(centred, useful)


@final
@dataclass(frozen=True)
class Attempt:
    """The form over a pool; `useful` are auxiliary pivots that a value loses again, `bounded` values of at most 1."""

    form: FusedForm
    useful: frozenset[int]
    bounded: frozenset[Value]


@final
@dataclass(frozen=True)
class Attempts:
    """Tries forms of one decomposition; `divided` are generators that terms divide by their scale themselves."""

    decomposition: Decomposition
    centred: dict[str, Centred]
    divided: frozenset[int]
    wholes: tuple[Whole, ...]

    def pool(self, auxiliary: frozenset[int], rooted: frozenset[int] = NONE, sized: frozenset[int] = NONE) -> Pool:
        """The pool with auxiliary pivots, scales of plain generators (`rooted`) and of shifted ones (`sized`)."""
        return Pool(self.decomposition.separator.atoms, list(self.centred.values()), auxiliary, self.divided, rooted,
                    wholes=self.wholes, sized=sized)  # fmt: skip

    def at(self, auxiliary: frozenset[int], rooted: frozenset[int] = NONE, sized: frozenset[int] = NONE,
           *, level: bool = False) -> Attempt:  # fmt: skip
        """The form over such a pool; with `level` a number may be added to scaled sums under a root."""
        return form_attempt(self.decomposition, self.centred, self.pool(auxiliary, rooted, sized), level=level)

    def add_scales(self, plain: FusedForm, auxiliary: frozenset[int]) -> FusedForm:
        """The form with the scales that pay, beside the one that kernels take if these would cost them time."""
        tilted = {atom for one in self.centred.values() for y in one.centres for x in one.slopes(y) for atom in (y, x)}
        rooted = rooted_atoms(self.decomposition, self.centred) - auxiliary - self.divided - tilted
        sized = sized_atoms(self.decomposition, self.centred, self.pool(auxiliary))
        form, paying = self._try_scales(plain, auxiliary, rooted, sized, level=False)
        if paying == rooted | sized:
            return form
        other, further = self._try_scales(plain, auxiliary, rooted, sized, level=True)
        return replace(other, unscaled=form, level=True) if further > paying else form

    def _try_scales(
        self, form: FusedForm, auxiliary: frozenset[int], rooted: frozenset[int], sized: frozenset[int], *, level: bool
    ) -> tuple[FusedForm, frozenset[int]]:
        """The form with scales of plain generators, then of shifted ones, if they pay; and these generators."""
        paying = NONE
        if rooted and pays(drop_unused((attempt := self.at(auxiliary, rooted, level=level)).form)):
            form, paying = attempt.form, rooted
        if sized:
            attempt = self.at(auxiliary, paying, sized, level=level)
            together = attempt.form.structures and not attempt.form.is_lanewise
            if not together and pays_of_shifts(drop_unused(attempt.form), attempt.bounded):
                form, paying = replace(attempt.form, unscaled=form), paying | sized
        return form, paying


def paying_atoms(centred: dict[str, Centred], auxiliary: frozenset[int]) -> frozenset[int]:
    """The generators that are centred, alone or on a line, or have a pivot that cancels."""
    paying = set(auxiliary)
    for centred_sum in centred.values():
        paying |= {number for atom in centred_sum.centres for number in (atom, *centred_sum.slopes(atom))}
    return frozenset(paying)


def form_attempt(decomposition: Decomposition, centred: dict[str, Centred], pool: Pool, *, level: bool) -> Attempt:
    """The form over a pool."""
    placement = place_pivots(decomposition, centred, pool)
    names = accumulator_values(pool, centred, placement)
    accumulators = tuple(accumulator(number, pool, placement, names) for number in range(len(pool.functions)))
    resolver = Resolver(placement, pool, names, centred, level=level)
    for separation in decomposition.separations:
        resolver.resolve(separation, centred.get(separation.reduction.name))
    form = FusedForm(decomposition.cascade, tuple(placement.extrema), unique_pivots(placement, pool, resolver),
                     accumulators, (), (), structures=tuple(placement.structures))  # fmt: skip
    form = replace(
        form, outputs=form_outputs(form, resolver), assignments=mark_nonnegative_sums(form, resolver, decomposition)
    )
    useful = frozenset(atom for atom in pool.auxiliary if placement.pivots[atom].value in resolver.canceller.vanished)
    return Attempt(form, useful, frozenset(resolver.scaled.bounded))


def sums_of(decomposition: Decomposition) -> list[Separation]:
    """The separations of sums."""
    return [one for one in decomposition.separations if one.reduction.monoid.name == "sum"]


def centre_all(decomposition: Decomposition) -> dict[str, Centred]:
    """Centre every sum but those that would shift a generator with a power that is not natural in some term.

    Lines are chained (`basis`) if their generators are alike. Else, if x is summed about a line of its own, no other
    generator is summed about a line in x.
    """
    sums, separator = sums_of(decomposition), decomposition.separator
    centred = {one.reduction.name: centre(one, separator) for one in sums}
    tilted, regressors, slopes = set[int](), set[int](), set[tuple[int, int]]()
    scaled = {whole.atom for one in sums for whole in one.wholes if whole.exponentials}
    for separation in sums:
        form = centred[separation.reduction.name]
        on = {atom for atom in form.centres if form.slopes(atom)}
        along = {x for atom in on for x in form.slopes(atom)}
        others = (other for name, other in centred.items() if name != separation.reduction.name)
        about = {atom for other in others for atom in other.centres if other.shift(atom)}
        divided = {x for atom in on if form.slope_divisor(atom) for x in (atom, *form.slopes(atom))}
        own = {(y, x) for y in on for x in form.slopes(y)}
        joined = bool((tilted | on) & along or on & regressors)
        chained = slope_order(slopes | own) is not None and is_alike(
            tilted | regressors | on | along, scaled, separator.atoms
        )
        if (joined and (divided or not chained)) or about & divided:
            centred[separation.reduction.name] = centre(separation, separator, lines=False)
        else:
            tilted, regressors, slopes = tilted | on, regressors | along, slopes | own
    fixed = unnatural(centred)
    for separation in sums:
        if fixed & set(centred[separation.reduction.name].centres):
            centred[separation.reduction.name] = Centred(separation.polynomial, {}, separation.guarded)
    return join_weights(centred, separator.atoms)


def unnatural(centred: dict[str, Centred]) -> set[int]:
    """The generators that some term holds to a power that is not natural, so that no shift of them is exact."""
    return {atom for centred_sum in centred.values() for x, _ in centred_sum.polynomial for atom, q in x
            if q < 0 or q.denominator != 1}  # fmt: skip


def accumulator_values(pool: Pool, centred: dict[str, Centred], placement: Placement) -> list[Value]:
    """A symbol for every basis function, named after the first reduction that uses it."""
    owners: dict[int, str] = {}
    for name, centred_sum in centred.items():
        for grade, vector in pool.vectors(centred_sum):
            for k in pool.coordinates(grade, vector):
                owners.setdefault(k, name)
    last = next(reversed(centred), "sum")
    total = Counter(owners.get(k, last) for k in range(len(pool.functions)))
    out, numbers = list[Value](), Counter[str]()
    for k in range(len(pool.functions)):
        owner = owners.get(k, last)
        suffix = str(numbers[owner]) if total[owner] > 1 else ""
        numbers[owner] += 1
        axes = pool.axes_of(k, placement.decomposition.cascade.domain)
        out.append(placement.symbol(f"{owner}_acc{suffix}", axes))
    return out


def accumulator(number: int, pool: Pool, placement: Placement, names: list[Value]) -> Accumulator:
    """One slot: its weight, its factors at the pivot, and its transition."""
    function = pool.functions[number]
    weight = tuple((placement.pivots[atom], fraction(q) * placement.rates[atom]) for atom, q in function.grade
                   if atom not in pool.scaled)  # fmt: skip
    rescale = Mul(
        *(placement.pivots[atom].displacement ** fraction(q) for atom, q in function.grade if atom in pool.scaled)
    )
    transition = tuple((names[other], transition_coefficient(row, other, pool, placement) * rescale)
                       for other, row in pool.transition(number).items())  # fmt: skip
    return Accumulator(names[number], weight, group_factors(summand(function, pool, placement), weight), transition)


def ratios(number: int, shift: Shift, pool: Pool, placement: Placement) -> Expr:
    """Π ρ^k of a function of degree k in a generator that is scaled before it is shifted."""
    return Mul(*(placement.pivots[atom].ratio ** fraction(k) for atom, k in pool.ratio_powers(number, shift).items()))


def summand(function: Function, pool: Pool, placement: Placement) -> Expr:
    """The polynomial part of a basis function, with every pivoted generator written as u − c, or u/c if scaled."""
    scale = Mul(*(scaled_generator(pool.atoms.list[atom], placement.pivots[atom]) ** fraction(q)
                  for atom, q in function.grade if atom in pool.scaled))  # fmt: skip
    total: Expr = S.Zero
    for x, c in function.vector.items():
        term: Expr = fraction(c)
        for atom, q in x:
            if atom in pool.pivoted or atom in placement.slopes or atom in pool.wholes:
                term *= Pow(residual(atom, pool, placement, alone=len(function.vector) == 1), fraction(q))
            else:
                term *= pool.atoms.list[atom].power(q)
        total += term
    return total * scale


def scaled_generator(atom: Atom, pivot: Pivot) -> Expr:
    """u/c, which a name keeps together: u² alone would overflow."""
    return Let(f"{pivot.value.name}_ratio", atom.base / pivot.value)


def residual(atom: int, pool: Pool, placement: Placement, *, alone: bool) -> Expr:
    """u − c − Σ β·(u' − c') of a pivoted generator; u − c is rounded first, as a name keeps it together."""
    base, pivot = pool.atoms.list[atom].base, placement.pivots.get(atom)
    if atom not in placement.slopes:
        return base if pivot is None else pivot.residual if alone else pivot.about(pivot.value)
    lines = (beta * (residual(x, pool, placement, alone=False) if x in placement.slopes else
                     generator_scale(x, pool, placement) - centre)
             for beta, x, centre in placement.slopes[atom])  # fmt: skip
    return Add(base if pivot is None else pivot.about(pivot.value), *(-line for line in lines))


def generator_scale(atom: int, pool: Pool, placement: Placement) -> Expr:
    """A generator with the scale of its exponentials."""
    return placement.pivots[atom].generator if atom in pool.wholes else pool.atoms.list[atom].base


def transition_coefficient(row: dict[Shift, Ratio], number: int, pool: Pool, placement: Placement) -> Expr:
    """Σ c·Π δ^n·Π ρ^k as an expression of the displacements' symbols."""
    total: Expr = S.Zero
    for shift, c in row.items():
        term: Expr = fraction(c) * ratios(number, shift, pool, placement)
        for atom, n in shift:
            term *= placement.pivots[atom].displacement ** fraction(n)
        total += term
    return total


def unique_pivots(placement: Placement, pool: Pool, resolver: Resolver) -> tuple[Pivot, ...]:
    """The pivots in order of atoms; a tile-local source becomes the displacement in terms of the slots.

    A centre is no location of u if it does not move as u does, so that the displacement still holds c. It may lie far
    from the data, where moments about it cancel. Then the block's mean is the pivot, weighted as u is if the slots hold
    that mean.
    """
    pivots: dict[Value, Pivot] = {}
    for number, pivot in sorted(placement.pivots.items()):
        if pivot.policy is PivotPolicy.SLOPE or pivot.slopes:
            pivots[pivot.value] = replace(pivot, source=resolver.source(number))
        elif pivot.policy is PivotPolicy.TILE_LOCAL:
            if pivot.value not in pivots:
                pivots[pivot.value] = about_centre(pivot, number, placement, pool, resolver)
        elif pivot.policy is PivotPolicy.BLOCK_MEAN:
            pivots.setdefault(pivot.value, about_mean(pivot, number, pool, resolver))
        else:
            pivots.setdefault(pivot.value, pivot)
    return tuple(pivots.values())


def about_centre(pivot: Pivot, number: int, placement: Placement, pool: Pool, resolver: Resolver) -> Pivot:
    """A tile-local pivot with its displacement to the natural centre; about a mean if the slots do not give it."""
    source = resolver.move(pivot)
    slots = {*resolver.accumulators, *(one.value for one in placement.extrema)}
    if values_of(source) <= slots and not elements_of(source):
        return replace(pivot, source=source)
    return about_mean(replace(pivot, policy=PivotPolicy.BLOCK_MEAN, source=S.Zero), number, pool, resolver)


def about_mean(pivot: Pivot, number: int, pool: Pool, resolver: Resolver) -> Pivot:
    """A pivot about the mean of the block, weighted if the slots hold Σ w·z and Σ w."""
    axes = {*pivot.value.indices, *resolver.placement.decomposition.cascade.reduced_axes}
    move = natural_move(number, pool, resolver.accumulators, axes)
    return pivot if move is None else replace(pivot, policy=PivotPolicy.TILE_LOCAL, source=move)


def mark_nonnegative_sums(form: FusedForm, resolver: Resolver, decomposition: Decomposition) -> tuple[Assignment, ...]:
    """The assignments, with a mark on sums of terms of at least 0; exp(λ)·v has the sign of v. No NaN is lost."""
    facts = decomposition.separator.facts
    sums = {separation.reduction.value for separation in decomposition.separations
            if separation.reduction.monoid.name == "sum"
            and is_nonnegative(separation.reduction.term, facts)}  # fmt: skip
    safe = {value: v for value, (_, v) in resolver.scaled.exponents.items()}
    sums |= {v for value, v in safe.items() if value in sums}
    assignments = sums_kept(resolver.assignments, form, facts, safe)
    return tuple(replace(one, nonnegative=True) if one.value in sums else one for one in assignments)


def form_outputs(form: FusedForm, resolver: Resolver) -> tuple[FormOutput, ...]:
    """The cascade's outputs in terms of what `finish` assigns."""
    outputs = []
    for output in form.cascade.outputs:
        expr = second_pass_expression(output.expr, resolver) if output.carries else resolver.output_expr(output.expr)
        outputs.append(FormOutput(output.name, expr, output.axes, S.false, output.carries))
    return tuple(outputs)


def with_emptiness(form: FusedForm) -> FusedForm:
    """The form whose outputs have a condition of being empty."""
    return replace(form, outputs=tuple(replace(one, empty=emptiness(one.expr, form)) for one in form.outputs))


def emptiness(expr: Expr, form: FusedForm) -> Boolean:
    """(a denominator is 0) and (every accumulator used is 0): 0/0 for want of elements, and for no other reason.

    Of an accumulator that the output reduces over axes of its own, the largest is 0: max |a| = 0.
    """
    meaning = {one.value: one.expr for one in form.assignments}
    sums = {one.value for one in form.accumulators}
    seen, todo, used, denominators = set[Value](), [expr], set[Value](), set[Expr]()
    while todo:
        node = todo.pop()
        denominators |= {power.base for power in of_kind(Pow, node) if power.exp.is_negative and values_of(power.base)}
        used |= values_of(node) & sums
        further = (values_of(node) & meaning.keys()) - seen
        seen |= further
        todo += (meaning[value] for value in further)
    own = bound_axes(expr) - free_axes(expr)
    denominators = {one for one in denominators if not free_axes(one) & own}
    if not denominators:
        return S.false
    largest = (Reduce("max", Abs(slot), axes) if (axes := tuple(axis for axis in slot.indices if axis in own)) else slot
               for slot in used)  # fmt: skip
    return And(Or(*(Eq(one, 0) for one in denominators)), *(Eq(one, 0, evaluate=False) for one in largest))


def drop_unused(form: FusedForm) -> FusedForm:
    """Drop assignments that no output and no pivot needs (the reductions' own values stay)."""
    assignments: list[Assignment] = []
    needed = {value for one in form.outputs for value in values_of(one.expr)}
    needed |= {value for one in form.outputs for value in values_of(one.empty)}
    for assignment in reversed(form.assignments):
        if assignment.value in needed:
            assignments.append(assignment)
            needed |= values_of(assignment.expr)
    return replace(form, assignments=tuple(reversed(assignments)))


def named_after_reductions(form: FusedForm) -> FusedForm:
    """Give an accumulator that is a reduction's value (finish says d = a) the name of that reduction."""
    sums = {one.value for one in form.accumulators}
    names: dict[Value, Value] = {}
    for assignment in form.assignments:
        if (
            assignment.expr in sums
            and assignment.expr not in names
            and set(assignment.expr.args[1:]) == set(assignment.value.args[1:])
        ):
            names[assignment.expr] = assignment.value

    def rename(expr: Any) -> Any:
        return expr if names.keys().isdisjoint(values_of(expr)) else replace_nodes(expr, names)

    return replace(
        form,
        pivots=tuple(mapped_pivot(one, rename, rename) for one in form.pivots),
        accumulators=tuple(mapped_accumulator(one, rename, rename) for one in form.accumulators),
        assignments=tuple(replace(assignment, expr=rename(assignment.expr)) for assignment in form.assignments
                          if names.get(assignment.expr) != assignment.value),
        outputs=tuple(mapped_output(one, rename) for one in form.outputs),
    )  # fmt: skip


def mark_droppable(form: FusedForm) -> FusedForm:
    """Mark `a` of a displacement a/…: it is 0 at the natural pivot in exact arithmetic (Welford drops it)."""
    sums = [one.value for one in form.accumulators]
    zero = set[Value]()
    for pivot in form.pivots:
        if pivot.policy is PivotPolicy.TILE_LOCAL and not pivot.source.is_Add:
            powers = pivot.source.as_powers_dict()
            zero |= {value for value in sums if powers.get(value, 0) == 1}
    return replace(form, accumulators=tuple(replace(one, droppable=one.value in zero) for one in form.accumulators))
