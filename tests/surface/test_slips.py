"""Slips of a hand used to NumPy or torch: each works, or is answered by an error that says what to write."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Add, Matrix, Mod, Symbol, exp

import redalg as ra

b, n = ra.axes("b n")
any_: Any = ra
x, y = ra.tensors("x[b,n] y[b,n]")
A, B = ra.tensors("A[m,k] B[k,n]")
j = ra.axis("j", size=4)
VARIANCE = ra.fuse(ra.var(x, n))
fused: Any = VARIANCE
T: Any = ra.Tensor("T")
KNOWN = {"b": 2, "n": 8}
PLANS: Any = fused.plans(KNOWN, "float32", "H100")
SIZED: Any = ra.fuse(ra.sum(ra.Tensor("y")[b, ra.axis("t", size=4)], ra.axis("t", size=4)))
STATE = fused.leaf({"x": np.ones((2, 8))})
SLIPS: dict[str, tuple[Callable[[], Any], str]] = {
    "np.exp": (lambda: np.exp(x), ("`np.exp` is given the expression `x[b, n]`, which is no array. Functions of "
               "expressions are SymPy's: write `exp(x)`, with `from sympy import exp`.")),
    "np.maximum": (lambda: np.maximum(x, 0), "write `Max(x, y)`, with `from sympy import Max`."),
    "np.sum": (lambda: np.sum(x), "write `ra.sum(x, n)` with `n = ra.axes(\"n\")`."),
    "np.add.reduce": (lambda: np.add.reduce(x), "`np.sum` is given the expression"),
    "np.sum along": (lambda: np.sum(x, axis=1), "write `ra.sum(x, n)`"),
    "np.where": (lambda: np.where(x > 0, x, 0), "Choose by `ra.where(condition, a, b)`."),
    "np.unwrap": (lambda: np.unwrap(x), "Write expressions by SymPy's functions and redalg's reductions."),
    "an array times": (lambda: np.ones(2) * x, ("and an array of NumPy, of shape (2,). An expression holds no data: "
                       "name the array, as in `w = ra.tensor(\"w[n]\")`")),
    "times an array": (lambda: x * np.ones(2), "`*` is given the expression `x[b, n]` and an array of NumPy"),
    "torch.exp": (lambda: torch.exp(x), "`torch.exp` is given the expression `x[b, n]`"),
    "torch.softmax": (lambda: torch.softmax(x, dim=1), "write `ra.softmax(x, n)`"),
    "a tensor times": (lambda: torch.ones(2) * x, "and an array of torch, of shape (2,)."),
    "times a tensor": (lambda: x * torch.ones(2), "`*` is given the expression `x[b, n]` and an array of torch"),
    "a tensor beside": (lambda: torch.add(torch.ones(2), ra.max(x, n)), "and an array of torch, of shape (2,)."),
    "math.exp": (lambda: math.exp(x), "Functions of expressions are SymPy's (`from sympy import exp`), not those of"),
    "float": (lambda: float(ra.sum(x, n)), "`float` is asked of `sum(x[b, n], n)`, which has no value until the call."),
    "int": (lambda: int(n), "`int` is asked of `n`"),
    "@": (lambda: A @ B, ("`@` is given `A[m, k]`, which is one element, not a matrix. A product of matrices is a sum "
          "over the axis that they share: write `ra.sum(A * B, k)`")),
    "~": (lambda: ~x, "Write `ra.logical_not(x[b, n])`"),
    "where=": (lambda: any_.mean(x, n, where=x > 0), "`ra.sum(ra.where(condition, x, 0), n) / ra.sum(ra.where("),
    "weights=": (lambda: any_.mean(x, n, weights=y), "write `ra.sum(w * x, n) / ra.sum(w, n)`"),
    "percentile": (lambda: any_.percentile(x, 50), "docs/guide/questions.md"),
    "histogram": (lambda: any_.histogram(x), "the condition is `ra.eq(floor(x / width), j)`"),
    "diff": (lambda: any_.diff(x), '`ra.Tensor("x")[b, n - 1]` is the element before'),
    "a pattern": (lambda: any_.kurtosis(x, n), "It is a pattern: `redalg.library.kurtosis()`"),
    "argmax of two": (lambda: ra.argmax(x, n, b), "argmax: 2 axes are given (n, b)."),
    "a sum @": (lambda: (A + 1) @ B, "`@` is given"),
    "x.sum": (lambda: x.sum(n), "`x[b, n]` has no `sum`: it is an expression, not an array. Reductions are functions"),
    "x.exp": (lambda: x.exp, "write `exp(x)`"),
    "x.T": (lambda: x.T, "It stands for one element and has no dimensions: axes have names"),
    "x.shape": (lambda: ra.max(x, n).shape, "`max(x[b, n], n)` has no `shape`"),
    "x.to": (lambda: x.to("cuda"), "`ra.cast(x, \"float16\")`"),
    "len": (lambda: len(x), "The size of an axis n is `n.extent`."),
    "x[0]": (lambda: x[0], "Index a tensor where it is named, as in `ra.Tensor(\"x\")[b, 0]`"),
    "builtin sum": (lambda: sum(x), "reduce over an axis by `ra.sum(x, n)`"),
    "builtin max": (lambda: max(x), "reduce over an axis by"),
    "larger of two": (lambda: max(x, y), "take the larger by `sympy.Max`."),
    "if": (lambda: 1 if x > 0 else 0, "Python asks whether `x[b, n] > 0` holds (`if`, `and`, `or`, `not`"),
    "and": (lambda: x > 0 and y > 0, "Combine conditions by `ra.logical_and`"),
    "chained": (lambda: 0 < x < 1, "known of each element at the call alone"),
    "a mask and": (lambda: x and y > 0, "Python asks whether `x[b, n]` holds"),
    "not a mask": (lambda: not x, "Combine conditions by `ra.logical_and`, `ra.logical_or`, `ra.logical_not`"),
    "if a mask": (lambda: y if ra.any(x > 0, n) else 0, "choose by `ra.where(condition, a, b)`"),
    "masks of a list": (lambda: all([x, y]), "Whether an argument was given is `is not None`."),
    "a combination and": (lambda: ((x > 0) & (x < 5)) and y > 0, "`(x[b, n] > 0) & (x[b, n] < 5)` holds"),
    "not a combination": (lambda: not ra.logical_or(x, y), "`Ne(x[b, n], 0) | Ne(y[b, n], 0)` holds"),
    "of a sum": (lambda: not x + y > 1, "Python asks whether `x[b, n] + y[b, n] > 1` holds"),
    "& binds tighter": (lambda: x > 0 & y > 0, "which bind tighter than `<` and `>`. Write `ra.logical_and("),
    "^": (lambda: x ^ 2, "and a power as `x**2`."),
    "a mask times": (lambda: (x > 0) * y, ("the condition `x[b, n] > 0`, which is no number. Choose by it: "
                     "`ra.where(x[b, n] > 0, a, b)`.")),
    "sum of a condition": (lambda: ra.sum(x > 0, n), "by `ra.sum(ra.where(x[b, n] > 0, 1, 0), n)`."),
    "argmax dim": (lambda: ra.argmax(x, dim=1), ("argmax: there is no option `dim`. Axes follow the term: write "
                   "`ra.argmax(x, n)`")),
    "argmax of all": (lambda: ra.argmax(x), "argmax: no axis given."),
    "topk k": (lambda: ra.topk(x, k=8), ("found k=8. Write `ra.topk(x, n, j)` with `n = ra.axes(\"n\")` and "
               "`j = ra.axis(\"j\", size=8)`.")),
    "topk of an int": (lambda: ra.topk(x, 4, n), "found axis=4, place=n."),
    "topk of one axis": (lambda: ra.topk(x, n), "found axis=n."),
    "first dim": (lambda: ra.first(x, dim=0), "first: there is no option `dim`."),
    "affine": (lambda: ra.affine(x, y), "affine: no axis given."),
    "sum_at_max": (lambda: ra.sum_at_max(x, y, axes=n), "write `ra.sum_at_max(x, w, n)`"),
    "reduce": (lambda: ra.reduce("sum", x, n), "reduce: no axis given."),
    "max of two": (lambda: ra.max(x, y), "The larger of two is `sympy.Max(x, y)`."),
    "where of one": (lambda: ra.where(x > 0), "where: it takes a condition and two values"),
    "axes of a list": (lambda: ra.axes(["b", "n"]), "is a list, not a string of names. Write `ra.axes(\"b n\")`."),
    "axes one by one": (lambda: ra.axes("b", "n"), "axes: 2 arguments are given; the names stand in one string."),
    "a tensor of data": (lambda: ra.tensor(np.ones(2)), "pass arrays when the result is called."),
    "a tensor by axes": (lambda: ra.tensor("x", b, n), "Write `ra.tensor(\"x[b,n]\")`."),
    "norm of a str": (lambda: ra.norm("x", n), "norm: a str is not an expression."),
    "ra.corr": (lambda: any_.corr, "redalg has no `corr`. Pearson's correlation of two tensors is a pattern"),
    "ra.exp": (lambda: any_.exp, "redalg has no `exp`. Functions of expressions are SymPy's"),
    "ra.relu": (lambda: any_.relu, "write `Max(x, 0)`"),
    "ra.einsum": (lambda: any_.einsum, "write `ra.sum(A * B, k)`"),
    "ra.median": (lambda: any_.median, "It has no state of fixed size."),
    "ra.nanmean": (lambda: any_.nanmean, "write `ra.where(ok, x, 0)` in a sum"),
    "ra.isnan": (lambda: any_.isnan, "by a condition, `ok = ra.logical_and(x < oo, x > -oo)`"),
    "ra.cumsum": (lambda: any_.cumsum, "redalg gives totals, not running ones"),
    "ra.variance": (lambda: any_.variance, "write `ra.var(x, n)`"),
    "mean of 1": (lambda: ra.mean(x, 1), "mean: axes have names, not the number 1."),
    "softmax of -1": (lambda: ra.softmax(x, -1), "softmax: axes have names, not the number -1."),
    "mean of all": (lambda: ra.mean(x), "mean: no axis given. Write `ra.mean(expr, n)`"),
    "the axis first": (lambda: ra.mean(n, x), "mean: x[b, n] is not an axis, but of tensors. The term comes first"),
    "ddof": (lambda: ra.var(x, n, ddof=1), "Write `ra.var(…, correction=1)` to divide by n - 1"),
    "a near option": (lambda: ra.var(x, n, corection=1), "Did you mean correction?"),
    "a dtype": (lambda: any_.tensor("x[n]", dtype="half"), "Tensors get their shapes, dtypes and devices at the call."),
    "axes apart": (lambda: ra.tensor("x", "b n"), "Write `ra.tensor(\"x[b,n]\")`."),
    "let the other way": (lambda: any_.let(x, "m"), "let: the name comes first. Write `ra.let(\"m\", x[b, n])`."),
    "fuse a list": (lambda: ra.fuse([x, y]), "Give them names, in a dict"),
    "fuse a tensor": (lambda: ra.fuse(torch.ones(2)), "a torch.Tensor is given, not an expression."),
    "fuse twice": (lambda: ra.fuse(VARIANCE), "what `fuse` gave is given to it again. Call it with tensors"),
    "fuse text": (lambda: ra.fuse("sum(x[n], n)"), "The command `redalg explain \"…\"` reads text."),
    "fuse axis": (lambda: any_.fuse(x, axis="b n"), "fuse: there is no option `axis`."),
    "axes of a tuple": (lambda: any_.fuse(x, axes=("b", "n")), "Write axes=\"b n\"."),
    "an output of three": (lambda: ra.fuse({"a": (x, "b n", 3)}), "fuse: output `a` is a tuple of 3."),
    "inputs of None": (lambda: any_.fuse(x, inputs=None), "a sequence of tensor elements, inputs=(Q, K, V), not None."),
    "exact of text": (lambda: any_.fuse(x, exact="yes"), "fuse: exact='yes' should be True or False, not a str."),
    "a condition of text": (lambda: ra.where("x > 0", x, 0), "where: 'x > 0' is no expression. Write tensor elements"),
    "a value of text": (lambda: ra.where(x > 0, x, "y"), "where: 'y' is no expression."),
    "equal to None": (lambda: ra.eq(x, None), "eq: None is no expression."),
    "equal to an array": (lambda: ra.ne(x, np.ones(2)), "ne: a ndarray is no expression."),
    "a list of masks": (lambda: ra.logical_and([x > 0, y > 0]), "is no expression. Write tensor elements and numbers"),
    "a cast of text": (lambda: ra.cast("x", "half"), "cast: 'x' is no expression."),
    "a name of None": (lambda: any_.let("m", None), "let: None is no expression."),
    "correction of None": (lambda: ra.var(x, n, correction=None), "as in `ra.var(x, n, correction=1)`"),
    "eps of None": (lambda: ra.rms_norm(x, n, eps=None), "rms_norm: None is no expression."),
    "a weight of data": (lambda: ra.layer_norm(x, n, weight=np.ones(2)), "layer_norm: a ndarray is no expression."),
    "a slice": (lambda: T[b, :], "tensor `T`: index `slice(None, None, None)` is not an integer expression."),
    "a tensor without indices": (lambda: ra.sum(T, n), "sum: a Tensor is not an expression."),
    "a list of a tensor": (lambda: list(T), "`Tensor('T')` is the name of a tensor, without indices. Index it first"),
    "a tensor plus": (lambda: 2 * T, "It stands for no value."),
    "a tensor's shape": (lambda: T.shape, "`shape` is asked of it as it stands."),
    "a score of a number": (lambda: any_.library.attention(score=3), "score=3 should be a function or None"),
}  # fmt: skip


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_answered_in_words(slip: str) -> None:
    call, said = SLIPS[slip]
    with pytest.raises(ra.ExpressionError) as caught:
        call()
    assert said in str(caught.value)


CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "an option": (lambda: fused(x=torch.ones(2, 2), chek=True), ra.InputError, "Did you mean check?"),
    "a device": (lambda: fused(x=torch.ones(2, 2), device="cuda"), ra.InputError, "it runs where its tensors lie"),
    "by position": (lambda: fused(torch.ones(2, 2)), ra.InputError, "Pass them by keyword, as in `fused(x=…)`."),
    "no rows": (lambda: fused(x=torch.ones(2)), ra.InputError, "but `x[b, n]` needs 2"),
    "source of nothing": (lambda: fused.source("c"), ra.InputError, 'Pass sizes={"b": …, "n": …}.'),
    "sizes of text": (lambda: fused.source(sizes={"b": "2", "n": 8}), ra.InputError, "give every axis a positive int"),
    "no such axis": (
        lambda: fused.source(sizes={"b": 2, "n": 8, "m": 3}),
        ra.InputError,
        "has no axis m; the axes are",
    ),
    "dtype=": (lambda: fused.source(sizes={"b": 2, "n": 8}, dtype="half"), ra.InputError, "Did you mean dtypes?"),
    "block_q=": (lambda: fused.source(sizes={"b": 2, "n": 8}, block_q=8), ra.InputError, "are fields of a plan"),
    "sm_90": (lambda: fused.source("sm_90", sizes={"b": 2, "n": 8}), ra.PlanError, "Did you mean sm_90a?"),
    "sm_100": (
        lambda: fused.source("sm_100", sizes={"b": 2, "n": 8}),
        ra.PlanError,
        "'sm_100' is not known. Use one of",
    ),
    "a card for sizes": (lambda: fused.plans("H100"), ra.InputError, "Or do you mean device='H100'?"),
    "a peer without a name": (
        lambda: fused.compare(torch.sum, sizes={"b": 2, "n": 2}),
        ra.InputError,
        "peers={'mine': f}",
    ),
    "cuda": (lambda: fused.source("cuda", sizes={"b": 2, "n": 8}), ra.PlanError, 'name yours, such as "H100"'),
    "leaf of a tensor": (lambda: fused.leaf(torch.ones(2, 2)), ra.InputError, 'by name: `leaf({"x": …})`'),
    "leaf by keywords": (lambda: fused.leaf(x=torch.ones(2, 2)), ra.InputError, 'write `leaf({"x": …})`.'),
    "leaf of nothing": (fused.leaf, ra.InputError, '`tensors` is missing. Write `leaf({"x": …})`.'),
    "leaf's option": (lambda: fused.leaf({}, strat={}), ra.InputError, "no option `strat`. Did you mean start?"),
    "update of nothing": (lambda: fused.update({}), ra.InputError, 'Write `update(state, {"x": …})`.'),
    "update's groups": (lambda: fused.update({}, {}, groups=2), ra.InputError, "no option `groups`. It takes state,"),
    "start of an int": (lambda: fused.leaf({"x": torch.ones(2, 2)}, start=3), ra.InputError, "Write start={n: 3}"),
    "update by an array": (lambda: fused.update(None, np.ones(2)), ra.InputError, '`update(state, {"x": …})`'),
    "integers": (lambda: fused(x=np.ones((1, 2), np.int32)), ra.InputError, '`x.astype("float64")`'),
    "words": (lambda: fused(x=np.array([["a"]])), ra.InputError, "is <U1, which is no number."),
    "an unknown shape": (
        lambda: ra.fuse(ra.sum(ra.Tensor("y")[b, n // 2], n), axes="b").plans({"b": 1, "n": 8}, "float32", "H100"),
        ra.InputError,
        'Pass shapes={"y": (…)}.',
    ),
    "a card": (lambda: fused.plan({"b": 1, "n": 9}, "float32", "RTX 3090"), ra.PlanError, "sm_86 for 8.6"),
    "sizes by keyword": (lambda: fused.bench(b=4), ra.InputError, 'write `bench(sizes={"b": 4})`.'),
    "sizes beside a card": (
        lambda: fused.lower("c", b=4, n=8),
        ra.InputError,
        'write `lower(…, sizes={"b": 4, "n": 8})`. The options are plan,',
    ),
    "sizes of rows": (lambda: fused.expand(None, b=4), ra.InputError, 'write `expand(state, sizes={"b": 4})`.'),
    "sizes of a call": (lambda: fused(x=np.ones((1, 2)), b=1), ra.InputError, 'write sizes={"b": …}.'),
    "sizes as a tensor": (lambda: fused.bench(torch.ones(2)), ra.InputError, "sizes=a Tensor gives no axis a size."),
    "a card first": (
        lambda: fused.plans("H200", {"b": 4}, {"x": "float32"}),
        ra.InputError,
        "Write `plans({'b': 4}, {'x': 'float32'}, \"H200\")`.",
    ),
    "a card for a dtype": (lambda: fused.plans({"b": 4, "n": 8}, "H200"), ra.InputError, "H200 is a card: pass it by"),
    "sizes for a card": (lambda: fused.compile({"b": 4}), ra.InputError, "target={'b': 4} is the name of no card."),
    "tensors by keyword": (lambda: fused.accuracy(x=x), ra.InputError, 'write `accuracy(data={"x": …})`.'),
    "tensors of finish": (lambda: fused.finish(None, np.ones(2)), ra.InputError, '`finish(state, {"x": …})`'),
    "a gradient by an array": (lambda: fused.vjp(np.ones(2)), ra.InputError, 'as in `vjp(["x"])`.'),
    "gradients apart": (lambda: fused.vjp("x", "y"), ra.InputError, "write `vjp(['x', 'y'])`."),
    "a path": (lambda: fused.draw("x.svg"), ra.InputError, "write `draw().save('x.svg')`."),
    "a path by name": (lambda: fused.to_json(path="f.json"), ra.InputError, "`Path('f.json').write_text(to_json())`"),
    "a dtype by its place": (lambda: fused.accuracy({}, "half"), ra.InputError, "Write `dtypes='half'`."),
    "a card by its place": (lambda: fused.plan("H100", sizes={}), ra.InputError, "is given twice, as 'H100' by its"),
    "a card by another name": (lambda: fused.plan(target="H100"), ra.InputError, "write `device='H100'`."),
    "no card": (lambda: fused.lower(sizes={}), ra.InputError, 'Write `lower("H100", sizes={"b": …, "n": …})`.'),
    "too much": (lambda: fused.draw(2), ra.InputError, "draw: 2 is one argument too many. It takes no arguments."),
    "no cotangents": (lambda: any_.fuse(x).vjp()(x=1), ra.InputError, "Write `backward(cotangents)`."),
    "a state of a state": (lambda: any_.State.from_state_dict(3), ra.InputError, "should be a dict, not a int."),
    "a level's axis": (lambda: any_.Grid(b=3), ra.PlanError, "Grid: there is no option `b`. It takes axis, tile."),
    "a size of an axis": (lambda: any_.axes("n", size=4), ra.ExpressionError, 'Write `ra.axis("j", size=4)`.'),
    "scalars apart": (lambda: any_.scalars("a", "b"), ra.ExpressionError, 'Write `ra.scalars("scale eps")`.'),
    "a number of a scalar": (
        lambda: any_.scalars("a", value=3),
        ra.ExpressionError,
        "scalars: there is no assumption `value`.",
    ),
    "a size of a pattern": (
        lambda: any_.library.variance(b=3),
        ra.ExpressionError,
        "write `library.variance()(…)`.",
    ),
    "a section of a number": (
        lambda: fused.explain(3),
        ra.InputError,
        "should be a str, a list of str or None",
    ),
    "a place of text": (lambda: PLANS["a"], ra.InputError, "place='a' should be an int or a slice, not a str."),
    "rows of text": (lambda: PLANS.table("3"), ra.InputError, "table: most='3' should be an int or None, not a str."),
    "shapes of a number": (lambda: fused.plans({}, shapes=3), ra.InputError, 'Write `shapes={"x": (64, 4096)}`.'),
    "a shape of a number": (lambda: fused.plans({}, shapes={"x": 3}), ra.InputError, "`x` has 2 dimensions. Give a"),
    "a list for a card": (
        lambda: fused.lower(["c"], KNOWN),
        ra.InputError,
        "target=['c'] should be a str, not a",
    ),
    "no path": (lambda: fused.save(None, "c", KNOWN), ra.InputError, "save: path=None should be a str or a path."),
    "a budget of text": (lambda: fused.tune(x=1, budget_s="3"), ra.InputError, "budget_s='3' should be a number, not"),
    "a tensor by its element": (lambda: fused.leaf({x: 1}), ra.InputError, '`leaf({"x": …})`'),
    "states of no function": (lambda: fused.expand(STATE, {"b": 3}, of=3), ra.InputError, "of=3 should be a Streaming"),
    "a size below 0": (lambda: fused.empty_state({"b": -3}), ra.InputError, "axis b should be a non-negative int"),
    "a size of a drawing": (lambda: fused.accuracy({"b": -3}), ra.InputError, "a non-negative int, not -3."),
    "no such device": (lambda: fused.empty_state({"b": 3}, device="gpu"), ra.InputError, 'such as "cpu" or "cuda".'),
    "data of a number": (lambda: fused.accuracy(data=3), ra.InputError, "data=3 should be a dict"),
    "families of a number": (lambda: fused.accuracy(KNOWN, families=3), ra.InputError, "should be a list of str or"),
    "a peer by a number": (lambda: fused.compare({3: max}, sizes=KNOWN), ra.InputError, "peers={'mine': f}"),
    "no such backend": (lambda: fused.bench(KNOWN, backend=[3]), ra.BackendError, "backend=3 is not known."),
    "plans in a list": (
        lambda: fused(x=torch.ones(2, 8), plan=[], backend="tilelang"),
        ra.InputError,
        "plan= should be a `Schedule`, not a list.",
    ),
    "rows of many lengths": (
        lambda: fused(x=torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
        ra.InputError,
        "tensor `x` is nested, and redalg reads rows of one length.",
    ),
    "a module's": (lambda: fused.to("cuda"), AttributeError, "`as_module` makes a module."),
    "backward": (lambda: fused.backward(x), AttributeError, "or derive its backward by `vjp`."),
    "sizes of an array": (
        lambda: fused.source("c", {"n": np.ones(2)}),
        ra.InputError,
        "the size of an axis is a whole",
    ),
    "a size that is declared": (
        lambda: SIZED.source("H100", {"b": 2, "t": 8}, "float32"),
        ra.InputError,
        "source: sizes gives axis t the size 8, and it is declared with 4. Leave it out.",
    ),
    "shapes of another": (
        lambda: fused.plans(KNOWN, shapes={"X": (2, 8)}),
        ra.InputError,
        "plans: shapes={'X': …}: the function has no tensor `X`. Did you mean x? It has x.",
    ),
    "dtypes of another": (lambda: fused.bench(KNOWN, dtypes={"X": "half"}), ra.InputError, "Did you mean x? It has x."),
    "shapes in a bench": (lambda: fused.bench(KNOWN, shapes={"y": (1,)}), ra.InputError, "the function has no tensor"),
    "dtypes of a backward": (
        lambda: fused.vjp().source("H100", KNOWN, {"X": "half"}),
        ra.InputError,
        "source: dtypes={'X': …}: the function has no tensor `X`. Did you mean x?",
    ),
    "no dtypes": (lambda: fused.jvp().source("H100", KNOWN, {}), ra.InputError, "the dtypes of tensors x are missing."),
    "a flag": (lambda: fused(x=np.ones((2, 8)), check="no"), ra.InputError, "check='no' should be True or False."),
    "an assumption": (lambda: any_.scalars("a", positive=3), ra.ExpressionError, "positive=3 should be True or False."),
    "nothing to sum": (any_.sum, ra.ExpressionError, "sum: `expr` is missing. Write `ra.sum(x, n)`."),
    "a number of a loss": (
        lambda: any_.library.focal_loss("two"),
        ra.ExpressionError,
        "library.focal_loss: gamma='two' cannot stand in its expression",
    ),
    "an accuracy of none": (lambda: fused.accuracy(KNOWN, dtypes=[]), ra.InputError, "dtypes=[] names no dtype."),
    "a backend of accuracy": (lambda: fused.accuracy(KNOWN, backend="gpu"), ra.BackendError, "'gpu' is not known."),
    "a family": (lambda: fused.accuracy(KNOWN, families=["hug"]), ra.InputError, "no family 'hug'. Did you mean huge?"),
    "rows without numbers": (
        lambda: fused.take(STATE, torch.ones(2, device="meta"), "b"),
        ra.InputError,
        "take: rows=a Tensor are no rows.",
    ),
    "data without numbers": (
        lambda: fused.accuracy(data={"x": torch.ones(2, 8, device="meta")}),
        ra.InputError,
        "on meta has no numbers to compare",
    ),
    "an index of truth values": (
        lambda: ra.fuse(ra.sum(ra.Tensor("x")[ra.tensor("i[n]")], n))(x=np.ones(2), i=np.ones(3, bool)),
        ra.InputError,
        "index `i[n]` holds truth values. Index by integers",
    ),
    "a near pivot": (lambda: fused.pivots["c0"], KeyError, "no pivot is named 'c0'. Did you mean c_0?"),
    "a near slot": (lambda: STATE.slots["cnt"], KeyError, "no slot is named 'cnt'. Did you mean count?"),
    "a near name": (lambda: fused.expalin("cost"), AttributeError, "Fused has no `expalin`. Did you mean explain"),
    "a near reduction": (lambda: fused.g["sum_9"], KeyError, "There are count, sum_0, sum_1."),
    "a near pattern": (lambda: any_.library.atention, AttributeError, "Did you mean attention?"),
    "a near function": (lambda: any_.meen, AttributeError, "redalg has no `meen`. Did you mean mean?"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("slip", CALLS)
def test_a_slip_at_a_call_is_answered_in_words(slip: str) -> None:
    call, kind, said = CALLS[slip]
    with pytest.raises(kind) as caught:
        call()
    assert said in str(caught.value)


VALUES = (
    fused, fused.vjp(), fused.jvp(), fused.draw(), ra.analyze(ra.var(x, n)), fused.leaf({"x": np.ones((1, 2))}),
    ra.Schedule(ra.Whole("n", 4), ra.Lanes("n", 4)), fused.accuracy({"b": 2, "n": 8}, families=[]),
)  # fmt: skip
FUNCTIONS = [one for name in ra.__all__ if callable(one := getattr(ra, name)) and not isinstance(one, type)]
FUNCTIONS += [ra.Tensor, ra.Grid, ra.Loop, ra.Lanes, ra.library.variance, ra.library.attention]


def test_no_method_answers_by_pythons_own_error() -> None:
    """Whatever takes no option of any name refuses one by an error of redalg."""
    names = [(value, name) for value in VALUES for name in dir(type(value)) if name[0] != "_"]
    methods = [getattr(value, name) for value, name in names if callable(getattr(type(value), name))]
    asked = [one for one in (*methods, *FUNCTIONS) if one.__module__.startswith("redalg")]
    assert len(asked) > 80
    for method in asked:
        with pytest.raises(ra.RedalgError):
            method(no_such_option=1)


def test_an_error_stays_where_the_arguments_fit() -> None:
    """Words about an argument are for one of another kind alone; the error of a wrong place or file is Python's own."""
    with pytest.raises(IndexError):
        PLANS[10**6]
    with pytest.raises(OSError, match="No such file"):
        fused.save("/no/such/folder/x.py", "c", KNOWN, "float32")
    with pytest.raises(ZeroDivisionError):
        any_.library.attention(score=lambda s: 1 / 0)


