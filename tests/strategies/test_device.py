"""Targets and cards: limits as data, found by the name that a driver gives."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.runtime.lowering import target_of
from redalg.strategies.device import CARDS, card_of, device_for, targets
from tests.cases.kernels import fused

SIZES = {"b": 4, "h": 16, "q": 1000, "k": 1000, "d": 64, "e": 64}


def test_every_card_has_the_limits_of_its_target() -> None:
    for card, one in CARDS.items():
        target = targets()[one.target]
        assert (one.part, device_for(card)) == (card, one)
        assert (one.smem_bytes, one.wgmma, one.fp8) == (target.smem_bytes, target.wgmma, target.fp8)
        assert one.memory_gb_s > 0
        assert one.product_tflops > 0


@pytest.mark.parametrize(
    ("name", "capability", "found"),
    [
        ("NVIDIA H200", (9, 0), "H200"),
        ("NVIDIA H100 80GB HBM3", (9, 0), "H100"),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "A100"),
        ("NVIDIA A10", (8, 6), "A10"),
        ("NVIDIA A10G", (8, 6), "sm_86"),
        ("NVIDIA GeForce RTX 3080", (8, 6), "RTX 3080"),
        ("NVIDIA GeForce RTX 4090", (8, 9), "RTX 4090"),
        ("NVIDIA L40S", (8, 9), "L40S"),
        ("NVIDIA L4", (8, 9), "sm_89"),
        ("Tesla T4", (7, 5), None),
        ("NVIDIA B200", (10, 0), None),
    ],
)
def test_a_gpu_is_known_by_name(name: str, capability: tuple[int, int], found: str | None) -> None:
    assert card_of(name, capability) == found


def test_the_cpu_has_the_c_target() -> None:
    assert target_of("cpu") == "c"


def test_a_card_is_a_target() -> None:
    """Its kernels are its target's; plans may differ, where the number of multiprocessors does."""
    form = fused("attention")
    dtypes = dict.fromkeys("QKV", "float16")
    card, target = (form.lower(one, SIZES, dtypes) for one in ("L40S", "sm_89"))
    assert str(card.source) == str(target.source)
    assert '"arch": "sm_89"' in str(form.lower("RTX 4090", SIZES, dtypes).source)
    with pytest.raises(ra.PlanError, match="target 'H20' is not known"):
        form.lower("H20", SIZES, dtypes)
