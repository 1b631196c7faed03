"""Cascade -> Decomposition, or the verdict that there is none; forms of several passes."""
