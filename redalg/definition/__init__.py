"""The definition: what a user wrote, evaluated as it stands, in float64.

It shares no code with the derivation, so that one can be judged by the other: it reads the nodes of `expression` alone,
before any parsing. An array has one dimension for every named axis, of length 1 where it does not vary.

    Σ a·b·…         a contraction, wherever no factor hides another (THEORY section 4): einsum holds no product
    exp(u + v)      0 where u or v is −∞; such a weight hides what it multiplies, as an indicator of 0 does
    a·(log b + c)   0 where a is 0 and log b is −∞
    where(c, a, b)  of each element only the branch that is chosen counts: the other may index beyond its tensor
"""

from redalg.definition.outputs import evaluate_definition, evaluate_sample

__all__ = ["evaluate_definition", "evaluate_sample"]
