"""Squares of two generators about a line, of exponentials too: scaled first, then taken from the line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sympy import Expr, exp, sqrt

import redalg as ra
from tests.cases.digits import LENGTH, ROWS, Case, in_pieces, measured, named_axes, normal, of, single
from tests.oracle import Oracle

b, n = ra.axes("b n")
x, y, w, s, t = ra.tensors("x[b,n] y[b,n] w[b,n] s[b,n] t[b,n]")
p, q = ra.softmax(s, n), ra.softmax(t, n)


def logits(spread: float, apart: float = 1e-3, offset: float = 0) -> dict[str, Any]:
    """s, and t within `apart` of it."""
    common = offset + spread * np.random.default_rng(7).standard_normal((ROWS, LENGTH))
    return {"s": lambda _: single(common), "t": lambda rng: single(common + apart * normal()(rng))}


SQUARES: dict[str, Callable[[], Expr]] = {
    "Σ(p − q)²": lambda: ra.sum((p - q) ** 2, n),
    "its root": lambda: sqrt(ra.sum((p - q) ** 2, n)),
    "its variance": lambda: ra.var(p - q, n),
    "without a maximum": lambda: ra.sum((exp(s) / ra.sum(exp(s), n) - exp(t) / ra.sum(exp(t), n)) ** 2, n),
    "of unlike scales": lambda: ra.sum(
        (exp(2 * s) / ra.sum(exp(2 * s), n) - exp(t) ** 2 / ra.sum(exp(2 * t), n)) ** 2, n
    ),
    "Hellinger": lambda: ra.sum((sqrt(p) - sqrt(q)) ** 2, n) / 2,
    "χ²": lambda: ra.sum((p - q) ** 2 / q, n),
    "masked": lambda: ra.sum(ra.where(s > 0, (p - q) ** 2, 0), n),
    "mean square": lambda: (
        ra.mean((exp(s) - exp(t) * ra.sum(exp(s), n) / ra.sum(exp(t), n)) ** 2, n) / ra.mean(exp(s), n) ** 2
    ),
}
WEIGHED: dict[str, Callable[[], Expr]] = {
    "weighed": lambda: ra.sum(w * (p - q) ** 2, n),
    "of products": lambda: ra.sum((w * p - w * q) ** 2, n),
}


def cases() -> list[Case]:
    made = list[Case]()
    for spread, offset in ((1, 0), (20, 0), (1, 1e3)):
        for name, term in (SQUARES | WEIGHED).items():
            if (name, spread) in (("χ²", 20), ("mean square", 20)) or (name == "masked" and spread == 1):
                continue  # the definition itself leaves float32's range; of near ones a mask by s > 0 hides none
            given = logits(spread, offset=offset, apart=1e-3 if offset == 0 else 0.1)
            given |= {"w": lambda rng: single(rng.uniform(1, 2, (ROWS, LENGTH)))} if name in WEIGHED else {}
            made.append(of(f"{name}, spread {spread}, at {offset:g}", term, **given))
    shares = {"s": normal(), "x": lambda rng: single(np.exp(normal()(rng)))}
    made.append(of("a softmax and shares", lambda: ra.sum((p - x / ra.sum(x, n)) ** 2, n), **shares))
    near = {"x": lambda rng: single(5 + normal()(rng)), "y": lambda rng: single(5 + normal()(rng))}
    moments = {name: (lambda rng, draw=draw: single(draw(np.random.default_rng(3)) + 1e-3 * normal()(rng)))
               for name, draw in near.items()}  # fmt: skip
    squares = lambda: ra.sum((x**2 / ra.sum(x**2, n) - y**2 / ra.sum(y**2, n)) ** 2, n)  # noqa: E731 - as a row
    return [*made, of("shares of squares", squares, **moments)]


COMPILED = {"Σ(p − q)², spread 20, at 0", "a softmax and shares"}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_square_of_two_keeps_the_digits_of_the_definition(case: Case) -> None:
    found = measured(case, kernel=case.name in COMPILED)
    assert not found.lost, found


@pytest.mark.slow
@pytest.mark.parametrize("case", [one for one in cases() if one.name not in COMPILED], ids=str)
def test_a_kernel_keeps_the_digits_of_the_definition(case: Case) -> None:
    found = measured(case, seed=1)
    assert not found.lost, found


@pytest.mark.parametrize("term", [*SQUARES.values(), *WEIGHED.values()], ids=[*SQUARES, *WEIGHED])
def test_in_float64_it_is_the_definition(term: Callable[[], Expr]) -> None:
    """Pieces have maxima of their own, far apart: some are scaled to 0."""
    rng = np.random.default_rng(0)
    trend = np.linspace(0, 60, 40)
    data = {"s": rng.standard_normal((2, 40)) + trend, "t": rng.standard_normal((2, 40)) + trend[::-1],
            "w": rng.uniform(1, 2, (2, 40))}  # fmt: skip
    made = ra.fuse(term(), axes="b")
    given = {name: one for name, one in data.items() if name in made.cascade.inputs()}
    want, bound = Oracle(given, {}, {"b": 2, "n": 40}).output(term(), "b")
    for got in (made(**given, backend="numpy"), in_pieces(made, given, named_axes(term(), given), n, 40, rng, parts=6)):
        assert (np.abs(got - want) <= 1e-9 * np.abs(want) + 64 * np.finfo(float).eps * bound).all()


def test_masked_logits_and_empty_pieces_count_for_nothing() -> None:
    made, rng = ra.fuse(SQUARES["Σ(p − q)²"](), axes="b"), np.random.default_rng(0)
    data = {name: rng.standard_normal((2, 12)) for name in "st"}
    for one in data.values():
        one[:, :5] = -np.inf
    want = made.reference(**{name: one[:, 5:] for name, one in data.items()})
    got = [made(**data), made(**data, backend="numpy")]
    states = [
        made.leaf({name: one[:, a:z] for name, one in data.items()}) for a, z in ((0, 3), (3, 7), (7, 7), (7, 12))
    ]
    first, second, third, last = states
    got.append(made.finish(made.merge(made.merge(first, third), made.merge(second, last))))
    for one in got:
        np.testing.assert_allclose(one, want, rtol=1e-12)


def test_no_slope_holds_a_tensor_which_a_state_lacks() -> None:
    """Σ_n a of a parameter a is a·|n|, so that a residual of w·Σ_n a has no slope that a merge could give."""
    a, c, w, x = ra.tensors("a[b] c[n] w[b,n] x[b,n]")
    made = ra.fuse(ra.sum((c + w * ra.sum(a * ra.sum(1, n), n) + x) ** 2, n), axes="b")
    data = {name: np.random.default_rng(0).random((2, 3)) for name in "wx"} | {"c": np.arange(3.0), "a": np.ones(2)}
    states = [made.leaf({"a": data["a"], **{name: data[name][..., k : k + 1] for name in "cwx"}}) for k in range(3)]
    np.testing.assert_allclose(made.finish(made.merge(*states), data), made.reference(**data), rtol=1e-12)
