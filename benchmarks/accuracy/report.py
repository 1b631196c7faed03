"""The document of errors, and the table made from it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.accuracy.case import Error, Judged, Result
from benchmarks.compete import OWN
from benchmarks.report import Document
from redalg.strategies.table import Table


def document(
    name: str, where: Mapping[str, object], results: Sequence[Result], hashes: Sequence[str | None],
    seconds: Mapping[str, float],
) -> Document:  # fmt: skip
    """Every error of every contestant, and where it was taken."""
    cases = [entry(one, digest) for one, digest in zip(results, hashes, strict=True)]
    return {"benchmark": f"accuracy, {name}", "environment": dict(where), "seconds": dict(seconds), "cases": cases}


def entry(result: Result, digest: str | None) -> dict[str, Any]:
    case = result.case
    return {
        "row": case.row.name, "kind": case.kind, "ok": result.ok, "sizes": dict(case.row.sizes),
        "shapes": {name: list(shape) for name, shape in result.shapes.items()}, "dtypes": dict(result.dtypes),
        "options": dict(case.options), "source_sha256": digest, "seconds": round(result.seconds, 3),
        "outputs": {name: output(one) for name, one in result.outputs.items()}, "failures": dict(result.failures),
    }  # fmt: skip


def output(judged: Judged) -> dict[str, Any]:
    return {"dtype": judged.dtype, "ok": judged.ok, "allowed": written(judged.allowed),
            "errors": {name: written(each) for name, each in judged.errors.items()}}  # fmt: skip


def written(error: Error) -> dict[str, float]:
    """Four digits of each: a verdict is told beside them, and is not taken from them again.

    >>> written(Error(3.2480751489171895e-07, 0.0))
    {'max': 3.248e-07, 'rms': 0.0}
    """
    return {name: float(f"{value:.4g}") for name, value in asdict(error).items()}


def table(content: Document) -> Table:
    """A line for each output: redalg's errors, what was allowed, and the verdict with the strongest peer's error."""
    where = content["environment"]
    rows = list[tuple[str, ...]]()
    for case in content["cases"]:
        name = f"{case['row']}, {case['kind']}"
        for output, found in case["outputs"].items():
            said = f"{'ok' if found['ok'] else 'NOT OK'}; {strongest(found, 'max')}"
            rows.append((f"{name}, {output}", *figures(found, "max"), said))
        if not case["outputs"]:
            rows.append((name, "-", "-", "NOT RUN"))
    right = sum(case["ok"] for case in content["cases"])
    title = f"{content['benchmark']} on {where['device']}, torch {where['versions']['torch']}"
    columns = ("row, inputs, output", "max error", "allowed", "verdict; strongest peer")
    note = f"{right} of {len(content['cases'])} cases ok; root mean squares are judged too, and written by --out"
    return Table(title, columns, tuple(rows), note)


def figures(found: dict[str, Any], key: str) -> list[str]:
    """redalg's error, and what was allowed."""
    own = found["errors"].get(OWN)
    return ["-" if own is None else f"{own[key]:.1e}", f"{found['allowed'][key]:.1e}"]


def strongest(found: dict[str, Any], key: str) -> str:
    """The peer of the least error, and that error."""
    errors = {name: each[key] for name, each in found["errors"].items() if name != OWN}
    best = min(errors, key=lambda name: errors[name]) if errors else None
    return "no peer" if best is None else f"{best} {errors[best]:.1e}"


def failures(content: Document) -> list[str]:
    """Cases that are not right first, then what a peer could not do (once a row)."""
    wrong = [f"NOT OK {case['row']}, {case['kind']}: {name}: {text}"
             for case in content["cases"] for name, text in case["failures"].items()
             if name in (OWN, "the case")]  # fmt: skip
    absent = {f"{case['row']}: {name}: {text.splitlines()[0][:120]}"
              for case in content["cases"] for name, text in case["failures"].items()
              if name not in (OWN, "the case")}  # fmt: skip
    return [*wrong, *sorted(absent)]
