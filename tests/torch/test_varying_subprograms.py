"""Subprograms whose sizes vary: one launch for every length, which computes what the model does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import redalg as ra
from redalg.errors import PlanError
from redalg.runtime.bind.functions import text_of
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.together import call as launches
from redalg.runtime.together.call import run_in_turn
from redalg.runtime.together.lower import lower_steps
from redalg.runtime.together.steps import FunctionStep, Steps, read_steps
from redalg.torch.aten import import_graph
from redalg.torch.records import recorded_reports
from redalg.torch.sizes import hints_of
from redalg.torch.subprograms import SubprogramCall, subprogram_calls
from tests.torch.test_aten import drawn
from tests.torch.test_subprograms import CARD, TARGET, TOGETHER, Mixture, Scaled, on_numpy, token

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]


def calls_with_lengths(model: nn.Module, x: torch.Tensor, dim: int = 0) -> tuple[SubprogramCall, dict[str, Any]]:
    """The call of a model's one subprogram, where a dimension of its input varies, and the program's arrays."""
    torch.manual_seed(0)
    found = torch.export.export(model.eval(), (x,), dynamic_shapes=({dim: torch.export.Dim.DYNAMIC},))
    found = found.run_decompositions()
    names = {spec.arg.name: spec.target for spec in found.graph_signature.input_specs}
    arrays = {name: x if target is None else found.state_dict[target].detach() for name, target in names.items()}
    [call] = subprogram_calls(import_graph(found.graph).program.live(), CARD, hints=hints_of(found.graph))[1]
    return call, arrays


VARIED = [pytest.param(Mixture, (4, 20), id="mixture"), pytest.param(token, (3, 24), id="token"),
          pytest.param(Scaled, (2, 12, 6, 5), id="scaled channels")]  # fmt: skip


@pytest.mark.parametrize(("make", "shape"), VARIED)
def test_one_launch_takes_every_length(
    make: Callable[[], nn.Module], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned at one length, and run at others, in NumPy, beside the model."""
    model = make().eval()
    call, arrays = calls_with_lengths(model, drawn(*shape))
    steps = read_steps(call.text)
    assert (steps.text, steps.sizes, len(call.sizes)) == (call.text, ("s0",), 1)
    [moved] = [name for name, each in arrays.items() if each.shape == shape]
    on_numpy(monkeypatch)
    dtypes, texts = dict.fromkeys(steps.inputs, "float32"), set[str]()
    for length in (shape[0], 1, 7, 70):
        x = drawn(length, *shape[1:])
        tensors = [x if name == moved else arrays[name] for name in call.reads]
        launch = launches.launch_of(steps, torch.device("cpu"), dtypes, (length,), shape[:1])
        texts.add(lower_steps(steps, TARGET, dtypes, shape[:1]).source.text)
        [found], [in_turn] = launch(tensors), run_in_turn(steps.at((length,)), tensors)
        for each in (found, in_turn):
            torch.testing.assert_close(each, model(x).detach(), rtol=1e-5, atol=1e-6)
    [text] = texts
    assert text.count("T.dynamic") == 1


@pytest.mark.slow
def test_the_launch_of_every_length_compiles() -> None:
    call, _ = calls_with_lengths(Mixture(), drawn(4, 20))
    steps = read_steps(call.text)
    lowered = lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"), (4,))
    [resources] = compile_only(lowered.source)
    assert resources.spill_bytes == 0
    assert "this_grid().sync()" in resources.cuda


def test_a_model_of_varying_sizes_has_a_subprogram() -> None:
    """Compiled once, for batches of every size."""
    torch.manual_seed(0)
    model = Mixture().eval()
    run = torch.compile(model, backend="redalg", dynamic=True, options=TOGETHER)
    with torch.no_grad(), recorded_reports() as reports:
        for length in (4, 7, 30):
            x = drawn(length, 20)
            torch.testing.assert_close(run(x), model(x), rtol=1e-5, atol=1e-6)
    [report] = reports
    [group] = report.groups
    assert group.decision.is_put
    assert read_steps(group.call).sizes


def test_a_length_on_which_a_schedule_depends_is_refused() -> None:
    """Of two axes that are streamed as one."""
    call, _ = calls_with_lengths(Scaled(), drawn(2, 12, 6, 5), dim=3)
    steps = read_steps(call.text)
    assert steps.sizes
    with pytest.raises(PlanError, match=r"a kernel has their sizes as constants"):
        lower_steps(steps, TARGET, dict.fromkeys(steps.inputs, "float32"), (5,) * len(steps.sizes))


def test_rounds_have_known_sizes() -> None:
    n, x = ra.axes("n"), ra.Tensor("x")
    fused = ra.fuse(ra.sum(x[n], n))
    function = text_of(fused.number)
    first = FunctionStep(function, ("x",), ("x",), (("s0",),), (2,), (("n", "s0"),), ("y",))
    steps = Steps(("x",), (first, replace(first, writes=("z",))), (), sizes=("s0",))
    with pytest.raises(PlanError, match=r"rounds of one launch have sizes that are known, and here s0 vary"):
        lower_steps(steps, TARGET, {"x": "float32"}, (4,))
    assert steps.at((4,)).steps[0] == replace(first, views=((4,),), sizes=(("n", 4),))


def test_few_launches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest, and all of known sizes."""
    kind = ("a text", "a device", ("float32",))
    monkeypatch.setattr(launches, "_LAUNCHES", dict.fromkeys((kind, lengths) for lengths in ((), (1,), (2,), (3,))))
    monkeypatch.setattr(launches, "MOST_LAUNCHES", 2)
    launches.drop_oldest()
    assert [lengths for _, lengths in launches._LAUNCHES] == [(), (2,), (3,)]
    launches.drop_oldest()
    assert len(launches._LAUNCHES) == 3


@pytest.mark.gpu
@pytest.mark.parametrize(("make", "shape"), VARIED)
def test_a_device_takes_every_length(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    model = make().eval()
    call, arrays = calls_with_lengths(model, drawn(*shape))
    [moved] = [name for name, each in arrays.items() if each.shape == shape]
    for length in (shape[0], 1, 7, 70, 0):
        x = drawn(length, *shape[1:])
        tensors = [(x if name == moved else arrays[name]).cuda() for name in call.reads]
        [found] = launches.call_steps(call.text, tensors, (length,))
        torch.testing.assert_close(found.cpu(), model(x).detach(), rtol=1e-4, atol=1e-5)
