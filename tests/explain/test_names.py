"""The user's words in derivations: names by `ra.let`, products by their factors, letters that are free."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sympy import Expr, Symbol, exp, sqrt

import redalg as ra
from redalg.decompose.parse.names import put_name
from redalg.explain.names import words_of
from redalg.explain.notation import LETTERS, free_letters

b, n, k, d = ra.axes("b n k d")
x, w, y = ra.tensors("x[b,n] w[b,n] y[b,n]")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
t = ra.scalars("t", positive=True)


def mu() -> Expr:
    return ra.let("mu", ra.mean(x, n))


KINDS: dict[str, tuple[Expr, str, str]] = {  # kind -> (expression, its definition as printed, one use of it)
    "a mean": (ra.mean((x - mu()) ** 2, n), "mu[b] = sum_0/count", "(x[b,n] − mu)²"),
    "a power of it": (ra.mean((x - mu()) ** 2, n), "mu[b] = sum_0/count", "h₃ = mu²"),
    "a root of a mean": (
        mu() / ra.let("sd", sqrt(ra.mean((x - mu()) ** 2, n))), "sd[b] = √(sum_1/count)", "out[b] = mu/sd"),
    "a maximum": (ra.sum(exp(x - ra.let("top", ra.max(x, n))) * w, n), "top[b]   = max_n x[b,n]", "exp(−top)"),
    "a product": (
        ra.max(ra.let("score", ra.sum(Q * K, d) / 8), k),
        "score[b,h,k,q] = (Σ_d K[b,h,k,d]·Q[b,h,q,d])/8", "F = score"),
    "an output": (ra.let("loss", ra.mean((x - w) ** 2, n)), "loss[b] = sum_0/count", "out[b] = loss"),
    "data": (ra.logsumexp(ra.let("z", x * w), n), "z[b,n] = w[b,n]·x[b,n]", "F = exp(z − max_0)"),
    "a scalar": (ra.sum(x * ra.let("beta", 1 / (1 + t)), n), "beta = 1/(t + 1)", "beta·x[b,n]"),
    "a weight": (ra.sum(ra.let("p", ra.softmax(x, n)) * w, n), "p[b,n] = exp(x[b,n] − max_0)/sum_0", "Σ_n p·w[b,n]"),
    "an extent": (ra.sum(x, n) / ra.let("N", n.extent), "`N` is `count`", "out[b] = sum_0/N"),
    "no reduction": (ra.let("s", x * w) + y, "s[b,n] = w[b,n]·x[b,n]", "out[b,n] = s + y[b,n]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_defined_and_used(kind: str) -> None:
    expr, definition, use = KINDS[kind]
    fused = ra.fuse(expr, axes={"no reduction": "b n", "a product": "b h q"}.get(kind, "b"))
    text = fused.explain()
    assert definition in text
    assert use in text.replace(definition, "")


def test_a_name_outlasts_a_second_pass() -> None:
    text = ra.fuse(ra.mean(abs(x - mu()), n), passes=2).explain()
    assert "mu[b] = sum_0[b]/count" in text
    assert "sum_1[b] = Σ_n |x[b,n] − mu|" in text


POWERS = ra.let("power", ra.mean((x - mu()) ** 4, n) / ra.let("total", ra.sum(w, n)))


@pytest.mark.parametrize(
    ("asked", "said", "unsaid"),
    [
        (
            {},
            ("row_sum_2[b] = Σ_n (x[b,n] − mu)⁴", "(x[b,n] − mu)³", "total[b] = row_sum_0[b]", "/total"),
            ("row_sum_1[b]/|n|)",),
        ),
        ({"section": "saved"}, ("row_sum_1[b] = Σ_n x[b,n]",), ("mu[b] ", "grad_x[b,n] =")),
        ({"section": ["names", "stages"]}, ("mu[b]    = row_sum_1[b]/|n|", "grad_x[b,n] ="), ("Σ_n w",)),
        ({"section": "grad_x", "width": 80}, ("1  The cascade, as defined", "out[b,n] in two passes"), ("mu",)),
        ({"brief": True}, ("grad_x[b,n]: in one pass", "mu[b]    ="), ("(x[b,n] − mu)³",)),
        ({"format": "latex"}, (r"\mu_{b} &=",), ("Σ",)),
    ],
)
def test_a_backward_uses_the_names_and_has_sections(
    asked: dict[str, Any], said: tuple[str, ...], unsaid: tuple[str, ...]
) -> None:
    backward = ra.fuse(POWERS, passes=2).vjp()
    text = backward.explain(**asked)
    assert [one for one in said if one not in text] == []
    assert [one for one in unsaid if one in text] == []
    assert "\nmu[b] = row_sum_1[b]/|n|\ngrad_w[b, n] = " in str(backward)
    assert "sum((x[b, n] - mu)**3, n)" in str(backward)


def test_what_a_backward_does_not_have_is_named() -> None:
    backward = ra.fuse(POWERS, passes=2).vjp()
    with pytest.raises(
        ra.InputError, match=r"no section 'stage'. Did you mean 'stages'\? There are saved, names, stag"
    ):
        backward.explain("stage")
    with pytest.raises(ra.InputError, match=r"section=\['saved', 'grad_x'\] names a stage, which is explained alone"):
        backward.explain(["saved", "grad_x"])


def head_and_kernel(fused: ra.Fused) -> tuple[str, str]:
    """The docstring of a source, and the rest."""
    _, head, kernel = fused.source("c", sizes={"b": 2, "n": 8}, dtypes="float32").split('"""', 2)
    return head, kernel


def test_names_change_no_result_and_no_kernel() -> None:
    plain, named = head_and_kernel(ra.fuse(ra.var(x, n))), head_and_kernel(ra.fuse(ra.mean((x - mu()) ** 2, n)))
    assert plain[1] == named[1]
    assert "mu" not in plain[0]


