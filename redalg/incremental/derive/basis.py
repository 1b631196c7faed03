"""The pool of basis functions, closed under moves of the pivots, and how they move.

    B_k(z − δ) = Σ_α (−δ)^α / α! · ∂^α B_k(z)           Taylor's theorem, exact for polynomials

so the span must hold every ∂B/∂z of a pivoted z. A slope pivot β of y on x, z_y = y − c − β·z_x, moves by the operator
z_x·∂/∂z_y, which is applied after the derivatives:

    B(z_x − δ, z_y − ε − σ·z_x) = exp(−ε·∂_y − σ·z_x·∂_y) exp(−δ·∂_x) B,      ε = δ_y − β'·δ_x

Slopes may be chained: z_y less β·z_x where z_x is a residual itself. All derivatives are then taken first, and the turn
of y on x is τ_yx = σ_yx − Σ_z β'_yz·τ_zx over the z between: the move of a unit triangular factor.

Functions of different grade Π E[u]^q · Π s^p are independent, so each grade has a span of its own; s is a generator
that is scaled, (s/c)^p, and moves by (c/c')^p. One pool serves all the reductions of a cascade.

A whole generator G = Π E[u]^q·f is scaled first and then shifted, y = Π exp(q·(u − m))·f − c, and its move is affine:

    y' = ρ·y − δ,     ρ = Π exp(q·(m − m')),     δ = c' − ρ·c,     so that B(y') = Σ_α (−δ)^α/α! · ∂^α B, at ρ·y for y

A function of degree k in y is ρ^k times itself there, provided that it is homogeneous: so the span of a grade holds the
parts of each degree by themselves. Nothing divides by ρ, which may be 0. A slope between such generators moves so:

    y' = ρ_y·y − σ·x,     x' = ρ_x·x,     σ = ρ_x·β' − ρ_y·β          the x by which y is moved is not scaled again

So moves any generator that is sized, divided by a magnitude m before it is shifted: y = u/m − c, ρ = m/m'.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import factorial
from typing import final

from sympy.logic.boolalg import Boolean

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atoms, Monomial, Ratio, Vector
from redalg.decompose.separate.span import Span
from redalg.decompose.separate.whole import Whole
from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.incremental.derive.centre import Centred

Shift = Monomial
"""A power of the displacements, ((key, n), …) standing for Π δ_key^n; a key is a pivoted atom or a slope's."""

FIRST_SLOPE = 1 << 20
"""Keys of slopes follow those of atoms."""


@final
@dataclass(frozen=True)
class Function:
    """One basis function: Π E[u]^q and Π s^p of its grade, times a polynomial in the other atoms."""

    grade: Monomial
    vector: Vector

    def square_weight(self, atom: int) -> Monomial | None:
        """w of a function w·z², z the atom; None if it is no such function."""
        if len(self.vector) != 1 or dict(monomial := next(iter(self.vector))).get(atom) != 2:
            return None
        return laurent.without_atom(monomial, atom)


