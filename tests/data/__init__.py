"""Tests of `redalg.data`, against the engines."""
