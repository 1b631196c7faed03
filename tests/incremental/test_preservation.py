"""Preservation: what redalg runs equals the definition, over generated cascades, data, chunkings and merge orders.

The definition is `tests/oracle.py`, in extended precision with a running error bound. The tolerance is that bound
(first order, at the roundoff of the compute dtype) and the rounding of the output to its dtype; no free factor.
"""

import pickle
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.runtime.bind import arrays
from redalg.runtime.bind.blocks import block_lengths
from tests.cases.cascades import Data, Example, cascades, data, n
from tests.oracle import Oracle
from tests.sweeps import draws

generated = settings(
    max_examples=draws(120), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def floating_point_is_quiet() -> Iterator[None]:
    """0/0 of an empty row warns in NumPy; whether it is right is what these tests ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def fused(example: Example) -> ra.Fused:
    """The fused form, or an example put aside: Hypothesis complains when they are many."""
    try:
        return ra.fuse(example.expr, axes=example.axes)
    except (ra.NotDecided, ra.NotFusible):
        assume(False)
        raise


def assert_defined(got: Any, example: Example, given_data: Data, compute: str, zero: Any = np.nan) -> None:
    """`got` equals the definition within the running error bound at the roundoff of `compute`.

    Of rows in which no element counts it may be NaN where `zero`, the result with `empty="zero"`, is the definition.
    """
    got = np.asarray(got)
    want, bound = Oracle(given_data.tensors, given_data.scalars, given_data.sizes).output(example.expr, example.axes)
    assert got.shape == want.shape
    info = np.finfo(got.dtype)
    allowed = np.finfo(compute).eps * bound + info.eps * np.abs(want) + info.tiny
    with np.errstate(all="ignore"):
        overflows = np.abs(want) + allowed > float(info.max)  # float16 holds nothing above 65504
        same = (got == want) | (np.isnan(got) & (np.isnan(want) | (np.asarray(zero) == want))) | overflows
        wrong = ~(same | (np.abs(got.astype(np.longdouble) - want) <= allowed))
    assert not wrong.any(), f"{example.expr}: got {got[wrong][:3]}, wanted {want[wrong][:3]} ± {allowed[wrong][:3]}"


def compute_dtype(given_data: Data, names: Any) -> str:
    """Arithmetic is in float64 where an input has it, else in float32."""
    return "float64" if any(str(getattr(one, "dtype", "")) == "float64" for one in names.values()) else "float32"


@generated
@given(cascades(), data())
def test_the_reference_is_the_definition(example: Example, given_data: Data) -> None:
    made = fused(example)
    got = made.reference(**given_data.of(made.cascade), sizes=given_data.extents(made.cascade))
    assert got.dtype == np.float64
    assert_defined(got, example, given_data, "float64")


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@generated
@given(cascades(), data())
def test_backends_equal_the_definition(backend: str, example: Example, given_data: Data) -> None:
    made = fused(example)
    tensors = given_data.of(made.cascade)
    known: Any = {"sizes": given_data.extents(made.cascade), "backend": backend}
    got, zero = made(**tensors, **known), made(**tensors, **known, empty="zero")
    assert_defined(got, example, given_data, compute_dtype(given_data, tensors), zero)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@generated
@given(cascades(), data(), st.sampled_from((1, 6, 50)))
def test_any_block_size_gives_the_same(
    backend: str, monkeypatch: pytest.MonkeyPatch, example: Example, given_data: Data, limit: int
) -> None:
    made = fused(example)
    tensors = given_data.of(made.cascade)
    with monkeypatch.context() as patch:
        patch.setattr(arrays, "block_lengths", lambda form, sizes, _=0: block_lengths(form, sizes, limit))
        known: Any = {"sizes": given_data.extents(made.cascade), "backend": backend}
        got, zero = made(**tensors, **known), made(**tensors, **known, empty="zero")
    assert_defined(got, example, given_data, compute_dtype(given_data, tensors), zero)


def torch_tensors(tensors: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(one.copy()) if isinstance(one, np.ndarray) else one for name, one in tensors.items()}


@st.composite
def cuts(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """The axis in pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, length), max_size=5)))
    edges = [0, *places, length]
    return list(pairwise(edges))


def merged(made: ra.Fused, states: list[Any], choose: Any) -> Any:
    """All states merged in an order that `choose` draws, each travelling through pickle at times."""
    while len(states) > 1:
        a = states.pop(choose(st.integers(0, len(states) - 1)))
        b = states.pop(choose(st.integers(0, len(states) - 1)))
        both = made.merge(a, b)
        states.append(pickle.loads(pickle.dumps(both)) if choose(st.booleans()) else both)
    return states[0]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@generated
@given(cascades(), data(lengths=(1, 2, 3, 5, 16, 77)), st.data())
def test_states_merge_in_any_tree(library: str, example: Example, given_data: Data, choice: st.DataObject) -> None:
    made = fused(example)
    tensors = given_data.of(made.cascade)
    assume(any("n" in map(str, one.indices) for one in made.cascade.elements()))
    convert = torch_tensors if library == "torch" else dict
    pieces = choice.draw(cuts(given_data.sizes["n"]))
    states = [
        made.leaf(convert(given_data.piece(tensors, start, stop)), start={n: start}, extents=others(given_data, made))
        for start, stop in pieces
    ]
    held = {name: one for name, one in convert(tensors).items() if name not in streamed(made)}
    got = made.finish(merged(made, states, choice.draw), held)
    assert_defined(got, example, given_data, compute_dtype(given_data, tensors))


def others(given_data: Data, made: ra.Fused) -> dict[str, int]:
    """The sizes of the axes that are not streamed."""
    return {name: size for name, size in given_data.extents(made.cascade).items() if name != "n"}


def streamed(made: ra.Fused) -> set[str]:
    """Tensors that carry the streamed axis: `finish` has no use for them."""
    return {one.name for one in made.cascade.elements() if made.cascade.axis in one.indices}


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_factor_leaves_a_product_once_for_each_element(pieces: int) -> None:
    """Π x·m = (Π x)·mⁿ, which the state's count makes possible."""
    largest = ra.max(ra.tensor("x[b,n]"), n)
    made = ra.fuse(ra.prod(ra.tensor("x[b,n]") * largest, n))
    data = np.random.default_rng(0).uniform(0.5, 1.5, (3, 9))
    edges = np.linspace(0, 9, pieces + 1).astype(int)
    states = [made.leaf({"x": data[:, a:b]}, start={n: int(a)}) for a, b in pairwise(edges)]
    want = (data * data.max(1, keepdims=True)).prod(1)
    np.testing.assert_allclose(made.finish(merged(made, states, lambda strategy: 0)), want, rtol=1e-14)
    np.testing.assert_allclose(made(x=data), want, rtol=1e-14)
