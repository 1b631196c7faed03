"""A cascade as computation blocks over loops: the input of tilings, the memory-access DAG and estimates.

    chain := block*            in order; what one block makes, later ones may take
    block := output[loop*] = reduce over loop* of input[loop*] …

MCFuser's GEMM chain (SC '24, Fig. 3) is C[m, n] = Σ_k A[m, k]·B[k, n]; E[m, h] = Σ_n C[m, n]·D[n, h].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

from sympy import Expr

from redalg.expression import Element, Value
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.incremental.form import Accumulator, Extremum, FusedForm


@final
@dataclass(frozen=True)
class Tensor:
    """A tensor and the loops that index its tiles."""

    name: str
    loops: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(self.loops)}]"


@final
@dataclass(frozen=True)
class Block:
    """One computation: its output, its inputs, and the loops that it reduces."""

    output: Tensor
    inputs: tuple[Tensor, ...]
    reduced: tuple[str, ...]

    @property
    def loops(self) -> tuple[str, ...]:
        """The related loops of a block: those of its output, then those that it reduces."""
        return (*self.output.loops, *self.reduced)

    def __str__(self) -> str:
        return f"{self.output} = over {', '.join(self.reduced) or 'nothing'} of {', '.join(map(str, self.inputs))}"


@final
@dataclass(frozen=True)
class Chain:
    """Blocks in order.

    >>> print(products("m", "k", "n", "h"))
    C[m, n] = over k of A[m, k], B[k, n]
    E[m, h] = over n of C[m, n], D[n, h]
    """

    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.blocks))

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """Every loop, in order of first appearance."""
        return tuple(dict.fromkeys(loop for block in self.blocks for loop in block.loops))

    @cached_property
    def intermediates(self) -> frozenset[str]:
        """The tensors that one block makes and another takes: they never reach memory."""
        inputs = {one.name for block in self.blocks for one in block.inputs}
        return frozenset(block.output.name for block in self.blocks if block.output.name in inputs)

    @cached_property
    def spatial(self) -> tuple[str, ...]:
        """The loops of the outputs that reach memory: their iterations are independent."""
        made = [block.output for block in self.blocks if block.output.name not in self.intermediates]
        return tuple(dict.fromkeys(loop for one in made for loop in one.loops))

    @cached_property
    def shared_loops(self) -> tuple[str, ...]:
        """The loops that several blocks have (of a single block: all its loops)."""
        several = [loop for loop in self.loops if sum(loop in block.loops for block in self.blocks) > 1]
        return tuple(several) if len(self.blocks) > 1 else self.loops

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor once: inputs, intermediates, outputs."""
        found = [one for block in self.blocks for one in (*block.inputs, block.output)]
        return tuple({one.name: one for one in found}.values())


def products(m: str, k: str, n: str, h: str) -> Chain:
    """Two matrix products, the second of the first's result, with the names of MCFuser."""
    first = Block(Tensor("C", (m, n)), (Tensor("A", (m, k)), Tensor("B", (k, n))), (k,))
    second = Block(Tensor("E", (m, h)), (Tensor("C", (m, n)), Tensor("D", (n, h))), (n,))
    return Chain((first, second))


@lru_cache(maxsize=64)
def chain_of(form: FusedForm) -> Chain:
    """The blocks of a form: its producers, then one block for all slots with the same loops."""
    cascade, blocks = form.cascade, list[Block]()
    for producer in cascade.producers:
        inner = producer.cascade
        reduced = tuple(map(str, inner.reduced_axes)) if inner.reductions else ()
        output = Tensor(producer.name, tuple(map(str, producer.axes)))
        blocks.append(Block(output, inputs_of([one.term for one in inner.reductions]), reduced))
    streamed = tuple(map(str, cascade.reduced_axes))
    for axes, terms in grouped_terms(form).items():
        name = "_".join(terms)
        blocks.append(Block(Tensor(name, axes), inputs_of(terms.values()), streamed))
    return Chain(tuple(blocks))


def grouped_terms(form: FusedForm) -> dict[tuple[str, ...], dict[str, Expr]]:
    """The terms of a form's slots, by the slots' free axes, then by the slots' names."""
    found: dict[tuple[str, ...], dict[str, Expr]] = {}
    slots: tuple[Extremum | Accumulator, ...] = (*form.extrema, *form.accumulators)
    for slot in slots:
        found.setdefault(tuple(map(str, slot.value.indices)), {})[slot.value.name] = slot.term
    for structure in form.structures:
        axes = tuple(str(one) for one in structure.values[0].indices if one != structure.place)
        found.setdefault(axes, {})[structure.values[0].name] = structure.term
    return found


def inputs_of(terms: Iterable[Expr]) -> tuple[Tensor, ...]:
    """The tensors and produced values that terms take."""
    found: dict[str, Tensor] = {}
    for term in terms:
        for part in sorted([*elements_of(term), *values_of(term)], key=str):
            found.setdefault(name_of(part), Tensor(name_of(part), tuple(sorted(map(str, free_axes(part))))))
    return tuple(found.values())


def name_of(part: Element | Value) -> str:
    """The name of a tensor or a value."""
    return part.name
