"""Measuring plans: compiled by workers, timed, verified."""
