"""Calls of an operator that were met before: the same numbers, and no check but that of their kind."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch

import redalg as ra
from redalg.gradient import again, operators
from redalg.gradient.operators import Call
from redalg.gradient.within_operator import within_operator
from redalg.runtime.bind.functions import text_of
from redalg.runtime.call import dispatch

n = ra.axis("n")
x = ra.tensor("x[b,n]")
s = ra.scalars("s")


def test_a_kind_that_was_met_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = ra.fuse({"largest": (ra.max(x * s, n), "b"), "total": (ra.sum(x * s, n), "b")})
    checked = Mock(wraps=dispatch.bind_pass)
    monkeypatch.setattr(dispatch, "bind_pass", checked)
    counts = list[int]()
    with within_operator():
        for rows, scale in ((3, 1.0), (3, 2.0), (4, 2.0), (3, 5.0)):
            given = torch.randn(rows, 8)
            largest, total = again.outputs_of(fused, {"x": given, "s": scale}, {})
            torch.testing.assert_close(largest, (given * scale).amax(1))
            torch.testing.assert_close(total, (given * scale).sum(1))
            counts.append(checked.call_count)
    assert counts == [1, 1, 2, 2]  # of new numbers of rows alone


def test_elsewhere_a_call_is_a_call() -> None:
    fused = ra.fuse(ra.sum(x, n))
    given = torch.randn(3, 8, requires_grad=True)
    for _ in range(2):
        [total] = again.outputs_of(fused, {"x": given}, {})
        total.sum().backward()
        torch.testing.assert_close(given.grad, torch.ones(3, 8))
        given.grad = None


def test_parameters_that_require_gradients_are_tensors_like_any_other() -> None:
    fused = ra.fuse(ra.sum(x, n))
    text = Call(text_of(fused.number), ("x",), (), (), "nan", "ieee", "", training=False).text
    given = torch.nn.Parameter(torch.randn(3, 8))
    with torch.no_grad():
        found = [operators.run_function(text, [given], [], [])[0] for _ in range(2)]
    torch.testing.assert_close(found[0], given.detach().sum(1))
    assert not any(one.requires_grad for one in found)
    assert torch.equal(*found)


def test_an_axis_has_the_size_of_one_that_it_stands_for() -> None:
    from redalg.gradient.stage import own_sizes

    i, j = ra.axes("i j_second")
    fused = ra.fuse(ra.sum(ra.Tensor("y")[i, j], j))
    assert own_sizes(fused, {"i": 3, "j": 5, "other": 7}) == {"i": 3, "j_second": 5}
    assert own_sizes(fused, {"i": 3, "j_second": 4, "j": 5}) == {"i": 3, "j_second": 4}
    assert own_sizes(fused, {"k": 2, "i": 3}, {"i": "k"}) == {"i": 2}
    assert own_sizes(fused, {"i": 3}, {"i": "k"}) == {"i": 3}
