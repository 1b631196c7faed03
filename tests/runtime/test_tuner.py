"""`Fused.tune` end to end on the C target, its compilers, its clock; and `Fused.plans`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.runtime.call import kernels
from redalg.runtime.compile import cache
from redalg.runtime.known import tuned
from redalg.runtime.tune import compiling, timing, tuner
from redalg.strategies.device import device_for
from redalg.strategies.search.search import Found, Limits, Outcome, Trial
from tests.cases.kernels import fused
from tests.sweeps import FIRST

SIZES = {"b": 1, "h": 2, "q": 32, "k": 64, "d": 16, "e": 16}
FLOATS = dict.fromkeys("QKV", "float32")


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels are found where other tests left them; what is tuned is this test's own."""
    monkeypatch.setenv(tuned.SWITCH, "on")
    monkeypatch.setattr(tuned, "PACKS", tmp_path / "packs")
    monkeypatch.setattr(tuned, "cache_file", lambda name: tmp_path / "tuned" / tuned.file_name(name))
    monkeypatch.setattr(tuner, "FEW", Limits(population=4, batch=2, patience=1))


def tensors() -> dict[str, Any]:
    shapes = {"Q": (1, 2, 32, 16), "K": (1, 2, 64, 16), "V": (1, 2, 64, 16)}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


# ---- tune ------------------------------------------------------------------------------------------------------------


def test_tuning_measures_checks_and_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "FEW", Limits(population=4, batch=2, patience=1))
    form, inputs = fused("attention"), tensors()
    before = form.lower("c", SIZES, FLOATS).plan
    result = form.tune(**inputs, budget_s=120.0)
    assert result.best is not None
    assert not result.found.failures
    assert result.trials[0].candidate == before
    measured = [trial.measured_us for trial in result.trials if trial.measured_us is not None]
    assert result.best.measured_us == min(measured)
    assert (result.card, 0 < result.wall_s < 120) == ("c", True)
    after = form.lower("c", SIZES, FLOATS).plan
    assert (after.origin, after) == ("cache", result.best.candidate)
    assert " ".join(str(result).split()).count("the rules' plan") == 1
    assert result._repr_html_().count("<tr>") == 1 + len(result.trials)
    out = form(**inputs, backend="tilelang")
    assert torch.allclose(out.double(), form.reference(**inputs), atol=1e-5)


def test_calls_of_this_process_take_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of call that was prepared before is prepared anew."""
    form, inputs = fused("attention"), tensors()
    form(**inputs, backend="tilelang")
    asked: list[Path] = []
    whole = tuned.read_entries

    def read(path: Path) -> dict[str, tuned.Entry]:
        asked.append(path)
        return whole(path)

    form.tune(**{name: one.numpy() for name, one in inputs.items()}, budget_s=120.0)
    monkeypatch.setattr(tuned, "read_entries", read)
    form(**inputs, backend="tilelang")
    assert asked


def test_a_wrong_plan_is_reported_and_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plan's result is spoilt: it is the rules' own, and is not chosen all the same."""
    form, inputs, launched = fused("attention"), tensors(), []
    recipe = kernels.recipe_of

    def spoilt(*arguments: Any) -> Any:
        made = recipe(*arguments)
        launched.append(made)
        if len(launched) > 1:
            return made
        object.__setattr__(made, "finish", tuple((name, place, lambda one: 2 * one) for name, place, _ in made.finish))
        return made

    monkeypatch.setattr(tuner, "recipe_of", spoilt)
    result = form.tune(**inputs, budget_s=120.0)
    assert [one.failure[:13] for one in result.found.failures] == ["wrong: error "]
    assert result.best is not None
    assert result.best.candidate != result.found.failures[0].candidate


