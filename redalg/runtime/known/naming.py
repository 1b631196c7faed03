"""The digest of a cascade, whatever its axes and tensors are called: the key of tuned plans.

    text    the outputs' expressions, reductions and producers written out, operands of + and · in order of their text
    colour  of a name: digest of the text in which it alone is marked, the others bear the colours of the round before
    names   a0, a1 … of axes and t0, t1 … of tensors and scalars, in order of colour

Names that are left with one colour stand alike in the text: any one of them gets a new colour, and rounds go on. If
they differ in more than rounds see, a cascade could get two digests. That costs a tuned plan and is never wrong, since
equal digests are equal texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import final

from sympy import Add, And, Eq, Max, Min, Mul, Ne, Or
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis, Element, Extent, Label, Let, Scalar, Value
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered

ROUNDS = 2
MARK = "*"
UNORDERED = (Add, Mul, Max, Min, And, Or, Eq, Ne)
"""Nodes whose operands SymPy keeps in an order that follows names."""


@final
@dataclass(frozen=True)
class Naming:
    """A cascade's digest, and the names that it has for its axes, and for its tensors and scalars.

    >>> import redalg as ra
    >>> made = naming(ra.fuse(ra.max(ra.tensor("x[b,n]"), ra.axes("n"))).form)
    >>> sorted(made.axes.values()), sorted(made.tensors.values())
    (['a0', 'a1'], ['t0'])
    """

    digest: str
    axes: Mapping[str, str]
    tensors: Mapping[str, str]

    def of_axes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by axis, under the digest's names."""
        return {self.axes.get(name, name): size for name, size in sizes.items()}

    def of_tensors(self, dtypes: Mapping[str, str]) -> dict[str, str]:
        """Dtypes by tensor, under the digest's names."""
        return {self.tensors.get(name, name): dtype for name, dtype in dtypes.items()}


def canonical_naming(form: FusedForm) -> Naming:
    """Colour a form's names until no two share a colour, number them, and take the digest."""
    cascade = form.cascade
    axes = dict.fromkeys(axis_and_extent_names(cascade), "a")
    tensors = dict.fromkeys((*cascade.inputs(), *(str(one.name) for one in cascade.scalars())), "t")
    axes, tensors = name_colours(cascade, axes, tensors)
    while alike := tied_name({**axes, **tensors}):
        for colours in (axes, tensors):
            colours.update({alike: text_digest(colours[alike])} if alike in colours else {})
        axes, tensors = name_colours(cascade, axes, tensors)
    axes, tensors = names_by_colour("a", axes), names_by_colour("t", tensors)
    slots = " ".join(sorted(f"{one.kind}:{len(one.axes)}" for one in form.slots))
    return Naming(text_digest(f"{form.kind}; {slots}; {Writer(axes, tensors).cascade(cascade)}"), axes, tensors)


def name_colours(
    cascade: Cascade, axes: dict[str, str], tensors: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The colours of names after some rounds."""
    for _ in range(ROUNDS):
        axes = {name: text_digest(f"{was}: {Writer({**axes, name: MARK}, tensors).cascade(cascade)}")
                for name, was in axes.items()}  # fmt: skip
        tensors = {name: text_digest(f"{was}: {Writer(axes, {**tensors, name: MARK}).cascade(cascade)}")
                   for name, was in tensors.items()}  # fmt: skip
    return axes, tensors


def tied_name(colours: Mapping[str, str]) -> str | None:
    """The first name, in order of colour, whose colour another name shares; None if there is none."""
    shared = Counter(colours.values())
    return min((name for name, colour in colours.items() if shared[colour] > 1), key=colours.__getitem__, default=None)


def axis_and_extent_names(cascade: Cascade) -> list[str]:
    """The names of every axis and extent."""
    return list(dict.fromkeys([*(axis.name for axis in cascade.axes()), *cascade.extents()]))


def names_by_colour(letter: str, colours: Mapping[str, str]) -> dict[str, str]:
    """Names in order of colour."""
    ordered = sorted(colours, key=lambda name: (colours[name], name))
    return {name: f"{letter}{place}" for place, name in enumerate(ordered)}


def text_digest(text: str) -> str:
    """A text as one word, the same in every process."""
    return sha256(text.encode()).hexdigest()[:32]


@final
class Writer:
    """Write expressions under other names; the definition of a value is written once, and its digest stands for it."""

    def __init__(self, axes: Mapping[str, str], tensors: Mapping[str, str]) -> None:
        self.axes, self.tensors = axes, tensors
        self.values: dict[str, str] = {}

    def cascade(self, cascade: Cascade, *, inner: bool = False) -> str:
        """The outputs of a cascade, in order, each with its axes (a producer's are in order of name)."""
        for producer in cascade.producers:
            self.values[producer.name] = text_digest(self.cascade(producer.cascade, inner=True))
        reduced = self.several(cascade.reduced_axes)
        for reduction in cascade.reductions:
            place = "" if reduction.place is None else self.text(reduction.place)
            head = f"{reduction.monoid} {reduction.result} {place} over {reduced}"
            self.values[reduction.name] = text_digest(f"{head} of {self.text(reduction.term)}")
        along = self.free if inner else self.several
        made = (f"{self.text(output.expr)} along {along(output.axes)}" for output in cascade.outputs)
        return f"where {self.text(cascade.domain)}: {'; '.join(made)}"

    def several(self, nodes: Iterable[Basic]) -> str:
        """The texts of nodes, in the order of the nodes."""
        return ", ".join(map(self.text, nodes))

    def free(self, nodes: Iterable[Basic]) -> str:
        """The texts of nodes whose own order follows names, in order of text."""
        return ", ".join(sorted(map(self.text, nodes)))

    def text(self, node: Basic) -> str:
        """The text of one node."""
        if isinstance(node, Axis):
            return self.axes[node.name]
        if isinstance(node, Extent):
            return f"|{self.axes[node.name]}|"
        if isinstance(node, Scalar):
            return self.tensors[node.name]
        if isinstance(node, Let):
            return self.text(node.args[-1])
        if isinstance(node, Element):
            return f"{self.tensors[node.name]}[{self.several(node.indices)}]"
        if isinstance(node, Value):
            return f"{self.values[node.name]}[{self.free(node.indices)}]"
        parts = [self.text(one) for one in node.args if not isinstance(one, Label)]
        if not parts:
            return str(node)
        return f"{type(node).__name__}({', '.join(sorted(parts) if isinstance(node, UNORDERED) else parts)})"


naming: Remembered[Naming] = Remembered(canonical_naming)
"""Form -> the digest of its cascade, and the names in it: writing it out takes longer than a call."""
