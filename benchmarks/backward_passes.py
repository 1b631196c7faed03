"""Passes of derived backwards over the data, beside those of kernels that people wrote.

`python -m benchmarks.backward_passes` prints the table of docs/TRAINING.md, which a test compares with it.

A pass is a launch that reads a tensor of at least a `SHARE` of the largest one that is given. Launches that read less,
such as the sums of parts, are told apart. Kernels are those that a call takes on a card, of tensors in bfloat16;
products of matrices that PyTorch makes are launches too. What people wrote is told by the sources of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod
from typing import Any, final

from sympy import sqrt

import redalg as ra
from benchmarks.ahead import placeholder, recorded_problems
from benchmarks.family import Problem
from benchmarks.markdown import Table
from redalg.gradient.operand import OperandStage
from redalg.gradient.recorded import backward_of
from redalg.gradient.stage import needed_stages, sizes_of
from redalg.library import PATTERNS
from redalg.lower_tile.ir.mentions import names_in
from redalg.runtime.call.ahead import kernels_of_call

CARD, DTYPE = "H200", "bfloat16"
SHARE = 1 / 8
NONE = "none known"
FIXED = ("slope", "teacher_h", "teacher_w")
"""Tensors that are not learned."""


@final
@dataclass(frozen=True)
class Passes:
    """Launches that read the data, and those that read what is left of it.

    >>> str(Passes(1, 1)), str(Passes(3))
    ('1 + 1', '3')
    """

    data: int
    rest: int = 0

    def __str__(self) -> str:
        return f"{self.data} + {self.rest}" if self.rest else str(self.data)


@final
@dataclass(frozen=True)
class Row:
    """A function, and the backward that a person wrote.

    Attributes:
        name: how people call it.
        build: the function.
        sizes: extents by axis.
        shapes: of tensors that have an index that is no axis.
        by_hand: the passes of the best backward that a person wrote; None if none is known.
        whose: its name, and what is different about it.
    """

    name: str
    build: Callable[[], Any]
    sizes: Mapping[str, int]
    by_hand: Passes | None
    whose: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of_library(cls, name: str, title: str, by_hand: Passes | None = None, whose: str = NONE, **sizes: int) -> Row:
        """A pattern of the library, of its own sizes but for those that are given."""
        pattern = PATTERNS[name]
        own = {**pattern.sizes, **sizes}
        return cls(title, pattern.build, own, by_hand, whose, pattern.tensor_shapes(own))

    @property
    def gradients(self) -> list[str]:
        """The tensors whose gradients are made."""
        return [name for name in backward_of(self.problem.function).gradients if name not in FIXED]

    @cached_property
    def problem(self) -> Problem:
        """The function on tensors in 16 bits, and int64 where they index."""
        form = self.build()
        value_tensors = form.cascade.value_tensors()
        shapes = {one.name: tuple(axis.size or self.sizes[axis.name] for axis in one.indices)
                  for one in form.cascade.elements() if one.is_plain}  # fmt: skip
        names = form.cascade.inputs()
        dtypes = {name: DTYPE if name in value_tensors else "int64" for name in names}
        return Problem(form, self.sizes, dtypes, {**shapes, **self.shapes})

    @cached_property
    def passes(self) -> Passes:
        """Those of the derived backward, for the gradients of all tensors that have one."""
        least = SHARE * max(prod(shape) for shape in self.problem.shapes.values())
        products = library_products(self.problem, self.gradients)
        reads = [*kernel_reads(self.problem, self.gradients), *([ceil(least)] * products)]
        data = sum(largest >= least for largest in reads)
        return Passes(data, len(reads) - data)

    @property
    def cells(self) -> tuple[str, ...]:
        """Its line of the table; where redalg takes more passes, their number is bold."""
        more = self.by_hand is not None and self.passes.data > self.by_hand.data
        own = f"**{self.passes}**" if more else str(self.passes)
        return self.name, own, "–" if self.by_hand is None else str(self.by_hand), self.whose


def kernel_reads(problem: Problem, gradients: Sequence[str]) -> Iterator[int]:
    """Yield the elements of the largest tensor that each kernel of the backward reads; of parts of an operand once."""
    stages = [*recorded_problems(problem, gradients)][1:]
    for one in {id(one.function): one for one in stages}.values():
        for lowered in kernels_of_call(one.function.passes, CARD, one.sizes, one.dtypes, one.shapes):
            read = {name: prod(map(int, given.shape)) for given in lowered.program.parameters
                    if given.role in ("input", "workspace") for name in (given.name,)}  # fmt: skip
            for kernel in lowered.program.kernels:
                names = {name for statement in kernel.body for name in names_in(statement)}
                yield max(read.get(name, 0) for name in names)


def library_products(problem: Problem, gradients: Sequence[str]) -> int:
    """The products of matrices that PyTorch makes of a shared operand, which is as large as its part of the data."""
    known = {name: placeholder(shape, problem.dtypes[name]) for name, shape in problem.shapes.items()}
    backward = backward_of(problem.function).for_tensors(known)
    sizes = {**sizes_of(backward.forward.cascade, known), **problem.sizes}
    stages = needed_stages(backward.stages, [backward.gradients[name] for name in gradients])
    shared = [one for one in stages if isinstance(one, OperandStage) and one.serves(sizes)]
    return sum(len(one.products) for one in shared if len(one.operand.axes) == 2)


# ---- rows ------------------------------------------------------------------------------------------------------------


def batch_norm() -> Any:
    """Of x[b,c,n] over the batch and the places, with weights and a bias of the channels."""
    b, n = ra.axes("b n")
    x, weight, bias = ra.tensors("x[b,c,n] weight[c] bias[c]")
    return ra.fuse(ra.layer_norm(x, b, n, weight=weight, bias=bias), axes="b c n")


def cosine_similarity() -> Any:
    """Of the rows of x[b,n] and y[b,n]."""
    x, y = ra.tensors("x[b,n] y[b,n]")
    return ra.fuse(ra.cosine_similarity(x, y, ra.axes("n")), axes="b")


def correlation() -> Any:
    """Of the rows of x[b,n] and y[b,n]."""
    n = ra.axes("n")
    x, y = ra.tensors("x[b,n] y[b,n]")
    return ra.fuse(ra.covariance(x, y, n) / sqrt(ra.var(x, n) * ra.var(y, n)), axes="b")


def gates() -> Any:
    """The 8 best shares of the scores s[t,n]."""
    n = ra.axes("n")
    return ra.fuse(ra.topk(ra.softmax(ra.tensor("s[t,n]"), n), n, ra.axis("j", 8))[0], axes="t j")


FLASH = "FlashAttention-2: D; one kernel, with atomics; dQ rounded"
GIVEN = {"b": 8192, "n": 4096}
ROWS = (
    Row.of_library("attention", "attention", Passes(3), FLASH),
    Row.of_library("causal_attention", "causal attention", Passes(3), FLASH),
    Row.of_library("sliding_window_attention", "a sliding window", Passes(3), FLASH),
    Row.of_library("softcap_attention", "a soft cap", Passes(3), FLASH, d=128, e=128),
    Row.of_library("alibi_attention", "ALiBi", Passes(3), FLASH),
    Row.of_library("sink_attention", "learned sinks"),
    Row.of_library("grouped_query_attention", "four query heads to one of K and V", Passes(5),
                   "FlashAttention-2, and a sum over each group for K and for V", b=4, q=4096),
    Row.of_library("softmax", "softmax", Passes(1), "PyTorch"),
    Row.of_library("log_softmax", "log-softmax", Passes(1), "PyTorch"),
    Row.of_library("logsumexp", "logsumexp", Passes(3), "PyTorch: three elementwise kernels"),
    Row.of_library("layer_norm", "layer norm, all gradients", Passes(1, 1), "Liger: the rows, then a sum of parts"),
    Row.of_library("rms_norm", "RMS norm, all gradients", Passes(1, 1), "Liger: the rows, then a sum of parts"),
    Row.of_library("group_norm", "group norm, all gradients", Passes(1),
                   "Liger: it reads a group twice, and adds up weights by atomics"),
    Row("batch norm, all gradients", batch_norm, {"b": 64, "c": 256, "n": 3136}, Passes(1),
        "PyTorch: a block to a channel, which it reads twice"),
    Row.of_library("l2_normalize", "rows of norm 1"),
    Row.of_library("variance", "variance", Passes(3), "PyTorch: a mean and two elementwise kernels"),
    Row("cosine similarity", cosine_similarity, GIVEN, None, NONE),
    Row("correlation", correlation, GIVEN, None, NONE),
    Row.of_library("cross_entropy", "cross entropy of given scores", Passes(1), "FlashAttention's, in Triton"),
    Row.of_library("softmax_entropy", "entropy of a softmax"),
    Row.of_library("distillation", "distillation of given scores", Passes(2),
                   "Liger's divergence, then PyTorch's log-softmax"),
    Row.of_library("linear_cross_entropy", "linear cross entropy", Passes(1),
                   "cut cross entropy: it adds under locks, and leaves out small terms"),
    Row.of_library("linear_distillation", "distillation of linear heads"),
    Row("the 8 best gates of given scores", gates, {"t": 16384, "n": 256, "j": 8}, Passes(1),
        "Transformer Engine's router"),
)  # fmt: skip


def table() -> Table:
    """The table of docs/TRAINING.md."""
    return Table(("backward of", "redalg", "by hand", "whose"), [row.cells for row in ROWS])


if __name__ == "__main__":
    print(table())
