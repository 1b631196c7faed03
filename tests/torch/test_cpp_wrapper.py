"""Groups within the C++ that Inductor writes in the place of Python (`cpp_wrapper`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from redalg.torch import backend, stitch
from tests.torch.test_aten import Called, drawn
from tests.torch.test_backend import PREDICTED, compiled, normed

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]


def with_total(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.exp().sum(-1, keepdim=True)
    return x.exp() / total, total


@pytest.mark.slow
@pytest.mark.parametrize(("function", "called"), [
    (normed, {"redalg.compute_only.default"}),
    (with_total, {"redalg.compute.default"}),
], ids=["one tensor", "several"])  # fmt: skip
def test_inductors_cpp_calls_groups(
    function: Callable[..., Any], called: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of a call stands between double quotes there, and an operator of one tensor returns no list."""
    after = Mock(wraps=stitch.leave_autograd)
    monkeypatch.setattr(backend, "leave_autograd", after)
    with torch.no_grad():
        found, [report] = compiled(Called(function), given := drawn(6, 20), options={**PREDICTED, "cpp_wrapper": True})
    torch.testing.assert_close(found, function(given), rtol=1e-5, atol=1e-5)
    assert [group.decision.is_put for group in report.groups] == [True]
    [[graph]] = [call.args for call in after.call_args_list]
    assert {name for node in graph.nodes if (name := str(node.target)).startswith("redalg")} == called
