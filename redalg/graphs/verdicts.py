"""The engine's verdict on patterns: a pattern that reduces is a group if the algebra takes it in one pass.

A product of matrices in 16 bits stays one: its factors are elements, or weights that depend on what was reduced. A
factor that is computed from elements (a turned query), or read only where a condition holds (keys beside something
else), is none that tensor cores multiply: such a pattern is slow, and is no group, though one that holds more may be.
So is a pattern whose state has many numbers a row. A pattern that computes with integers of a tensor is no group
either: no kernel takes them but as indices, or compared.

A verdict depends on a pattern's structure alone: layers of a model that are alike are judged once. The structure is the
text of the members' terms, with numbers in the place of names, their types, and which of them leave the pattern. An
output that is one number whatever the tensors hold is nothing to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast, final

from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError
from redalg.expression import Cast, Element, Reduce, Tensor, Where, where
from redalg.expression.contents import elements_of, of_kind
from redalg.expression.dtypes import is_float
from redalg.expression.rebuild import replace_nodes
from redalg.fuse import analyze
from redalg.fused import Fused
from redalg.graphs.analysis import multiplies
from redalg.graphs.compose import Composed, compose_outputs
from redalg.graphs.lay import Laid, lay_outputs
from redalg.graphs.parts import Parts, parts_read
from redalg.graphs.program import TensorType
from redalg.graphs.structure import Line, line_of
from redalg.graphs.vertices import Pattern, Vertices
from redalg.verdicts import Approximate, Exact, Refused, Undecided

Structure = tuple[tuple[str, bool, tuple[str, ...]], ...]
"""Of every statement its line, true if it leaves the pattern, and the numbers of its tensors."""
Outputs = dict[str, tuple[Basic, str]]
"""Name -> the expression of an output, and its axes."""
COMPUTED = "a factor of its product of matrices is computed from elements, or guarded: no tensor core multiplies"
INTEGERS = "it computes with integers of a tensor, which kernels take as indices alone, or compared"
MOST_NUMBERS = 8
"""Numbers of a row's state, at most: a norm of a norm has 17, and a kernel that compiles for minutes."""


@final
@dataclass(frozen=True)
class Verdict:
    """The engine's word on a pattern: taken in one pass, and as a group, or the reason why not.

    Attributes:
        said: the reason in words; that of the engine's `refusal` is put into words when it is asked for.
        fused: the function of the pattern.
    """

    is_one_pass: bool
    said: str = ""
    is_slow: bool = False
    computes_with_integers: bool = False
    refusal: Approximate[Fused] | Refused | Undecided | None = field(default=None, compare=False, repr=False)
    fused: Fused | None = field(default=None, compare=False, repr=False)

    @property
    def reason(self) -> str:
        """The reason why it is not taken in one pass, or is no group."""
        return self.said if self.refusal is None else str(self.refusal)

    @property
    def is_group(self) -> bool:
        """Tell if it is taken in one pass that is not slow, and has a kernel for its tensors."""
        return self.is_one_pass and not self.is_slow and not self.computes_with_integers


@final
@dataclass(frozen=True)
class Numbered:
    """The outputs of a pattern, with numbers in the place of names: all patterns that are alike have these.

    Attributes:
        laid: the outputs, and the views of what they read.
        parts: of the tensors of which only the first places are read.
        types: number of a tensor -> its type.
    """

    laid: Laid
    parts: Parts
    types: Mapping[str, TensorType]


@final
@dataclass(frozen=True)
class Verdicts:
    """The verdicts on patterns of a program, each asked for once for patterns that are alike.

    Attributes:
        vertices: of the program.
        found, lines, laid, structures: what was asked for before; of patterns that are alike once, but for structures.
    """

    vertices: Vertices
    found: dict[Structure, Verdict] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    laid: dict[Structure, Numbered] = field(default_factory=dict)
    structures: dict[Pattern, tuple[Structure, Mapping[str, str]]] = field(default_factory=dict)

    def of(self, pattern: Pattern) -> Verdict:
        """The verdict on a pattern."""
        structure = self.structure(pattern)
        if structure not in self.found:
            self.found[structure] = self.judge(pattern)
        return self.found[structure]

    def judge(self, pattern: Pattern) -> Verdict:
        """The verdict on a pattern, asked anew."""
        try:
            numbered = self.lay(pattern)
            outputs = numbered_outputs(numbered)
            verdict = analyze(outputs) if outputs else None
        except RedalgError as refused:
            return Verdict(is_one_pass=False, said=str(refused))
        if verdict is None or isinstance(verdict, Exact):
            fused = None if verdict is None else verdict.fused
            slow = self.reason_to_be_slow(pattern, outputs, fused)
            integers = fused is not None and computes_with_integers(numbered, fused)
            reason = slow or (INTEGERS if integers else "")
            return Verdict(is_one_pass=True, said=reason, is_slow=bool(slow), computes_with_integers=integers,
                           fused=fused)  # fmt: skip
        return Verdict(is_one_pass=False, refusal=verdict)

    def reason_to_be_slow(self, pattern: Pattern, outputs: Outputs, fused: Fused | None) -> str:
        """The reason why the kernel of a pattern would be slow, if there is any."""
        narrow = any(map(self.vertices.multiplies_narrow, pattern))
        products = of_kind(Reduce, *output_terms(outputs)) if narrow else ()
        if any(map(multiplies_computed, products)):
            return COMPUTED
        number = 0 if fused is None else numbers_of_state(fused)
        return f"a row has a state of {number} numbers, more than {MOST_NUMBERS}" if number > MOST_NUMBERS else ""

    def lay(self, pattern: Pattern) -> Numbered:
        """The outputs of a pattern by numbers, and the views of what they read.

        Raises:
            GraphError: as of `compose_outputs` and `parts_read`.
        """
        structure = self.structure(pattern)
        if structure not in self.laid:
            group, analysis = self.vertices.with_views(pattern), self.vertices.analysis
            outputs = compose_outputs(analysis.program, group, self.vertices.outputs_of(pattern))
            self.laid[structure] = by_numbers(
                lay_outputs(outputs, analysis.types), self.numbers(pattern), analysis.types
            )
        return self.laid[structure]

    def structure(self, pattern: Pattern) -> Structure:
        """The text on which the verdict on a pattern depends, and the tensors of every line by their numbers."""
        return self.structure_and_numbers(pattern)[0]

    def numbers(self, pattern: Pattern) -> Mapping[str, str]:
        """Names for the tensors of a pattern, behind its views, that depend on their order alone."""
        return self.structure_and_numbers(pattern)[1]

    def structure_and_numbers(self, pattern: Pattern) -> tuple[Structure, Mapping[str, str]]:
        """The structure of a pattern, and the numbers of its tensors, in order."""
        if pattern not in self.structures:
            group, leaving = self.vertices.with_views(pattern), {*self.vertices.outputs_of(pattern)}
            lines = [(name, *self.line(name)) for name in group]
            tensors = dict.fromkeys(tensor for _, _, each in lines for tensor in each)
            numbers = {tensor: f"t{number}" for number, tensor in enumerate(tensors)}
            structure = tuple((text, name in leaving, tuple(map(numbers.__getitem__, each)))
                              for name, text, each in lines)  # fmt: skip
            self.structures[pattern] = structure, numbers
        return self.structures[pattern]

    def line(self, name: str) -> Line:
        """The line of a statement."""
        if name not in self.lines:
            self.lines[name] = line_of(self.vertices.known[name], self.vertices.analysis.types)
        return self.lines[name]


