"""Extrema of terms that mix x and d: the end of the range of g that gives them, and the reason.

max F = max(φ(max u), φ(min u))        F = φ(u), φ quasiconvex; of a rising or a falling φ one of the two
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from sympy import And, Dummy, Expr, Or, S, Symbol
from sympy.core.relational import StrictLessThan
from sympy.logic.boolalg import Boolean

from redalg.decompose.extrema.extremal import GENERATOR, Extremal
from redalg.decompose.separate.curvature import CONCAVE, CONVEX, QUASICONCAVE, QUASICONVEX, curvature, trend_of
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.explain.model import Equation, Equations, Line, Part, sentence
from redalg.expression import Axis, Reduce, Where
from redalg.incremental.form import FusedForm

F = Symbol("F")
WANTED = {"max": (CONVEX, QUASICONVEX), "min": (CONCAVE, QUASICONCAVE)}
TURNED = {"max": "min", "min": "max"}


def follows_from_others(separation: Separation) -> bool:
    """Tell if an extremum follows from others than the extremum of its g."""
    found = separation.extremal
    if found is None or not found.h:
        return False
    return separation.times == "∘" or any(one.kind != separation.reduction.monoid.name for one in data_extrema(found))


def data_extrema(found: Extremal) -> list[Any]:
    """The slots that hold an extremum of data, without those that only say if there is an element."""
    return [slot for slot in found.slots if slot.term.xreplace({S.NegativeInfinity: S.Zero}) != S.Zero
            and not _is_presence(slot.term)]  # fmt: skip


def _is_presence(term: Expr) -> bool:
    return isinstance(term, Where) and term.args[1] is S.Zero


def remove_guards(expr: Any, symbols: set[Expr]) -> Any:
    """Remove the guards that stand on slots alone: where(no element, identity, value) → value."""
    if not isinstance(expr, Expr) or not expr.args:
        return expr
    if isinstance(expr, Where) and isinstance(expr.args[0], StrictLessThan) and expr.args[0].lhs in symbols:
        return remove_guards(expr.args[2], symbols)
    return expr.func(*(remove_guards(one, symbols) for one in expr.args))


def extremum(separation: Separation, term: Expr, reduced: tuple[Axis, ...]) -> Equations:
    """F; the different φ with their g; and the extremum of F from those of x."""
    reduction, found = separation.reduction, separation.extremal
    assert found is not None
    kind = reduction.monoid.name
    pairs = list(dict.fromkeys(zip(found.g, found.h, strict=True)))
    rows: list[tuple[Equation, ...]] = [(Equation(F, term),)]
    for number, (g, h) in enumerate(pairs, 1):
        suffix = f"_{number}" if len(pairs) > 1 else ""
        rows.append((Equation(Symbol(f"g{suffix}"), g), Equation(phi(suffix), phi_of(h, suffix))))
    symbols: dict[Expr, Expr] = {one.symbol: Reduce(one.kind, one.term, reduced) for one in found.slots}
    final = remove_guards(found.final, set(symbols)).xreplace(symbols)
    rows.append((Equation(Reduce(kind, F, reduced), final),))
    ends = "an end" if len(pairs) == 1 else "ends"
    what = f"lies at {ends}" if kind in WANTED else "is decided at the ends"
    return Equations((reduction.value, f":  ⊕ is {reduction.monoid.sign}, and {what} of the range of g"), tuple(rows))


def phi(suffix: str) -> Symbol:
    """The symbol of φ."""
    return Symbol(f"φ{suffix}")


def phi_of(h: Expr, suffix: str) -> Expr:
    """φ of g under the name that g has here."""
    return h.xreplace({GENERATOR: Symbol(f"g{suffix}")})


def reasons(separations: list[Separation], decomposition: Decomposition) -> Iterator[Line]:
    """A sentence for each φ: the reason why the extremum lies at the stated end."""
    for separation in separations:
        found, kind = separation.extremal, separation.reduction.monoid.name
        pairs = list(dict.fromkeys(zip(found.g, found.h, strict=True))) if found else []
        for number, (g, h) in enumerate(pairs, 1):
            suffix = f"_{number}" if len(pairs) > 1 else ""
            yield sentence(
                "In ", separation.reduction.value, ", ", phi(suffix), *shape_prose(g, h, kind, decomposition)
            )


def shape_prose(g: Expr, h: Expr, kind: str, decomposition: Decomposition) -> tuple[Part, ...]:
    """The shape of φ as a function of g, and what follows for its extremum."""
    variable = Dummy("g", nonnegative=True) if g.is_extended_nonnegative else Dummy("g", extended_real=True)
    phi, facts = h.xreplace({GENERATOR: variable}), decomposition.separator.facts
    found = curvature(phi, variable, facts)
    direction = found.direction or (trend_of(phi, variable, facts) if isinstance(phi, Where) else None)
    if kind not in WANTED:  # any and all: a bound on every φ is one on its extreme
        way = {1: "rises with ", -1: "falls with "}.get(direction or 0, f"is {_curvature_word(found.shape)} in ")
        return (f" {way}", g, " whatever d is, so that the ends of the range of ", g, " decide.")
    if direction:
        rises, end = ("rises", kind) if direction > 0 else ("falls", TURNED[kind])
        return (f" {rises} with ", g, f" whatever d is, so that its {kind} lies at the {end} of ", g, ".")
    word = next(one for one in WANTED[kind] if one in found.shape)
    return (f" is {word} in ", g, f" whatever d is, so that its {kind} lies at the max of ", g, " or at its min.")


def _curvature_word(shape: AbstractSet[str]) -> str:
    return next(one for pair in WANTED.values() for one in pair if one in shape)


def guards(form: FusedForm) -> Iterator[Line]:
    """A sentence for each guard of finish: the value of an extremum if no element was met."""
    values = {one.value for one in form.extrema}
    identities = {node.args[0]: node.args[1] for assignment in form.assignments for node in assignment.expr.atoms(Where)
                  if isinstance(node.args[0], StrictLessThan) and node.args[0].lhs in values}  # fmt: skip
    for condition, identity in sorted(identities.items(), key=str):
        yield sentence("Where ", condition, ", no element was met, and the extremum is ", identity, ".")


def absorb_terms(condition: Boolean) -> Boolean:
    """a ∧ (a ∨ b) → a"""
    parts = And.make_args(condition)
    return And(*(one for one in parts if not (isinstance(one, Or) and set(one.args) & set(parts))))
