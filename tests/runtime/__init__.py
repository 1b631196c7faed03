"""Tests of calls: their tensors, kernels, caches and plans."""