def by_numbers(laid: Laid, numbers: Mapping[str, str], types: Mapping[str, TensorType]) -> Numbered:
    """The outputs of a pattern with numbers in the place of names."""
    outputs = (replace(one, name=numbers[one.name], term=with_names(one.term, numbers)) for one in laid.outputs)
    views = {numbers[name]: shape for name, shape in laid.views.items()}
    parts = {numbers[name]: part for name, part in parts_read(laid, types).items()}
    return Numbered(Laid(tuple(outputs), views), parts, {number: types[name] for name, number in numbers.items()})


def numbered_outputs(numbered: Numbered) -> Outputs:
    """The outputs of a pattern that read anything, with their axes."""
    outputs = (output for output in numbered.laid.outputs if output.reads)
    return {
        f"out_{number}": (with_dtype(output, with_extents(output), numbered.types), " ".join(map(str, output.axes)))
        for number, output in enumerate(outputs)
    }


def with_dtype(output: Composed, term: Basic, types: Mapping[str, TensorType]) -> Basic:
    """A term of an output's dtype; one of truth values is 1 or 0."""
    dtype, found = types[output.name].dtype, {types[name].dtype for name in output.reads}
    floats = {name for name in found if is_float(name)}
    return Cast(as_zero_or_one(term), dtype) if is_float(dtype) and floats - {dtype} else as_zero_or_one(term)


def computes_with_integers(numbered: Numbered, fused: Fused) -> bool:
    """Tell if a tensor of integers, or of truths, stands in arithmetic of a pattern."""
    in_arithmetic = fused.cascade.value_tensors()
    return any(name in in_arithmetic and not is_float(each.dtype) for name, each in numbered.types.items())


def numbers_of_state(fused: Fused) -> int:
    """The numbers of a row that all passes accumulate, before centring: the ranks of the reductions."""
    return sum(one.rank for each in (*fused.earlier, fused.decomposition) for one in each.separations)


def output_terms(outputs: Mapping[str, tuple[Basic, str]]) -> list[Basic]:
    """The terms of outputs."""
    return [term for term, _ in outputs.values()]


def multiplies_computed(reduction: Reduce) -> bool:
    """Tell if a reduction is a product of matrices, of which a factor is computed from elements, or all are guarded."""
    if isinstance(reduction.expr, Where):
        return any(multiplies(reduction.rebuilt(branch, reduction.bound)) for branch in reduction.expr.args[1:])
    return multiplies(reduction) and any(map(is_factor_of_elements, reduction.expr.args))


def is_factor_of_elements(factor: Basic) -> bool:
    """Tell if a factor is computed from elements, none of which was reduced, or is one at a place that is a choice."""
    inner = factor.args[0] if isinstance(factor, Cast) else factor
    is_plain = isinstance(inner, Element) and not of_kind(Where, inner)
    return not is_plain and bool(elements_of(inner)) and not of_kind(Reduce, inner)


def with_extents(output: Composed) -> Basic:
    """The term of an output with extents of axes in the place of sizes that vary."""
    extents = {size: axis.extent for axis, size in output.sizes.items() if size.is_Symbol}
    return output.term.xreplace(extents) if extents else output.term


def with_names(term: Basic, names: Mapping[str, str]) -> Basic:
    """A term whose tensors have other names."""
    others = {
        element: Tensor(names[element.name])[tuple(with_names(index, names) for index in element.indices)]
        for element in elements_of(term)
    }
    return cast(Basic, replace_nodes(term, others))


def as_zero_or_one(term: Basic) -> Basic:
    """A term, of a truth value 1 or 0."""
    return where(term, 1, 0) if isinstance(term, Boolean) else term
