"""Memory is bounded by the block: a subprocess runs a long row and reports its own peak."""

import subprocess
import sys

import numpy as np
import pytest

from tests.house.source import ROOT

CODE = """
import sys
import torch
import redalg as ra
from redalg.instruments.memory import resident_bytes
from sympy import sqrt
d, k = ra.axes("d k")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
s = ra.sum(Q * K, d) / sqrt(d.extent)
fused = ra.fuse(ra.sum(ra.softmax(s, k) * V, k), axes="b h q e")

def inputs(length):
    return {name: torch.randn(1, 1, length, 64) for name in ("Q", "K", "V")}

fused(**inputs(64), backend="torch")  # libraries are loaded and threads are up
data = inputs(int(sys.argv[1]))
before = resident_bytes("VmRSS")
out = fused(**data, backend="torch")
peak = resident_bytes("VmHWM")  # of this process: ru_maxrss has its parent's too
assert torch.isfinite(out).all()
print(peak - before)
"""
MIB = 1 << 20


@pytest.mark.parametrize(("length", "mib"), [(8192, 256), pytest.param(16384, 1024, marks=pytest.mark.slow)])
def test_a_long_row_stays_below_its_scores(length: int, mib: int) -> None:
    """q = k, d = 64, float32: the scores alone, unfused, take so many MiB."""
    assert length**2 * 4 == mib * MIB
    command = [sys.executable, "-c", CODE, str(length)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(process.stdout) < mib * MIB / 2


def test_a_peak_is_that_of_the_process_alone() -> None:
    """`ru_maxrss` outlives `exec`, and with it what the parent had: no test of a peak could fail beside it."""
    large = np.ones(1 << 26)
    code = "from redalg.instruments.memory import resident_bytes; print(resident_bytes('VmHWM'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < large.nbytes
