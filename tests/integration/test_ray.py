"""Aggregates of Ray Data by two processes of Ray: of datasets, of groups, of what a killed worker has to read again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import ray
from ray.data.aggregate import AggregateFnV2

import redalg as ra
from docs.generate.blocks import python_blocks
from redalg.data.ray import aggregation
from tests.data.chunkings import COLUMNS, check, n, x
from tests.house.source import ROOT
from tests.integration.bounded import within

pytestmark = pytest.mark.filterwarnings("ignore")
PATIENCE_S = 240
variance, correlation = COLUMNS["variance"], COLUMNS["correlation"]
GENERATOR = np.random.default_rng(0)
DRAWN = GENERATOR.normal(size=600)
FAR = {"x": DRAWN + 1e8, "y": 0.5 * DRAWN + GENERATOR.normal(size=600) + 1e8, "g": np.arange(600) % 3}


@pytest.fixture(scope="module", autouse=True)
def two_workers() -> Iterator[None]:
    """Ray on two cores, whose processes import the redalg of this checkout."""
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}}
    with within(PATIENCE_S):
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=200 << 20, runtime_env=environment)  # fmt: skip
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars, context.default_hash_shuffle_parallelism = False, 2
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with within(PATIENCE_S):
        yield


def blocks_of(table: Any, length: int = 100) -> Any:
    """A dataset of blocks of so many rows."""
    return ray.data.from_arrow([table.slice(first, length) for first in range(0, table.num_rows, length)])


@pytest.mark.parametrize("name", COLUMNS)
def test_a_dataset_gives_the_whole(name: str) -> None:
    fused = COLUMNS[name]
    tensors = {key: GENERATOR.normal(size=60).astype("float32") for key in fused.cascade.inputs()}
    found = blocks_of(pa.table(tensors), 16).aggregate(aggregation(fused, "found"))["found"]
    check(fused.result(**found) if isinstance(found, dict) else found, fused, tensors, "float64")


@pytest.mark.parametrize("name", ["variance", "correlation"])
def test_groups_far_from_zero(name: str) -> None:
    """Of one column and of several: Ray hands an `AggregateFnV2` the columns that it names, and no other."""
    fused = COLUMNS[name]
    aggregate = aggregation(fused, "found")
    assert isinstance(aggregate, AggregateFnV2) == (name == "variance")
    rows = blocks_of(pa.table(FAR)).groupby("g").aggregate(aggregate).take_all()
    found = {row["g"]: row["found"] for row in rows}
    groups = {group: {key: FAR[key][FAR["g"] == group] for key in fused.cascade.inputs()} for group in range(3)}
    assert found.keys() == groups.keys()
    for group, tensors in groups.items():
        np.testing.assert_allclose(found[group], fused.reference(**tensors), rtol=1e-7)


def test_a_null_is_left_out_and_a_nan_is_a_number() -> None:
    table = pa.table({"price": [1.0, None, 3, 4, 8], "volume": [2, 5, None, 1, 0], "name": ["a"] * 5})
    bound = aggregation(correlation, "found", columns={"x": "price", "y": "volume"})
    found = blocks_of(table, 2).aggregate(bound)["found"]
    np.testing.assert_allclose(found, np.corrcoef([1, 4, 8], [2, 1, 0])[0, 1], rtol=1e-12)
    frame = pd.DataFrame({"x": [1.0, 2.0, float("nan")], "g": [0, 0, 1]})
    rows = ray.data.from_pandas(frame).groupby("g").aggregate(aggregation(variance, "found")).take_all()
    np.testing.assert_equal({row["g"]: row["found"] for row in rows}, {0: 0.25, 1: float("nan")})


def test_the_code_of_the_documents_runs() -> None:
    """The blocks that need Ray, which tests/benchmarks/test_readme.py does not run."""
    page = (ROOT / "docs" / "STATES.md").read_text(encoding="utf-8")
    [before] = [block for block in python_blocks(page) if "correlation = ra.fuse" in block]
    namespace: dict[str, Any] = {"np": np, "ra": ra, "n": n}
    for block in (before, *python_blocks(page, "py")):
        exec(compile(block, "STATES.md", "exec"), namespace)


def test_nothing_at_all() -> None:
    none = blocks_of(pa.table(FAR)).filter(lambda row: row["x"] < 0)
    assert none.aggregate(aggregation(ra.fuse(ra.var(x, n)), "found", empty="zero"))["found"] == 0


@pytest.mark.parametrize(("column", "text"), [("z", "no column `z`, for tensor `x`"), ("name", "is of type")])
@pytest.mark.parametrize("fused", [variance, correlation], ids=["of one", "of several"])
def test_a_column_that_does_not_serve_is_an_error(fused: ra.Fused, column: str, text: str) -> None:
    dataset = blocks_of(pa.table({"x": [1.0, 2], "y": [1.0, 2], "name": ["a", "b"]}))
    with pytest.raises(ra.InputError, match=text):
        dataset.aggregate(aggregation(fused, "found", columns={"x": column}))


def test_the_blocks_of_a_killed_worker_are_read_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def fall(block: Any) -> Any:
        if block["x"][0].as_py() == 40 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    table = pa.table({"x": np.arange(80.0), "g": np.arange(80) % 2})
    fragile = blocks_of(table, 20).map_batches(fall, batch_format="pyarrow", batch_size=None)
    rows = fragile.groupby("g").aggregate(aggregation(variance, "found")).take_all()
    assert mark.exists()
    np.testing.assert_allclose([row["found"] for row in rows], [np.arange(0, 80, 2).var()] * 2, rtol=1e-12)
