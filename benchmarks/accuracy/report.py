"""The document of errors, and the table made from it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.accuracy.case import Judged, Result
from benchmarks.compete import OWN
from benchmarks.report import Document


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
    return {"dtype": judged.dtype, "ok": judged.ok, "allowed": asdict(judged.allowed),
            "errors": {name: asdict(each) for name, each in judged.errors.items()}}  # fmt: skip


def table(content: Document) -> Table:
    """A line for each output: redalg's errors, the strongest peer's, what was allowed, and the verdict."""
    where = content["environment"]
    made = Table(title=f"{content['benchmark']} on {where['device']}, torch {where['versions']['torch']}")
    for column in ("row", "inputs", "output"):
        made.add_column(column)
    for column in ("max error", "strongest peer", "allowed", "rms", "strongest peer", "allowed"):
        made.add_column(column, justify="right")
    made.add_column("verdict")
    for case in content["cases"]:
        for name, found in case["outputs"].items():
            made.add_row(case["row"], case["kind"], name, *figures(found, "max"), *figures(found, "rms"),
                         "ok" if found["ok"] else "NOT OK", style=None if found["ok"] else "red")  # fmt: skip
        if not case["outputs"]:
            made.add_row(case["row"], case["kind"], *["-"] * 7, "NOT RUN", style="red")
    right = sum(case["ok"] for case in content["cases"])
    made.caption = f"{right} of {len(content['cases'])} cases ok"
    return made


def figures(found: dict[str, Any], key: str) -> list[str]:
    """redalg's, the strongest peer's with its name, and what was allowed."""
    errors = {name: each[key] for name, each in found["errors"].items()}
    own = errors.pop(OWN, None)
    best = min(errors, key=lambda name: errors[name]) if errors else None
    peer = "-" if best is None else f"{best} {errors[best]:.1e}"
    return ["-" if own is None else f"{own:.1e}", peer, f"{found['allowed'][key]:.1e}"]


def failures(content: Document) -> list[str]:
    """Cases that are not right first, then what a peer could not do (once a row)."""
    wrong = [f"NOT OK {case['row']}, {case['kind']}: {name}: {text}"
             for case in content["cases"] for name, text in case["failures"].items()
             if name in (OWN, "the case")]  # fmt: skip
    absent = {f"{case['row']}: {name}: {text.splitlines()[0][:120]}"
              for case in content["cases"] for name, text in case["failures"].items()
              if name not in (OWN, "the case")}  # fmt: skip
    return [*wrong, *sorted(absent)]
