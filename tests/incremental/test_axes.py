"""Several reduced axes: one set for a whole cascade, one of them streamed; and chains of reductions."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, exp, log, oo, sqrt, tanh

import redalg as ra
from redalg.explain.cost import longest_chain
from redalg.runtime.bind import arrays
from redalg.runtime.bind.blocks import block_lengths
from tests.cases.axes import defined, drawn, needed, on_torch
from tests.sweeps import draws

b, i, j, d, e = ra.axes("b i j d e")
x, y, t, s, v = ra.tensors("x[b,i,j] y[b,i,j] t[b] s[i,j] v[j,e]")
Q, K, M = ra.tensors("Q[b,i,d] K[j,d] M[i,j]")
SHAPES = {"x": "b i j", "y": "b i j", "t": "b", "s": "i j", "v": "j e", "Q": "b i d", "K": "j d", "M": "i j"}
SHORT = ra.axis("j", size=4)
z = ra.tensor("z[b,i,j]").xreplace({j: SHORT})


def logits(*masked: Any) -> Expr:
    made = ra.sum(Q * K, d) / sqrt(d.extent)
    return ra.where(ra.logical_and(*masked), made, -oo) if masked else made


MOMENT = ra.mean(x, i, j)
PATTERNS: dict[str, tuple[Expr, str]] = {
    "Frobenius": (ra.norm(x, i, j), "b"),
    "variance": (ra.var(x, i, j), "b"),
    "variance, raw": (ra.mean(x**2, i, j) - MOMENT**2, "b"),
    "variance, unbiased": (ra.sum((x - MOMENT) ** 2, i, j) / (i.extent * j.extent - 1), "b"),
    "skewness": (ra.mean((x - MOMENT) ** 3, i, j) / ra.var(x, i, j) ** 1.5, "b"),
    "covariance": (ra.covariance(x, y, i, j), "b"),
    "log-sum-exp": (ra.logsumexp(x, i, j), "b"),
    "largest": (ra.max(x * t, i, j), "b"),
    "spread": (ra.max(x, i, j) - ra.min(x, j, i), "b"),
    "product": (ra.prod(1 + tanh(x) / 8, i, j), "b"),
    "scaled product": (ra.prod((1 + tanh(x) / 8) * exp(t / 32), i, j), "b"),
    "no weight on j": (ra.sum(exp(ra.tensor("u[b,i]")) + x, i, j), "b"),
    "weighted mean": (ra.sum(ra.softmax(x, i, j) * y, i, j), "b"),
    "weighted mean, naive": (ra.sum(exp(x) * y, i, j) / ra.sum(exp(x), i, j), "b"),
    "expected distance": (ra.sum(ra.softmax(x, i, j) * Abs(i - j), i, j), "b"),
    "entropy": (ra.entropy(ra.softmax(x, i, j), i, j), "b"),
    "logits of both": (ra.sum(ra.softmax(logits(), i, j) * v, i, j), "b e"),
    "masked by both": (ra.sum(ra.softmax(logits(j <= i, ra.ne(M, 0)), i, j) * v, i, j), "b e"),
    "maxima within": (ra.sum(exp(x - ra.max(x, j)), i, j), "b"),
    "means within": (ra.mean((x - ra.mean(x, j)) ** 2, i, j), "b"),
    "to the power of the count": (sqrt(i.extent * j.extent) * ra.mean(x, i, j), "b"),
    "one extent alone": (ra.sum(x, i, j) / i.extent, "b"),
    "one extent of known size": (ra.sum(z, i, SHORT) / i.extent, "b"),
    "log of the count": (ra.entropy(ra.softmax(x, i, j), i, j) / log(i.extent * j.extent), "b"),
}  # fmt: skip
SIZES = [
    {"b": 2, "i": 5, "j": 4, "d": 3, "e": 2},
    {"b": 1, "i": 1, "j": 4, "d": 1, "e": 1},
    {"b": 3, "i": 37, "j": 4, "d": 2, "e": 3},
    {"b": 2, "i": 0, "j": 4, "d": 2, "e": 1},
]


# 0/0 of an empty row warns in NumPy; whether it is right is what these tests ask.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def data(sizes: dict[str, int], dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
    made = drawn({**SHAPES, "z": "b i j", "u": "b i"}, sizes, seed, dtype)
    made["x"] = made["x"] + made["x"].dtype.type(30)
    return made | {"M": made["M"] > 0}


@pytest.mark.parametrize("sizes", SIZES, ids=lambda one: f"i{one['i']}")
@pytest.mark.parametrize("name", PATTERNS)
def test_two_axes_equal_the_definition(name: str, sizes: dict[str, int]) -> None:
    expr, axes = PATTERNS[name]
    made = ra.fuse(expr, axes=axes)
    for dtype in ("float64", "float32"):
        tensors = needed(made, data(sizes, dtype))
        for got in (made(**tensors, backend="numpy"), made(**on_torch(tensors), backend="torch")):
            defined(got, expr, axes, tensors, sizes, dtype)
    defined(made.reference(**tensors), expr, axes, tensors, sizes)


@pytest.mark.parametrize("limit", [1, 7, 40])
@pytest.mark.parametrize("name", PATTERNS)
def test_any_block_gives_the_same(monkeypatch: pytest.MonkeyPatch, name: str, limit: int) -> None:
    expr, axes = PATTERNS[name]
    made, sizes = ra.fuse(expr, axes=axes), {"b": 2, "i": 6, "j": 4, "d": 2, "e": 3}
    monkeypatch.setattr(arrays, "block_lengths", lambda form, sizes, _=0: block_lengths(form, sizes, limit))
    tensors = needed(made, data(sizes, seed=1))
    defined(made(**tensors, backend="numpy"), expr, axes, tensors, sizes)


# ---- which axes ------------------------------------------------------------------------------------------------------


def swapped(node: Any) -> Any:
    """The same expression with the axes of every reduction in reverse order."""
    args = [swapped(arg) for arg in node.args]
    made = node.func(*args) if args and not isinstance(node, ra.Element) else node
    return ra.Reduce(made.kind, made.expr, made.bound[::-1]) if isinstance(made, ra.Reduce) else made


@pytest.mark.parametrize("name", PATTERNS)
def test_the_order_of_the_axes_does_not_matter(name: str) -> None:
    expr, axes = PATTERNS[name]
    assert str(ra.fuse(expr, axes=axes).form) == str(ra.fuse(swapped(expr), axes=axes).form)


def test_reductions_that_name_the_axes_in_different_orders_are_shared() -> None:
    made = ra.fuse(ra.sum(x, i, j) * ra.sum(x, j, i) + t)
    assert [one.name for one in made.state] == ["sum_0"]


def test_the_streamed_axis_is_the_first_that_tensors_are_indexed_by() -> None:
    assert ra.fuse(ra.sum(x, j, i)).cascade.reduced_axes == (i, j)
    assert ra.fuse(ra.sum(ra.tensor("w[j,i]"), i, j)).cascade.reduced_axes == (j, i)
    assert ra.fuse(ra.sum(x - ra.max(x, i), i, j)).cascade.reduced_axes == (j, i)  # maxima over i carry j alone


NESTED: dict[str, tuple[Expr, Expr]] = {
    "sum of sums": (ra.sum(ra.sum(x**2, j), i), ra.sum(x**2, i, j)),
    "mean of means": (ra.mean(ra.mean(x, j), i), MOMENT),
    "maximum of maxima": (ra.max(ra.max(x, j), i), ra.max(x, i, j)),
    "variance": (ra.mean(ra.mean((x - ra.mean(ra.mean(x, j), i)) ** 2, j), i), ra.var(x, i, j)),
    "both spellings": (ra.mean(x**2, i, j) - ra.mean(ra.mean(x, j), i) ** 2, ra.var(x, i, j)),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_spellings_have_the_same_value(name: str) -> None:
    nested, joint = NESTED[name]
    sizes = {"b": 2, "i": 9, "j": 4}
    tensors = {"x": data({**sizes, "d": 1, "e": 1})["x"]}
    for expr in (nested, joint):
        made = ra.fuse(expr)
        defined(made(**tensors, backend="numpy"), joint, "b", tensors, sizes)
        defined(made.reference(**tensors), joint, "b", tensors, sizes)


def test_a_short_axis_that_holds_reduced_values_is_written_out() -> None:
    """Σ over points and coordinates of m·(r − c)², where the centre c of each coordinate is a mean over points."""
    three = ra.axis("j", size=3)
    r, m = ra.tensor("r[b,i,j]").xreplace({j: three}), ra.tensor("m[b,i]")
    centre = ra.sum(m * r, i) / ra.sum(m, i)
    made = ra.fuse(ra.sum(m * (r - centre) ** 2, i, three))
    assert made.cascade.reduced_axes == (i,)
    R, W = np.random.default_rng(0).standard_normal((2, 20, 3)) + 5, np.ones((2, 20))
    np.testing.assert_allclose(made(r=R, m=W), 20 * R.var(1).sum(1), rtol=1e-13)


def test_rows_and_columns() -> None:
    made = ra.fuse({"rows": (ra.sum(s, j), "i"), "columns": (ra.sum(s, i), "j")})
    table = np.random.default_rng(0).standard_normal((7, 33))
    for backend in ("numpy", "torch"):
        got = made(s=table, backend=backend)
        np.testing.assert_allclose(got.rows, table.sum(1), atol=1e-14)
        np.testing.assert_allclose(got.columns, table.sum(0), atol=1e-14)


def test_marginals_of_a_joint_weight() -> None:
    """Σ_j of what is reduced over i and j: an epilogue over j, at every i of a second pass."""
    weight = ra.softmax(x, i, j)
    exprs = {"rows": (ra.sum(weight, j), "b i"), "top": (ra.max(weight, i), "b j"),
             "spread": (ra.mean((x - MOMENT) ** 2, j), "b i")}  # fmt: skip
    sizes = {"b": 2, "i": 5, "j": 7}
    tensors = drawn({"x": "b i j"}, sizes)
    for expr, axes in exprs.values():
        made = ra.fuse(expr, axes=axes)
        assert set(made.cascade.reduced_axes) == {i, j}
        for got in (made(**tensors, backend="numpy"), made(**on_torch(tensors)), made.reference(**tensors)):
            defined(got, expr, axes, tensors, sizes)


# ---- extents and pieces ----------------------------------------------------------------------------------------------


def grid(sizes: dict[str, int], cuts: dict[str, list[int]]) -> Iterator[dict[str, tuple[int, int]]]:
    """The pieces into which cuts of i and j divide the elements."""
    edges = {name: [0, *sorted(places), sizes[name]] for name, places in cuts.items()}
    for rows in itertools.pairwise(edges["i"]):
        for columns in itertools.pairwise(edges["j"]):
            yield {"i": rows, "j": columns}


def piece(tensors: dict[str, Any], at: dict[str, tuple[int, int]]) -> dict[str, Any]:
    shapes = {**SHAPES, "z": "b i j", "u": "b i"}
    return {name: one[tuple(slice(*at.get(axis, (None,))) for axis in shapes[name].split())]
            for name, one in tensors.items()}  # fmt: skip


PIECEWISE = [name for name in PATTERNS if "within" not in name and "extent" not in name]


@pytest.mark.parametrize("name", PIECEWISE)
@settings(max_examples=draws(8))
@given(cuts=st.tuples(*[st.lists(st.integers(0, limit), max_size=3) for limit in (11, 4)]), shuffle=st.randoms())
def test_pieces_of_both_axes_in_any_order(name: str, cuts: tuple[list[int], list[int]], shuffle: Any) -> None:
    expr, axes = PATTERNS[name]
    made, sizes = ra.fuse(expr, axes=axes), {"b": 2, "i": 11, "j": 4, "d": 2, "e": 2}
    tensors = needed(made, data(sizes, seed=2))
    states = [made.leaf(piece(tensors, at), start={i: at["i"][0], j: at["j"][0]})
              for at in grid(sizes, {"i": cuts[0], "j": cuts[1]})]  # fmt: skip
    shuffle.shuffle(states)
    while len(states) > 1:
        states.insert(0, made.merge(states.pop(), pickle.loads(pickle.dumps(states.pop()))))
    held = {"t": tensors["t"]} if "t" in tensors and "product" in name else None
    held = {"t": tensors["t"]} if name == "largest" else held
    with np.errstate(all="ignore"):
        defined(made.finish(states[0], held), expr, axes, tensors, sizes)


def test_one_extent_alone_needs_its_total_in_a_piece() -> None:
    made = ra.fuse(ra.sum(x, i, j) / i.extent)
    values = np.ones((2, 6, 4))
    with pytest.raises(ra.InputError) as error:
        made.leaf({"x": values[:, :3]})
    assert str(error.value) == (
        "leaf: an expression holds the extent of axis i, of which a piece has a part, and a state counts the elements "
        'of i and j together alone. Pass its total, `leaf(…, extents={"i": …})`.'
    )
    parts = [made.leaf({"x": part}, extents={"i": 6}) for part in (values[:, :3], values[:, 3:])]
    np.testing.assert_array_equal(made.finish(made.merge(*parts)), [4.0, 4.0])


def test_one_extent_follows_from_the_count_where_the_other_is_known() -> None:
    made = ra.fuse(ra.sum(z, i, SHORT) / i.extent)
    assert made.cascade.extents() == ()
    parts = [made.leaf({"z": np.ones((2, size, 4))}) for size in (3, 5)]
    np.testing.assert_array_equal(made.finish(made.merge(*parts)), [4.0, 4.0])


def test_the_empty_state_is_neutral() -> None:
    made = ra.fuse(ra.var(x, i, j))
    values = {"x": np.random.default_rng(0).standard_normal((2, 5, 6))}
    empty = made.empty_state({"b": 2}, {"x": "float64"}, library="numpy")
    state = made.leaf(values)
    np.testing.assert_array_equal(made.finish(made.merge(state, empty)), made.finish(state))
    np.testing.assert_array_equal(made.finish(made.merge(empty, state)), made.finish(state))


# ---- memory, and what is not done ------------------------------------------------------------------------------------


@given(st.sampled_from(list(PATTERNS)), st.integers(1, 5000), st.integers(1, 5000), st.integers(64, 1 << 16))
def test_blocks_are_bounded(name: str, rows: int, columns: int, limit: int) -> None:
    """No block has more elements than asked for, unless an axis that a producer needs whole is longer than that."""
    form = FORMS[name]
    sizes = {"b": 3, "i": rows, "j": columns, "d": 2, "e": 3}
    length = block_lengths(form, sizes, limit)
    least = {"maxima within": columns, "means within": columns}.get(name, 1)
    held = {axis.name: size for axis, size in length.items()}
    assert held["i"] * held["j"] <= max(limit, least)
    assert all(1 <= size <= max(1, sizes[axis.name]) for axis, size in length.items())


FORMS = {name: ra.fuse(expr, axes=axes).form for name, (expr, axes) in PATTERNS.items()}


def test_a_contraction_over_two_axes_is_a_producer() -> None:
    """Scores of whole patches: Σ over their pixels, streamed over the patches."""
    made = ra.fuse(ra.sum(ra.softmax(ra.sum(x * s, i, j), b) * t, b), axes="")
    assert made.cascade.reduced_axes == (b,)
    sizes = {"b": 6, "i": 3, "j": 4}
    tensors = drawn({"x": "b i j", "s": "i j", "t": "b"}, sizes)
    for got in (made(**tensors, backend="numpy"), made(**on_torch(tensors)), made.reference(**tensors)):
        defined(got, ra.sum(ra.softmax(ra.sum(x * s, i, j), b) * t, b), "", tensors, sizes)


# ---- chains ----------------------------------------------------------------------------------------------------------

n = ra.axes("n")
w, p, r = ra.tensors("w[b,n] p[b,n] r[b,n]")


def sums() -> list[Expr]:
    """Rank 2 at every step: each sum takes the one before as a factor."""
    made: list[Expr] = []
    for number in range(6):
        term = (w, p, r)[number % 3]
        made.append(ra.sum(term + term * made[-1] / 100 if made else term, n))
    return made


def moments() -> list[Expr]:
    """A maximum, a denominator, a weighted mean, a variance about it, a slope, and a last sum that needs the slope."""
    largest = ra.max(p, n)
    weight = exp(p - largest)
    total = ra.sum(weight, n)
    mean = ra.sum(weight / total * w, n)
    variance = ra.sum(weight / total * (w - mean) ** 2, n)
    slope = ra.sum(r * (w - mean) / (1 + variance), n)
    return [largest, total, mean, variance, slope, ra.sum(r * p * slope + w, n)]


CHAINS: dict[str, Callable[[], list[Expr]]] = {"sums": sums, "moments": moments}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_six(name: str) -> None:
    values = CHAINS[name]()
    made = ra.fuse({f"d{number}": (value, "b") for number, value in enumerate(values, 1)})
    assert len(longest_chain(made.cascade)) == 6
    sizes = {"b": 3, "n": 41}
    tensors = needed(made, drawn({"w": "b n", "p": "b n", "r": "b n"}, sizes))
    for got in (made(**tensors, backend="numpy"), made(**on_torch(tensors))):
        for output, value in zip(got, values, strict=True):
            defined(output, value, "b", tensors, sizes)
    parts = [made.leaf({name: one[:, at] for name, one in tensors.items()}) for at in (slice(0, 9), slice(9, None))]
    for output, value in zip(made.finish(made.merge(*parts)), values, strict=True):
        defined(output, value, "b", tensors, sizes)


def test_nested_reductions_stream_the_outer_axis() -> None:
    """What is reduced over i by a cascade of its own is no epilogue of the values reduced over j."""
    i, j = ra.axes("i j")
    z = ra.tensor("z[b,i,j]")
    fused = ra.fuse(ra.logsumexp(ra.logsumexp(z, j), i))
    values = np.random.default_rng(0).standard_normal((2, 5, 4)) * 50
    largest = values.max((1, 2))
    wanted = largest + np.log(np.exp(values - largest[:, None, None]).sum((1, 2)))
    np.testing.assert_allclose(fused(z=values, backend="numpy"), wanted, rtol=1e-14)
    parts = [fused.leaf({"z": part}) for part in np.split(values, [2], axis=1)]
    np.testing.assert_allclose(fused.finish(fused.merge(*parts)), wanted, rtol=1e-14)


def test_a_sum_of_inner_cascades_stands_beside_another_sum() -> None:
    """Σ_i of what is a cascade over j streams i where another sum does; alone it may be an epilogue over i."""
    inner = ra.sum(exp(s - ra.max(s, j)), j)
    form = ra.fuse(ra.sum(exp(inner) * ra.tensor("u[b,i]"), i) / ra.sum(exp(inner), i), axes="b")
    rng = np.random.default_rng(0)
    scores, u = rng.standard_normal((5, 3)), rng.standard_normal((2, 5))
    weight = np.exp(np.exp(scores - scores.max(1, keepdims=True)).sum(1))
    for backend in ("numpy", "torch"):
        made = np.array(form(s=scores, u=u, backend=backend))
        np.testing.assert_allclose(made, u @ weight / weight.sum(), rtol=1e-12)


def test_a_mean_of_rows_reads_numbers_of_the_rows() -> None:
    """Σ_i of losses over j is an epilogue over i: weights, masks and counts of rows, which may be sums over j too."""
    i, j = ra.axes("i j")
    scores, c, t = ra.tensors("s[i,j] c[i] t[i]")
    loss, own = ra.logsumexp(scores, j), ra.sum(ra.where(ra.eq(j, t), ra.tensor("w[j]"), 0), j)
    counts = {"rows": c, "picked": own}
    rng = np.random.default_rng(0)
    data = {"s": rng.standard_normal((5, 7)) * 20, "c": rng.random(5), "t": np.array([0, -1, 3, 6, 2]),
            "w": rng.random(7)}  # fmt: skip
    values = np.log(np.exp(data["s"] - 60).sum(1)) + 60
    of_rows = {"rows": data["c"], "picked": np.where(data["t"] >= 0, data["w"][data["t"]], 0)}
    for name, count in counts.items():
        masked = [ra.sum(ra.where(t >= 0, one, 0), i) for one in (loss * count, count)]
        form = ra.fuse(masked[0] / masked[1])
        assert (str(form.cascade.axis), len(form.passes)) == ("j", 1)
        given = {key: one for key, one in data.items() if key in form.cascade.inputs()}
        weight = of_rows[name] * (data["t"] >= 0)
        for backend in ("numpy", "torch", "tilelang"):
            np.testing.assert_allclose(form(**given, backend=backend), values @ weight / weight.sum(), rtol=1e-6)
        if name == "rows":
            pieces = [form.leaf(given | {"s": one}) for one in np.split(data["s"], [3], axis=1)]
            np.testing.assert_allclose(form.finish(form.merge(*pieces), given), values @ weight / weight.sum())


@pytest.mark.parametrize("place", ["over", "times", "beside"])
def test_a_sum_of_rows_streams_their_cascade(place: str) -> None:
    """Other reductions of a row stand in any order: Σ_i L_i/Σ_d q[i,d] streamed d, and made L ahead."""
    i, j, d = ra.axes("i j d")
    loss, norm = ra.logsumexp(ra.tensor("s[i,j]"), j), ra.sum(ra.tensor("q[i,d]"), d)
    expr = {"over": loss / norm, "times": loss * norm, "beside": loss + norm}[place]
    form = ra.fuse(ra.sum(ra.where(ra.tensor("t[i]") > 0, expr, 0), i))
    assert (str(form.cascade.axis), len(form.passes)) == ("j", 1)
    rng = np.random.default_rng(0)
    data = {"s": rng.standard_normal((5, 7)), "q": rng.random((5, 3)) + 1, "t": np.array([1, 0, 2, -1, 1])}
    rows, norms = np.log(np.exp(data["s"]).sum(1)), data["q"].sum(1)
    wanted = {"over": rows / norms, "times": rows * norms, "beside": rows + norms}[place][data["t"] > 0].sum()
    np.testing.assert_allclose(form(**data, backend="numpy"), wanted, rtol=1e-13)
