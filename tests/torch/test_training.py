"""Graphs that are trained: groups with products have the engine's backward, and no weights of attention are stored."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional

from redalg.gradient.operators import read_call
from redalg.runtime.tune.timing import measure
from redalg.torch import explored, gate, groups
from redalg.torch.decisions import Decision
from redalg.torch.explored import calls_of_text, text_of_calls
from redalg.torch.records import recorded_reports
from redalg.torch.report import GraphReport
from tests.torch.test_aten import Called, Decoder, check_gradients, drawn

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
PREDICTED = {"redalg.gate": "predicted"}
ROWS, COLUMNS = 40, 48


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT / 4, -1) @ v


def tensors() -> list[torch.Tensor]:
    shapes = (2, ROWS, 16), (2, COLUMNS, 16), (2, COLUMNS, 16)
    return [drawn(*shape).requires_grad_() for shape in shapes]


def trained(model: Any, given: list[torch.Tensor], **options: Any) -> tuple[list[torch.Tensor], list[GraphReport]]:
    """The result of a compiled model and the gradients of what it is given; the reports of its graphs."""
    with recorded_reports() as reports:
        found = torch.compile(model, backend="redalg", **options)(*given)
        made = torch.autograd.grad(found, given, torch.ones_like(found).cumsum(-1))
    return [found, *made], reports


def wanted(model: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    found = model(*given)
    return [found, *torch.autograd.grad(found, given, torch.ones_like(found).cumsum(-1))]


def assert_near(found: list[torch.Tensor], others: list[torch.Tensor], bound: float = 1e-5) -> None:
    """Equal but for roundings, which are as large as the largest number's; beside the largest gradient, if near 0."""
    for one, other in zip(found, others, strict=True):
        assert (one - other).abs().max() <= bound * max(
            other.abs().max(), 1e-2 * max(each.abs().max() for each in others)
        )


def test_no_weights_of_attention_are_stored() -> None:
    saved, given = list[torch.Size](), tensors()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.shape)
        return tensor

    model = Called(attend)
    found, [first, *_] = trained(model, given, options=PREDICTED)
    assert_near(found, wanted(attend, given))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trained(model, given, options=PREDICTED)
    assert [one.decision.is_put for one in first.groups] == [True]
    assert saved
    assert max(shape.numel() for shape in saved) == 2 * COLUMNS * 16
    assert read_call(first.groups[0].call).training


@pytest.mark.slow
def test_a_model_trains_as_it_does_without() -> None:
    model, given = Decoder(), drawn(2, 33, 24)
    with recorded_reports() as reports:
        found = torch.compile(model, backend="redalg", options=PREDICTED)(given)
        check_gradients(model, given, found, 1e-4)
    assert any(one.decision.is_put for one in reports[0].groups)


def test_a_group_that_is_slower_with_its_backward_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    given = tensors()
    times = iter([2.0, 1.0])  # with it, without

    def slower(*told: Any) -> Any:
        found = measure(*told)
        return type(found)(found.method, (next(times),), found.host_us, 1, 1)

    monkeypatch.setattr(gate, "measure", slower)
    found, [first, *_] = trained(Called(attend), given)
    assert_near(found, wanted(attend, given))
    assert [one.decision for one in first.groups] == [Decision(is_put=False, fused_us=2.0, plain_us=1.0)]


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from redalg.gradient.backward import Backward

    found_gradients = Backward.from_saved

    def wrong(self: Backward, *told: Any) -> Any:
        return {name: one * 1.5 for name, one in found_gradients(self, *told).items()}

    monkeypatch.setattr(Backward, "from_saved", wrong)
    _, [first, *_] = trained(Called(attend), tensors(), options=PREDICTED)
    assert [one.decision for one in first.groups] == [gate.DISAGREES]