@pytest.mark.slow
def test_a_plan_that_breaks_the_device_ends_the_measuring_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a context that a kernel broke nothing more is asked; what was measured before is remembered."""
    form, broken, run = fused("attention"), list[str](), list[int]()
    timed = tuner.Measuring.check_and_time

    def breaking(self: tuner.Measuring, step: Any) -> Any:
        run.append(1)
        if len(run) == 3:
            broken.append("an illegal memory access was encountered")
        if broken:
            raise RuntimeError(broken[0])
        return timed(self, step)

    monkeypatch.setattr(tuner.Measuring, "check_and_time", breaking)
    monkeypatch.setattr(tuner, "is_lost", lambda device: bool(broken))
    result = form.tune(**tensors(), budget_s=120.0)
    assert len(run) == 3
    assert [one.measured_us is not None for one in result.trials][:2] == [True, True]
    failures = [one.failure for one in result.trials[2:]]
    assert failures[0] == "RuntimeError: an illegal memory access was encountered"
    assert failures[1:]
    assert all(said.startswith("not measured: this process lost the device to plan `") for said in failures[1:])
    assert result.best is not None
    assert result.path is not None


def test_a_device_is_lost_where_it_cannot_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    assert tuner.is_lost("cuda:0")
    assert not tuner.is_lost("cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert not tuner.is_lost("cuda:0")


def test_without_time_nothing_is_measured_nor_remembered() -> None:
    """Compilers have half of no time: what they do not finish is reported."""
    form, inputs = fused("attention"), tensors()
    inputs["K"] = inputs["V"] = torch.randn(1, 2, 61, 16)  # compiled by no other test
    result = form.tune(**inputs, budget_s=1e-3)
    assert (result.best, result.path, result.found.stopped) == (None, None, "budget")
    assert "none was measured in time: give a larger budget_s" in " ".join(str(result).split())
    assert {one.failure for one in result.trials} == {compiling.STOPPED, "not measured: the time was over"}


@pytest.mark.slow
def test_two_passes_tune_the_second() -> None:
    x, w = ra.tensors("x[b,k] w[k,e]")
    k = ra.axes("k")
    scale = ra.max(x, k)
    expr = ra.sum(ra.cast(x / scale, "float16") * w, k)
    form = ra.fuse(expr, axes="b e", exact=True)
    assert len(form.passes) == 2
    inputs = {"x": torch.rand(32, 48) + 1, "w": torch.randn(48, 16)}
    result = form.tune(**inputs, budget_s=120.0)
    assert result.best is not None
    assert form.lower("c", {"b": 32, "k": 48, "e": 16}, {"x": "float32", "w": "float32"}).plan.origin == "cache"


def test_what_has_no_elements_cannot_be_tuned() -> None:
    with pytest.raises(ra.InputError, match="axis b has no elements"):
        fused("logsumexp").tune(x=torch.zeros(0, 5))


@pytest.mark.parametrize(("options", "said"), [({"budget_s": 0}, "budget_s=0 is no time"),
                                               ({"empty": "none"}, "tune: empty='none' is not an option")])  # fmt: skip
def test_options_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ra.InputError, match=said):
        fused("logsumexp").tune(x=torch.zeros(2, 5), **options)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ra.BackendError, match="Set REDALG_CACHE_DIR"):
        fused("logsumexp").tune(x=torch.zeros(2, 5))


@pytest.mark.parametrize("name", ["budget_s", "seed", "progress"])
def test_no_tensor_bears_an_options_name(name: str) -> None:
    with pytest.raises(ra.ExpressionError, match=f"a tensor is named `{name}`"):
        ra.fuse(ra.sum(ra.tensor(f"{name}[n]"), ra.axes("n")))


SCRIPT = """
import sys, torch, redalg as ra
from redalg.runtime.tune import tuner
from redalg.strategies.search.search import Limits
tuner.FEW = Limits(population=2, batch=1, patience=1)
rows = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), ra.axes("n")))
x = torch.ones(3, 40)
if sys.argv[1] == "tune":
    print(rows.tune(x=x, budget_s=120.0).best is not None)
