"""The gain of a pattern, in microseconds: what its members take alone, less what they take as one kernel.

    gain  = Σ alone − fused                                 (FusionStitching, Eq. 3)
    alone = launch + max(bytes / bandwidth, operations / rate)
    fused = launch + merge + max(passes · bytes of what enters and leaves / bandwidth, operations / (rate · share))

A merge is due where fewer rows are reduced than a card has multiprocessors: they are cut into parts. A second pass is
due where an output carries the elements of a reduced row that no block can keep. It is the first and cheapest of three
judges: the cost model of the chosen schedule and the measurement come after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, prod
from typing import final

from sympy import Expr, Mul, Symbol

from redalg.errors import GraphError
from redalg.expression.dtypes import DTYPES
from redalg.graphs.analysis import Kind
from redalg.graphs.vertices import Pattern, Vertices
from redalg.strategies.device import DeviceSpec

LAUNCH_US, MERGE_US = 2.7, 1.4
"""One kernel more in a CUDA graph, and the merge of a row's parts (H200)."""
SHARE_OF_BANDWIDTH, SHARE_OF_PRODUCTS, SHARE_WHEN_FUSED = 0.83, 0.71, 0.75
"""Of a card's stated rates: what long kernels reach, and of that what products within a cascade reach."""
ROW_BYTES = 96 << 10
"""Bytes of a row that a block keeps on chip."""


@final
@dataclass(frozen=True)
class Gain:
    """The gains of patterns of a program on a card.

    Attributes:
        vertices: of the program.
        device: the card.
        hints: symbol of a size -> the length for which the gain is asked.
        counted: the times of vertices alone that were asked for before.
    """

    vertices: Vertices
    device: DeviceSpec
    hints: Mapping[Symbol, int] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)

    def of(self, pattern: Pattern) -> float:
        """The gain of a pattern over its members alone; the order of members does not round it."""
        return fsum(map(self.alone_us, pattern)) - self.fused_us(pattern)

    def alone_us(self, name: str) -> float:
        """The time of a vertex as a kernel of its own."""
        if name in self.counted:
            return self.counted[name]
        moved = self.bytes_of(name) + sum(map(self.bytes_of, self.vertices.sources[name]))
        self.counted[name] = LAUNCH_US + max(moved / self.bytes_a_us, self.operations(name) / self.operations_a_us)
        return self.counted[name]

    def fused_us(self, pattern: Pattern) -> float:
        """The time of a pattern as one kernel."""
        leaving = self.vertices.outputs_of(pattern)
        moved = sum(map(self.bytes_of, (*self.vertices.inputs_of(pattern), *leaving)))
        rows = [(self.elements(name), self.row_length(name)) for name in pattern if self.vertices.reduces(name)]
        longest = max((length for _, length in rows), default=0)
        carries = any(self.elements(name) >= count * length for name in leaving for count, length in rows)
        passes = 2 if carries and 4 * longest > ROW_BYTES else 1
        merge = MERGE_US if rows and max(count for count, _ in rows) < self.device.multiprocessors else 0.0
        products = sum(map(self.operations, pattern)) / (self.operations_a_us * SHARE_WHEN_FUSED)
        return LAUNCH_US + merge + max(passes * moved / self.bytes_a_us, products)

    def operations(self, name: str) -> float:
        """The additions and multiplications of a contraction; 0 for what moves more than it computes."""
        if self.vertices.analysis.kinds[name] is not Kind.CONTRACTION:
            return 0.0
        return 2.0 * self.elements(name) * self.row_length(name)

    def row_length(self, name: str) -> int:
        """The elements that one element of a tensor expression relies on."""
        return self.product(size for _, size in self.vertices.known[name].lengths)

    def elements(self, name: str) -> int:
        """The elements of a tensor."""
        return self.product(self.vertices.analysis.types[name].shape)

    def bytes_of(self, name: str) -> int:
        """The bytes of a tensor."""
        return DTYPES[self.vertices.analysis.types[name].dtype].bytes * self.elements(name)

    def product(self, sizes: Iterable[Expr]) -> int:
        """The product of sizes as a number."""
        factors = [*sizes]
        return prod(map(int, factors)) if all(one.is_Integer for one in factors) else self.number(Mul(*factors))

    def number(self, size: Expr) -> int:
        """A size as a number."""
        known = size if size.is_Integer else size.subs(dict(self.hints))
        if not known.is_Integer:
            raise GraphError(
                f"no length is given for {', '.join(sorted(map(str, known.free_symbols)))}, on which sizes of the "
                "program depend. Give one in `hints`: the length that calls will have."
            )
        return int(known)

    @property
    def bytes_a_us(self) -> float:
        """The bytes that the card's memory moves in a microsecond."""
        return self.device.memory_gb_s * 1e3 * SHARE_OF_BANDWIDTH

    @property
    def operations_a_us(self) -> float:
        """The operations of dense products in a microsecond."""
        return self.device.product_tflops * 1e6 * SHARE_OF_PRODUCTS
