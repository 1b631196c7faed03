"""Extrema of F(x, d) through extrema of x alone, and conditions that one of them decides."""
