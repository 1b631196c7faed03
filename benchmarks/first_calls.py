"""Time until a model's first result in processes of their own, and the groups that are looked for in them.

cold     a process with empty caches: from torch.compile to the first result
second   a process that finds the caches of the first: it should explore nothing

python -m benchmarks.first_calls ROW CONTESTANT [--profiled]    such a process: a line of JSON on its output

With `--profiled` one call more is made, of which alone a profiler is told, after calls that it does not see.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from benchmarks import models
from benchmarks.cold import bytecode
from benchmarks.compete import OWN
from benchmarks.environment import ROOT, device
from benchmarks.family import Row
from benchmarks.markdown import Table
from redalg.torch import groups
from redalg.torch.stitch import calls_of
from redalg.torch.subprograms import subprogram_calls

LIMIT_S = 1200
"""Seconds after which a process is ended."""
WARM_UP_CALLS = 3
SECOND = f"{OWN}, second process"
BEYOND_S = 30.0
"""The most seconds that a first call may take beyond Inductor's."""
CACHES = ("REDALG_CACHE_DIR", "TILELANG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
FAILED = {"failure": "its process said nothing"}


# ---- a process -------------------------------------------------------------------------------------------------------


@contextmanager
def counted_groups() -> Iterator[list[int]]:
    """Within it, the number of groups and of subprograms that each exploration of a graph finds."""
    found = list[int]()

    def counting(find: Callable[..., Any], calls_among: Callable[[Any], Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            result = find(*given)
            found.append(len(calls_among(result)))
            return result

        return count

    own = counting(calls_of, lambda calls: calls)
    small = counting(subprogram_calls, lambda result: result[1])
    with patch.object(groups, "calls_of", own), patch.object(groups, "subprogram_calls", small):
        yield found


def first_call(name: str, contestant: str, *, profiled: bool) -> dict[str, Any]:
    """Seconds until a contestant's first result of a row, and the groups that it looked for."""
    where = device()
    row, model = row_of_name(name, where)
    made, x = models.drawn_model(row, model, where)
    with torch.set_grad_enabled(model.trained), counted_groups() as explored:
        run = models.run_of(made, model, x)
        dtype = getattr(torch, row.dtypes["x"])
        made, x = made.to(dtype), x.to(dtype)
        synchronize(where)
        start = time.perf_counter()
        prepare = models.contestants_of(model, autotuned=True)[contestant]
        prepare = partial(prepare, cached=True) if prepare is models.own_graph else prepare
        call, reports = prepare(run, made, x)
        synchronize(where)
        found = {"first_call_s": round(time.perf_counter() - start, 2), "explored_groups": sum(explored),
                 "explored_s": round(sum(one.explored_s for one in reports), 2)}  # fmt: skip
        if profiled:
            show_profiler(partial(call, x))
    return found


def row_of_name(name: str, where: torch.device) -> tuple[Row, models.Model]:
    """A row of this device's models, and its model."""
    known, dtype = models.models_of(where)
    return next((row, model) for row, model in models.rows_of(known, dtype) if row.name == name)


def synchronize(where: torch.device) -> None:
    """Wait for the device."""
    if where.type == "cuda":
        torch.cuda.synchronize()


def show_profiler(call: Callable[[], object]) -> None:
    """Make a call that a profiler is told of, after some that it is not."""
    for _ in range(WARM_UP_CALLS):
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


# ---- its parent ------------------------------------------------------------------------------------------------------


def command_of(row: str, contestant: str, *, profiled: bool = False) -> list[str]:
    """The command of a process."""
    return [sys.executable, "-m", "benchmarks.first_calls", row, contestant, *(["--profiled"] if profiled else [])]


def result_of(command: list[str], caches: Mapping[str, str]) -> dict[str, Any]:
    """The figures of a process, and how long it took from outside; its failure if it has none."""
    start = time.perf_counter()
    try:
        done = subprocess.run(command, env={**os.environ, **caches}, cwd=ROOT, capture_output=True, text=True,
                              check=False, timeout=LIMIT_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failure": f"it was ended after {LIMIT_S} s"}
    seconds = round(time.perf_counter() - start, 2)
    if done.returncode:
        return {"failure": "\n".join(done.stderr.strip().splitlines()[-1:]) or FAILED["failure"]}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {**json.loads(lines[-1]), "process_s": seconds} if lines else dict(FAILED)


def first_calls(row: str, model: models.Model) -> dict[str, dict[str, Any]]:
    """The first calls of Inductor and of redalg, each with empty caches, and of redalg in the next process."""
    found, known = dict[str, dict[str, Any]](), models.contestants_of(model)
    for name, contestant in ((models.PEER, models.PEER), (OWN, OWN)):
        if contestant in known:
            with tempfile.TemporaryDirectory() as folder:
                caches = {variable: f"{folder}/{variable}" for variable in CACHES} | bytecode()
                found[name] = result_of(command_of(row, contestant), caches)
                if contestant == OWN:
                    found[SECOND] = result_of(command_of(row, contestant), caches)
    return found


# ---- what is shown of them -------------------------------------------------------------------------------------------


def first_calls_table(content: Mapping[str, Any]) -> Table | None:
    """The first calls of every row that has them; None if none has."""
    rows = [(line["name"], *cells(line["first_calls"])) for line in content["rows"] if "first_calls" in line]
    header = ("row", f"{models.PEER}, s", f"{OWN}, s", "beyond, s", "second process, s", "groups explored there")
    return Table(header, rows) if rows else None


def cells(found: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The figures of a row, as text."""
    peer, own, second = (found.get(name, {}) for name in (models.PEER, OWN, SECOND))
    known = "first_call_s" in peer and "first_call_s" in own
    beyond = f"{own['first_call_s'] - peer['first_call_s']:.1f}" if known else "-"
    return seconds(peer), seconds(own), beyond, seconds(second), str(second.get("explored_groups", "-"))


def seconds(found: Mapping[str, Any]) -> str:
    """The seconds of a first call; `failed` if it has a failure."""
    return f"{found['first_call_s']:.1f}" if "first_call_s" in found else "failed" if "failure" in found else "-"


def main() -> None:
    """Make the first call of a contestant and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", metavar="ROW")
    parser.add_argument("contestant", metavar="CONTESTANT")
    parser.add_argument("--profiled", action="store_true", help="tell a profiler of one call more (on a GPU)")
    options = parser.parse_args()
    print(json.dumps(first_call(options.row, options.contestant, profiled=options.profiled)))


if __name__ == "__main__":
    main()
