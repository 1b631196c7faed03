"""Elementary functions: a row for each, which every stage reads. A function that has no row is refused.

A new function needs a row here and a test. If kernels spell it in a way of their own, `Printer` needs a rule as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, final

from sympy.core.basic import Basic
from sympy.core.function import Application

Shape = Literal["convex", "concave", ""]


@final
@dataclass(frozen=True)
class Operator:
    """An elementary function f, real on real numbers; NaN outside its domain.

    A property that is not set is not known.

    Attributes:
        name: the name of SymPy's class.
        numpy: the function of NumPy, as `arctan`; of Python's `math` if NumPy has none, as `math.erf`.
        torch: the function of `torch`.
        mpmath: the function of mpmath; the name itself if empty.
        kernel: the function in a kernel's source: `T.tanh`, or the name in C's and CUDA's libraries, as `erfc`, to
            which `f` is added for float32. Empty if `Printer` has a rule for it.
        latex: the LaTeX command; an `operatorname` if empty.
        inputs: how many numbers it takes.
        rising: f(a) ≤ f(b) if a ≤ b. Only such functions have a shape or are strict.
        shape: `convex` or `concave` on the whole domain.
        strict: f(a) < f(b) if a < b.
        keeps_sign: f(u) has the sign of u.
        unbounded: f has no upper bound.
        singular: f has a singularity at a finite complex number, so that f(P(x, d)) has infinite rank.
        spelled: what NumPy, torch or `math` call it besides.
    """

    name: str
    numpy: str
    torch: str
    mpmath: str = ""
    kernel: str = ""
    latex: str = ""
    inputs: int = 1
    rising: bool = False
    shape: Shape = ""
    strict: bool = False
    keeps_sign: bool = False
    unbounded: bool = False
    singular: bool = False
    spelled: tuple[str, ...] = ()

    @property
    def is_external(self) -> bool:
        """Tells if kernels call it as a function of C's library, since TileLang has no name for it."""
        return bool(self.kernel) and not self.kernel.startswith("T.")


_ROWS = (
    Operator("exp", "exp", "exp", latex="exp", rising=True, shape="convex", strict=True, unbounded=True),
    Operator("log", "log", "log", latex="log", rising=True, shape="concave", strict=True, unbounded=True),
    Operator("expm1", "expm1", "expm1", kernel="expm1", keeps_sign=True),
    Operator("log1p", "log1p", "log1p", kernel="T.log1p", keeps_sign=True),
    Operator("sin", "sin", "sin", kernel="T.sin", latex="sin"),
    Operator("cos", "cos", "cos", kernel="T.cos", latex="cos"),
    Operator("tan", "tan", "tan", kernel="T.tan", latex="tan", singular=True),
    Operator("asin", "arcsin", "asin", kernel="T.asin", singular=True),
    Operator("acos", "arccos", "acos", kernel="T.acos", singular=True),
    Operator("atan", "arctan", "atan", kernel="T.atan", rising=True, strict=True, keeps_sign=True, singular=True),
    Operator("atan2", "arctan2", "atan2", kernel="T.atan2", inputs=2),
    Operator("sinh", "sinh", "sinh", kernel="T.sinh", latex="sinh", rising=True, strict=True, keeps_sign=True,
             unbounded=True),
    Operator("cosh", "cosh", "cosh", kernel="T.cosh", latex="cosh"),
    Operator("tanh", "tanh", "tanh", kernel="T.tanh", latex="tanh", rising=True, strict=True, keeps_sign=True,
             singular=True),
    Operator("asinh", "arcsinh", "asinh", kernel="T.asinh", rising=True, strict=True, keeps_sign=True, unbounded=True,
             singular=True),
    Operator("acosh", "arccosh", "acosh", kernel="T.acosh", rising=True, shape="concave", singular=True),
    Operator("atanh", "arctanh", "atanh", kernel="T.atanh", singular=True),
    Operator("erf", "math.erf", "erf", kernel="T.erf", rising=True, strict=True, keeps_sign=True),
    Operator("erfc", "math.erfc", "erfc", kernel="erfc"),
    Operator("Abs", "abs", "abs", "fabs", spelled=("absolute", "fabs")),
    Operator("sign", "sign", "sign", rising=True, keeps_sign=True),
    Operator("floor", "floor", "floor", rising=True),
    Operator("ceiling", "ceil", "ceil", "ceil", rising=True),
    Operator("Max", "maximum", "maximum", inputs=2),
    Operator("Min", "minimum", "minimum", inputs=2),
    Operator("Mod", "mod", "remainder", inputs=2),
)  # fmt: skip

OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _ROWS}
"""The rows by SymPy's name."""


def operator_of(node: Basic) -> Operator | None:
    """The row of a node's function; None for anything else.

    >>> from sympy import Symbol, tanh
    >>> operator_of(tanh(Symbol("x"))).kernel
    'T.tanh'
    """
    return OPERATORS.get(type(node).__name__) if isinstance(node, Application) else None


@cache
def numpy_function(operator: Operator) -> Callable[..., Any]:
    """The function on NumPy's arrays; of `math`, elementwise, in float64."""
    import math

    import numpy as np

    module, _, name = operator.numpy.rpartition(".")
    return np.vectorize(getattr(math, name), otypes=[np.float64]) if module else getattr(np, name)
