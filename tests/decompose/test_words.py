"""Refusals speak of the user's tensors and reductions, and hold no letter of the notation."""

from __future__ import annotations

import pytest
from sympy import Abs, Expr, cos, erf, exp, floor, log, sign, sin, sqrt, tanh

import redalg as ra
from redalg.decompose.verdict.words import Letters, flat_parts, in_words_of
from redalg.errors import Text
from redalg.explain import explain_refusal

sample, d = ra.axes("sample d")
price, weight, qty, g = ra.tensors("price[sample] weight[sample] qty[sample] g[d]")
x = ra.tensor("x[d]")
tau = ra.scalars("tau", positive=True)
mu, nu = ra.let("mu", ra.mean(price, sample)), ra.let("nu", ra.mean(qty, sample))
top, total = ra.let("top", ra.max(price, sample)), ra.let("total", ra.sum(price, sample))
size = ra.where(abs(price - mu) < 1, (price - mu) ** 2 / 2, abs(price - mu) - tau / 2)

REFUSED: dict[str, tuple[Expr, str]] = {  # a name -> (what is summed or the like, the words of its reason)
    "a deviation": (ra.sum(abs(price - mu), sample), "moves with `mu`"),
    "a mean without a name": (
        ra.mean(abs(price - ra.mean(price, sample)), sample), "moves with `mean(price[sample], sample)`"),
    "a Huber loss": (ra.sum(size, sample), "moves with `mu`"),
    "a logarithm": (ra.sum(log(1 + price * total), sample), "mixes `price[sample]` with `total`"),
    "a sine": (ra.sum(sin(price * total), sample), "couples `price[sample]` with `total`"),
    "a hyperbolic tangent": (ra.sum(tanh(price - top), sample), "moves with `top`"),
    "a threshold": (ra.sum(ra.where(price > mu, price, 0), sample), "compares `price[sample]` with `mu`"),
    "a weighted maximum": (ra.max(abs(price - mu) * weight, sample), "moves with `mu`"),
    "a hull": (ra.max(price * weight - mu * qty, sample), "functions of `price[sample]`, `qty[sample]` and `weight"),
    "a place": (ra.argmax(abs(price - mu), sample), "function of `price[sample]` for every `mu`"),
    "a pole": (ra.sum(1 / (price + total), sample), "moves with `total`"),
    "a root": (ra.sum(sqrt(price**2 + total**2), sample), "mixes `price[sample]` with `total`"),
    "a double exponential": (ra.sum(exp(exp(price - top)), sample), "couples `price[sample]` with `top`"),
    "a power": (ra.sum(abs(price) ** total, sample), "couples `price[sample]` with `total`"),
    "a floor": (ra.sum(floor(price / top), sample), "a function of `price[sample]` and one of `top`"),
    "a sigmoid": (ra.sum(weight / (1 + exp(-(price - mu))), sample), "moves with `mu`"),
    "letters as names": (ra.sum(abs(x - ra.mean(x, d)) * g, d), "moves with `mean(x[d], d)`"),
    "no theorem": (ra.sum(erf((price - mu) / tau), sample), "a function of `price[sample]` and one of `mu`"),
    "a sign": (ra.sum(sign(price - mu) * sign(qty), sample), "places that move with `mu`"),
    "a minimum": (ra.min(exp(price * mu) + qty, sample), "couples `price[sample]` with `mu`"),
    "a product": (ra.prod(price - mu, sample), "mix `price[sample]` with `mu`"),
    "two means": (ra.sum(Abs(price * nu - qty * mu), sample), "moves with `mu` and `nu`"),
    "a Gaussian": (
        ra.sum(exp(-((price - mu) ** 2) * qty**2 * total), sample), "`price[sample]` and `qty[sample]` with `total`"),
    "a clip": (ra.sum(ra.where(price > mu, mu, price), sample), "compares `price[sample]` with `mu`"),
    "many values": (
        ra.sum(abs(price - nu * total * top * ra.let("low", ra.min(price, sample))), sample), "the reduced values"),
}  # fmt: skip


def prose(text: str) -> str:
    """What stands between no backticks."""
    return " ".join(text.split("`")[::2])


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_speaks_of_what_the_user_wrote(name: str) -> None:
    expr, words = REFUSED[name]
    found = ra.analyze(expr)
    assert isinstance(found, ra.Refused | ra.Undecided)
    assert words in found.reason
    text = explain_refusal(found, width=10_000)
    assert text.splitlines()[-1].startswith("call ")
    alone = [word for word in prose(text).replace("(", " ").split() if word.rstrip(".,:;") in ("x", "d", "x_i", "d_j")]
    assert alone == []
    assert "g(x)" not in text


def test_reductions_without_a_let_are_written_out_if_they_are_short() -> None:
    with pytest.raises(ra.NotFusible) as caught:
        ra.fuse(REFUSED["a mean without a name"][0])
    said = str(caught.value)
    mean = "mean(price[sample], sample)"
    assert said.startswith(f"the sum of `Abs(price[sample] - {mean})` has no one-pass form: it has a kink where its")
    assert "computes `sum(price[sample], sample)` first" in said
    assert "sum_" not in said


def test_long_reductions_without_a_let_are_said_once() -> None:
    long = ra.sum(price * weight * sin(qty) + price**2 * weight**2 * cos(qty), sample)
    text = ra.analyze(ra.sum(abs(price - long), sample)).explain(width=200)
    assert (
        text.count("where       `sum_0` is the sum over sample of `sin(qty[sample])*price[sample]*weight[sample]") == 1
    )
    assert "computes sum_0 first" in text
    text = ra.analyze(ra.sum(abs(x - ra.std(x, d)), d)).explain()
    assert "sqrt(mean((x[d] - mean(x[d], d))**2, d))" in text
    assert "\nwhere " not in text
    assert "total` is the" not in ra.analyze(REFUSED["a pole"][0]).explain()


def test_code_keeps_its_letters() -> None:
    said = Text("x `x + d` and `", x, "` d, ", Text("`d` x."))
    assert str(Letters("X", "D").say(said)) == "X `x + d` and `x[d]` D, `d` X."
    assert list(flat_parts(said))[1] == x
    assert in_words_of(ra.fuse(ra.sum(x, d)).cascade, "nothing of x", "") == "nothing of the elements"
