"""torch.compile(model, backend="redalg"): the model's numbers, whatever becomes of its groups."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch._inductor.inductor_prims  # it registers the operators of Inductor's graphs
from torch import nn
from torch._inductor import config as inductor
from torch._inductor.custom_graph_pass import CustomGraphPass

from redalg.gradient import again, operators
from redalg.graphs.interpret import interpret_program
from redalg.runtime.call import dispatch
from redalg.runtime.compile.compile import compile_source
from redalg.runtime.tune import compiling
from redalg.torch import ahead, backend, decisions, gate, groups, regions, stitch
from redalg.torch.aten import import_graph
from redalg.torch.backend import GroupPass
from redalg.torch.decisions import Decision
from redalg.torch.records import recorded_reports
from redalg.torch.report import GraphReport
from tests.graphs.test_padding import weighted
from tests.torch.test_aten import Called, Decoder, check_gradients, drawn

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
PREDICTED = {"redalg.gate": "predicted"}


def compiled(model: nn.Module, *given: torch.Tensor, **options: Any) -> tuple[Any, list[GraphReport]]:
    """What a compiled model returns, and the reports of its graphs."""
    with recorded_reports() as reports:
        return torch.compile(model, backend="redalg", **options)(*given), reports


def normed(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * (x.var(-1, keepdim=True) + 1e-5).rsqrt()


def test_a_model_has_its_groups_in_it() -> None:
    torch.manual_seed(0)
    model, given = Decoder().eval(), drawn(2, 9, 24)
    with torch.no_grad():
        found, [report] = compiled(model, given, options=PREDICTED)
        torch.testing.assert_close(found, model(given), rtol=1e-5, atol=1e-5)
    assert [one.decision.is_put for one in report.groups] == [True] * 3
    assert "3 of 3 groups put" in report.summary
    assert any("softmax" in line for line in report.groups[1].lines)
    assert "exp(" in str(report)


def test_products_that_are_padded_for_a_library_are_a_group() -> None:
    """As Inductor pads them for a GPU: the region holds the padded products, and the operator what was padded."""
    given = drawn(4, 7, 6), drawn(4, 6, 5), drawn(4, 5, 3)
    with torch.no_grad():
        found, [report] = compiled(Called(weighted), *given, options=PREDICTED)
    torch.testing.assert_close(found, weighted(*given), rtol=1e-5, atol=1e-5)
    [group] = report.groups
    assert group.decision.is_put
    assert (len(group.group.reads), len(group.group.reductions)) == (3, 4)


@pytest.mark.parametrize(
    "made",
    [
        lambda: nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 16), nn.Softmax(-1)),
        pytest.param(Decoder, marks=pytest.mark.slow),
    ],
    ids=["layers", "Decoder"],
)
def test_gradients_flow_through_groups(made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, given = made(), drawn(2, 9, 24)
    found, reports = compiled(model, given, options=PREDICTED)
    check_gradients(model, given, found, 1e-5)
    assert any(one.decision.is_put for report in reports for one in report.groups)


class Causal(nn.Module):
    """Heads of causal weights, and means over places: all of it depends on how many places there are."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, 2, 8).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        places = torch.arange(length, device=x.device)
        scores = (q @ k.mT / 4).masked_fill(places[:, None] < places, float("-inf"))
        made = self.norm(x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return made.softmax(-1), made.mean(1)


def test_groups_take_sizes_that_vary() -> None:
    torch.manual_seed(0)
    model = Causal().eval()
    run = torch.compile(model, backend="redalg", dynamic=True, options=PREDICTED)
    with torch.no_grad(), recorded_reports() as reports:
        for batch, length in ((3, 12), (3, 17), (2, 33)):
            given = drawn(batch, length, 16)
            for found, wanted in zip(run(given), model(given), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    [report] = reports  # one compilation serves all lengths
    assert [one.decision.is_put for one in report.groups] == [True, False, False]
    assert "for which its kernel is compiled anew" in report.groups[1].decision.reason


def test_norms_of_any_number_of_rows_are_groups() -> None:
    """Rows of 16 numbers, however many: one kernel serves all. Where rows have any length, each has one of its own."""
    models = {
        "rows": nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 24), nn.Softmax(-1)),
        "lengths": Called(lambda x: x.softmax(1)),
    }
    put = dict[str, list[bool]]()
    for name, model in models.items():
        run = torch.compile(model.eval(), backend="redalg", dynamic=True, options=PREDICTED)
        with torch.no_grad(), recorded_reports() as reports:
            for rows, length in ((3, 12), (30, 17), (2, 150)):
                given = drawn(rows, length, 16) if name == "rows" else drawn(rows, length)
                torch.testing.assert_close(run(given), model(given), rtol=1e-5, atol=1e-6)
        put[name] = [one.decision.is_put for report in reports for one in report.groups]
        assert len([report for report in reports if report.groups]) == 1
    assert put == {"rows": [True, True], "lengths": [False]}


