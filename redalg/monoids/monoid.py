"""A monoid (S, ⊕, identity) as data. An element of S has one or more components, each a number or an index.

    associative    (a ⊕ b) ⊕ c = a ⊕ (b ⊕ c)     always
    identity       a ⊕ e = a = e ⊕ a             always
    commutative    a ⊕ b = b ⊕ a                 where declared; otherwise pieces are merged in order only
    idempotent     a ⊕ a = a                     where declared
    exact          no rounding in floating point, so every order of merging gives the same bits

Two maps lead in and out: `lift` takes what stands at one place of the axis to an element (argmax: x at n ↦ (x, n)), and
`lower` takes an element to what the reduction is (argmax: (value, index) ↦ index). `redalg.monoids.laws` checks every
declaration on generated elements, and a test refutes what is not declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from sympy import Expr

Parts = tuple[Expr, ...]
"""An element: one expression for each component."""


@final
@dataclass(frozen=True)
class Component:
    """One part of an element: its name, its value in the identity, and whether it is an integer (held in 64 bits)."""

    name: str
    identity: Expr
    integer: bool = False


@final
@dataclass(frozen=True)
class Result:
    """One value that a reduction gives: its name (empty for the only one) and dtype (empty: that of the terms).

    A hidden one is a component that `lower` keeps for derivatives, and no user asks for.
    """

    name: str = ""
    dtype: str = ""
    hidden: bool = False


def as_given(*operands: Any) -> Parts:
    """lift: the operands themselves (the index, last, is not used)."""
    return operands[:-1]


def as_held(*parts: Any) -> Parts:
    """lower: the components themselves."""
    return parts


@final
@dataclass(frozen=True)
class Monoid:
    """One reduction operator. Pickled by name, so that it is itself again where it is read.

    Attributes:
        name: the word used in expressions and in kernels (`sum`, `argmax`).
        sign: the infix sign that derivations print.
        components: what an element consists of.
        join: (a, b) -> a ⊕ b, on tuples of components.
        domains: for each operand, what it may be (a key of `redalg.monoids.laws.DOMAINS`).
        lift: (operand, …, index) -> components.
        lower: components -> results.
        results: what the reduction gives.
        commutative, idempotent, exact: the laws, as declared.
        reduction: the array libraries' own word for it, where an element is one number.
        state_kind: the monoid whose elements the state holds instead, where rounding or range asks for it.
        edges: operands at which the laws are checked besides random ones.
        vjp: (total, element, adjoints of the total's components) -> adjoints of the element's components, if the
            monoid has a derivative by a rule of its own; then the components are the last of the results.
    """

    name: str
    sign: str
    components: tuple[Component, ...]
    join: Callable[[Parts, Parts], Parts]
    domains: tuple[str, ...] = ("finite",)
    lift: Callable[..., Parts] = as_given
    lower: Callable[..., Parts] = as_held
    results: tuple[Result, ...] = (Result(),)
    commutative: bool = True
    idempotent: bool = False
    exact: bool = False
    reduction: str = ""
    state_kind: str = ""
    edges: tuple[Parts, ...] = ()
    vjp: Callable[[Parts, Parts, Parts], Parts] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def empty(self) -> Parts:
        """The identity, component by component."""
        return tuple(one.identity for one in self.components)

    @property
    def identity(self) -> Expr:
        """The identity, where an element is one number."""
        [identity] = self.empty
        return identity

    def combine(self, a: Expr, b: Expr) -> Expr:
        """a ⊕ b, where an element is one number."""
        [result] = self.join((a,), (b,))
        return result

    def value(self, *operands: Expr) -> Expr:
        """The first result of one place: lower(lift(…))."""
        return self.lower(*self.lift(*operands, 0))[0]

    def result(self, name: str) -> tuple[int, Result]:
        """A result by name, with its number."""
        return next((number, one) for number, one in enumerate(self.results) if one.name == name)
