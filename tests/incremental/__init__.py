"""Tests of derived forms, and of what one loop holds."""
