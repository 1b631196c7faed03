"""The engine's verdict on patterns: a pattern that reduces is a group if the algebra takes it in one pass.

A product of matrices in 16 bits stays one: its factors are elements, or weights that depend on what was reduced. A
factor that is computed from elements (a turned query) is none that tensor cores multiply: such a pattern is slow, and
is no group, though one that holds more may be. So is a pattern whose state has many numbers a row.

A verdict depends on a pattern's structure alone: layers of a model that are alike are judged once. The structure is the
text of the members' terms, with numbers in the place of names, their types, and which of them leave the pattern. An
output that is one number whatever the tensors hold is nothing to the engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError
from redalg.expression import Cast, Element, Reduce, Tensor, where
from redalg.expression.contents import elements_of, of_kind
from redalg.expression.dtypes import is_float
from redalg.fuse import analyze
from redalg.fused import Fused
from redalg.graphs.analysis import multiplies
from redalg.graphs.compose import Composed, compose_outputs
from redalg.graphs.lay import Laid, lay_outputs
from redalg.graphs.parts import parts_read
from redalg.graphs.vertices import Pattern, Vertices
from redalg.verdicts import Exact

Structure = tuple[tuple[str, bool, tuple[str, ...]], ...]
"""Of every statement its line, true if it leaves the pattern, and the numbers of its tensors."""
Line = tuple[str, tuple[str, ...]]
Outputs = dict[str, tuple[Basic, str]]
"""Name -> the expression of an output, and its axes."""
COMPUTED = "a factor of its product of matrices is computed from elements, so that no tensor core multiplies"
MOST_NUMBERS = 8
"""Numbers of a row's state, at most: a norm of a norm has 17, and a kernel that compiles for minutes."""
NAME = re.compile(r"[A-Za-z_]\w*")


@final
@dataclass(frozen=True)
class Verdict:
    """The engine's word on a pattern: taken in one pass, and not slowly, or the reason why not.

    No kernel takes integers of a tensor in arithmetic: they are indices, or compared.
    """

    is_one_pass: bool
    reason: str = ""
    is_slow: bool = False
    computes_with_integers: bool = False


