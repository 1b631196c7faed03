"""Reductions on a dask cluster of two processes: states travel between them, and what a lost worker held comes anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, KilledWorker, LocalCluster, wait
from distributed.protocol import deserialize, serialize

import redalg as ra
from redalg.data.dask import reduction
from tests.data.chunkings import ROWS, check
from tests.integration.bounded import within

pytestmark = pytest.mark.filterwarnings("ignore")
ROW_CHUNKS, CHUNKS = (2, 2), (8, 1, 7, 16, 0, 8)
LENGTH = sum(CHUNKS)
PATIENCE_S = 120


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of two workers, each a process of one thread."""
    quiet = {"distributed.logging.distributed": "critical", "distributed.comm.timeouts.connect": "20s"}
    with (
        dask.config.set(quiet),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, timeout=PATIENCE_S) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def both_workers(client: Client) -> None:
    """Wait for the worker that takes a killed one's place."""
    client.wait_for_workers(2, timeout=PATIENCE_S)


def tensors_of(fused: ra.Fused, far: float = 0.0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=(sum(ROW_CHUNKS), LENGTH)) + far for name in fused.cascade.inputs()}


def lazily(fused: ra.Fused, tensors: dict[str, np.ndarray]) -> Any:
    chunked = {name: da.from_array(one, chunks=(ROW_CHUNKS, CHUNKS)) for name, one in tensors.items()}
    return reduction(fused, chunked, split_every=2)


@pytest.mark.parametrize("name", ROWS)
def test_a_cluster_gives_the_whole(client: Client, name: str) -> None:
    fused = ROWS[name]
    tensors = tensors_of(fused)
    lazy = lazily(fused, tensors)
    with within(PATIENCE_S):
        outputs = client.gather(client.compute(list(lazy) if isinstance(lazy, tuple) else [lazy]))
    check(fused.result(*outputs) if isinstance(lazy, tuple) else outputs[0], fused, tensors, "float64")


def test_states_travel_as_their_buffer() -> None:
    fused = ROWS["correlation"]
    state = fused.leaf(tensors_of(fused))
    header, frames = serialize(state)
    assert any(memoryview(frame).nbytes == state.buffer.nbytes for frame in frames[1:])  # beside the pickle, not in it
    travelled = deserialize(header, [bytes(frame) for frame in frames])
    for other in (travelled, fused.merge(travelled, fused.empty_state({"b": 4}, "float64", library="numpy"))):
        np.testing.assert_allclose(fused.finish(other), fused.finish(state), rtol=1e-12)


def fall(block: np.ndarray, marks: str, times: int, place: int) -> np.ndarray:
    """A block as it is; the worker that computes the one that begins with `place` dies, for the first so many times."""
    with Path(marks).open("a", encoding="utf-8") as file:
        file.write(f"{block[0, 0] if block.size else -1:.0f}\n")
    if block.size and block[0, 0] == place and Path(marks).read_text(encoding="utf-8").count(f"{place}\n") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def fallen(marks: Path, times: int) -> Any:
    """The variance of rows 0, 1, 2, … whose fourth chunk kills the worker that computes it."""
    rows = da.from_array(np.tile(np.arange(float(LENGTH)), (4, 1)), chunks=((4,), CHUNKS))
    fragile = rows.map_blocks(fall, str(marks), times, sum(CHUNKS[:3]), dtype="float64", meta=np.empty((0, 0)))
    return reduction(ROWS["variance"], fragile, split_every=2)


def test_the_pieces_of_a_killed_worker_are_computed_again(client: Client, tmp_path: Path) -> None:
    with within(PATIENCE_S):
        found = client.compute(fallen(tmp_path / "marks", 1)).result()
    np.testing.assert_allclose(found, [np.arange(LENGTH).var()] * 4, rtol=1e-12)
    computed = (tmp_path / "marks").read_text(encoding="utf-8").split()
    assert computed.count(str(sum(CHUNKS[:3]))) == 2
    assert len(computed) > len(CHUNKS)


def test_states_of_a_worker_that_is_killed_later_are_made_again(client: Client) -> None:
    """The leaves lie on both workers when one of them dies; the merges need all of them."""
    fused = ROWS["variance"]
    tensors = tensors_of(fused, far=1e8)
    lazy = lazily(fused, tensors)
    graph = dict(lazy.__dask_graph__())
    leaves = [key for key in graph if isinstance(key, tuple) and str(key[0]).startswith("leaf-")]
    with within(PATIENCE_S):
        states = client.get(graph, leaves, sync=False)
        wait(states)
        places = client.who_has(states)
        victim = next(iter(places[states[0].key]))
        assert len({worker for workers in places.values() for worker in workers}) == 2
        os.kill(pid_of(client, victim), signal.SIGKILL)
        found = client.compute(lazy).result()
    np.testing.assert_allclose(found, tensors["x"].var(1), rtol=1e-7)


def pid_of(client: Client, worker: str) -> int:
    """The process of a worker."""
    pids: dict[str, int] = client.run(os.getpid, workers=[worker])
    return pids[worker]


def test_a_chunk_that_kills_every_worker_is_an_error(client: Client, tmp_path: Path) -> None:
    with within(PATIENCE_S), dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        lazy = fallen(tmp_path / "marks", 99)
        with pytest.raises(KilledWorker, match="fall"):
            client.compute(lazy).result()
    with within(PATIENCE_S):  # the cluster serves others
        np.testing.assert_allclose(client.compute(fallen(tmp_path / "marks", 0)).result()[0], np.arange(LENGTH).var())


def test_a_piece_that_does_not_fit_is_an_error(client: Client) -> None:
    """A block that is not what its array says: the message of the worker's exception is the leaf's own."""
    wrong = da.from_array(np.ones((4, 8)), chunks=(4, 4)).map_blocks(
        to_integers, dtype="float64", meta=np.empty((0, 0))
    )
    with within(PATIENCE_S), pytest.raises(ra.InputError, match="tensor `x` is int64"):
        client.compute(reduction(ROWS["variance"], wrong)).result()


def to_integers(block: np.ndarray) -> np.ndarray:
    return block.astype("int64")
