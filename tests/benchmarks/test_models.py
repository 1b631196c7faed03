"""The benchmark of whole models: a small one runs here, and what stands in the document is not measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import documents, models
from benchmarks.__main__ import main
from benchmarks.compete import OWN


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
    monkeypatch.setattr(models, "measure_model", None)  # calling it would raise
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


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "BERT-384", "none"]) == 1
    assert "BERT-384, none is none of block, block-trained" in capsys.readouterr().out