SPREAD = mu() / ra.let("sd", sqrt(ra.let("spread", ra.mean((x - mu()) ** 2, n))))
HEADS: dict[str, tuple[Expr, list[str]]] = {  # kind -> (expression, lines of the kernel's head, in order)
    "each below what it needs": (SPREAD, [
        "out[b] = mu/sd", "  count = sum over n of 1", "  sum_0 = sum over n of x[b, n]", "  mu = sum_0/count",
        "  sum_1 = sum over n of (x[b, n] - mu)**2", "  spread = sum_1/count", "  sd = sqrt(spread)"]),
    "data": (KINDS["data"][0], ["  z = w[b, n]*x[b, n]", "  max_0 = max over n of z"]),
    "an extent": (KINDS["an extent"][0], ["  count = sum over n of 1", "  N = count"]),
    "a maximum": (KINDS["a maximum"][0], ["  top = max over n of x[b, n]"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADS)
def test_the_head_of_a_kernel_defines_the_names(kind: str) -> None:
    expr, lines = HEADS[kind]
    head, _ = head_and_kernel(ra.fuse(expr))
    assert [one for one in head.splitlines() if one in lines] == lines


def test_the_head_of_a_later_pass_defines_the_names() -> None:
    text = ra.fuse(ra.mean(abs(x - mu()), n), passes=2).source("c", sizes={"b": 2, "n": 8}, dtypes="float32")
    assert text.count("  mu = sum_0[b]/count\n") == 1
    assert "  sum_1 = sum over n of Abs(x[b, n] - mu)\n" in text


def test_the_brief_form_defines_the_names() -> None:
    text = repr(ra.fuse(ra.let("spread", ra.mean((x - mu()) ** 2, n))))
    assert "Names      mu[b]     = (Σ_n x[b,n])/count\n           spread[b] = (Σ_n (x[b,n] − mu)²)/count\n" in text
    assert '… 2 more lines: .explain(section="cascade")\nState' in repr(ra.fuse(SPREAD)), "a screen has no room for all"
    assert "\nNames " not in repr(ra.fuse(KINDS["a maximum"][0])), "a reduction's name stands in the state"
    assert repr(ra.fuse(KINDS["no reduction"][0], axes="b n")).count("s[b,n] = w[b,n]·x[b,n]") == 1


def test_an_output_that_bears_a_given_name_is_no_circle() -> None:
    fused = ra.fuse({"mu": (mu(), "b"), "spread": (ra.mean((x - mu()) ** 2, n), "b")})
    assert "Finish     mu = sum_0/count\n" in repr(ra.fuse({"mu": (mu(), "b")}))
    head, _ = head_and_kernel(fused)
    assert head.count("mu[b] = sum_0/count\n") == 1
    assert "  mu = " not in head
    assert "(x[b, n] - mu)**2" in head


def test_a_name_within_a_name_is_used() -> None:
    assert "sd[b]     = √spread" in ra.fuse(SPREAD).explain(section="cascade")
    assert "out[b] = mu/sd" in ra.fuse(SPREAD).explain(section="cascade")


def test_a_product_without_a_name_is_called_by_its_factors() -> None:
    fused = ra.fuse(ra.sum(ra.softmax(ra.sum(Q * K, d), k) * V, k), axes="b h q e")
    text = fused.explain()
    assert "QK[b,h,k,q] = Σ_d K[b,h,k,d]·Q[b,h,q,d]" in text
    assert "`QK` is `sum_d_0`" in text
    assert text.count("sum_d_0") == 1
    assert fused.cascade.producers[0].name == "sum_d_0"


@pytest.mark.parametrize("letter", ["F", "g", "h", "x", "d"])
def test_a_letter_of_the_users_is_no_letter_of_the_notation(letter: str) -> None:
    """A tensor of that name is read; the letter alone, as the notation has it, stands for nothing else."""
    tensor = ra.tensor(f"{letter}[i,m]")
    m = ra.axes("m")
    text = ra.fuse(ra.sum(ra.softmax(tensor, m) * ra.tensor("T[i,m]"), m)).explain()
    second = text[text.index("2  The") : text.index("3  The")]
    other = free_letters({letter})[letter]
    assert f"`{other}` stands for its `{letter}`" in second
    assert not re.search(rf"(?<![\w`']){letter}(?![\w\['`])", second.replace(f"{letter}[i,m]", ""))
    assert re.search(rf"\b{other}\b", second.replace(f"`{other}`", ""))


def test_letters_have_others_that_are_free() -> None:
    assert free_letters(set()) == {}
    assert free_letters({*LETTERS, *"".join(LETTERS.values())})["F"] == "FF"


def test_a_name_of_an_input_is_refused() -> None:
    with pytest.raises(ra.ExpressionError, match="the reduction `x` bears the name of an input"):
        ra.fuse(ra.mean((x - ra.let("x", ra.mean(w, n))) ** 2, n))


def test_a_name_stands_for_powers_and_within_products() -> None:
    s, a = Symbol("s"), Symbol("a")
    pattern, value = s / a, words_of(ra.fuse(KINDS["a mean"][0]).cascade).given[0][1]
    assert put_name(3 * y * s / a - s**2 / a**2, pattern, value) == 3 * y * value - value**2
    assert put_name(s + a, pattern, value) == s + a


def test_a_refusal_uses_the_names_too() -> None:
    sd = ra.let("sd", ra.std(x, n))
    with pytest.raises(ra.NotFusible) as caught:
        ra.fuse(ra.sum(exp(x / sd), n))
    assert "`exp(x[b, n]/sd)` couples `x[b, n]` with `sd` through the product `x[b, n]/sd`" in caught.value.reason
