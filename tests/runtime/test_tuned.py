"""What is remembered of tuned plans: its keys, its files under processes and vandals, and who takes it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import redalg as ra
from redalg.runtime.call import sizes as sized
from redalg.runtime.compile import cache
from redalg.runtime.known import stored, tuned
from redalg.runtime.known.naming import naming
from redalg.runtime.lowering import problem_of, space_for
from redalg.strategies.device import device_for
from redalg.strategies.plan import CHOICES, Problem
from redalg.strategies.rules.rules import choose_schedule
from redalg.strategies.schedule import TUNED, Schedule, choices_of, numbers_of, with_choices
from redalg.strategies.search.space import Space
from tests.cases.kernels import fused

SIZES, DTYPES = {"b": 128, "n": 4096}, {"x": "float32"}
ATTENDED = {"b": 2, "h": 4, "q": 512, "k": 512, "d": 64, "e": 64}
HALVES = dict.fromkeys("QKV", "float16")


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache folder and a folder of packs of this test's own."""
    monkeypatch.setenv(tuned.SWITCH, "on")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(tuned, "PACKS", tmp_path / "packs")


@pytest.fixture
def form() -> ra.Fused:
    return fused("logsumexp")


def space(one: ra.Fused, sizes: dict[str, int], dtypes: dict[str, str], card: str = "H200", **options: str) -> Space:
    return space_for(one.form, card, sizes, dtypes, **options)


def other_plan(one: ra.Fused, sizes: dict[str, int], dtypes: dict[str, str]) -> Schedule:
    """A plan of the space that the rules would not take."""
    found = [plan for plan in space(one, sizes, dtypes).plans() if numbers_of(plan).segments == 1]
    return next(plan for plan in found if plan != found[0])


def entry(one: ra.Fused, plan: Schedule, sizes: dict[str, int] = SIZES, dtypes: dict[str, str] = DTYPES,
          **options: str) -> tuned.Entry:  # fmt: skip
    problem = space(one, sizes, dtypes, plan.device.part, **options).problem
    key, known = tuned.problem_key(one.form, problem, plan.device), tuned.key_sizes(one.form, problem)
    return tuned.Entry(key, known, stored.write_line(plan), 10.0, 12.0)


# ---- keys ------------------------------------------------------------------------------------------------------------

KEY = """
from redalg.runtime.known import tuned
from redalg.runtime.lowering import space_for
from tests.cases.kernels import fused
for name, sizes, dtypes in (("attention", dict(b=2, h=4, q=512, k=512, d=64, e=64), dict.fromkeys("QKV", "float16")),
                            ("variance", dict(b=128, n=4096), {"x": "float32"})):
    form = fused(name).form
    space = space_for(form, "H200", sizes, dtypes)
    print(tuned.problem_key(form, space.problem, space.device).digest)
"""


@pytest.mark.slow
def test_a_key_is_the_same_in_every_process() -> None:
    said = [
        subprocess.run([sys.executable, "-c", KEY], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                       capture_output=True, text=True).stdout for seed in ("0", "1", "77")
    ]  # fmt: skip
    assert len(said[0].split()) == 2
    assert said[0] == said[1] == said[2]


