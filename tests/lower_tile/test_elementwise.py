"""Forms that reduce nothing: kernels of the C target, and the interpreted ones of sm_90a, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sympy import Eq, Expr, Max, Ne, exp, oo

import redalg as ra
from redalg.expression.contents import free_axes
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.schedule import numbers_of
from tests.sweeps import draws

b, n, c = ra.axes("b n c")
x, y, z, g, h, m, l = ra.tensors("x[b,n] y[n,b] z[b,n,c] g[b] h[n] m[b] l[b]")
t = ra.tensor("t[b]")
DIMENSIONS = {"x": (0, 1), "y": (1, 0), "z": (0, 1, 2), "g": (0,), "h": (1,)}
"""The dimensions b, n, c of each tensor, in its order."""
AXES = (b, n, c)
SIZES = st.sampled_from((0, 1, 2, 7, 33, 130))
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
CROSS_ENTROPY = g * (exp(x - m) / l - ra.where(Eq(n, t), 1, 0))

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Term:
    """An expression, and NumPy's value of it over the dimensions b, n, c."""

    expr: Expr
    value: Callable[[Arrays], Any]


def leaf(name: str) -> Term:
    dimensions, element = DIMENSIONS[name], {"x": x, "y": y, "z": z, "g": g, "h": h}[name]

    def value(arrays: Arrays) -> np.ndarray:
        ordered = np.transpose(arrays[name], np.argsort(dimensions))
        return ordered[tuple(slice(None) if place in dimensions else None for place in range(3))]

    return Term(element, value)


def index(arrays: Arrays, place: int) -> np.ndarray:
    return np.arange(arrays["lengths"][place]).reshape([-1 if one == place else 1 for one in range(3)])


def binary(two: tuple[Term, Term], kind: str) -> Term:
    p, q = two
    makers: dict[str, tuple[Callable[[], Expr], Callable[[Any, Any], Any]]] = {
        "sum": (lambda: p.expr + 2 * q.expr, lambda u, v: u + 2 * v),
        "product": (lambda: p.expr * q.expr, lambda u, v: u * v),
        "quotient": (lambda: p.expr / (1 + q.expr**2), lambda u, v: u / (1 + v**2)),
        "weight": (lambda: p.expr * exp(-abs(q.expr)), lambda u, v: u * np.exp(-np.abs(v))),
        "larger": (lambda: Max(p.expr, q.expr), np.maximum),
        "masked": (lambda: ra.where(p.expr > 0, q.expr, 0), lambda u, v: np.where(u > 0, v, 0)),
    }
    expr, value = makers[kind]
    return Term(expr(), lambda arrays: value(p.value(arrays), q.value(arrays)))


def causal(term: Term) -> Term:
    """A term where n ≤ b, and −1 elsewhere."""
    return Term(ra.where(n <= b, term.expr, -1),
                lambda arrays: np.where(index(arrays, 1) <= index(arrays, 0), term.value(arrays), -1))  # fmt: skip


KINDS = ("sum", "product", "quotient", "weight", "larger", "masked")
LEAVES = st.sampled_from(tuple(DIMENSIONS)).map(leaf)
TERMS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(binary, st.tuples(inner, inner), st.sampled_from(KINDS)), st.builds(causal, inner)
    ),
    max_leaves=4,
)


