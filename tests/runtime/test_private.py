"""PyTorch's private functions do what is relied on: a version in which one does not is met here first."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap

from redalg.runtime.bind.private import (
    NO_MULTICAST,
    computes_tangents,
    is_eager,
    is_in_forward_mode,
    is_transforming,
    symmetric_backend,
    symmetric_memory,
    timeout_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # of PyTorch itself
ONES = torch.ones(2, 3)


def seen_within(question: Callable[[], bool], run: Callable[[Callable[[Any], Any]], Any]) -> bool:
    """The answer to a question that a function asks while something runs it."""
    answers = []

    def asking(x: torch.Tensor) -> torch.Tensor:
        answers.append(question())
        return (x * x).sum()

    run(asking)
    return answers[-1]


TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda function: grad(function)(ONES),
    "vmap": lambda function: vmap(function)(ONES),
    "jvp": lambda function: jvp(function, (ONES,), (ONES,)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_seen(name: str) -> None:
    assert seen_within(is_transforming, TRANSFORMS[name])
    assert not seen_within(is_eager, TRANSFORMS[name])
    assert not is_transforming()
    assert is_eager()


def test_a_plain_gradient_is_no_transform() -> None:
    assert not seen_within(is_transforming, lambda function: function(ONES.clone().requires_grad_()).backward())


def test_levels_of_forward_mode_are_seen() -> None:
    assert not is_in_forward_mode()
    with forward_ad.dual_level():
        assert is_in_forward_mode()
        assert computes_tangents()
        assert not is_eager()
    assert seen_within(is_in_forward_mode, TRANSFORMS["jvp"])
    assert not is_in_forward_mode()


def test_tangents_stop_at_a_recorded_function() -> None:
    answers = []

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            answers.append(computes_tangents())
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
            return tangent * 2

    with forward_ad.dual_level():
        Recorded.apply(forward_ad.make_dual(ONES, ONES))
    assert answers == [False]


def test_a_group_tells_its_timeout(tmp_path: Path) -> None:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", timedelta(seconds=7), rank=0, world_size=1)
    try:
        assert timeout_of(dist.group.WORLD, torch.device("cpu")) == 7
    finally:
        dist.destroy_process_group()


def test_symmetric_memory_has_the_parts_that_windows_take() -> None:
    from torch._C._distributed_c10d import _SymmetricMemory

    wanted = {
        "empty_strided_p2p": "size: Tuple[int, ...], stride: Tuple[int, ...], dtype: torch.dtype, device: torch.device",
        "get_buffer": "sizes: Tuple[int, ...], dtype: torch.dtype",
        "barrier": "timeout_ms",
    }
    for name, parameters in wanted.items():
        assert parameters in str(getattr(_SymmetricMemory, name).__doc__)
    assert isinstance(_SymmetricMemory.multicast_ptr, property)
    assert symmetric_backend(torch.device("cpu")) is None


@pytest.mark.parametrize("before", [None, "0"])
def test_memory_that_is_not_mapped_leaves_the_environment_alone(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv(NO_MULTICAST, raising=False)
    else:
        monkeypatch.setenv(NO_MULTICAST, before)
    with pytest.raises(RuntimeError, match="does not support device type cpu"):
        symmetric_memory(16, torch.device("cpu"), None)
    assert os.environ.get(NO_MULTICAST) == before


def test_memory_is_mapped_without_multicast(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.delenv(NO_MULTICAST, raising=False)
    monkeypatch.setattr(
        "torch._C._distributed_c10d._SymmetricMemory.empty_strided_p2p", lambda *_: torch.zeros(16, dtype=torch.uint8)
    )
    monkeypatch.setattr(
        "torch.distributed._symmetric_memory.rendezvous", lambda *_: seen.append(os.environ.get(NO_MULTICAST))
    )
    own, _ = symmetric_memory(16, torch.device("cpu"), None)
    assert len(own) == 16
    assert seen == ["1"]
