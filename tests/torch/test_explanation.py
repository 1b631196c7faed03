"""redalg.torch.explain: every graph is told of, again if it is asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import redalg.torch
from redalg.errors import PlanError
from redalg.torch.decisions import Decision
from redalg.torch.explanation import NO_GRAPH, Explanation
from redalg.torch.records import recorded_reports
from redalg.torch.report import IS_WHOLE
from tests.torch.test_aten import Called, drawn

pytestmark = pytest.mark.filterwarnings("ignore")
PREDICTED = {"redalg.gate": "predicted"}


def centred(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * scale


def test_a_model_is_explained_each_time() -> None:
    model, given = Called(centred), drawn(6, 20)
    found = [redalg.torch.explain(model, given, options=PREDICTED) for _ in range(2)]
    assert str(found[0]) == str(found[1])
    [graph] = found[0].graphs
    [group] = graph.groups
    assert any("x.mean(-1, keepdim=True)" in line for line in group.lines)
    text, html = str(found[0]), found[0]._repr_html_()
    assert "1 of 1 groups put" in text
    assert html.count("<details>") == 1
    assert "sum of t0[i0,i1]  [" in group.lower().listing()
    with pytest.raises(PlanError, match="data decide one"):
        replace(group, inputs=None).lower()
    assert "sum(" in html
    assert "&gt;" not in text


@pytest.mark.parametrize("inputs", [(drawn(6, 20), 3.0), [drawn(6, 20)], {"x": drawn(6, 20), "scale": 2.0}], ids=type)
def test_inputs_are_a_sequence_or_a_mapping(inputs: object) -> None:
    [graph] = redalg.torch.explain(centred, inputs, options=PREDICTED).graphs
    assert len(graph.groups) == 1


def test_what_is_left_has_its_reason() -> None:
    given = drawn(6, 20)
    [graph] = redalg.torch.explain(Called(lambda x: centred(x.cumprod(0))), given, options=PREDICTED).graphs
    assert "cumprod" in graph.left
    assert "left to PyTorch: cumprod (1): redalg has no expression for cumprod" in str(graph)
    assert "<li>left to PyTorch: cumprod" in Explanation((graph,))._repr_html_()


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT / 4
    return scores.softmax(-1) @ v


def test_what_pytorch_made_one_operator_of_is_named() -> None:
    """Inductor finds attention of four dimensions before its last passes: no product is left to fuse."""
    given = [drawn(2, 3, 32, 16) for _ in range(3)]
    with torch.no_grad():
        [graph] = (found := redalg.torch.explain(attend, given, options=PREDICTED)).graphs
    [(name, (reason, count))] = graph.outside.items()
    assert "scaled_dot_product" in name
    assert (reason, count) == (IS_WHOLE, 1)
    assert f"in no group: {name} (1): {IS_WHOLE}" in str(found)
    assert f"<li>in no group: {name}" in found._repr_html_()


def test_a_scaled_softmax_is_read_as_it_was_written() -> None:
    """Inductor scales once, by a choice between two forms: one pass all the same, and each statement has its line."""
    given = [drawn(6, 32, 16) for _ in range(3)]
    with torch.no_grad():
        [graph] = redalg.torch.explain(attend, given, options=PREDICTED).graphs
    [group] = graph.groups
    assert group.decision.is_put
    assert len(group.group.writes) == 1
    assert not graph.remarks
    assert {line.partition(" attend: ")[2] for line in group.lines} == {
        "scores = q @ k.mT / 4", "return scores.softmax(-1) @ v"}  # fmt: skip
    assert all("attend" in box.line for box in graph.drawing.boxes)


SCALED: dict[str, Callable[..., torch.Tensor]] = {
    "a quotient": lambda x: (x / 4).softmax(-1),
    "a negative factor": lambda x: (-0.25 * x).softmax(-1),
    "a tensor of factors": lambda x: (x * x[:, :1]).softmax(-1),
    "bfloat16": lambda x: (x.bfloat16() * 0.25).softmax(-1).float(),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_scaled_softmax_has_two_reductions_and_the_same_numbers(name: str) -> None:
    function, given = SCALED[name], drawn(6, 32)
    with torch.no_grad(), recorded_reports() as reports:
        found = torch.compile(function, backend="redalg", options=PREDICTED, dynamic=False)(given)
        torch.testing.assert_close(found, function(given), rtol=1e-2 if name == "bfloat16" else 1e-5, atol=1e-6)
    [graph] = reports
    assert [len(group.group.reductions) for group in graph.groups] == [2]
    assert not {"any", "isfinite", "where"} & {box.operator for box in graph.drawing.boxes}


def test_a_choice_that_the_user_wrote_stays_one() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        y = x / 4
        return torch.where(y.isfinite().all(-1, keepdim=True), (x - x.amax(-1, keepdim=True)) / 5, y - y.amax(-1, True))

    given = drawn(6, 32)
    with torch.no_grad(), recorded_reports() as reports:
        torch.testing.assert_close(torch.compile(choose, backend="redalg", options=PREDICTED)(given), choose(given))
    assert "where" in {box.operator for box in reports[0].drawing.boxes}


def test_a_prediction_gives_way_to_a_measurement() -> None:
    [graph] = redalg.torch.explain(Called(centred), drawn(6, 20), options=PREDICTED).graphs
    [group] = graph.groups
    assert f"predicted to save {group.group.gain_us:.1f} µs on {group.card}" in str(group)
    measured = replace(group, decision=Decision(is_put=False, fused_us=8182.7, plain_us=118.1))
    assert "predicted" not in str(measured)
    assert "left to Inductor: 8182.7 µs with it, 118.1 µs without" in str(measured)


def test_a_reduction_alone_is_named_so() -> None:
    [graph] = redalg.torch.explain(lambda x: x.sum(-1), drawn(6, 20), options=PREDICTED).graphs
    [reason] = graph.alone.values()
    assert reason.startswith("a reduction alone")
    assert "fusing it would save nothing" in str(graph)


def test_long_expressions_are_cut_and_there_as_a_whole() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        deviations = x - x.mean(-1, keepdim=True)
        return (
            deviations.exp()
            * deviations.sigmoid()
            * deviations.abs().log1p()
            * deviations.sin()
            * deviations.cos()
            * deviations.tanh()
            / deviations.square().sum(-1, keepdim=True)
        )

    [graph] = redalg.torch.explain(function, drawn(6, 20), options=PREDICTED).graphs
    [group] = graph.groups
    [cut], [whole] = group.expressions, group.whole_expressions
    assert cut.endswith("…")
    assert whole.startswith(cut[:-1])
    assert not whole.endswith("…")
    assert cut in str(group)


def test_every_statement_is_in_a_group_or_named() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU()).eval()
    with torch.no_grad():
        [graph] = redalg.torch.explain(model, drawn(6, 16), options=PREDICTED).graphs
    [group] = graph.groups
    outside = {box.operator for box in graph.drawing.boxes if {*box.names}.isdisjoint(group.group.members)}
    assert outside == {*graph.outside}
    assert "a library multiplies" in graph.outside["addmm"][0]
    assert str(graph).count("in no group: ") == len({reason for reason, _ in graph.outside.values()})
    assert "Inductor fuses it" in graph.outside["relu"][0]


def test_a_lambda_has_its_lines() -> None:
    [graph] = redalg.torch.explain(lambda x: x - x.mean(-1, keepdim=True), drawn(6, 20), options=PREDICTED).graphs
    assert any(" <lambda>: " in line for line in graph.groups[0].lines)


def test_a_model_without_a_graph_says_so() -> None:
    found = redalg.torch.explain(nn.Identity(), drawn(3))
    assert str(found) == NO_GRAPH
    assert NO_GRAPH in found._repr_html_()


def test_bad_options_and_names_are_refused() -> None:
    with pytest.raises(PlanError, match="the gate should be one of 'measured', 'replayed', 'predicted'"):
        redalg.torch.explain(centred, drawn(3, 4), options={"redalg.gate": "fast"})
    for name in ("gate", "budget_s", "subprograms", "asynchronous", "grid_sync"):
        with pytest.raises(PlanError, match=f"Did you mean 'redalg.{name}'"):
            redalg.torch.explain(centred, drawn(3, 4), options={name: True})
    with pytest.raises(AttributeError, match=r"has no attribute 'explian'\. It has: explain"):
        redalg.torch.explian  # noqa: B018 - a typing mistake
