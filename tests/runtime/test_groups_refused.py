"""Refusals of states by group: keys that do not fit, states that are not by group, what keeps the axis."""

import numpy as np
import torch

import redalg as ra
from tests.cases.refusals import Case, each

b, n, e = ra.axes("b n e")
x, y, X = ra.tensors("x[n] y[n] X[b,n]")
variance, softmax = ra.fuse(ra.var(x, n)), ra.fuse(ra.softmax(X, n), axes="b n")
recurrence = ra.fuse(ra.affine(y / 4, x, n)[1])
DATA = np.arange(4.0)
BY = np.array([0, 1, 1, 0])
STATE = variance.leaf({"x": DATA}, by=BY, groups=2)
KEYS = "leaf: by= holds the group of every element along n"
both = ra.fuse(ra.sum(ra.tensor("z[n,e]"), n, e))

REFUSED: dict[str, Case] = {
    "floats": Case(
        lambda: variance.leaf({"x": DATA}, by=DATA, groups=2), ra.InputError,
        f"{KEYS} as an integer, and is float64. Number the groups 0, 1, 2, …, such as by `np.unique(values, "
        "return_inverse=True)`.",
    ),
    "truth values": Case(
        lambda: variance.leaf({"x": DATA}, by=DATA > 1, groups=2), ra.InputError,
        f"{KEYS} as an integer, and is bool. Number the groups 0, 1, 2, …, such as by `np.unique(values, "
        "return_inverse=True)`.",
    ),
    "length": Case(
        lambda: variance.leaf({"x": DATA}, by=BY[:3], groups=2), ra.InputError,
        f"{KEYS}; it should have shape (4,), and has (3,).",
    ),
    "two dimensions": Case(
        lambda: variance.leaf({"x": DATA}, by=BY[None], groups=2), ra.InputError,
        f"{KEYS}; it should have shape (4,), and has (1, 4).",
    ),
    "too large": Case(
        lambda: variance.leaf({"x": DATA}, by=BY, groups=1), ra.InputError,
        f"{KEYS}, a number from 0 to 0 as groups=1; of element 1 it is 1. Leave such elements out, or pass more "
        "groups.",
    ),
    "negative": Case(
        lambda: variance.leaf({"x": torch.arange(4.0)}, by=torch.tensor([0, 1, -1, 0]), groups=2), ra.InputError,
        f"{KEYS}, a number from 0 to 1 as groups=2; of element 2 it is -1. Leave such elements out, or pass more "
        "groups.",
    ),
    "another library": Case(
        lambda: variance.leaf({"x": DATA}, by=torch.from_numpy(BY), groups=2), ra.InputError,
        f"{KEYS}, and is a Tensor; the tensors are of numpy. Pass keys of it.",
    ),
    "a list": Case(
        lambda: variance.leaf({"x": DATA}, by=[0, 1, 1, 0], groups=2), ra.InputError,
        f"{KEYS}, and is a list; the tensors are of numpy. Pass keys of it.",
    ),
    "no number of groups": Case(
        lambda: variance(x=DATA, by=BY), ra.InputError,
        "the call: `by=` needs the number of groups, which pieces share: keys are 0 to groups - 1. Pass `groups=`, "
        "such as `groups=int(by.max()) + 1`.",
    ),
    "keys of a call": Case(
        lambda: variance(x=DATA, by=BY[:3], groups=2), ra.InputError,
        f"{KEYS.replace('leaf', 'the call')}; it should have shape (4,), and has (3,).",
    ),
    "a kernel of a call": Case(
        lambda: ra.fuse(ra.argmax(x, n))(x=DATA, by=BY, groups=2, backend="tilelang"), ra.BackendError,
        "the call: no kernel makes these states by group: a slot has several components (an index, an order, a "
        'product). Leave backend="tilelang" out: the tensors\' library makes them.',
    ),
    "keys of a piece more": Case(
        lambda: variance.update(STATE, {"x": DATA}, by=BY + 1), ra.InputError,
        f"{KEYS.replace('leaf', 'update')}, a number from 0 to 1 as groups=2; of element 1 it is 2. Leave such "
        "elements out, or pass more groups.",
    ),
    "no keys": Case(
        lambda: variance.leaf({"x": DATA}, groups=2), ra.InputError,
        "leaf: groups=2 stands without keys. Pass `by=`, the group of every element.",
    ),
    "no groups": Case(
        lambda: variance.leaf({"x": DATA}, by=BY, groups=0), ra.InputError,
        "leaf: groups=0 is no number of groups. Pass an int from 1 on.",
    ),
    "two axes": Case(
        lambda: both.leaf({"z": np.ones((4, 2))}, by=BY, groups=2), ra.InputError,
        "leaf: by= gives the elements of one reduced axis their groups, and the expression reduces over n and e "
        "together. Reduce over n alone by groups, and over the others after it.",
    ),
    "nothing reduced": Case(
        lambda: ra.fuse(x + 1, axes="n").leaf({"x": DATA}, by=BY, groups=2), ra.InputError,
        "leaf: by= groups the elements that are reduced, and the expression reduces nothing.",
    ),
    "a kernel": Case(
        lambda: ra.fuse(ra.argmax(x, n)).leaf({"x": DATA}, by=BY, groups=2, backend="tilelang"), ra.BackendError,
        "leaf: no kernel makes these states by group: a slot has several components (an index, an order, a product). "
        'Leave backend="tilelang" out: the tensors\' library makes them.',
    ),
    "another backend": Case(
        lambda: variance(x=DATA, by=BY, groups=2, backend="torch"), ra.BackendError,
        "by=: the tensors' own library reduces groups, or kernels do, and backend='torch' is neither. Leave it out.",
    ),
    "memory": Case(
        lambda: variance(x=DATA, by=BY, groups=2, memory=1), ra.BackendError,
        "by=: memory= belongs to kernels, and the tensors' library reduces groups. Leave one of them out.",
    ),
    "a gradient": Case(
        lambda: variance(x=torch.ones(4, requires_grad=True), by=torch.from_numpy(BY), groups=2), ra.InputError,
        "by=: a tensor requires a gradient, and calls by groups record none. Work under `torch.no_grad()`, or pass "
        "`tensor.detach()`, if no gradient is needed.",
    ),
    "another number of groups": Case(
        lambda: variance.merge(STATE, variance.leaf({"x": DATA}, by=BY, groups=3)), ra.InputError,
        "merge: the states are of different sizes, {'groups': 2} and {'groups': 3}. Merge states of the same rows.",
    ),
    "a state without groups": Case(
        lambda: variance.merge(STATE, variance.leaf({"x": DATA})), ra.InputError,
        "merge: some of the states are by group, and others are not. Make all by `leaf(…, by=)`.",
    ),
    "a piece without keys": Case(
        lambda: variance.update(STATE, {"x": DATA}), ra.InputError,
        "update: the state is by group, and the piece comes without keys. Pass `by=`.",
    ),
    "keys for a state without groups": Case(
        lambda: variance.update(variance.leaf({"x": DATA}), {"x": DATA}, by=BY), ra.InputError,
        "update: the state is not by group, and the piece comes with keys. Leave out `by=`.",
    ),
    "elements without keys": Case(
        lambda: softmax.finish(softmax.leaf({"X": DATA[None]}, by=BY, groups=2), {"X": DATA[None]}), ra.InputError,
        "finish: output `out` keeps axis n, and each of its elements reads values of its group. Pass `by=`, the keys "
        "of these elements.",
    ),
    "keys for nothing": Case(
        lambda: variance.finish(STATE, by=BY), ra.InputError,
        "finish: no output keeps axis n, and so none reads a key. Leave `by=` out.",
    ),
    "keys at the end alone": Case(
        lambda: softmax.finish(softmax.leaf({"X": DATA[None]}), {"X": DATA[None]}, by=BY), ra.InputError,
        "finish: the state is not by group, and `by=` is given. Make it by `leaf(…, by=)`.",
    ),
    "an order that is broken": Case(
        lambda: recurrence.merge(
            *(recurrence.leaf({"x": DATA, "y": DATA}, {n: at}, by=BY, groups=2) for at in (0, 5))
        ), ra.InputError,
        "merge: the states hold elements 0 to 3 and elements 5 to 8, and affine depends on the order of elements: "
        "element 4 of axis n is missing between them. Give every leaf its `start={n: …}`, and merge neighbours.",
    ),
}  # fmt: skip


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()
