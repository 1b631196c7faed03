"""Process replay: the source of every kernel of the tests and of the benchmarks, before and after a change.

    python -m tests.replay write                 the committed list: a line for every kernel, with its source's hash
    python -m tests.replay diff BEFORE [AFTER]   the sources of two commits, each in a worktree of its own, as a diff
    python -P tests/replay.py sources FILE       the sources of the tree in which it is run, as JSON

A commit is asked through `fuse` and `source` alone, and through the cases that it holds, so that moved files do not
matter. The docstring of a source, which prints a version and a plan, is left out of its hash and of the diff.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "golden" / "replay" / "kernels.txt"
KINDS = (("c", "float32"), ("sm_90a", "float32"), ("sm_90a", "float16"))
"""Target and dtype of a test case's kernels."""
CARD = "H200"
DOCSTRING = re.compile(r'^(?:"""|\'\'\').*?(?:"""|\'\'\')', re.DOTALL | re.MULTILINE)
Source = dict[str, str]
"""The plan and the text of a kernel, or its error."""


def case_sources(target: str, dtype: str) -> dict[str, Source]:
    """The kernels of the tests' cases, by name."""
    import torch

    tests = kernel_cases()
    found = {}
    for case in tests.CASES:
        form = tests.fused(case.form)
        given = tests.cast(tests.tensors_of(case), getattr(torch, dtype))
        options = tests.problem(form, given, case.sizes) | {"empty": case.empty}
        found[f"case {case.name} {target} {dtype}"] = source_of(form, target, options)
    return found


def kernel_cases() -> ModuleType:
    """The module of the tests' cases, where the commit has it."""
    try:
        return import_module("tests.cases.kernels")
    except ModuleNotFoundError as error:
        if error.name != "tests.cases.kernels":
            raise
        return import_module("tests.kernel_cases")


def row_sources(name: str) -> dict[str, Source]:
    """The kernels of a family's rows, by name; those of a row that runs several functions are numbered."""
    import torch

    from benchmarks.families import FAMILIES

    family, found = FAMILIES[name], {}
    for row in family.rows(torch.device("cuda")):
        problems = problems_of(family, row)
        for place, (form, sizes, dtypes, shapes) in enumerate(problems):
            options = {"sizes": sizes, "dtypes": dtypes, "shapes": shapes}
            number = f" {place}" if len(problems) > 1 else ""
            found[f"row {name} {row.name}{number}"] = source_of(form, CARD, options)
    return found


def problems_of(family: Any, row: Any) -> Sequence[Any]:
    """The functions of a row, with sizes, dtypes and shapes: in a commit before families told them, one."""
    if not hasattr(family, "problems"):
        return [(family.fused(row), row.sizes, row.dtypes, row.shapes)]
    found: Sequence[Any] = family.problems(row)
    return found


def source_of(form: Any, target: str, options: Mapping[str, Any]) -> Source:
    """What `source` gives, or how it refuses."""
    try:
        return {"text": without_docstring(form.source(target, **options))}
    except Exception as error:  # noqa: BLE001 - a refusal is what is compared
        return {"text": f"{type(error).__name__}: {error}\n"}


def without_docstring(text: str) -> str:
    """A source without the docstring that it begins with; of several passes, without that of each."""
    return DOCSTRING.sub("", text).lstrip("\n")


def part(task: tuple[str, ...]) -> dict[str, Source]:
    """The sources of a task: of a target and a dtype, or of a family."""
    warnings.simplefilter("ignore")
    return case_sources(*task) if len(task) == 2 else row_sources(*task)


def sources(workers: int) -> dict[str, str]:
    """Every source of the tree that is imported, by the name of its kernel."""
    from benchmarks.families import FAMILIES

    tasks: list[tuple[str, ...]] = [*KINDS, *((name,) for name in FAMILIES)]
    found: dict[str, str] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for made in pool.map(part, tasks):
            found |= {name: one["text"] for name, one in made.items()}
    return dict(sorted(found.items()))


def listed(found: Mapping[str, str]) -> str:
    """A line for every kernel: the hash of its source, how many lines that has, and its name."""
    lines = [f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {text.count(chr(10)):4} {name}"
             for name, text in found.items()]  # fmt: skip
    return "\n".join(lines) + "\n"


def sources_at(commit: str, workers: int) -> dict[str, str]:
    """The sources of a commit, in a worktree of its own; of the tree as it stands for `.`."""
    with tempfile.TemporaryDirectory() as folder:
        tree, out = ROOT, Path(folder, "sources.json")
        if commit != ".":
            tree = Path(folder, "tree")
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            command = [sys.executable, "-P", __file__, "sources", str(out), "--workers", str(workers)]
            settings = {**os.environ, "PYTHONPATH": str(tree), "REDALG_CACHE_DIR": str(Path(folder, "cache"))}
            settings.pop("REDALG_TUNED", None)  # with the plans that are shipped, and none of this machine
            subprocess.run(command, cwd=tree, check=True, env=settings)
            return dict(json.loads(out.read_text(encoding="utf-8")))
        finally:
            if commit != ".":
                subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """What differs between two sets of sources, as lines; texts that change alike are shown once."""
    shown: dict[str, list[str]] = {}
    for name in sorted({*before, *after}):
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
            shown.setdefault("\n".join(list(lines)[2:]), []).append(name)
    for text, names in shown.items():
        yield from (f"=== {name}" for name in names)
        yield text
    yield f"{sum(map(len, shown.values()))} of {len({*before, *after})} sources differ"


def main() -> int:
    """Do what is asked; `diff` exits with 1 where sources differ."""
    parser = argparse.ArgumentParser("tests.replay", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("write", "diff", "sources"))
    parser.add_argument("given", nargs="*", help="the commits to compare (`.` for the tree as it stands), or the file")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.what == "sources":
        Path(asked.given[0]).write_text(json.dumps(sources(asked.workers)), encoding="utf-8")
        return 0
    if asked.what == "write":
        LIST.parent.mkdir(parents=True, exist_ok=True)
        LIST.write_text(listed(sources_at(".", asked.workers)), encoding="utf-8")
        return 0
    before, after = [*asked.given, "."] if len(asked.given) == 1 else asked.given
    lines = list(difference(sources_at(before, asked.workers), sources_at(after, asked.workers)))
    print("\n".join(lines))
    return int(len(lines) > 1)


if __name__ == "__main__":
    sys.exit(main())
