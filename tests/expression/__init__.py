"""Tests of the surface language."""
