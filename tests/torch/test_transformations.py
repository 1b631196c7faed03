"""Each transformation that is switched off changes the plan by what it does, and never what is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from redalg.errors import ExpressionError, PlanError
from redalg.graphs.analysis import analyze_program
from redalg.graphs.candidates import explore
from redalg.graphs.fusion_plan import FusionPlan, plan_fusion
from redalg.graphs.gain import Gain
from redalg.graphs.program import TensorProgram
from redalg.graphs.subprograms import Subprogram, subprograms_of
from redalg.graphs.transformations import ALL, Transformations
from redalg.graphs.vertices import Pattern, vertices_of
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.together.call import run_in_turn
from redalg.runtime.together.lower import MOST_TEXTS, lower_steps
from redalg.runtime.together.steps import is_of_steps, read_steps
from redalg.torch.backend import SWITCHES, GroupPass, read_options
from redalg.torch.subprograms import subprogram_calls
from tests.graphs.test_exploration import check_plan
from tests.sweeps import draws
from tests.torch.test_aten import Called, Decoder, check_gradients, drawn, exported
from tests.torch.test_backend import compiled
from tests.torch.test_subprograms import CARD, TARGET, TOGETHER, Cells, Mixture, Scaled, calls_in

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
HORIZONTAL, VERTICAL, SYNC, REUSE = SWITCHES.values()
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mixture": (Mixture, (1, 20)),
    "cells": (lambda: Cells(2), (3, 1, 8)),
    "decoder": (Decoder, (2, 9, 24)),
}
LONG = {*product(("mixture", "decoder"), ("redalg.vertical_fusion", None)), ("cells", "redalg.vertical_fusion")}
"""Dozens of kernels to compile, of one statement each; the cells have few, and their own without any switch."""


def without(*names: str) -> Transformations:
    """All transformations but some."""
    return replace(ALL, **dict.fromkeys(names, False))


def plan_of(program: TensorProgram, made: Transformations) -> FusionPlan:
    weights = [name for name in program.inputs if name.startswith("p_")]
    vertices = vertices_of(analyze_program(program), weights, transformations=made)
    return plan_fusion(explore(Gain(vertices, CARD)))


def programs_of_mixture(made: Transformations) -> list[Subprogram]:
    imported, _ = exported(Mixture().eval(), (drawn(1, 20),))
    return subprograms_of(imported.program.live(), CARD, made)[1]


def sum_and_largest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.sigmoid()
    return y.sum(-1), y.amax(-1).exp()


def test_one_output_without_reuse() -> None:
    """Two reductions of a row that one kernel loads; or each kernel has one output."""
    imported, arrays = exported(Called(sum_and_largest), (drawn(300, 40),))
    program = imported.program.live()
    [group] = plan_of(program, ALL).groups
    assert len(group.writes) == 2
    plan = plan_of(program, without(REUSE))
    assert plan.groups
    assert all(len(each.writes) == 1 for each in plan.groups)
    check_plan(program, plan, arrays, imported.compute)


def test_a_group_holds_reductions_alone_without_vertical_fusion() -> None:
    imported, arrays = exported(Called(lambda x: (x * 2).amax(-1).sum(-1).exp()), (drawn(7, 30, 40),))
    program = imported.program.live()
    [whole] = plan_of(program, ALL).groups
    assert len(whole.members) > len(whole.reductions)
    plan = plan_of(program, without(VERTICAL))
    assert [each.members for each in plan.groups] == [whole.reductions]
    check_plan(program, plan, arrays, imported.compute)


def test_views_are_read_as_tensors_without_vertical_fusion() -> None:
    imported, arrays = exported(Called(lambda x: x.reshape(7, 4, 10, 30).amax(1).amin(-1)), (drawn(28, 300),))
    program = imported.program.live()
    [whole], [stored] = (plan_of(program, made).groups for made in (ALL, without(VERTICAL)))
    assert whole.members == stored.members == stored.names
    assert len(whole.names) == len(stored.names) + 1
    assert whole.reads != stored.reads
    check_plan(program, FusionPlan((stored,)), arrays, imported.compute)


def test_what_leaves_a_subprogram_is_written_as_it_is_stored() -> None:
    """Nothing reads the channels before they are last."""
    torch.manual_seed(0)
    model, given_ = nn.Sequential(Scaled(), Called(lambda x: x.permute(0, 2, 3, 1).contiguous())), drawn(1, 12, 6, 5)
    [call], arrays = calls_in(model, given_)
    [found] = run_in_turn(read_steps(call.text), [arrays[name] for name in call.reads])
    assert found.stride() == model(given_).stride()
    torch.testing.assert_close(found, model(given_), rtol=1e-5, atol=1e-6)


def test_a_subprogram_saves_launches_beside_groups() -> None:
    """Where a group holds all that it does, there is one launch without it."""
    imported, _ = exported(Mixture().eval(), (drawn(1, 20),))
    program = imported.program.live()
    [whole] = subprograms_of(program, CARD)[1]
    assert not subprograms_of(program, CARD, groups=lambda: [Pattern(whole.members)])[1]
    [cheaper] = subprograms_of(program, CARD, groups=lambda: [Pattern(whole.parts[-1].members)])[1]
    assert 0 < cheaper.gain_us <= whole.gain_us


def test_levels_are_launches_without_grid_synchronisation() -> None:
    [whole] = programs_of_mixture(ALL)
    found = programs_of_mixture(without(SYNC))
    assert len(found) > 1 == len({*whole.levels()}) - max(whole.levels())
    members = [name for each in found for name in each.members]
    assert len({*members}) == len(members)
    assert {*members} <= {*whole.members}
    for each in found:
        assert {*each.levels()} == {0}
        assert len(each.parts) > 1
        assert each.gain_us > 0


def test_parts_wait_for_each_other_without_horizontal_fusion() -> None:
    [whole], [turns] = programs_of_mixture(ALL), programs_of_mixture(without(HORIZONTAL))
    assert turns.parts == whole.parts
    assert turns.levels() == [*range(len(turns.parts))] != whole.levels()
    assert turns.gain_us < whole.gain_us
    assert programs_of_mixture(without(HORIZONTAL, SYNC)) == []


def test_parts_of_one_vertex_without_vertical_fusion() -> None:
    found = programs_of_mixture(without(VERTICAL))
    assert found
    assert all(part.names == part.members and len(part.members) == 1 for each in found for part in each.parts)
    assert any(len(part.members) > 1 for each in programs_of_mixture(ALL) for part in each.parts)


def test_a_part_has_one_output_without_reuse() -> None:
    """A cell hands on its memory and its state, which is computed of the memory."""
    imported, _ = exported(Cells(2).eval(), (drawn(3, 1, 8),))
    outputs = {made: [len(part.writes) for each in subprograms_of(imported.program.live(), CARD, made)[1]
                      for part in each.parts] for made in (ALL, without(REUSE))}  # fmt: skip
    assert max(outputs[ALL]) > 1 == max(outputs[without(REUSE)])


@pytest.mark.parametrize("names", [(HORIZONTAL,), (VERTICAL,), (SYNC,), (REUSE,), (HORIZONTAL, VERTICAL, REUSE)])
def test_launches_compute_the_steps(names: tuple[str, ...]) -> None:
    """The program of each launch in NumPy beside function after function."""
    torch.manual_seed(0)
    imported, arrays = exported(Mixture().eval(), (drawn(1, 20),))
    program = imported.program.live()
    known = {**arrays, **values_of(program, arrays, imported.compute)}
    calls = subprogram_calls(program, CARD, without(*names))[1]
    assert calls
    for call in calls:
        steps, tensors = read_steps(call.text), [known[name] for name in call.reads]
        lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
        together = lowered.source.program.together
        assert together is not None
        if HORIZONTAL in names:
            assert {*together.levels} == {1}
            assert together.rounds is None
        if SYNC in names:
            assert "T.sync_grid" not in lowered.source.text
        given_ = {key: each.numpy() for key, each in zip(steps.inputs, tensors, strict=True)}
        found = interpret(lowered.source.program, given_)
        for (key, shape, _), wanted in zip(steps.outputs, run_in_turn(steps, tensors), strict=True):
            np.testing.assert_allclose(found[key].reshape(shape), wanted.numpy(), rtol=1e-5, atol=1e-6)


def values_of(program: TensorProgram, arrays: dict[str, Any], compute: Any) -> dict[str, Any]:
    """Every tensor of a program."""
    from redalg.graphs.interpret import interpret_program

    names = tuple(name for statement in program.statements for name in statement.results)
    made = interpret_program(replace(program, outputs=names), arrays, compute)
    return {name: torch.as_tensor(array) for name, array in made.items()}


def test_steps_in_turn_say_so() -> None:
    imported, _ = exported(Mixture().eval(), (drawn(1, 20),))
    [call], [turns] = (subprogram_calls(imported.program.live(), CARD, made)[1] for made in (ALL, without(HORIZONTAL)))
    assert read_steps(turns.text).text == turns.text != call.text  # so that decisions on them are apart
    assert "in_turn" not in call.text
    assert replace(read_steps(turns.text), in_turn=False).text == call.text
    with pytest.raises(ExpressionError, match="this version of redalg reads"):
        read_steps(turns.text.replace("'in_turn':true", "'in_turns':true"))


def test_long_subprograms_need_horizontal_fusion() -> None:
    """More parts than texts that a launch may have."""
    imported, _ = exported(Cells(2).eval(), (drawn(22, 1, 8),))
    program = imported.program.live()
    [subprogram] = subprograms_of(program, CARD, without(HORIZONTAL))[1]
    assert len(subprogram.parts) > MOST_TEXTS
    assert len(subprogram_calls(program, CARD)[1]) == 1
    assert not subprogram_calls(program, CARD, without(HORIZONTAL))[1]


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("name", "option"),
    [
        pytest.param(name, option, marks=[pytest.mark.slow] * ((name, option) in LONG))
        for name, option in product(MODELS, [*SWITCHES, None])
    ],
)
def test_models_are_computed_without_each(name: str, option: str | None) -> None:
    """`None`: without any of them."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().eval(), drawn(*shape)
    options = {**TOGETHER, **dict.fromkeys([option] if option else SWITCHES, False)}
    with torch.no_grad():
        found, [report] = compiled(model, x, options=options)
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-6)
    assert not report.failure
    assert all(group.decision.is_put for group in report.groups)
    if option != "redalg.vertical_fusion":  # views part the statements of the decoder
        assert any(is_of_steps(group.call) for group in report.groups) == (option is not None)


