"""Tests of tile programs and of the kernels that they become."""
