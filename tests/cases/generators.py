"""Generators: functions G of one or two tensors, of which moments and covariances are taken about an offset.

Each is a lambda of a namespace `f` and the tensors, which serves SymPy and NumPy alike: the values that results are
judged by are made of the same text by NumPy in 80 bits, and share no code with the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy

import redalg as ra

Generator = Callable[..., Any]

SYMBOLIC = SimpleNamespace(
    exp=sympy.exp, log=sympy.log, sqrt=sympy.sqrt, sin=sympy.sin, cos=sympy.cos, tanh=sympy.tanh, sinh=sympy.sinh,
    cosh=sympy.cosh, abs=sympy.Abs, max=sympy.Max, min=sympy.Min, where=ra.where, a=ra.scalars("a", positive=True),
    power=lambda base, u: sympy.Integer(base) ** u if isinstance(base, int) else base**u)  # fmt: skip


def numeric(dtype: Any, a: float) -> SimpleNamespace:
    """The functions of NumPy, with the scalar a in a dtype."""
    return SimpleNamespace(
        exp=np.exp, log=np.log, sqrt=np.sqrt, sin=np.sin, cos=np.cos, tanh=np.tanh, sinh=np.sinh, cosh=np.cosh,
        abs=np.abs, max=np.maximum, min=np.minimum, where=np.where, a=dtype(a),
        power=lambda base, u: np.power(dtype(base), u))  # fmt: skip


EXPONENTIALS: dict[str, Generator] = {
    "exp x": lambda f, x, y: f.exp(x),
    "exp -x": lambda f, x, y: f.exp(-x),
    "2^x": lambda f, x, y: f.power(2, x),
    "a^x": lambda f, x, y: f.power(f.a, x),
    "exp ax": lambda f, x, y: f.exp(f.a * x),
    "exp -ax": lambda f, x, y: f.exp(-f.a * x),
    "exp 3x": lambda f, x, y: f.exp(3 * x),
    "exp -x^2/2": lambda f, x, y: f.exp(-(x**2) / 2),
    "exp x^2": lambda f, x, y: f.exp(x**2),
    "x exp y": lambda f, x, y: x * f.exp(y),
    "x exp x": lambda f, x, y: x * f.exp(x),
    "x exp -y": lambda f, x, y: x * f.exp(-y),
    "x^2 exp y": lambda f, x, y: x**2 * f.exp(y),
    "exp x / y": lambda f, x, y: f.exp(x) / y,
    "exp (x + y)": lambda f, x, y: f.exp(x + y),
    "exp (x - y)": lambda f, x, y: f.exp(x - y),
    "exp xy": lambda f, x, y: f.exp(x * y),
    "exp tanh x": lambda f, x, y: f.exp(f.tanh(x)),
    "exp sin x": lambda f, x, y: f.exp(f.sin(x)),
    "exp 1/x": lambda f, x, y: f.exp(1 / x),
    "exp sqrt y": lambda f, x, y: f.exp(f.sqrt(y)),
    "sqrt exp x": lambda f, x, y: f.sqrt(f.exp(x)),
    "sin y exp x": lambda f, x, y: f.sin(y) * f.exp(x),
    "log y exp x": lambda f, x, y: f.log(y) * f.exp(x),
    "exp x times [y > 0]": lambda f, x, y: f.exp(x) * f.where(y > 0, 1, 0),
    "logistic": lambda f, x, y: 1 / (1 + f.exp(-x)),
    "sqrt (1 + exp x)": lambda f, x, y: f.sqrt(1 + f.exp(x)),
    "x logistic": lambda f, x, y: x / (1 + f.exp(-x)),
}
"""Monomials with an exponential, and functions of one."""

OTHERS: dict[str, Generator] = {
    "x": lambda f, x, y: x,
    "x [y > 0]": lambda f, x, y: f.where(y > 0, x, 0),
    "x times [y > 0]": lambda f, x, y: x * f.where(y > 0, 1, 0),
    "x^2": lambda f, x, y: x**2,
    "x^3": lambda f, x, y: x**3,
    "x^4": lambda f, x, y: x**4,
    "|x|": lambda f, x, y: f.abs(x),
    "1/x": lambda f, x, y: 1 / x,
    "1/x^2": lambda f, x, y: 1 / x**2,
    "sqrt y": lambda f, x, y: f.sqrt(y),
    "y^1.5": lambda f, x, y: y * f.sqrt(y),
    "1/sqrt y": lambda f, x, y: 1 / f.sqrt(y),
    "log y": lambda f, x, y: f.log(y),
    "log^2 y": lambda f, x, y: f.log(y) ** 2,
    "log y^2": lambda f, x, y: f.log(y**2),
    "x log y": lambda f, x, y: x * f.log(y),
    "y log y": lambda f, x, y: y * f.log(y),
    "xy": lambda f, x, y: x * y,
    "x^2 y": lambda f, x, y: x**2 * y,
    "(xy)^3": lambda f, x, y: (x * y) ** 3,
    "x/y": lambda f, x, y: x / y,
    "x/y^2": lambda f, x, y: x / y**2,
    "x sqrt y": lambda f, x, y: x * f.sqrt(y),
    "x |y|": lambda f, x, y: x * f.abs(y),
    "hypot": lambda f, x, y: f.sqrt(x**2 + y**2),
    "softplus": lambda f, x, y: f.log(1 + f.exp(x)),
    "tanh x": lambda f, x, y: f.tanh(x),
    "sin x": lambda f, x, y: f.sin(x),
    "cos x": lambda f, x, y: f.cos(x),
    "x sin y": lambda f, x, y: x * f.sin(y),
    "sinh x": lambda f, x, y: f.sinh(x),
    "cosh x": lambda f, x, y: f.cosh(x),
    "max (x, y)": lambda f, x, y: f.max(x, y),
    "x + y": lambda f, x, y: x + y,
    "x^2 + y^2": lambda f, x, y: x**2 + y**2,
    "1/(1 + x)": lambda f, x, y: 1 / (1 + x),
    "1/(1 + x^2)": lambda f, x, y: 1 / (1 + x**2),
    "x/(1 + y^2)": lambda f, x, y: x / (1 + y**2),
    "cosh x + sinh x": lambda f, x, y: f.cosh(x) + f.sinh(x),
}
"""Masked generators, powers, products, ratios, logarithms, and what is one generator by its spelling."""

GENERATORS = EXPONENTIALS | OTHERS


def variance(m: Callable[[Any], Any], g: Any, z: Any) -> Any:
    """Σ (G − mean)²/n."""
    return m((g - m(g)) ** 2)


def third(m: Callable[[Any], Any], g: Any, z: Any) -> Any:
    """Σ (G − mean)³/n."""
    return m((g - m(g)) ** 3)


def raw(m: Callable[[Any], Any], g: Any, z: Any) -> Any:
    """E[G²] − E[G]²."""
    return m(g**2) - m(g) ** 2


def covariance(m: Callable[[Any], Any], g: Any, z: Any) -> Any:
    """Σ (G − mean)·(z − mean)/n."""
    return m((g - m(g)) * (z - m(z)))


FORMS = {"variance": variance, "third": third, "raw": raw, "covariance": covariance}
A = 1.25
SPREAD = 1e-3


def data(length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Skewed values of spread 1e-3 about an offset, float32; z is like none of the others."""
    rng = np.random.default_rng(seed)
    noise = rng.exponential(size=(3, length)) - 1
    return {"x": (1.3 + SPREAD * noise[0]).astype("f4"), "y": (2.7 + 2 * SPREAD * noise[1]).astype("f4"),
            "z": (noise[0] + noise[2]).astype("f4")}  # fmt: skip


def expression(name: str, form: str) -> sympy.Expr:
    """A form of a generator as redalg takes it."""
    n = ra.axis("n")
    x, y, z = ra.tensors("x[n] y[n] z[n]")
    return FORMS[form](lambda term: ra.mean(term, n), GENERATORS[name](SYMBOLIC, x, y), z)


def unfused(name: str, form: str, tensors: dict[str, np.ndarray], dtype: Any, order: Any = slice(None)) -> Any:
    """The written form, pass by pass in a dtype, over the data in an order; raw moments as they are meant."""
    given = {key: value[order].astype(dtype) for key, value in tensors.items()}
    g = GENERATORS[name](numeric(dtype, A), given["x"], given["y"])
    written = FORMS["variance" if form == "raw" else form]
    return written(lambda term: term.mean(dtype=dtype), g, given["z"])
