"""Random cascades from two generators, their verdicts and their results: `python -m tests.fuzz --help`."""
