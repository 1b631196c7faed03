"""Extrema of terms that mix x and d: max F(u(x), d) from the extrema of u alone.

    max_l φ_d(u_l)              → φ_d(max u)                          φ rising in u for every d
                                → φ_d(min u)                          φ falling
                                → max(φ_d(max u), φ_d(min u))         φ quasiconvex (for min: quasiconcave)
    max_l max(a, b)             → max(max a, max b)
    max_l (k·max(a, b) + v)     → max_l max(k·a + v, k·b + v)         k ≥ 0 (k ≤ 0: min); of where(c, a, b) for any k;
                                                                      k and v of x, of d or of both
    max_l where(c, a, b)        → max(max over c of a, max over ¬c of b)      c of x alone
    max_l (g(x)·h(d) + v(d))    → (max g)·h + v                       h ≥ 0; g of several generators
    max_l φ_d(g(u_l), h(u_l))   → φ_d(g, h) at max u or min u         as a function of u, as above
    max_l where(u > d, a, b)    → where(u > d, a, b) at max u         rising in u; at min u where it falls
                                → max(max_l where(u > d, a, −∞), max_l where(u > d, −∞, b))       otherwise
    argmax_l, topk_l φ_d(u_l)   → those of u, their values φ_d(…)     φ strictly rising in u

and the same for min with the order turned. Over no element an extremum is its identity, which φ need not give. That
case is seen by max u < min u, or by a slot of its own: the maximum of 0 over the elements, which is −∞ there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, final

from sympy import (
    Abs,
    Add,
    And,
    Dummy,
    Eq,
    Expr,
    Function,
    Max,
    Min,
    Mul,
    Not,
    Pow,
    S,
    Symbol,
    acosh,
    log,
)
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.decompose.extrema.generators import PartsOfX
from redalg.decompose.samples.conditions import CORNERS, count_strict_extrema, independent, speaks, varies_with_side
from redalg.decompose.separate import laurent
from redalg.decompose.separate.curvature import QUASICONCAVE, QUASICONVEX, Curvature, constant_sign, curvature, trend_of
from redalg.decompose.separate.laurent import Polynomial
from redalg.decompose.separate.plain import is_number, nothing_times
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.signs import UP, sign_of
from redalg.decompose.separate.span import Span
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.errors import Text
from redalg.expression import Where
from redalg.expression.contents import elements_of, is_indicator, of_kind, values_of
from redalg.expression.expanded import addends_of, expansion
from redalg.expression.rebuild import extremum_as_written, replace_nodes, with_args
from redalg.monoids import monoid

MIXED = X | D
LATTICE = {"max": Max, "min": Min}
OTHER = {"max": "min", "min": "max"}
SELECTED = "where(u == max u, w, z)"
"""The form that `ties` knows, as a user would write it."""
ADDENDS_LIMIT = 32
"""Addends beyond which a term is not written out."""
GENERATOR = Symbol("g")
"""The symbol of g(x) in h, which is printed as a function of it."""


@final
@dataclass(frozen=True)
class Slot:
    """An extremum of x alone that the state holds: ⊕ by `kind` of `term`; `symbol` stands for it in `final`."""

    kind: str
    term: Expr
    symbol: Expr


@final
@dataclass(frozen=True)
class Extremal:
    """A reduction's value as an expression of slots: `final` holds their symbols.

    Two attributes are for the reader: `g` holds the functions of x whose extrema the state holds, and `functions`
    holds each φ that takes such an extremum, with the symbol that stands for g in φ.
    """

    slots: tuple[Slot, ...]
    final: Expr
    g: tuple[Expr, ...]
    functions: tuple[tuple[Expr, Expr], ...]

    @cached_property
    def h(self) -> tuple[Expr, ...]:
        """The functions of `GENERATOR`."""
        return tuple(phi.xreplace({variable: GENERATOR}) for phi, variable in self.functions)


def extremal(kind: str, term: Expr, separator: Separator) -> Extremal:
    """The extremum of a mixed term, or `NotSeparable`."""
    finder = Finder(separator)
    final = finder.extremum(term, kind, S.true)
    return Extremal(tuple(finder.slots.values()), final, tuple(finder.g), tuple(finder.functions))


@final
class Finder:
    """The finder of the slots that one reduction needs; with `numbers`, a NaN does not count."""

    def __init__(self, separator: Separator, *, numbers: bool = False) -> None:
        self.separator, self.numbers, self.parts = separator, numbers, PartsOfX(separator)
        self.slots: dict[tuple[str, Expr], Slot] = {}
        self.g: list[Expr] = []
        self.functions: list[tuple[Expr, Expr]] = []

    def slot(self, kind: str, term: Expr, where: Boolean) -> Expr:
        """The symbol of an extremum of x alone, over the elements where a condition holds."""
        term = Where(where, term, monoid(kind).identity)
        if (kind, term) not in self.slots:
            self.slots[kind, term] = Slot(kind, term, Dummy(f"slot{len(self.slots)}", extended_real=True))
        return self.slots[kind, term].symbol

    def present(self, value: Expr, kind: str, where: Boolean) -> Expr:
        """A value if there is an element, and the identity if there is none."""
        return Where(self.slot("max", S.Zero, where) < 0, monoid(kind).identity, value)  # a NaN is a value

    def extremum(self, node: Expr, kind: str, where: Boolean) -> Expr:
        """The extremum of a node over the elements where a condition of x holds."""
        side = self.separator.side(node)
        if not side & X:
            return self.present(node, kind, where)
        if side == X:
            return self._extremum_over_generator(node, kind, where, node, GENERATOR)
        node = self.inward(node)
        if isinstance(node, LATTICE[kind]):
            return extremum_as_written(node.func, [self.extremum(arg, kind, where) for arg in node.args])
        if isinstance(node, Where):
            return self._branches(node, kind, where)
        if isinstance(node, Abs) and kind == "max" and node.args[0].is_Add and self._several(node):
            return self.extremum(Max(node.args[0], -node.args[0], evaluate=False), kind, where)
        return self._extremum_of_composition(node, kind, where)

    def _several(self, node: Expr) -> bool:
        """Tell if a node holds several functions of x, none of which is known to give the others."""
        return self.parts.sole(self.parts.of(node)) is None

    def inward(self, node: Expr) -> Expr:
        """k·max(a, b) + v as max(k·a + v, k·b + v), or a min for k < 0; a `where` alike, for any k and v."""
        if isinstance(node, Max | Min | Where) or not (node.is_Add or node.is_Mul):
            return node
        mixed = [arg for arg in node.args if self.separator.side(arg) == MIXED]
        inner = mixed or [arg for arg in node.args if self.separator.side(arg) & X]
        if len(inner) != 1:
            return node
        choice = self.inward(inner[0])
        if not isinstance(choice, Max | Min | Where):
            return node
        rest = node.func(*(arg for arg in node.args if arg is not inner[0]))
        if isinstance(choice, Where):
            condition, *branches = choice.args
            plain = node.is_Add or is_indicator(choice)
            return Where(condition, *(self._nothing_times(rest) if branch is S.Zero and not plain else
                                      node.func(rest, branch) for branch in branches))  # fmt: skip
        falling = node.is_Mul and rest.is_extended_nonpositive
        if not (node.is_Add or falling or rest.is_extended_nonnegative):
            return node
        outer = choice.func if not falling else Min if isinstance(choice, Max) else Max
        return extremum_as_written(outer, [node.func(rest, arg) for arg in choice.args])

    def _nothing_times(self, rest: Expr) -> Expr:
        """0·d, which is NaN where d is not finite; 0 of what varies along the axis too."""
        of_d = Mul(*(one for one in Mul.make_args(rest) if self.separator.side(one) == D))
        return nothing_times(of_d)

    def _branches(self, node: Where, kind: str, where: Boolean) -> Expr:
        condition, a, b = node.args
        if self.separator.side(condition) == MIXED:
            return self._extremum_at_crossing(node, kind, where)
        if not self.separator.side(condition) & X:
            return Where(condition, self.extremum(a, kind, where), self.extremum(b, kind, where))
        identity = monoid(kind).identity
        sides = ((a, condition), (b, otherwise(condition)))
        values = [self.extremum(branch, kind, where & side) for branch, side in sides if branch != identity]
        return extremum_as_written(LATTICE[kind], values)

    def _extremum_at_crossing(self, node: Where, kind: str, where: Boolean) -> Expr:
        """The extremum of a choice whose condition compares x with d, as a whole or by its branches."""
        condition, a, b = node.args
        if (value := self._extremum_of_step(node, kind, where)) is not None:
            return value
        identity = monoid(kind).identity
        parts = [Where(condition, a, identity), Where(condition, identity, b)] if identity not in (a, b) else []
        values = [self._extremum_of_step(one, kind, where) for one in parts]
        known = [one for one in values if one is not None]
        if not known or len(known) < len(values):
            raise self._threshold(node, kind)
        return extremum_as_written(LATTICE[kind], known)

    def _extremum_of_step(self, node: Where, kind: str, where: Boolean) -> Expr | None:
        """The extremum of a choice that rises or falls with one function of x; NaN takes the second branch."""
        form = self.parts.as_function(node, self.parts.of(node))
        if form is None or not isinstance(form[2], Where):
            return None
        u, variable, phi = form
        direction, b = trend_of(phi, variable, self.separator.facts), node.args[2]
        if direction is None:
            return None
        end, hidden = (kind if direction == 1 else OTHER[kind]), not self.separator.side(b) & X
        self.g.append(u)
        self.functions.append((phi, variable))
        counted = And(where, is_number(u)) if hidden or self.numbers else where
        value = self.present(replace_nodes(phi, {variable: self.slot(end, u, counted)}), kind, counted)
        if not hidden or b == monoid(kind).identity:
            return value
        return extremum_as_written(LATTICE[kind], [value, self.present(b, kind, And(where, Not(is_number(u))))])

    def _is_staircase(self, node: Where, kind: str) -> bool:
        """Tell if the theorem of the staircase applies: w and u fill a plane, or w rises to the edge."""
        if not isinstance(node.args[0], Relational) or not speaks(node.args[0], self.separator):
            return False
        if count_strict_extrema(node, kind, self.separator) < CORNERS:
            return False
        of_u, of_w = dict[Expr, Dummy](), dict[Expr, Dummy]()
        self.parts.replace(node.args[0].lhs - node.args[0].rhs, of_u)
        branches = [self.parts.replace(one, of_w) for one in node.args[1:] if one.is_finite is not False]
        if independent([*of_u, *of_w], self.separator):
            return True
        strict = [curvature(one, symbol, self.separator.facts).strict for one in branches for symbol in of_w.values()]
        return len(of_u) == 1 and of_u.keys() == of_w.keys() and any(strict)

    def _threshold(self, node: Where, kind: str) -> NotSeparable:
        """The finding on a condition that compares x with d; no theorem covers u beside its own extremum."""
        condition = node.args[0]
        mixed = [one for one in condition.atoms(Relational) if self.separator.side(one) == MIXED]
        if any(self.separator.sign(one.lhs - one.rhs) for one in mixed) or not self._speaks_of_numbers(mixed):
            return NotSeparable(condition, "asks which elements attain an extremum, and under a max or min redalg "
                                "knows what to hold of them only where both branches are free of d", certain=False,
                                hint=f"Write `{SELECTED}` with w and z free of d right under the max or min, and take "
                                "what holds d out of it.")  # fmt: skip
        return NotSeparable(condition, "compares x with d: the threshold moves with d and every element may change "
                            "side, so no finite set of extrema decides",
                            certain=lambda: self._is_staircase(node, kind))  # fmt: skip

    def _speaks_of_numbers(self, relations: list[Relational]) -> bool:
        """Tell if x is compared with sums, extrema and the like; an index is one of finitely many."""
        values = {value for one in relations for value in values_of(one)} & self.separator.values
        return values <= self.separator.facts.keys()

    def _extremum_of_composition(self, node: Expr, kind: str, where: Boolean, *, opens: bool = True) -> Expr:
        """The extremum of a node of one function of x or of several; `opens` unless it is written out already."""
        generators = self.parts.of(node)
        alone = self.parts.as_function(node, generators)
        if opens and len(generators) > 1 and (other := self._expand(node)) != node:
            if alone is not None:
                with suppress(NotSeparable):
                    return self._extremum_over_generator(alone[0], kind, where, alone[2], alone[1])
            return self._extremum_of_composition(other, kind, where, opens=False)
        if alone is None:
            return self._extremum_of_product(node, kind, where)
        u, variable, phi = alone
        return self._extremum_over_generator(u, kind, where, phi, variable)

    def _expand(self, node: Expr) -> Expr:
        """A node with its products of sums written out, except in functions of d alone, which are no generators."""
        if addends_of(node) > ADDENDS_LIMIT:
            return node
        plain: dict[Basic, Basic] = {}

        def visit(part: Any) -> Any:
            if part not in plain:
                side = self.separator.side(part)
                if not side & X and isinstance(part, Function):
                    plain[part] = _plain(len(plain), nonnegative=sign_of(part, self.separator.facts) in UP)
                else:
                    opens = side == MIXED or (side != X and isinstance(part, Add | Mul | Pow))
                    plain[part] = with_args(part, [visit(arg) for arg in part.args]) if opens else part
            return plain[part]

        result = expansion(visit(node))
        return node if result == plain[node] else replace_nodes(result, {new: old for old, new in plain.items()})

    def _extremum_over_generator(self, u: Expr, kind: str, where: Boolean, phi: Expr, variable: Expr) -> Expr:
        """The extremum of φ(u), at the end or the ends of u's range that give it."""
        if self.numbers:
            where = And(where, is_number(u))
        trend = curvature(phi, variable, self.separator.facts) if phi is not u else Curvature(1, frozenset(), True)
        needed = QUASICONVEX if kind == "max" else QUASICONCAVE
        if trend.direction is None and needed not in trend.shape:
            raise NotSeparable(phi.xreplace({variable: u}), Text(f"is neither monotone nor {needed} in `", u, "` for "
                               f"every d, as far as redalg can tell, so that its {kind} need not lie at an end of the "
                               "range of `", u, "`"), certain=False)  # fmt: skip
        ends = [kind if trend.direction == 1 else OTHER[kind]] if trend.direction else [kind, OTHER[kind]]
        if phi is u:
            phi = variable
        self.g += [u] * len(ends)
        self.functions += [(phi, variable)] * len(ends)
        values = [replace_nodes(phi, {variable: self.slot(end, u, where)}) for end in ends]
        value = extremum_as_written(LATTICE[kind], values)
        safe = trend.direction == 1 and _keeps_infinity(phi, variable, self.separator)
        if len(ends) == 2:  # over no element the largest is below the smallest
            return Where(self.slot("max", u, where) < self.slot("min", u, where), monoid(kind).identity, value)
        return value if safe else self.present(value, kind, where)

    def _polynomial(self, node: Expr) -> Polynomial:
        """The polynomial of a node; a theorem that it has none is about sums, so it is not certain for extrema."""
        try:
            return self.separator.separate(node)
        except NotSeparable as finding:
            raise NotSeparable(finding.node, finding.reason, certain=False) from None

    def _extremum_of_product(self, node: Expr, kind: str, where: Boolean) -> Expr:
        """The extremum of g(x)·h(d) + v(d) with several generators in g."""
        free = [arg for arg in (node.args if node.is_Add else ()) if not self.separator.side(arg) & X]
        moving = node.func(*(arg for arg in node.args if arg not in free)) if free else node
        columns = laurent.columns(self._polynomial(moving))
        varying = {d: {x: c for x, c in column.items() if x} for d, column in columns.items()}
        span = Span()
        independent = sum(span.add(column) for column in varying.values())
        if independent > 1:
            raise NotSeparable(node, f"weighs {independent} independent functions of x against each other by d, so "
                               f"that its {kind} is attained at the corners of a hull, whose number is not bounded",
                               certain=lambda: self._is_hull(node, span, kind))  # fmt: skip
        if columns == varying:
            g, h = self.separator.rank_one(node, moving, "is no product of a function of x and one of d")
            return self._extremum_over_generator(g, kind, where, GENERATOR * h + Add(*free), GENERATOR)
        atoms = self.separator.atoms
        [g] = self._basis_functions(span)
        scales = [laurent.fraction((span.coordinates(column) or {}).get(0, 0)) * atoms.expr(d)
                  for d, column in varying.items()]  # fmt: skip
        free += [laurent.fraction(column.get((), 0)) * atoms.expr(d) for d, column in columns.items()]
        return self._extremum_over_generator(g, kind, where, GENERATOR * Add(*scales) + Add(*free), GENERATOR)

    def _basis_functions(self, span: Span) -> list[Expr]:
        """The functions of x of a basis."""
        return list(map(self.separator.atoms.vector_expr, span.basis))

    def _is_hull(self, node: Expr, span: Span, kind: str) -> bool:
        """Tell if the theorem of the hull applies: the functions fill a plane, and their weights move with d."""
        kinks = of_kind(Max, node) | of_kind(Min, node) | of_kind(Where, node) | of_kind(Abs, node)
        if any(self.separator.side(one) == MIXED for one in kinks) or not varies_with_side(node, D, self.separator):
            return False
        return (
            independent(self._basis_functions(span), self.separator)
            and count_strict_extrema(node, kind, self.separator) >= CORNERS
        )


