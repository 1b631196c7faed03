"""Groups of a program: legal by definition, found without names, and their run is the program's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor.inductor_prims  # it registers the operators of Inductor's graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Integer, exp
from sympy.core.basic import Basic

import redalg as ra
from redalg.errors import GraphError
from redalg.expression import Axis
from redalg.expression.tensor import Tensor
from redalg.graphs.analysis import Kind, analyze_program
from redalg.graphs.candidates import MOST_MEMBERS, Candidates, explore, is_legal, with_doubts, with_single_uses
from redalg.graphs.compose import compose_outputs
from redalg.graphs.fusion_plan import FusionPlan, plan_fusion, without_cycles
from redalg.graphs.gain import LAUNCH_US, Gain
from redalg.graphs.interpret import interpret_program
from redalg.graphs.lay import lay_outputs
from redalg.graphs.program import External, Shape, Statement, TensorExpression, TensorProgram, TensorType
from redalg.graphs.verdicts import Verdicts, with_names
from redalg.graphs.vertices import Pattern, Vertices, vertices_of
from redalg.strategies.device import device_for
from redalg.torch.aten import Imported
from tests.graphs.test_program import LENGTH, PROGRAM, typed
from tests.sweeps import draws
from tests.torch.test_aten import Called, Decoder, Vision, drawn, exported, rotated

pytestmark = pytest.mark.filterwarnings("ignore")
I0, I1, R0 = (Axis(name) for name in ("i0", "i1", "r0"))
CARD = device_for("sm_90a")


def found_in(program: TensorProgram, **hints: int) -> tuple[Candidates, FusionPlan]:
    """Candidates and the plan, with the parameters of a module as weights."""
    weights = [name for name in program.inputs if name.startswith("p_")]
    gain = Gain(vertices_of(analyze_program(program), weights), CARD, {LENGTH: 8} if hints else {})
    candidates = explore(gain)
    return candidates, plan_fusion(candidates)


@cache
def decoder() -> tuple[Imported, dict[str, Any], Candidates, FusionPlan]:
    """A decoder's program, its arrays, and what is found in it."""
    torch.manual_seed(0)
    imported, arrays = exported(Decoder().eval(), (drawn(2, 9, 24),))
    imported = replace(imported, program=imported.program.live())
    return imported, arrays, *found_in(imported.program)


def run_plan(program: TensorProgram, plan: FusionPlan, arrays: Mapping[str, Any], compute: Any) -> dict[str, Any]:
    """The outputs, by units of a group each, or a statement: each as soon as what it reads is there."""
    types, known = program.types, dict(arrays)
    grouped = {name for group in plan.groups for name in group.names}
    units = list[tuple[tuple[str, ...], Sequence[Statement], Mapping[str, Shape]]]()
    for group in plan.groups:
        laid = lay_outputs(compose_outputs(program, group.names, group.writes), types)
        composed = [one.expression(types[one.name].dtype) for one in laid.outputs]
        units.append((group.writes, composed, laid.views))
    inside = {name for name in grouped if name not in {write for group in plan.groups for write in group.writes}}
    for statement in program.statements:
        is_view = analyze_program(program).kinds[next(iter(statement.results))].is_of_readers
        if is_view or (not inside & {*statement.results} and not grouped & {*statement.results}):
            units.append((tuple(statement.results), [statement], {}))
    waiting = [unit for unit in units if not {*unit[0]} <= {*known}]
    while waiting:
        ready = [unit for unit in waiting if all(name in known for one in unit[1] for name in one.reads)]
        if not ready:
            break
        for names, statements, views in ready:
            reads = {name: known[name] for one in statements for name in one.reads}
            reads |= {name: reads[name].reshape([int(size) for size in shape]) for name, shape in views.items()}
            own = TensorProgram({name: type_of(array, types[name]) for name, array in reads.items()},
                                tuple(statements), names)  # fmt: skip
            made = interpret_program(own, reads, compute)
            known |= {
                name: torch.as_tensor(array).reshape([int(size) for size in types[name].shape])
                for name, array in made.items()
            }
        waiting = [unit for unit in waiting if not {*unit[0]} <= {*known}]
    return {name: known[name] for name in program.outputs}


def type_of(array: Any, each: TensorType) -> TensorType:
    return replace(each, shape=tuple(map(Integer, array.shape)))


