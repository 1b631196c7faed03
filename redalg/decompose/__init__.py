"""SymPy expression -> Cascade -> Decomposition: what the cascade is, and how each reduction separates.

Grammar (every node immutable):

    Cascade    := axis, domain, Reduction*, Producer*, Output*
    Reduction  := name, monoid, term(x, d), free axes        d_i = ⊕_axis term
    Producer   := name, free axes, Cascade                   x-data computed on another axis
    Output     := name, expr(d), axes
    Decomposition := per reduction  Separation(polynomial Σ h_k(d)·g_k(x), rank)
"""
