"""Separation of what has kinks and jumps: |·|, sign, max and min, conditions. Each rewrite is exact:

    |g(x)·h(d)|      → |g| · |h|                                       rank 1
    sign(g(x)·h(d))  → sign g · sign h                                 rank 1
    where(c, a, b)   → [c]·a + [¬c]·b                                  [c] separated as below
    [a ∧ b]          → [a]·[b]                                         [¬a] → 1 − [a], [a ∨ b] → 1 − [¬a]·[¬b]
    [u ≤ d]          → 1, NaN where d is                               by the fact d = max u; other relations alike
    [g(x)·h(d) > 0]  → [g > 0]·[h > 0] + [g < 0]·[h < 0]               rank 1
    |u − d|, max     → ±(u − d)                                        by the fact d = max u (true of every prefix)
    max(u + v, w + v) → max(u, w) + v                                  u, w of x and v of d alone
    max(u·h, w·h)    → max(u, w)·max(h, 0) + min(u, w)·min(h, 0)       u, w of x and h of d alone

The sign of u − d comes from what d is (`signs`). What is left has kinks or jumps that move with d, and no finite rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sympy import Add, And, Eq, Expr, Max, Min, Not, Or, S, sign
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate import laurent
from redalg.decompose.separate.exponentials import with_zeros
from redalg.decompose.separate.laurent import Polynomial
from redalg.decompose.separate.plain import is_number
from redalg.decompose.separate.separating import Separating
from redalg.decompose.separate.signs import UP, absolute, has_sign_of_numerator, sign_of
from redalg.decompose.separate.theorems import CLIPS, JUMP, KINK, THRESHOLD, D, NotSeparable, X
from redalg.expression import Value, Where
from redalg.expression.contents import elements_of, sympy_text, values_of

RELATIONS = {">": (True, False), "<": (True, True), ">=": (False, False), "<=": (False, True),
             "==": (False, False), "!=": (False, False)}  # fmt: skip
"""Relation -> (strict, True if it compares b − a with 0)."""


def sign_rule(separator: Separating, node: Expr) -> Polynomial:
    """sign(g·h) = sign g · sign h."""
    g, h = separator.rank_one(node, node.args[0], JUMP, certain=True)
    return laurent.multiply(separator.pure(sign(g)), separator.pure(sign(h)))


def steps_rule(_: Separating, node: Expr) -> Polynomial:
    """floor, ceiling and remainders of what mixes x and d."""
    raise NotSeparable(node, JUMP, certain=True)


def abs_rule(separator: Separating, node: Expr) -> Polynomial:
    """±a if the sign of a is known, |g|·|h| otherwise."""
    if known := separator.sign(node.args[0]):
        return laurent.scale(separator.separate(node.args[0]), known)
    g, h = separator.rank_one(node, node.args[0], KINK, certain=True)
    return laurent.multiply(*(separator.pure(absolute(one, separator.facts)) for one in (g, h)))


def extremum_rule(separator: Separating, node: Expr) -> Polynomial:
    """The one argument that is known to exceed the others; without such an argument, what they share is taken out."""
    args = dominant(separator, node)
    if len(args) == 1:
        return separator.separate(args[0])
    return _take_out_addend(separator, node, args) or _take_out_factor(separator, node, args)


def dominant(separator: Separating, node: Expr) -> list[Expr]:
    """The arguments without those that another is known to exceed; extrema among them are resolved first."""
    largest = isinstance(node, Max)
    args: list[Expr] = []
    for arg in node.args:
        inner = dominant(separator, arg) if isinstance(arg, Max | Min) and separator.side(arg) == X | D else [arg]
        args.append(inner[0] if len(inner) == 1 else arg)
    for candidate in tuple(args):  # two that are known to be equal would drop each other: one of them stays
        others = [other for other in args if other != candidate]
        signs = [separator.sign(other - candidate) for other in others]
        if candidate in args and any(sign and (sign > 0) == largest for sign in signs):
            args = others
    return args


def _take_out_addend(separator: Separating, node: Expr, args: list[Expr]) -> Polynomial | None:
    """max(u + v, w + v) → max(u, w) + v."""
    parts = [(Add(*(t for t in Add.make_args(arg) if separator.side(t) == X)),
              Add(*(t for t in Add.make_args(arg) if separator.side(t) != X))) for arg in args]  # fmt: skip
    free = {v for _, v in parts}
    if len(free) != 1 or separator.side(only := free.pop()) != D:
        return None
    return laurent.add(separator.pure(node.func(*(u for u, _ in parts))), separator.pure(only))


def _take_out_factor(separator: Separating, node: Expr, args: list[Expr]) -> Polynomial:
    """max(u·h, w·h) → max(u, w)·max(h, 0) + min(u, w)·min(h, 0), and one term if the sign of h is known."""
    parts = [separator.rank_one(node, one, CLIPS, certain=True) for one in args if one != 0]
    scale = parts[0][1]
    ratios = [(h / scale).cancel() for _, h in parts]
    if any(separator.side(ratio) for ratio in ratios):
        raise NotSeparable(node, CLIPS, certain=True)
    plain = [g * ratio for (g, _), ratio in zip(parts, ratios, strict=True)] + [S.Zero] * (len(parts) < len(args))
    swapped = Min if isinstance(node, Max) else Max
    if known := sign_of(scale, separator.facts):
        pick = node.func if known in UP else swapped
        return laurent.multiply(separator.pure(pick(*plain)), separator.pure(scale))
    up = laurent.multiply(separator.pure(node.func(*plain)), separator.pure(Max(scale, 0)))
    return laurent.add(up, laurent.multiply(separator.pure(swapped(*plain)), separator.pure(Min(scale, 0))))


def where_rule(separator: Separating, node: Expr) -> Polynomial:
    """[c]·a + [¬c]·b."""
    condition, a, b = node.args
    if separator.side(condition) != X | D:
        return laurent.add(_under(separator, condition, a), _under(separator, condition, b, otherwise=True))
    if (truth := relation_truth(separator, condition)) is not None:
        if not truth[0]:
            return separator.separate(b)
        numbers = _are_numbers(truth[1])
        return laurent.add(_under(separator, numbers, a), _under(separator, numbers, b, otherwise=True))
    holds, fails = indicator_terms(separator, condition), negation(separator, condition)
    first = laurent.multiply(holds, separator.separate(a)) if holds else {}
    return laurent.add(first, laurent.multiply(fails, separator.separate(b))) if fails else first


def _under(separator: Separating, condition: Boolean, branch: Expr, *, otherwise: bool = False) -> Polynomial:
    """[c]·branch, or [otherwise]·branch; what the branch reads by computed indices is read only there, if c is of x.

    If c is of d, it is not known when elements are read: a computed index must then be an index everywhere. ¬c is not
    asked for: ¬(x > 0) is x ≤ 0, and a NaN fulfils neither.
    """

    def only(value: Expr) -> Expr:
        return Where(condition, S.Zero, value) if otherwise else Where(condition, value, S.Zero)

    early = not separator.side(condition) & D
    guarded: dict[Basic, Basic] = {one: only(one) for one in elements_of(branch) if early and not one.is_plain}
    holds = separator.pure(only(S.One))
    return laurent.multiply(holds, separator.separate(branch.xreplace(guarded)))


# ---- conditions ------------------------------------------------------------------------------------------------------


def indicator_terms(separator: Separating, condition: Boolean) -> Polynomial:
    """[condition] as a polynomial of indicators of one side."""
    if separator.side(condition) != X | D:
        return separator.pure(Where(condition, S.One, S.Zero))
    if isinstance(condition, And):
        out = laurent.ONE
        for part in condition.args:
            out = laurent.multiply(out, indicator_terms(separator, part))
        return out
    if isinstance(condition, Or):
        first, *others = condition.args
        return laurent.add(indicator_terms(separator, first),
                           laurent.multiply(negation(separator, first),
                                            indicator_terms(separator, Or(*others))))  # fmt: skip
    if isinstance(condition, Not):
        return negation(separator, condition.args[0])
    if isinstance(condition, Relational) and condition.rel_op in RELATIONS:
        return _relation(separator, condition, fails=False)
    raise NotSeparable(condition, THRESHOLD, certain=False)


def negation(separator: Separating, condition: Boolean) -> Polynomial:
    """[¬condition] as a polynomial of indicators of one side; none is subtracted, as f − f·[c] loses digits."""
    if separator.side(condition) != X | D:
        return separator.pure(Where(condition, S.Zero, S.One))
    if isinstance(condition, And):
        first, *others = condition.args
        return laurent.add(negation(separator, first),
                           laurent.multiply(indicator_terms(separator, first),
                                            negation(separator, And(*others))))  # fmt: skip
    if isinstance(condition, Or):
        return laurent.multiply_all(negation(separator, part) for part in condition.args)
    if isinstance(condition, Not):
        return indicator_terms(separator, condition.args[0])
    if isinstance(condition, Relational) and condition.rel_op in RELATIONS:
        return _relation(separator, condition, fails=True)
    raise NotSeparable(condition, THRESHOLD, certain=False)


def _relation(separator: Separating, node: Relational, *, fails: bool) -> Polynomial:
    """[a rel b], or that it fails, if the sign of a − b is known or if a − b = g·h."""
    if (truth := relation_truth(separator, node)) is not None:
        if truth[0]:
            return (negation if fails else indicator_terms)(separator, _are_numbers(truth[1]))
        return laurent.ONE if fails else {}
    strict, flipped = RELATIONS[node.rel_op]
    difference = (node.lhs - node.rhs) * (-1 if flipped else 1)
    g, h = map(with_zeros, separator.rank_one(node, difference, THRESHOLD, certain=True))
    if node.rel_op in ("==", "!="):
        unequal = [(Not(Eq(g, 0)), Not(Eq(h, 0)))]
        return _products(separator, unequal, fails=fails == (node.rel_op == "!="))
    apart = [(g > 0, h > 0), (-g > 0, -h > 0)] if strict else [(g > 0, -h > 0), (-g > 0, h > 0)]
    return _products(separator, apart, fails=fails == strict)  # a ≥ b is the failing of a < b


def _products(separator: Separating, parts: Sequence[tuple[Boolean, Boolean]], *, fails: bool) -> Polynomial:
    """Σ [a]·[b] of pairs (a of x, b of d) whose a exclude each other; of its failing Σ [a]·[¬b] + [no a]."""
    truth = negation if fails else indicator_terms
    others = (laurent.multiply(indicator_terms(separator, a), truth(separator, b)) for a, b in parts)
    rest = laurent.multiply_all(negation(separator, a) for a, _ in parts) if fails else {}
    return laurent.add(*others, rest)


def relation_truth(separator: Separating, condition: Boolean) -> tuple[bool, frozenset[Value]] | None:
    """True if a relation holds of all elements by the facts, False if of none, and the values that it speaks of.

    None if neither is known. Only a ≤ b decides, not a < b: what is "positive" is 0 in an element that does not count.
    a/h ≤ b is not known to hold if h ≥ 0 is all that is known: no comparison holds of 0/0, and a mask hides it. That
    a/h > b fails is known.
    """
    if not isinstance(condition, Relational) or condition.rel_op not in (">", "<", ">=", "<="):
        return None
    strict, flipped = RELATIONS[condition.rel_op]
    difference = (condition.lhs - condition.rhs) * (-1 if flipped else 1)
    known = sign_of(difference, separator.facts)
    if known is None or (known in UP) == strict or (not strict and has_sign_of_numerator(difference, separator.facts)):
        return None
    return not strict, values_of(difference) & separator.facts.keys()


def _are_numbers(values: Iterable[Value]) -> Boolean:
    """The condition under which what the facts say of values is true: an extremum is NaN if an element is."""
    return And(*map(is_number, sorted(values, key=sympy_text)))