def check_plan(program: TensorProgram, plan: FusionPlan, arrays: Mapping[str, Any], compute: Any) -> None:
    """The plan's run gives the program's outputs, and groups are disjoint."""
    members = [name for group in plan.groups for name in (*group.reductions, *group.writes)]
    owners = {name: {number for number, group in enumerate(plan.groups) if name in group.writes} for name in members}
    assert all(len(numbers) <= 1 for numbers in owners.values())
    got, wanted = run_plan(program, plan, arrays, compute), interpret_program(program, arrays, compute)
    for name, array in wanted.items():
        np.testing.assert_allclose(np.asarray(got[name]), np.asarray(array), rtol=2e-5, atol=2e-5)


def vision() -> tuple[Imported, dict[str, Any], Candidates, FusionPlan]:
    """As `decoder`, of a layer of an encoder of pictures."""
    imported, arrays = exported(Vision().eval(), (drawn(2, 3, 8, 8),))
    imported = replace(imported, program=imported.program.live())
    return imported, arrays, *found_in(imported.program)


@pytest.mark.parametrize("model", [decoder, vision])
def test_a_models_groups_compute_the_model(
    model: Callable[[], tuple[Imported, dict[str, Any], Candidates, FusionPlan]],
) -> None:
    imported, arrays, candidates, plan = model()
    check_plan(imported.program, plan, arrays, imported.compute)
    kinds = candidates.vertices.analysis.kinds
    counts = [sum(kinds[name] is Kind.CONTRACTION for name in group.names) for group in plan.groups]
    assert sorted(counts) == [0, 0, 2]  # two norms, and weights of scores between two products
    inside = {name for group in plan.groups for name in group.reductions}
    assert {name for name in candidates.vertices.names if kinds[name] is Kind.REDUCTION} <= inside


def prepared_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention as Inductor has it on a GPU: the maximum and the sum by one operator."""
    scores = torch.bmm(q, k.mT) / 4 + 1
    largest, total = torch.ops.prims.prepare_softmax_online(scores, -1)
    return torch.bmm((scores - largest).exp() / total, v)


def test_two_products_are_found_through_a_softmax_that_inductor_prepares() -> None:
    imported, arrays = exported(Called(prepared_attention), tuple(drawn(2, length, 16) for length in (9, 12, 12)))
    _, plan = found_in(imported.program)
    check_plan(imported.program, plan, arrays, imported.compute)
    [attended] = plan.groups
    assert len(attended.reductions) == 4
    assert len(attended.writes) == 1


def test_two_products_are_found_through_all_that_lies_between() -> None:
    imported, _, _, plan = decoder()
    [attended] = [group for group in plan.groups if len(group.reductions) == 3]
    assert attended.reads == ("mm", "mm_1", "mm_2")
    [written] = attended.writes
    [product] = imported.program.readers()[written]
    assert isinstance(product, TensorExpression)
    assert product.origin.startswith("mm")  # no turned copy is made between the two
    assert "predicted to save" in str(plan)


def test_names_do_not_matter() -> None:
    imported, _, _, plan = decoder()
    program = imported.program
    names = {name: f"q{number}" for number, name in enumerate(program.types) if not name.startswith("p_")}
    other = renamed_program(program, names)
    assert [[names.get(name, name) for name in group.names] for group in plan.groups] == [
        [*group.names] for group in found_in(other)[1].groups
    ]


def renamed_program(program: TensorProgram, names: Mapping[str, str]) -> TensorProgram:
    """A program of other names, which refers to nothing of PyTorch's."""

    def new(name: str) -> str:
        return names.get(name, name)

    statements = list[Statement]()
    for statement in program.statements:
        if isinstance(statement, TensorExpression):
            term = with_names(statement.term, {name: new(name) for name in statement.reads})
            statements.append(replace(statement, name=new(statement.name), term=term))
        else:
            statements.append(replace(statement, names=tuple(map(new, statement.names)),
                                      reads=tuple(map(new, statement.reads))))  # fmt: skip
    return TensorProgram({new(name): each for name, each in program.inputs.items()}, tuple(statements),
                         tuple(map(new, program.outputs)))  # fmt: skip


# ---- programs of any graph -------------------------------------------------------------------------------------------

ROWS, COLUMNS = 3, 4
STEPS = st.tuples(
    st.sampled_from(["exp", "add", "scaled", "sum", "max", "turned", "outside"]), st.integers(0, 30), st.integers(0, 30)
)


