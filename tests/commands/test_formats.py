"""Tables of commands as JSON and Markdown, for other programs; advice as commands."""

from __future__ import annotations

import json

import pytest

from redalg.__main__ import main
from redalg.commands.shown import wrap_plan


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_plans_are_written_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    written = json.loads(printed(capsys, "plans", "softmax", "--most", "2", "--json"))
    assert [*written] == ["title", "rows", "note"]
    assert [row["plan"].startswith("Grid(b) ") for row in written["rows"]] == [True] * 3  # the two, and a call's
    lines = printed(capsys, "plans", "softmax", "--most", "2", "--markdown").splitlines()
    cells = [line.split(" | ")[-1].removesuffix(" |") for line in lines if line.startswith("| ")]
    assert cells == ["plan", *(row["plan"] for row in written["rows"])]
    with pytest.raises(SystemExit):
        main(["plans", "softmax", "--json", "--markdown"])


@pytest.mark.parametrize("verb", ["explain", "show", "source", "plans"])
def test_advice_is_the_command_that_works(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    expression = "mean(Abs(x[b,n] - mean(x[b,n], n)), n)"
    assert main([verb, expression]) == 1
    found = " ".join("".join(capsys.readouterr()).split())
    assert f"Run two passes: `redalg {verb} … --passes 2` computes `sum(x[b, n], n)` first" in found
    assert "ra.fuse" not in found
    assert main([verb, expression, "--passes", "2"]) == 0


def test_a_level_is_not_parted_from_its_semicolon() -> None:
    assert wrap_plan("Grid(b, 4) Lanes(n, 1); c", 80) == ["Grid(b, 4) Lanes(n, 1); c"]
