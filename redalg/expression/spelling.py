"""Options that other libraries have and redalg spells otherwise: refused by name, with the spelling here."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Any

import sympy

from redalg.errors import ExpressionError, OperationError
from redalg.expression.operators import OPERATORS

AXES = ("axis", "axes", "dim", "dims")
DIVISORS = ("ddof", "unbiased", "bias")
CALLED = re.compile(r"[A-Za-z]\w*(?=\()")
KEPT = ("keepdims", "keepdim")


def no_other(caller: str, options: Mapping[str, Any], known: Collection[str] = (), called: str = "x, n") -> None:
    """Refuse the options of another library; `called` is how the arguments are written.

    >>> no_other("mean", {"axis": 0})
    Traceback (most recent call last):
    redalg.errors.ExpressionError: mean: there is no option `axis`. Axes follow the term: write `ra.mean(x, n)` with
    `n = ra.axes("n")`.
    """
    for name in options:
        raise ExpressionError(f"{caller}: there is no option `{name}`. {_spelling(caller, name, known, called)}")


def _spelling(caller: str, name: str, known: Collection[str], called: str) -> str:
    if name in AXES and "axes" not in known:
        return f'Axes follow the term: write `ra.{caller}({called})` with `n = ra.axes("n")`.'
    if name in DIVISORS and "correction" in known:
        return f"Write `ra.{caller}(…, correction=1)` to divide by n - 1, and leave it out to divide by n."
    if name in (*TYPES, *DATA, "shape"):
        return "Tensors get their shapes, dtypes and devices at the call."
    if name == "where":
        return (
            "Choose in the term: `ra.where(condition, x, identity)`, 0 in a sum. A mean divides by what counts, too: "
            "`ra.sum(ra.where(condition, x, 0), n) / ra.sum(ra.where(condition, 1, 0), n)`."
        )
    if name == "weights":
        return WEIGHTED
    if name in KEPT:
        return "A reduction has no dimension of its axes, and stands beside terms that have: nothing need be kept."
    if not known:
        return f"It takes a term and axes, `ra.{caller}({called})`."
    return f"Its options are {', '.join(known)}.{did_you_mean(name, known)}"


REDUCTIONS = {name: name for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "topk")}
REDUCTIONS |= {"variance": "var", "stdev": "std", "product": "prod"}
"""A name in NumPy or torch -> that of the reduction; `sugar` adds its own."""
FUNCTIONS = {
    spelled: f"{operator.name}({', '.join(('x', 'y')[: operator.inputs])})"
    for operator in OPERATORS.values()
    for spelled in (operator.name, operator.numpy.rpartition(".")[2], operator.torch, *operator.spelled)
} | {
    "sqrt": "sqrt(x)", "clip": "Max(a, Min(x, b))", "clamp": "Max(a, Min(x, b))", "relu": "Max(x, 0)",
    "sigmoid": "1/(1 + exp(-x))", "expit": "1/(1 + exp(-x))", "silu": "x/(1 + exp(-x))", "softplus": "log(1 + exp(x))",
    "square": "x**2", "pow": "x**y", "power": "x**y", "rsqrt": "1/sqrt(x)", "reciprocal": "1/x", "exp2": "2**x",
    "log2": "log(x, 2)", "log1p": "log(1 + x)", "expm1": "exp(x) - 1",
}  # fmt: skip
"""A name in NumPy, torch or `math` -> how SymPy writes it."""
PRODUCTS = ("matmul", "dot", "einsum", "mm", "bmm", "inner", "vdot", "tensordot", "baddbmm", "addmm")
SHAPES = ("T", "mT", "shape", "ndim", "size", "numel", "reshape", "view", "permute", "unsqueeze", "squeeze", "flatten",
          "swapaxes", "t", "expand_dims", "movedim", "contiguous", "repeat")  # fmt: skip
TYPES = ("dtype", "astype", "to", "half", "float", "double", "bfloat16", "type")
DATA = ("device", "numpy", "detach", "cuda", "cpu", "item", "tolist", "backward", "grad", "requires_grad")
WEIGHTED = "A mean with weights is two sums: write `ra.sum(w * x, n) / ra.sum(w, n)`."
WITHOUT_STATE = ("median", "nanmedian", "quantile", "nanquantile", "percentile", "nanpercentile", "sort", "argsort",
                 "argpartition", "unique", "mode", "kthvalue")  # fmt: skip
COUNTS = ("count", "count_nonzero", "bincount", "histogram", "histc")
NEIGHBOURS = ("diff", "roll", "conv1d", "convolve", "correlate", "take_along_axis", "gather")
NUMBERS = ("isnan", "isfinite", "isinf", "nan_to_num", "nanmax", "nanmin", "nansum", "nanmean", "nanvar", "nanstd")
SCANS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")


def spelling_of(name: str) -> str | None:
    r"""The spelling in redalg of a name of array libraries; None for a name that they do not have.

    >>> spelling_of("relu")
    "Functions of expressions are SymPy's: write `Max(x, 0)`, with `from sympy import Max`."
    """
    if name in REDUCTIONS:
        new = ', j)` with `j = ra.axis("j", size=4)' if name == "topk" else ')` with `n = ra.axes("n")'
        return f"Reductions are functions and name their axes: write `ra.{REDUCTIONS[name]}(x, n{new}`."
    if name in FUNCTIONS:
        return _function(FUNCTIONS[name])
    if name in WITHOUT_STATE:
        return (
            "It has no state of fixed size. Compute it beforehand and pass it as a tensor; or `ra.topk` may do, or to "
            'count, for each element, those that are no larger: docs/guide/questions.md, "What about a median".'
        )
    if name in SCANS:
        return "redalg gives totals, not running ones: sum what a mask lets pass, as in `ra.where(k <= q, x, 0)`."
    return next((advice for names, advice in OTHERS if name in names), None)


def _function(spelling: str) -> str:
    names = sorted(set(CALLED.findall(spelling)))
    source = f", with `from sympy import {', '.join(names)}`" if names else ""
    return f"Functions of expressions are SymPy's: write `{spelling}`{source}."


OTHERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (PRODUCTS, (
        "A product of matrices is a sum over the axis that they share: write `ra.sum(A * B, k)` with "
        '`A, B = ra.tensors("A[m,k] B[k,n]")`.')),
    (("corr", "corrcoef"), "Pearson's correlation of two tensors is a pattern: `redalg.library.correlation()`."),
    (("average",), WEIGHTED),
    (("ptp",), "Write `ra.max(x, n) - ra.min(x, n)`."),
    (("cov",), "Covariance is `ra.covariance(x, y, n)`, of `X[n,i]` and `X[n,j]` a matrix."),
    (COUNTS, (
        "Count what a condition lets pass: write `ra.sum(ra.where(condition, 1, 0), n)`. Of several bins, an axis j of "
        "the outputs numbers them, and the condition is `ra.eq(floor(x / width), j)`.")),
    (NEIGHBOURS, (
        'Index a tensor by expressions where it is named: `ra.Tensor("x")[b, n - 1]` is the element before, and '
        '`ra.Tensor("x")[b, ra.tensor("places[n]")]` gathers.')),
    (NUMBERS, (
        "Elements that are NaN or infinite are left out by a condition, `ok = ra.logical_and(x < oo, x > -oo)`: write "
        "`ra.where(ok, x, 0)` in a sum, `ra.where(ok, x, -oo)` in a maximum.")),
    (("where",), "Choose by `ra.where(condition, a, b)`."),
    (SHAPES, (
        "It stands for one element and has no dimensions: axes have names, and the order of the output's axes is what "
        '`ra.fuse(expr, axes="b n")` says.')),
    (TYPES, 'Tensors get their dtypes at the call. Round a term by `ra.cast(x, "float16")`.'),
    (DATA, "It holds no data: fuse it by `ra.fuse`, and call the result with tensors."),
)  # fmt: skip


def missing_name_error(
    name: str, known: Collection[str] = (), module: str = "redalg", patterns: Callable[[], Collection[str]] = tuple
) -> AttributeError:
    """The error for a name that a module does not have: its spelling here if array libraries have it, or its pattern.

    >>> print(missing_name_error("meen", ["mean", "max"]))
    redalg has no `meen`. Did you mean mean?
    """
    advice = spelling_of(name)
    if advice is None and hasattr(sympy, name):
        advice = _function(f"{name}(x)")
    if advice is None and not name.startswith("_") and name in patterns():
        advice = f"It is a pattern: `redalg.library.{name}()`; `redalg show {name}` prints its definition."
    return (
        OperationError(f"redalg has no `{name}`. {advice}")
        if advice
        else AttributeError(f"{module} has no `{name}`.{did_you_mean(name, known)}", name=name)
    )


MOST, ALMOST = 3, 0.9
"""So many names at most; one alone where it is as near as this."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question that names near ones, with a space before it; empty if there is none.

    >>> did_you_mean("varience", ["variance", "mean"])
    ' Did you mean variance?'
    >>> did_you_mean("zebra", ["variance"])
    ''
    """
    names = list(known)
    lower = {one.lower(): one for one in reversed(names)}
    near = [lower[one] for one in get_close_matches(name.lower(), lower, MOST, 0.7)]
    if near and SequenceMatcher(None, name.lower(), near[0].lower()).ratio() >= ALMOST:
        near = near[:1]
    found = near or [one for one in names if len(name) >= 4 and name.lower() in one.lower()][:MOST]
    return f" Did you mean {' or '.join(found)}?" if found else ""