def term_of(kind: str, a: Tensor, b: Tensor) -> Basic:
    """The element of a step's matrix."""
    here = a[I0, I1]
    return {
        "exp": lambda: exp(here / 8),
        "add": lambda: here + b[I0, I1],
        "scaled": lambda: here / (1 + b[I0, I1] ** 2),
        "sum": lambda: here - ra.sum(b[I0, R0], R0) / 4,
        "max": lambda: here - ra.max(b[I0, R0], R0),
        "turned": lambda: a[I0, COLUMNS - 1 - I1],
    }[kind]()


def program_of(steps: Sequence[tuple[str, int, int]], outputs: Collection[int]) -> TensorProgram:
    """A program of matrices, each step of which reads one or two that are there."""
    names, statements, matrix = ["x", "y"], list[Statement](), typed(ROWS, COLUMNS)
    for number, (kind, *places) in enumerate(steps):
        name, (first, second) = f"s{number}", (names[place % len(names)] for place in places)
        lengths = ((R0, Integer(COLUMNS)),) if kind in ("sum", "max") else ()
        statements.append(
            External((name,), (matrix,), (first,), "tanh", "a test") if kind == "outside" else
            TensorExpression(name, matrix, (I0, I1), term_of(kind, Tensor(first), Tensor(second)), lengths)
        )  # fmt: skip
        names.append(name)
    made = [name for name in names if name not in "xy"]
    chosen = tuple(dict.fromkeys(made[place % len(made)] for place in outputs))
    return TensorProgram({"x": matrix, "y": matrix}, tuple(statements), chosen)


def paths_between(vertices: Vertices, pattern: Pattern) -> set[str]:
    """The statements on paths between members of a pattern, by walking every edge."""
    program = vertices.analysis.program
    readers = {name: {each for one in found for each in one.results} for name, found in program.readers().items()}

    def after(start: str) -> set[str]:
        found, waiting = set[str](), [start]
        while waiting:
            fresh = readers[waiting.pop()] - found
            found |= fresh
            waiting += fresh
        return found

    behind = set[str]().union(*(after(name) for name in pattern))
    return {name for name in behind if after(name) & pattern}


@given(st.lists(STEPS, min_size=1, max_size=9), st.lists(st.integers(0, 30), min_size=1, max_size=2))
@settings(max_examples=draws(60), suppress_health_check=[HealthCheck.too_slow])
def test_any_programs_groups_compute_the_program(steps: list[tuple[str, int, int]], outputs: list[int]) -> None:
    program = program_of(steps, outputs).live()
    candidates, plan = found_in(program)
    vertices = candidates.vertices
    for vertex, patterns in candidates.of_vertex.items():
        for pattern in patterns:
            assert vertex in pattern
            assert len(pattern) <= MOST_MEMBERS
            outside = {name for name in paths_between(vertices, pattern) - pattern
                       if not vertices.analysis.kinds[name].is_of_readers}  # fmt: skip
            assert not outside
            assert with_single_uses(vertices, pattern) == pattern or len(pattern) == 1
    generator = np.random.default_rng(0)
    arrays = {name: torch.from_numpy(generator.normal(size=(ROWS, COLUMNS))).float() for name in program.inputs}
    check_plan(program, plan, arrays, lambda _, given: [given[0].tanh()])


@given(st.lists(STEPS, min_size=2, max_size=9), st.sets(st.integers(0, 8), min_size=1, max_size=4))
@settings(max_examples=draws(100))
def test_a_pattern_is_convex_if_no_path_leaves_it_and_comes_back(
    steps: list[tuple[str, int, int]], chosen: set[int]
) -> None:
    vertices = vertices_of(analyze_program(program_of(steps, [len(steps) - 1])))
    pattern = Pattern(vertices.names[place % len(vertices.names)] for place in chosen) if vertices.names else Pattern()
    if pattern:
        between = {name for name in paths_between(vertices, pattern) - pattern
                   if not vertices.analysis.kinds[name].is_of_readers}  # fmt: skip
        assert vertices.is_convex(pattern) == (not between)


# ---- single rules ----------------------------------------------------------------------------------------------------


def test_layers_that_are_alike_are_judged_once() -> None:
    counts = []
    for layers in (2, 6):
        steps = [step for layer in range(layers) for last in (1 + 4 * layer,)
                 for step in (("exp", last, 0), ("sum", last + 1, last + 1), ("max", last + 2, last + 2),
                              ("outside", last + 3, 0))]  # fmt: skip
        candidates, plan = found_in(program_of(steps, [len(steps) - 1]))
        counts.append(len(candidates.verdicts.found))
        assert len(plan.groups) == layers
    assert counts[0] == counts[1] > 0


