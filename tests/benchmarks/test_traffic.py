"""Launches, bytes and first calls of whole models: how a profiler's CSV is read, and what processes tell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import first_calls, models, traffic
from benchmarks.__main__ import main
from benchmarks.commands import models as command
from benchmarks.compete import OWN

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
NORM, PRODUCT = "triton_per_fused_add_norm_0", "void gemm<(int)128, half>(Params<float, 4>)"
LAUNCHES = (
    (NORM, "2,359,296", "0", "4,718,592"),
    (PRODUCT, "1,179,648", "12,288", "9,437,184"),
    (NORM, "64", "0", "128"),
)
METRICS = (*traffic.DRAM, *traffic.L2)


def recorded(*launches: tuple[str, ...], unit: str = "byte") -> str:
    """What `ncu --csv --print-units base` writes of launches, between lines of its own."""
    lines = [
        f'"{place}","4242","python3","127.0.0.1","{name}","1","7","(256, 1, 1)","(384, 1, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
        for place, (name, *values) in enumerate(launches) for metric, value in zip(METRICS, values, strict=False)
    ]  # fmt: skip
    before = ["==PROF== Connected to process 4242 (/usr/bin/python3.12)",
              f'==PROF== Profiling "{NORM}": 0%....50%....100% - 1 pass']  # fmt: skip
    return "\n".join([*before, HEADER, *lines, "==PROF== Disconnected from process 4242", ""])


def test_a_profile_is_read() -> None:
    found = traffic.read_profile(recorded(*LAUNCHES))
    assert found is not None
    assert found["launches"] == 3
    assert found["dram_bytes"] == 2_359_296 + 1_179_648 + 12_288 + 64
    assert found["l2_bytes"] == 4_718_592 + 9_437_184 + 128
    assert found["largest"] == [[NORM, 2, 2_359_360, 4_718_720], [PRODUCT, 1, 1_191_936, 9_437_184]]


@pytest.mark.parametrize("text", ["", "==WARNING== No kernels were profiled.\n", HEADER])
def test_a_profile_without_kernels_is_none(text: str) -> None:
    assert traffic.read_profile(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (recorded(*LAUNCHES, unit="Kbyte"), "told in 'Kbyte'"),
        (recorded((NORM, "1", "2", "n/a")), "could not convert"),
        (recorded((NORM, "1", "2")), "has no lts__t_bytes.sum"),
    ],
    ids=["unit", "no number", "missing"],
)
def test_a_profile_that_lacks_something_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        traffic.read_profile(text)


SCRIPT = """#!{python}
import sys
from pathlib import Path
given = sys.argv[1:]
assert given[given.index("--profile-from-start") + 1] == "off" and given[-1] == "--profiled", given
Path(given[given.index("--log-file") + 1]).write_text({text!r})
"""


def with_profiler(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a profiler on the PATH that writes a text."""
    path = folder / traffic.PROFILER
    path.write_text(SCRIPT.format(python=sys.executable, text=text))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_each_contestant_is_profiled_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_profiler(tmp_path, recorded(*LAUNCHES), monkeypatch)
    assert traffic.reason_against_profiler() == ""
    warmed = list[str]()

    def warm(arguments: list[str], caches: Any) -> dict[str, Any]:
        warmed.append(arguments[-1])
        return {"failure": "no memory"} if arguments[-1] == models.PEER else {}

    monkeypatch.setattr(traffic, "result_of", warm)
    found = traffic.profile_row("block-x1", models.SMALL["block"], are_warm=False)
    assert warmed == [OWN, models.PEER]
    assert found[OWN]["launches"] == 3
    assert found[models.PEER] == {"failure": "no memory"}
    traffic.profile_row("block-x1", models.SMALL["block"], are_warm=True)
    assert len(warmed) == 2


