"""The laws of monoids and semirings, checked on generated elements: the first counterexample, or none.

Elements are what the monoid's own `lift` and `join` make of operands from its declared domains, in exact rational
arithmetic (what is irrational is compared to 40 digits), so that rounding refutes no law. A search from a fixed seed
proves nothing that it does not find; what it finds is a proof that the law fails. Elements about the numbers in an
operation's formulas come last: a sum that saturates at 255 breaks no law below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, final

from sympy import Dummy, Expr, Integer, N, Number, Rational, S, floor, sympify

from redalg.monoids.monoid import Monoid, Parts
from redalg.monoids.semiring import Semiring
from redalg.monoids.table import monoid

CASES, DRAWN = 64, 6
DIGITS = 40


def finite(random: Random) -> Expr:
    """A small fraction, often an integer, so that ties occur."""
    return Rational(random.randint(-DRAWN, DRAWN), random.choice((1, 1, 2, 3)))


def random_extended(random: Random) -> Expr:
    """A fraction or ±∞."""
    return random.choice((S.Infinity, S.NegativeInfinity)) if random.random() < 0.25 else finite(random)


def random_log(random: Random) -> Expr:
    """A fraction or −∞: the logarithm of something nonnegative."""
    return S.NegativeInfinity if random.random() < 0.2 else finite(random)


DOMAINS: dict[str, Callable[[Random], Expr]] = {
    "finite": finite,
    "any": finite,
    "extended": random_extended,
    "logarithm": random_log,
    "nonnegative": lambda random: abs(finite(random)),
    "positive": lambda random: abs(finite(random)) + 1,
    "count": lambda random: Integer(random.randint(0, 5)),
    "natural": lambda random: Integer(random.randint(0, 60)),
    "truth": lambda random: Integer(random.randint(0, 1)),
}
"""The domains of operands: name -> a sample."""


@final
@dataclass(frozen=True)
class Violation:
    """A law that fails, with the elements for which it fails and its two sides there."""

    law: str
    elements: tuple[Parts, ...]
    left: Parts
    right: Parts

    def __str__(self) -> str:
        named = ", ".join(f"{name} = {element_text(one)}" for name, one in zip("abc", self.elements, strict=False))
        left, right = element_text(self.left), element_text(self.right)
        return f"{self.law} fails at {named}: the left side is {left}, the right side {right}"


def element_text(element: Parts) -> str:
    """An element as text: without parentheses when it is one number."""
    return str(element[0]) if len(element) == 1 else f"({', '.join(map(str, element))})"


def are_equal(a: Any, b: Any) -> bool:
    """Tell if two elements agree: exactly, or to many digits if they are irrational."""
    if isinstance(a, tuple) or a == b:
        return a == b or (isinstance(a, tuple) and len(a) == len(b) and all(map(are_equal, a, b)))
    finite_numbers = all(getattr(one, "is_number", False) and one.is_finite for one in (a, b))
    return finite_numbers and abs(N(a - b, DIGITS)) <= 10 ** (10 - DIGITS) * (1 + abs(N(a, DIGITS)))


# ---- monoids ---------------------------------------------------------------------------------------------------------

Sides = Callable[..., tuple[Parts, Parts]]
LAWS: dict[str, tuple[int, Sides]] = {
    "a ⊕ e = a (identity)": (1, lambda one, a, *_: (one.join(a, one.empty), a)),
    "e ⊕ a = a (identity)": (1, lambda one, a, *_: (one.join(one.empty, a), a)),
    "(a ⊕ b) ⊕ c = a ⊕ (b ⊕ c) (associativity)": (
        3, lambda one, a, b, c: (one.join(one.join(a, b), c), one.join(a, one.join(b, c)))),
    "a ⊕ b = b ⊕ a (commutativity)": (2, lambda one, a, b, *_: (one.join(a, b), one.join(b, a))),
    "a ⊕ a = a (idempotence)": (1, lambda one, a, *_: (one.join(a, a), a)),
}  # fmt: skip
"""Law -> (the number of elements that it is about, its two sides)."""


def declared_laws(kind: Monoid) -> list[str]:
    """The laws that a monoid declares, and those of every monoid."""
    declarations = {"commutativity": kind.commutative, "idempotence": kind.idempotent}
    return [law for law in LAWS if all(holds for word, holds in declarations.items() if word in law) or
            not any(word in law for word in declarations)]  # fmt: skip


def element(kind: Monoid, random: Random, limits: Sequence[Expr] = ()) -> Parts:
    """An element: the identity, a lifted place, or several of them joined; half of the operands lie about `limits`."""
    chance = random.random()
    if chance < 0.1:
        return kind.empty
    if chance < 0.4:
        return kind.join(element(kind, random, limits), element(kind, random, limits))
    operands = [DOMAINS[name](random) for name in kind.domains]
    if kind.edges and random.random() < 0.3:
        operands = list(random.choice(kind.edges))
    elif limits and random.random() < 0.5:
        operands = [about(random.choice(limits), *pair) for pair in zip(operands, kind.domains, strict=True)]
    return tuple(kind.lift(*operands, Integer(random.randint(0, 20))))


def about(limit: Expr, sample: Expr, domain: str) -> Expr:
    """A sample of a domain near a number in the formulas of an operation."""
    if domain == "truth" or not sample.is_finite:
        return sample
    if domain in ("count", "natural"):
        return Integer(abs(floor(limit + sample)))
    value = limit + sample
    return abs(value) + 1 if domain == "positive" else abs(value) if domain == "nonnegative" else value


def limits_of(kind: Monoid) -> list[Expr]:
    """The numbers in an operation's formulas beyond those that are drawn, such as a bound at which it saturates."""
    a, b = (tuple(Dummy(real=True) for _ in kind.components) for _ in range(2))
    try:
        formulas = (*kind.join(a, b), *kind.lift(*(Dummy(real=True) for _ in kind.domains), S.Zero))
    except TypeError:  # it asks for truths that symbols do not have
        return []
    numbers = {one for formula in formulas for one in sympify(formula).atoms(Number) if one.is_finite}
    return sorted({abs(one) for one in numbers if abs(one) > DRAWN})


