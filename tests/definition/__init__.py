"""Tests of the definition's evaluation."""
