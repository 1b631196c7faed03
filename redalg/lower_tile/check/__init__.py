"""Checks and the interpreter of tile programs."""