def violation(kind: Monoid, laws: list[str] | None = None, seed: int = 0, cases: int = CASES) -> Violation | None:
    """The first case in which a declared law (or one of those named) fails."""
    for law in declared_laws(kind) if laws is None else laws:
        number, sides = LAWS[law]
        for elements in _samples(kind, number, seed, cases):
            left, right = sides(kind, *elements)
            if not are_equal(tuple(left), tuple(right)):
                return Violation(law, elements, tuple(left), tuple(right))
    return None


def _samples(kind: Monoid, number: int, seed: int, cases: int) -> Iterator[tuple[Parts, ...]]:
    lifted = [tuple(kind.lift(*edge, Integer(place))) for place, edge in enumerate(kind.edges)]
    for place in range(len(lifted)):
        yield tuple((lifted * 3)[place : place + number])
    random = Random(seed)
    for _ in range(cases):
        yield tuple(element(kind, random) for _ in range(number))
    if limits := limits_of(kind):
        for _ in range(cases):
            yield tuple(element(kind, random, limits) for _ in range(number))


# ---- semirings -------------------------------------------------------------------------------------------------------

DISTRIBUTES = "(a ⊕ b) ⊗ c = (a ⊗ c) ⊕ (b ⊗ c) (distributivity)"


def distributivity_violation(pair: Semiring, seed: int = 0, cases: int = 4 * CASES) -> Violation | None:
    """The first case in which ⊗ does not distribute over ⊕."""
    random, plus = Random(seed), monoid(pair.plus)

    def join(a: Expr, b: Expr) -> Expr:
        return plus.lower(*plus.join(plus.lift(a, 0), plus.lift(b, 0)))[0]

    for _ in range(cases):
        a, b = (DOMAINS[pair.elements](random) for _ in range(2))
        c = DOMAINS[pair.domain](random)
        left, right = pair.apply(join(a, b), c), join(pair.apply(a, c), pair.apply(b, c))
        if not are_equal((left,), (right,)):
            return Violation(DISTRIBUTES, ((a,), (b,), (c,)), (left,), (right,))
    return None