@final
class Pool:
    """Basis functions, coordinates of polynomials in them, and transition rows."""

    def __init__(self, atoms: Atoms, centred: list[Centred], auxiliary: frozenset[int] = frozenset(),
                 divided: frozenset[int] = frozenset(), rooted: frozenset[int] = frozenset(),
                 *, wholes: tuple[Whole, ...] = (), sized: frozenset[int] = frozenset()) -> None:  # fmt: skip
        self.atoms, self.auxiliary, self.rooted, self.scaled = atoms, auxiliary, rooted, divided | rooted
        pairs = {(atom, other) for one in centred for atom in one.centres for other in one.slopes(atom)}
        self.slopes = chain_slopes(pairs, {one.atom for one in wholes if one.exponentials}, atoms)
        shifted = {atom for one in centred for atom in one.centres if one.shift(atom) or not one.slopes(atom)}
        shifted |= auxiliary
        for _ in self.slopes:
            shifted |= {y for y, x in self.slopes if x in shifted}  # y − β·(x − c) moves with c
        self.pivoted = sorted(shifted)
        tilted = {atom for pair in self.slopes for atom in pair}
        self.wholes = {one.atom: one for one in wholes if one.atom in {*shifted, *tilted} and one.exponentials}
        self.sized = (sized & shifted) - self.wholes.keys() - tilted
        self.keys = [*self.pivoted, *range(FIRST_SLOPE, FIRST_SLOPE + len(self.slopes))]
        self._spans: dict[Monomial, Span] = {}
        self._transitions: dict[int, dict[int, dict[Shift, Ratio]]] = {}
        for centred_sum in centred:
            for grade, vector in self.vectors(centred_sum):
                self._close(grade, vector)
        self.functions = [Function(grade, vector) for grade, span in self._spans.items() for vector in span.basis]
        starts, total = dict[Monomial, int](), 0
        for grade, span in self._spans.items():
            starts[grade], total = total, total + len(span.basis)
        self._starts = starts

    def vectors(self, centred: Centred) -> Iterator[tuple[Monomial, Vector]]:
        """The vectors that the basis must span for a reduction, by grade."""
        for _, part in centred.parts:
            for column in laurent.columns(part).values():
                yield from self.by_grade(column).items()

    def by_grade(self, column: Vector) -> dict[Monomial, Vector]:
        """A column split by exponential grade."""
        out: dict[Monomial, Vector] = {}
        for x, c in column.items():
            graded = self._is_graded if self._is_rooted(x) else self._is_plainly_graded
            grade, rest = laurent.split_monomial(x, graded)
            out.setdefault(grade, {})[rest] = c
        return out

    def _is_plainly_graded(self, atom: int) -> bool:
        return self.atoms.list[atom].exponential or atom in self.scaled - self.rooted

    def _is_graded(self, atom: int) -> bool:
        return self.atoms.list[atom].exponential or atom in self.scaled

    def _is_rooted(self, monomial: Monomial) -> bool:
        """Tell if a monomial is u^p, p ≥ 2, or u·v of the same axes, of generators that a root has scaled."""
        axes = {free_axes(self.atoms.list[atom].base) for atom, _ in monomial if atom in self.rooted}
        return bool(self.rooted) and len(axes) == 1 and all(atom in self.rooted for atom, _ in monomial) and \
            sum(q for _, q in monomial) >= 2  # fmt: skip

    def find(self, grade: Monomial, monomial: Monomial) -> int | None:
        """The number of the function of a grade that is one monomial; None if the basis has no such function."""
        plain = Function(grade, {monomial: 1})
        return next((number for number, function in enumerate(self.functions) if function == plain), None)

    @property
    def composite(self) -> bool:
        """Tell if some generator is scaled before it is shifted."""
        return bool(self.wholes or self.sized)

    def degrees(self, number: int) -> dict[int, Ratio]:
        """The degree of a function in every generator that is scaled before it is shifted."""
        return self._degrees(next(iter(self.functions[number].vector)))

    def ratio_powers(self, number: int, shift: Shift) -> dict[int, Ratio]:
        """The power of ρ of every such generator, for a function that a displacement leads to."""
        powers = self.degrees(number)
        for key, n in shift:
            if (pair := self.slope(key)) is not None and pair[1] in powers:
                powers[pair[1]] -= n
        return powers

    def _degrees(self, monomial: Monomial) -> dict[int, Ratio]:
        return {atom: q for atom, q in monomial if atom in self.wholes or atom in self.sized}

    def _homogeneous(self, vector: Vector) -> Iterator[Vector]:
        """The parts of a vector of each degree in the generators that are scaled and shifted."""
        parts: dict[Monomial, Vector] = {}
        for monomial, c in vector.items():
            parts.setdefault(tuple(self._degrees(monomial).items()), {})[monomial] = c
        yield from parts.values()

    def _close(self, grade: Monomial, vector: Vector) -> None:
        for part in self._homogeneous(vector) if self.composite else (vector,):
            self._add(grade, monic(part))

    def _add(self, grade: Monomial, vector: Vector) -> None:
        if vector and self._spans.setdefault(grade, Span()).add(vector):
            for key in self.keys:
                self._close(grade, self.move_derivative(vector, key))

    def slope(self, key: int) -> tuple[int, int] | None:
        """(y, x) of a slope's key; None for an atom."""
        return self.slopes[key - FIRST_SLOPE] if key >= FIRST_SLOPE else None

    def links(self, key: int) -> list[tuple[int, int]]:
        """The keys of (y, z) and (z, x), for every z between y and x of a slope's key."""
        y, x = self.slopes[key - FIRST_SLOPE]
        keys = {pair: FIRST_SLOPE + number for number, pair in enumerate(self.slopes)}
        return [(keys[y, z], keys[z, x]) for other, z in self.slopes if other == y and (z, x) in keys]

    def is_chained(self, y: int) -> bool:
        """Tell if a generator has slopes on two others, one of which has a slope on the other."""
        return any(one == y and self.links(FIRST_SLOPE + number) for number, (one, _) in enumerate(self.slopes))

    def move_derivative(self, vector: Vector, key: int) -> Vector:
        """∂B/∂z of a pivoted atom, or z_x·∂B/∂z_y of a slope."""
        pair = self.slope(key)
        if pair is None:
            return derivative(vector, key)
        y, x = pair
        return {laurent.multiply_monomials(one, ((x, 1),)): c for one, c in derivative(vector, y).items()}

    def coordinates(self, grade: Monomial, vector: Vector) -> dict[int, Ratio]:
        """A vector of that grade in the basis: function number -> coefficient."""
        coordinates = self._spans[grade].coordinates(vector)
        if coordinates is None:
            raise AssertionError("the pool is not closed")
        return {self._starts[grade] + index: c for index, c in sorted(coordinates.items())}

    def axes_of(self, number: int, domain: Boolean) -> set[Axis]:
        """The axes of a basis function, with those of the domain that it is summed over."""
        function = self.functions[number]
        exprs = [self.atoms.list[atom].base for atom, _ in function.grade] + [*map(self.atoms.expr, function.vector)]
        moving = {*self.pivoted, *self.wholes, *(y for y, _ in self.slopes)}
        moved = {atom for monomial in function.vector for atom, _ in monomial if atom in moving}
        exprs += [self.atoms.list[atom].base for atom in moved]  # w·(1/w − c) varies with w, though w·(1/w) does not
        return {axis for one in (domain, *exprs) for axis in free_axes(one)}

    def powers(self, polynomial: laurent.Polynomial) -> set[Shift]:
        """The powers of displacements in the transitions of the functions that a polynomial is made of."""
        numbers = {number for column in laurent.columns(polynomial).values()
                   for grade, vector in self.by_grade(column).items()
                   for number in self.coordinates(grade, vector)}  # fmt: skip
        return {power for number in numbers for row in self.transition(number).values() for power in row}

    def transition(self, number: int) -> dict[int, dict[Shift, Ratio]]:
        """B_number at a pivot moved by δ, as Σ over functions of Σ coefficient · δ-power."""
        if number not in self._transitions:
            self._transitions[number] = self._transition(self.functions[number])
        return self._transitions[number]

    def _transition(self, function: Function) -> dict[int, dict[Shift, Ratio]]:
        rows: dict[int, dict[Shift, Ratio]] = {}
        todo: list[tuple[Shift, Vector]] = [((), function.vector)]
        while todo:
            shift, derived = todo.pop()
            vector, factor = self._along(shift, derived), laurent.ratio(1, 1)
            for _, n in shift:
                factor *= laurent.ratio((-1) ** int(n), factorial(int(n)))
            for index, c in self.coordinates(function.grade, vector).items():
                laurent.accumulate(rows.setdefault(index, {}), shift, c * factor)
            for key in self.keys:
                if shift and key < shift[-1][0]:
                    continue  # in order: each shift once
                pair = self.slope(key)
                if slope := derivative(derived, pair[0] if pair else key):
                    todo.append((laurent.multiply_monomials(shift, ((key, 1),)), slope))
        return {index: row for index, row in sorted(rows.items()) if row}

    def _along(self, shift: Shift, derived: Vector) -> Vector:
        """A derivative times z_x^n for every slope in its shift."""
        for key, n in shift:
            if (pair := self.slope(key)) is not None:
                derived = {laurent.multiply_monomials(x, ((pair[1], n),)): c for x, c in derived.items()}
        return derived


