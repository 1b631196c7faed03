"""Outputs that carry a reduced axis: one pass for the state, one for the output."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, Rational, exp, log, oo, sqrt

import redalg as ra
from redalg.explain import explain_html, explain_latex, explain_text
from redalg.runtime.bind import arrays
from redalg.runtime.bind.blocks import block_lengths
from tests.cases import data_kinds
from tests.cases.axes import close, defined, drawn, needed, on_torch
from tests.conftest import Golden
from tests.house.source import ROOT
from tests.oracle import Oracle
from tests.sweeps import draws

b, n, i, j, d = ra.axes("b n i j d")
x, g, w, u, M = ra.tensors("x[b,n] g[b,n] w[n] u[n] M[b,n]")
y, Q, K, z, c = ra.tensors("y[b,i,j] Q[b,d] K[n,d] z[b,n,j] c[j]")
SHAPES = {"x": "b n", "g": "b n", "w": "n", "u": "n", "M": "b n", "y": "b i j", "Q": "b d", "K": "n d", "z": "b n j",
          "c": "j"}  # fmt: skip

LOGITS = ra.sum(Q * K, d) / sqrt(d.extent)
CAUSAL = ra.where(n <= 2 * b, LOGITS, -oo)
MASKED = ra.where(ra.ne(M, 0), x, -oo)
P = ra.softmax(x, n)
NAIVE = exp(x) / ra.sum(exp(x), n)
LOW, HIGH = ra.min(x, n), ra.max(x, n)
CENTRE = ra.mean(x, n)
PATTERNS: dict[str, tuple[Expr, str]] = {
    "softmax": (P, "b n"),
    "softmax, transposed": (P, "n b"),
    "softmax, naive": (NAIVE, "b n"),
    "softmax, sharpened": (exp(3 * (x - HIGH)) / ra.sum(exp(3 * (x - HIGH)), n), "b n"),
    "log-softmax": (ra.log_softmax(x, n), "b n"),
    "log of the softmax": (log(P), "b n"),
    "log of the softmax, naive": (log(NAIVE), "b n"),
    "softmax of logits": (ra.softmax(LOGITS, n), "b n"),
    "softmax, causal": (ra.softmax(CAUSAL, n), "b n"),
    "softmax, masked": (ra.softmax(MASKED, n), "b n"),
    "softmax, masked, naive": (exp(MASKED) / ra.sum(exp(MASKED), n), "b n"),
    "softmax of two axes": (ra.softmax(y, i, j), "b i j"),
    "p log p": (P * log(P), "b n"),
    "backward of the softmax": (P * (g - ra.sum(P * g, n)), "b n"),
    "layer norm": (ra.layer_norm(x, n, weight=w, bias=u), "b n"),
    "layer norm of two axes": (ra.layer_norm(y, i, j), "b i j"),
    "RMS norm": (ra.rms_norm(x, n, eps=Rational(1, 1000), weight=w), "b n"),
    "unit vector": (ra.normalize(x, n), "b n"),
    "unit vector, 1-norm": (ra.normalize(x, n, p=1), "b n"),
    "unit vector, largest": (ra.normalize(x, n, p=oo), "b n"),
    "centred": (x - CENTRE, "b n"),
    "centred at the weighted mean": (x - ra.sum(P * x, n), "b n"),
    "between 0 and 1": ((x - LOW) / (HIGH - LOW), "b n"),
    "bell about the mean": (exp(-((x - CENTRE) ** 2) / (2 * ra.var(x, n) + 1)), "b n"),
    "distance": (Abs(x - CENTRE), "b n"),
    "above the mean": (ra.where(x > CENTRE, x, 0), "b n"),
    "position": (n * P, "b n"),
}
CONDITIONAL = ("above the mean",)
"""What no rounding error bounds: a condition may turn with the last digit."""
SIZES = [
    {"b": 3, "n": 37, "i": 5, "j": 4, "d": 3},
    {"b": 2, "n": 1, "i": 1, "j": 3, "d": 2},
    {"b": 2, "n": 0, "i": 0, "j": 2, "d": 2},
]


# 0/0 of an empty row warns in NumPy; whether it is right is what these tests ask.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def data(sizes: dict[str, int], dtype: str = "float64", seed: int = 0) -> dict[str, Any]:
    """Rows of which one is masked throughout where a mask is in play, and one has −∞ in it."""
    made = drawn(SHAPES, sizes, seed, dtype)
    made["M"] = made["M"] > 0
    made["M"][:1] = False
    return made


@pytest.mark.parametrize("sizes", SIZES, ids=lambda one: f"n{one['n']}")
@pytest.mark.parametrize("name", PATTERNS)
def test_equal_to_the_definition(name: str, sizes: dict[str, int]) -> None:
    expr, axes = PATTERNS[name]
    made = ra.fuse(expr, axes=axes)
    assert [one.carries for one in made.form.outputs] == [True]
    for dtype in ("float64", "float32"):
        tensors = needed(made, data(sizes, dtype))
        for got in (made(**tensors, backend="numpy"), made(**on_torch(tensors), backend="torch")):
            assert str(got.dtype).endswith(dtype)
            defined(got, expr, axes, tensors, sizes, dtype)
    defined(made.reference(**tensors), expr, axes, tensors, sizes)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("limit", [1, 7, 50])
@pytest.mark.parametrize("name", PATTERNS)
def test_any_block_gives_the_same(monkeypatch: pytest.MonkeyPatch, name: str, limit: int) -> None:
    expr, axes = PATTERNS[name]
    made = ra.fuse(expr, axes=axes)
    monkeypatch.setattr(arrays, "block_lengths", lambda form, sizes, _=0: block_lengths(form, sizes, limit))
    tensors = needed(made, data(SIZES[0], seed=1))
    defined(made(**tensors, backend="numpy"), expr, axes, tensors, SIZES[0])


# ---- accuracy --------------------------------------------------------------------------------------------------------

LOG_P = ra.log_softmax(x, n)
STABLE: dict[str, tuple[str, Expr, Expr]] = {  # role, as written, and as the definition that no underflow spoils
    "softmax": ("logit", P, P),
    "softmax, naive": ("logit", NAIVE, P),
    "log-softmax": ("logit", LOG_P, LOG_P),
    "log of the softmax": ("logit", log(P), LOG_P),
    "log of the softmax, naive": ("logit", log(NAIVE), LOG_P),
    "p log p": ("logit", P * log(P), P * LOG_P),
    "p log p, naive": ("logit", NAIVE * log(NAIVE), P * LOG_P),
    "layer norm": ("value", ra.layer_norm(x, n), ra.layer_norm(x, n)),
    "centred": ("value", x - CENTRE, x - CENTRE),
    "centred, weighted": ("value", x - ra.sum(w * x, n) / ra.sum(w, n), x - ra.sum(w * x, n) / ra.sum(w, n)),
    "scores, raw moments": ("value", (x - CENTRE) / sqrt(ra.mean(x**2, n) - CENTRE**2 + 1),
                            (x - CENTRE) / sqrt(ra.var(x, n) + 1)),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, (role, _, _) in STABLE.items()
                                            for own, kind in data_kinds.KINDS if own == role])  # fmt: skip
def test_stable_on_every_kind_of_data(name: str, kind: str, backend: str) -> None:
    """As accurate as if the data lay about 0, by the definition's error bound there: a shift of x changes nothing."""
    role, expr, definition = STABLE[name]
    values = data_kinds.make(role, kind)[:, :2].T.copy()
    weights = data_kinds.make("weight")[:, 0]
    made = ra.fuse(expr, axes="b n")
    tensors = needed(made, {"x": values, "w": weights})
    got = made(**(tensors if backend == "numpy" else on_torch(tensors)), backend=backend)
    finite = np.where(np.isfinite(values), values, -np.inf).max(1, keepdims=True)
    origin = np.where(np.isfinite(finite), values[:, :1] if role == "value" else finite, 0).astype(np.longdouble)
    sizes = {"b": values.shape[0], "n": values.shape[1]}
    moved = {"x": values.astype(np.longdouble) - origin, "w": weights.astype(np.longdouble)}
    want, bound = Oracle(moved, {}, sizes).output(definition, "b n")
    close(got, want, bound, "float32")


