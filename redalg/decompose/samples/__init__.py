"""Ranks of F(x_i, d_j) at joint samples: the numerical route, and what its evidence is."""
