"""Five hundred fixed random cascades: no raw error, no wrong result; and the fuzzer finds and shrinks what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from sympy import Abs, exp, preorder_traversal

import redalg as ra
from tests.fuzz.case import Case, Outputs, axes_of
from tests.fuzz.data import HOSTILE, Data
from tests.fuzz.executions import Executions, Finding, data_of, execute, judged, wrong
from tests.fuzz.records import GENERATORS, cases
from tests.fuzz.shrink import least, line_of, shrunk
from tests.fuzz.spell import line
from tests.fuzz.verdicts import RAW, Tally, decide
from tests.house.source import ROOT

n = ra.axes("n")
x, y, s = ra.tensors("x[b,n] y[b,n] s[b,n]")
CI, BLOCK = 500, 50
pytestmark = pytest.mark.filterwarnings("ignore")


def drawn(first: int, number: int) -> list[Case]:
    return list(islice(cases(first, [*GENERATORS]), number))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("block", range(CI // BLOCK))
def test_verdicts_are_no_raw_errors_and_results_are_right(block: int) -> None:
    tally = Executions()
    for number, case in enumerate(drawn(BLOCK // 2 * block, BLOCK)):
        decision = decide(case)
        assert decision.kind != RAW, f"{case.name}: {decision.reason}"
        if decision.kind == "Exact" and number % 6 == block % 6:
            execute(case.outputs, decision.verdict.fused, data_of(case.seed, 1), tally)
    assert [line_of(one) for one in tally.findings] == []
    assert tally.ran >= 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_many_more(block: int) -> None:
    tally = Executions()
    for case in drawn(10_000 + 100 * block, 200):
        decision = decide(case)
        assert decision.kind != RAW, f"{case.name}: {decision.reason}"
        if decision.kind == "Exact":
            execute(case.outputs, decision.verdict.fused, data_of(case.seed, 2), tally)
    assert [line_of(one) for one in tally.findings] == []


@pytest.mark.slow
def test_ranks_give_what_the_whole_gives() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.fuzz.ranks", "--cases", "60", "--seed", "5000"], cwd=ROOT,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_seed_is_a_case() -> None:
    """Cases are the same on every machine, and each is read again from the line that spells it."""
    for case in drawn(300, 30):
        again = GENERATORS[case.generator](case.seed)
        assert again.outputs == case.outputs
        names: dict[str, object] = {}
        setup, call = line(case.outputs).split("; print(ra.analyze(")
        exec(setup, names)
        read = eval(call[:-2], names)
        for name, (expr, axes) in case.outputs.items():
            kinds = [one.kind for one in preorder_traversal(expr) if isinstance(one, ra.Reduce)]
            assert read[name][1] == axes
            assert {one.kind for one in preorder_traversal(read[name][0]) if isinstance(one, ra.Reduce)} == set(kinds)


def test_hostile_data_are_of_every_kind() -> None:
    for kind in HOSTILE:
        for length in (0, 1, 5):
            made = Data(3, length, kind).tensors
            assert made["x"].shape == (2, length)
    assert np.isnan(Data(3, 5, "hidden").tensors["x"]).any()
    assert Data(3, 5, "far").tensors["x"].min() > 1e7


def test_a_wrong_result_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that loses |x| is found out, and the line that shows it holds little else."""
    from tests.fuzz import executions

    right = executions.WAYS["numpy"]

    def off(run: executions.Run) -> dict[str, np.ndarray]:
        made = right(run)
        holds = any(one.term.has(Abs) for one in run.fused.cascade.reductions)
        return {name: one + 1.0 if holds else one for name, one in made.items()}

    monkeypatch.setitem(executions.WAYS, "numpy", off)
    expr = ra.sum(exp(s - ra.max(s, n)) * (y + Abs(x) * y), n) / ra.sum(exp(s - ra.max(s, n)), n)
    outputs = {"out": (expr, "b"), "more": (ra.mean(y, n), "b")}
    found = list(judged(outputs, ra.fuse(dict(outputs)), Data(0, 5, "outlier"), Executions(), ["numpy"]))
    assert [one.kind for one in found] == ["wrong"]
    small = least(found[0])
    [(only, _)] = small.outputs.values()
    assert only == ra.sum(Abs(x), n)
    assert (small.data.kind, small.data.length) == ("plain", 1)
    assert "ra.sum(Abs(x), n)" in line_of(small)


def test_shrinking_keeps_what_shows() -> None:
    def shows(outputs: Outputs) -> bool:
        return any(expr.has(x) and expr.has(y) for expr, _ in outputs.values())

    expr = ra.sum(ra.where(s > 0, (x - ra.mean(x, n)) * (y + 3), 0), n)
    [(made, axes)] = shrunk({"out": (expr, "b")}, shows).values()
    assert {one.name for one in made.atoms(ra.Element)} == {"x", "y"}
    assert made.count_ops() <= 3
    assert axes == axes_of(made)


@pytest.mark.parametrize(
    ("got", "want", "kind"),
    [(1.0, 1.0, None), (1 + 1e-9, 1.0, "digits"), (1.5, 1.0, "wrong"), (np.nan, 1.0, "lost to NaN or infinity"),
     (1.0, np.nan, "not finite, hidden"), (np.inf, np.nan, None), (0.0, np.inf, "not finite, hidden")],
)  # fmt: skip
def test_a_result_is_judged(got: float, want: float, kind: str | None) -> None:
    one, other = np.array([got]), np.array([want], np.longdouble)
    said = wrong(one, other, np.ones(1, np.longdouble), other.astype(float))
    assert (said[0] if said else None) == kind


def test_a_raw_error_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("slot")

    monkeypatch.setattr(ra, "analyze", broken)
    tally = Tally()
    tally.add(decide(Case("one_axis", 0, {"out": (ra.sum(x, n), "b")})))
    assert tally.document()["raw_errors"] == 1
    assert any("KeyError" in one for one in tally.text())


def test_the_command_writes_a_summary(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "12", "--data", "1", "--out", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(file.read_text())
    assert summary["cases"] == 12
    assert summary["findings"] == {}
    assert "12 verdicts" in done.stdout


def test_a_finding_is_one_line() -> None:
    finding = Finding({"out": (ra.sum(x, n), "b")}, Data(1, 3, "nan"), "merged", "wrong", "")
    assert "\n" not in line_of(finding)
    compile(line_of(finding), "line", "exec")


def test_a_state_of_counts_keeps_the_digits_of_what_stands_beside_them() -> None:
    """Found by the fuzzer: of integers alone, `finish` computed in float32."""
    g, t = ra.tensors("g[b,n] t[b]")
    fused = ra.fuse(ra.sum(ra.where(ra.eq(g, 1), t, 0), n), axes="b")
    given = {"g": np.ones((1, 1), int), "t": np.array([1 / 3])}
    assert fused.finish(fused.leaf(given), {"t": given["t"]}) == 1 / 3


def test_masks_that_no_element_fulfils_together_have_no_element() -> None:
    """Found by the fuzzer: a choice inside a mask by what the mask excludes."""
    inside = ra.where(ra.logical_and(x > 0, ra.sum(ra.where(x > 0, y, 0), n) > 1), y, ra.sum(ra.where(x > 0, y, 0), n))
    fused = ra.fuse(ra.sum(ra.where(x > 0, inside, 0), n), axes="b")
    given = {"x": np.array([[1.0, -1, 2], [1, -1, 2]]), "y": np.array([[1.0, np.nan, 2], [0.25, np.inf, 0.25]])}
    assert fused(**given).tolist() == fused.reference(**given).tolist() == [3, 1]