@pytest.mark.gpu
def test_sizes_vary_on_a_gpu() -> None:
    torch.manual_seed(0)
    model = Causal().eval().cuda()
    options = {**PREDICTED, backend.SUBPROGRAMS: False}  # a subprogram would hold what the groups do
    run = torch.compile(model, backend=backend.compile_graph, dynamic=True, options=options)
    with torch.no_grad(), recorded_reports() as reports, torch.device("cuda"):
        for batch, length in ((3, 48), (3, 130), (2, 33), (2, 257)):
            given = torch.randn(batch, length, 16)
            for found, wanted in zip(run(given), model(given), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert [one.decision.is_put for report in reports for one in report.groups] == [True, False, False]


@pytest.mark.slow
def test_a_group_of_sizes_that_vary_is_measured_at_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    drew = Mock(wraps=regions.draw_like)
    monkeypatch.setattr(regions, "draw_like", drew)
    model, given = Causal().eval(), drawn(3, 12, 16)
    run = torch.compile(model, backend="redalg", dynamic=True)
    with torch.no_grad(), recorded_reports() as reports:
        torch.testing.assert_close(run(given)[0], model(given)[0], rtol=1e-5, atol=1e-6)
    assert {tuple(call.args[0].shape) for call in drew.call_args_list} == {(36, 48)}
    assert [one.decision.fused_us is not None for one in reports[0].groups] == [True, False, False]


def test_constants_are_inputs() -> None:
    table = torch.arange(20.0)
    given = drawn(6, 20)
    found, [report] = compiled(
        Called(lambda x: normed(x * torch.tensor([*range(20)]) + table)), given, options=PREDICTED
    )
    torch.testing.assert_close(found, normed(given * torch.arange(20) + table), rtol=1e-4, atol=1e-4)
    assert not report.failure
    assert report.groups


def test_a_tensor_that_is_changed_in_place_stays_with_inductor() -> None:
    def step(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        made = normed(x + cache)
        cache.add_(1)
        return made

    given, cache = drawn(6, 20), drawn(6, 20)
    wanted = normed(given + cache)
    kept = cache.clone()
    found, [report] = compiled(Called(step), given, cache, options=PREDICTED)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(cache, kept + 1)
    assert all("changes in place" in one.decision.reason for one in report.groups)


def test_a_group_reads_one_of_several_results() -> None:
    """As those of topk: the part of the graph about the group takes it by the name that the program has for it."""
    model, given = Called(lambda x: (x - x.mean(-1, keepdim=True)).topk(3, largest=False)[0].softmax(-1)), drawn(6, 20)
    found, [report] = compiled(model, given, options=PREDICTED)
    torch.testing.assert_close(found, model(given), rtol=1e-5, atol=1e-5)
    assert not report.failure
    assert any("topk_0" in one.group.reads for one in report.groups)


# ---- the gate --------------------------------------------------------------------------------------------------------


def test_a_group_that_is_slower_is_left_to_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted operator that waits: its region is measured, and the group is dropped."""
    forward = again.outputs_of

    def slow(*given: Any, **named: Any) -> Any:
        torch.randn(400, 400).matmul(torch.randn(400, 400))
        return forward(*given, **named)

    monkeypatch.setattr(operators, "outputs_of", slow)
    given = drawn(6, 20)
    found, [report] = compiled(Called(normed), given)
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    [group] = report.groups
    assert not group.decision.is_put
    assert (group.decision.fused_us or 0) > (group.decision.plain_us or 0) > 0
    assert "left to Inductor" in str(report)


def test_operators_of_a_graph_are_not_autograds(monkeypatch: pytest.MonkeyPatch) -> None:
    after = Mock(wraps=stitch.leave_autograd)
    monkeypatch.setattr(backend, "leave_autograd", after)
    found, _ = compiled(Called(normed), given := drawn(6, 20), options=PREDICTED)
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    [[graph]] = [call.args for call in after.call_args_list]
    names = {str(node.target) for node in graph.nodes}
    assert {name for name in names if name.startswith("redalg")} == {"redalg.compute_only.default"}


def test_a_decision_is_kept_for_other_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = drawn(6, 20)
    compiled(Called(normed), given)
    [path] = (tmp_path / "graphs").iterdir()
    assert path.parent.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(gate, "measure_region", lambda *_: pytest.fail("it was measured before"))
    torch._dynamo.reset()
    with inductor.patch(force_disable_caches=True):
        _, [report] = compiled(Called(normed), given)
    assert report.groups[0].decision == decisions.read_decision(path)


def test_a_mean_of_16_bits_is_near_in_32() -> None:
    """PyTorch rounds x + y to 16 bits before it sums; the group's float32 mean is nearer to the true one."""

    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = (x + y).float()
        mean = total.mean(-1, keepdim=True)
        return (total - mean).bfloat16(), mean

    given = [drawn(64, 768).bfloat16() for _ in range(2)]
    _, [report] = compiled(Called(model), *given, options=PREDICTED)
    assert [one.decision.is_put for one in report.groups] == [True]


def test_a_trial_draws_variances_that_are_not_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch norm's: the root of a negative number is none, and what is none with and without a group says nothing."""
    near = Mock(wraps=gate.is_near)
    monkeypatch.setattr(gate, "is_near", near)
    model = Called(lambda x, mean, variance: ((x - mean) / (variance + 1e-5).sqrt()).relu().mean(-1))
    _, [report] = compiled(model, drawn(6, 20), drawn(20), drawn(20).abs(), options=PREDICTED)
    assert [one.decision.is_put for one in report.groups] == [True]
    assert all(call.args[1].isfinite().all() for call in near.call_args_list)


def test_regions_that_are_alike_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Mock(side_effect=gate.measure_region)
    monkeypatch.setattr(gate, "measure_region", measure)
    weight = drawn(20, 20)
    model = Called(lambda x: normed(normed(normed(x @ weight) @ weight) @ weight))
    _, [report] = compiled(model, drawn(6, 20))
    assert len(report.groups) == 3
    assert measure.call_count == 1
    assert len({one.decision for one in report.groups}) == 1


@pytest.mark.slow
def test_the_kernels_of_regions_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """By processes of their own, before the first trial; the trials find them in the cache."""
    monkeypatch.setattr(ahead, "runs_kernels", lambda _: True)
    monkeypatch.setattr(dispatch, "default_backend", lambda _: "tilelang")
    submit, load = Mock(side_effect=compiling.Compilers.submit), Mock(side_effect=compile_source)
    monkeypatch.setattr(compiling.Compilers, "submit", lambda *job: submit(*job))  # noqa: PLW0108 - a mock is no method
    monkeypatch.setattr("redalg.runtime.call.kernels.compile_source", load)
    with torch.no_grad():
        weight = drawn(24, 36)
        _, [report] = compiled(Called(lambda x: normed(normed(x) @ weight)), drawn(11, 24), options=PREDICTED)
    before, after = {call.args[1] for call in submit.mock_calls}, {call.args[0] for call in load.mock_calls}
    assert len(before) > 1
    assert before == after
    assert all(one.decision.is_put for one in report.groups)


def test_a_region_for_which_memory_lacks_is_tried_another_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    def measure(*_: Any, **__: Any) -> Decision:
        raise torch.OutOfMemoryError("tried to allocate 80 GiB")

    given = drawn(6, 20)
    with monkeypatch.context() as patch:
        patch.setattr(gate, "measure_region", measure)
        found, [report] = compiled(Called(normed), given)
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    assert str(report.groups[0].decision) == "left to Inductor: OutOfMemoryError: tried to allocate 80 GiB"
    assert not (tmp_path / "graphs").exists()


WRONG = {
    "empty": "",
    "cut off": "{",
    "no table": "[]",
    "of another format": '{"format": "redalg decision, 0"}',
    "of other kinds": '{"format": "redalg decision, 2", "is_put": 1, "fused_us": 1.0, "plain_us": 2.0, "reason": ""}',
}


@pytest.mark.parametrize("name", WRONG)
def test_a_decision_that_cannot_be_read_is_made_anew(name: str, tmp_path: Path) -> None:
    path = tmp_path / "graphs" / "one.json"
    assert decisions.read_decision(path) is None
    decisions.write_decision(path, Decision(is_put=True, fused_us=1.0, plain_us=2.0))
    assert decisions.read_decision(path) == Decision(is_put=True, fused_us=1.0, plain_us=2.0)
    path.write_text(WRONG[name])
    assert decisions.read_decision(path) is None


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["import_graph", "explore", "calls_of", "stitch"])
def test_whatever_fails_inductors_code_runs(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(groups, fails, failing)
    given = drawn(6, 20)
    with caplog.at_level(logging.WARNING, "redalg.torch"):
        found, [report] = compiled(Called(normed), given, options=PREDICTED)
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    assert report.failure == "RuntimeError: planted"
    assert [one.message for one in caplog.records].count(
        "a graph is left to Inductor as it is: RuntimeError: planted") == 1  # fmt: skip


def test_the_time_to_find_groups_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "redalg.torch"):
        _, [report] = compiled(Called(normed), drawn(6, 20), options=PREDICTED)
    assert 0 < report.explored_s < report.seconds
    assert f"in {report.seconds:.1f} s, of these {report.explored_s:.1f} s to find groups" in caplog.text


def test_a_version_that_was_not_tested_is_inductors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backend, "LAST", (2, 10))
    given = drawn(6, 20)
    with caplog.at_level(logging.WARNING, "redalg.torch"):
        found, reports = compiled(Called(normed), given)
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    assert not reports
    assert "Inductor compiles the model alone" in caplog.text


