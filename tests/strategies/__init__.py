"""Tests of plans: their space, the model of their time, and the search."""
