"""Memory is bounded by the block: a subprocess runs a long row and reports its own peak."""

import subprocess
import sys

import pytest

from tests.house.source import ROOT

CODE = """
import resource
import sys
import torch
import redalg as ra
from sympy import sqrt
d, k = ra.axes("d k")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
s = ra.sum(Q * K, d) / sqrt(d.extent)
fused = ra.fuse(ra.sum(ra.softmax(s, k) * V, k), axes="b h q e")

def inputs(length):
    return {name: torch.randn(1, 1, length, 64) for name in ("Q", "K", "V")}

fused(**inputs(64), backend="torch")  # libraries are loaded and threads are up
data = inputs(int(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = fused(**data, backend="torch")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert torch.isfinite(out).all()
print((peak - before) * 1024)
"""
MIB = 1 << 20


@pytest.mark.parametrize(("length", "mib"), [(8192, 256), pytest.param(16384, 1024, marks=pytest.mark.slow)])
def test_a_long_row_stays_below_its_scores(length: int, mib: int) -> None:
    """q = k, d = 64, float32: the scores alone, unfused, take so many MiB."""
    assert length**2 * 4 == mib * MIB
    command = [sys.executable, "-c", CODE, str(length)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(process.stdout) < mib * MIB / 2