def test_patterns_are_taken_on_trust_until_the_engine_refuses_one() -> None:
    """In a decoder none is refused: its plan is that of an exploration with doubts about all, for fewer questions."""
    *_, candidates, plan = decoder()
    start = Candidates(candidates.gain, Verdicts(candidates.vertices), {}, {})
    doubtful = with_doubts(start, candidates.vertices.inside)
    assert not candidates.doubted
    assert plan_fusion(doubtful) == plan
    assert 3 * len(candidates.verdicts.found) < 2 * len(doubtful.verdicts.found)
    for patterns in doubtful.of_vertex.values():
        assert all(is_legal(doubtful.verdicts, pattern) for pattern in patterns)


def test_a_plan_has_only_patterns_that_the_engine_takes() -> None:
    """A mean of distances from a mean is not one pass: a part of it becomes a group, and the rest is doubted."""
    here = Tensor("x")[I0, I1]
    spread = ra.sum(abs(Tensor("x")[I0, R0] - Tensor("m")[I0]), R0)
    lengths = ((R0, Integer(COLUMNS)),)
    program = TensorProgram(
        {"x": typed(ROWS, COLUMNS)},
        (TensorExpression("m", typed(ROWS), (I0,), ra.sum(Tensor("x")[I0, R0], R0) / COLUMNS, lengths),
         TensorExpression("t", typed(ROWS), (I0,), spread, lengths),
         TensorExpression("y", typed(ROWS, COLUMNS), (I0, I1), here / Tensor("t")[I0], ())),
        ("y",),
    )  # fmt: skip
    candidates, plan = found_in(program)
    assert candidates.doubted == {"m"}
    assert [group.members for group in plan.groups] == [("t", "y")]
    assert all(candidates.verdicts.of(Pattern(group.members)).is_group for group in plan.groups)


def test_of_two_patterns_that_wait_for_each_other_the_cheaper_goes() -> None:
    steps = [("exp", 0, 0), ("exp", 1, 1), ("exp", 2, 2), ("exp", 3, 3)]
    program = program_of(steps, [2, 3])
    crossed = replace(program, statements=(*program.statements[:2], *(
        replace(one, term=exp(Tensor(read)[I0, I1]))
        for one, read in zip(program.expressions(), ("", "", "s1", "s0"), strict=True) if read)))  # fmt: skip
    vertices = vertices_of(analyze_program(crossed))
    first, second = Pattern({"s0", "s2"}), Pattern({"s1", "s3"})  # s1 feeds s2, and s0 feeds s3
    assert vertices.is_convex(first)
    assert vertices.is_convex(second)
    for gains in ({first: 2.0, second: 1.0}, {first: 1.0, second: 2.0}):
        assert without_cycles(vertices, [first, second], gains) == [max(gains, key=gains.__getitem__)]


def test_products_with_weights_are_left_to_libraries() -> None:
    program = decoder()[0].program
    analysis = analyze_program(program)
    weights = [name for name in program.inputs if name.startswith("p_")]
    products = [name for name, kind in analysis.kinds.items() if kind is Kind.CONTRACTION]
    of_data = [name for name in vertices_of(analysis, weights).names if name in products]
    assert (len(products), len(of_data)) == (9, 2)
    assert {*products} <= {*vertices_of(analysis).names}


def test_the_gain_counts_launches_and_bytes() -> None:
    program = program_of([("exp", 0, 0), ("add", 2, 1)], [1])
    gain = Gain(vertices_of(analyze_program(program)), CARD)
    matrix = 4 * ROWS * COLUMNS / gain.bytes_a_us
    assert gain.of(Pattern({"s0", "s1"})) == pytest.approx(LAUNCH_US + 2 * matrix)
    assert gain.of(Pattern({"s0"})) == pytest.approx(0)


