"""Small statements around one another: parts, levels, and one launch that computes what the program says."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import redalg as ra
from redalg.errors import ExpressionError, PlanError
from redalg.explain.listing import Listing
from redalg.graphs.subprograms import subprograms_of
from redalg.graphs.vertices import Pattern
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Parameter
from redalg.lower_tile.ir.runtime_sizes import shape_at, sizes_in
from redalg.lower_tile.text.emit import Source
from redalg.runtime.bind.functions import text_of
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.together import call as launches
from redalg.runtime.together.call import check_residence, kernel_input, run_in_turn
from redalg.runtime.together.lower import lower_steps
from redalg.runtime.together.steps import FunctionStep, Steps, is_of_steps, read_steps
from redalg.strategies.device import device_for
from redalg.torch.backend import read_options
from redalg.torch.records import recorded_reports
from redalg.torch.subprograms import SubprogramCall, subprogram_calls
from tests.sweeps import draws
from tests.torch.test_aten import Called, drawn, exported
from tests.torch.test_backend import PREDICTED, compiled

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
CARD, TARGET = device_for("H100"), "H100"
TOGETHER = {**PREDICTED, "redalg.subprograms": True}


class Mixture(nn.Module):
    """Experts that share an input, gates that weigh them, and a tower for each gate."""

    def __init__(self, features: int = 20, experts: int = 3, width: int = 5) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(features, width) for _ in range(experts))
        self.gates = nn.ModuleList(nn.Linear(features, experts, bias=False) for _ in range(2))
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 1)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.stack([torch.relu(expert(x)) for expert in self.experts], 1)
        mixed = [(torch.softmax(gate(x), -1).unsqueeze(-1) * made).sum(1) for gate in self.gates]
        return torch.cat([tower(one) for tower, one in zip(self.towers, mixed, strict=True)], 1)


class Scaled(nn.Module):
    """Channels, scaled by what their means say of each other."""

    def __init__(self, channels: int = 12, few: int = 3) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, few, 1), nn.Conv2d(few, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.up(nn.functional.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Cells(nn.Module):
    """Layers of recurrent cells over a dimension of x, written out."""

    def __init__(self, layers: int, width: int = 8, along: int = 0) -> None:
        super().__init__()
        self.along = along
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.unbind(self.along)
        h = [torch.zeros_like(rows[0]) for _ in self.cells]
        c = list(h)
        for row in rows:
            for layer, cell in enumerate(self.cells):
                below = h[layer - 1] if layer else row
                by_input = nn.functional.linear(below, cell.weight_ih, cell.bias_ih)
                i, f, g, o = (by_input + nn.functional.linear(h[layer], cell.weight_hh, cell.bias_hh)).chunk(4, 1)
                c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
                h[layer] = o.sigmoid() * c[layer].tanh()
        return h[-1]


def token() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24), nn.Softmax(-1))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mixture": (Mixture, (1, 20)),
    "mixture of other sizes": (lambda: Mixture(7, 2, 3), (2, 7)),
    "scaled channels": (Scaled, (1, 12, 6, 5)),
    "scaled channels of two samples": (Scaled, (2, 12, 3, 3)),
    "token": (token, (1, 24)),
    "three tokens": (token, (3, 24)),
    "cells": (lambda: Cells(1), (3, 1, 8)),
    "rounds of cells": (lambda: Cells(2), (22, 1, 8)),
    "rounds of cells, two samples": (lambda: Cells(3, 5), (15, 2, 5)),
}
QUICK = [pytest.param(name, marks=[pytest.mark.slow] * name.endswith("cells, two samples")) for name in MODELS]


def calls_in(model: nn.Module, *given_: torch.Tensor) -> tuple[list[SubprogramCall], dict[str, Any]]:
    """The calls of a model's subprograms, and the arrays of its program's inputs."""
    imported, arrays = exported(model.eval(), given_)
    return subprogram_calls(imported.program.live(), CARD)[1], arrays


@cache
def calls_of_model(name: str) -> tuple[list[SubprogramCall], dict[str, Any]]:
    """Those of one of `MODELS`, which several tests read."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return calls_in(make(), drawn(*shape))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", QUICK)
def test_a_small_model_is_one_subprogram(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().eval(), drawn(*shape)
    with torch.no_grad():
        found, [report] = compiled(model, x, options=TOGETHER)
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-6)
    [group] = report.groups
    assert group.decision.is_put
    assert is_of_steps(group.call)
    assert len(group.expressions) >= 2
    assert group.group.names
    if name == "mixture":
        steps = read_steps(group.call)
        assert group.lower() is lower_steps(steps, group.card, dict.fromkeys(steps.inputs, "float32"))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", QUICK)