def test_sizes_stand_where_other_methods_have_them() -> None:
    sizes = {"b": 2, "n": 8}
    assert fused.source("c", sizes, "float32") == fused.source("c", sizes=sizes, dtypes="float32")
    tables = [fused.bench(*given, device="cpu", backend="torch", **named) for given, named in (
        ([sizes], {}), ([], {"sizes": sizes}), ([[sizes]], {}))]  # fmt: skip
    assert len({tuple(row.title for row in table.rows) for table in tables}) == 1


def test_dir_lists_what_is_imported_later() -> None:
    assert {*ra.__all__, "data", "library", "optimize"} <= {*dir(ra)}


def test_dtypes_of_every_library_are_read() -> None:
    sizes, spellings = {"b": 2, "n": 8}, ("half", "fp16", "torch.float16", torch.float16, np.float16)
    assert len({VARIANCE.source("c", sizes=sizes, dtypes=dtype) for dtype in spellings}) == 1
    assert len({ra.cast(x, dtype) for dtype in spellings}) == 1


def test_gradients_are_asked_for_by_elements_and_by_names() -> None:
    assert str(VARIANCE.vjp(x)) == str(VARIANCE.vjp("x")) == str(VARIANCE.vjp(["x"]))


def test_numbers_of_array_libraries_are_numbers() -> None:
    two = np.float32(2)
    assert [two * x, two + x] == [2.0 * x, 2.0 + x]
    assert str(x * two) == str(2.0 * x)
    assert (np.float64(0) < x) == (x > np.float64(0))
    assert abs(x) == np.abs(x)


def test_expressions_are_as_others_to_what_asks_for_attributes() -> None:
    """What looks for an attribute or tries to iterate finds an expression without them, by Python's own errors."""
    assert not any(hasattr(x, name) for name in ("shape", "dtype", "T", "no_such_name", "__iter__"))
    assert not isinstance(x, Iterable)
    with pytest.raises(AttributeError, match="no_such_name"):
        x.no_such_name  # noqa: B018
    with pytest.raises(TypeError):
        iter(x).__next__()
    assert np.array([x, y]).shape == (2,)
    assert Matrix([x, y]).shape == (2, 1)
    assert x % 2 == Mod(x, 2)
    assert pickle.loads(pickle.dumps(x)) == x


def test_the_truth_of_other_conditions_is_sympys_own() -> None:
    with pytest.raises(TypeError, match="truth value of Relational"):
        bool(Symbol("z") > 0)
    assert (Symbol("z") > 0) & (Symbol("z") < 5)
    with pytest.raises(TypeError, match="Combine conditions"):
        bool(Add(exp(x), 1) > y)
