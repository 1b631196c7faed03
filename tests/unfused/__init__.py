"""Tests of the definition as PyTorch, and of files that run alone."""
