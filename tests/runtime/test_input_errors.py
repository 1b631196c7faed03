"""Bad tensors, options and states: the full text of every message.

A message says what is wrong and where, what was needed and what was found, and what to do next.
"""

from typing import cast

import numpy as np
import torch

import redalg as ra
from tests.cases.refusals import Case, each

b, n, e, k, q = ra.axes("b n e k q")
x, w, v = ra.tensors("x[b,n] w[b,n] v[n,e]")
mean = ra.sum(x * w, n) / ra.sum(w, n)
fused = ra.fuse(mean)
offset = ra.fuse(ra.max(x, n) + ra.tensor("t[b]"))
X, T = np.ones((3, 5), np.float32), torch.ones(3, 5)
gamma, plain = ra.scalars("gamma", positive=True), ra.scalars("c")


CALLS: dict[str, Case] = {
    "unknown tensor": Case(
        lambda: fused(x=X, w=X, y=X),
        ra.InputError,
        "the call's tensors do not fit the expression (unknown: y). It needs w[b, n], x[b, n].",
    ),
    "missing tensor": Case(
        lambda: fused(x=X),
        ra.InputError,
        "the call's tensors do not fit the expression (missing: w). It needs w[b, n], x[b, n].",
    ),
    "misspelt tensor": Case(
        lambda: fused(x=X, W=X),
        ra.InputError,
        "the call's tensors do not fit the expression (unknown: W; missing: w). It needs w[b, n], x[b, n].",
    ),
    "missing scalar": Case(
        lambda: ra.fuse(ra.sum(x * plain, n))(x=X),
        ra.InputError,
        "the call's tensors do not fit the expression (missing: c). It needs x[b, n], scalar c.",
    ),
    "positional without inputs": Case(
        lambda: fused(X, X),
        ra.InputError,
        "the call has 2 positional tensors; it may have none, since `fuse` was given no inputs=(w, x). "
        "Pass them by keyword, as in `fused(x=…)`.",
    ),
    "given twice": Case(
        lambda: ra.fuse(mean, inputs=(x, w))(X, X, x=X),
        ra.InputError,
        "tensor `x` is given by position and by keyword. Give it once.",
    ),
    "rank": Case(
        lambda: fused(x=X, w=X[0]),
        ra.InputError,
        "tensor `w` has 1 dimensions (5,), but `w[b, n]` needs 2.",
    ),
    "sizes disagree": Case(
        lambda: fused(x=X, w=np.ones((3, 6), np.float32)),
        ra.InputError,
        "axis n has several sizes: 6 in w (dimension 1), 5 in x (dimension 1). Every tensor must agree on it.",
    ),
    "sizes disagree with the option": Case(
        lambda: fused(x=X, w=X, sizes={"n": 7}),
        ra.InputError,
        "axis n has several sizes: 5 in w (dimension 1), 5 in x (dimension 1), 7 in sizes=. "
        "Every tensor must agree on it.",
    ),
    "unknown axis in sizes": Case(
        lambda: fused(x=X, w=X, sizes={"m": 7}),
        ra.InputError,
        "sizes: the expression has no axis 'm'; it has b, n.",
    ),
    "sizes is no number": Case(
        lambda: fused(x=X, w=X, sizes=cast("dict[str, int]", {"n": "7"})),
        ra.InputError,
        "sizes: the size of axis n should be a non-negative int, not '7'.",
    ),
    "sized axis": Case(
        lambda: ra.fuse(ra.sum(ra.Tensor("A")[b, ra.axis("j", size=4)], ra.axis("j", size=4)))(A=X),
        ra.InputError,
        "axis j has several sizes: 5 in A (dimension 1), 4 in its declaration. Every tensor must agree on it.",
    ),
    "axis without a size": Case(
        lambda: ra.fuse(ra.sum(ra.where(n < k, ra.tensor("t[k]"), 0), n))(t=X[0]),
        ra.InputError,
        'axis n has no size: no tensor has it as an index. Pass sizes={"n": …}, or give the axis a size.',
    ),
    "devices": Case(
        lambda: fused(x=T, w=T.to("meta")),
        ra.InputError,
        "the tensors lie on several devices: w on meta, x on cpu. Move them to one with `.to(device)`.",
    ),
    "libraries": Case(
        lambda: fused(x=X, w=T),
        ra.InputError,
        "the tensors come from two libraries: w (torch), x (numpy). Pass all of them as torch tensors, or all as NumPy "
        "arrays.",
    ),
    "no array": Case(
        lambda: fused(x=[[1.0]], w=X),
        ra.InputError,
        "tensor `x` is a list. Pass a torch tensor or a NumPy array.",
    ),
    "integer torch tensor": Case(
        lambda: fused(x=T.long(), w=T),
        ra.InputError,
        "tensor `x` is int64, and stands in arithmetic, where one of float64, float32, float16, bfloat16, "
        "float8_e4m3fn, float8_e5m2 is needed. Convert it, for instance `x.double()`.",
    ),
    "integer array": Case(
        lambda: fused(x=X.astype(int), w=X),
        ra.InputError,
        "tensor `x` is int64, and stands in arithmetic, where one of float64, float32, float16, bfloat16, "
        'float8_e4m3fn, float8_e5m2 is needed. Convert it, for instance `x.astype("float64")`.',
    ),
    "dtype that does not promote": Case(
        lambda: fused(x=T.to(torch.float8_e8m0fnu), w=T),
        ra.InputError,
        "tensor `x` is float8_e8m0fnu, and stands in arithmetic, where one of float64, float32, float16, bfloat16, "
        "float8_e4m3fn, float8_e5m2 is needed. Convert it, for instance `x.float()`.",
    ),
    "complex": Case(
        lambda: fused(x=T.to(torch.complex64), w=T),
        ra.InputError,
        "tensor `x` is complex64: reductions here are over extended reals. Pass its real and imaginary parts as two "
        "tensors.",
    ),
    "object mask": Case(
        lambda: ra.fuse(ra.sum(ra.where(ra.tensor("M[b,n]"), x, 0), n))(x=X, M=X.astype(object)),
        ra.InputError,
        "tensor `M` is object, which is no number. Pass booleans, integers or floats.",
    ),
    "gradient": Case(
        lambda: fused.leaf({"x": T.clone().requires_grad_(), "w": T}),
        ra.InputError,
        "tensor `x` requires a gradient, and only a call records one: states and the reference do not. Work under "
        "`torch.no_grad()`, or pass `x.detach()`, if no gradient is needed; nothing is detached silently.",
    ),
    "sparse": Case(
        lambda: fused(x=T.to_sparse(), w=T),
        ra.InputError,
        "tensor `x` has layout torch.sparse_coo, and redalg reads strided tensors. Pass `x.to_dense()`.",
    ),
    "masked array": Case(
        lambda: fused(x=np.ma.masked_equal(X, 1), w=X),
        ra.InputError,
        "tensor `x` is a NumPy masked array, whose mask redalg does not read. Pass its data and its mask as two "
        "tensors, and use `ra.where`.",
    ),
    "scalar that is an array": Case(
        lambda: ra.fuse(ra.sum(x * plain, n))(x=X, c=X),
        ra.InputError,
        "scalar `c` must be a number, not ndarray. Pass a Python float.",
    ),
    "scalar against its assumption": Case(
        lambda: ra.fuse(ra.max(x * gamma, n))(x=X, gamma=-1.0),
        ra.InputError,
        "scalar `gamma` was declared positive, and is -1.0. The form was derived on that assumption: pass such a "
        "number, or declare the scalar without it.",
    ),
    "gather out of range": Case(
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[b, n + 1] * w, n))(x=X, w=X),
        ra.InputError,
        "`x[b, n + 1]`: index `n + 1` leaves the range of dimension 1, which has 5 elements. Mask it by `ra.where`, or "
        "mend the indices.",
    ),
    "constant index out of range": Case(
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[7, n], n))(x=X),
        ra.InputError,
        "`x[7, n]`: index 7 is out of range for dimension 0, which has 3 elements.",
    ),
    "index that is a float": Case(
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[b, ra.tensor("J[n]")], n))(x=X, J=X[0]),
        ra.InputError,
        "`x[b, J[n]]`: index `J[n]` is a floating-point number. Index by integers.",
    ),
    "backend": Case(
        lambda: fused(x=X, w=X, backend="jax"),
        ra.BackendError,
        "backend='jax' is not known. Use one of 'tilelang', 'torch', 'numpy'.",
    ),
    "empty policy": Case(
        lambda: fused(x=X, w=X, empty="none"),
        ra.InputError,
        "empty='none' is not an option. Use one of 'nan', 'zero'.",
    ),
    "precision": Case(
        lambda: fused(x=X, w=X, precision="fp8"),
        ra.InputError,
        "precision='fp8' is not an option. Use one of 'ieee', 'tf32', 'wide'.",
    ),
    "bfloat16 on NumPy": Case(
        lambda: fused(x=T.bfloat16(), w=T.bfloat16(), backend="numpy"),
        ra.BackendError,
        'backend="numpy" has no bfloat16 and no GPU. Pass float32 CPU tensors, or backend="torch".',
    ),
}

