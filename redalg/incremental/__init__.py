"""Decomposition -> FusedForm: the derived commutative monoid (leaf, merge, finish), placed and guarded.

Grammar (every node immutable):

    FusedForm   := cascade, Extremum*, Structure*, Pivot*, Accumulator*, Assignment*, FormOutput*
    Extremum    := value, monoid, term u(x)                       state slot  ⊕ u
    Structure   := values, monoid, terms u(x), place              a state slot for each component of ⊕ lift(u, n)
    Pivot       := value, base u(x), source                       c, by which u is shifted or its exponential scaled
    Accumulator := value, weight, factors, transition             state slot  Σ Π exp(q·(u − c)) · Π factors
    Assignment  := value, expr(slots, earlier assignments)        finish
"""
