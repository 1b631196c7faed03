"""The benchmark of whole models: a small one runs here, and what stands in the document is not measured again."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config

from benchmarks import documents, models
from benchmarks.__main__ import main
from benchmarks.commands import models as command
from benchmarks.compete import OWN
from benchmarks.family import Row
from benchmarks.launches import bytes_of_graphs
from benchmarks.written_models import Residual


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_measured_once_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "SAMPLES", 1)
    monkeypatch.setattr(models, "REPEATS", 1)
    assert main(["models", "block-trained", "--out", str(tmp_path)]) == 0
    path = tmp_path / "models.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["name"] for row in rows] == ["block-trained-x1"]
    for row in rows:
        assert [*row["contestants"]] == [OWN, models.PEER, models.PLAIN]
        assert all(one["error"] < 1e-6 and one["median_us"] > 0 for one in row["contestants"].values())
        assert "groups put" in row["contestants"][OWN]["graphs"][0]
    monkeypatch.setattr(command, "measure_model", None)  # calling it would raise
    assert main(["models", "block-trained", "--out", str(tmp_path)]) == 0
    assert main(["report", str(path), "--out", str(tmp_path)]) == 0
    content = json.loads(path.read_text(encoding="utf-8"))
    [section] = documents.sections(documents.Results({}, {}, None, {}, models=content))
    assert "block-trained-x1" in section


def test_a_wrong_or_failing_model_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(run: models.Run, model: torch.nn.Module, x: torch.Tensor) -> models.Prepared:
        return lambda x: run(model, x) * 1.5, []

    def failing(run: models.Run, model: torch.nn.Module, x: torch.Tensor) -> models.Prepared:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(models, "own_graph", wrong)
    monkeypatch.setattr(models, "inductors_graph", failing)
    row, model = next(models.rows_of(models.SMALL, "float32"))
    result, told = models.measure_model(row, model, torch.device("cpu"))
    own, peer, plain = result.measurements.values()
    assert (own.timing, "its error is" in own.failure) == (None, True)
    assert (peer.timing, peer.failure) == (None, "RuntimeError: no such kernel")
    assert plain.timing is not None
    assert told[models.PEER] == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_bytes_are_counted_of_what_inductor_writes() -> None:
    """x·y + 1, element by element: one kernel reads both and writes one; in two operators what is between moves too."""

    def apart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.mm(x * y, y) + 1

    x, y = torch.randn(8, 8), torch.randn(8, 8)
    counts = list[Any]()
    for function in (lambda x, y: x * y + 1, apart):
        with config.patch(force_disable_caches=True), bytes_of_graphs() as found:
            torch.compile(function)(x, y)
        counts.append(found)
    assert counts == [[3 * 256], [(3 + 3 + 2) * 256]]


def test_the_longest_search_is_a_contestant_on_request() -> None:
    """Six models have it; a row that was measured without it is measured again."""
    asked = [name for name, model in models.MODELS.items()
             if models.AUTOTUNED in models.contestants_of(model, autotuned=True)]  # fmt: skip
    assert asked == ["BERT-384", "GPT-2", "Llama-like", "T5", "ViT-B", "Swin-T"]
    contestants = [*models.contestants_of(models.MODELS["T5"], autotuned=True)]
    assert contestants == [OWN, models.PEER, models.AUTOTUNED, models.PLAIN]
    assert [*models.contestants_of(models.MODELS["T5"])] == [OWN, models.PEER, models.PLAIN]


@pytest.mark.parametrize("batch", [[], ["--batches", "2"]], ids=["all", "none"])
def test_a_row_is_measured_again_for_a_further_contestant(
    batch: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[str, bool]]()

    def measured(row: Row, model: models.Model, *, autotuned: bool) -> dict[str, Any]:
        asked.append((row.name, autotuned))
        found = {name: {"error": 0.0, "failure": ""} for name in models.contestants_of(model, autotuned=autotuned)}
        return {"name": row.name, "sizes": {}, "contestants": found}

    monkeypatch.setattr(command, "measured_line", measured)
    monkeypatch.setattr(command, "first_calls", lambda *_: {OWN: {"first_call_s": 2.0}})
    monkeypatch.setitem(models.SMALL, "block", models.SMALL["block"]._replace(autotuned=True))
    for extra in (["--cold"], ["--max-autotune"], ["--max-autotune"], []):
        assert main(["models", "block", "--out", str(tmp_path), *batch, *extra]) == 0
    assert asked == ([] if batch else [("block-x1", False), ("block-x1", True)])
    rows = json.loads((tmp_path / "models.json").read_text(encoding="utf-8"))["rows"] if not batch else []
    assert [row["first_calls"][OWN] for row in rows] == [{"first_call_s": 2.0}] * len(rows)


@pytest.mark.parametrize(("name", "count"), [("ResNet-50", 25_557_032), ("ResNeXt-50", 25_028_904)])
def test_residual_networks_have_the_published_parameters(name: str, count: int) -> None:
    with torch.device("meta"):
        made = models.MODELS[name].make()
        assert made(torch.empty(2, *models.PICTURE)).shape == (2, 1000)
    assert sum(each.numel() for each in made.parameters()) == count


def test_batch_norms_are_set_by_a_batch() -> None:
    """A model that is not trained has outputs of some size, and its norms the momentum that they had."""
    model = models.Model(partial(Residual, (1, 1), 16, each=16), (3, 32, 32))
    row = Row("residual", {}, {"x": (4, *model.sample)}, {"x": "float32"})
    made, x = models.drawn_model(row, model, torch.device("cpu"))
    norms = [each for each in made.modules() if isinstance(each, nn.BatchNorm2d)]
    with torch.no_grad():
        first = norms[0](next(iter(made.children()))[0](x))  # type: ignore[index]
    assert not made.training
    assert {each.momentum for each in norms} == {0.1}
    assert float(first.mean().abs()) < 1e-3
    assert 0.98 < float(first.std()) < 1.02


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "BERT-384", "none"]) == 1
    assert "BERT-384, none is none of block, block-trained" in capsys.readouterr().out
