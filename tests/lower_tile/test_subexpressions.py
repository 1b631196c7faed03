"""Common subexpressions: a program with them bound computes what it computed, and its text says nothing twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, And, Expr, Max, Min, Mod, Or, Rational, S, exp, log, sqrt

import redalg as ra
from redalg.errors import PlanError
from redalg.expression import Where
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Buffer, Kernel, Parallel, Parameter, Store, TileProgram, index
from redalg.lower_tile.ir.scalars import IsFinite, Load, ScaledExp
from redalg.lower_tile.passes import subexpressions
from redalg.lower_tile.passes.subexpressions import eliminate_common_subexpressions
from redalg.lower_tile.text.emit import Emitter
from tests.sweeps import draws

ROWS, COLUMNS = 4, 8
I, J, BLOCK = index("i"), index("j"), index("block")
TARGETS = (("spare", S.true), ("tile", S.true), ("again", S.true), ("spare", J > 1), ("out", J < COLUMNS - 1))
"""The targets of a loop's last stores, and where they store."""
READS = (Load("tile", I, J), Load("row", I), Load("x", I, J), Load("w", J), Load("s"))
PAIRS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / (1 + b**2), Max, Min,
    lambda a, b: Where(a > b, a, b), lambda a, b: Where(IsFinite(a * b), b - a, a),
    lambda a, b: ScaledExp(-(a**2), b**2, S.Half),
    lambda a, b: Where(J < 5, a * b, S.Zero), lambda a, b: Where(And(a > b, Or(b > 1, a < -1)), a, b - a),
)  # fmt: skip
MAPS: tuple[Callable[[Any], Any], ...] = (
    lambda a: a**2, lambda a: exp(-(a**2)), lambda a: sqrt(1 + a**2), lambda a: log(2 + a**2), Abs, lambda a: -a,
    lambda a: a**3 / (1 + a**4), lambda a: 1 / (2 + a**2), lambda a: a / sqrt(1 + a**2), lambda a: 2 - 3 * a,
    lambda a: (1 + a**2) ** Rational(-3, 2),
)  # fmt: skip


def expressions() -> st.SearchStrategy[Expr]:
    """Expressions of buffers, memory and a number, in which parts stand more than once."""
    leaves: st.SearchStrategy[Any] = st.sampled_from(READS)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda f, a: f(a), st.sampled_from(MAPS), inner),
            st.builds(lambda f, a, b: f(a, b), st.sampled_from(PAIRS), inner, inner),
            st.builds(lambda f, g, a: f(g(a), a), st.sampled_from(PAIRS), st.sampled_from(MAPS), inner),
        ),
        max_leaves=6,
    )


def program(*exprs: Expr) -> TileProgram:
    """A program whose last loop stores expressions, one after the other, the last where it is asked for."""
    parameters = (
        Parameter("x", (ROWS, COLUMNS), "float64", "input", "x"),
        Parameter("w", (COLUMNS,), "float32", "input", "w"),
        Parameter("s", (), "float64", "scalar", "s"),
        Parameter("out", (ROWS, COLUMNS), "float64", "output", "out"),
    )
    whole = ((I, ROWS), (J, COLUMNS))
    body = (
        Parallel(((I, ROWS),), (Store("row", (I,), Load("x", I, I) + 1),)),
        Parallel(whole, (Store("tile", (I, J), Load("x", I, J) * Load("w", J)),)),
        Parallel(
            whole,
            tuple(
                Store(name, (I, J), expr, guard)
                for (name, guard), expr in zip(TARGETS[-len(exprs) :], exprs, strict=True)
            ),
        ),
    )
    tiles = tuple(Buffer(name, "fragment", (ROWS, COLUMNS), "float64") for name in ("tile", "again", "spare"))
    buffers = (Buffer("row", "fragment", (ROWS,), "float64"), *tiles)
    return TileProgram("p", parameters, (Kernel(((BLOCK, 1),), buffers, body, "test"),), "float64")


def data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(ROWS, COLUMNS)), "w": rng.normal(size=COLUMNS).astype("f"), "s": 0.7}


class T:
    """What a text calls, on numbers."""

    exp, exp2, log, sqrt, isnan, pow = np.exp, np.exp2, np.log, np.sqrt, np.isnan, np.power
    rsqrt = staticmethod(lambda x: 1 / np.sqrt(x))
    max, min = np.maximum, np.minimum

    @staticmethod
    def if_then_else(condition: Any, a: Any, b: Any) -> Any:
        return a if condition else b

    @staticmethod
    def infinity(_: str) -> float:
        return np.inf

    @staticmethod
    def cast(value: Any, _: str) -> Any:
        return np.float64(value)


