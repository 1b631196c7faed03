"""Tests of the library's patterns."""
