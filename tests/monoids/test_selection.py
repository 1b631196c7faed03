"""Reductions that keep places, several components or the order of elements, against stable sorts and plain loops.

The definition is `tests/oracle.py` (whole rows, extended precision); what only selects must agree with it bit for bit.
"""

import pickle
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, Expr, exp, oo

import redalg as ra
from tests.cases.selections import (
    EVERY,
    FUSED,
    KINDS,
    LENGTHS,
    ORDERED,
    SELECTIONS,
    d,
    example,
    j,
    mask,
    n,
    relaxed,
    t,
    w,
    x,
)
from tests.oracle import Oracle

each = pytest.mark.parametrize("name", EVERY)


@pytest.fixture(autouse=True)
def floating_point_is_quiet() -> Iterator[None]:
    """What is not finite is meant here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def of(fused: ra.Fused, data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in fused.cascade.inputs()}


def assert_defined(name: str, got: Any, data: dict[str, np.ndarray], eps: float | None = None) -> None:
    """Equal to the definition: bit for bit where nothing is rounded, else within its running error bound."""
    expr, axes = EVERY[name]
    sizes = {"t": 3, "n": data["x"].shape[1], "j": 4, "wide": 9, "one": 1}
    given_data = {key: np.asarray(array, np.longdouble) for key, array in data.items()}
    want, bound = Oracle(given_data, {}, sizes).output(expr, axes)
    got = np.asarray(got)
    assert got.shape == want.shape
    if name in SELECTIONS:
        np.testing.assert_array_equal(got, want)
        return
    info = np.finfo(data["x"].dtype)
    allowed = (info.eps if eps is None else eps) * (bound + np.abs(want)) + info.tiny
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(want) > float(info.max))
    wrong = ~(same | (np.abs(got - want) <= allowed))
    assert not wrong.any(), f"{name}: got {got[wrong]}, wanted {want[wrong]} ± {allowed[wrong]}"


# ---- every backend, every kind of data -------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_backend_gives_the_definition(name: str, kind: str, length: int) -> None:
    data, fused = example(kind, length), FUSED[name]
    for backend in ("numpy", "torch"):
        assert_defined(name, fused(**of(fused, data), sizes={"n": length, "t": 3}, backend=backend), data)
    as_torch = {key: torch.from_numpy(array) for key, array in of(fused, data).items()}
    assert_defined(name, fused(**as_torch), data)
    assert_defined(name, fused.reference(**of(fused, data)), data)


@each
@relaxed
@given(st.data())
def test_pieces_in_any_grouping_give_the_definition(name: str, data: st.DataObject) -> None:
    """In any order where the monoid commutes; in any grouping of neighbours where it does not."""
    rows = example(data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(LENGTHS)), data.draw(st.integers(0, 9)))
    fused, length = FUSED[name], rows["x"].shape[1]
    cuts = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=5))})
    states = [
        fused.leaf({key: array[:, a:b] for key, array in of(fused, rows).items()}, start={n: a})
        for a, b in pairwise([*cuts, length])
    ]
    while len(states) > 1:
        if name in ORDERED:
            place = data.draw(st.integers(0, len(states) - 2))
            pair = [states.pop(place), states.pop(place)]
        else:
            place = 0
            pair = [states.pop(data.draw(st.integers(0, len(states) - 1))) for _ in range(2)]
        first, second = data.draw(st.permutations(pair))
        states.insert(place, fused.merge(pickle.loads(pickle.dumps(first)), second))
    assert_defined(name, fused.finish(states[0]), rows)


@each
def test_the_empty_state_is_the_identity(name: str) -> None:
    data, fused = example("masked", 7), FUSED[name]
    dtypes = {key: "bool" if key == "M" else "float32" for key in fused.cascade.inputs()}
    empty = fused.empty_state({"t": 3}, dtypes=dtypes, library="numpy")
    state = fused.leaf(of(fused, data), start={n: 40})
    want = fused.finish(state)
    for merged in (fused.merge(empty, state), fused.merge(state, empty)):
        np.testing.assert_array_equal(fused.finish(merged), want)
        assert merged.covers == (40, 47)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("block", [1, 3, 50])
@each
def test_blocks_of_any_length_give_the_definition(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from redalg.runtime.bind import blocks

    data, fused = example("ties", 130), FUSED[name]
    monkeypatch.setattr(blocks.block_lengths, "__defaults__", (3 * block,))
    assert_defined(name, fused(**of(fused, data), backend="torch"), data)


# ---- dtypes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("argmax", "int64"), ("topk indices", "int64"), ("any", "bool"), ("all", "bool"), ("topk values", "float32"),
     ("first", "float16"), ("recurrence", "float16")],
)  # fmt: skip
def test_outputs_have_their_own_dtype(name: str, dtype: str) -> None:
    data, fused = example("plain", 20, dtype="float16"), FUSED[name]
    for backend in ("numpy", "torch"):
        assert str(fused(**of(fused, data), backend=backend).dtype) == dtype
    wanted = dtype if dtype in ("int64", "bool") else "float64"
    assert str(fused.reference(**of(fused, data)).dtype) == wanted


def test_an_index_may_be_cast() -> None:
    data = example("plain", 20)
    for dtype in ("int32", "int64"):
        made = ra.fuse(ra.cast(ra.argmax(x, n), dtype), axes="t")(x=data["x"])
        assert str(made.dtype) == dtype
        np.testing.assert_array_equal(made, data["x"].argmax(1))


def test_indices_beyond_what_float32_holds_are_exact() -> None:
    """2²⁴ + 1 is no float32; a piece that starts there has such indices."""
    start = 2**24 + 1
    data = np.array([[0.0, 3.0, 1.0, 3.0]], np.float32)
    for name in ("argmax", "top one", "topk indices"):
        for library in (np.asarray, torch.from_numpy):
            fused = FUSED[name]
            state = fused.leaf({"x": library(data)}, start={n: start})
            later = fused.leaf({"x": library(data)}, start={n: start + 4})
            assert int(np.asarray(fused.finish(fused.merge(later, state))).ravel()[0]) == start + 1


# ---- what they are for -----------------------------------------------------------------------------------------------


def test_values_and_indices_share_their_slots() -> None:
    values, indices = ra.topk(x, n, j)
    fused = ra.fuse({"gates": (exp(values - ra.logsumexp(x, n)), "t j"), "experts": (indices, "t j")})
    assert [(slot.name, slot.kind) for slot in fused.state] == [
        ("max_0", "extremum"), ("topk_values_0", "component"), ("topk_indices_0", "index"), ("sum_0", "accumulator"),
    ]  # fmt: skip
    data = torch.randn(9, 64, generator=torch.Generator().manual_seed(3))
    want, experts = (one.numpy() for one in torch.softmax(data.double(), -1).topk(4))
    out = fused(x=data)
    np.testing.assert_array_equal(out.experts, experts)
    np.testing.assert_allclose(out.gates, want, rtol=float(64 * np.finfo(np.float32).eps))


def test_reduced_selections_are_epilogues() -> None:
    """The k best, normalised among themselves, as a sum over the new axis."""
    values, _ = ra.topk(x, n, j)
    weight = exp(values - ra.max(x, n))
    fused = ra.fuse(weight / ra.sum(weight, j), axes="t j")
    data = torch.randn(5, 50, generator=torch.Generator().manual_seed(1))
    want = torch.softmax(data.double().topk(4).values, -1).numpy()
    np.testing.assert_allclose(fused(x=data), want, rtol=float(64 * np.finfo(np.float32).eps))


def test_a_product_neither_over_nor_underflows_midway() -> None:
    data = np.array([[1e30] * 40 + [1e-30] * 40, [1e-38] * 40 + [1e37] * 40], np.float64)
    fused = FUSED["product"]
    for backend in ("numpy", "torch"):
        got = fused(x=data.astype(np.float32), backend=backend)
        want = np.exp(np.log(data.astype(np.float32).astype(np.longdouble)).sum(1))
        np.testing.assert_allclose(
            got, want.astype(np.float64), rtol=float(2 * data.shape[1] * np.finfo(np.float32).eps)
        )
    zero = np.array([[1e30, 0.0, 1e30, 1e30]], np.float32)
    assert fused(x=zero)[0] == 0
    assert np.isnan(fused(x=np.array([[np.inf, 0.0]], np.float32))[0])
    assert fused(x=np.array([[np.inf, -1.0]], np.float32))[0] == -np.inf
    assert fused(x=np.array([[1e30] * 4], np.float32))[0] == np.inf


def test_a_compensated_sum_has_digits_that_a_plain_one_lacks() -> None:
    """1e8 and −1e8 cancel; the small terms between them are below half a unit in the last place of either."""
    data = np.tile(np.array([[1e8, 1.0, -1e8, 1.0]], np.float32), (1, 2000))
    plain = ra.fuse(ra.sum(x, n))
    for backend in ("numpy", "torch"):
        assert FUSED["compensated sum"](x=data, backend=backend)[0] == 4000
    assert plain(x=data)[0] != 4000
    assert FUSED["compensated sum"](x=np.array([[np.inf, 1.0]], np.float32))[0] == np.inf


def test_a_truth_value_may_be_a_condition() -> None:
    expr = ra.where(ra.any(x > 1, n), ra.max(x, n), ra.min(x, n))
    data = np.array([[0.0, 2.0, -1.0], [0.0, 0.5, -1.0]], np.float32)
    for backend in ("numpy", "torch"):
        np.testing.assert_array_equal(ra.fuse(expr)(x=data, backend=backend), [2.0, -1.0])


def test_a_selection_beside_masked_sums_reads_every_element() -> None:
    """The mask is the domain of the sum; the argmax of a row that it rules out is that of −∞ everywhere: 0."""
    score = ra.where(ra.ne(mask, 0), x, -oo)
    fused = ra.fuse({"lse": (ra.logsumexp(score, n), "t"), "best": (ra.argmax(score, n), "t")})
    data = example("plain", 20)
    data["M"][0] = False
    out = fused(x=data["x"], M=data["M"])
    np.testing.assert_array_equal(out.best, np.where(data["M"], data["x"], -np.inf).argmax(1))
    assert out.lse[0] == -np.inf


def test_a_selection_may_be_a_producer() -> None:
    """argmax over another axis, as data of the streamed one."""
    Q = ra.tensor("Q[n,d]")
    fused = ra.fuse(ra.sum(x * ra.argmax(Q, d), n))
    random = np.random.default_rng(0)
    data, other = random.standard_normal((3, 20)), random.standard_normal((20, 5))
    np.testing.assert_allclose(
        fused(x=data, Q=other), data @ other.argmax(1), rtol=float(40 * np.finfo(np.float64).eps)
    )


def test_the_linear_recurrence_runs_step_by_step() -> None:
    """h ← a·h + b from any h₀, over a state that grows as data arrives."""
    a, b = ra.affine(w, x, n)
    fused = ra.fuse({"a": (a, "t"), "b": (b, "t")})
    data = example("plain", 64, dtype="float64")
    start = np.array([1.0, -2.0, 0.5])
    state = fused.empty_state({"t": 3}, dtypes={"x": "float64", "w": "float64"}, library="numpy")
    h = start
    for place in range(64):
        step = {key: data[key][:, place : place + 1] for key in ("x", "w")}
        state = fused.merge(state, fused.leaf(step, start={n: place}))
        h = data["w"][:, place] * h + data["x"][:, place]
        out = fused.finish(state)
        np.testing.assert_allclose(out.a * start + out.b, h, atol=200 * np.finfo(np.float64).eps * np.abs(h).max())


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_pieces_that_do_not_adjoin_are_not_merged_where_order_matters() -> None:
    data, fused = example("plain", 20), FUSED["recurrence"]
    a, b, c = (fused.leaf({key: data[key][:, i:k] for key in ("x", "w")}, start={n: i})
               for i, k in ((0, 5), (5, 9), (9, 20)))  # fmt: skip
    with pytest.raises(ra.InputError) as error:
        fused.merge(c, a)
    assert str(error.value) == (
        "merge: the states hold elements 0 to 4 and elements 9 to 19, and affine depends on the order of elements: "
        "elements 5 to 8 of axis n are missing between them. Give every leaf its `start={n: …}`, and merge neighbours."
    )
    with pytest.raises(ra.InputError) as error:
        fused.merge(fused.merge(a, b), b)
    assert str(error.value) == (
        "merge: the states hold elements 0 to 8 and elements 5 to 8, and affine depends on the order of elements: "
        "elements 5 to 8 of axis n are in both. Give every leaf its `start={n: …}`, and merge neighbours."
    )
    with pytest.raises(ra.InputError, match="element 4 of axis n is missing between them"):
        fused.merge(fused.leaf({key: data[key][:, :4] for key in ("x", "w")}, start={n: 0}), b)
    assert fused.merge(c, fused.merge(b, a)).covers == (0, 20)


def test_where_order_does_not_matter_no_place_is_asked_for() -> None:
    fused, data = FUSED["topk values"], example("plain", 20)
    a, b = (fused.leaf({"x": data["x"][:, i:k]}) for i, k in ((0, 5), (5, 20)))
    assert_defined("topk values", fused.finish(fused.merge(b, a)), data)


def expression_error(build: Any) -> str:
    with pytest.raises(ra.ExpressionError) as error:
        build()
    return str(error.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: ra.topk(x, n, ra.axes("j")),
            'j should be a new axis of fixed size, which numbers the results. Write `j = ra.axis("j", size=4)`.',
        ),
        (
            lambda: ra.topk(x, n, ra.axis("t", size=3)),
            "axis t stands in the term already; the results need a new axis of their own.",
        ),
        (
            lambda: ra.argmax(x, (n, t)),
            (
                "argmax: 2 axes are given (n, t). Its indices and its order are those of one axis: give one, and pass "
                "data over several axes with these as one."
            ),
        ),
        (
            lambda: ra.reduce("topk", x, axis=n),
            "reduce: topk needs a new axis for its results. Write `ra.topk(expr, n, j)`.",
        ),
        (
            lambda: ra.reduce("affine", x, axis=n),
            "affine: 1 operands are given, and the monoid has 2. Give each as an expression of its own.",
        ),
        (
            lambda: ra.reduce("gcd", x, axis=n),
            "reduce: gcd is a monoid of natural numbers, and redalg's terms are extended reals.",
        ),
        (
            lambda: ra.any(True, n),
            (
                "any: the condition is the Python bool True, which Python made before redalg saw it (`==` and `!=` "
                "compare expressions as written). Write `ra.eq(a, b)` or `ra.ne(a, b)`."
            ),
        ),
        (
            lambda: ra.first([1, 2], n),
            (
                "first: a list is not an expression. Write the term with tensor elements, as in "
                "`ra.first(ra.tensor('x[b,n]'), n)`, and pass arrays at the call."
            ),
        ),
    ],
)
def test_what_cannot_be_reduced_so_is_refused(build: Any, message: str) -> None:
    assert expression_error(build) == message


def test_a_selection_of_what_falls_and_rises_is_undecided() -> None:
    with pytest.raises(ra.NotDecided) as error:
        ra.fuse(ra.topk(Abs(x - ra.mean(x, n)), n, j)[0], axes="t j")
    assert error.value.reduction == "topk_values_0"
    assert "is not known to rise strictly with one function of" in error.value.reason


@each
def test_the_tile_program_holds_them(name: str) -> None:
    fused = FUSED[name]
    assert "T.Kernel(" in fused.source(target="c", sizes={"t": 2, "n": 8}, dtypes="float32")


def test_an_explanation_of_a_selection_reads_well(golden: Any) -> None:
    """The whole text: a selection with its indices, a scan and a product beside each other."""
    values, indices = ra.topk(x, n, j)
    fused = ra.fuse({
        "gates": (exp(values - ra.logsumexp(x, n)), "t j"), "experts": (indices, "t j"),
        "h": (ra.affine(w, x, n)[1], "t"), "product": (ra.prod(x, n), "t"), "some": (ra.any(x > 1, n), "t"),
    })  # fmt: skip
    golden("selection_text", fused.explain())
    golden("selection_latex", fused._repr_latex_())
    golden("selection_form", str(fused.form))


@each
def test_explanations_name_what_is_kept(name: str) -> None:
    fused = FUSED[name]
    text = fused.explain()
    assert all(slot.name in text for slot in fused.state)
    assert max(map(len, text.splitlines())) <= 110
    assert fused._repr_latex_()


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        (ra.max(2 * ra.max(x, n), n), lambda rows: 2 * rows.max(1)),
        (ra.min(-ra.max(x, n), n), lambda rows: -rows.max(1)),
        (ra.prod(ra.max(x, n), n), lambda rows: rows.max(1) ** rows.shape[1]),
    ],
)
def test_a_value_reduced_again_is_itself_or_its_power(expr: Expr, want: Any) -> None:
    rows = example("plain", 5, dtype="float64")["x"]
    fused = ra.fuse(expr)
    np.testing.assert_allclose(fused(x=rows), want(rows), rtol=float(20 * np.finfo(np.float64).eps))
    np.testing.assert_array_equal(fused(x=rows[:, :0]), fused.reference(x=rows[:, :0]))


def test_a_nan_is_true() -> None:
    """As in torch and NumPy; a mask of integers counts where it is not 0."""
    assert list(ra.fuse(ra.any(x, n))(x=np.array([[np.nan], [0.0]], np.float32))) == [True, False]
    assert list(ra.fuse(ra.all(mask, n))(M=np.array([[3, 1], [3, 0]]))) == [True, False]
