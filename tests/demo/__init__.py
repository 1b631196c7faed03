"""Tests of the demo and the command line."""
