"""Graphs that are trained: groups with products have the engine's backward, and no weights of attention are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from redalg.gradient.operators import read_call
from redalg.runtime.tune.timing import measure
from redalg.torch import gate
from redalg.torch.decisions import Decision
from redalg.torch.records import recorded_reports
from redalg.torch.report import GraphReport
from tests.torch.test_aten import Called, Decoder, drawn

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


def assert_near(found: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    """Equal but for roundings, which are as large as the largest number's."""
    for one, other in zip(found, others, strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


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
        found.square().sum().backward()
    own = [one.grad for one in model.parameters()]
    model.zero_grad(set_to_none=True)
    model(given).square().sum().backward()
    for one, other in zip(own, model.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=1e-4, atol=1e-4)
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


def test_sizes_that_vary_are_left() -> None:
    run = torch.compile(Called(attend), backend="redalg", dynamic=True, options=PREDICTED)
    with recorded_reports() as reports:
        for length in (9, 13):
            given = [drawn(2, length, 16).requires_grad_() for _ in range(3)]
            torch.testing.assert_close(run(*given), attend(*given), rtol=1e-5, atol=1e-5)
    assert reports[0].failure == "its sizes vary, or numbers that it takes"
