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
data = inputs(8192)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = fused(**data, backend="torch")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert torch.isfinite(out).all()
print((peak - before) * 1024)
"""
LIMIT = 1 << 28
SCORES_BYTES = 8192 * 8192 * 4


def test_a_long_row_stays_below_its_scores() -> None:
    """q = k = 8192, d = 64, float32: the scores alone, unfused, take 256 MiB."""
    assert SCORES_BYTES == LIMIT
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < LIMIT / 2
