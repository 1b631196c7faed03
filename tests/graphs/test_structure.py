"""Structures: patterns of one structure have one function, and whatever differs has another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Float, cos, exp, sin
from sympy.core.basic import Basic

from redalg.errors import GraphError
from redalg.expression import Axis
from redalg.expression.tensor import Tensor
from redalg.graphs.analysis import analyze_program
from redalg.graphs.candidates import explore
from redalg.graphs.gain import Gain
from redalg.graphs.program import TensorExpression, TensorProgram
from redalg.graphs.structure import line_of
from redalg.graphs.subprograms import Partition
from redalg.graphs.transformations import Transformations
from redalg.graphs.verdicts import Numbered, Verdict, Verdicts
from redalg.graphs.vertices import Pattern, vertices_of
from tests.graphs.test_exploration import CARD, STEPS, program_of, renamed_program
from tests.graphs.test_program import typed
from tests.sweeps import draws

I0, I1 = Axis("i0"), Axis("i1")
X = Tensor("x")[I0, I1]


def text_of_term(term: Basic, name: str = "out") -> str:
    """The text of a statement of a term, without names."""
    matrix = typed(3, 4)
    return line_of(TensorExpression(name, matrix, (I0, I1), term), dict.fromkeys("xyz", matrix))[0]


def test_a_function_is_none_of_the_names() -> None:
    """A graph's tensors bear the names of their operators: `sin = sin(x)`."""
    assert text_of_term(sin(X), "sin") != text_of_term(cos(X), "cos")


def test_names_are_no_part_of_a_line() -> None:
    y, z = (Tensor(name)[I0, I1] for name in "yz")
    assert text_of_term(X - y) == text_of_term(y - z)
    assert text_of_term(X - exp(y)) == text_of_term(z - exp(X), "other")
    assert text_of_term(X - y) != text_of_term(X + y)
    assert text_of_term(X * X) != text_of_term(X * y)
    assert text_of_term(X) != text_of_term(Tensor("x")[I1, I0])


def test_numbers_count_to_their_last_digit() -> None:
    assert text_of_term(X * Float(0.1)) != text_of_term(X * Float(0.1 + 1e-16))


def test_tensors_that_leave_are_part_of_a_structure() -> None:
    steps = [("exp", 0, 0), ("sum", 2, 2), ("exp", 1, 1), ("sum", 4, 4)]
    verdicts = Verdicts(vertices_of(analyze_program(program_of(steps, [1, 3]))))
    assert verdicts.structure(Pattern({"s0", "s1"})) == verdicts.structure(Pattern({"s2", "s3"}))
    verdicts = Verdicts(vertices_of(analyze_program(program_of(steps, [1, 3, 2]))))
    assert verdicts.structure(Pattern({"s0", "s1"})) != verdicts.structure(Pattern({"s2", "s3"}))


def lay_anew(verdicts: Verdicts, pattern: Pattern) -> Numbered | str:
    """The outputs of a pattern, found without what was found for others; or the reason why there are none."""
    try:
        return Verdicts(verdicts.vertices).lay(pattern)
    except GraphError as refused:
        return str(refused)


def word(verdict: Verdict) -> tuple[bool, bool, bool]:
    """A verdict without its reason, which names tensors."""
    return verdict.is_one_pass, verdict.is_slow, verdict.computes_with_integers


@given(
    st.lists(STEPS, min_size=2, max_size=9),
    st.lists(st.integers(0, 30), min_size=1, max_size=2),
    st.builds(Transformations, *(4 * [st.booleans()])),
)
@settings(max_examples=draws(60), suppress_health_check=[HealthCheck.too_slow])
def test_what_is_found_for_a_structure_is_found_for_each_of_its_patterns(
    steps: Sequence[tuple[str, int, int]], outputs: Sequence[int], made: Transformations
) -> None:
    program = program_of([*steps, *steps], outputs).live()
    gain = Gain(vertices_of(analyze_program(program), transformations=made), CARD)
    candidates = explore(gain)
    partition = Partition(gain, candidates.verdicts)
    for pattern in candidates.gains:
        try:
            found: Numbered | str = candidates.verdicts.lay(pattern)
        except GraphError as refused:
            found = str(refused)
        anew = Verdicts(gain.vertices)
        assert found == lay_anew(candidates.verdicts, pattern)
        assert word(candidates.verdicts.of(pattern)) == word(anew.of(pattern))
        assert partition.operations(pattern) == Partition(gain, anew).operations_anew(pattern)
        if isinstance(found, Numbered) and len({output.axes for output in found.laid.outputs}) == 1:
            assert len({*map(gain.elements, gain.vertices.outputs_of(pattern))}) == 1  # what `count_anew` relies on


@pytest.mark.parametrize("order", ["xn", "nx"])
def test_dtypes_are_part_of_a_structure(order: str) -> None:
    """Statements that are alike but for what they read: no kernel computes with integers of a tensor."""
    types = {"x": typed(3, 4), "n": typed(3, 4, dtype="int32")}
    made = [TensorExpression(f"of_{name}", typed(3, 4), (I0, I1), 2 * Tensor(name)[I0, I1]) for name in order]
    verdicts = Verdicts(vertices_of(analyze_program(TensorProgram(types, tuple(made), ("of_x", "of_n")))))
    words = {name: verdicts.of(Pattern({f"of_{name}"})) for name in order}
    assert all(each.is_one_pass for each in words.values())
    assert {name: each.is_group for name, each in words.items()} == {"x": True, "n": False}
    assert "integers" in words["n"].reason


@given(st.lists(STEPS, min_size=1, max_size=9), st.permutations(range(12)))
@settings(max_examples=draws(60))
def test_other_names_make_no_other_structures(steps: Sequence[tuple[str, int, int]], order: Sequence[int]) -> None:
    program = program_of(steps, [len(steps) - 1])
    names = {name: f"n{order[place]}" for place, name in enumerate(program.types)}
    plain = program.types.keys() - {one.name for one in program.expressions() if len(one.reads) > 1}
    other = renamed_program(program, names)
    for name in plain & program.definitions.keys():  # of sums SymPy orders the terms by names
        texts = (line_of(each.definitions[own], each.types)[0] for each, own in ((program, name), (other, names[name])))
        assert len({*texts}) == 1
