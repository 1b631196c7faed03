"""Tests of the import of PyTorch's graphs."""
