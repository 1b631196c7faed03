"""Terms F(x, d) as Σ h(d)·g(x): the structural route, its polynomials, signs and theorems."""
