"""Options that keep a C compiler from what it gets wrong."""

NO_MASKED_READS = ',\n                            "-fno-tree-loop-if-convert"'
"""Reads at computed places, and backwards, stay branches, which GCC 12 with AVX-512 reads wrongly otherwise.

It made masked gathers of `term[i, j] = m[i, j // 4] * m[i, j // 4]`, for rows below a run-time size, and of
`weight[i, j] * x[i, 7 - j]` under a condition masked loads that go backwards, which took values from beside x.
"""