def test_one_launch_computes_the_steps(name: str) -> None:
    """The program of all steps in NumPy, its blocks in any order, beside function after function."""
    [call], arrays = calls_of_model(name)
    steps = read_steps(call.text)
    tensors = [arrays[name] for name in call.reads]
    lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
    program = lowered.source.program
    assert program.together is not None
    assert len(program.together.levels) >= 2
    assert (program.together.rounds is not None) == name.startswith("rounds")
    shuffle = random.Random(0)
    given_ = {key: each.numpy() for key, each in zip(steps.inputs, tensors, strict=True)}
    given_ |= {key: np.array(rows, np.int32) for key, rows in lowered.tables.items()}
    found = interpret(program, given_, order=lambda blocks: shuffle.sample([*blocks], len([*blocks])))
    for (key, shape_, _), wanted in zip(steps.outputs, run_in_turn(steps, tensors), strict=True):
        np.testing.assert_allclose(found[key].reshape(shape_), wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["mixture", "rounds of cells, two samples"])
def test_lines_of_a_launch_know_the_slots_of_their_steps(name: str) -> None:
    """Every output of every step has lines that write it, also where rows of one pool hold several."""
    [call], _ = calls_of_model(name)
    steps = read_steps(call.text)
    lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
    listing = Listing(lowered.source, lowered.stages, lowered.results)
    assert [one.text for one in listing.lines] == lowered.source.text.splitlines()
    outputs = [entry for entry in listing.legend if entry.what.partition(": ")[2].startswith("output")]
    assert {entry.step for entry in outputs} == {*lowered.stages}
    assert [entry for entry in outputs if listing.spans(entry) == "none"] == []
    assert all(line.serves <= {one.name for one in listing.legend if one.step == line.step} for line in listing.lines)
    assert lowered.listing().splitlines()[1].startswith("  1 ")
    assert lowered._repr_html_().count('title="line ') == len(listing.lines)


def test_the_text_waits_between_levels() -> None:
    [call], _ = calls_of_model("mixture")
    steps = read_steps(call.text)
    lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
    program, text = lowered.source.program, lowered.source.text
    assert program.together is not None
    assert text.count("T.sync_grid()") == len(program.together.levels) - 1 == 3
    assert text.count("T.Kernel(") == 1
    assert "one launch" in str(program)
    [resources] = compile_only(lowered.source)
    assert resources.spill_bytes == 0
    assert "this_grid().sync()" in resources.cuda


def test_steps_that_are_alike_are_one_text() -> None:
    """Cells of all layers and all steps: the text does not grow with them, and a diagonal of cells is a round."""
    texts = dict[int, int]()
    for steps_, ([call], _) in ((22, calls_of_model("rounds of cells")), (26, calls_in(Cells(2), drawn(26, 1, 8)))):
        steps = read_steps(call.text)
        lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
        together = lowered.source.program.together
        assert together is not None
        assert together.rounds is not None
        assert together.rounds.count == steps_ + 1
        texts[steps_] = len(lowered.source.text.splitlines())
    assert texts[22] == texts[26]


def test_rows_of_a_batch_of_one_are_alike() -> None:
    """x[0, t] for every t: products of rows of one tensor are one kind, whichever dimension t is."""
    torch.manual_seed(0)
    model = Cells(1, along=1).eval()
    [call], arrays = calls_in(model, drawn(1, 45, 8))
    steps = read_steps(call.text)
    assert len({step.kind for step in steps.steps}) <= 6 < 45 <= len(steps.steps)
    [found] = run_in_turn(steps, [arrays[name] for name in call.reads])
    torch.testing.assert_close(found, model(arrays["x"]), rtol=1e-5, atol=1e-6)


def test_subprograms_that_are_alike_have_one_text() -> None:
    """Wherever they stand: they are compiled and measured once."""
    torch.manual_seed(0)
    model = nn.Sequential(Scaled(), nn.Conv2d(12, 12, 3, padding=1), Scaled())
    calls, _ = calls_in(model, drawn(1, 12, 6, 5))
    assert len(calls) == 2
    assert len({call.text for call in calls}) == 1
    assert {*calls[0].reads}.isdisjoint(calls[1].reads)


def test_parts_rely_on_earlier_levels_alone() -> None:
    imported, _ = exported(Mixture().eval(), (drawn(1, 20),))
    verdicts, [subprogram] = subprograms_of(imported.program.live(), CARD)
    vertices = verdicts.vertices
    levels, known = subprogram.levels(), dict[str, int]()
    for part, level in zip(subprogram.parts, levels, strict=True):
        assert vertices.is_convex(Pattern(part.members))
        assert all(known[name] < level for name in part.reads if name in known)
        assert known.keys().isdisjoint(part.members)
        known |= dict.fromkeys(part.members, level)
    assert levels.count(0) == 5
    assert subprogram.gain_us > 0
    assert "level 0" in str(subprogram)