def otherwise(condition: Boolean) -> Boolean:
    """The negation of a condition; for an order it is not the opposite order, since both fail for NaN."""
    ordered = any(elements_of(one) for one in of_kind(Relational, condition) if one.rel_op not in ("==", "!="))
    return Eq(Where(condition, S.One, S.Zero), 0) if ordered else Not(condition)


@cache
def _plain(number: int, *, nonnegative: bool) -> Dummy:
    """A symbol for a function of d alone; always the same ones, so that what is written out with them is remembered."""
    return Dummy(f"d{number}", **{"extended_nonnegative" if nonnegative else "extended_real": True})


def increasing_form(term: Expr, separator: Separator) -> tuple[Expr, Expr]:
    """A term as φ_d(u(x)) with φ strictly rising in u for every d: (u, φ of `GENERATOR`), or `NotSeparable`.

    Then u alone tells which elements are selected, and in which order.
    """
    generators: dict[Expr, Dummy] = {}
    opened = PartsOfX(separator).replace(term, generators)
    if len(generators) > 1:
        generators = {}
        opened = PartsOfX(separator).replace(expansion(term), generators)
    if len(generators) == 1:
        [(u, variable)] = generators.items()
        trend = curvature(opened, variable, separator.facts)
        if trend.strict and trend.direction and _is_total(opened, variable, separator):
            return trend.direction * u, opened.xreplace({variable: trend.direction * GENERATOR})
    raise NotSeparable(term, "is not known to rise strictly with one function of x for every d, so that which elements "
                       "are selected may change with d", certain=False)  # fmt: skip


def _is_total(phi: Expr, variable: Expr, separator: Separator) -> bool:
    """Tell if φ of every number u is a number: a root or logarithm of less than 0 is NaN, which comes first."""
    partial = [one.args[0] for one in of_kind(log, phi) | of_kind(acosh, phi)]
    partial += [one.base for one in of_kind(Pow, phi) if not one.exp.is_Integer]
    return all(constant_sign(one, separator.facts) in UP for one in partial if one.has(variable))


def _keeps_infinity(phi: Expr, variable: Expr, separator: Separator) -> bool:
    """Tell if φ(±∞) = ±∞ for every finite d: φ = k·u + v with k positive."""
    terms = [one for one in (phi.args if phi.is_Add else (phi,)) if one.has(variable)]
    if len(terms) != 1:
        return False
    factor = Mul(*(one for one in Mul.make_args(terms[0]) if one != variable))
    return not factor.has(variable) and constant_sign(factor, separator.facts) == "positive"
