"""Device time of redalg's kernels beside its peers', in one process: `python -m benchmarks mha`."""
