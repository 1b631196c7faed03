"""The span of exact vectors: membership, coordinates, and a minimal basis of the vectors as they were given."""

from __future__ import annotations

from typing import final

from redalg.decompose.separate.laurent import Monomial, Ratio, Vector, accumulate, ratio


@final
class Span:
    """Row echelon form over ℚ that remembers how each row is made of the basis vectors."""

    def __init__(self) -> None:
        self.basis: list[Vector] = []
        self._rows: list[tuple[Monomial, Vector, dict[int, Ratio]]] = []

    def _reduce(self, vector: Vector) -> tuple[Vector, dict[int, Ratio]]:
        left, used = dict(vector), dict[int, Ratio]()
        for pivot, row, made_of in self._rows:
            if pivot in left:
                factor = ratio(-left[pivot], row[pivot])
                for key, value in row.items():
                    accumulate(left, key, factor * value)
                for index, value in made_of.items():
                    accumulate(used, index, factor * value)
        return left, used

    def add(self, vector: Vector) -> bool:
        """Take a vector into the span; False where it already lay there."""
        left, used = self._reduce(vector)
        if not left:
            return False
        accumulate(used, len(self.basis), 1)
        self.basis.append(vector)
        self._rows.append((min(left), left, used))
        return True

    def coordinates(self, vector: Vector) -> dict[int, Ratio] | None:
        """The vector as a combination of the basis, or None where it lies outside."""
        left, used = self._reduce(vector)
        return None if left else {index: -value for index, value in used.items()}
