"""Predict the time in which ranks merge their states, by the way that these take.

    gathered   t = latency + (N − 1)·S / link + (N + 1)·S / memory
    sliced     t = 2·latency + 2·(N − 1)/N·S / link + (3 + 1/N)·S / memory
    pulled     t = latency of a barrier + (N − 1)·S / link + (N + 1)·S / memory

N ranks, S bytes of a state. A rank receives all others' states, or a slice of each and then every merged slice; it
reads what it merges, and writes what it has merged and assembled. A rank that pulls reads the others' states from their
memory, after a barrier.
"""

from __future__ import annotations

from redalg.strategies.device import DeviceSpec

LINK_GB_S = {"H200": 450.0, "H100": 450.0, "H800": 200.0, "A100": 300.0}
"""Bandwidth between cards of a machine, one way, by data sheet (NVLink)."""
OTHER_LINK_GB_S, MEMORY_LINK_GB_S = 25.0, 2.0
"""The same of cards without NVLink (PCIe 4.0), and of processes on one CPU."""
LATENCY_US, CPU_LATENCY_US = 25.0, 300.0
"""Of a collective, its launch on the host included; by NCCL on a few GPUs, and by Gloo."""
PULL_LATENCY_US = 8.0
"""Of a barrier of GPUs in symmetric memory and of one operation that reads it, their launches included."""


def link_gb_s(device: DeviceSpec) -> float:
    """Bandwidth between two ranks, in 10⁹ bytes a second."""
    return MEMORY_LINK_GB_S if device.target == "c" else LINK_GB_S.get(device.part, OTHER_LINK_GB_S)


def gathered_us(nbytes: int, ranks: int, device: DeviceSpec) -> float:
    """The time if every rank gathers all states of so many bytes, and merges them.

    >>> from redalg.strategies.device import device_for
    >>> gathered_us(1 << 14, 4, device_for("H200")) < sliced_us(1 << 14, 4, device_for("H200"))
    True
    >>> gathered_us(1 << 27, 4, device_for("H200")) < sliced_us(1 << 27, 4, device_for("H200"))
    False
    """
    return _time_us(device, _collectives_us(device, 1), (ranks - 1) * nbytes, (ranks + 1) * nbytes)


def sliced_us(nbytes: int, ranks: int, device: DeviceSpec) -> float:
    """The time if every rank merges a slice of all states, and gathers the others' merged slices."""
    latency_us = _collectives_us(device, 2)
    return _time_us(device, latency_us, 2 * (ranks - 1) / ranks * nbytes, (3 + 1 / ranks) * nbytes)


def pulled_us(nbytes: int, ranks: int, device: DeviceSpec) -> float:
    """The time if every rank reads the others' states from their memory, and merges them.

    >>> from redalg.strategies.device import device_for
    >>> pulled_us(1 << 14, 4, device_for("H200")) < gathered_us(1 << 14, 4, device_for("H200")) / 2
    True
    """
    return _time_us(device, PULL_LATENCY_US, (ranks - 1) * nbytes, (ranks + 1) * nbytes)


def _collectives_us(device: DeviceSpec, number: int) -> float:
    return number * (CPU_LATENCY_US if device.target == "c" else LATENCY_US)


def _time_us(device: DeviceSpec, latency_us: float, received: float, touched: float) -> float:
    return latency_us + received / (link_gb_s(device) * 1e3) + touched / (device.memory_gb_s * 1e3)
