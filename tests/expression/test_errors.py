"""Bad expressions: the full text of every message.

A message says what is wrong and where, what was needed and what was found, and what to do next.
"""

from sympy import (
    Contains,
    Function,
    I,
    IndexedBase,
    S,
    Sum,
    gamma,
    nan,
    symbols,
)  # fmt: skip

import redalg as ra
from tests.cases.refusals import Case, each

b, n, e, k, q = ra.axes("b n e k q")
x, w, v, t = ra.tensors("x[b,n] w[b,n] v[n,e] t[b,n]")
base = ra.scalars("base")
mean = ra.sum(x * w, n) / ra.sum(w, n)
FUNCTIONS = (
    "Abs, acos, acosh, asin, asinh, atan, atan2, atanh, ceiling, cos, cosh, erf, erfc, exp, expm1, floor, log, log1p, "
    "Max, Min, Mod, sign, sin, sinh, tan, tanh"
)
ELSEWHERE = "Write it by these, or compute it beforehand and pass it as a tensor."
EXPRESSIONS: dict[str, Case] = {
    "axis that no tensor carries": Case(
        lambda: ra.fuse(ra.sum(x, k), axes="b n"),
        ra.ExpressionError,
        "`sum(x[b, n], k)` is reduced over axis k, which no tensor or condition in it carries; the other axes are b, "
        "n. Reduce over an axis of its tensors, or multiply by `k.extent`.",
    ),
    "output axis missing": Case(
        lambda: ra.fuse(ra.sum(x * v, n), axes="b"),
        ra.ExpressionError,
        'output `out`: axes "b" have e missing. Its free axes are {b, e}: write axes="b e".',
    ),
    "terms that cancel": Case(
        lambda: ra.fuse(ra.sum(x - x, n)),
        ra.ExpressionError,
        "output `out` is 0 whatever the tensors hold: SymPy finds that the terms of `sum(0, n)` cancel. There is "
        "nothing to fuse.",
    ),
    "a divisor that is 0": Case(
        lambda: ra.fuse(v / ra.sum(x - x, n)),
        ra.ExpressionError,
        "output `out` divides by 0 whatever the tensors hold: SymPy writes 1/0 as zoo, in `zoo*v[n, e]`. Mend the "
        "divisor.",
    ),
    "terms that are NaN": Case(
        lambda: ra.fuse(ra.sum(x * nan, n)),
        ra.ExpressionError,
        "`sum(nan, n)`: the term is NaN whatever the tensors hold, as SymPy finds. Mend the term.",
    ),
    "output axis missing beside another": Case(
        lambda: ra.fuse({"lse": (ra.sum(x * v, n), "q e")}),
        ra.ExpressionError,
        'output `lse`: axes "q e" have b missing. Its free axes are {b, e}: write axes="q e b".',
    ),
    "output axes in no order": Case(
        lambda: ra.fuse(ra.sum(ra.tensor("A[m,k]") * ra.tensor("B[l,k]"), k)),
        ra.ExpressionError,
        'the tensors\' index orders do not fix one order of the output axes {l, m}. Say it, for instance axes="l m".',
    ),
    "output axes twice": Case(
        lambda: ra.fuse(ra.sum(x * v, n), axes="b e e"),
        ra.ExpressionError,
        'fuse: axes="b e e" names e twice. Name each axis of the output once.',
    ),
    "output axes no string": Case(
        lambda: ra.fuse(ra.sum(x * v, n), axes=(b, e)),
        ra.ExpressionError,
        'fuse: axes should be a string of names, not (b, e). Write axes="b e".',
    ),
    "Python bool": Case(
        lambda: ra.where(x == 0, x, 0),
        ra.ExpressionError,
        "where: the condition is the Python bool False, which Python made before redalg saw it (`==` and `!=` compare "
        "expressions as written). Write `ra.eq(a, b)` or `ra.ne(a, b)`.",
    ),
    "no expression": Case(
        lambda: ra.fuse("sum(x)"),
        ra.ExpressionError,
        "`sum(x)` is a str, not an expression of tensor elements. Build one from `ra.tensors`, such as "
        '`ra.sum(x * y, n)` with `x, y = ra.tensors("x[n] y[n]")`. The command `redalg explain "…"` reads text.',
    ),
    "imaginary": Case(
        lambda: ra.fuse(ra.sum(x * I, n)),
        ra.ExpressionError,
        "`sum(I*x[b, n], n)` holds the imaginary unit: redalg's values are extended reals. Write the real and the "
        "imaginary part as two outputs.",
    ),
    "unrelated axes": Case(
        lambda: ra.fuse({"rows": (ra.sum(x, n), "b"), "other": (ra.sum(ra.tensor("y[k]"), k), "")}),
        ra.ExpressionError,
        "the outputs are reduced over unrelated axes n, k: sum(x[b, n], n); sum(y[k], k). One pass streams one axis: "
        "fuse them one by one.",
    ),
    "a part of the reduced axes beside rows": Case(
        lambda: ra.fuse({"rows": (x * w, "b n"), "all": (ra.sum(x, b, n), ""), "columns": (ra.sum(x, b), "n")}),
        ra.ExpressionError,
        "`sum(x[b, n], b)` reduces over b alone, other reductions over n and b, and output `rows` has an element for "
        "each: one pass makes two of the three. Fuse the outputs that reduce over fewer axes on their own.",
    ),
    "no axis left to stream": Case(
        lambda: ra.fuse(ra.sum(x * ra.max(x, n) * ra.max(x, b), b, n)),
        ra.ExpressionError,
        "`max(x[b, n], b)`; `max(x[b, n], n)`: each reduces over a part of the axes b and n, which are reduced "
        "together, so that none of these is left to stream. Compute one of them first, and pass it as a tensor.",
    ),
    "two sets of axes": Case(
        lambda: ra.fuse(ra.sum(ra.tensor("r[n,k]") * ra.sum(x, b, n), n, k)),
        ra.ExpressionError,
        "`sum(x[b, n], b, n)` reduces over b and n, and what it stands in over n and k: one cascade reduces over "
        "one set of axes. Compute one of them first, and pass it as a tensor.",
    ),
    "reserved name": Case(
        lambda: ra.fuse(ra.sum(ra.tensor("backend[n]"), n)),
        ra.ExpressionError,
        "a tensor is named `backend`, which is an option of the call. Rename the tensor; the reserved names are "
        "backend, plan, empty, precision, sizes, check, by, groups, budget_s, seed, progress.",
    ),
    "output name": Case(
        lambda: ra.fuse({"a b": (ra.sum(x, n), "b")}),
        ra.ExpressionError,
        "fuse: an output cannot be named 'a b': outputs are the fields of a namedtuple. Use an identifier without a "
        "leading underscore.",
    ),
    "several outputs, one axes": Case(
        lambda: ra.fuse({"s": ra.sum(x, n)}, axes="b"),
        ra.ExpressionError,
        'fuse: axes= is for a single output, and a dict gives each output its own axes. Write {"s": (…, "b")}.',
    ),
    "a list of outputs and of axes": Case(
        lambda: ra.fuse([ra.sum(x, n), ra.max(x, n)], axes=["b", "b"]),
        ra.ExpressionError,
        'several outputs are given as a list. Give them names, in a dict: `ra.fuse({"a": first, "b": second})`, or '
        '`{"a": (first, "b h q"), …}` with their axes.',
    ),
    "foreign inputs": Case(
        lambda: ra.fuse(ra.sum(x, n), inputs=(w,)),
        ra.ExpressionError,
        "fuse(inputs=): w[b, n] not in the expression, which has x.",
    ),
    "inputs no tensors": Case(
        lambda: ra.fuse(ra.sum(x, n), inputs=("x",)),
        ra.ExpressionError,
        "fuse: inputs should be a sequence of tensor elements, inputs=(Q, K, V), not ('x',).",
    ),
    "one name for two": Case(
        lambda: ra.fuse({"a": (ra.let("m", ra.max(x, n)), "b"), "c": (ra.let("m", ra.min(x, n)), "b")}),
        ra.ExpressionError,
        'let: the name "m" is given to `max(x[b, n], n)` and to `min(x[b, n], n)`. Give each a name of its own.',
    ),
    "the name of an input": Case(
        lambda: ra.fuse(ra.let("x", ra.max(x, n))),
        ra.ExpressionError,
        "the reduction `x` bears the name of an input. Name the reduction otherwise by `ra.let`, or rename the input.",
    ),
    "let": Case(
        lambda: ra.let("a b", x),
        ra.ExpressionError,
        "let: 'a b' is not a name. Write an identifier, as in `let('m', ra.max(x, n))`.",
    ),
    "cast": Case(
        lambda: ra.cast(x, "float99"),
        ra.ExpressionError,
        "cast: unknown dtype 'float99'. Use one of float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, "
        "int64, int32, int8.",
    ),
    "reduced over no axis": Case(
        lambda: ra.sum(x),
        ra.ExpressionError,
        "sum: no axis given. Write `ra.sum(expr, n)` with `n = ra.axes('n')`.",
    ),
    "reduced over no Axis": Case(
        lambda: ra.sum(x, "n"),
        ra.ExpressionError,
        "sum: 'n' is not an axis. Make one by `n = ra.axes('n')` and reduce over it.",
    ),
    "reduced twice": Case(
        lambda: ra.max(x, n, n),
        ra.ExpressionError,
        "max: axis n is given twice. Reduce over each axis once.",
    ),
    "two sizes": Case(
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[ra.axis("n", size=4)] * ra.Tensor("y")[ra.axis("n", size=5)], n)),
        ra.ExpressionError,
        "axis n has sizes 4 and 5 in one expression.",
    ),
    "axis name": Case(
        lambda: ra.axes("1a"),
        ra.ExpressionError,
        "axes: `1a` is not a name. Write identifiers separated by spaces.",
    ),
    "axis size": Case(
        lambda: ra.axis("j", size=-1),
        ra.ExpressionError,
        "axis 'j': size must be a non-negative int, not -1.",
    ),
    "index without a comma": Case(
        lambda: ra.tensors("X[b n]"),
        ra.ExpressionError,
        "tensors: `[… b n …]` holds one index of 2 names. Separate indices by commas.",
    ),
    "unreadable tensors": Case(
        lambda: ra.tensors("X[b,n"),
        ra.ExpressionError,
        "tensors('X[b,n'): cannot read `[b,n`. Write `X[b,n] W[n]`.",
    ),
    "index that is no integer": Case(
        lambda: ra.Tensor("K")[1.5],
        ra.ExpressionError,
        "tensor `K`: index `1.5` is not an integer expression. Index by axes, integers, expressions of them (`h // 3`) "
        "or elements of integer tensors.",
    ),
    "an index by a reduction": Case(
        lambda: ra.Tensor("K")[ra.argmax(x, n)],
        ra.ExpressionError,
        "tensor `K`: index `argmax(x[b, n], n)` is computed by a reduction, `argmax(x[b, n], n)`. Compute that by a "
        "call of its own, and index by its result: an integer tensor.",
    ),
    "an index by a power": Case(
        lambda: ra.Tensor("K")[1 + n**2],
        ra.ExpressionError,
        "tensor `K`: index `n**2 + 1` holds the power `n**2`. Write indices by + - * // %, Min and Max of axes, "
        "integers and elements of integer tensors.",
    ),
    "a function that nothing evaluates": Case(
        lambda: ra.fuse(ra.sum(gamma(x), n)),
        ra.ExpressionError,
        "`gamma(x[b, n])` is made by `gamma`, which redalg cannot evaluate. It reads sums, products, powers, "
        f"conditions and the functions {FUNCTIONS}. {ELSEWHERE}",
    ),
    "a condition that nothing evaluates": Case(
        lambda: ra.fuse(ra.sum(ra.where(Contains(n, S.Naturals), x, 0), n)),
        ra.ExpressionError,
        "`Contains(n, Naturals)` is made by `Contains`, which redalg cannot evaluate. It reads sums, products, powers, "
        f"conditions and the functions {FUNCTIONS}. {ELSEWHERE}",
    ),
    "a reduction without a state": Case(
        lambda: ra.fuse(ra.sum(abs(x - Function("median")(x)), n)),
        ra.ExpressionError,
        f"`median(x[b, n])` is an undefined function. The functions are {FUNCTIONS}; the reductions are `ra.sum`, "
        "`ra.max` and their like, whose states of fixed size merge. What has no such state, as a median has none, must "
        "be computed beforehand and passed as a tensor.",
    ),
    "limits of a Sum": Case(
        lambda: ra.fuse(Sum(IndexedBase("a")[symbols("i")], (symbols("i"), 1, symbols("N")))),
        ra.ExpressionError,
        "`Sum(a[i], (i, 1, N))`: i runs from 1 to N; redalg's axes start at 0 and end at their extent − 1. Write the "
        "limits as (i, 0, n − 1), and a mask by `ra.where` for the rest.",
    ),
}


@each(EXPRESSIONS)
def test_messages(case: Case) -> None:
    case.check()
