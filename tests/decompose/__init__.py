"""Tests of parsing, of separation and of verdicts."""
