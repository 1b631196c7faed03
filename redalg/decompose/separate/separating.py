"""The interface of the separator that the rules of separation belong to."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sympy import Expr
from sympy.core.basic import Basic

from redalg.decompose.separate.laurent import Polynomial
from redalg.decompose.separate.signs import KnownFacts


class Separating(ABC):
    """Turn terms into polynomials Σ h(d)·g(x). `facts` says what each value is: its monoid's name and its term."""

    facts: KnownFacts

    @abstractmethod
    def side(self, node: Basic) -> int:
        """The sides that a node depends on: x (1), d (2), both (3) or neither (0: a parameter)."""

    @abstractmethod
    def separate(self, node: Expr) -> Polynomial:
        """The polynomial of a term."""

    @abstractmethod
    def pure(self, node: Expr) -> Polynomial:
        """A subtree of one side: split along products, powers and exponentials, and otherwise one opaque atom."""

    @abstractmethod
    def sign(self, difference: Expr) -> int:
        """1 if a difference is known to be at least 0, −1 if at most 0, 0 if unknown."""

    @abstractmethod
    def rank_one(self, node: Expr, factor: Expr, reason: object, *, certain: bool = False) -> tuple[Expr, Expr]:
        """factor = g(x)·h(d) as SymPy expressions, or NotSeparable naming `node`."""
