"""The page of published tables: what the papers state is what their tables give, and empty cells are named."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.compete import OWN
from benchmarks.first_calls import SECOND
from benchmarks.models import AUTOTUNED, MODELS, PEER, PLAIN
from benchmarks.papers.aims import BYTES, KERNELS, MEANS, SPEEDUPS, Aim, aims
from benchmarks.papers.figures import (
    FUSED,
    SOUFFLE,
    STATED_BY_SOUFFLE,
    STATED_BY_STITCHING,
    STITCHED,
)
from benchmarks.papers.measured import arithmetic, geometric, rows_by_name
from benchmarks.papers.page import page


def test_what_souffle_states_are_arithmetic_means() -> None:
    for name, stated in STATED_BY_SOUFFLE.items():
        found = [one.ms[name] / one.ms[SOUFFLE] for one in FUSED]
        assert arithmetic(found) == pytest.approx(stated, abs=0.06)
        assert (geometric(found) or 0) < 0.8 * stated
    assert [one.model for one in FUSED if one.ms[SOUFFLE] != one.levels_ms[-1]] == ["EfficientNet"]
    assert all(min(one.ms.values()) == one.ms[SOUFFLE] for one in FUSED)


def test_what_fusionstitching_states_are_arithmetic_means() -> None:
    over = {"XLA": [one.xla.ms / one.own.ms for one in STITCHED],
            "TensorFlow": [one.tensorflow.ms / one.own.ms for one in STITCHED]}  # fmt: skip
    assert {name: round(arithmetic(found) or 0, 2) for name, found in over.items()} == STATED_BY_STITCHING
    share = arithmetic(one.own.kernels / one.xla.kernels for one in STITCHED)
    assert share == pytest.approx(0.38, abs=0.005)  # section 7.3: 38.0 % of XLA's memory-intensive kernels
    assert all(run.kernels < run.calls for one in STITCHED for run in (one.tensorflow, one.xla, one.own))


def test_rows_of_the_page_are_rows_of_the_benchmark() -> None:
    known = {f"{name}-x{batch}" for name, model in MODELS.items() for batch in (1, model.batch)}
    named = {one.row for one in (*STITCHED, *FUSED) if one.row} | {*KERNELS, *BYTES, *SPEEDUPS}
    assert named | {row for rows, _ in MEANS.values() for row in rows} <= known


def test_without_results_every_cell_is_empty_and_named() -> None:
    text = page(None, None)
    assert "| BERT, 32 | 1.15, 1.68 | 365 → 277 → 77 | BERT-384-x32 |  |  |  | 12 layers, 384 tokens |" in text
    assert "| MMoE | 20.71 | 5.00 | MMoE-x1 |  | – |  |  | float32 |" in text
    assert "time of BERT-384-trained-x32, BERT-384-x32, CRNN-x32, DIEN-x32;" in text
    assert "Not measured yet: BERT; ResNeXt; LSTM; EfficientNet; Swin; MMoE." in text
    assert "(arithmetic 7.78, geometric 5.27): they are the arithmetic ones" in text
    assert "redalg's over Inductor: not measured yet" in text
    assert {aim.verdict for aim in aims(rows_by_name(None))} == {"not measured yet"}


def line(name: str, own_us: float, **others: float) -> dict[str, Any]:
    """A row whose contestants take so many microseconds."""
    times = {OWN: own_us, **others}
    return {"name": name, "contestants": {key: {"median_us": value, "method": "cuda graph"}
                                          for key, value in times.items()}}  # fmt: skip


def measured() -> dict[str, Any]:
    """A document with a row of everything."""
    bert = line("BERT-384-x1", 500.0, **{PEER: 600.0, AUTOTUNED: 550.0, PLAIN: 1000.0})
    bert["contestants"][PLAIN]["method"] = "cuda events"
    for name, kernels in ((OWN, 120), (PEER, 150), (PLAIN, 700)):
        bert["contestants"][name]["launches"] = {"kernels": kernels, "copies": 0}
    bert["contestants"][OWN]["counted_bytes"], bert["contestants"][PEER]["counted_bytes"] = 450_000_000, 550_000_000
    bert["profile"] = {OWN: {"launches": 120, "dram_bytes": 180_000_000, "l2_bytes": 500_000_000},
                       PEER: {"launches": 150, "dram_bytes": 200_000_000, "l2_bytes": 600_000_000}}  # fmt: skip
    bert["first_calls"] = {PEER: {"first_call_s": 11.0}, OWN: {"first_call_s": 45.0}, SECOND: {"explored_groups": 0}}
    return {"rows": [bert, line("LSTM-10x100-x1", 700.0, cuDNN=3000.0)]}


def test_what_was_measured_stands_beside() -> None:
    levels = {f"V{place}": {"kernels": 50 - place, "bytes": 72_720, "time_us": None} for place in range(5)}
    text = page(measured(), {"rows": [{"name": "MMoE", "levels": levels}]})
    assert "| BERT | 2.09 | 1.07 | BERT-384-x1 | 1.20 | 1.10 | 2.00* | 0.5 | 384 tokens, bfloat16 |" in text
    assert "| LSTM-10x100-x1 | – | – | 4.29 | 0.7 |" in text
    assert "| BERT-384-x1 | 700 → 150 → 120 | 550 → 450 | 200 → 180 | 600 → 500 |" in text
    assert "| MMoE | kernels | 50 | 49 | 48 | 47 | 46 |" in text
    assert "| MMoE | µs |  |  |  |  |  |" in text
    assert "Not measured yet: BERT; ResNeXt; LSTM; EfficientNet; Swin. Counted without times" in text
    found = {(aim.quantity, aim.row): aim.verdict for aim in aims(rows_by_name(measured()))}
    assert found["kernels of a call", "BERT-384-x1"] == "kept"
    assert found["bytes to and from memory, over Inductor's", "BERT-384-x1"] == "kept"
    assert found["bytes as Inductor counts them, over Inductor's", "BERT-384-x1"] == "kept"
    assert found["seconds of a first call beyond Inductor's", "BERT-384-x1"] == "missed"
    assert found["groups that a second process looks for", "BERT-384-x1"] == "kept"
    assert found["µs of a call", "LSTM-10x100-x1"] == "kept"
    assert found["kernels of a call", "GPT-2-x1"] == "not measured yet"


@pytest.mark.parametrize(("found", "verdict"), [(1.2, "missed"), (1.3, "kept"), (None, "not measured yet")])
def test_an_aim_may_be_a_least_figure(found: float | None, verdict: str) -> None:
    assert Aim("speedup", "a row", 1.3, found, at_least=True).verdict == verdict