@final
@dataclass(frozen=True)
class Verdicts:
    """The verdicts on patterns of a program, each asked for once for patterns that are alike.

    Attributes:
        vertices: of the program.
        found, lines, laid: what was asked for before.
    """

    vertices: Vertices
    found: dict[Structure, Verdict] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    laid: dict[Pattern, Laid] = field(default_factory=dict)

    def of(self, pattern: Pattern) -> Verdict:
        """The verdict on a pattern."""
        structure = self.structure(pattern)
        if structure not in self.found:
            self.found[structure] = self.judge(pattern)
        return self.found[structure]

    def judge(self, pattern: Pattern) -> Verdict:
        """The verdict on a pattern, asked anew."""
        try:
            laid = self.lay(pattern)
            parts_read(laid, self.vertices.analysis.types)
            outputs = self.definition(self.vertices.with_views(pattern), laid)
            verdict = analyze(outputs) if outputs else None
        except RedalgError as refused:
            return Verdict(is_one_pass=False, reason=str(refused))
        if verdict is None or isinstance(verdict, Exact):
            reason = self.reason_to_be_slow(pattern, outputs, verdict)
            integers = verdict is not None and self.computes_with_integers(pattern, verdict.fused)
            return Verdict(is_one_pass=True, reason=reason, is_slow=bool(reason), computes_with_integers=integers)
        return Verdict(is_one_pass=False, reason=verdict.explain())

    def reason_to_be_slow(self, pattern: Pattern, outputs: Outputs, verdict: Exact[Fused] | None) -> str:
        """The reason why the kernel of a pattern would be slow, if there is any."""
        narrow = any(map(self.vertices.multiplies_narrow, pattern))
        products = of_kind(Reduce, *output_terms(outputs)) if narrow else ()
        if any(map(multiplies_computed, products)):
            return COMPUTED
        number = 0 if verdict is None else numbers_of_state(verdict.fused)
        return f"a row has a state of {number} numbers, more than {MOST_NUMBERS}" if number > MOST_NUMBERS else ""

    def computes_with_integers(self, pattern: Pattern, fused: Fused) -> bool:
        """Tell if a tensor of integers, or of truths, stands in arithmetic of a pattern."""
        names, types = self.numbers(self.vertices.with_views(pattern)), self.vertices.analysis.types
        in_arithmetic = fused.cascade.value_tensors()
        return any(number in in_arithmetic and not is_float(types[name].dtype) for name, number in names.items())

    def lay(self, pattern: Pattern) -> Laid:
        """The outputs of a pattern, and the views of what they read."""
        if pattern not in self.laid:
            group, analysis = self.vertices.with_views(pattern), self.vertices.analysis
            outputs = compose_outputs(analysis.program, group, self.vertices.outputs_of(pattern))
            self.laid[pattern] = lay_outputs(outputs, analysis.types)
        return self.laid[pattern]

    def definition(self, group: Sequence[str], laid: Laid) -> Outputs:
        """The outputs of a group that read anything, with their axes, under names that depend on the order alone."""
        names, outputs = self.numbers(group), (output for output in laid.outputs if output.reads)
        return {
            f"out_{number}": (self.with_dtype(output, with_names(with_extents(output), names)),
                              " ".join(map(str, output.axes)))
            for number, output in enumerate(outputs)
        }  # fmt: skip

    def with_dtype(self, output: Composed, term: Basic) -> Basic:
        """A term of an output's dtype; one of truth values is 1 or 0."""
        types = self.vertices.analysis.types
        dtype, found = types[output.name].dtype, {types[name].dtype for name in output.reads}
        floats = {name for name in found if is_float(name)}
        return Cast(as_zero_or_one(term), dtype) if is_float(dtype) and floats - {dtype} else as_zero_or_one(term)

    def structure(self, pattern: Pattern) -> Structure:
        """The text on which the verdict on a pattern depends, and the tensors of every line by their numbers."""
        group, leaving = self.vertices.with_views(pattern), {*self.vertices.outputs_of(pattern)}
        numbers, found = self.numbers(group), list[tuple[str, bool, tuple[str, ...]]]()
        for name in group:
            text, tensors = self.line(name)
            found.append((text, name in leaving, tuple(numbers[tensor] for tensor in tensors)))
        return tuple(found)

    def line(self, name: str) -> Line:
        """The text of a statement with its own numbers in the place of names, and the tensors that these stand for."""
        if name not in self.lines:
            expression = self.vertices.known[name]
            tensors = (*expression.reads, name)
            own = {tensor: f"t{number}" for number, tensor in enumerate(tensors)}
            text = NAME.sub(lambda word: own.get(word[0], word[0]), str(expression))
            types = ", ".join(str(self.vertices.analysis.types[read]) for read in expression.reads)
            self.lines[name] = f"{text} of {types}", tensors
        return self.lines[name]

    def numbers(self, group: Sequence[str]) -> dict[str, str]:
        """Names for the tensors of a group that depend on their order alone."""
        tensors = dict.fromkeys(tensor for name in group for tensor in (*self.vertices.known[name].reads, name))
        return {tensor: f"t{number}" for number, tensor in enumerate(tensors)}


def numbers_of_state(fused: Fused) -> int:
    """The numbers of a row that all passes accumulate, before centring: the ranks of the reductions."""
    return sum(one.rank for each in (*fused.earlier, fused.decomposition) for one in each.separations)


def output_terms(outputs: Mapping[str, tuple[Basic, str]]) -> list[Basic]:
    """The terms of outputs."""
    return [term for term, _ in outputs.values()]


def multiplies_computed(reduction: Reduce) -> bool:
    """Tell if a reduction is a product of matrices with a factor that is computed from elements alone."""
    return multiplies(reduction) and any(map(is_factor_of_elements, reduction.expr.args))


def is_factor_of_elements(factor: Basic) -> bool:
    """Tell if a factor is computed from elements, none of which was reduced."""
    inner = factor.args[0] if isinstance(factor, Cast) else factor
    return not isinstance(inner, Element) and bool(elements_of(inner)) and not of_kind(Reduce, inner)


def with_extents(output: Composed) -> Basic:
    """The term of an output with extents of axes in the place of sizes that vary."""
    extents = {size: axis.extent for axis, size in output.sizes.items() if size.is_Symbol}
    return output.term.xreplace(extents) if extents else output.term


def with_names(term: Basic, names: Mapping[str, str]) -> Basic:
    """A term whose tensors have other names."""
    return term.xreplace({
        element: Tensor(names[element.name])[tuple(with_names(index, names) for index in element.indices)]
        for element in elements_of(term)
    })  # fmt: skip


def as_zero_or_one(term: Basic) -> Basic:
    """A term, of a truth value 1 or 0."""
    return where(term, 1, 0) if isinstance(term, Boolean) else term
