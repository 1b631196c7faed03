"""The stages as kernels want them: factors shared, axes of their own, operands of 16 bits."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from sympy import Expr, Float, Mul, Rational, exp, log, oo, sqrt

import redalg as ra
from redalg.expression import Cast, Extent
from redalg.expression.contents import nodes_of
from redalg.gradient.spelling import (
    with_collected_sums,
    with_inner_sums,
    with_joined_exponentials,
    with_masked_weights,
    with_narrow_operands,
    with_own_axes,
    with_row_sums,
    with_rows_outside,
    with_shared_factors,
    with_shared_numbers,
    with_told_lengths,
)
from redalg.library import PATTERNS
from redalg.lower_tile.ir.names import Names

b, h, n, m, q, k, d, e = ra.axes("b h n m q k d e")
x, y, g, w = ra.tensors("x[b,n] y[b,n] g[b] w[b]")
SCORES = ra.sum(ra.tensor("Q[b,h,q,d]") * ra.tensor("K[b,h,k,d]"), d) / 8
VALUES = ra.tensor("V[b,h,k,e]")
SIZES = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": 128, "e": 128}
WIDTHS = {"K": "bfloat16", "Q": "bfloat16", "V": "bfloat16"}


def test_sums_share_their_factors() -> None:
    assert with_shared_factors(x * g + x * w) == x * (g + w)
    assert with_shared_factors(x * g + y * w) == x * g + y * w
    assert with_shared_factors(2 * x - 2 * y) == 2 * x - 2 * y
    assert with_shared_factors(ra.sum(x * g + x * y, n)) == ra.sum(x * (g + y), n)


def test_what_leaves_a_sum_has_none_of_its_axes() -> None:
    """A quotient of two products of exponentials, which SymPy does not cancel, kept them."""
    weights = exp(x - g) * exp(2 * g - 2 * x)
    assert with_rows_outside(ra.sum(weights * w * y, n)) == w * ra.sum(weights * y, n)


def test_exponentials_of_multiples_are_one() -> None:
    assert with_joined_exponentials(w * exp(x - g) * exp(2 * g - 2 * x)) == w * exp(g - x)
    assert with_joined_exponentials(ra.sum(log(exp(x) * g) * exp(x), n)) == ra.sum((x + log(g)) * exp(x), n)
    apart = exp(x) * exp(g) * log(1 + exp(x))
    assert with_joined_exponentials(apart) == apart


def test_differences_from_a_maximum_are_rounded_at_their_own_size() -> None:
    """Of two rows of scores: x − m − (y − m') was added up at the size of x. Exponentials have guards of their own."""
    form = ra.fuse(ra.sum(ra.softmax(x, n) * (ra.log_softmax(x, n) - ra.log_softmax(y, n)), n), axes="b")
    [[part]] = (stage.parts for stage in form.vjp(["x"]).stages)
    top, other = ra.tensors("row_max_0[b] row_max_1[b]")
    assert {ra.where(ra.ne(top, -oo), x - top, 0), ra.where(ra.ne(other, -oo), y - other, 0)} <= nodes_of(part.expr)
    assert ra.where(ra.ne(top, -oo), exp(x - top), 0) in nodes_of(part.expr)


def test_sums_read_lengths_that_a_call_tells() -> None:
    """Σ (x − r/|n|) was made as Σ x − r, which has no digit of what a rounded mean lost."""
    one = g * ra.sum(x - w / n.extent, n) / n.extent
    expr, told = with_told_lengths(one, Names(("n",)))
    assert told == {"n_1": "n"}
    assert expr == g * ra.sum(x - w / Extent("n_1"), n) / n.extent
    assert with_told_lengths(ra.sum(x * w, n) / n.extent, Names(())) == (ra.sum(x * w, n) / n.extent, {})


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_gradients_keep_what_a_rounded_mean_lost(offset: float) -> None:
    """PyTorch's own has an error of 2e-5 of the largest at 1e3, and of 2e-3 at 1e5."""
    data = {name: offset + torch.randn(4, 300, generator=torch.Generator().manual_seed(seed))
            for seed, name in enumerate("xy")}  # fmt: skip
    for expr, names in ((ra.var(x, n), "x"), (ra.covariance(x, y, n), "xy")):
        form, own = ra.fuse(expr, axes="b"), {name: data[name] for name in names}
        found, true = (form.vjp()(torch.ones(4, dtype=kind), **{name: one.to(kind) for name, one in own.items()})
                       for kind in (torch.float32, torch.float64))  # fmt: skip
        for name, exact in true.items():
            assert float((found[name] - exact).abs().max()) <= 2e-7 * float(exact.abs().max())


@pytest.mark.parametrize("number", [Rational(1, 8), Float(0.3), 1 / sqrt(d.extent)])
def test_products_have_the_number_of_their_sums_once(number: Expr) -> None:
    """SymPy multiplies a number into a sum: an operand would be multiplied by it for every element."""
    product = Mul(number * x - number * y, g, w)
    assert with_shared_numbers(product) == Mul(number, x - y, g, w)
    assert with_shared_numbers(Mul(2 * x - number * y, g, w)) == Mul(2 * x - number * y, g, w)


def test_sums_over_the_same_axes_are_one_if_they_share_a_factor() -> None:
    joined = with_shared_factors(g * ra.sum(x * y, n) + w * ra.sum(x * exp(y), n))
    assert joined == ra.sum(x * (g * y + w * exp(y)), n)
    apart = g * ra.sum(x, n) + w * ra.sum(y, n)
    assert with_shared_factors(apart) == apart
    captured = x * ra.sum(x * y, n) + w * ra.sum(x * exp(y), n)  # x stands outside the sum: its n is another
    assert with_shared_factors(captured) == captured


def test_what_is_computed_is_multiplied_once_for_the_products_of_two_tensors() -> None:
    keys, cotangent = ra.tensors("K[k,d] G[q,e]")
    values, weight = ra.tensor("V[k,e]"), exp(ra.sum(ra.tensor("Q[q,d]") * keys, d))
    within = ra.sum(weight * ra.sum(values * cotangent, e), k)
    flat = ra.sum(weight * values * cotangent, e, k)
    assert with_inner_sums(flat) == within
    assert with_inner_sums(2 / ra.sum(flat * g, b)) == 2 / ra.sum(within * g, b)
    for alone in (
        ra.sum(weight * values, e, k),
        ra.sum(x * y * g, b, n),
        ra.sum(exp(cotangent) * values * weight, e, k),
    ):
        assert with_inner_sums(alone) == alone
    generator = torch.Generator().manual_seed(0)
    shapes = {"Q": (3, 4), "K": (5, 4), "V": (5, 2), "G": (3, 2)}
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    torch.testing.assert_close(ra.fuse(flat, axes="q").reference(**data), ra.fuse(within, axes="q")(**data))


def test_what_multiplies_equal_sums_is_added_first() -> None:
    """x·Σ u - r·Σ u is rounded at the size of x, and x - r may be a deviation: of weighted covariances it is."""
    p, s = ra.tensors("p[b] s[b]")
    left, right = ra.sum((x - p) * y, n), ra.sum((y - s) * y, n)
    together = ra.sum((g * (y - s) + w * (x - p)) * y, n)
    assert with_collected_sums(x * right + y * left - together) == (x - g) * right + (y - w) * left
    for expr in (x * right - together, x * right + y * left, together):
        assert with_collected_sums(expr) == expr


def test_sums_over_rows_and_columns_are_taken_a_row_at_a_time() -> None:
    """The gradient of a slope, Σ_q,k (k - q)·Σ_b w: no tile has the rows and columns of a product as one axis."""
    weight = ra.where(k <= q, exp(SCORES), 0)
    rows = ra.sum(ra.sum(ra.where(k <= q, (k - q) * exp(SCORES), 0), k), q, b)
    assert with_row_sums(ra.sum((k - q) * ra.sum(weight, b), q, k)) == rows
    near = ra.sum((ra.tensor("Q[b,h,q,d]") - ra.tensor("K[b,h,k,d]")) ** 2, d)
    for plain in (ra.sum(exp(-near), q, k), ra.sum(SCORES, k), ra.sum(weight * ra.sum(x, n), q)):
        assert with_row_sums(plain) == plain
    slope = ra.fuse(ra.sum(ra.softmax(SCORES - ra.tensor("slope[h]") * (q - k), k) * VALUES, k), axes="b h q e")
    backward = slope.vjp(["slope"]).for_tensors({name: torch.empty(1, dtype=torch.bfloat16) for name in "QKV"})
    assert {"b", "h", "q"} == {axis.name for part in backward.stages[-2].parts for axis in part.axes}
    text = backward.source("H200", SIZES, "bfloat16")["grad_slope_part"]
    assert "TensorCores" in text
    assert "4096, 4096" not in text


@pytest.mark.parametrize(("name", "dtype"), [
    *(("padded_attention", "float32"), ("sink_attention", "float32"), ("off_by_one_attention", "float32")),
    ("rectified_attention", "bfloat16"),
])  # fmt: skip
def test_no_gradient_stores_scores(name: str, dtype: str) -> None:
    """Where rows of -inf were masked factor by factor, a sum of its own asked whether any hid a NaN.

    A mask that scores tell, as where they are positive, stood around a product of matrices, and made it a plain sum.
    """
    pattern = PATTERNS[name]
    form = pattern.build()
    texts = form.vjp().source("H200", pattern.sizes, pattern.dtypes(form, dtype)).values()
    scores = f"{pattern.sizes['q']}, {pattern.sizes['k']})"
    assert not any(scores in text for text in texts)


def test_a_mask_of_a_product_of_matrices_is_one_of_what_is_computed() -> None:
    queries, keys, rows = ra.tensors("Q[q,d] K[k,d] X[q,e]")
    weight = exp(ra.sum(queries * keys, d))
    masked = ra.sum(ra.where(k <= q, weight * rows, 0), q)
    moved = ra.sum(ra.where(k <= q, weight, 0) * rows, q)
    assert with_masked_weights(2 * masked) == 2 * moved
    for alone in (moved, ra.sum(ra.where(n > 1, x * g, 0), n), ra.sum(ra.where(e <= q, weight * rows, 0), q)):
        assert with_masked_weights(alone) == alone
    generator = torch.Generator().manual_seed(0)
    shapes = {"Q": (6, 4), "K": (5, 4), "X": (6, 2)}
    data = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    torch.testing.assert_close(ra.fuse(masked, axes="k e").reference(**data), ra.fuse(moved, axes="k e")(**data))


def test_an_inner_reduction_has_axes_of_its_own() -> None:
    scores = ra.sum(ra.tensor("Q[q,d]") * ra.tensor("K[k,d]"), d)
    expr, renamed = with_own_axes(ra.sum(exp(scores) * ra.tensor("K[k,d]"), k), (q, d), Names(("q", "k", "d")))
    assert renamed == {"d_1": "d"}
    assert expr == ra.sum(exp(scores.rebuilt(scores.expr.subs(d, ra.axes("d_1")), [ra.axes("d_1")]))
                          * ra.tensor("K[k,d]"), k)  # fmt: skip


def test_a_row_that_is_written_is_reduced_along_its_own_axis() -> None:
    row = ra.softmax(x, n) * ra.sum(ra.softmax(x, n) * y, n)
    assert with_own_axes(row, (b, n), Names(("b", "n"))) == (row, {})


def test_products_of_matrices_round_what_is_computed() -> None:
    weight = exp(ra.sum(ra.tensor("Q[q,d]") * ra.tensor("K[k,d]"), d))
    product = ra.sum(weight * ra.tensor("V[k,e]"), k)
    assert with_narrow_operands(product, WIDTHS) == ra.sum(Cast(weight, "bfloat16") * ra.tensor("V[k,e]"), k)
    assert with_narrow_operands(product, {}) == product
    for no_product in (ra.sum(x * y, n), ra.sum(x * exp(y) * g, n)):
        assert with_narrow_operands(no_product, {"x": "bfloat16"}) == no_product


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("mask", [None, k <= q, k > q - 128], ids=str)
def test_the_backward_of_attention_multiplies_on_tensor_cores(mask: Any, dtype: str) -> None:
    """As FlashAttention-2's: scores again from lse, D from the output, dK with dV, no workspace of scores."""
    scores = SCORES if mask is None else ra.where(mask, SCORES, -oo)
    form = ra.fuse(ra.sum(ra.softmax(scores, k) * VALUES, k), axes="b h q e")
    of = {name: torch.empty(0, dtype=getattr(torch, dtype)) for name in "QKV"}
    backward = form.vjp().for_tensors(of)
    assert [stage.name for stage in backward.stages] == ["grad_row_sum_0, log_sum", "grad_Q", "grad_K, grad_V"]
    assert all(len(stage.function.passes) == 1 for stage in backward.stages)
    dtypes = dict.fromkeys(("Q", "K", "V", *backward.cotangents.values(), *backward.made.values()), dtype)
    sources = backward.source("sm_90a", sizes=SIZES, dtypes=dtypes)
    for text, products in zip(sources.values(), (0, 3, 4), strict=True):
        assert text.count("T.exp") == (1 if products else 0)
        assert "float32 (T.gemm would" not in text
        assert len([line for line in text.splitlines() if line.strip().startswith("contract")]) == products
        assert "workspace" not in text


def test_row_values_are_not_rounded_to_16_bits() -> None:
    form = ra.fuse(ra.softmax(x, n) * y, axes="b n")
    of = {name: torch.empty(0, dtype=torch.bfloat16) for name in "xy"}
    backward = form.vjp().for_tensors(of)
    made = backward.forward(**{name: torch.randn(3, 7).bfloat16() for name in "xy"})
    assert [one.dtype for one in made] == [torch.bfloat16, *[torch.float32] * len(backward.saved)]
    wide = {name: torch.empty(0) for name in "xy"}
    assert form.vjp().for_tensors(wide).again is not None


def test_a_mask_beside_an_unmasked_term_shares_its_factors() -> None:
    label = ra.tensor("label[b]")
    shared = with_shared_factors(ra.sum(x * y, n) + ra.sum(ra.where(ra.eq(n, label), -2 * x, 0), n))
    assert shared == ra.sum(x * (y + ra.where(ra.eq(n, label), -2, 0)), n)
    alone = ra.where(ra.eq(n, label), x * y, 0) + ra.where(ra.eq(n, 0), x, 0)
    assert with_shared_factors(alone) == alone  # a NaN of x that both masks hide stays hidden


def loss_sources(depth: int) -> dict[str, str]:
    """The backward of a loss of 32000 scores, each a sum of so many components."""
    v, label = ra.axes("v"), ra.tensor("label[b]")
    scores = ra.sum(ra.tensor("t[b,d]") * ra.tensor("u[v,d]"), d)
    loss = ra.fuse(ra.logsumexp(scores, v) - ra.sum(ra.where(ra.eq(v, label), scores, 0), v), axes="b")
    narrow = {name: torch.empty(1, 1, dtype=torch.bfloat16) for name in "tu"}
    backward = loss.vjp(wrt=["t", "u"]).for_tensors(narrow | {"label": torch.empty(1, dtype=torch.int64)})
    dtypes = {"t": "bfloat16", "u": "bfloat16", "label": "int64", "grad_out": "bfloat16"}
    return backward.source("H200", sizes={"b": 4096, "v": 32000, "d": depth}, dtypes=dtypes)


def test_a_masked_sum_beside_a_term_shares_the_factors_that_have_none_of_its_axes() -> None:
    """Of the best scores of a row: one product of weights, in place of a sum for every n, c and j."""
    j, I, G = ra.axes("j"), ra.tensor("I[b,j]"), ra.tensor("G[b,j]")
    best = ra.sum(ra.where(ra.eq(n, I), x * G * w, 0), j)
    chosen = ra.sum(ra.where(ra.eq(n, I), G * w, 0), j)
    assert with_shared_factors(x * g - best) == x * (g - chosen)
    assert with_shared_factors(x * g - y * best) == x * (g - y * chosen)
    assert with_shared_factors(G * g - ra.sum(ra.where(ra.eq(n, I), x * G, 0), j)) == G * g - ra.sum(
        ra.where(ra.eq(n, I), x * G, 0), j
    )


def test_operands_of_many_columns_are_made_once() -> None:
    """2048 columns: both products read one operand, which a product's epilogue rounds."""
    [_, joint] = loss_sources(2048).values()
    operand, products = joint.split("with T.Kernel")[1].split("\n# ", 1)
    assert operand.count("T.exp2(") == 1
    assert "dtype=torch.bfloat16" in operand.split('"out": torch.full(')[1].splitlines()[0]
    assert products.splitlines() == [
        "grad_u is a product of `operand` and `t`: PyTorch multiplies them.", "",
        "# grad_t is a product of `operand` and `u`: PyTorch multiplies them.",
    ]  # fmt: skip


def test_labels_in_an_operand_stay_integers() -> None:
    """128 columns: an operand in the loop compares places with labels, not with their floats."""
    [_, joint] = loss_sources(128).values()
    assert re.search(r'row\w* = shared\(\(\d+,\), "int64"\)', joint)
    assert not re.search(r'T\.cast\(label\S*\[.*\], "float32"\)', joint)


@pytest.mark.parametrize("width", [64, 128])
def test_plans_have_a_layout_for_operands_in_registers(width: int) -> None:
    """Two warpgroups hold an operand of 128 rows; TileLang 0.1.15 finds no layout for 256."""
    backward = (
        ra.fuse(ra.sum(ra.softmax(SCORES, k) * VALUES, k), axes="b h q e")
        .vjp()
        .for_tensors({name: torch.empty(1, 1, 1, 1, dtype=torch.bfloat16) for name in WIDTHS})
    )
    dtypes = WIDTHS | {"grad_out": "bfloat16", "made_out": "bfloat16"}
    for source in backward.source("H100", sizes=SIZES | {"d": width, "e": width}, dtypes=dtypes).values():
        assert "operand = fragment((256" not in source
