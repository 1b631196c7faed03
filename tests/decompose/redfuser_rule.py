"""The rule of the released RedFuser decomposition, on our cascades: which reductions it would take.

RedFuser (ASPLOS '26), Eqs. 23-25: choose constants (x0, d0) with F(x0, d0) invertible under ⊗; when

    F(x, d) ⊗ F(x0, d0) = F(x, d0) ⊗ F(x0, d)      for all x and d

then G(x) = F(x, d0) and H(d) = F(x0, d0)⁻¹ ⊗ F(x0, d). Its Table 1 pairs sum with ×, and max, min and top-k with +.
The identity is decided by evaluating both sides to 60 digits at random points: it shares no code with the engine, which
decides by exact polynomials. The length of the axis is a constant there, and so it is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mpmath
import numpy as np
from sympy import Dummy, Expr, Piecewise, S, lambdify
from sympy.core.relational import Equality, Unequality

from redalg.decompose.cascade import Cascade, Reduction
from redalg.expression import Axis, Cast, Element, Extent, Scalar, Value, Where

DIGITS = 60
POINTS = 12
TRIES = 60
TIMES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a * b,
    **dict.fromkeys(("max", "min", "argmax", "argmin", "topk"), lambda a, b: a + b),
}


def accepts(cascade: Cascade) -> bool:
    """Whether the rule takes every reduction of a cascade."""
    return first_refused(cascade) is None


def first_refused(cascade: Cascade) -> str | None:
    """The name of the first reduction that the rule does not take."""
    return next((one.name for one in cascade.reductions if not takes(one, cascade)), None)


def takes(reduction: Reduction, cascade: Cascade) -> bool:
    """Whether one reduction has rank 1 by the rule."""
    if reduction.monoid.name not in {*TIMES, "prod"}:  # a product goes through Σ log
        return False
    counts = {one.value for one in cascade.reductions if one.term == S.One}
    later = sorted(reduction.term.atoms(Value) & set(cascade.values) - counts, key=str)
    if not later:
        return True
    if reduction.monoid.name not in TIMES or reduction.term.has(Cast):
        return False
    return is_rank_one(Sampler(reduction.term, cascade, later), TIMES[reduction.monoid.name], reduction.name)


def is_rank_one(sampler: Sampler, times: Callable[[Any, Any], Any], name: str) -> bool:
    """The identity of Eq. 23, at random points about one (x0, d0) where F is invertible."""
    invertible = (lambda value: value != 0) if times(2, 3) == 6 else (lambda value: True)
    with mpmath.workdps(DIGITS):
        for corners in sampler.corners(POINTS, invertible):
            f, f00, fx0, f0d = corners
            left, right = times(f, f00), times(fx0, f0d)
            if abs(left - right) > mpmath.mpf(10) ** (20 - DIGITS) * (abs(left) + abs(right) + 1):
                return False
    return True


class Sampler:
    """F of one reduction as a function of numbers, at points that F is finite at.

    Attributes:
        on_x: what varies along the axis. on_d: earlier values. fixed: parameters, which are constants.
    """

    def __init__(self, term: Expr, cascade: Cascade, later: Sequence[Value]) -> None:
        bare = term.xreplace({one: Dummy() for one in term.atoms(Element, Value)})  # no indices
        atoms = sorted(term.atoms(Element, Value) | bare.atoms(Axis, Extent, Scalar), key=str)
        self.on_d = list(later)
        self.on_x = [one for one in atoms if one not in later and one.has(cascade.axis)]
        self.fixed = [one for one in atoms if one not in self.on_d and one not in self.on_x]
        self.integers = {one for one in atoms if isinstance(one, Axis)} | compared(term)
        self.rng = np.random.default_rng(0)
        names = {one: Dummy(f"a{number}", real=True) for number, one in enumerate(atoms)}
        self.order = [*self.on_x, *self.on_d, *self.fixed]
        body = plain(term).xreplace(names)
        self.function = lambdify([names[one] for one in self.order], body, "mpmath")

    def draw(self, atoms: Sequence[Any]) -> list[Any]:
        """A random number for each: small integers where equality is asked of them."""
        return [mpmath.mpf(int(self.rng.integers(0, 3))) if one in self.integers
                else mpmath.mpf(int(self.rng.integers(200, 3000))) / 1000 for one in atoms]  # fmt: skip

    def __call__(self, x: list[Any], d: list[Any], fixed: list[Any]) -> Any:
        try:
            return mpmath.mpf(self.function(*x, *d, *fixed))
        except (ZeroDivisionError, ValueError, TypeError):
            return mpmath.nan

    def corners(self, count: int, invertible: Callable[[Any], bool]) -> Iterator[tuple[Any, ...]]:
        """F at (x, d), (x0, d0), (x, d0), (x0, d), for `count` points about one (x0, d0)."""
        base = None
        for _ in range(TRIES * count):
            x, d, fixed = self.draw(self.on_x), self.draw(self.on_d), self.draw(self.fixed)
            if base is None:
                value = self(x, d, fixed)
                base = (x, d, fixed) if mpmath.isfinite(value) and invertible(value) else None
                continue
            x0, d0, constants = base
            made = (self(x, d, constants), self(x0, d0, constants), self(x, d0, constants), self(x0, d, constants))
            if all(map(mpmath.isfinite, made)):
                yield made
                count -= 1
            if not count:
                return
        raise AssertionError("the term is finite at too few points to decide by")


def compared(term: Expr) -> set[Any]:
    """Elements in equalities: their values must coincide at times."""
    return {one for node in term.atoms(Equality, Unequality) for one in node.atoms(Element, Value)}


def plain(node: Any) -> Any:
    """`where` as `Piecewise`, which SymPy can evaluate."""
    args = [plain(arg) for arg in node.args] if not isinstance(node, Element | Value) else node.args
    if isinstance(node, Where):
        return Piecewise((args[1], args[0]), (args[2], True), evaluate=False)
    return node if not args or all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)
