"""The surface around a call: gradient modes, libraries that are missing, spellings of other libraries, sugar."""

import importlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Max

import redalg as ra
from redalg import verdicts
from tests.cases.refusals import Case, each
from tests.cases.reviews import VALUES

b, n = ra.axes("b n")
j = ra.axis("j", size=2)
x, y, s = ra.tensors("x[b,n] y[b,n] s[b,n]")
q = ra.tensor("q[n]")
weighted = ra.fuse(ra.sum(x * ra.tensor("w[n]"), n))
DATA = np.random.default_rng(0).normal(size=(3, 6))
T, W = torch.from_numpy(DATA), torch.nn.Parameter(torch.arange(6.0).double())
any_: Any = ra


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("backend", ["torch", "numpy", "tilelang"])
def test_where_no_gradient_is_recorded_a_parameter_is_a_tensor(mode: Any, backend: str) -> None:
    want = DATA @ np.arange(6.0)
    with mode():
        for _ in range(2):  # prepared, then known
            np.testing.assert_allclose(weighted(x=T, w=W, backend=backend).numpy(), want, rtol=1e-14)
        state = weighted.merge(weighted.leaf({"x": T, "w": W}), weighted.empty_state({b: 3}, "float64"))
        np.testing.assert_allclose(weighted.finish(state).numpy(), want, rtol=1e-14)
        np.testing.assert_allclose(weighted.reference(x=T, w=W).numpy(), want, rtol=1e-14)
    with pytest.raises(ra.InputError, match="requires a gradient"):
        weighted.leaf({"x": T, "w": W})
    assert weighted(x=T, w=W, backend=backend).requires_grad


def test_an_output_may_hold_a_parameter() -> None:
    scaled = ra.fuse(ra.normalize(x, n) * ra.tensor("w[n]"))
    with torch.no_grad():
        got = scaled.finish(scaled.leaf({"x": T, "w": W}), {"x": T, "w": W})
    np.testing.assert_allclose(got.numpy(), DATA / np.linalg.norm(DATA, axis=1)[:, None] * np.arange(6.0), rtol=1e-14)


# ---- libraries -------------------------------------------------------------------------------------------------------

WITHOUT_TORCH = """
import sys
sys.modules |= dict.fromkeys(("torch", "tilelang", "matplotlib", "transformers"))
import numpy as np
import redalg.torch, redalg as ra
x, n = ra.tensor("x[b,n]"), ra.axes("n")
variance = ra.fuse(ra.var(x, n))
data = np.array([[1.0, 2.0, 6.0]])
print(variance(x=data), variance.finish(variance.leaf({"x": data})))
for call in (
    lambda: variance(x=data, backend="torch"), lambda: variance(x=data, backend="tilelang"),
    lambda: variance.empty_state({"b": 1}), variance.compare, variance.bench, variance.as_module, variance.distributed,
    variance.leaf({"x": data}).state_dict, lambda: ra.optimize, lambda: redalg.torch.explain,
    ra.library.register_with_transformers, variance.accuracy(families=["ordinary"], sizes={"b": 1, "n": 8}).plot,
):
    try:
        call()
    except ra.BackendError as error:
        print(error)
"""


def test_numpy_input_runs_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=True,
                          env=dict(os.environ))  # fmt: skip
    missing, install = "needs torch, which is not installed.", 'Run: pip install "redalg[torch]"'
    callers = "compare", "bench", "as_module", "distributed", "a state in torch", "optimize", "explain"
    assert done.stdout.splitlines() == [
        "[4.66666667] [4.66666667]",
        f'backend="torch" {missing} Install it (`pip install "redalg[torch]"`), or pass backend="numpy".',
        (
            'backend="tilelang" needs torch to hold its tensors, and torch is not installed. Install both '
            '(`pip install "redalg[tilelang]"`), or pass backend="numpy".'
        ),
        f'empty_state: library="torch" {missing} Pass library="numpy".',
        *(f"{caller} {missing} {install}" for caller in (*callers, "register_with_transformers")),
        'plot needs matplotlib, which is not installed. Run: pip install "redalg[plot]"',
    ]


