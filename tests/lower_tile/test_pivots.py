"""Pivots of every policy in kernels: as accurate as the interpreter of forms, at every level, in one part and three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import (
    Abs,
    Expr,
    Mod,
    Rational,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cosh,
    erf,
    erfc,
    log,
    oo,
    sinh,
    sqrt,
    tan,
    tanh,
)
from sympy.codegen.cfunctions import expm1, log1p

import redalg as ra
from redalg.errors import RedalgError
from redalg.incremental.form import PivotPolicy
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import Schedule, with_choices
from tests.cases import literature, random_cascades, theory
from tests.cases.corpus import Pattern
from tests.cases.data_kinds import make
from tests.sweeps import draws

b, n, e = ra.axes("b n e")
x, y, w, M, s, v = ra.tensors("x[b,n] y[b,n] w[b,n] M[b,n] s[b,n] v[n,e]")
P = ra.softmax(ra.where(ra.ne(M, 0), s, -oo), n)
"""Weights of which a mask hides some: whole rows, and the first tiles of others."""
RIDGE = Rational(1, 10**6)


def residuals(weigh: Any) -> Expr:
    """Σ p (y − ȳ − β (x − x̄))² of the line with the least of it."""
    level, place = weigh(y), weigh(x)
    slope = weigh((x - place) * (y - level)) / (weigh((x - place) ** 2) + RIDGE)
    return weigh((y - level - slope * (x - place)) ** 2)


def mean(term: Expr) -> Expr:
    return ra.mean(term, n)


def weighted(term: Expr) -> Expr:
    return ra.sum(P * term, n)


FORMS = {
    "block mean": ra.fuse(ra.mean((x - ra.max(w, n)) ** 2, n)),
    "block mean, masked": ra.fuse(weighted((x - ra.max(w, n)) ** 2)),
    "block mean of a product": ra.fuse(weighted((x - ra.max(w, n)) * v), axes="b e"),
    "with a tile-local one": ra.fuse(mean((x - mean(x)) * (y - ra.max(w, n)))),
    "slope": ra.fuse(ra.sum((x - ra.sum(x * y, n) / ra.sum(y * y, n) * y) ** 2, n)),
    "slope and members": ra.fuse(residuals(mean)),
    "slope and members, masked": ra.fuse(residuals(weighted)),
}
KINDS = ("plain", "offset4", "offset8", "outlier", "drift")
LENGTH, BLOCK, DRAWS = 1000, 128, 3


def test_the_forms_have_pivots_of_every_policy() -> None:
    policies = {pivot.policy for form in FORMS.values() for pivot in form.form.pivots}
    assert {PivotPolicy.BLOCK_MEAN, PivotPolicy.MEMBER, PivotPolicy.SLOPE, PivotPolicy.TILE_LOCAL} <= policies
    assert FORMS["slope"].form.is_tilted
    assert not FORMS["block mean"].form.is_tilted


def tensors(form: ra.Fused, kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Data of a kind; y is a line in x and what scatters about it."""
    scatter = make("value", "plain", 2 + seed).T * (30 if kind == "offset8" else 0.5)
    values = np.ascontiguousarray(make("value", kind, 1 + seed).T)
    mask = np.ones(values.shape, bool)
    mask[0, :300], mask[1, ::3], mask[3, 500:] = False, False, False
    inputs = {"x": values, "y": (scatter + 2 * values).astype("float32"), "M": mask,
              "w": np.ascontiguousarray(make("weight", "plain", seed).T) + np.float32(values.mean()),
              "s": np.ascontiguousarray(make("value", "plain", 3 + seed).T),
              "v": np.ascontiguousarray(make("free", "plain", 4 + seed))}  # fmt: skip
    return {name: inputs[name] for name in form.cascade.inputs()}