def test_a_key_tells_apart_what_changes_results(form: ra.Fused, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(
        one: ra.Fused = form, sizes: Any = SIZES, dtypes: Any = DTYPES, card: str = "H200", **options: str
    ) -> str:
        search_space = space(one, sizes, dtypes, card, **options)
        return tuned.problem_key(one.form, search_space.problem, search_space.device).digest

    keys = [digest(), digest(fused("variance")), digest(dtypes={"x": "float16"}), digest(card="H100"),
            digest(sizes={"b": 129, "n": 4096}), digest(empty="zero"), digest(precision="tf32")]  # fmt: skip
    monkeypatch.setattr(tuned, "PLANNER", 2)
    keys.append(digest())
    monkeypatch.setattr(tuned, "tilelang_version", lambda: "0.1.16")
    keys.append(digest())
    assert len(set(keys)) == len(keys)


@given(size=st.integers(1, 1 << 20))
def test_a_bucket_holds_the_sizes_above_the_last_power_of_two(size: int) -> None:
    form = fused("logsumexp")
    search_space = space(form, {"b": size, "n": 64}, DTYPES)
    bucket = tuned.problem_key(form.form, search_space.problem, search_space.device).bucket[naming(form.form).axes["b"]]
    assert bucket // 2 < size <= bucket
    assert bucket.bit_count() == 1


def test_two_forms_of_one_cascade_share_results() -> None:
    x, n = ra.tensor("x[b,n]"), ra.axes("n")
    one, other = ra.fuse(ra.logsumexp(x, n)), ra.fuse(ra.logsumexp(x, n))
    assert naming(one.form).digest == naming(other.form).digest != naming(fused("variance").form).digest


def test_the_order_of_an_outputs_axes_is_part_of_the_key() -> None:
    x, n = ra.tensor("x[a,b,n]"), ra.axes("n")
    one, other = (ra.fuse(ra.logsumexp(x, n), axes=axes) for axes in ("a b", "b a"))
    assert naming(one.form).digest != naming(other.form).digest


# ---- files -----------------------------------------------------------------------------------------------------------


def test_an_entry_is_read_as_it_was_kept(form: ra.Fused) -> None:
    kept = entry(form, other_plan(form, SIZES, DTYPES))
    path = tuned.remember(kept)
    assert path == tuned.cache_file("H200")
    assert tuned.read_entries(path) == {kept.name: kept}


def test_a_later_result_replaces_an_earlier_one(form: ra.Fused) -> None:
    first = entry(form, other_plan(form, SIZES, DTYPES))
    tuned.remember(first)
    path = tuned.remember(replace(first, measured_us=8.0))
    assert [one.measured_us for one in tuned.read_entries(path).values()] == [8.0]


def test_no_file_is_no_entry_and_no_warning(tmp_path: Path) -> None:
    assert tuned.read_entries(tmp_path / "none.json") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "another"}', json.dumps({"format": tuned.FORMAT}),
                                  json.dumps({"format": tuned.FORMAT, "entries": 3})])  # fmt: skip
def test_a_foreign_file_is_reported_and_ignored(form: ra.Fused, text: str) -> None:
    path = tuned.cache_file("H200")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.warns(RuntimeWarning, match="holds no tuned plans and is ignored"):
        assert form.lower("H200", SIZES, DTYPES).plan.origin not in TUNED
    kept = entry(form, other_plan(form, SIZES, DTYPES))
    with pytest.warns(RuntimeWarning, match="holds no tuned plans"):
        tuned.remember(kept)
    assert path.with_suffix(".bad").read_text(encoding="utf-8") == text
    assert tuned.read_entries(path) == {kept.name: kept}