def test_large_statements_stay_outside() -> None:
    """Products of many rows are a library's."""
    imported, _ = exported(
        nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.Linear(512, 512)), (drawn(512, 512),)
    )
    assert not subprograms_of(imported.program.live(), CARD)[1]


@settings(max_examples=draws(12), suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.tuples(st.sampled_from((1, 3, 8, 17)), st.sampled_from(("relu", "softmax", "norm", "both")),
                          st.integers(0, 3)), min_size=2, max_size=6), st.integers(1, 2))  # fmt: skip
def test_drawn_layers_are_computed(layers: Sequence[tuple[int, str, int]], rows: int) -> None:
    """Layers of any width, each of which reads one of those before it."""
    torch.manual_seed(0)
    widths, places = [9], [min(back, place) for place, (_, _, back) in enumerate(layers)]
    weights = list[torch.Tensor]()
    for (width, _, _), back in zip(layers, places, strict=True):
        weights.append(drawn(widths[-1 - back], width))
        widths.append(width)

    def run(x: torch.Tensor) -> torch.Tensor:
        known = [x]
        for (_, kind, _), back, weight in zip(layers, places, weights, strict=True):
            made = known[-1 - back] @ weight
            normed = (made - made.mean(-1, keepdim=True)) / (made.square().mean(-1, keepdim=True) + 1)
            known.append({"relu": made.relu(), "softmax": made.softmax(-1), "norm": normed,
                          "both": made.softmax(-1) * normed}[kind])  # fmt: skip
        return known[-1]

    x = drawn(rows, 9)
    model = Called(run)
    calls, arrays = calls_in(model, x)
    for call in calls:
        if not {*call.reads} <= arrays.keys() or len(call.writes) != 1:
            continue
        steps, tensors = read_steps(call.text), [arrays[name] for name in call.reads]
        lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
        found = interpret(
            lowered.source.program, {key: one.numpy() for key, one in zip(steps.inputs, tensors, strict=True)}
        )
        [wanted] = run_in_turn(steps, tensors)
        np.testing.assert_allclose(
            found[steps.outputs[0][0]].reshape(wanted.shape), wanted.numpy(), rtol=1e-4, atol=1e-5
        )
    with torch.no_grad():
        found_, _ = compiled(model, x, options=TOGETHER)
        torch.testing.assert_close(found_, run(x), rtol=1e-4, atol=1e-5)


# ---- texts, and what is refused --------------------------------------------------------------------------------------


def step(expr: Any, size: int = 4) -> FunctionStep:
    """A step of one tensor of a dimension."""
    function = ra.fuse(expr, passes=2)
    return FunctionStep(text_of(function.number), ("x",), ("x",), ((size,),), (0,), (("n", size),), ("y",))


def test_steps_are_read_as_they_were_written() -> None:
    [call], _ = calls_of_model("mixture")
    assert read_steps(call.text).text == call.text


OLD = '{"format":"redalg steps, 0","inputs":[],"outputs":[],"kinds":[],"steps":[]}'


@pytest.mark.parametrize("text", [OLD, "[]", '{"a":1}'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"redalg::together: the text has"):
        read_steps(text)


def test_a_step_of_two_passes_is_refused() -> None:
    n, x = ra.axes("n"), ra.Tensor("x")
    steps = Steps(("x",), (step(ra.sum(ra.cast(x[n] / ra.max(abs(x[n]), n), "float16"), n)),), ())
    with pytest.raises(PlanError, match=r"takes one pass"):
        lower_steps(steps, TARGET, {"x": "float32"})


def test_more_blocks_than_a_device_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    [call], _ = calls_in(Scaled(), drawn(1, 12, 30, 30))
    steps = read_steps(call.text)
    lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=1))
    with pytest.raises(PlanError, match=r"blocks that wait for each other, and cuda holds 1 at once"):
        check_residence(lowered, torch.device("cuda"))


