"""Memory is bounded by the block: a subprocess runs a long row and reports its own peak."""

import subprocess
import sys

from tests.source import ROOT

CODE = """
import resource
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
data = inputs(16384)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = fused(**data, backend="torch")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert torch.isfinite(out).all()
print((peak - before) * 1024)
"""
GIB = 1 << 30
SCORES_BYTES = 16384 * 16384 * 4


def test_a_long_row_stays_below_a_gibibyte() -> None:
    """q = k = 16384, d = 64, float32: the scores alone, unfused, take a GiB."""
    assert SCORES_BYTES == GIB
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < GIB / 2
