"""Tests of monoids and semirings."""
