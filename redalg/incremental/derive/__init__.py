"""Decomposition -> FusedForm: pivots, accumulators, transitions, and what `finish` assigns."""
