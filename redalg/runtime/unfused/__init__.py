"""Sizes at which the definition is faster than any kernel, and runs as operations of PyTorch."""