def test_the_library_is_there_when_it_is_asked_for() -> None:
    code = "import sys, redalg as ra; print('redalg.library' in sys.modules, callable(ra.library.attention))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == \
        "False True\n"  # fmt: skip
    assert importlib.import_module("redalg").library is sys.modules["redalg.library"]


def test_meta_tensors_run_on_the_torch_backend() -> None:
    got = weighted(x=T.to("meta"), w=W.detach().to("meta"))
    assert (got.device.type, tuple(got.shape)) == ("meta", (3,))


# ---- sugar -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
@pytest.mark.parametrize("correction", [0, 1, 1.5])
def test_correction(correction: float, backend: str) -> None:
    pair = np.stack([DATA[0], DATA[1] + 1e4])
    fused = ra.fuse({
        "var": ra.var(x, n, correction=correction),
        "std": ra.std(x, n, correction=correction),
        "covariance": ra.covariance(x, q, n, correction=correction),
    })  # fmt: skip
    got = fused(x=pair, q=DATA[2], backend=backend)
    divisor = 6 - correction
    np.testing.assert_allclose(got.var, pair.var(1) * 6 / divisor, rtol=1e-10)
    np.testing.assert_allclose(got.std, pair.std(1) * np.sqrt(6 / divisor), rtol=1e-10)
    centred = (pair - pair.mean(1)[:, None]) * (DATA[2] - DATA[2].mean())
    np.testing.assert_allclose(got.covariance, centred.sum(1) / divisor, rtol=1e-8)


def test_correction_of_too_few_elements_is_that_of_torch() -> None:
    sample = ra.fuse(ra.var(x, n, correction=1))
    assert torch.isnan(sample(x=T[:, :1])).all()
    assert torch.isnan(sample(x=T[:, :0])).all()
    torch.testing.assert_close(sample(x=T), torch.var(T, 1, correction=1))


def test_correction_zero_is_the_text_that_it_was() -> None:
    assert ra.var(x, n, correction=0) == ra.var(x, n) == ra.mean((x - ra.mean(x, n)) ** 2, n)


# ---- raw errors that were --------------------------------------------------------------------------------------------

ODD = (
    "S5, product of shares",
    "K2, argmax of a row's tensor",
    "K2, argmin of it",
    "K2, topk values of it",
    "K2, topk of it",
    "S5, sum at a maximum of a clip of indicators",
)


@pytest.mark.parametrize("name", ODD)
def test_odd_cascades_merge(name: str) -> None:
    row = VALUES[name]
    fused, data = ra.fuse(row.expr, axes=row.axes), row.arrays(np.float64)
    parts = [fused.leaf({key: one[..., i:k] for key, one in data.items()}, start={n: i}) for i, k in ((0, 2), (2, 17))]
    want = fused.reference(**data)
    np.testing.assert_allclose(fused.finish(fused.merge(*parts)), want, rtol=1e-12)
    np.testing.assert_allclose(fused(**data), want, rtol=1e-12)


@pytest.mark.parametrize("expr", [
    ra.sum_at_max(s, Max(x, ra.max(ra.where(y > 0, 1, 0), n)), n),
    ra.sum_at_max(s, Max(0, ra.any(y > 0, n) * x), n),
    ra.affine(x * ra.max(ra.where(y > 0, 1, 0), n), s, n)[1],
])  # fmt: skip
def test_odd_cascades_have_a_verdict(expr: Any) -> None:
    assert type(ra.analyze(expr)).__name__ in ("Exact", "Undecided", "Refused")


