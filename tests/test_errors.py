"""Bad input: the full text of every message, and odd input that must work.

A message says what is wrong and where, what was needed and what was found, and what to do next.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, I, IndexedBase, Max, Rational, Sum, exp, floor, symbols

import redalg as ra

b, n, e, k, q = ra.axes("b n e k q")
x, w, v = ra.tensors("x[b,n] w[b,n] v[n,e]")
mean = ra.sum(x * w, n) / ra.sum(w, n)
fused = ra.fuse(mean)
X, T = np.ones((3, 5), np.float32), torch.ones(3, 5)
gamma, plain = ra.scalars("gamma", positive=True), ra.scalars("c")
ESTIMATE = "No state of fixed size holds what a later sum_0 would need of the elements already read. "
TWO_PASSES = "Run two passes: compute sum_0 first, pass it as a tensor, and fuse the rest."


def refused(call: Callable[[], Any], kind: type[Exception] = ra.RedalgError) -> str:
    with pytest.raises(kind) as error:
        call()
    return str(error.value)


Case = tuple[Callable[[], Any], type[Exception], str]

CALLS: dict[str, Case] = {
    "unknown tensor": (
        lambda: fused(x=X, w=X, y=X),
        ra.InputError,
        "the call's tensors do not fit the expression (unknown: y). It needs w[b, n], x[b, n].",
    ),
    "missing tensor": (
        lambda: fused(x=X),
        ra.InputError,
        "the call's tensors do not fit the expression (missing: w). It needs w[b, n], x[b, n].",
    ),
    "misspelt tensor": (
        lambda: fused(x=X, W=X),
        ra.InputError,
        "the call's tensors do not fit the expression (unknown: W; missing: w). It needs w[b, n], x[b, n].",
    ),
    "missing scalar": (
        lambda: ra.fuse(ra.sum(x * plain, n))(x=X),
        ra.InputError,
        "the call's tensors do not fit the expression (missing: c). It needs x[b, n], scalar c.",
    ),
    "positional without inputs": (
        lambda: fused(X, X),
        ra.InputError,
        "the call has 2 positional tensors; it may have none, since `fuse` was given no inputs=(Q, K, V). "
        "Pass them by keyword.",
    ),
    "given twice": (
        lambda: ra.fuse(mean, inputs=(x, w))(X, X, x=X),
        ra.InputError,
        "tensor `x` is given by position and by keyword. Give it once.",
    ),
    "rank": (
        lambda: fused(x=X, w=X[0]),
        ra.InputError,
        "tensor `w` has 1 dimensions (5,), but `w[b, n]` needs 2.",
    ),
    "sizes disagree": (
        lambda: fused(x=X, w=np.ones((3, 6), np.float32)),
        ra.InputError,
        "axis n has several sizes: 6 in w (dimension 1), 5 in x (dimension 1). Every tensor must agree on it.",
    ),
    "sizes disagree with the option": (
        lambda: fused(x=X, w=X, sizes={"n": 7}),
        ra.InputError,
        "axis n has several sizes: 5 in w (dimension 1), 5 in x (dimension 1), 7 in sizes=. "
        "Every tensor must agree on it.",
    ),
    "unknown axis in sizes": (
        lambda: fused(x=X, w=X, sizes={"m": 7}),
        ra.InputError,
        "sizes: the expression has no axis 'm'; it has b, n.",
    ),
    "sizes is no number": (
        lambda: fused(x=X, w=X, sizes={"n": "7"}),
        ra.InputError,
        "sizes: the size of axis n should be a non-negative int, not '7'.",
    ),
    "sized axis": (
        lambda: ra.fuse(ra.sum(ra.Tensor("A")[b, ra.axis("j", size=4)], ra.axis("j", size=4)))(A=X),
        ra.InputError,
        "axis j has several sizes: 5 in A (dimension 1), 4 in its declaration. Every tensor must agree on it.",
    ),
    "axis without a size": (
        lambda: ra.fuse(ra.sum(ra.where(n < k, ra.tensor("t[k]"), 0), n))(t=X[0]),
        ra.InputError,
        'axis n has no size: no tensor has it as an index. Pass sizes={"n": …}, or give the axis a size.',
    ),
    "devices": (
        lambda: fused(x=T, w=T.to("meta")),
        ra.InputError,
        "the tensors lie on several devices: w on meta, x on cpu. Move them to one with `.to(device)`.",
    ),
    "libraries": (
        lambda: fused(x=X, w=T),
        ra.InputError,
        "the tensors come from two libraries: w (torch), x (numpy). Pass all of them as torch tensors, or all as NumPy "
        "arrays.",
    ),
    "no array": (
        lambda: fused(x=[[1.0]], w=X),
        ra.InputError,
        "tensor `x` is a list. Pass a torch tensor or a NumPy array.",
    ),
    "integer torch tensor": (
        lambda: fused(x=T.long(), w=T),
        ra.InputError,
        "tensor `x` is int64, and stands in arithmetic, where one of float64, float32, float16, bfloat16 is needed. "
        "Convert it, for instance `x.float()`.",
    ),
    "integer array": (
        lambda: fused(x=X.astype(int), w=X),
        ra.InputError,
        "tensor `x` is int64, and stands in arithmetic, where one of float64, float32, float16, bfloat16 is needed. "
        'Convert it, for instance `x.astype("float32")`.',
    ),
    "dtype that does not promote": (
        lambda: fused(x=T.to(torch.float8_e4m3fn), w=T),
        ra.InputError,
        "tensor `x` is float8_e4m3fn, and stands in arithmetic, where one of float64, float32, float16, bfloat16 is "
        "needed. Convert it, for instance `x.float()`.",
    ),
    "complex": (
        lambda: fused(x=T.to(torch.complex64), w=T),
        ra.InputError,
        "tensor `x` is complex64: reductions here are over extended reals. Pass its real and imaginary parts as two "
        "tensors.",
    ),
    "object mask": (
        lambda: ra.fuse(ra.sum(ra.where(ra.tensor("M[b,n]"), x, 0), n))(x=X, M=X.astype(object)),
        ra.InputError,
        "tensor `M` is object, which is no number. Pass booleans, integers or floats.",
    ),
    "gradient": (
        lambda: fused(x=T.clone().requires_grad_(), w=T),
        ra.InputError,
        "tensor `x` requires a gradient, and redalg has no backward pass yet. Pass `x.detach()` if no gradient is "
        "needed; nothing is detached silently.",
    ),
    "sparse": (
        lambda: fused(x=T.to_sparse(), w=T),
        ra.InputError,
        "tensor `x` has layout torch.sparse_coo, and redalg reads strided tensors. Pass `x.to_dense()`.",
    ),
    "masked array": (
        lambda: fused(x=np.ma.masked_equal(X, 1), w=X),
        ra.InputError,
        "tensor `x` is a NumPy masked array, whose mask redalg does not read. Pass its data and its mask as two "
        "tensors, and use `ra.where`.",
    ),
    "scalar that is an array": (
        lambda: ra.fuse(ra.sum(x * plain, n))(x=X, c=X),
        ra.InputError,
        "scalar `c` must be a number, not ndarray. Pass a Python float.",
    ),
    "scalar against its assumption": (
        lambda: ra.fuse(ra.max(x * gamma, n))(x=X, gamma=-1.0),
        ra.InputError,
        "scalar `gamma` was declared positive, and is -1.0. The form was derived on that assumption: pass such a "
        "number, or declare the scalar without it.",
    ),
    "gather out of range": (
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[b, n + 1] * w, n))(x=X, w=X),
        ra.InputError,
        "`x[b, n + 1]`: index `n + 1` leaves the range of dimension 1, which has 5 elements. Mask it by `ra.where`, or "
        "mend the indices.",
    ),
    "constant index out of range": (
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[7, n], n))(x=X),
        ra.InputError,
        "`x[7, n]`: index 7 is out of range for a dimension of 3 elements.",
    ),
    "index that is a float": (
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[b, ra.tensor("J[n]")], n))(x=X, J=X[0]),
        ra.InputError,
        "`x[b, J[n]]`: index `J[n]` is a floating-point number. Index by integers.",
    ),
    "backend": (
        lambda: fused(x=X, w=X, backend="jax"),
        ra.BackendError,
        "backend='jax' is not known. Use one of 'tilelang', 'torch', 'numpy'.",
    ),
    "empty policy": (
        lambda: fused(x=X, w=X, empty="none"),
        ra.InputError,
        "empty='none' is not an option. Use one of 'nan', 'zero'.",
    ),
    "precision": (
        lambda: fused(x=X, w=X, precision="fp8"),
        ra.InputError,
        "precision='fp8' is not an option. Use one of 'ieee', 'tf32'.",
    ),
    "bfloat16 on NumPy": (
        lambda: fused(x=T.bfloat16(), w=T.bfloat16(), backend="numpy"),
        ra.BackendError,
        'backend="numpy" has no bfloat16 and no GPU. Pass float32 CPU tensors, or backend="torch".',
    ),
}

EXPRESSIONS: dict[str, Case] = {
    "axis that no tensor carries": (
        lambda: ra.fuse(ra.sum(x, k), axes="b n"),
        ra.ExpressionError,
        "`sum(x[b, n], k)` is reduced over axis k, which no tensor or condition in it carries; the other axes are b, n. "
        "Reduce over an axis of its tensors, or multiply by `k.extent`.",
    ),
    "output axis missing": (
        lambda: ra.fuse(ra.sum(x * v, n), axes="b"),
        ra.ExpressionError,
        'output `out`: axes "b" have e missing. Its free axes are {b, e}: write axes="b e".',
    ),
    "output axis foreign": (
        lambda: ra.fuse(ra.sum(x * v, n), axes="b e q"),
        ra.ExpressionError,
        'output `out`: axes "b e q" have q not among its free axes. Its free axes are {b, e}: write axes="b e".',
    ),
    "output axes both": (
        lambda: ra.fuse({"lse": (ra.sum(x * v, n), "q e")}),
        ra.ExpressionError,
        'output `lse`: axes "q e" have q not among its free axes and b missing. Its free axes are {b, e}: write '
        'axes="e b".',
    ),
    "output axes in no order": (
        lambda: ra.fuse(ra.sum(ra.tensor("A[m,k]") * ra.tensor("B[l,k]"), k)),
        ra.ExpressionError,
        'the tensors\' index orders do not fix one order of the output axes {l, m}. Say it, for instance axes="l m".',
    ),
    "output axes twice": (
        lambda: ra.fuse(ra.sum(x * v, n), axes="b e e"),
        ra.ExpressionError,
        'fuse: axes="b e e" names e twice. Name each axis of the output once.',
    ),
    "output axes no string": (
        lambda: ra.fuse(ra.sum(x * v, n), axes=(b, e)),  # type: ignore[arg-type]
        ra.ExpressionError,
        'fuse: axes should be a string of names, such as "b h q", not (b, e).',
    ),
    "Python bool": (
        lambda: ra.where(x == 0, x, 0),
        ra.ExpressionError,
        "where: the condition is the Python bool False, which Python made before redalg saw it (`==` and `!=` compare "
        "expressions as written). Write `ra.eq(a, b)` or `ra.ne(a, b)`.",
    ),
    "output carries the axis": (
        lambda: ra.fuse({"p": (ra.softmax(x, n), "b n")}),
        ra.ExpressionError,
        "output `p` carries the reduced axis n, which redalg represents but does not run yet. Reduce it over n, or fuse "
        "the reduced values and apply the last step with torch.",
    ),
    "no reduction": (
        lambda: ra.fuse(2 * x),
        ra.ExpressionError,
        "`2*x[b, n]` reduces over no axis. Write a reduction of it, such as `ra.sum(expr, n)`; an expression without "
        "one needs no fusion.",
    ),
    "no expression": (
        lambda: ra.fuse("sum(x)"),
        ra.ExpressionError,
        "`sum(x)` is a str, not an expression of tensor elements. Build one from `ra.tensors`, such as "
        "`ra.sum(x * y, n)`.",
    ),
    "imaginary": (
        lambda: ra.fuse(ra.sum(x * I, n)),
        ra.ExpressionError,
        "`sum(I*x[b, n], n)` holds the imaginary unit: redalg's values are extended reals. Write the real and the "
        "imaginary part as two outputs.",
    ),
    "unrelated axes": (
        lambda: ra.fuse({"rows": (ra.sum(x, n), "b"), "columns": (ra.sum(x, b), "n")}),
        ra.ExpressionError,
        "the outputs are reduced over unrelated axes n, b: sum(x[b, n], n); sum(x[b, n], b). One pass streams one axis: "
        "fuse them one by one.",
    ),
    "several axes at once": (
        lambda: ra.fuse(ra.sum(x, b, n)),
        ra.ExpressionError,
        "`sum(x[b, n], b, n)` reduces over 2 axes at once, which is not supported yet. Nest it: "
        "`ra.sum(ra.sum(expr, n), b)`.",
    ),
    "reserved name": (
        lambda: ra.fuse(ra.sum(ra.tensor("backend[n]"), n)),
        ra.ExpressionError,
        "a tensor is named `backend`, which is an option of the call. Rename the tensor; the reserved names are "
        "backend, plan, empty, precision, sizes, check.",
    ),
    "output name": (
        lambda: ra.fuse({"a b": (ra.sum(x, n), "b")}),
        ra.ExpressionError,
        "fuse: an output cannot be named 'a b': outputs are the fields of a namedtuple. Use an identifier without a "
        "leading underscore.",
    ),
    "several outputs, one axes": (
        lambda: ra.fuse({"s": ra.sum(x, n)}, axes="b"),
        ra.ExpressionError,
        "fuse: name at least one output, and give each its own axes: {'lse': (expr, \"b h q\")}.",
    ),
    "foreign inputs": (
        lambda: ra.fuse(ra.sum(x, n), inputs=(w,)),
        ra.ExpressionError,
        "fuse(inputs=): w[b, n] not in the expression, which has x.",
    ),
    "inputs no tensors": (
        lambda: ra.fuse(ra.sum(x, n), inputs=("x",)),  # type: ignore[arg-type]
        ra.ExpressionError,
        "fuse: inputs should be a sequence of tensor elements, inputs=(Q, K, V), not ('x',).",
    ),
    "one name for two": (
        lambda: ra.fuse({"a": (ra.let("m", ra.max(x, n)), "b"), "c": (ra.let("m", ra.min(x, n)), "b")}),
        ra.ExpressionError,
        'let: the name "m" is given to `max(x[b, n], n)` and to `min(x[b, n], n)`. Give each a name of its own.',
    ),
    "the name of an input": (
        lambda: ra.fuse(ra.let("x", ra.max(x, n))),
        ra.ExpressionError,
        "the reduction `x` bears the name of an input. Name the reduction otherwise by `ra.let`, or rename the input.",
    ),
    "let": (
        lambda: ra.let("a b", x),
        ra.ExpressionError,
        "let: 'a b' is not a name. Write an identifier, as in `let('m', ra.max(x, n))`.",
    ),
    "cast": (
        lambda: ra.cast(x, "float99"),
        ra.ExpressionError,
        "cast: unknown dtype 'float99'. Use one of float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, "
        "int64, int32, int8.",
    ),
    "reduced over no axis": (
        lambda: ra.sum(x),
        ra.ExpressionError,
        "sum: no axis given. Write `ra.sum(expr, n)` with `n = ra.axes('n')`.",
    ),
    "reduced over no Axis": (
        lambda: ra.sum(x, "n"),
        ra.ExpressionError,
        "sum: 'n' is not an axis. Make one by `n = ra.axes('n')` and reduce over it.",
    ),
    "reduced twice": (
        lambda: ra.max(x, n, n),
        ra.ExpressionError,
        "max: axis n is given twice. Reduce over each axis once.",
    ),
    "two sizes": (
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[ra.axis("n", size=4)] * ra.Tensor("y")[ra.axis("n", size=5)], n)),
        ra.ExpressionError,
        "axis n has sizes 5 and 4 in one expression.",
    ),
    "axis name": (
        lambda: ra.axes("1a"),
        ra.ExpressionError,
        "axes: `1a` is not a name. Write identifiers separated by spaces.",
    ),
    "axis size": (
        lambda: ra.axis("j", size=-1),
        ra.ExpressionError,
        "axis 'j': size must be a non-negative int, not -1.",
    ),
    "index without a comma": (
        lambda: ra.tensors("X[b n]"),
        ra.ExpressionError,
        "tensors: `[… b n …]` holds one index of 2 names. Separate indices by commas.",
    ),
    "unreadable tensors": (
        lambda: ra.tensors("X[b,n"),
        ra.ExpressionError,
        "tensors('X[b,n'): cannot read `[b,n`. Write `X[b,n] W[n]`.",
    ),
    "index that is no integer": (
        lambda: ra.Tensor("K")[1.5],
        ra.ExpressionError,
        "tensor `K`: index `1.5` is not an integer expression. Index by axes, integers, expressions of them (`h // 3`) "
        "or elements of integer tensors.",
    ),
    "limits of a Sum": (
        lambda: ra.fuse(Sum(IndexedBase("a")[symbols("i")], (symbols("i"), 1, symbols("N")))),
        ra.ExpressionError,
        "`Sum(a[i], (i, 1, N))`: i runs from 1 to N; redalg's axes start at 0 and end at their extent − 1. Write the "
        "limits as (i, 0, n − 1), and a mask by `ra.where` for the rest.",
    ),
}

STATES: dict[str, Case] = {
    "of another form": (
        lambda: fused.finish(ra.fuse(ra.sum(x, n)).leaf({"x": X})),
        ra.InputError,
        "the state should have the form's slots sum_0, sum_1; it is a state of slots sum_0. Make it by `leaf` of the "
        "same `Fused`.",
    ),
    "no state": (
        lambda: fused.finish(None),
        ra.InputError,
        "the state should have the form's slots sum_0, sum_1; it is a NoneType. Make it by `leaf` of the same `Fused`.",
    ),
    "of other rows": (
        lambda: fused.merge(fused.leaf({"x": X, "w": X}), fused.leaf({"x": X[:2], "w": X[:2]})),
        ra.InputError,
        "merge: the states are of different sizes, {'b': 3} and {'b': 2}. Merge states of the same rows.",
    ),
    "of another library": (
        lambda: fused.merge(fused.leaf({"x": X, "w": X}), fused.leaf({"x": T, "w": T})),
        ra.InputError,
        "merge: the states are of numpy and of torch. Make both from tensors of one library, device and dtype.",
    ),
    "start of a foreign axis": (
        lambda: fused.leaf({"x": X, "w": X}, start={k: 3}),
        ra.InputError,
        "leaf: start should give an axis its first element's number, as in start={n: 128}, not {k: 3}. The axes are "
        "b, n.",
    ),
    "tensors of the outputs": (
        lambda: offset.finish(offset.leaf({"x": X, "t": X[:, 0]})),
        ra.InputError,
        'finish: the outputs hold t[b], which a state does not. Pass them as tensors: `finish(state, {"t": …})`.',
    ),
    "size of an empty state": (
        lambda: fused.empty_state({}),
        ra.InputError,
        'empty_state: the size of axis b is missing. Pass sizes={"b": …}.',
    ),
}
offset = ra.fuse(ra.max(x, n) + ra.tensor("t[b]"))


@pytest.mark.parametrize("name", [*CALLS, *EXPRESSIONS, *STATES])
def test_messages(name: str) -> None:
    call, kind, text = {**CALLS, **EXPRESSIONS, **STATES}[name]
    assert refused(call, kind) == text


# ---- verdicts --------------------------------------------------------------------------------------------------------

VERDICTS: dict[str, Case] = {
    "absolute deviation": (
        lambda: ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n)),
        ra.NotFusible,
        "reduction `sum_1`: `Abs(x[b, n] - sum_0/count)` has a kink where its argument is 0, which moves with d: the "
        "matrix |x_i − d_j| is nonsingular for distinct points, so the rank is infinite. " + ESTIMATE + TWO_PASSES,
    ),
    "clipping": (
        lambda: ra.fuse(ra.sum(Max(x, ra.mean(x, n)), n)),
        ra.NotFusible,
        "reduction `sum_1`: `Max(sum_0/count, x[b, n])` clips x at a threshold that moves with d: every element may "
        "change side, so the rank is infinite. " + ESTIMATE + TWO_PASSES,
    ),
    "count above the mean": (
        lambda: ra.fuse(ra.sum(ra.where(x > ra.mean(x, n), 1, 0), n)),
        ra.NotFusible,
        "reduction `sum_1`: `x[b, n] > sum_0/count` compares x with d: the threshold moves with d and every element may "
        "change side, so the rank is infinite. " + ESTIMATE + TWO_PASSES,
    ),
    "Gaussian about the mean": (
        lambda: ra.fuse(ra.sum(exp(-((x - ra.mean(x, n)) ** 2)), n)),
        ra.NotFusible,
        "reduction `sum_1`: `exp(2*x[b, n]*sum_0/count)` couples x and d through the product `2*x[b, n]*sum_0/count` in "
        "an exponent: functions exp(x·d) are independent for distinct d, so the rank is infinite. "
        + ESTIMATE
        + TWO_PASSES,
    ),
    "rounding": (
        lambda: ra.fuse(ra.sum(ra.cast(x / ra.max(Abs(x), n), "float16") * w, n)),
        ra.NotFusible,
        "reduction `sum_0`: `cast(x[b, n]/max_0, float16)` rounds what mixes x and d, and rounding does not commute with "
        "a later rescaling. " + (ESTIMATE + TWO_PASSES).replace("sum_0", "max_0"),
    ),
    "not understood": (
        lambda: ra.fuse(ra.sum(floor(x / ra.max(Abs(x), n)), n)),
        ra.Undecided,
        "reduction `sum_0`: `floor(x[b, n]/max_0)` applies `floor` to what mixes x and d, and has no addition theorem "
        "known to redalg. Write the term as a sum of products g(x)·h(d), or compute the values that it uses in a first "
        "pass.",
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name: str) -> None:
    call, kind, text = VERDICTS[name]
    assert refused(call, kind) == text


def test_a_refusal_has_its_parts() -> None:
    with pytest.raises(ra.NotFusible) as error:
        ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n))
    assert error.value.reduction == "sum_1"
    assert "Abs(x[b, n] - sum_0/count)" in error.value.reason
    assert error.value.hint == TWO_PASSES
    assert error.value.evidence[0] == "term: Abs(x[b, n] - sum_0/count)"


def test_analyze_gives_verdicts_as_values() -> None:
    assert isinstance(ra.analyze(mean), ra.Exact)
    refusal = ra.analyze(ra.mean(Abs(x - ra.mean(x, n)), n))
    assert isinstance(refusal, ra.Refused)
    assert refusal.reduction == "sum_1"
    assert type(ra.analyze(ra.sum(floor(x / ra.max(Abs(x), n)), n))).__name__ == "UndecidedVerdict"


# ---- odd input that must work ----------------------------------------------------------------------------------------

ODD_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.T.contiguous().T,
    "strided": lambda t: torch.stack([t, -t], -1)[..., 0],
    "expanded": lambda t: t[:1].expand(3, 5),
    "offset": lambda t: torch.cat([t, t], 1)[:, 5:],
}
ODD_NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "negative strides": lambda a: a[::-1, ::-1],
    "transposed": lambda a: np.asfortranarray(a),
    "broadcast": lambda a: np.broadcast_to(a[:1], (3, 5)),
    "read-only": lambda a: frozen(a),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
}


def frozen(array: np.ndarray) -> np.ndarray:
    made = array.copy()
    made.flags.writeable = False
    return made


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ODD_TORCH)
def test_torch_layouts(name: str, backend: str) -> None:
    data = {"x": torch.arange(15.0).reshape(3, 5), "w": torch.arange(1.0, 16.0).reshape(3, 5)}
    odd = {key: ODD_TORCH[name](one) for key, one in data.items()}
    got = fused(**odd, backend=backend)
    want = (odd["x"] * odd["w"]).double().sum(1) / odd["w"].double().sum(1)
    torch.testing.assert_close(got, want.float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ODD_NUMPY)
def test_numpy_layouts(name: str, backend: str) -> None:
    data = {"x": np.arange(15.0).reshape(3, 5), "w": np.arange(1.0, 16.0).reshape(3, 5)}
    odd = {key: ODD_NUMPY[name](one) for key, one in data.items()}
    before = {key: one.copy() for key, one in odd.items()}
    got = fused(**odd, backend=backend)
    np.testing.assert_allclose(got, (odd["x"] * odd["w"]).sum(1) / odd["w"].sum(1), rtol=1e-14)
    for key, one in odd.items():
        np.testing.assert_array_equal(one, before[key])


EMPTY: dict[str, tuple[Any, float]] = {
    "sum": (ra.sum(x, n), 0.0),
    "prod": (ra.prod(x, n), 1.0),
    "max": (ra.max(x, n), -np.inf),
    "min": (ra.min(x, n), np.inf),
    "mean": (ra.mean(x, n), np.nan),
    "variance": (ra.var(x, n), np.nan),
    "logsumexp": (ra.logsumexp(x, n), -np.inf),
    "weighted sum": (ra.sum(ra.softmax(x, n) * w, n), 0.0),
}


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_axis_gives_the_identity(name: str, backend: str) -> None:
    """Each reduction is its monoid's identity, and the output what the definition makes of them."""
    expr, want = EMPTY[name]
    made = ra.fuse(expr)
    tensors = {key: np.zeros((2, 0), np.float32) for key in made.cascade.inputs()}
    np.testing.assert_array_equal(made(**tensors, backend=backend), np.full(2, want, np.float32))
    np.testing.assert_array_equal(made.reference(**tensors), np.full(2, want))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_an_empty_ratio_may_be_zero(backend: str) -> None:
    got = ra.fuse(ra.mean(x, n))(x=np.zeros((2, 0), np.float32), backend=backend, empty="zero")
    np.testing.assert_array_equal(got, np.zeros(2, np.float32))


def test_no_rows_give_no_rows() -> None:
    assert fused(x=np.zeros((0, 5)), w=np.zeros((0, 5))).shape == (0,)


@pytest.mark.parametrize(
    ("dtypes", "want"),
    [
        ((torch.float16, torch.float16), torch.float16),
        ((torch.bfloat16, torch.bfloat16), torch.bfloat16),
        ((torch.float16, torch.bfloat16), torch.float32),
        ((torch.float16, torch.float32), torch.float32),
        ((torch.float32, torch.float64), torch.float64),
    ],
)
def test_dtypes_promote_as_in_torch(dtypes: tuple[torch.dtype, torch.dtype], want: torch.dtype) -> None:
    first, second = dtypes
    assert fused(x=T.to(first), w=T.to(second)).dtype == want == torch.promote_types(first, second)


def test_option_like_names_do_not_clash() -> None:
    made = ra.fuse(ra.sum(ra.tensor("self[n]") * Rational(1, 2), n))
    assert made(self=np.ones(4)) == 2
