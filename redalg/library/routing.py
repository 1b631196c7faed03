"""Routing of tokens to experts: a product with the router's weights, a softmax over the experts, the best of them."""

from __future__ import annotations

from redalg.expression import axes, axis, let, tensors, topk
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.sugar import softmax


def routing(k: int = 2) -> Fused:
    """The k experts of every token and their probabilities, softmax(x W) over the experts, of x[t,c] and W[c,n].

    Args:
        k: experts a token.

    Returns:
        The fused function, with the outputs gates[t,j] in falling order and experts[t,j], int64; of experts of equal
        probability the lower first.

    Source: Shazeer et al. (2017), "Outrageously large neural networks", Eq. 3-5; RedFuser (ASPLOS '26), Eq. 37.

    >>> import numpy as np
    >>> gates, experts = routing(2)(x=np.array([[1.0, 0.0]]), W=np.array([[0.0, 3.0, 3.0], [9.0, 9.0, 9.0]]))
    >>> experts.tolist(), [round(float(gate), 3) for gate in gates[0]]
    ([[1, 2]], [0.488, 0.488])
    """
    c, n = axes("c n")
    x, W = tensors("x[t,c] W[c,n]")
    s = let("s", sum_over(x * W, c))
    gates, experts = topk(softmax(s, n), n, axis("j", size=k))
    return fuse({"gates": (gates, "t j"), "experts": (experts, "t j")})