def test_groups_beyond_the_budget_are_left_to_inductor(tmp_path: Path) -> None:
    given = drawn(6, 20)
    found, [report] = compiled(Called(normed), given, options={"redalg.budget_s": 0})
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    assert [one.decision.reason for one in report.groups] == ["the budget for measurements was spent before it"]
    assert not (tmp_path / "graphs").exists()


@pytest.mark.parametrize("budget", [-1, "60", True, float("nan")])
def test_a_budget_is_a_number_of_seconds(budget: Any) -> None:
    with pytest.raises(Exception, match="should be a number of seconds, at least 0"):
        compiled(Called(normed), drawn(6, 20), options={"redalg.budget_s": budget})


def test_parts_of_results_without_values_get_them() -> None:
    """As those of the softmax that Inductor prepares on a GPU."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    both = graph.call_function(torch.ops.prims.prepare_softmax_online.default, (x, -1))
    parts = [graph.call_function(operator.getitem, (both, place)) for place in (0, 1)]
    graph.output(tuple(parts))
    given = drawn(6, 20)
    with torch._subclasses.FakeTensorMode() as mode:
        x.meta["val"] = mode.from_tensor(given)
        both.meta["val"] = torch.ops.prims.prepare_softmax_online(x.meta["val"], -1)
    groups.complete_values(graph)
    found = interpret_program(import_graph(graph).program, {"x": given})
    wanted = given.amax(-1, keepdim=True)
    torch.testing.assert_close(list(found.values()), [wanted, (given - wanted).exp().sum(-1, keepdim=True)])


def test_an_unknown_word_for_the_gate_is_refused() -> None:
    with pytest.raises(Exception, match="the gate should be one of 'measured', 'replayed', 'predicted'"):
        compiled(Called(normed), drawn(6, 20), options={"redalg.gate": "fast"})


# ---- beside Inductor -------------------------------------------------------------------------------------------------


class Counts(CustomGraphPass):
    """A user's pass."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.count += 1

    def uuid(self) -> str:
        return "counts"


