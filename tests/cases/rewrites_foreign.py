"""The properties of rewrites of foreign notation: SymPy's own nodes, taken in (see `test_rewrites`)."""

import math
from collections.abc import Callable

import numpy as np
from sympy import (
    ITE,
    Heaviside,
    Implies,
    IndexedBase,
    Not,
    Piecewise,
    S,
    Sum,
    Symbol,
    Xor,
    cot,
    coth,
    csc,
    csch,
    erf2,
    frac,
    sec,
    sech,
    sinc,
    sqrt,
    symbols,
)
from sympy.codegen import cfunctions as codegen
from sympy.codegen.cfunctions import exp2, fma, hypot, log2, log10

import redalg as ra
from redalg.decompose.parse.foreign import adopt
from redalg.expression import Where

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def foreign_element() -> None:
    i = symbols("i", integer=True)
    size = symbols("N", integer=True)
    made = adopt(Sum(IndexedBase("x")[i] ** 2, (i, 0, size - 1)) / size)
    np.testing.assert_allclose(ra.fuse(made)(x=data(8), backend="numpy"), (data(8) ** 2).mean())


def foreign_where() -> None:
    made = adopt(ra.sum(Piecewise((x, n <= b), (0, True)), n))
    assert made.atoms(Where)
    np.testing.assert_allclose(ra.fuse(made)(x=data(3, 5), backend="numpy"), np.tril(data(3, 5)).sum(1))


def foreign_functions() -> None:
    """SymPy's other functions have the value that SymPy gives them."""
    t, u = symbols("t u", real=True)
    ones = (exp2, log2, log10, codegen.Sqrt, codegen.Cbrt, sec, csc, cot, sech, csch, coth, sinc, frac)
    for term in (*(f(t) for f in ones), hypot(t, u), fma(t, u, t), erf2(t, u)):
        made = adopt(term)
        for at_t, at_u in ((0.75, -1.5), (2.25, 0.5)):
            wanted = term.expand(func=True).subs({t: at_t, u: at_u}).evalf()
            got = made.xreplace({one: S({"t": at_t, "u": at_u}[one.name]) for one in made.free_symbols}).evalf()
            assert math.isclose(float(wanted), float(got), rel_tol=1e-12), f"{term} became {made}"


def foreign_step() -> None:
    made = ra.fuse(ra.sum(Heaviside(x) + Heaviside(x, 0), n))
    got = made(x=np.array([[-1.0, 0.0, 2.0]]), backend="numpy")
    np.testing.assert_allclose(got, [0.5 + 0 + 2])


def foreign_conditions() -> None:
    p, q = x > 0, y > 0
    for made, of in ((Implies(p, q), lambda a, b: ~a | b), (Xor(p, q), np.logical_xor),
                     (ITE(p, q, Not(q)), lambda a, b: np.where(a, b, ~b))):  # fmt: skip
        got = ra.fuse(ra.sum(ra.where(made, 1, 0), n))(x=data(2, 9), y=data(2, 9, seed=1), backend="numpy")
        np.testing.assert_allclose(got, of(data(2, 9) > 0, data(2, 9, seed=1) > 0).sum(1))


def foreign_scalar() -> None:
    made = ra.fuse(ra.sum(Symbol("t") * x, n))
    np.testing.assert_allclose(made(x=data(2, 4), t=3.0, backend="numpy"), 3 * data(2, 4).sum(1))


def float_exponents() -> None:
    assert adopt(x**2.0 + (x - y) ** -3.0 + x**0.5 + x**0.3) == x**2 + (x - y) ** -3 + sqrt(x) + x**0.3
    written, wanted = (ra.fuse(one)(x=data(2, 9)) for one in (ra.mean((x - ra.mean(x, n)) ** 2.0, n), ra.var(x, n)))
    np.testing.assert_allclose(written, wanted)


PROPERTIES: dict[str, Callable[[], None]] = {
    "x[i]  (Indexed)": foreign_element,
    "Sum(f, (i, 0, n − 1))": foreign_element,
    "Piecewise((a, c), (b, True))": foreign_where,
    'Symbol("t")': foreign_scalar,
    "exp2(u), log2(u), hypot(a, b), fma(a, b, c), sec(u) …": foreign_functions,
    "Heaviside(u, h)": foreign_step,
    "a ⇒ b, a ⊻ b, ITE(c, a, b)": foreign_conditions,
    "u^2.0": float_exponents,
}