def known(form: ra.Fused, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
    sizes = {index.name: size for one in form.cascade.elements()
             for index, size in zip(one.indices, given[one.name].shape, strict=True)}  # fmt: skip
    return {"sizes": sizes, "dtypes": {name: str(one.dtype) for name, one in given.items()}}


def planned(ruled: Schedule, problem: Mapping[str, Any], level: str, segments: int, block: int = BLOCK) -> Schedule:
    """The rules' plan with that level, in that many parts."""
    block = problem["sizes"]["n"] if level == "row" else block
    return with_choices(ruled, level=level, segments=segments, block_streamed=block)


def worst(made: np.ndarray, wanted: np.ndarray) -> float:
    """Largest error, relative row by row."""
    return float((np.abs(made - wanted) / np.abs(wanted).max(axis=tuple(range(1, wanted.ndim)), keepdims=True)).max())


def of_interpreter(form: ra.Fused, given: Mapping[str, np.ndarray], wanted: np.ndarray) -> float:
    """The error of the interpreter of forms, block after block."""
    state = None
    for start in range(0, LENGTH, BLOCK):
        part = slice(start, start + BLOCK)
        piece = {name: one[part] if name == "v" else one[:, part] for name, one in given.items()}
        leaf = form.leaf(piece, start={n: start})
        state = leaf if state is None else form.merge(state, leaf)
    return worst(np.asarray(form.finish(state)), wanted)


PLANS = [("block", 1), ("block", 3), ("thread", 1), ("row", 1)]
ROUNDINGS = 32 * 2.0**-24
"""What is within rounding, whatever the interpreter's error: a few roundings of the terms and of their sums."""
STEEP = 2.0**-24 * 2e4 / 0.5
"""A drift's line about one centre: what y = 2 x rounds to, by how far y scatters about it."""


def held_to(form: ra.Fused, kind: str) -> list[tuple[str, int]]:
    """The plans that a form is tried under: of lanes, a slope's take long to lower."""
    if "v" in form.cascade.inputs():
        return PLANS[:2]
    return PLANS if kind == "outlier" or not form.form.is_tilted else [*PLANS[:2], PLANS[3]]


DATA = [(name, kind) for name in FORMS for kind in KINDS if kind in ("outlier", "drift") or "members, m" not in name]


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("name", "kind"), DATA)
def test_a_kernel_is_as_accurate_as_the_interpreter(name: str, kind: str) -> None:
    """Within twice its error; where one centre serves a whole row of a drift, within what a steep line rounds to."""
    form = FORMS[name]
    draws = [tensors(form, kind, 10 * seed) for seed in range(DRAWS)]
    wanted, problem = [np.asarray(form.reference(**given)) for given in draws], known(form, draws[0])
    reached = rms([of_interpreter(form, *one) for one in zip(draws, wanted, strict=True)])
    by_rules = form.lower("c", **problem).plan
    for level, segments in held_to(form, kind):
        program = form.lower("c", **problem, plan=planned(by_rules, problem, level, segments)).program
        error = rms([worst(interpret(program, *one)["out"], wants) for *one, wants in zip(draws, wanted, strict=True)])
        apart = form.form.is_tilted and kind == "drift" and level != "block"
        bound = STEEP if apart else 2 * reached + ROUNDINGS
        assert error <= bound, f"{level}, {segments}: {error:.1e}, interpreter {reached:.1e}"


def rms(errors: Sequence[float]) -> float:
    """Of several draws: one alone may be lucky."""
    return float(np.sqrt(np.mean(np.square(errors))))


TILES = st.tuples(
    st.sampled_from(["block", "warp", "thread", "row"]), st.sampled_from([1, 2, 3]), st.sampled_from([1, 4, 16])
)