def last_loop(one: TileProgram) -> Parallel:
    loop = one.kernels[0].body[-1]
    assert isinstance(loop, Parallel)
    return loop


def last_store(one: TileProgram) -> Store:
    return last_loop(one).body[-1]


def lines(one: TileProgram) -> list[str]:
    """The text of the last loop's body."""
    return [line.removeprefix("    ") for line in Emitter(one).parallel(last_loop(one))[1:]]


def run(text: list[str]) -> np.ndarray:
    """What a store's text gives."""
    known = data()
    names = {
        "T": T,
        "constant": float,
        "is_finite": np.isfinite,
        "is_infinite": np.isinf,
        **known,
        "again": np.zeros((ROWS, COLUMNS)),
        "spare": np.zeros((ROWS, COLUMNS)),
        "out": np.full((ROWS, COLUMNS), np.nan),
        "tile": known["x"] * known["w"],
    }
    names["row"] = known["x"][:, :ROWS].diagonal() + 1
    code = compile("\n".join(text), "<text>", "exec")
    with np.errstate(all="ignore"):
        for names["i"] in range(ROWS):
            for names["j"] in range(COLUMNS):
                exec(code, names)
    made: np.ndarray = names["out"]
    return made


@given(expressions())
@settings(max_examples=draws(200))
def test_what_is_bound_changes_nothing(expr: Expr) -> None:
    """x[i, j] = f(g, g)  →  g₁ = g;  x[i, j] = f(g₁, g₁), to the last bit."""
    kept(expr)


@given(st.lists(expressions(), min_size=1, max_size=2), st.lists(st.sampled_from(PAIRS), min_size=3, max_size=3))
@settings(max_examples=draws(200))
def test_a_name_in_a_loop_changes_nothing(drawn: list[Expr], pairs: list[Any]) -> None:
    """x[i, j] = f(g); y[i, j] = h(g)  →  g₁ = g;  x[i, j] = f(g₁); y[i, j] = h(g₁), to the last bit.

    The stores between overwrite what `g` reads, or read again what was stored.
    """
    first, second = drawn[0], drawn[-1]
    f, g, h = pairs
    spare, again = Load("spare", I, J), Load("again", I, J)
    kept(f(first, second), g(first, second), first, h(second, spare), f(g(first, again), h(second, spare)))


def kept(*exprs: Expr) -> None:
    before, after = program(*exprs), eliminate_common_subexpressions(program(*exprs))
    verify(after)
    np.testing.assert_array_equal(run(lines(after)), run(lines(before)))
    np.testing.assert_array_equal(interpret(after, data())["out"], interpret(before, data())["out"])
    np.testing.assert_allclose(run(lines(after)), interpret(after, data())["out"], rtol=1e-9, atol=1e-9)


@given(expressions())
@settings(max_examples=draws(200))
def test_every_bound_number_is_read_again(expr: Expr) -> None:
    one = eliminate_common_subexpressions(program(expr, expr))
    text = re.sub(r"is_finite\((\w+)\)", r"\1 < inf, -\1 < inf", "\n".join(lines(one)))  # as the function reads it
    for store in last_loop(one).body:
        for name, _ in store.once:
            assert len(re.findall(rf"\b{name}\b", text)) > 2


def bound(expr: Expr) -> list[Expr]:
    return [node for _, node in last_store(eliminate_common_subexpressions(program(expr))).once]


TILE, WEIGHT = READS[0], READS[3]


def test_a_reciprocal_is_divided_by() -> None:
    """a·(1/b) would be rounded twice: b is bound, 1/b is not."""
    below = 1 + exp(TILE) * TILE
    assert bound(TILE / below - READS[1] / below) == [below]


def test_memory_is_not_read_for_a_branch_that_data_may_not_take() -> None:
    large = exp(WEIGHT) * WEIGHT + 1
    assert not bound(Where(TILE > 0, large**2, S.Zero))
    assert bound(Where(J < 5, large**2, S.Zero))  # outside, and inside of the tensor too, it is there to be read
    assert bound(Where(TILE > 0, (exp(TILE) * TILE + 1) ** 2, S.Zero))


def test_indices_are_no_numbers_of_their_own() -> None:
    far = 3 * J + I + Mod(J, 3) * Mod(I, 2) + Mod(I + J, 3)
    assert not bound(Where(far < 100, TILE, far + far * TILE))


def test_conditions_of_several_have_names() -> None:
    """Of what a thread holds: one that reads memory may guard the read."""
    several, memory = And(TILE > 1, Or(TILE > 3, READS[1] < 0)), And(TILE > 1, READS[2] > 0)
    assert several in bound(Where(several, TILE, READS[1]) / Where(several, READS[1], TILE))
    assert memory not in bound(Where(memory, TILE, READS[1]) / Where(memory, READS[1], TILE))


