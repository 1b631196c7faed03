"""Routing of tokens to experts: a product with the router's weights, weights of the experts, the best of them."""

from __future__ import annotations

from sympy import exp

from redalg import sugar
from redalg.expression import Tensor, argmax, axes, axis, eq, let, tensor, tensors, topk, where
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern
from redalg.sugar import softmax


@pattern("routing", t=4096, c=2048, n=256, dtype="bfloat16")
def routing(k: int = 8) -> Fused:
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


@pattern("routing", t=4096, c=2048, n=256, dtype="bfloat16")
def sigmoid_routing(k: int = 8) -> Fused:
    """The k best experts of 1/(1 + exp(-x W)) + bias, with gates 1/(1 + exp(-x W)), of x[t,c], W[c,n] and bias[n].

    Args:
        k: experts a token.

    Returns:
        The fused function, with the outputs scores[t,j] by which they are chosen and experts[t,j]. The gates are scores
        less bias[experts].

    Source: DeepSeek-AI (2024), "DeepSeek-V3", Eq. 13 to 16.

    >>> import numpy as np
    >>> x, W = np.ones((1, 1)), np.zeros((1, 3))
    >>> scores, experts = sigmoid_routing(2)(x=x, W=W, bias=np.array([0.0, 0.25, 0.5]))
    >>> scores.tolist(), experts.tolist()
    ([[1.0, 0.75]], [[2, 1]])
    """
    c, n = axes("c n")
    x, W, bias = tensors("x[t,c] W[c,n] bias[n]")
    s = let("s", sum_over(x * W, c))
    scores, experts = topk(1 / (1 + exp(-s)) + bias, n, axis("j", size=k))
    return fuse({"scores": (scores, "t j"), "experts": (experts, "t j")})


@pattern("routing", t=4096, c=2048, n=256, dtype="bfloat16")
def router_z_loss() -> Fused:
    """The mean over the tokens of (log Σ exp(x W))², of x[t,c] and the router's weights W[c,n], as out[].

    Source: Zoph et al. (2022), "ST-MoE", Eq. 5.

    >>> import numpy as np
    >>> float(router_z_loss()(x=np.zeros((3, 1)), W=np.zeros((1, 2))).round(6))
    0.480453
    """
    t, c, n = axes("t c n")
    x, W = tensors("x[t,c] W[c,n]")
    return fuse(sugar.mean(sugar.logsumexp(sum_over(x * W, c), n) ** 2, t), axes="")


@pattern("routing", t=4096, n=256, m=256, shapes={"s": "t n"})
def expert_load() -> Fused:
    """The share of the tokens whose best expert is n, and the mean probability of n, of scores s[t,n].

    Returns:
        The fused function, with the outputs share[n] and mean[n]; the loss of balance is |n| Σ share·mean.

    Source: Fedus, Zoph, Shazeer (2022), "Switch transformers", Eq. 4 to 6.

    >>> import numpy as np
    >>> share, mean = expert_load()(s=np.log(np.array([[1.0, 3.0], [1.0, 1.0]])))
    >>> share.tolist(), mean.round(6).tolist()
    ([0.5, 0.5], [0.375, 0.625])
    """
    t, n, m = axes("t n m")
    s, S = tensor("s[t,n]"), Tensor("s")
    share = sugar.mean(where(eq(argmax(S[t, m], m), n), 1, 0), t)
    return fuse({"share": (share, "n"), "mean": (sugar.mean(sugar.softmax(s, n), t), "n")})


@pattern("routing", b=64, n=128256)
def greedy_choice() -> Fused:
    """The best word of every row of scores x[b,n] and the log of its probability, as a tuple (word[b], log_p[b]).

    With Gumbel noise added to x the word is a sample of softmax(x).

    Source: Gumbel (1954); Maddison, Tarlow, Minka (2014), "A* sampling".

    >>> import numpy as np
    >>> word, log_p = greedy_choice()(x=np.array([[0.0, 0.0, 0.0, 0.0]]))
    >>> word.tolist(), log_p.round(6).tolist()
    ([0], [-1.386294])
    """
    n = axes("n")
    x = tensor("x[b,n]")
    best = let("best", max_over(x, n))
    return fuse({"word": (argmax(x, n), "b"), "log_p": (best - sugar.logsumexp(x, n), "b")})
