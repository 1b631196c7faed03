"""Tests of programs of tensor expressions."""