@pytest.mark.parametrize(("steps", "most"), [(10, 2 * 10**4), pytest.param(12, 10**5, marks=pytest.mark.slow)])
def test_chains_of_choices_grow_with_their_length_alone(monkeypatch: pytest.MonkeyPatch, steps: int, most: int) -> None:
    """Written out they double with every choice, which TileLang's own passes do not end with."""
    expr: Expr = TILE
    for step in range(steps):
        expr = Where(expr > step, expr, exp(expr) * READS[1])
    assert len(str(eliminate_common_subexpressions(program(expr)))) < 2000
    monkeypatch.setattr(subexpressions, "OFTEN", 10**9)
    assert len(str(eliminate_common_subexpressions(program(expr)))) > most


@pytest.mark.parametrize("name", ["tile", "x", "a"])
def test_a_name_is_of_one_thing(name: str) -> None:
    one = program(TILE)
    kernel = one.kernels[0]
    store = Store("out", (I, J), exp(TILE) + TILE**2, once=((name, exp(TILE)), ("a", TILE**2)))
    body = (Parallel(((I, ROWS), (J, COLUMNS)), (store,)),)
    with pytest.raises(PlanError, match=f"`{name}` names what is computed once, and something else"):
        verify(TileProgram("p", one.parameters, (Kernel(kernel.grid, kernel.buffers, body, "test"),), "float64"))


def test_what_is_compared_with_its_own_maximum_is_equal_to_it() -> None:
    """Factors keep their order where one of them has a name: the largest element is still the largest."""
    n = ra.Axis("n")
    x, g = ra.tensors("x[b,n] g[b]")
    u = exp(-((g * x) ** 2)) * g * x
    form = ra.fuse(ra.where(u >= ra.max(u, n), 1, u / (1 + ra.max(Abs(u), n))), axes="b n")
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(64, 33)).astype("f"), "g": rng.normal(size=64).astype("f")}
    one = form.lower("c", {"b": 64, "n": 33}, "float32")
    assert "quotient = " in one.source.text or "product = " in one.source.text
    np.testing.assert_array_equal((interpret(one.program, inputs)["out"] == 1).sum(1), 1)
    np.testing.assert_array_equal((np.asarray(form(**inputs, backend="tilelang")) == 1).sum(1), 1)


def test_the_kernel_says_it_once() -> None:
    """An exponential's argument that is chosen by data, in the weights and in the sum."""
    n = ra.axes("n")
    x, w = ra.tensors("x[b,n] w[n]")
    chosen = ra.where(x * w > 0, x * w / (1 + w**2), w - x)
    text = ra.fuse(ra.sum(chosen**2 + exp(-(chosen**2)), n)).lower("sm_90a", {"b": 64, "n": 64}, "float32").source.text
    assert text.count("w[j] - x_tile[i, j]") == 1
    assert "choice = " in text


def test_an_integer_by_which_an_index_chooses_is_read_once() -> None:
    """A negative place counts from the end; a bound of the dimension would read it anew each time."""
    q, k, d = ra.axes("q k d")
    place = ra.Tensor("I")[q, k]
    bias = ra.Tensor("T")[ra.where(place < 0, place + 7, place)]
    scores = ra.sum(ra.tensor("Q[q,d]") * ra.tensor("K[k,d]"), d) + bias
    fused = ra.fuse(ra.sum(ra.softmax(scores, k) * ra.tensor("V[k,e]"), k), axes="q e")
    sizes = {"q": 5, "k": 9, "d": 4, "e": 3}
    dtypes = {"I": "int64"} | dict.fromkeys("TQKV", "float32")
    source = fused.source("c", sizes=sizes, dtypes=dtypes, shapes={"T": (7,)})
    body = source[source.index("with T.Kernel") : source.index("def compiled")]
    code = "\n".join(line for line in body.splitlines() if "#" not in line)
    assert code.count("I_entry = I[") == 1
    assert len(re.findall(r"\bI\[", code)) == 1
    generator = torch.Generator().manual_seed(0)
    tensors = {"I": torch.randint(-7, 7, (5, 9), generator=generator), "T": torch.randn(7, generator=generator)}
    shapes = {"Q": (5, 4), "K": (9, 4), "V": (9, 3)}
    tensors |= {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    found = fused(**tensors, backend="tilelang")
    scored = tensors["Q"] @ tensors["K"].T + tensors["T"][tensors["I"]]
    torch.testing.assert_close(found, scored.softmax(1) @ tensors["V"], rtol=1e-5, atol=1e-5)
