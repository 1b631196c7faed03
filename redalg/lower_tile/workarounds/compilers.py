"""Options that keep a C compiler from what it gets wrong."""

NO_MASKED_GATHERS = ',\n                            "-fno-tree-loop-if-convert"'
"""Reads at computed places, and backwards, stay branches: GCC 12 with AVX-512 reads wrongly where it makes masked gathers
of two (seen: `term[i, j] = m[i, j // 4] * m[i, j // 4]`, for rows below a run-time size), or masked loads that go
backwards (seen: `weight[i, j] * x[i, 7 - j]` where a condition holds, in float64, with values from beside x)."""
