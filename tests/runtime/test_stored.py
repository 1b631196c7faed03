"""Schedules in files: the levels over roles, and what files of the format before held."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import redalg as ra
from redalg.runtime.known import stored, tuned
from redalg.runtime.lowering import space_for
from redalg.strategies.levels import Grid, Level
from redalg.strategies.schedule import choices_of, with_choices
from tests.cases.kernels import fused
from tests.house.source import ROOT
from tests.strategies.test_schedule import SPACES

BEFORE = ROOT / "tests" / "runtime" / "tuned-format-2.json.gz"


@pytest.mark.parametrize("name", SPACES)
def test_what_is_written_is_read(name: str) -> None:
    form, sizes, dtypes, card = SPACES[name]
    space = space_for(fused(form).form, card, sizes, dtypes)
    for schedule in space.plans():
        line = json.loads(json.dumps(stored.write_line(schedule)))
        assert stored.read_line(line, space.binding, space.device) == schedule
        assert stored.read_line(stored.from_choices(choices_of(schedule)), space.binding, space.device) == schedule


def test_the_names_of_axes_do_not_matter() -> None:
    lines = []
    for suffix in ("", "_other"):
        n = ra.axes("n" + suffix)
        form = ra.fuse(ra.var(ra.tensor(f"x[b{suffix},n{suffix}]"), n))
        space = space_for(form.form, "H200", {"b" + suffix: 4, "n" + suffix: 10**5}, {"x": "float32"})
        lines.append([stored.write_line(schedule) for schedule in space.plans()])
    assert lines[0] == lines[1]


def test_the_definition_is_a_word() -> None:
    space = space_for(fused("variance").form, "H200", {"b": 4, "n": 100}, {"x": "float32"})
    plain = ra.Definition(space.device)
    assert stored.read_line(stored.write_line(plain), space.binding, space.device) == plain
    assert stored.from_choices({"form": "unfused"}) == stored.write_line(plain) == "definition"


def test_a_warp_for_a_tile_is_a_block_of_one_warp() -> None:
    """The level `warp` of the format before gave the kernel that `block` gives with 32 threads."""
    space = space_for(fused("variance").form, "H200", {"b": 4, "n": 10**5}, {"x": "float32"})
    by_rules = with_choices(space.rules_schedule, level="block", threads=32, block_streamed=1024)
    choices = choices_of(by_rules)
    assert stored.from_choices({**choices, "level": "warp"}) == stored.from_choices(choices)


@pytest.mark.parametrize("broken", [{"threads": 64}, {"form": "online"}, {}])
def test_foreign_choices_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a plan has the choices block_row"):
        stored.from_choices(broken)


# ---- the format before -----------------------------------------------------------------------------------------------


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The pack that shipped with the format before: 127 entries."""
    path = tmp_path / "H200.json"
    path.write_bytes(gzip.decompress(BEFORE.read_bytes()))
    return path


def test_the_pack_of_the_format_before_holds_the_same_schedules(before: Path) -> None:
    """Of the same problems and sizes, with times of the same runs; `make replay` compares the sources of its rows.

    But for second passes of quantized products, which read the scale of a row that the first has computed since, and
    for root mean squares and a softmax of long rows, which are faster since, by other schedules, as is a moment of
    inertia (by 6 % in a run of both).
    """
    old, new = tuned.parse_file(before), tuned.parse_file(tuned.PACKS / "H200.json")
    assert old is not None
    assert len(old) == 127
    assert new is not None
    since = new.keys() - old.keys()
    assert {"float8_e4m3fn" in new[name].key.dtypes.values() for name in since} == {True}
    assert len(since) < len(new) / 2
    both = {name: entry for name, entry in new.items() if name in old}
    faster = {name for name, entry in both.items() if entry.measured_us < 0.92 * old[name].measured_us}
    assert sorted(both[name].sizes["a1"] for name in faster) == [4096, 8192, 16384]
    [again] = (
        name for name, entry in both.items() if entry.sizes == {"a1": 1024, "a0": 32768} and "t1" in entry.key.dtypes
    )
    assert both[again].measured_us < old[again].measured_us
    for name, entry in ((name, entry) for name, entry in both.items() if name not in {*faster, again}):
        had, has = levels(old[name].schedule), levels(entry.schedule)
        padding = () if Grid("column", 16) in has else (Grid("column", 16),)  # columns that no axis gives
        assert tuple(level for level in had if level not in padding) == has
        known = {"schedule": entry.schedule, "predicted_us": entry.predicted_us, "measured_us": entry.measured_us}
        assert replace(old[name], **known) == entry
        assert entry.measured_us == pytest.approx(old[name].measured_us, rel=0.05)  # one of two runs of the same plans


def levels(line: stored.Line) -> tuple[Level, ...]:
    return () if line == stored.DEFINITION else stored.parse_levels(line)


def test_a_file_of_the_format_before_is_added_to(before: Path) -> None:
    entries = tuned.parse_file(before) or {}
    first = next(iter(entries.values()))
    tuned.add_entries(before, [first])
    assert json.loads(before.read_text(encoding="utf-8"))["format"] == tuned.FORMAT
    assert tuned.parse_file(before) == entries


def test_another_version_before_is_not_known(before: Path) -> None:
    content = json.loads(before.read_text(encoding="utf-8"))
    content["entries"][0]["key"]["redalg"] = "0.0.9"
    before.write_text(json.dumps(content), encoding="utf-8")
    entries = tuned.parse_file(before) or {}
    assert sorted({entry.key.planner for entry in entries.values()}) == [0, tuned.PLANNER]
