"""The table of elementary functions: what a row says is so, and a new row is all that a new function needs."""

from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
import torch
from sympy.codegen import cfunctions
from sympy.functions.special.gamma_functions import loggamma

import redalg as ra
from redalg.decompose.samples.arithmetic import Digits, Floats
from redalg.errors import ExpressionError
from redalg.expression import operators
from redalg.expression.operators import OPERATORS, Operator, numpy_function
from redalg.expression.spelling import spelling_of
from redalg.runtime.bind import backends

n = ra.axes("n")
x = ra.tensor("x[b,n]")
NEW = Operator("loggamma", "math.lgamma", "lgamma", "loggamma", kernel="lgamma")
"""A function that redalg does not have: SymPy, `math`, torch, mpmath and C do."""
GRID = np.linspace(-9.7, 9.7, 195)
FAR = 1e6


def of_sympy(operator: Operator) -> Any:
    return getattr(sympy, operator.name, None) or getattr(cfunctions, operator.name)


def on_grid(operator: Operator) -> tuple[np.ndarray, np.ndarray]:
    """The arguments of the grid in the domain, and the values there."""
    with np.errstate(all="ignore"):
        values = quiet(operator, GRID)
    return GRID[np.isfinite(values)], values[np.isfinite(values)]


def quiet(operator: Operator, array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(numpy_function(operator)(array), dtype=np.float64)


UNARY = [one for one in OPERATORS.values() if one.inputs == 1]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda one: one.name)
def test_the_libraries_agree(operator: Operator) -> None:
    given = [GRID, np.roll(GRID, 7) + 0.05][: operator.inputs]
    if operator.name == "Mod":
        given[1] = np.abs(given[1]) + 0.1
    wanted = quiet(operator, given[0]) if len(given) == 1 else np.asarray(numpy_function(operator)(*given))
    of_torch = getattr(torch, operator.torch)(*map(torch.from_numpy, given)).numpy()
    np.testing.assert_allclose(of_torch, wanted, rtol=1e-12, atol=1e-12)
    for arithmetic in (Digits(), Floats(np.longdouble)):
        function = arithmetic.function(operator.name)
        assert function is not None
        with np.errstate(all="ignore"):
            values = function(*map(arithmetic.array, given)).astype(np.float64)
        finite = np.isfinite(wanted)
        np.testing.assert_allclose(values[finite], wanted[finite], rtol=1e-12, atol=1e-12)
    exact = [float(sympy.N(of_sympy(operator)(*map(sympy.Float, pair)))) for pair in zip(*given, strict=True)
             if np.isfinite(wanted[list(given[0]).index(pair[0])])]  # fmt: skip
    np.testing.assert_allclose(exact, wanted[np.isfinite(wanted)], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("operator", UNARY, ids=lambda one: one.name)
def test_the_properties_hold(operator: Operator) -> None:
    """Of every property that a row claims; where it claims none, it may hold all the same."""
    arguments, values = on_grid(operator)
    steps = np.diff(values)
    if operator.rising:
        assert (steps >= 0).all()
    assert operator.rising or not (operator.shape or operator.strict)
    if operator.strict:
        near = np.abs(arguments) < 3
        assert (np.diff(values[near]) > 0).all()
    if operator.shape:
        bends = np.diff(steps) / np.abs(values).max()
        assert (bends >= -1e-12).all() if operator.shape == "convex" else (bends <= 1e-12).all()
    if operator.keeps_sign:
        assert (np.sign(values) == np.sign(arguments)).all()
    if operator.unbounded:
        assert quiet(operator, np.array([FAR]))[0] > 10


@pytest.mark.parametrize("operator", [one for one in UNARY if one.singular], ids=lambda one: one.name)
def test_a_singular_function_has_a_singularity(operator: Operator) -> None:
    """At one of ±1, ±i and iπ/2, π/2 it or its derivative has no bound."""
    function = getattr(mpmath, operator.mpmath or operator.name)
    places = (1, -1, 1j, -1j, mpmath.pi / 2, 1j * mpmath.pi / 2)
    assert any(abs(mpmath.diff(function, place + 1e-8 * (1 + 1j), h=1e-14)) > 1e3 for place in places)


def test_a_function_without_a_row_is_refused() -> None:
    with pytest.raises(ExpressionError, match="`loggamma`, which redalg cannot evaluate"):
        ra.fuse(ra.sum(loggamma(x), n), axes="b")


def test_a_row_is_all_that_a_function_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage reads it: verdict, explanation, definition, both interpreters, the kernel's source and the kernel."""
    monkeypatch.setitem(operators.OPERATORS, "loggamma", NEW)
    backends.ops_of.cache_clear()  # the array libraries were asked for the functions before there was the row
    mean = ra.mean(loggamma(x), n)
    fused = ra.fuse(ra.mean((loggamma(x) - mean) ** 2, n), axes="b")
    data = np.random.default_rng(0).uniform(0.5, 40.0, (3, 100)).astype(np.float32)
    wanted = np.var(np.vectorize(lambda one: float(mpmath.loggamma(one)))(data.astype(np.float64)), axis=1)
    assert "loggamma(x[b,n])" in fused.explain()
    np.testing.assert_allclose(fused.reference(x=data), wanted, rtol=1e-12)
    np.testing.assert_allclose(fused(x=data), wanted, rtol=1e-5)
    np.testing.assert_allclose(fused(x=torch.from_numpy(data)).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(fused(x=torch.from_numpy(data), backend="tilelang").numpy(), wanted, rtol=1e-5)
    source = fused.source("sm_90a", sizes={"b": 3, "n": 100}, dtypes={"x": "float64"})
    assert '"lgamma"' in source
    refused = ra.analyze(ra.sum(loggamma(x - ra.mean(x, n)), n))
    assert not isinstance(refused, ra.Exact)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("arctan2", "atan2(x, y)"), ("arcsinh", "asinh(x)"), ("remainder", "Mod(x, y)"), ("log1p", "log(1 + x)")],
)
def test_other_libraries_names_are_known(name: str, wanted: str) -> None:
    assert f"`{wanted}`" in str(spelling_of(name))
