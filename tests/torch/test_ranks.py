"""Processes that compile one model side by side: the first measures, the others read what it decided."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
import torch
from torch import distributed
from torch._C._distributed_c10d import FileStore, HashStore
from torch.multiprocessing.spawn import spawn

from redalg.torch import gate, ranks
from redalg.torch.decisions import Decision
from tests.torch.test_aten import Called, drawn
from tests.torch.test_backend import compiled, normed

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
MEASURED = Decision(is_put=True, fused_us=1.0, plain_us=2.0)


@pytest.fixture
def group() -> Iterator[None]:
    """This process as the only one of its group."""
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_decision_comes_through_the_store() -> None:
    ranks.share_decision("abc", MEASURED)
    assert ranks.wait_for_decision("abc", monotonic()) == MEASURED


@pytest.mark.usefixtures("group")
def test_a_decision_that_never_comes_is_waited_for_no_longer_than_the_budget() -> None:
    start = monotonic()
    found = ranks.wait_for_decision("abc", start + 0.2)
    assert found == ranks.MISSING
    assert not found.lasts
    assert monotonic() - start < 5


@pytest.mark.usefixtures("group")
def test_the_first_measures_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = drawn(6, 20)
    monkeypatch.setattr(gate, "measure_region", lambda *_, **__: MEASURED)
    _, [report] = compiled(Called(normed), given)
    assert [one.decision for one in report.groups] == [MEASURED]

    torch._dynamo.reset()
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path / "of another machine"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "of another machine"))
    monkeypatch.setattr(gate, "is_first_rank", lambda: False)
    monkeypatch.setattr(gate, "measure_region", lambda *_: pytest.fail("the first process measures for all"))
    found, [report] = compiled(Called(normed), given)
    assert [one.decision for one in report.groups] == [MEASURED]
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)


def work(rank: int, folder: str) -> None:
    """One of two processes; each writes what it decided into the folder."""
    os.environ |= {"REDALG_CACHE_DIR": f"{folder}/{rank}", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{rank}/inductor"}
    store = FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    given = torch.randn(6, 20)
    found, [report] = compiled(Called(normed), given)
    torch.testing.assert_close(found, normed(given), rtol=1e-5, atol=1e-5)
    Path(folder, f"{rank}.txt").write_text("\n".join(str(one.decision) for one in report.groups))
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_decide_alike(tmp_path: Path) -> None:
    spawn(work, (str(tmp_path),), nprocs=2)
    first, second = ((tmp_path / f"{rank}.txt").read_text() for rank in (0, 1))
    assert first == second
    assert "µs with it" in first