def arrays_of(lengths: tuple[int, int, int], seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    shapes = {name: [lengths[one] for one in dimensions] for name, dimensions in DIMENSIONS.items()}
    return {name: torch.from_numpy(rng.uniform(-1.5, 1.5, shape)).to(dtype) for name, shape in shapes.items()}


def wanted(term: Term, tensors: dict[str, torch.Tensor], lengths: tuple[int, int, int], axes: list[Any]) -> np.ndarray:
    """NumPy's value in float64, in the order of the output's axes."""
    arrays = {name: one.double().numpy() for name, one in tensors.items()} | {"lengths": np.array(lengths)}
    shape = [length if axis in axes else 1 for axis, length in zip(AXES, lengths, strict=True)]
    whole = np.broadcast_to(term.value(arrays), shape)
    kept = whole.reshape([size for axis, size in zip(AXES, shape, strict=True) if axis in axes])
    return np.transpose(kept, [[axis for axis in AXES if axis in axes].index(axis) for axis in axes])


@st.composite
def functions(draw: st.DrawFn) -> tuple[Term, list[Any], ra.Fused]:
    """A term, its axes in some order, and the function."""
    term = draw(TERMS.filter(lambda one: free_axes(one.expr)))
    axes = draw(st.permutations([axis for axis in AXES if axis in free_axes(term.expr)]))
    return term, axes, ra.fuse(term.expr, axes=" ".join(map(str, axes)))


def tensors_of(form: ra.Fused, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensors[name] for name in form.cascade.inputs()}


def sizes_of(form: ra.Fused, lengths: tuple[int, int, int]) -> dict[str, int]:
    return {axis.name: length for axis, length in zip(AXES, lengths, strict=True) if axis in form.cascade.axes()}


@settings(max_examples=25, deadline=None)
@given(functions(), st.tuples(SIZES, SIZES, SIZES), st.integers(0, 99), st.sampled_from(list(TOLERANCE)))
def test_kernels_of_the_c_target(drawn: Any, lengths: tuple[int, int, int], seed: int, dtype: torch.dtype) -> None:
    term, axes, form = drawn
    tensors = arrays_of(lengths, seed, dtype)
    out = form(**tensors_of(form, tensors), sizes=sizes_of(form, lengths), backend="tilelang")
    assert out.dtype == dtype
    reference = wanted(term, tensors, lengths, axes)
    np.testing.assert_allclose(out.double().numpy(), reference, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@settings(max_examples=60, deadline=None)
@given(functions(), st.tuples(SIZES, SIZES, SIZES), st.integers(0, 99), st.sampled_from(["numpy", "torch"]))
def test_interpreters(drawn: Any, lengths: tuple[int, int, int], seed: int, backend: str) -> None:
    term, axes, form = drawn
    tensors = arrays_of(lengths, seed, torch.float64)
    out = form(**tensors_of(form, tensors), sizes=sizes_of(form, lengths), backend=backend)
    np.testing.assert_allclose(out.numpy(), wanted(term, tensors, lengths, axes), rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(functions(), st.tuples(*3 * [st.sampled_from((1, 3, 40, 700))]), st.integers(0, 99))
def test_tile_programs_of_a_gpu(drawn: Any, lengths: tuple[int, int, int], seed: int) -> None:
    """Ragged tiles, parts, and axes that are one axis."""
    term, axes, form = drawn
    lengths = lengths if np.prod(lengths) < 1e6 else (*lengths[:2], 1)
    tensors = tensors_of(form, arrays_of(lengths, seed, torch.float32))
    lowered = form.lower("sm_90a", sizes_of(form, lengths), dict.fromkeys(tensors, "float32"))
    shapes = {one.key: one.shape for one in lowered.program.parameters if one.role == "input"}
    given = {name: one.numpy().reshape(shapes[name]) for name, one in tensors.items()}
    out = interpret(lowered.program, given)["out"]
    reference = wanted(term, tensors, lengths, axes)
    np.testing.assert_allclose(out.reshape(reference.shape), reference, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("v", [2.0**-149, 2.0**-130, 1e-30, 3.0, -7e20, 2.0**127, np.inf, 0.0])
def test_divisors_of_any_size(v: float) -> None:
    """A quotient by a row value is computed by its reciprocal, which may be neither infinite nor subnormal."""
    numbers = np.array([[1e-38, 2.0**-149, 0.0, 5.0, -3e38, 1e30, np.inf]], dtype=np.float32)
    divisor = np.array([v], dtype=np.float32)
    out = ra.fuse(x / g, axes="b n")(x=torch.from_numpy(numbers), g=torch.from_numpy(divisor), backend="tilelang")
    with np.errstate(all="ignore"):
        reference = (numbers.astype(np.float64) / divisor[0].astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(out.numpy(), reference, rtol=3e-7, atol=3e-45)


def test_several_outputs_are_stages_where_one_loop_would_repeat_them() -> None:
    form = ra.fuse(
        {"total": (ra.sum(x, n), "b"), "twice": (2 * x, "b n"), "other": (h + 1, "n"), "same": (2 * x, "b n")}
    )
    tensors = {"x": torch.randn(5, 9), "h": torch.randn(9)}
    lowered = form.lower("sm_90a", {"b": 5, "n": 9}, {"x": "float32", "h": "float32"})
    assert [[one.name for one in stage.outputs] for stage in lowered.stages.forms] == [
        ["total", "twice", "same"], ["other"],
    ]  # fmt: skip
    for backend in ("tilelang", "torch", "numpy"):
        out = form(**tensors, backend=backend)
        torch.testing.assert_close(out.total, tensors["x"].sum(1))
        torch.testing.assert_close(
            (out.twice, out.same, out.other), (2 * tensors["x"], 2 * tensors["x"], tensors["h"] + 1)
        )


@pytest.mark.parametrize("backend", ["tilelang", "torch", "numpy"])
def test_a_number_of_numbers(backend: str) -> None:
    scale = ra.scalars("scale")
    product = ra.fuse(ra.Tensor("p")[()] * scale)
    assert float(product(p=torch.tensor(3.0), scale=2.5, backend=backend)) == 7.5


@pytest.mark.parametrize("target", ["c", "sm_90a"])
def test_a_number_of_a_line_is_read_with_each_of_its_elements(target: str) -> None:
    """A line has no rows, and so no buffer for what rows hold."""
    form = ra.fuse(ra.tensor("x[n]") / ra.Tensor("p")[()], axes="n")
    program = form.lower(target, {"n": 70}, "float32").program
    whole = np.arange(70, dtype=np.float32)
    np.testing.assert_array_equal(interpret(program, {"x": whole, "p": np.float32([4])})["out"], whole / 4)


def test_axes_side_by_side_are_one() -> None:
    """Rows that are no multiples of 16 bytes are read 16 bytes at a time, if all tensors have the same rows."""
    form = ra.fuse(z * ra.Tensor("w")[b, n, c] + 1, axes="b n c")
    lowered = form.lower("sm_90a", {"b": 33, "n": 77, "c": 129}, {"z": "float32", "w": "float32"})
    assert lowered.problem.together == {"b_n_c": ("b", "n", "c")}
    assert form.lower("sm_90a", {"b": 3, "n": 7, "c": 12}, {"z": "float32", "w": "float32"}).plan.levels
    rows = ra.fuse(z * g, axes="b n c").lower("sm_90a", {"b": 33, "n": 77, "c": 129}, {"z": "float32", "g": "float32"})
    assert rows.problem.together == {"n_c": ("n", "c")}


def test_the_gradient_of_cross_entropy_moves_16_bytes_at_a_time() -> None:
    form = ra.fuse(ra.cast(CROSS_ENTROPY, "bfloat16"), axes="b n")
    dtypes = {"x": "bfloat16", "t": "int64"} | dict.fromkeys("gml", "float32")
    lowered = form.lower("sm_90a", {"b": 4096, "n": 128256}, dtypes)
    assert numbers_of(lowered.plan).segments * 4096 >= 100 * 132  # blocks for every multiprocessor
    [kernel] = compile_only(lowered.source)
    assert (kernel.spill_bytes, kernel.smem_bytes) == (0, 0)
    assert "*(uint4*)(x + " in kernel.cuda.split("=", 1)[1]
    assert "*(uint4*)(out + " in kernel.cuda
    assert kernel.cuda.count(" / ") == 1  # the reciprocal of a row, ahead of its elements


@pytest.mark.parametrize("term", [x, x / ra.max(abs(x), n) * 300], ids=["of nothing reduced", "about a maximum"])
def test_an_output_of_integers_is_rounded_and_saturates(term: Expr) -> None:
    """A store truncates, and wraps: the kernel rounds before."""
    data = torch.tensor([[-1.7, 0.5, 1.5, 2.5, -2.5, 300.0, -300.0, 2.6]])
    form = ra.fuse(ra.cast(term, "int8"), axes="b n")
    made = [form(x=data, backend=backend) for backend in ("tilelang", "torch")]
    assert [one.dtype for one in made] == [torch.int8] * 2
    assert made[0].tolist() == made[1].tolist()
    assert made[0].tolist()[0][5:7] == [127, -128]


EXTREMES = st.sampled_from((-np.inf, np.inf, -88.0, -1.5, 0.0, 0.3, 40.0))
CHOSEN = (exp(x - m), CROSS_ENTROPY, ra.where(x > m, exp(x - m) - 1, 0),
          ra.where(Ne(m, -oo), exp(x - m), 0) / l - ra.where(Eq(n, t), 1, 0))  # fmt: skip


@settings(max_examples=draws(30), deadline=None)
@given(st.sampled_from(CHOSEN), arrays(np.float32, (5, 8), elements=EXTREMES), arrays(np.float32, 5, elements=EXTREMES))
def test_exponentials_ahead_of_their_choice(term: Expr, x: np.ndarray, m: np.ndarray) -> None:
    """Each is computed whatever is chosen, by one instruction where the output has 16 bits, and what it hides stays
    hidden."""
    form = ra.fuse(ra.cast(term, "float16"), axes="b n")
    given: dict[str, Any] = {
        "x": x,
        "m": m,
        "g": np.float32([1, -2, 0.5, 1, 3]),
        "l": np.float32([1, 2, 3, 4, 5]),
        "t": np.arange(5),
    }
    given = {name: given[name] for name in form.cascade.inputs()}
    dtypes = {name: str(one.dtype) for name, one in given.items()}
    lowered = form.lower("sm_90a", {"b": 5, "n": 8}, dtypes)
    assert "power_of_two(" in lowered.source.text
    assert "T.exp(" not in lowered.source.text
    exact = form.reference(**{name: torch.from_numpy(one) for name, one in given.items()})
    with np.errstate(all="ignore"):
        wanted_values = np.asarray(exact, dtype=np.float64).astype(np.float16)
    np.testing.assert_allclose(interpret(lowered.program, given)["out"], wanted_values, rtol=2e-3, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("term", CHOSEN)
def test_a_gpu_computes_exponentials_ahead_of_their_choice(term: Expr) -> None:
    form = ra.fuse(ra.cast(term, "bfloat16"), axes="b n")
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(70, 4099, generator=generator, device="cuda", dtype=torch.bfloat16) * 20
    x[::7, ::5], x[3::7, ::9] = -torch.inf, torch.inf
    m = x.float().amax(1)
    m[0], m[1], m[2] = -torch.inf, torch.inf, 3
    rows = {"m": m, "l": torch.rand(70, device="cuda") + 1, "g": torch.randn(70, device="cuda"),
            "t": torch.arange(70, device="cuda")}  # fmt: skip
    given = {"x": x, **{name: rows[name] for name in form.cascade.inputs() if name != "x"}}
    exact = form.reference(**{name: one.double() if one.is_floating_point() else one for name, one in given.items()})
    torch.testing.assert_close(form(**given).double(), exact.double(), rtol=8e-3, atol=1e-30, equal_nan=True)