def on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpret programs in NumPy in the place of their kernels, on what a launch hands them."""

    def launched(source: Source) -> Callable[..., None]:
        def run(*arguments: torch.Tensor) -> None:
            known = dict(zip(source.program.parameters, arguments, strict=True))
            sizes = sizes_in(known, {one.key: tuple(each.shape) for one, each in known.items() if one.role == "input"})
            assert all(tuple(each.shape) == shape_at(parameter.shape, sizes) for parameter, each in known.items())
            inputs = {one.key: each.numpy() for one, each in known.items() if one.role == "input"}
            found = interpret(source.program, inputs)
            for parameter, each in known.items():
                if parameter.role != "input" and parameter.key in found and each.numel() == found[parameter.key].size:
                    each.view(-1).copy_(torch.from_numpy(found[parameter.key].reshape(-1)))

        return run

    monkeypatch.setattr(launches, "kernel_of_source", lambda source: source)
    monkeypatch.setattr(launches, "launch_function", launched)
    monkeypatch.setattr(launches, "target_of", lambda _: TARGET)
    monkeypatch.setattr(launches, "check_residence", lambda *_: None)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["mixture", "scaled channels", "rounds of cells"])
def test_a_launch_has_its_arguments_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in NumPy in the place of its kernel, on what the launch hands it."""
    [call], arrays = calls_of_model(name)
    steps, tensors = read_steps(call.text), [arrays[name] for name in call.reads]
    on_numpy(monkeypatch)
    launch = launches.launch_of(steps, torch.device("cpu"), dict.fromkeys(steps.inputs, "float32"))
    for found, wanted in zip(launch(tensors), run_in_turn(steps, tensors), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_kernel_takes_a_tensor_as_its_numbers_are() -> None:
    """Of a negated view, of truths, and of a tensor that is longer than what is read."""
    parameter = Parameter("x", (2, 2), "float32", "input", "x")
    negated = torch.complex(drawn(6), drawn(6)).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(kernel_input(negated, parameter), negated.clone().resolve_neg()[:4].view(2, 2))
    truths = torch.tensor([True, False, True, True])
    found = kernel_input(truths, replace(parameter, dtype="uint8"))
    assert found.tolist() == [[1, 0], [1, 1]]


def test_the_option_is_a_truth_value() -> None:
    assert read_options(None, {"redalg.subprograms": False}).subprograms is False
    with pytest.raises(PlanError, match=r"'redalg.subprograms': 'yes'.*should be True, False, or None"):
        read_options(None, {"redalg.subprograms": "yes"})


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["mixture", "token"])
def test_a_forward_and_a_backward_have_subprograms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a graph without gradients of its own; the launches of both in NumPy, beside function after function."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), drawn(*shape).requires_grad_()
    ran = dict[Steps, list[torch.Tensor]]()

    def run(steps: Steps, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        ran.setdefault(steps, [*tensors])
        return run_in_turn(steps, tensors)

    monkeypatch.setattr(launches, "run_in_turn", run)
    leaves = [x, *model.parameters()]
    found, reports = compiled(model, x, options=TOGETHER)
    cotangent = drawn(*found.shape)
    with recorded_reports() as of_backward:
        made = torch.autograd.grad(found, leaves, cotangent)
    for gradient, wanted in zip(made, torch.autograd.grad(model(x), leaves, cotangent), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-5)
    calls = [[group.call for group in report.groups if is_of_steps(group.call) and group.decision.is_put]
             for report in (*reports, *of_backward)]  # fmt: skip
    assert sum(map(bool, calls)) == 2  # of the forward, and of the backward
    assert {each.text for each in ran} >= {call for some in calls for call in some}
    for steps, tensors in ran.items():
        dtypes = (str(each.dtype).removeprefix("torch.") for each in tensors)
        program = lower_steps(steps, TARGET, dict(zip(steps.inputs, dtypes, strict=True))).source.program
        given_ = {one.key: kernel_input(tensors[steps.inputs.index(one.key)], one).numpy()
                  for one in program.parameters if one.key in steps.inputs}  # fmt: skip
        arrays = interpret(program, given_)
        for (key, shape_, _), each in zip(steps.outputs, run_in_turn(steps, tensors), strict=True):
            np.testing.assert_allclose(arrays[key].reshape(shape_), each.numpy(), rtol=1e-4, atol=1e-5)


def test_a_cpu_has_none_by_itself() -> None:
    model, x = Mixture().eval(), drawn(1, 20)
    with torch.no_grad():
        _, [report] = compiled(model, x, options=PREDICTED)
    assert not any(is_of_steps(group.call) for group in report.groups)


# ---- the device ------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_one_launch_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    [call], arrays = calls_in(make().to(dtype), drawn(*shape).to(dtype))
    steps, tensors = read_steps(call.text), [arrays[name].cuda() for name in call.reads]
    exact = run_in_turn(steps, [one.double().cpu() for one in tensors])
    found = launches.call_steps(call.text, tensors)
    again = launches.call_steps(call.text, tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = launches.call_steps(call.text, tensors)
    graph.replay()
    for one, other, replayed, wanted in zip(found, again, captured, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        torch.testing.assert_close(one, replayed, rtol=0, atol=0)
        bound = 1e-5 if dtype is torch.float32 else 3e-2
        assert float((one.cpu().double() - wanted).abs().max()) <= bound * max(1.0, float(wanted.abs().max()))