STATES: dict[str, Case] = {
    "of another form": Case(
        lambda: fused.finish(ra.fuse(ra.sum(x, n)).leaf({"x": X})),
        ra.InputError,
        "the state should have the form's slots sum_0, sum_1; it is a state of slots sum_0. Make it by `leaf` of the "
        "same `Fused`.",
    ),
    "no state": Case(
        lambda: fused.finish(None),
        ra.InputError,
        "the state should have the form's slots sum_0, sum_1; it is a NoneType. Make it by `leaf` of the same `Fused`.",
    ),
    "of other rows": Case(
        lambda: fused.merge(fused.leaf({"x": X, "w": X}), fused.leaf({"x": X[:2], "w": X[:2]})),
        ra.InputError,
        "merge: the states are of different sizes, {'b': 3} and {'b': 2}. Merge states of the same rows.",
    ),
    "of another library": Case(
        lambda: fused.merge(fused.leaf({"x": X, "w": X}), fused.leaf({"x": T, "w": T})),
        ra.InputError,
        "merge: the states are of numpy and of torch. Make both from tensors of one library, device and dtype.",
    ),
    "start of a foreign axis": Case(
        lambda: fused.leaf({"x": X, "w": X}, start={k: 3}),
        ra.InputError,
        "leaf: start should give an axis its first element's number, as in start={n: 128}, not {k: 3}. The axes are "
        "b, n.",
    ),
    "tensors of the outputs": Case(
        lambda: offset.finish(offset.leaf({"x": X, "t": X[:, 0]})),
        ra.InputError,
        'finish: the outputs hold t[b], which a state does not. Pass them as tensors: `finish(state, {"t": …})`.',
    ),
    "size of an empty state": Case(
        lambda: fused.empty_state({}),
        ra.InputError,
        'empty_state: the size of axis b is missing. Pass sizes={"b": …}.',
    ),
}


@each({**CALLS, **STATES})
def test_messages(case: Case) -> None:
    case.check()
