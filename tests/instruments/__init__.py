"""Tests of what functions measure of themselves."""