REFUSED: dict[str, Case] = {
    "a meta tensor": Case(
        lambda: weighted(x=T.to("meta"), w=W.detach().to("meta"), backend="tilelang"),
        ra.InputError,
        'backend="tilelang": the tensors w, x lie on meta, and kernels run on cpu and cuda. Move them there, or pass '
        'backend="torch".',
    ),
    "a list": Case(
        lambda: ra.fuse([ra.sum(x, n), ra.max(x, n)]),
        ra.ExpressionError,
        'several outputs are given as a list. Give them names, in a dict: `ra.fuse({"a": first, "b": second})`, or '
        '`{"a": (first, "b h q"), …}` with their axes.',
    ),
    "a tensor": Case(
        lambda: ra.fuse(T),
        ra.ExpressionError,
        "a torch.Tensor is given, not an expression. Write the expression with tensor elements, such as "
        '`ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))`, and pass arrays when the result is called.',
    ),
    "an array": Case(
        lambda: ra.fuse(DATA),
        ra.ExpressionError,
        "a numpy.ndarray is given, not an expression. Write the expression with tensor elements, such as "
        '`ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))`, and pass arrays when the result is called.',
    ),
    "a fused cascade": Case(
        lambda: ra.fuse(weighted),
        ra.ExpressionError,
        "what `fuse` gave is given to it again. Call it with tensors; to go on from it, name its result as a tensor, "
        'as in `ra.tensor("y[b]")`, or write both expressions as one.',
    ),
    "nothing": Case(
        lambda: ra.fuse(None),
        ra.ExpressionError,
        "`None` is a NoneType, not an expression of tensor elements. Build one from `ra.tensors`, such as "
        "`ra.sum(x * y, n)`.",
    ),
    "axis=": Case(
        lambda: ra.mean(x, axis=n),
        ra.ExpressionError,
        'mean: there is no option `axis`. Axes follow the term: write `ra.mean(x, n)` with `n = ra.axes("n")`.',
    ),
    "dim=": Case(
        lambda: ra.sum(x, dim=-1),
        ra.ExpressionError,
        'sum: there is no option `dim`. Axes follow the term: write `ra.sum(x, n)` with `n = ra.axes("n")`.',
    ),
    "ddof=": Case(
        lambda: ra.var(x, n, ddof=1),
        ra.ExpressionError,
        "var: there is no option `ddof`. Write `ra.var(…, correction=1)` to divide by n - 1, and leave it out to "
        "divide by n.",
    ),
    "keepdims=": Case(
        lambda: ra.max(x, n, keepdims=True),
        ra.ExpressionError,
        "max: there is no option `keepdims`. A reduction has no dimension of its axes, and stands beside terms that "
        "have: nothing need be kept.",
    ),
    "another option": Case(
        lambda: ra.norm(x, n, ord=1),
        ra.ExpressionError,
        "norm: there is no option `ord`. Its options are p.",
    ),
    "SymPy's function": Case(
        lambda: any_.exp(x),
        AttributeError,
        "redalg has no `exp`. Functions of expressions are SymPy's: write `exp(x)`, with `from sympy import exp`.",
    ),
    "nobody's function": Case(
        lambda: any_.attend(x),
        AttributeError,
        "redalg has no `attend`.",
    ),
}


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()


def test_a_hint_can_be_followed() -> None:
    alpha, beta = ra.scalars("alpha"), ra.scalars("beta", positive=True)

    def decayed(base: Any) -> Any:
        return ra.sum(base ** (ra.max(x, n) - x), n)

    verdict = ra.analyze(decayed(1 - alpha))
    assert isinstance(verdict, verdicts.Undecided)
    assert verdict.hint.startswith(
        "Name it: write `beta` for `1 - alpha`, with `beta = ra.scalars('beta', positive=True)`, and pass its value at "
        "the call."
    )
    want = (0.75 ** (DATA.max(1)[:, None] - DATA)).sum(1)
    np.testing.assert_allclose(ra.fuse(decayed(beta))(x=DATA, beta=0.75), want, rtol=1e-12)