@given(st.sampled_from(sorted(FORMS)), st.integers(3, 40), TILES, st.integers(0, 2**16))
@settings(max_examples=draws(20), deadline=None)
def test_any_plan_means_the_definition(name: str, length: int, tile: tuple[str, int, int], seed: int) -> None:
    """In float64, where only algebra can err: tiles and parts without elements, rows that a mask hides whole."""
    form, rng = FORMS[name], np.random.default_rng(seed)
    level, segments, block = tile
    drawn: dict[str, Any] = {one: rng.standard_normal((3, length)) for one in "xyws"} | {
        "v": rng.standard_normal((length, 2))
    }
    drawn["M"] = rng.uniform(size=(3, length)) < 0.5
    drawn["M"][0, : length // 2], drawn["M"][1], drawn["M"][2, -3:] = False, False, True
    inputs = {one: drawn[one] for one in form.cascade.inputs()}
    problem = known(form, inputs)
    level = "block" if "v" in inputs else level
    plan = planned(form.lower("c", **problem).plan, problem, level, 1 if level == "row" else segments, block)
    out = interpret(form.lower("c", **problem, plan=plan).program, inputs)["out"]
    np.testing.assert_allclose(out, form.reference(**inputs), rtol=1e-7, atol=1e-9)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("name", ["block mean of a product", "with a tile-local one", "slope and members, masked"])
def test_the_c_target_does_what_both_interpreters_do(name: str, segments: int) -> None:
    form = FORMS[name]
    inputs = tensors(form, "offset4")
    wanted, problem = np.asarray(form.reference(**inputs)), known(form, inputs)
    plan = planned(form.lower("c", **problem).plan, problem, "block", segments)
    out = form(**{one: torch.from_numpy(array) for one, array in inputs.items()}, backend="tilelang", plan=plan)
    tiles = interpret(form.lower("c", **problem, plan=plan).program, inputs)["out"]
    reached = of_interpreter(form, inputs, wanted)
    assert worst(tiles, wanted) <= 2 * reached + ROUNDINGS
    assert worst(np.asarray(out), wanted) <= 2 * reached + LENGTH / 4 * 2.0**-24  # sums element by element


@pytest.mark.parametrize("level", ["block", "thread", "row"])
@pytest.mark.parametrize("name", ["block mean", "slope and members"])
def test_what_is_not_finite_stays_in_its_row(name: str, level: str) -> None:
    form = FORMS[name]
    inputs = tensors(form, "plain")
    inputs["x"][1, 5], inputs["x"][2, 400] = np.inf, np.nan
    problem = known(form, inputs)
    plan = planned(form.lower("c", **problem).plan, problem, level, 1)
    out = interpret(form.lower("c", **problem, plan=plan).program, inputs)["out"]
    assert list(np.isfinite(out)) == [True, False, False, True]


# ---- what lowers -----------------------------------------------------------------------------------------------------

PATTERNS = [row.pattern for row in theory.ROWS] + [*literature.PATTERNS, *literature.CARRIED]


def lowers(form: ra.Fused, arrays: Mapping[str, Any], extents: Mapping[str, int]) -> None:
    """For sm_90a."""
    arrays = {name: array for name, array in arrays.items() if name in form.cascade.inputs()}
    sizes = {axis.name: extents[axis.name] for axis in form.cascade.axes() if axis.size is None}
    sizes |= {name: extents[name] for name in form.cascade.extents() if name not in sizes}
    dtypes = {name: "float32" if array.dtype == np.float64 else str(array.dtype) for name, array in arrays.items()}
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    assert form.lower("sm_90a", sizes, dtypes, shapes=shapes).source.text


@pytest.mark.sweep(4)
@pytest.mark.parametrize("pattern", PATTERNS, ids=[one.name for one in PATTERNS])
def test_every_pattern_becomes_a_kernel(pattern: Pattern) -> None:
    lowers(pattern.fuse(), pattern.tensors(), pattern.extents())


@pytest.mark.slow
def test_every_random_cascade_that_fuses_becomes_a_kernel() -> None:
    made = 0
    for seed in range(61):
        try:
            form = ra.fuse(random_cascades.case(seed).outputs)
        except RedalgError:
            continue
        lowers(form, random_cascades.tensors(seed), random_cascades.sizes(seed))
        made += 1
    assert made >= 40


# ---- functions -------------------------------------------------------------------------------------------------------

SMALL = x / 8
FUNCTIONS: dict[str, Expr] = {
    "asin": asin(SMALL), "acos": acos(SMALL), "atan": atan(x), "atan2": atan2(x, y), "asinh": asinh(x),
    "acosh": acosh(1 + Abs(x)), "atanh": atanh(SMALL), "sinh": sinh(x), "cosh": cosh(x), "tanh": tanh(x),
    "tan": tan(SMALL), "erf": erf(x), "erfc": erfc(x), "expm1": expm1(SMALL), "log1p": log1p(Abs(x)),
    "remainder": Mod(x, 2), "remainder_of_two": Mod(x, y), "logarithm": log(Abs(x)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_elementary_function(dtype: str) -> None:
    """On the C target and in the tile interpreter, as defined."""
    form = ra.fuse({name: (ra.sum(term, n), "b") for name, term in FUNCTIONS.items()})
    rng = np.random.default_rng(0)
    inputs = {one: rng.uniform(-4, 4, (3, 33)).astype(dtype) for one in "xy"}
    wanted = form.reference(**inputs)
    tiles = interpret(form.lower("c", **known(form, inputs)).program, inputs)
    out = form(**{one: torch.from_numpy(array) for one, array in inputs.items()}, backend="tilelang")
    for name in FUNCTIONS:
        bound = 33 * float(np.finfo(dtype).eps) * max(4.0, float(np.abs(getattr(wanted, name)).max()))
        np.testing.assert_allclose(tiles[name], getattr(wanted, name), rtol=0, atol=bound, err_msg=name)
        np.testing.assert_allclose(getattr(out, name), getattr(wanted, name), rtol=0, atol=bound, err_msg=name)


POWERS = {
    "square": x**2, "cube": x**3, "root": sqrt(x), "reciprocal": 1 / x, "of_a_sum": 1 / (1 + x**2), "beside": x**4 - 3,
    "of_two": x**2 * y, "scaled": -x**2 / 7,
}  # fmt: skip


@pytest.mark.parametrize("name", POWERS)
def test_a_power_is_shifted_as_a_whole(name: str) -> None:
    """Σ (x² − v)² about a pivot of x², far from 0: Σ x⁴ and Σ x² lose all digits beside each other."""
    u = POWERS[name]
    form = ra.fuse({"spread": (ra.var(u, n), "b"), "product": (ra.mean((u - ra.mean(u, n)) * y, n), "b")})
    rng = np.random.default_rng(0)
    inputs = {"x": 1e3 + rng.normal(size=(3, 700)), "y": 1 + 1e-3 * rng.normal(size=(3, 700))}
    inputs = {one: array.astype("float32") for one, array in inputs.items()}
    wanted = form.reference(**inputs)
    tiles = interpret(form.lower("sm_90a", **known(form, inputs)).program, inputs)
    for made in (form(**inputs, backend="numpy").spread, tiles["spread"]):
        np.testing.assert_allclose(made, wanted.spread, rtol=1e-5)
    size = np.sqrt(np.asarray(wanted.spread))
    assert (np.abs(tiles["product"] - wanted.product) <= 1e-4 * size).all()


@given(st.sampled_from(sorted(POWERS)), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=draws(20))
def test_a_power_beside_its_base_is_right(name: str, length: int, parts: int) -> None:
    """x² is a generator of its own beside x: moments of both, and of the two together."""
    u = POWERS[name]
    form = ra.fuse({"o": (ra.mean((u - ra.mean(u, n)) * (x - ra.mean(x, n)), n) + ra.mean(u**2, n), "b")})
    rng = np.random.default_rng(length)
    inputs = {one: 2 + rng.random((3, length)) for one in form.cascade.inputs()}
    plan = with_choices(form.lower("c", **known(form, inputs)).plan, segments=parts, block_streamed=16, level="block")
    tiles = interpret(form.lower("c", **known(form, inputs), plan=plan).program, inputs)
    np.testing.assert_allclose(tiles["o"], form.reference(**inputs).o, rtol=1e-10)


def test_a_root_that_is_shifted_leaves_other_powers_alone() -> None:
    """√x is shifted as a whole, and x² beside it is still of x below 0; a square of what a mask hides is hidden."""
    hidden = ra.sum(ra.where(x > 0, sqrt(x), 0), n) / ra.sum(ra.where(x > 0, 1, 0), n)
    form = ra.fuse({
        "root": (ra.sum((sqrt(Abs(x)) - ra.mean(y, n)) ** 2, n), "b"),
        "square": (ra.sum(x**2 * (y - ra.mean(y, n)), n), "b"),
        "masked": (ra.sum(ra.where(x > 0, (sqrt(x) - hidden) ** 2, 0), n) + ra.sum(x**2 * ra.mean(y, n), n), "b"),
        "within": (ra.sum(ra.where(x > 0, sqrt(x) - ra.mean(y, n), 0) ** 2, n), "b"),
    })  # fmt: skip
    rng = np.random.default_rng(0)
    inputs = {one: rng.normal(size=(3, 40)) for one in form.cascade.inputs()}
    wanted, out = form.reference(**inputs), form(**inputs, backend="numpy")
    tiles = interpret(form.lower("c", **known(form, inputs)).program, inputs)
    for name in ("root", "square", "masked", "within"):
        np.testing.assert_allclose(getattr(out, name), getattr(wanted, name), rtol=1e-9)
        np.testing.assert_allclose(tiles[name], getattr(wanted, name), rtol=1e-9)