def test_far_from_zero_where_the_mean_has_no_digits() -> None:
    """At 1e8 ± 30 float32 holds multiples of 8: a mean rounded to them would be off by a tenth of the spread."""
    values = data_kinds.make("value", "offset8").T.copy()
    exact = values.astype(np.longdouble)
    mean = exact.mean(1, keepdims=True)
    want = (exact - mean) / np.sqrt(((exact - mean) ** 2).mean(1, keepdims=True))
    got = ra.fuse(ra.layer_norm(x, n, eps=0))(x=values)
    rounded = (exact - mean.astype(np.float32)) / np.sqrt(((exact - mean) ** 2).mean(1, keepdims=True))
    few = 8 * np.finfo(np.float32).eps * np.abs(want).max()  # x − c, δ, x − c − δ, the variance, √, ÷
    assert np.abs(got - want).max() < few < np.abs(rounded - want).max()


# ---- what lies outside, and empty rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_row_that_is_masked_throughout(backend: str) -> None:
    values = np.array([[-np.inf, -np.inf, -np.inf], [0.0, -np.inf, 0.0]])
    for expr in (P, NAIVE):
        made = ra.fuse(expr)
        np.testing.assert_array_equal(made(x=values, backend=backend)[0], [np.nan] * 3)
        np.testing.assert_array_equal(made(x=values, backend=backend, empty="zero"), [[0, 0, 0], [0.5, 0, 0.5]])


