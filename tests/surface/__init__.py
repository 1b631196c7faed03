"""Tests of what crosses every room: from an expression to its results."""