def test_sizes_that_vary_need_a_length() -> None:
    vertices = vertices_of(analyze_program(PROGRAM))
    with pytest.raises(GraphError, match=re.escape("no length is given for s0") + ".*hints"):
        Gain(vertices, CARD).of(Pattern({"y"}))
    assert Gain(vertices, CARD, {LENGTH: 8}).of(Pattern({"y"})) == pytest.approx(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_turned_factors_stay_outside_of_products_in_16_bits(dtype: torch.dtype) -> None:
    """No tensor core multiplies what is computed from elements, and whoever turns queries and keys stays outside."""

    def turned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = (rotated(one).to(one.dtype) for one in (q, k))
        return (q @ k.mT / 4).softmax(-1) @ v

    imported, _ = exported(Called(turned), tuple(drawn(2, length, 16).to(dtype) for length in (9, 12, 12)))
    candidates, plan = found_in(imported.program.live())
    [attended] = plan.groups
    kinds = candidates.vertices.analysis.kinds
    assert sum(kinds[name] is Kind.CONTRACTION for name in attended.names) == 2
    turns = [name for name in attended.members if candidates.vertices.known[name].origin.startswith("cat")]
    assert bool(turns) == (dtype == torch.float32)
    slow = [one for one in candidates.verdicts.found.values() if one.is_slow]
    assert bool(slow) == (dtype == torch.bfloat16)
    assert all("no tensor core" in one.reason for one in slow)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_of_scores_and_what_is_joined_to_them_are_a_group(dtype: torch.dtype) -> None:
    """Of keys that stop before the row's end: in 16 bits no tensor core multiplies them, and they stay outside."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
        scores = torch.cat([q @ k.mT / 4, sink.expand(2, 9, 1)], -1)
        return scores.softmax(-1)[..., :-1] @ v

    given = *(drawn(2, length, 16) for length in (9, 12, 12)), drawn(2, 1, 1)
    imported, arrays = exported(Called(attend), tuple(each.to(dtype) for each in given))
    candidates, plan = found_in(imported.program.live())
    kinds = candidates.vertices.analysis.kinds
    counts = [sum(kinds[name] is Kind.CONTRACTION for name in group.names) for group in plan.groups]
    assert (counts == [2]) == (dtype == torch.float32)
    assert all(candidates.verdicts.of(Pattern(group.members)).is_group for group in plan.groups)
    if dtype == torch.float32:
        check_plan(imported.program.live(), plan, arrays, imported.compute)


def test_a_mask_is_computed_by_each_of_its_readers() -> None:
    """It is no output of the first: two layers read the places alone."""

    def twice(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        places = torch.arange(q.shape[1])
        mask = torch.where(places <= places[:, None], 0.0, -1e9)
        for _ in range(2):
            q = (q @ k.mT + mask).softmax(-1) @ k
        return q

    imported, arrays = exported(Called(twice), (drawn(2, 9, 16), drawn(2, 9, 16)))
    _, plan = found_in(imported.program)
    check_plan(imported.program, plan, arrays, imported.compute)
    assert [(len(group.reads), len(group.writes)) for group in plan.groups] == [(2, 1), (2, 1)]


def test_a_refusal_has_the_engines_reason() -> None:
    a = ra.sum(Tensor("x")[I0, R0], R0) / 4
    spread = ra.sum(abs(Tensor("x")[I0, R0] - Tensor("s")[I0, R0]), R0)
    lengths = ((R0, Integer(COLUMNS)),)
    program = TensorProgram(
        {"x": typed(ROWS, COLUMNS)},
        (TensorExpression("s", typed(ROWS, COLUMNS), (I0, I1), a, lengths),
         TensorExpression("t", typed(ROWS), (I0,), spread, lengths)),
        ("t",),
    )  # fmt: skip
    verdict = Verdicts(vertices_of(analyze_program(program))).of(Pattern({"s", "t"}))
    assert not verdict.is_one_pass
    assert "t0" in verdict.reason
    assert found_in(program)[1].groups == ()


def test_what_nothing_reads_goes() -> None:
    program = program_of([("exp", 0, 0), ("exp", 1, 1), ("outside", 1, 1)], [0])
    assert [next(iter(one.results)) for one in program.live().statements] == ["s0", "s2"]


def test_a_norm_of_a_norm_is_no_group() -> None:
    """One pass makes both, of a state of many numbers: such a kernel compiles for minutes."""

    def normed(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) * (x.var(-1, keepdim=True) + 1e-5).rsqrt()

    weight, bias = drawn(24), drawn(24)
    imported, _ = exported(Called(lambda x: normed(normed(x) * weight + bias)), (drawn(6, 24),))
    candidates, plan = found_in(imported.program.live())
    slow = {one.reason for one in candidates.verdicts.found.values() if one.is_slow}
    assert "a row has a state of 14 numbers, more than 8" in slow
    assert plan.groups
    assert not any(candidates.verdicts.of(Pattern(group.members)).is_slow for group in plan.groups)