def partly_without(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        weights = torch.softmax(q @ k.mT, -1)
    return weights @ v + q.sum() + k.sum()


def positions_without(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As models of transformers turn queries and keys: by angles that have no gradient."""
    with torch.no_grad():
        angles = (torch.arange(ROWS)[:, None] * torch.arange(16.0)).detach().cos()
    return attend(q * angles, k, v)


def detached(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q.detach(), k, v) + q.sum()


def in_place(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT
    scores += 1
    scores.masked_fill_(torch.ones_like(scores).tril() > 0, -5.0)
    return torch.softmax(scores, -1) @ v


def with_a_constant(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As the masks of models have one: a tensor that the graph makes of a number."""
    scores = q @ k.mT
    bias = torch.where(torch.ones_like(scores).tril() > 0, torch.tensor(0.0, dtype=q.dtype), -1e4)
    return torch.softmax(scores + bias, -1) @ v


@pytest.mark.parametrize(
    "model", [partly_without, positions_without, detached, in_place, with_a_constant], ids=lambda model: model.__name__
)
def test_gradients_are_the_models(model: Callable[..., torch.Tensor]) -> None:
    given = tensors()
    found, [first, *_] = trained(Called(model), given, options=PREDICTED)
    assert_near(found, wanted(model, given))
    assert first.failure == (
        "" if model in (in_place, with_a_constant, positions_without) else "a part of it records no gradient"
    )


def test_dropout_is_drawn_once() -> None:
    """With the same seed the forward and the backward drop the same places."""
    given = tensors()

    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.dropout(torch.softmax(q @ k.mT, -1), 0.5) @ v

    found, _ = trained(Called(model), given, options=PREDICTED)
    v = given[2]
    ones = torch.ones_like(found[0]).cumsum(-1)
    torch.testing.assert_close((found[3] * v).sum(), (ones * found[0]).sum(), rtol=1e-4, atol=1e-3)  # linear in v


def test_statistics_of_a_batch_are_updated_once() -> None:
    model = nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 12)).train()
    other = nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 12)).train()
    other.load_state_dict(model.state_dict())
    given = drawn(30, 12)
    torch.compile(model, backend="redalg", options=PREDICTED)(given).sum().backward()
    other(given).sum().backward()
    for one, wanted in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, wanted)


def test_groups_are_put_beside_statistics_of_a_batch() -> None:
    """A batch norm changes in place what its backward may read; PyTorch derives the backward of what does not."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(ROWS)

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return attend(self.norm(q), k, v)

    given, model, other = tensors(), Model(), Model()
    found, [first, *_] = trained(model, given, options=PREDICTED)
    assert_near(found, wanted(other, given))
    assert not first.failure
    assert [one.decision.is_put for one in first.groups] == [True]
    torch.testing.assert_close(dict(model.named_buffers()), dict(other.named_buffers()))


def trained_at(model: Any, given: list[list[torch.Tensor]], **options: Any) -> tuple[list[GraphReport], int]:
    """The reports of a model that is trained on tensors of several sizes, as it would be by PyTorch, and its graphs.

    Gradients are compared with PyTorch's, those of parameters too.
    """
    run, own = torch.compile(model, backend="redalg", options=PREDICTED, **options), list(model.parameters())
    counters.clear()
    with recorded_reports() as reports:
        for tensors in given:
            found, others = run(*tensors), model(*tensors)
            cotangent, leaves = torch.randn_like(others), [*tensors, *own]
            made, wanted = (torch.autograd.grad(one, leaves, cotangent) for one in (found, others))
            assert_near([found, *made], [others, *wanted], 2e-5)
    return reports, counters["stats"]["unique_graphs"]


def compilations(model: Any, given: list[list[torch.Tensor]], **options: Any) -> int:
    """The number of graphs that PyTorch compiles for tensors of several sizes, by itself."""
    counters.clear()
    run = torch.compile(model, backend="eager", **options)
    for tensors in given:
        run(*tensors)
    torch._dynamo.reset()
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("dynamic", [True, None], ids=["all vary", "those that changed vary"])
def test_one_compilation_serves_sizes_that_vary(dynamic: bool | None) -> None:
    """Rows, columns and the batch: a size that the trace made a number would be compiled anew."""
    sizes = (2, 9, 14), (2, 13, 20), (3, 17, 14), (5, 30, 31)
    given = [[drawn(n, size, 16).requires_grad_() for size in (rows, columns, columns)] for n, rows, columns in sizes]
    model = Called(attend)
    wanted = compilations(model, given, dynamic=dynamic)
    reports, count = trained_at(model, given, dynamic=dynamic)
    assert count == wanted
    groups = [one for report in reports for one in report.groups]
    assert groups
    assert all(one.decision.is_put and "'training':true" in one.call for one in groups)


def layer(*, first: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True, norm_first=first)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(layer(first=True), id="norms first", marks=pytest.mark.slow),
        pytest.param(layer(first=False), id="norms last", marks=pytest.mark.slow),
        pytest.param(nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.Dropout(0.0), nn.Softmax(-1)), id="norm"),
    ],
)
@pytest.mark.parametrize("dynamic", [True, pytest.param(None, marks=pytest.mark.slow)])
def test_layers_are_trained_at_sizes_that_vary(model: nn.Module, dynamic: bool | None) -> None:
    """With dynamic=True numbers vary too, as what a norm adds to a variance, until a guard fixes them."""
    given = [[drawn(*size, 24).requires_grad_()] for size in ((3, 9), (3, 13), (5, 17), (2, 30))]
    wanted = compilations(model, given, dynamic=dynamic)
    reports, count = trained_at(model, given, dynamic=dynamic)
    assert count == wanted
    assert not any(report.failure for report in reports)
    assert any(one.decision.is_put for report in reports for one in report.groups)


def test_numbers_that_vary_are_left() -> None:
    """A number that is no size, which a graph takes as a tensor: PyTorch reads it when the graph is compiled."""

    class Scaled(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
            return torch.softmax(q @ k.mT * scale, -1) @ v

    model, given = Scaled(), tensors()
    run = torch.compile(model, backend="redalg", dynamic=True, options=PREDICTED)
    with recorded_reports() as reports:
        for scale in (0.25, 0.5):
            torch.testing.assert_close(run(*given, scale), model(*given, scale), rtol=1e-5, atol=1e-5)
    assert reports[0].failure == "numbers vary that are no sizes"


# ---- kept exploration ------------------------------------------------------------------------------------------------


def test_another_process_finds_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads them, and puts them as they were."""
    model, given = Called(attend), tensors()
    _, first = trained(model, given, options=PREDICTED)
    [path] = (tmp_path / "explored").iterdir()
    assert path.parent.stat().st_mode & 0o077 == 0
    torch._dynamo.reset()
    monkeypatch.setattr(groups, "calls_with_backwards", lambda *_: pytest.fail("it was explored before"))
    found, again = trained(model, given, options=PREDICTED)
    assert_near(found, wanted(attend, given))
    assert again[0].groups == first[0].groups
    assert [one.decision.is_put for one in again[0].groups] == [True]