@pytest.mark.parametrize("empty", ["nan", "zero"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_no_elements_and_no_rows(backend: str, empty: str) -> None:
    made = ra.fuse({"p": (P, "b n"), "lse": (ra.logsumexp(x, n), "b")})
    got = made(x=np.ones((2, 0)), backend=backend, empty=empty)
    assert got.p.shape == (2, 0)
    np.testing.assert_array_equal(got.lse, [-np.inf, -np.inf])
    assert made(x=np.ones((0, 3)), backend=backend, empty=empty).p.shape == (0, 3)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_zero_weight_beside_its_logarithm_is_no_entropy(backend: str) -> None:
    """0·log 0 = 0: in the fused form, in the reference, and in the definition of the tests."""
    values = np.array([[0.0, -np.inf, 1.0, -np.inf], [2.0, 2.0, -np.inf, 2.0]])
    share = np.array([[0.25, 0.0, 0.75, 0.0], [1.0, 0.0, 0.0, 0.0]])
    entropy = ra.entropy(P, n)
    terms = {"total": (entropy, "b"), "terms": (-P * log(P), "b n"), "direct": (ra.entropy(x, n), "b")}
    made = ra.fuse({name: terms[name] for name in ("total", "terms")})
    plain = ra.fuse(terms["direct"][0])
    sizes = {"b": 2, "n": 4}
    for got in (made(x=values, backend=backend), made.reference(x=values)):
        for output, name in zip(got, ("total", "terms"), strict=True):
            assert np.isfinite(output).all()
            defined(output, *terms[name], {"x": values}, sizes)
    for got in (plain(x=share, backend=backend), plain.reference(x=share)):
        np.testing.assert_allclose(got, [-0.25 * np.log(0.25) - 0.75 * np.log(0.75), 0.0], rtol=1e-15)


def test_entropy_of_a_distribution_made_of_counts() -> None:
    share = Abs(x) / ra.sum(Abs(x), n)
    made = ra.fuse(ra.entropy(share, n))
    values = np.array([[1.0, 0.0, 3.0], [5.0, 0.0, 0.0]])
    for got in (made(x=values, backend="numpy"), made(x=values, backend="torch"), made.reference(x=values)):
        np.testing.assert_allclose(got, [-0.25 * np.log(0.25) - 0.75 * np.log(0.75), 0.0], atol=1e-15)


# ---- types, several outputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_carried_output_has_the_dtype_of_the_inputs(dtype: str) -> None:
    """And is computed in float32 at least, then rounded once; what a row has one of stays wide."""
    torch.manual_seed(0)
    values = torch.randn(3, 40).to(getattr(torch, dtype))
    exprs = {"p": (P, "b n"), "log_p": (ra.log_softmax(x, n), "b n"), "lse": (ra.logsumexp(x, n), "b")}
    got = ra.fuse(exprs)(x=values)
    assert got.p.dtype == got.log_p.dtype == values.dtype
    assert got.lse.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    wide = {"x": values.to(torch.float64).numpy()}
    for name, (expr, axes) in exprs.items():
        want, bound = Oracle(wide, {}, {"b": 3, "n": 40}).output(expr, axes)
        info = torch.finfo(getattr(got, name).dtype)
        compute = np.finfo("float64" if dtype == "float64" else "float32").eps
        error = np.abs(getattr(got, name).to(torch.float64).numpy() - want)
        assert (error <= compute * bound + info.eps * np.abs(want)).all()


def test_several_outputs_share_the_state() -> None:
    made = ra.fuse({"p": (ra.softmax(LOGITS, n), "b n"), "lse": (ra.logsumexp(LOGITS, n), "b"),
                    "mean": (ra.sum(ra.softmax(LOGITS, n) * x, n), "b")})  # fmt: skip
    assert [one.name for one in made.state] == ["max_0", "sum_0", "sum_1_acc"]
    sizes = SIZES[0]
    tensors = needed(made, data(sizes))
    for got in (made(**tensors), made.reference(**tensors)):
        defined(got.p, ra.softmax(LOGITS, n), "b n", tensors, sizes)
        defined(got.lse, ra.logsumexp(LOGITS, n), "b", tensors, sizes)
        defined(got.mean, ra.sum(ra.softmax(LOGITS, n) * x, n), "b", tensors, sizes)


def test_an_output_may_sum_carried_values_over_another_axis() -> None:
    """Σ_j c_j·softmax_n(z_nj) beside the softmax itself: an epilogue over j, at every n of the second pass."""
    exprs = {"p": (ra.softmax(z, n), "b n j"), "mixed": (ra.sum(ra.softmax(z, n) * c, j), "b n")}
    made, sizes = ra.fuse(exprs), SIZES[0]
    assert made.cascade.reduced_axes == (n,)
    tensors = needed(made, data(sizes))
    for got in (made(**tensors, backend="numpy"), made(**on_torch(tensors)), made.reference(**tensors)):
        for name, (expr, axes) in exprs.items():
            defined(getattr(got, name), expr, axes, tensors, sizes)


def test_rounding_with_the_final_scale_is_exact() -> None:
    """The second pass knows the scale, so that a cast of x over it is no approximation."""
    largest = ra.max(Abs(x), n)
    made = ra.fuse({"q": (ra.cast(127 * x / largest, "int8"), "b n"), "scale": (largest / 127, "b")})
    values = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    for backend in ("numpy", "torch"):
        got = made(x=values, backend=backend)
        assert got.q.dtype == np.int8
        np.testing.assert_array_equal(got.q, np.rint(values * 127 / np.abs(values).max(1, keepdims=True)))


# ---- piece by piece --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, (_, axes) in PATTERNS.items() if axes == "b n" and name != "position"])
@settings(max_examples=draws(10))
@given(cuts=st.lists(st.integers(0, 37), max_size=3), again=st.lists(st.integers(0, 37), max_size=3))
def test_pieces_of_the_data_and_of_the_output(name: str, cuts: list[int], again: list[int]) -> None:
    """A state from pieces in one cut; the output from pieces in another."""
    expr, axes = PATTERNS[name]
    made, sizes = ra.fuse(expr, axes=axes), SIZES[0]
    tensors = needed(made, data(sizes, seed=3))
    state: Any = None
    with np.errstate(all="ignore"):
        for first, last in edges(cuts):
            leaf = made.leaf(piece(tensors, first, last), start={n: first})
            state = leaf if state is None else made.merge(leaf, state)
        parts = [made.finish(state, outputs_only(made, piece(tensors, first, last)), start={n: first})
                 for first, last in edges(again)]  # fmt: skip
    defined(np.concatenate(parts, axis=1), expr, axes, tensors, sizes)


def edges(cuts: list[int]) -> list[tuple[int, int]]:
    places = [0, *sorted(cuts), 37]
    return list(pairwise(places))


def piece(tensors: dict[str, Any], first: int, last: int) -> dict[str, Any]:
    return {name: one[tuple(slice(first, last) if axis == "n" else slice(None) for axis in SHAPES[name].split())]
            for name, one in tensors.items()}  # fmt: skip


def outputs_only(made: ra.Fused, tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors without those that the state alone is made of."""
    from redalg.runtime.bind.places import finished_exprs

    names = {one.name for expr in finished_exprs(made.form) for one in expr.atoms(ra.Element)}
    return {name: one for name, one in tensors.items() if name in names}


def test_finish_asks_for_the_data_by_name() -> None:
    made = ra.fuse(P)
    state = made.leaf({"x": np.ones((2, 4))})
    with pytest.raises(ra.InputError) as error:
        made.finish(state)
    assert str(error.value) == (
        'finish: the outputs hold x[b, n], which a state does not. Pass them as tensors: `finish(state, {"x": …})`.'
    )
    with pytest.raises(ra.InputError) as error:
        made.finish(state, {"x": np.ones((3, 4))})
    assert str(error.value) == "finish: tensor `x` has shape (3, 4); `x[b, n]` needs (2, 4)."
    with pytest.raises(ra.InputError) as error:
        made.finish(state, {"x": np.ones((2, 4))}, start={n: -1})
    assert str(error.value) == (
        "finish: start should give an axis its first element's number, as in start={n: 128}, not {n: -1}. The axes "
        "are b, n."
    )


# ---- memory, lowering, explanation -----------------------------------------------------------------------------------

CODE = """
import torch
import redalg as ra
from redalg.instruments.memory import resident_bytes
n = ra.axes("n")
fused = ra.fuse(ra.softmax(ra.tensor("x[b,n]"), n))
fused(x=torch.randn(2, 64), backend="torch")  # libraries are loaded and threads are up
data = torch.randn(4, 1 << 24)
before = resident_bytes("VmRSS")
out = fused(x=data, backend="torch")
peak = resident_bytes("VmHWM")  # of this process: ru_maxrss has its parent's too
assert torch.isfinite(out).all()
print(peak - before - out.nbytes)
"""


@pytest.mark.slow
def test_a_long_row_takes_its_output_and_a_block() -> None:
    """Four rows of 16 Mi elements, 256 MiB: beside the output a few blocks of 4 MiB are held."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 20


SHOWN = {"softmax": P, "layer_norm": ra.layer_norm(x, n, weight=w)}


@pytest.mark.parametrize("name", SHOWN)
def test_forms(name: str, golden: Golden) -> None:
    made = ra.fuse(SHOWN[name])
    for stage in (made.cascade, made.decomposition, made.form):
        stage.verify()
    golden(f"{name}_form", f"{made.cascade}\n\n{made.decomposition}\n\n{made.form}\n")


@pytest.mark.parametrize("medium", [explain_text, explain_latex, explain_html])
@pytest.mark.parametrize("name", SHOWN)
def test_explanations(name: str, medium: Any, golden: Golden) -> None:
    made = ra.fuse(SHOWN[name])
    golden(f"{name}_{medium.__name__.removeprefix('explain_')}", medium(made.decomposition, made.passes))


def test_the_costs_say_what_is_read_twice() -> None:
    text = ra.fuse(ra.layer_norm(x, n, weight=w)).explain()
    assert "pass 1 for the state, pass 2 for the output that carries n" in text
    assert "read twice      x[b,n]; once where a row fits on chip\n" in text
    assert "read once       w[n]\n" in text
