"""Times, errors and the cost model of redalg, measured and reported: `python -m benchmarks run|judge|fit|report`."""
