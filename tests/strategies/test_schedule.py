"""Schedules: what cannot be built cannot be said; levels and numbers say the same; old names work with a warning."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.runtime.lowering import space_for
from redalg.strategies.levels import INSIDE, KINDS, Level, level_fields
from redalg.strategies.plan import CHOICES, levels_of
from redalg.strategies.schedule import choices_of, for_form, numbers_of, schedule_of, with_choices
from redalg.strategies.search.space import Space
from tests.cases.kernels import fused

Grid, Loop, Lanes, Parts, Whole = ra.Grid, ra.Loop, ra.Lanes, ra.Parts, ra.Whole
SPACES: dict[str, tuple[str, dict[str, int], dict[str, str], str]] = {
    "products": (
        "attention",
        {"b": 2, "h": 4, "q": 300, "k": 700, "d": 64, "e": 96},
        dict.fromkeys("QKV", "float16"),
        "H200",
    ),
    "a long inner axis": (
        "attention",
        {"b": 1, "h": 1, "q": 64, "k": 128, "d": 2048, "e": 64},
        dict.fromkeys("QKV", "float16"),
        "A10",
    ),
    "packed rows": (
        "attention",
        {"b": 1, "h": 8, "q": 1, "k": 9000, "d": 64, "e": 64},
        dict.fromkeys("QKV", "bfloat16"),
        "H200",
    ),
    "rows": ("variance", {"b": 3, "n": 70_000}, {"x": "float32"}, "H200"),
    "rows in double": ("logsumexp", {"b": 128, "n": 1000}, {"x": "float64"}, "A100"),
    "no axis": (
        "attention",
        {"b": 1, "h": 1, "q": 1, "k": 100, "d": 16, "e": 16},
        dict.fromkeys("QKV", "float32"),
        "c",
    ),
}


def space_of(name: str) -> Space:
    form, sizes, dtypes, card = SPACES[name]
    return space_for(fused(form).form, card, sizes, dtypes)


def schedules(name: str) -> list[ra.Schedule]:
    return list(space_of(name).plans())


@pytest.mark.parametrize("name", SPACES)
def test_every_schedule_of_a_space_can_be_said_and_read_as_numbers(name: str) -> None:
    """The search writes levels without a check: what it writes passes it."""
    for schedule in schedules(name):
        assert ra.Schedule(*schedule.levels) == schedule
        plan = numbers_of(schedule)
        assert plan.obstacle_at(space_of(name).problem) == ""
        assert levels_of(plan) == schedule.levels
        assert schedule_of(plan) == schedule
        assert with_choices(schedule, **choices_of(schedule)) == schedule


@pytest.mark.parametrize("name", SPACES)
def test_a_schedule_is_a_value(name: str) -> None:
    first, *_, last = schedules(name)
    for schedule in (first, last):
        same = pickle.loads(pickle.dumps(schedule))
        assert (same, hash(same), str(same)) == (schedule, hash(schedule), str(schedule))
        assert replace(schedule, origin="given", predicted_us=1.0) == schedule
    assert len({str(one) for one in schedules(name)}) == len(schedules(name))


# ---- what cannot be said ---------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[tuple[Level, ...], str]] = {
    "nothing": ((), "has nothing outermost. Add one of Persistent, Grid"),
    "a grid alone": ((Grid("b"),), "has nothing directly inside Grid(b). Add one of Grid, Pad, Parts"),
    "a loop alone": ((Loop("n", 4),), "has nothing inside Loop(n, 4). Add Lanes"),
    "parts of a whole tile": ((Parts("n", 2), Whole("n", 64), Lanes("n", 32)),
                              "Whole(n, 64) has no place directly inside Parts(n, 2). There: Loop, Lanes."),
    "products in lanes": ((Lanes("n", 32), Loop("n", 64), ra.TensorCores(128)),
                          "has Lanes beside several loops or products"),
    "lanes twice": ((Lanes("n", 32), Loop("n", 64), Lanes("n", 32)), "has Lanes beside several loops or products"),
    "a grid within a loop": ((Loop("n", 64), Grid("b")), "Grid(b) has no place directly inside Loop(n, 64)"),
    "two units": ((Loop("n", 64), ra.TensorCores(128), ra.ScalarCores(128)), "There: nothing."),
    "lanes alone": ((Grid("b"), Lanes("n", 32)), "has Lanes and no tile"),
    "an axis twice": ((Grid("b"), Grid("b"), Loop("n", 64), Lanes("n", 32)), "names axis b twice"),
    "a grid along the loop": ((Grid("n"), Loop("n", 64), Lanes("n", 32)), "names axis n twice"),
    "parts of another axis": ((Parts("b", 2), Loop("n", 64), Lanes("n", 32)), "cuts axis b into parts"),
    "parts of both": ((Parts("k", 2), Loop("k", 64), Parts("d", 2), Loop("d", 16), ra.TensorCores()),
                      "cuts the streamed axis and a producer's own axis"),
    "blocks that stay and wait": ((ra.Persistent(1), Parts("k", 2, "launch"), Loop("k", 64), ra.TensorCores()),
                                  "has blocks that stay, and others that wait"),
    "blocks that stay and split": ((ra.Persistent(1), Loop("k", 64), Parts("d", 2), Loop("d", 16), ra.TensorCores()),
                                   "has blocks that stay, and others that wait"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_levels_that_make_no_schedule_are_refused(name: str) -> None:
    levels, said = REFUSED[name]
    with pytest.raises(ra.PlanError) as error:
        ra.Schedule(*levels)
    assert said in str(error.value)
    assert str(error.value).startswith("schedule `")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: Grid("b", 0), "Grid(tile=0) should be a whole number, 1 or more."),
        (lambda: Loop("n", 64, -1), "Loop(stages=-1) should be a whole number, 0 or more."),
        (lambda: Loop("n", 6.5), "Loop(tile=6.5) should be a whole number, 1 or more."),
        (lambda: Parts("n", 1), "Parts(count=1) should be a whole number, 2 or more."),
        (lambda: Parts("n", 2, "grid"), "Parts(merge='grid') should be 'kernel', 'launch' or 'cluster'."),
        (lambda: ra.TensorCores(128, "left"), "TensorCores(left='left') should be 'registers' or 'shared'."),
        (lambda: ra.Persistent(33), "Persistent(blocks=33) should be a whole number, 1 to 32."),
        (lambda: ra.Pad(True), "Pad(rows=True) should be a whole number, 2 or more."),
        (
            lambda: Lanes(3, 32),
            'Lanes(axis=3) should be an axis or its name, and it is of type int. Name one, as in Lanes("n", 32).',
        ),
        (lambda: Lanes(128, ra.axes("n")), 'Lanes(128, n): the axis comes first. Write Lanes("n", 128).'),
        (lambda: Grid(64, "b"), 'Grid(64, b): the axis comes first. Write Grid("b", 64).'),
    ],
)
def test_a_level_out_of_range_is_refused(write: Any, said: str) -> None:
    with pytest.raises(ra.PlanError) as error:
        write()
    assert str(error.value) == said


def of_any_axis(kind: type[Level]) -> st.SearchStrategy[Level]:
    """A level of a kind, over one of three axes."""
    axis, tile = st.sampled_from("bkd"), st.sampled_from((16, 64, 128))
    made: dict[str, st.SearchStrategy[Level]] = {
        "Persistent": st.builds(ra.Persistent, st.integers(1, 4)), "Pad": st.builds(ra.Pad, tile),
        "Grid": st.builds(Grid, axis, tile), "Loop": st.builds(Loop, axis, tile, st.integers(0, 3), st.booleans()),
        "Parts": st.builds(Parts, axis, st.integers(2, 5), st.sampled_from(("kernel", "launch")), st.integers(1, 16)),
        "Whole": st.builds(Whole, axis, tile), "Lanes": st.builds(Lanes, axis, tile),
        "TensorCores": st.builds(ra.TensorCores, tile, st.sampled_from(("registers", "shared"))),
        "ScalarCores": st.builds(ra.ScalarCores, tile),
    }  # fmt: skip
    return made[kind.__name__]


@given(st.lists(st.sampled_from(list(KINDS.values())).flatmap(of_any_axis), max_size=6))
def test_any_levels_make_a_schedule_or_are_refused_by_name(levels: list[Level]) -> None:
    try:
        schedule = ra.Schedule(*levels)
    except ra.PlanError as refused:
        said = str(refused)
    else:
        said = ""
    if said:
        assert said.startswith("schedule `")
        return
    assert eval(repr(schedule.levels), {**KINDS, "__builtins__": {}}) == schedule.levels
    for level in levels:
        assert type(level)(**level_fields(level)) == level
    for level in schedule.levels:
        assert schedule.having(level) == schedule


def test_every_kind_has_its_place() -> None:
    assert set(INSIDE) == set(KINDS.values())
    assert {kind for kinds in INSIDE.values() for kind in kinds} == set(KINDS.values()) - {ra.Persistent}


# ---- having, without -------------------------------------------------------------------------------------------------


def test_a_level_replaces_its_own_kind_or_finds_its_place() -> None:
    schedule = ra.Schedule(Grid("b"), Grid("q", 64), Loop("k", 64, 2), Loop("d", 32), ra.TensorCores(128))
    grown = schedule.having(Parts("k", 4), ra.Persistent(2), Grid("h"), ra.TensorCores(256, "shared"), Grid("q", 128))
    assert str(grown) == ("Persistent(2) Grid(b) Grid(q, 128) Grid(h) Parts(k, 4) Loop(k, 64, stages=2) Loop(d, 32) "
                          'TensorCores(256, left="shared")')  # fmt: skip
    assert str(schedule.having(Parts("d", 2))) == ("Grid(b) Grid(q, 64) Loop(k, 64, stages=2) Parts(d, 2) Loop(d, 32) "
                                                   "TensorCores(128)")  # fmt: skip
    assert str(schedule.having(ra.ScalarCores(128))).endswith(" ScalarCores(128)")
    assert grown.without(Parts).without(ra.Persistent).levels[0] == Grid("b")
    with pytest.raises(ra.PlanError, match="directly inside"):
        schedule.having(Whole("k", 64))


# ---- a form and a device ---------------------------------------------------------------------------------------------

SIZES = {"b": 2, "n": 900}
X = {"x": "float32"}


def variance(*levels: Level, target: str = "sm_90a") -> str:
    return str(fused("variance").lower(target, SIZES, X, plan=ra.Schedule(*levels)).plan)


def test_a_schedule_written_by_hand_is_lowered() -> None:
    assert variance(Grid("b"), Loop("n", 512), Lanes("n", 128)) == "Grid(b) Loop(n, 512) Lanes(n, 128); sm_90a"
    assert variance(Grid("b"), Whole("n", 1024), Lanes("n", 128)) == "Grid(b) Whole(n, 1024) Lanes(n, 128); sm_90a"


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((Loop("n", 512), Lanes("n", 128)), "leaves out axis b. Add Grid(b, tile)."),
        ((Grid("b"), Grid("c"), Loop("n", 512), Lanes("n", 128)), "names axis c, and the loop has b, n."),
        (
            (Grid("b"), Loop("n", 512), Lanes("n", 100)),
            "gives a block 100 threads. Use a multiple of 32 from",
        ),
        ((Grid("b"), Whole("n", 512), Lanes("n", 128)), "in one tile of 512 elements, and the axis has 900."),
        ((Grid("n"), Loop("b", 512), Lanes("b", 128)), "lays axis n along the grid, and it is reduced. Use a Loop"),
        ((Grid("b"), Grid("n"), Loop("b_", 512), Lanes("b_", 128)), "names axis b_"),
        (
            (Grid("b"), Whole("n", 1024), Lanes("b", 128)),
            "holds the streamed axis in one tile and has lanes along the rows. Use a Loop",
        ),
        ((Grid("b"), Lanes("k", 128), Loop("n", 512)), "names axis k, and the loop has b, n"),
        (
            (Grid("b", 4096), Loop("n", 512), Lanes("n", 128)),
            "has Grid(b, 4096), and axis b has 2 elements: most of the tile would be empty. Lower 4096 to the next",
        ),
        ((Grid("b"), Loop("n", 10**6), Lanes("n", 128)), "Lower 1000000 to the next power of two, 1024."),
        (
            (Grid("b", 64), Loop("n", 1024), Lanes("n", 128)),
            "128 threads have registers for 255 each. Lower the 1024 of Loop(n, 1024) to at most 256.",
        ),
    ],
)
def test_what_a_form_and_a_device_add_is_said(levels: tuple[Level, ...], said: str) -> None:
    with pytest.raises(ra.PlanError) as error:
        variance(*levels)
    assert said in str(error.value)


def test_an_axis_that_tile_programs_do_not_tile_is_named() -> None:
    sizes, dtypes = {"b": 2, "h": 2, "q": 64, "k": 64, "d": 16, "e": 16}, dict.fromkeys("QKV", "float16")
    levels = (Grid("b", 2), Grid("h"), Grid("q", 64), Grid("e", 16), Loop("k", 64), ra.TensorCores(128))
    with pytest.raises(ra.PlanError, match=r"tiles axis b\. Tile programs tile q and e so far"):
        fused("attention").lower("sm_90a", sizes, dtypes, plan=ra.Schedule(*levels))


def test_a_schedule_needs_a_form_to_be_numbers() -> None:
    with pytest.raises(ra.PlanError, match="is for no form and target yet"):
        numbers_of(ra.Schedule(Grid("b"), Loop("n", 512), Lanes("n", 128)))
    space = space_for(fused("variance").form, "H200", SIZES, X)
    given = for_form(ra.Schedule(Grid("b"), Loop("n", 512), Lanes("n", 128)), space.binding, space.device)
    assert (numbers_of(given).block_row, numbers_of(given).block_streamed, numbers_of(given).threads) == (1, 512, 128)


WAYS: tuple[tuple[Level, ...], ...] = (
    (Grid("b", 2), Loop("n", 16), Lanes("n", 1)),
    (Grid("b"), Parts("n", 3), Loop("n", 8), Lanes("n", 1)),
    (Grid("b"), Lanes("n", 1), Loop("n", 32)),
    (Grid("b", 3), Whole("n", 100), Lanes("n", 1)),
)


def test_a_call_takes_a_schedule_written_by_hand() -> None:
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    form = fused("variance")
    for levels in WAYS:
        out = form(x=torch.from_numpy(x), backend="tilelang", plan=ra.Schedule(*levels))
        np.testing.assert_allclose(out, x.var(1), rtol=1e-5)


# ---- the names of the version before ---------------------------------------------------------------------------------


def test_old_names_work_with_a_warning() -> None:
    schedule = fused("variance").lower("H200", SIZES, X).plan
    with pytest.warns(DeprecationWarning, match=r"`.segments` of a schedule goes with the next version"):
        assert schedule.segments == 1
    with pytest.warns(DeprecationWarning, match="choices"):
        assert set(schedule.choices()) == set(CHOICES)
    with pytest.warns(DeprecationWarning, match="names of the old plan"):
        cut = replace(schedule, segments=2, level="block", block_streamed=256)  # type: ignore[call-arg]
    assert Parts("n", 2, rows=numbers_of(schedule).block_merged) in cut.levels
    with pytest.warns(DeprecationWarning, match="a flat plan in place"):
        lowered = fused("variance").lower("H200", SIZES, X, plan=numbers_of(cut))
    assert lowered.plan == cut
    with pytest.raises(AttributeError, match="a Schedule has no attribute 'colour'"):
        schedule.colour  # noqa: B018
    with pytest.raises(ra.PlanError, match="there is no colour"):
        ra.Schedule(Loop("n", 4), Lanes("n", 32), colour="red")
    plain = ra.Definition(schedule.device)
    with pytest.warns(DeprecationWarning, match="choices"):
        assert plain.choices() == {"form": "unfused"}


def test_columns_without_a_row_axis_are_laid_out_before_the_padding() -> None:
    """Forces on a point: a product with columns, and no axis for its rows (a schedule that the rules write)."""
    n, k, i, component = ra.axes("n k i l")
    mass, r = ra.tensor("m[k]"), ra.Tensor("r")
    apart = ra.sum((r[k, i] - r[n, i]) ** 2, i) + 1
    force = ra.fuse(ra.sum(mass * (r[k, component] - r[n, component]) / apart, k), axes="n l")
    written = force.source("sm_90a", sizes={"n": 20, "k": 20, "i": 3, "l": 3}, dtypes="float64")
    assert "Schedule: Grid(n) Grid(l, 16) Pad(16) Loop(k, 64" in written


def test_a_predicted_plan_says_why_it_is_refused() -> None:
    """Of registers as of shared memory, in the words of `source`."""
    n = ra.axes("n")
    variance, sizes = ra.fuse(ra.var(ra.tensor("x[b,n]"), n)), {"b": 64, "n": 10**6}
    long = ra.Schedule(ra.Grid("b"), ra.Lanes(n, 128), ra.Loop(n, 65536))
    found = variance.plans(sizes, "float32", "H100").predict(long)
    assert "gives a thread 512 numbers of the tile" in found.refusal
    with pytest.raises(ra.PlanError, match=re.escape(found.refusal[-60:])):
        variance.source("H100", sizes=sizes, dtypes="float32", plan=long)
