"""Elements of several components (a value and its index, a mantissa and its exponent) along the streamed axis.

    lane     e_j = e_j ⊕ lift(u(x_j), n)                    the monoid's own join, component by component
    tree     e_j = e_j ⊕ e_{j + 2^k},  j = 0 mod 2^(k+1)     neighbours, so that order is kept, in shared memory
    tile     e = e ⊕ (the tree of a tile's elements)        where a tile becomes one state a row
    part     e = e ⊕ (what a segment found)                 segment after segment, so that order is kept
    lost     t = a + b;  s = t − a;  (a − (t − s)) + (b − s)    what rounding loses of a sum, 0 where it is not finite

If the monoid is not commutative, a lane takes neighbouring elements (x[j·tiles + t]). Otherwise it takes every
block_streamed-th element. Every element is read, masked or not; beyond the end stands the identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from sympy import And, Eq, Expr, Integer, Mod, S, Symbol, Tuple
from sympy.logic.boolalg import Boolean

from redalg.expression import Value, Where
from redalg.incremental.combine.structures import NOWHERE, component_symbols, join_of, lifted
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.ir.program import Copy, Fill, Statement
from redalg.lower_tile.ir.scalars import IsFinite, Kept, Load
from redalg.lower_tile.place.assembly import Assembly, mask_dead
from redalg.lower_tile.place.selection import ranked_structures
from redalg.lower_tile.place.space import I, J, Space
from redalg.monoids.functions import Lost
from redalg.monoids.table import KNOWN

INDEX, WHOLE = "int32", "int64"
"""Dtypes: of an index, an exponent or a truth value; and of an integer of a monoid that a user registered."""


@final
class Folds:
    """The structures of a form, held by lane and then by row (`by_row`: without lanes, to merge parts)."""

    def __init__(self, form: FusedForm, assembly: Assembly, space: Space, *, by_row: bool = False) -> None:
        self.form, self.assembly, self.space = form, assembly, space
        self.structures = [one for one in form.structures if one not in ranked_structures(form, assembly.plan)]
        values = [value for one in self.structures for value in one.values]
        lanes = assembly.plan.level == "thread" and not by_row
        self.lanes = {value: self._new(value, "_lanes", *assembly.lane) for value in values if lanes}
        self.rows = {value: self._new(value, "", I) for value in values}

    def _new(self, value: Value, suffix: str, *indices: Symbol, scope: str = "fragment") -> Load:
        """A buffer of a component."""
        dtype = integer_dtype(value, self.form)
        return self.assembly.new(f"{value.name}{suffix}", *indices, dtype=dtype, scope=scope)

    def empty(self) -> list[Statement]:
        """The statements that make every state empty: the identity."""
        into = self.lanes or self.rows
        return [Fill(into[value].name, identity) for structure in self.structures
                for value, identity in zip(structure.values, identities(structure), strict=True)]  # fmt: skip

    def take(self, space: Space) -> list[Statement]:
        """The statements that join one element to the state of every lane."""
        body = list[Statement]()
        for structure in self.structures:
            element = self._lift(structure, space, body)
            state = [self.lanes[value] for value in structure.values]
            body += self._join(structure, state, [element[value] for value in structure.values], state)
        return body

    def tile(self, structure: Structure, space: Space) -> list[Statement]:
        """The statements that join a tile's elements by a tree of neighbours, and the result to the row's state."""
        body = list[Statement]()
        tree = self._tree(structure, self._lift(structure, space, body), body)
        first = [tree[value].xreplace({J: S.Zero}) for value in structure.values]
        return [*body, *self._onto_rows(structure, first)]

    def part(self, part: Mapping[Value, Load]) -> list[Statement]:
        """The statements that join a segment's result, which row buffers hold, to the row's state."""
        return [statement for structure in self.structures
                for statement in self._onto_rows(structure, [part[value] for value in structure.values])]  # fmt: skip

    def _onto_rows(self, structure: Structure, after: Sequence[Load]) -> list[Statement]:
        """Store the row's state ⊕ `after` as the row's state."""
        state = [self.rows[value] for value in structure.values]
        return self._join(structure, state, after, state)

    def _lift(self, structure: Structure, space: Space, body: list[Statement]) -> dict[Value, Load]:
        """The buffers of a tile's elements; beyond the end of the streamed axis they hold the identity."""
        lift = lifted(structure.monoid, structure.operands, self.form.cascade.axis)
        element = {value: self._new(value, "_next", *self.assembly.lane) for value in structure.values}
        reads = [mask_dead(space.inside(), space.read(part), identity)
                 for part, identity in zip(lift, identities(structure), strict=True)]  # fmt: skip
        body.append(self.assembly.stores(*zip(element.values(), reads, strict=True)))
        return element

    def _join(
        self, structure: Structure, before: Sequence[Load], after: Sequence[Load], target: Sequence[Load],
        guard: Boolean = S.true,
    ) -> list[Statement]:  # fmt: skip
        """Store before ⊕ after in `target`, through separate buffers: a component is read until all are known."""
        parts = (*component_symbols(structure.monoid, "a"), *component_symbols(structure.monoid, "b"))
        reads, indices = dict(zip(parts, (*before, *after), strict=True)), target[0].indices
        joined = [self._new(value, "_joined", *indices) for value in structure.values]
        exprs = [self.space.read(expr.xreplace(reads)) for expr in join_of(structure.monoid)]
        sums, exprs = self._with_lost(exprs, *indices)
        last = self.assembly.stores(*zip(target, joined, strict=True))
        guarded = tuple(replace(store, guard=guard) for store in last.body)
        return [*sums, self.assembly.stores(*zip(joined, exprs, strict=True)), replace(last, body=guarded)]

    def _with_lost(self, exprs: list[Expr], *indices: Expr) -> tuple[list[Statement], list[Expr]]:
        """Compute what sums lose, step by step through buffers: TVM takes (a + b) − a for b, even of floats."""
        found, body = dict[Expr, Expr](), list[Statement]()
        for node in sorted({node for expr in exprs for node in expr.atoms(Lost)}, key=str):
            a, b = node.args
            total, second = (self.assembly.new(name, *indices) for name in ("total", "second"))
            body.append(self.assembly.stores((total, a + b), (second, total - a)))
            found[node] = Where(IsFinite(total), Kept(a - Kept(total - second)) + Kept(b - second), S.Zero)
        return body, [expr.xreplace(found) for expr in exprs]

    def collapse(self) -> list[Statement]:
        """The statements that join the lanes by a tree of neighbours, and store its root in row buffers."""
        body = list[Statement]()
        for structure in self.structures:
            tree = self._tree(structure, self.lanes, body)
            roots = ((self.rows[value], tree[value].xreplace({J: S.Zero})) for value in structure.values)
            body.append(self.assembly.stores(*roots))
        return body

    def _tree(self, structure: Structure, lanes: Mapping[Value, Load], body: list[Statement]) -> dict[Value, Load]:
        """The shared tiles whose first place holds the join of all lanes."""
        tree = {value: self._new(value, "_tree", *self.assembly.lane, scope="shared") for value in structure.values}
        body += [Copy(lanes[value].name, tree[value].name) for value in structure.values]
        step, width = 1, self.assembly.plan.block_streamed
        here = list(tree.values())
        while step < width:
            # of the elements `there`, only those that the guard keeps count
            there = [load.xreplace({J: Mod(J + step, width)}) for load in here]
            first = And(Eq(Mod(J, 2 * step), 0), J + step < width)
            body += self._join(structure, here, there, here, first)
            step *= 2
        return tree


def integer_dtype(value: Value, form: FusedForm) -> str | None:
    """The dtype of a component that is an integer; None for other values, which have the arithmetic's dtype."""
    kinds = (INDEX if one.monoid in KNOWN else WHOLE for one in form.structures if value in one.integers)
    return next(kinds, None)


def identities(structure: Structure) -> list[Expr]:
    """The components of the identity (for a list of one: those of a place without an element)."""
    found = [part.identity for part in structure.monoid.components]
    return [Integer(int(NOWHERE[part.name])) if isinstance(identity, Tuple) and part.integer
            else S.NegativeInfinity if isinstance(identity, Tuple) else identity
            for part, identity in zip(structure.monoid.components, found, strict=True)]  # fmt: skip
