"""The report of the cost model's fit: where its training data are from, their hash, and how well they are predicted."""

from dataclasses import asdict
from typing import Any

from benchmarks import calibrate, training
from benchmarks.agreement import Agreement
from benchmarks.drawn import Drawn, drawn
from redalg.strategies.model.cost import H200

REPORT = training.FILE.with_name("fit.json")
DIGITS = 4


def draws() -> list[Drawn]:
    """Every kernel of the training data that was drawn and measured; those of searches are not fitted to."""
    return [draw for content in training.read(training.UNIFORM, training.BEST) for draw in drawn(content)]


def document(found: list[Drawn]) -> dict[str, Any]:
    """The report, as JSON: shares and factors have `DIGITS` decimals, so that no rounding of a machine shows."""
    documents = training.read()
    places = [content["environment"] for content in documents]
    return {
        "benchmark": "fit",
        "data": {"file": training.FILE.name, "sha256": training.file_sha256(), "documents": len(documents),
                 "plans": training.counted(documents)},
        "devices": sorted({str(place["device"]) for place in places}),
        "versions": list({str(place["versions"]): place["versions"] for place in places}.values()),
        "commits": list(dict.fromkeys(str(place["commit"]) for place in places)),
        "constants": asdict(H200),
        "fitted to": len(found),
        "cost": round(calibrate.cost(found, H200), DIGITS),
        "families": {name: rounded(one) for name, one in calibrate.judged(found, H200).items()},
    }  # fmt: skip


def rounded(found: Agreement) -> dict[str, Any]:
    """The agreement of a family's predictions, and the words that `fit` prints."""
    first, top = ({row: round(value, DIGITS) for row, value in lost.items()} for lost in (found.first, found.top))
    return {"count": found.count, "correlation": round(found.correlation, DIGITS),
            "correlation_of_logs": round(found.correlation_of_logs, DIGITS), "typical": round(found.typical, DIGITS),
            "first": first, "top": top, "in words": str(found)}  # fmt: skip