@pytest.mark.slow
def test_gradients_without_each() -> None:
    """Groups that are put before the backward is derived know the switches too."""
    torch.manual_seed(0)
    model, x = Decoder(), drawn(2, 9, 24)
    counts = dict[str, int]()
    for option in ("", "redalg.vertical_fusion"):
        torch._dynamo.reset()
        found, reports = compiled(model, x, options={"redalg.gate": "predicted", **({option: False} if option else {})})
        check_gradients(model, x, found, 1e-5)
        counts[option] = sum(len(report.groups) for report in reports)
    assert counts[""] > counts["redalg.vertical_fusion"]


@settings(max_examples=draws(8), suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sets(st.sampled_from([*SWITCHES.values()])), st.sampled_from((0, 1, 5)), st.sampled_from((1, 7)))
def test_drawn_plans_compute_the_program(names: set[str], rows: int, width: int) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = nn.functional.layer_norm(x, (width,))
        return y, (y @ w).softmax(-1), y.amax(-1).exp()

    imported, arrays = exported(Called(function), (drawn(rows, width), drawn(width, 3)))
    program = imported.program.live()
    check_plan(program, plan_of(program, without(*names)), arrays, imported.compute)


# ---- options ---------------------------------------------------------------------------------------------------------


def test_all_are_made_by_default() -> None:
    assert read_options(None, None).transformations == Transformations() == ALL
    for option, name in SWITCHES.items():
        assert read_options(None, {option: True}).transformations == ALL
        assert read_options(None, {option: False}).transformations == without(name)


@pytest.mark.parametrize("given_", [1, 0, None, "off"])
def test_a_switch_is_a_truth_value(given_: Any) -> None:
    with pytest.raises(PlanError, match=r"'redalg.grid_sync': .*should be True or False.*Write False to switch it off"):
        read_options(None, {"redalg.grid_sync": given_})


def test_an_option_that_redalg_lacks_is_refused() -> None:
    with pytest.raises(PlanError, match=r"'redalg.horizontal': …}: redalg has no such option. .*'redalg.data_reuse'"):
        read_options(None, {"redalg.horizontal": False})


def test_the_key_of_the_cache_holds_the_switches() -> None:
    keys = {GroupPass("measured", transformations=without(*names)).uuid()
            for names in [(), *([name] for name in SWITCHES.values())]}  # fmt: skip
    assert len(keys) == 1 + len(SWITCHES)
    assert GroupPass("measured").uuid() in keys