print(rows.lower("c", {"b": 3, "n": 40}, {"x": "float32"}).plan.origin)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_tunes_and_the_next_process_uses_it(tmp_path: Path) -> None:
    """A pool of spawned processes would run the script again, in every one of them."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    root = Path(ra.__file__).parents[1]
    known = {**os.environ, "REDALG_CACHE_DIR": str(tmp_path / "own"), "PYTHONPATH": str(root)}
    said = [subprocess.run([sys.executable, str(script), what], env=known, check=True, capture_output=True, text=True)
            for what in ("tune", "use")]  # fmt: skip
    assert [one.stdout.split() for one in said] == [["True", "cache"], ["cache"]]
    held = json.loads((tmp_path / "own" / "tuned" / "c.json").read_text(encoding="utf-8"))
    assert len(held["entries"]) == 1


# ---- compilers -------------------------------------------------------------------------------------------------------


def sources(*lengths: int) -> list[Any]:
    return [fused("logsumexp").lower("c", {"b": 3, "n": n}, {"x": "float32"}).source for n in lengths]


@pytest.mark.slow
def test_compilers_compile_and_report_and_stop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    good, other, late = sources(11, 12, 13)
    object.__setattr__(other, "text", "raise ValueError('no kernel')")
    with compiling.Compilers(1) as compilers:
        assert compilers.submit(good).wait(120) == ""
        process = compilers.workers[0].process
        assert process is not None
        assert "no kernel" in compilers.submit(other).wait(120)
        assert compilers.workers[0].process is process
        began, job = monotonic(), compilers.submit(late)
        assert job.wait(0.01) == compiling.STOPPED
        assert monotonic() - began < 10
        assert job.wait(120) == ""  # it went on
        assert compilers.workers[0].process is process
        slow, next_one = sources(14, 15)
        stuck = compilers.submit(slow)
        assert stuck.wait(0.05) == compiling.STOPPED
        compilers.make_room(1)
        assert stuck.wait(120) == compiling.STOPPED
        assert compilers.submit(next_one).wait(120) == ""
        again = compilers.workers[0].process
        assert again is not process
        assert again is not None
        assert process.poll() is not None
    assert again.poll() is not None


@pytest.mark.slow
def test_workers_start_before_there_is_anything_to_compile() -> None:
    with compiling.Compilers(2) as compilers:
        compilers.wait_until_started(monotonic() + 120)
        assert [job.wait(0) for job in compilers.starting] == ["", ""]
        assert all(worker.process is not None for worker in compilers.workers)
        compilers.make_room(2)
        assert not any(job.given_up for job in compilers.starting)


def test_what_is_compiled_after_its_round_is_measured_at_the_end() -> None:
    """Plans that still compile go on while others are measured; if none was, they are waited for."""
    waited = dict[str, float]()

    class Clock:
        end, late, times = monotonic() + 60, {"ready": 1, "never": 2}, list[float]()

        def outcome(self, plan: str, attempt: int, deadline: float) -> Outcome:
            waited[plan] = deadline - monotonic()
            self.times.extend([7.0] if plan == "ready" else [])
            return Outcome(7.0) if plan == "ready" else Outcome(None, compiling.STOPPED)

    trials = (Trial("ready", 1.0, None, compiling.STOPPED, 1), Trial("never", 1.0, None, compiling.STOPPED, 1),
              Trial("wrong", 1.0, None, "wrong", 1))  # fmt: skip
    found: Any = Found(trials, 4, "budget")
    clock: Any = Clock()
    result: Any = tuner.with_late(found, clock)
    assert (result.best.candidate, result.best.measured_us) == ("ready", 7.0)
    assert [one.failure for one in result.failures] == [compiling.STOPPED, "wrong"]
    assert waited["ready"] > 30
    assert waited["never"] < 1


def test_a_lucky_moment_is_no_speed() -> None:
    """The three fastest are timed once more: what was fast once is not chosen; the fourth keeps its time."""
    first = {"lucky": 5.0, "steady": 6.0, "slower": 7.0, "slow": 9.0}
    second = {"lucky": 20.0, "steady": 6.2, "slower": 7.0}

    class Clock:
        def again(self, one: Any) -> float:
            return (first[one.candidate] + second[one.candidate]) / 2

    trials = tuple(Trial(name, 1.0, time, "", 1) for name, time in first.items())
    found: Any = Found(trials, 4, "converged")
    clock: Any = Clock()
    made: Any = tuner.time_fastest_again(found, clock)
    assert made.best.candidate == "steady"
    assert [one.measured_us for one in made.trials] == [12.5, 6.1, 7.0, 9.0]


# ---- the clock -------------------------------------------------------------------------------------------------------


def test_wall_time_is_taken_call_by_call() -> None:
    called: list[int] = []
    timing_of_calls = timing.measure(
        [lambda: called.append(0), lambda: called.append(1)], torch.device("cpu"), samples=4
    )
    assert (timing_of_calls.method, len(timing_of_calls.samples_us), timing_of_calls.calls_per_sample) == ("wall", 4, 1)
    assert called[:3] == [0, 1, 0]
    assert timing.input_sets(10, torch.device("cpu")) == 1


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_plans_are_listed_best_first_with_what_bounds_them() -> None:
    sizes = {"b": 1, "h": 8, "q": 1, "k": 65536, "d": 128, "e": 128}
    found = fused("attention").plans(sizes, "float16", "H200")[:FIRST]
    limit = device_for("H200").smem_bytes
    held = [one.predicted_us for one in found if one.smem_bytes <= limit]
    assert held == sorted(held)
    assert len(held) > 100
    assert all(one.smem_bytes <= limit for one in found[: len(held)])  # what may not fit stands last
    assert found[0].bound == "memory"
    assert found[0].predicted_us > 2 * 8 * 65536 * 128 * 2 / 4.8e6  # every byte of K and V, at the datasheet's rate
    assert found[0].expression == "bhqk"  # one tile holds d and e whole
    plan = found[0].plan
    assert fused("attention").lower("H200", sizes, dict.fromkeys("QKV", "float16"), plan=plan).plan == plan


def test_cards_differ() -> None:
    sizes = {"b": 4096, "n": 4096}
    fast, slow = (fused("logsumexp").plans(sizes, "float32", card)[0] for card in ("H200", "A10"))
    assert slow.predicted_us > 4 * fast.predicted_us
    assert slow.plan.device.part == "A10"


@pytest.mark.parametrize(
    ("name", "sizes", "dtype", "card", "reason"),
    [
        ("logsumexp", {"b": 4096, "n": 4096}, "float32", "RTX 4090", "by the rules: the model was not fitted to cards"),
        ("logsumexp", {"b": 4096, "n": 4096}, "float32", "H100", "fitted to long rows that fill the chip"),
        ("logsumexp", {"b": 4, "n": 10**6}, "float32", "H100", "must promise 5% and 1 µs more"),
    ],
)
def test_a_table_says_why_another_plan_is_taken(name: str, sizes: Any, dtype: str, card: str, reason: str) -> None:
    found = fused(name).plans(sizes, dtype, card)
    assert reason in found.table(1).note
    assert found.table(1).note.endswith("a call takes it") == (found[0].plan == found.choice)


def test_candidates_print_as_a_table_of_the_first() -> None:
    given = {"b": 64, "n": 4096}, {"x": "float32"}, "sm_86"
    found = fused("logsumexp").plans(*given)
    text = str(found).splitlines()
    last = next(place for place, line in enumerate(text) if line.startswith("the first"))
    text, note = text[:last], " ".join(text[last:])
    assert text[0] == "plans for A10, predicted"
    assert re.fullmatch(r"the first 12 of \d+ candidates; ← a call takes it(, by the rules: .*)?", note)
    taken = fused("logsumexp").plan(*given)
    assert found.choice == taken
    assert [entry.plan for place, entry in found.places(1) if "←" in place] == [taken]
    assert [line for line in text if "←" in line] == [line for line in text if str(taken).split(";")[0] in line]
    assert len(text) == 3 + 12
    assert found._repr_html_().count("white-space:nowrap") == 12
    assert len(found[:3]) == 3
    assert "candidates" not in str(found[:3])
    assert np.isfinite([one.predicted_us for one in found]).all()


def test_the_c_target_has_plans_too() -> None:
    assert len(fused("attention").plans(SIZES, FLOATS, "c")) > 1
