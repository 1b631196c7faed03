"""Tests of states across ranks."""