@given(data=st.binary(max_size=200))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "H200.json"
    path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="holds no tuned plans"):
        assert tuned.parse_file(path) is None


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "no key": lambda line: line.pop("key"),
    "no such attribute": lambda line: line["schedule"][0][1].update(colour="red"),
    "no such level": lambda line: line["schedule"].append(["Sideways", {}]),
    "no innermost level": lambda line: line["schedule"].clear(),
    "an attribute of another kind": lambda line: line["schedule"][0][1].update(tile=[128]),
    "an attribute out of range": lambda line: line["schedule"][0][1].update(tile=0),
    "no schedule": lambda line: line.pop("schedule"),
    "a word for a schedule": lambda line: line.update(schedule="fast"),
    "a time in words": lambda line: line.update(measured_us="fast"),
    "sizes are a list": lambda line: line.update(sizes=[1, 2]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_foreign_entry_is_reported_and_the_others_are_kept(form: ra.Fused, name: str) -> None:
    one = entry(form, other_plan(form, SIZES, DTYPES))
    other = entry(form, other_plan(form, SIZES, DTYPES), sizes={"b": 1, "n": 4096})
    path = tuned.add_entries(tuned.cache_file("H200"), [one, other])
    content = json.loads(path.read_text(encoding="utf-8"))
    BROKEN[name](content["entries"][0])
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.warns(RuntimeWarning, match="is no tuned plan and is ignored"):
        assert len(tuned.read_entries(path)) == 1


def keep_many(number: int) -> None:
    """What one of several processes keeps: an entry for each of its own sizes, one after another."""
    form = fused("logsumexp")
    plan = choose_schedule(form.form, space(form, SIZES, DTYPES).problem, device_for("H200"))
    for power in range(5):
        tuned.remember(entry(form, plan, sizes={"b": 1 << power, "n": 1 << (number + 8)}))


@pytest.mark.slow
def test_processes_that_keep_at_once_lose_nothing() -> None:
    """Readers meanwhile see a whole file: a torn one would warn, which is an error."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=keep_many, args=(number,)) for number in range(3)]
    for one in writers:
        one.start()
    while any(one.is_alive() for one in writers):
        tuned.read_entries(tuned.cache_file("H200"))
    assert [one.exitcode for one in writers] == [0, 0, 0]
    assert len(tuned.read_entries(tuned.cache_file("H200"))) == 15
    assert {one.suffix for one in tuned.cache_file("H200").parent.iterdir()} == {".json"}


# ---- choice ----------------------------------------------------------------------------------------------------------


def pack(*entries: tuned.Entry) -> None:
    tuned.add_entries(tuned.pack_file("H200"), entries)


def test_the_pack_goes_before_the_cache_and_the_cache_before_the_rules(form: ra.Fused) -> None:
    rules = form.lower("H200", SIZES, DTYPES).plan
    plans = [plan for plan in space(form, SIZES, DTYPES).plans() if plan != rules]
    tuned.remember(entry(form, plans[0]))
    from_cache = form.lower("H200", SIZES, DTYPES).plan
    pack(entry(form, plans[1]))
    from_pack = form.lower("H200", SIZES, DTYPES).plan
    assert [rules.origin, from_cache.origin, from_pack.origin] == [rules.origin, "cache", "pack"]
    assert [choices_of(from_cache), choices_of(from_pack)] == [choices_of(plans[0]), choices_of(plans[1])]
    assert from_cache.predicted_us == 12.0


def test_a_card_without_a_pack_takes_that_of_its_chip(form: ra.Fused) -> None:
    plan = next(one for one in space(form, SIZES, DTYPES).plans() if one != form.lower("H200", SIZES, DTYPES).plan)
    pack(entry(form, plan))
    other = form.lower("H100", SIZES, DTYPES).plan
    assert (other.origin, choices_of(other)) == ("pack", choices_of(plan))
    assert form.lower("A100", SIZES, DTYPES).plan.origin != "pack"
    assert tuned.card_of_pack(device_for("A100")) == "A100"


def test_what_was_measured_at_the_very_sizes_goes_before_the_buckets(form: ra.Fused) -> None:
    """Someone who tunes gets what was found, though the pack has another size of the bucket."""
    other = {"b": 100, "n": 4096}
    plans = [plan for plan in space(form, SIZES, DTYPES).plans() if numbers_of(plan).segments == 1]
    pack(entry(form, plans[1], other))
    assert choices_of(form.lower("H200", SIZES, DTYPES).plan) == choices_of(plans[1])
    tuned.remember(entry(form, plans[2]))
    assert choices_of(form.lower("H200", SIZES, DTYPES).plan) == choices_of(plans[2])
    assert choices_of(form.lower("H200", other, DTYPES).plan) == choices_of(plans[1])


@pytest.mark.parametrize(("length", "origin"), [(4088, "pack"), (4092, "pack"), (4095, "rules"), (4094, "rules")])
def test_rows_that_begin_elsewhere_take_nothing_of_a_bucket(length: int, origin: str) -> None:
    """Rows of 4096 are loaded by 16 bytes, as are those of any multiple of 4: others need another kernel."""
    form, sizes = fused("softmax"), {"b": 128, "n": length}
    plan = next(one for one in space(form, SIZES, DTYPES).plans() if one != form.lower("H200", SIZES, DTYPES).plan)
    pack(entry(form, plan))
    lowered = form.lower("H200", sizes, DTYPES).plan
    assert ("pack" if lowered.origin == "pack" else "rules") == origin


def test_of_two_at_the_very_sizes_the_faster_is_taken(form: ra.Fused) -> None:
    plans = [plan for plan in space(form, SIZES, DTYPES).plans() if numbers_of(plan).segments == 1]
    pack(entry(form, plans[1]))
    tuned.remember(replace(entry(form, plans[2]), measured_us=9.0))
    assert choices_of(form.lower("H200", SIZES, DTYPES).plan) == choices_of(plans[2])


def test_the_switch_ignores_both(form: ra.Fused, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = form.lower("H200", SIZES, DTYPES).plan
    tuned.remember(entry(form, other_plan(form, SIZES, DTYPES)))
    pack(entry(form, other_plan(form, SIZES, DTYPES)))
    monkeypatch.setenv(tuned.SWITCH, "off")
    assert form.lower("H200", SIZES, DTYPES).plan == rules


def test_the_switch_may_leave_the_pack_alone(form: ra.Fused, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships is the same for everyone; what was tuned on one machine is not."""
    monkeypatch.setenv(tuned.SWITCH, "pack")
    tuned.remember(entry(form, other_plan(form, SIZES, DTYPES)))
    assert form.lower("H200", SIZES, DTYPES).plan.origin not in TUNED
    pack(entry(form, other_plan(form, SIZES, DTYPES)))
    assert form.lower("H200", SIZES, DTYPES).plan.origin == "pack"


def test_another_card_takes_nothing_of_it(form: ra.Fused) -> None:
    pack(entry(form, other_plan(form, SIZES, DTYPES)))
    assert form.lower("A100", SIZES, DTYPES).plan.origin not in TUNED
    tuned.remember(entry(form, other_plan(form, SIZES, DTYPES)))
    assert (
        form.lower("H100", SIZES, DTYPES).plan.origin == "pack"
    )  # the same chip; what was tuned is for its card alone


def test_run_time_sizes_take_nothing_of_it(form: ra.Fused) -> None:
    pack(entry(form, other_plan(form, SIZES, DTYPES)))
    assert form.lower("H200", SIZES, DTYPES, varying="b").plan.origin not in TUNED


def test_a_given_plan_is_taken_as_it_is(form: ra.Fused) -> None:
    plan = other_plan(form, SIZES, DTYPES)
    pack(entry(form, plan))
    wanted = choose_schedule(form.form, space(form, SIZES, DTYPES).problem, device_for("H200"))
    assert form.lower("H200", SIZES, DTYPES, plan=wanted).plan == wanted
    remembered = form.lower("H200", SIZES, DTYPES).plan
    broken = with_choices(remembered, level="row", block_streamed=64)
    with pytest.raises(ra.PlanError, match="in one tile of 64 elements"):
        form.lower("H200", SIZES, DTYPES, plan=broken)


def test_sizes_of_the_bucket_share_a_plan_that_their_space_holds() -> None:
    one = fused("attention")
    plan = other_plan(one, ATTENDED, HALVES)
    pack(entry(one, plan, ATTENDED, HALVES))
    near = {**ATTENDED, "b": 2, "q": 448}
    assert choices_of(one.lower("H200", near, HALVES).plan) == choices_of(plan)
    assert one.lower("H200", {**ATTENDED, "q": 256}, HALVES).plan.origin not in TUNED


def test_a_plan_whose_row_is_too_short_for_the_actual_sizes_is_passed_over(form: ra.Fused) -> None:
    """600 elements in one tile of 640; a row of 1000, of the same bucket, does not fit into it."""
    short = {"b": 128, "n": 600}
    plan = next(
        plan
        for plan in space(form, short, DTYPES).plans()
        if numbers_of(plan).level == "row" and numbers_of(plan).block_streamed < 1000
    )
    pack(entry(form, plan, short))
    assert choices_of(form.lower("H200", short, DTYPES).plan) == choices_of(plan)
    assert form.lower("H200", {"b": 128, "n": 1000}, DTYPES).plan.origin not in TUNED


def test_a_plan_that_does_not_build_gives_way_to_the_next_source(form: ra.Fused) -> None:
    plan = other_plan(form, SIZES, DTYPES)
    broken = with_choices(plan, level="row", block_streamed=64, segments=1)
    pack(entry(form, broken))
    assert form.lower("H200", SIZES, DTYPES).plan.origin not in TUNED
    tuned.remember(entry(form, plan))
    assert form.lower("H200", SIZES, DTYPES).plan.origin == "cache"


def test_a_plan_that_does_not_fit_gives_way_too() -> None:
    one, sizes = fused("attention"), {**ATTENDED, "k": 4096}
    plan = with_choices(
        choose_schedule(one.form, space(one, sizes, HALVES).problem, device_for("H200")),
        block_row=256,
        block_streamed=256,
        stages=4,
    )
    with pytest.raises(ra.PlanError, match="shared memory"):
        one.lower("H200", sizes, HALVES, plan=plan)
    pack(entry(one, plan, sizes, HALVES))
    assert one.lower("H200", sizes, HALVES).plan.origin in ("rules", "model")


@given(data=st.data())
def test_a_space_admits_its_own_plans_and_no_others(data: st.DataObject) -> None:
    """`admits` asks of one plan what `plans` asks of all: among changed plans, those of the list alone pass."""
    name, sizes, dtypes = data.draw(st.sampled_from([
        ("logsumexp", {"b": 128, "n": 1000}, DTYPES), ("attention", ATTENDED, HALVES),
        ("attention", {**ATTENDED, "q": 1, "k": 1000}, HALVES), ("variance", {"b": 3, "n": 70_000}, DTYPES),
    ]))  # fmt: skip
    search_space = space(fused(name), sizes, dtypes)
    listed = list(search_space.tile_schedules())
    plan = data.draw(st.sampled_from(listed))
    choice = data.draw(st.sampled_from([one for one in CHOICES if one not in ("block_merged", "tensor_cores")]))
    value = data.draw(st.sampled_from(sorted({choices_of(one)[choice] for one in listed}, key=str)))
    try:
        other = with_choices(plan, **{choice: value})
    except ra.PlanError:  # no levels say it, so that it is in no space
        assume(False)
    chosen = {known_by(one) for one in listed if legal(one, search_space.problem)}
    assert search_space.admits(other) == (known_by(other) in chosen)


def known_by(plan: Schedule) -> tuple[Any, ...]:
    """The choices of a schedule, without the rows that are merged together, which follow from the others."""
    return tuple(value for name, value in choices_of(plan).items() if name != "block_merged")


def legal(plan: Schedule, problem: Problem) -> bool:
    try:
        numbers_of(plan).verify(problem)
    except ra.PlanError:
        return False
    return True


def test_tuned_sizes_have_a_kernel_of_their_own(form: ra.Fused) -> None:
    """Other sizes of a family share a kernel of run-time sizes; those that were tuned do not."""
    made = [sizes_lowered(form, b) for b in (100, 120)]
    assert [bool(one.program.sizes) for one in made] == [False, True]
    sizes = {"b": 90, "n": 4096}
    pack(entry(form, other_plan(form, sizes, DTYPES), sizes))
    mine = sizes_lowered(form, 90)
    assert (mine.plan.origin, mine.program.sizes) == ("pack", ())


def sizes_lowered(form: ra.Fused, b: int) -> Any:
    problem = problem_of(form.form, "H200", {"b": b, "n": 4096}, DTYPES, shapes={}, empty="nan", precision="ieee")
    return sized.newly(form.form, "H200", replace(problem, shapes={"x": (b, 4096)}), None)


def test_a_warm_call_asks_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("tilelang")
    form, x = fused("logsumexp"), torch.randn(3, 40)
    before = form(x=x, backend="tilelang")

    def refuse(*_: object) -> Iterator[Schedule]:
        raise AssertionError("a warm call looked for tuned plans")

    monkeypatch.setattr(tuned, "read_entries", refuse)
    assert torch.equal(form(x=x, backend="tilelang"), before)


def test_the_shipped_packs_are_whole() -> None:
    packs = sorted((Path(ra.__file__).parent / "tuned").glob("*.json"))
    assert packs
    for path in packs:
        entries = tuned.parse_file(path)
        assert entries
        assert {tuned.file_name(one.key.card) for one in entries.values()} == {path.name}
        for one in entries.values():
            assert device_for(one.key.card).part == one.key.card
            assert one.measured_us > 0