def test_a_profiler_that_may_not_count_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_profiler(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", monkeypatch)
    found = traffic.profile_row("block-x1", models.SMALL["block"], are_warm=True)
    assert {one["failure"] for one in found.values()} == {"ERR_NVGPUCTRPERM - The user does not have permission"}


def test_without_a_profiler_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(command, "measure_model", None)  # calling it would raise
    assert main(["models", "block", "--ncu"]) == 1
    assert "`ncu`, the command of Nsight Compute, is not on the PATH" in capsys.readouterr().out


CONTENT = {
    "rows": [
        {
            "name": "B-x1",
            "contestants": {
                OWN: {"launches": {"kernels": 12, "copies": 1}, "counted_bytes": 45_000_000},
                models.PEER: {"launches": {"kernels": 16, "copies": 0}, "counted_bytes": 50_000_000},
                models.PLAIN: {},
            },
            "first_calls": {
                models.PEER: {"first_call_s": 11.0}, OWN: {"first_call_s": 31.5},
                first_calls.SECOND: {"first_call_s": 6.25, "explored_groups": 0},
            },
            "profile": {OWN: {"launches": 12, "dram_bytes": 8_000_000, "l2_bytes": 30_000_000},
                        models.PEER: {"launches": 16, "dram_bytes": 10_000_000, "l2_bytes": 40_000_000}},
        },
        {
            "name": "B-x32",
            "contestants": {OWN: {}, models.PEER: {}, models.PLAIN: {}},
            "first_calls": {models.PEER: {"failure": "no memory"}, OWN: {"first_call_s": 31.5}},
            "profile": {OWN: {"failure": "no counters"}, models.PEER: {"launches": 1, "dram_bytes": 5, "l2_bytes": 5}},
        },
        {"name": "B-x64", "contestants": {OWN: {}, models.PEER: {}}},
    ]
}  # fmt: skip


def test_tables_show_what_was_measured() -> None:
    first, launches = (table_of(CONTENT) for table_of in traffic.TABLES.values())
    assert first is not None
    assert launches is not None
    assert [*first.rows] == [("B-x1", "11.0", "31.5", "20.5", "6.2", "0"), ("B-x32", "failed", "31.5", "-", "-", "-")]
    assert [*launches.rows] == [
        ("B-x1", "12 + 1", "16", "-", "45 (0.90)", "50", "8 (0.80)", "10", "30 (0.75)", "40"),
        ("B-x32", "-", "-", "-", "-", "-", "failed", "5e-06", "failed", "5e-06"),
    ]
    assert [table_of({"rows": CONTENT["rows"][2:]}) for table_of in traffic.TABLES.values()] == [None, None]


def test_what_a_process_says_is_read() -> None:
    def said(script: str) -> dict[str, Any]:
        return first_calls.result_of([sys.executable, "-c", script], {"REDALG_ASKED": "7"})

    found = said("import os; print('a line'); print('{\"first_call_s\": ' + os.environ['REDALG_ASKED'] + '}')")
    assert found["first_call_s"] == 7
    assert found["process_s"] >= 0
    assert said("raise ValueError('no such model')") == {"failure": "ValueError: no such model"}
    assert said("print(1)") == first_calls.FAILED


@pytest.mark.filterwarnings("ignore")
def test_groups_are_counted_where_they_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("REDALG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):  # other tests compile this model too
        monkeypatch.setenv(variable, str(tmp_path))
    torch._dynamo.reset()
    with torch.no_grad(), first_calls.counted_groups() as found:
        _, reports = models.own_graph(models.output, models.Block(), torch.randn(1, 12, 16))
    assert found == [len(report.groups) for report in reports] == [2]


@pytest.mark.slow
def test_a_second_process_explores_nothing() -> None:
    found = first_calls.first_calls("block-x1", models.SMALL["block"])
    assert not any("failure" in one for one in found.values())
    assert (found[OWN]["explored_groups"], found[first_calls.SECOND]["explored_groups"]) == (2, 0)
    assert found[models.PEER]["explored_groups"] == 0
    assert found[first_calls.SECOND]["first_call_s"] < found[OWN]["first_call_s"]
