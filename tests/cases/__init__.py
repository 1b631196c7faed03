"""Cascades, data and generators, which several tests read."""
