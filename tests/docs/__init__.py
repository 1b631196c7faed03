"""Tests of the documentation's site."""
