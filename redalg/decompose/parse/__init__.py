"""SymPy expression -> Cascade: ordered reductions over one set of axes, producers, outputs."""
