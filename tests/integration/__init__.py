"""Tests with other libraries."""