def chain_slopes(pairs: AbstractSet[tuple[int, int]], scaled: AbstractSet[int], atoms: Atoms) -> list[tuple[int, int]]:
    """The slopes, and those between two generators that a third one has slopes on: the later on the earlier.

    So z_1, z_2, … are orthogonal in pairs if every slope is that of least squares: L·D·Lᵀ of their Gram matrix, L
    the slopes and D the squares of the residuals. Generators that are scaled, or have other axes, are not chained.
    """
    order = slope_order(pairs) or []
    slopes, before = set(pairs), set[tuple[int, int]]()
    while slopes != before:
        before = set(slopes)
        for y in order:
            others = sorted((x for other, x in before if other == y), key=order.index)
            if is_alike({y, *others}, scaled, atoms):
                slopes |= {(others[j], others[i]) for j in range(len(others)) for i in range(j)}
        slopes |= {(y, x) for y, z in before for other, x in before if other == z}
    return sorted(slopes)


def is_alike(generators: set[int], scaled: AbstractSet[int], atoms: Atoms) -> bool:
    """Tell if slopes between generators may be chained."""
    return len({free_axes(atoms.list[one].base) for one in generators}) == 1 and not scaled & generators


def slope_order(slopes: AbstractSet[tuple[int, int]]) -> list[int] | None:
    """The generators on lines, each after those that it has slopes on; None if two have slopes on each other."""
    left, order = {one for pair in slopes for one in pair}, list[int]()
    while left:
        free = [one for one in left if not any(y == one and x in left for y, x in slopes)]
        if not free:
            return None
        order.append(min(free))
        left.remove(min(free))
    return order


def monic(vector: Vector) -> Vector:
    """A single term without its coefficient, so that the slots of a state are plain moments."""
    return dict.fromkeys(vector, 1) if len(vector) == 1 else vector


def derivative(vector: Vector, atom: int) -> Vector:
    """∂/∂z of a polynomial in z (natural powers: pivoted atoms have no others)."""
    out: Vector = {}
    for monomial, c in vector.items():
        degree = dict(monomial).get(atom, 0)
        if degree:
            lower = laurent.multiply_monomials(monomial, ((atom, -1),))
            laurent.accumulate(out, lower, c * degree)
    return out