def test_calls_of_sizes_that_vary_are_read_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are the symbols of the graph that reads them, products and sums of them too; Inductor compiles nothing."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda module, *_, **__: module)
    kept = Mock(wraps=explored.calls_kept)
    monkeypatch.setattr(groups, "calls_kept", kept)
    trained(layer(first=True), [drawn(3, 9, 24).requires_grad_()], options=PREDICTED, dynamic=True)
    program, _, _, hints, find = kept.call_args.args
    calls = find()
    assert any(not size.is_Integer for call in calls for size in call.sizes)
    assert any(not size.is_Integer for call in calls for shape in call.views.values() for size in shape)
    assert calls_of_text(text_of_calls(calls), program, hints) == calls
    assert calls_of_text(text_of_calls(calls), program, {}) is None  # of a graph that has no such symbols


@pytest.mark.slow
def test_a_process_of_its_own_reads_what_another_found(tmp_path: Path) -> None:
    """Names of tensors, and of sizes, are the same in every process."""
    script = Path(__file__).with_name("train_attention.py")
    said = list[str]()
    for _ in range(2):
        folder = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"inductor{len(said)}")}
        run = subprocess.run([sys.executable, script], env={**os.environ, **folder}, capture_output=True, text=True,
                             check=True)  # fmt: skip
        said.append(run.stdout.strip())
    assert said == ["1 explored, 1 put", "0 explored, 1 put"]


def test_what_is_kept_depends_on_the_graph(tmp_path: Path) -> None:
    for scale in (4.0, 4.0000000000000009, 5.0):  # the second one is 4 in a text of 15 digits
        model = Called(lambda q, k, v, scale=scale: torch.softmax(q @ k.mT / scale, -1) @ v)
        torch._dynamo.reset()
        given = tensors()
        found, _ = trained(model, given, options=PREDICTED)
        assert_near(found, wanted(model, given))
    assert len([*(tmp_path / "explored").iterdir()]) == 3


@pytest.mark.parametrize("change", [lambda _: "", lambda text: text[:-9], lambda _: "[]",
                                    lambda text: text.replace("redalg calls, 1", "redalg calls, 0"),
                                    lambda text: text.replace('"reads":["', '"reads":["no_'),
                                    lambda text: text.replace('"calls":[{"text":', '"calls":[{"told":')],
                         ids=["empty", "cut off", "no table", "other format", "other graph", "no field"])  # fmt: skip
def test_what_cannot_be_read_is_explored_anew(change: Callable[[str], str], tmp_path: Path) -> None:
    model, given = Called(attend), tensors()
    trained(model, given, options=PREDICTED)
    [path] = (tmp_path / "explored").iterdir()
    text = path.read_text()
    path.write_text(change(text))
    assert path.read_text() != text
    torch._dynamo.reset()
    found, [first, *_] = trained(model, given, options=PREDICTED)
    assert_near(found, wanted(attend, given))
    assert [one.decision.is_put for one in first.groups] == [True]
    assert path.read_text() == text