def test_a_users_own_pass_runs_first() -> None:
    own = Counts()
    _, [report] = compiled(Called(normed), drawn(6, 20), options={**PREDICTED, "post_grad_custom_post_pass": own})
    assert own.count == 1
    assert report.groups


def test_modes_and_options_are_inductors() -> None:
    given = drawn(6, 20)
    found, _ = compiled(Called(normed), given, mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)


def test_the_key_of_the_cache_holds_what_the_pass_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    key = GroupPass("measured").uuid()
    assert key == GroupPass("measured").uuid()
    assert key != GroupPass("predicted").uuid()
    assert key != GroupPass("measured", 500).uuid()
    assert key != GroupPass("measured", others=Counts()).uuid()
    assert GroupPass("measured", others=lambda graph: None).uuid() is None
    monkeypatch.setattr(backend, "sources_digest", lambda: "other sources")
    assert key != GroupPass("measured").uuid()


def test_a_norm_of_16_bits_is_written_in_16_bits() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.Linear(24, 24)).bfloat16().eval()
    given = drawn(6, 24).bfloat16()
    with torch.no_grad():
        found, [report] = compiled(model, given, options=PREDICTED)
        torch.testing.assert_close(found, model(given), rtol=2e-2, atol=2e-2)
    [group] = report.groups
    assert group.decision.is_put
    assert [name.startswith("convert_element_type") for name in group.group.writes] == [True]
