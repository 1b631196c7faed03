"""Lines of a program in buffers: what needs no buffer, the order of stores, and numbers that buffers leave out."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Expr, Max, S, sqrt

from redalg.expression import Label, Value, Where
from redalg.incremental.combine.let import Assign, Program
from redalg.lower_tile.ir.program import Parallel, Statement
from redalg.lower_tile.ir.scalars import Is, IsFinite, Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.expressions import is_finite_always, positive_factor, with_tests, without_needless_tests
from redalg.lower_tile.place.lines import Placer
from redalg.lower_tile.place.space import I
from tests.cases.kernels import fused, problem

A, B, C, D = (Value(Label(name)) for name in "abcd")


def placed(program: Program, **reads: Expr) -> list[tuple[str, Expr]]:
    """The stores of a program whose values lie in buffers of rows."""
    import torch

    from redalg.lower_tile.ir.names import Names
    from redalg.lower_tile.place.frames import Job, frame
    from redalg.strategies.schedule import numbers_of

    form = fused("variance")
    options: dict[str, Any] = problem(form, {"x": torch.zeros(4, 8)})
    lowered = form.lower("c", **options)
    plan = numbers_of(lowered.plan)
    job = Job(form.form, plan, lowered.problem, {})
    names = Names(())
    assembly = Assembly(plan, names, "float32")
    values = {Value(Label(name)): read for name, read in reads.items()}
    for load in {load for read in reads.values() for load in read.atoms(Load)}:
        assembly.buffer(load.name, "fragment", (plan.block_row,))
    slots = {value: read for value, read in values.items() if value in program.results}
    body: list[Statement] = Placer(program, assembly, frame(job, names, segmented=False).space, values).build(slots)
    return [(store.target, store.expr) for loop in body if isinstance(loop, Parallel) for store in loop.body]


def test_slots_that_change_places_go_through_a_buffer() -> None:
    program = Program("swap", (A, B), (Assign(C, B + 1), Assign(D, A + 1)), {A: C, B: D})
    a, b = Load("x_a", I), Load("x_b", I)
    assert placed(program, a=a, b=b) == [("x_a_next", b + 1), ("x_b", a + 1), ("x_a", Load("x_a_next", I))]


def test_a_line_that_is_read_once_has_no_buffer_and_a_choice_has() -> None:
    program = Program("choice", (A, B), (Assign(C, Where(Eq(B, -S.Infinity, evaluate=False), 0, B)),
                                         Assign(D, A + C)), {A: D})  # fmt: skip
    a, b = Load("x_a", I), Load("x_b", I)
    assert placed(program, a=a, b=b) == [("c", Where(Is(b, -S.Infinity), 0, b)), ("x_a", a + Load("c", I))]


def test_a_number_that_both_maxima_share_stays_out_of_the_buffer() -> None:
    scale = 1 / sqrt(2)
    program = Program("max", (A, B), (Assign(C, Max(A, B)),), {A: C})
    a, b = Load("x_a", I), Load("x_b", I)
    assert placed(program, a=scale * a, b=scale * b) == [("x_a", Max(a, b))]


def test_a_positive_number_comes_out_of_a_choice() -> None:
    a = Load("x_a", I)
    assert positive_factor(3 * a) == (3, a)
    assert positive_factor(-3 * a) == (1, -3 * a)
    assert positive_factor(Where(Is(3 * a, -S.Infinity), 0, 3 * a)) == (3, Where(Is(a, -S.Infinity), 0, a))


def test_conditions_on_infinity_are_tests_that_sympy_does_not_decide() -> None:
    assert with_tests(Eq(A, -S.Infinity, evaluate=False)) == Is(A, -S.Infinity)


def test_a_number_that_a_test_chose_is_not_tested_again() -> None:
    a, b, c = (Load(name, I) for name in "abc")
    stored = {b: Where(IsFinite(a), a, S.Zero), c: Where(IsFinite(a), a, b)}
    assert without_needless_tests(Where(Is(c, S.NegativeInfinity), S.Zero, c), stored) == c
    guarded = Where(Is(a, S.NegativeInfinity), S.Zero, a)
    assert without_needless_tests(guarded, stored) == guarded
    assert not is_finite_always(c, {c: Where(IsFinite(a), b, S.Zero)})
    assert not is_finite_always(c, {c: Where(IsFinite(a), a, S.Infinity)})
