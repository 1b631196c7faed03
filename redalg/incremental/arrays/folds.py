"""Folds along dimensions, as functions of a scope and of arrays; the dimensions stay with length 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redalg.incremental.arrays.evaluate import Scope

Folded = Callable[..., Any]
"""(scope, array, …) -> array."""


def spread_along(array: Any, scope: Scope, places: Sequence[int]) -> Any:
    """The array with the full length of dimensions, whether it varies along them or not."""
    shape = list(array.shape)
    for place in places:
        shape[place] = scope.lengths[place]
    return scope.ops.expand(array, shape)


def fold_along(kind: str, places: tuple[int, ...], identity: float) -> Folded:
    """⊕ along dimensions; the identity over no elements."""

    def fold(scope: Scope, array: Any) -> Any:
        array = spread_along(array, scope, places)
        if 0 in map(scope.lengths.__getitem__, places):
            shape = [1 if place in places else size for place, size in enumerate(array.shape)]
            return scope.ops.full(shape, identity)
        for place in places:
            array = scope.ops.reduce(kind, array, place)
        return array

    return fold


def contract_along(places: tuple[int, ...]) -> Folded:
    """Σ of a product over dimensions, as a contraction; if no factor varies along one, its elements are counted."""

    def fold(scope: Scope, *factors: Any) -> Any:
        return scope.ops.contract(factors, {place: scope.lengths[place] for place in places})

    return fold


def count_along(places: tuple[int, ...]) -> Folded:
    """Number of elements at which a condition holds (64-bit integers)."""

    def fold(scope: Scope, condition: Any) -> Any:
        number = scope.ops.count(spread_along(condition, scope, places), places[0])
        for place in places[1:]:
            number = scope.ops.reduce("sum", number, place)
        return number

    return fold


def some_along(places: tuple[int, ...]) -> Folded:
    """True where a condition holds at any element of the dimensions along which it varies."""

    def fold(scope: Scope, condition: Any) -> Any:
        for place in places:
            if condition.shape[place] > 1:
                condition = scope.ops.any(condition, place)
        return condition

    return fold
