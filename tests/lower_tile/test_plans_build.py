"""Kernels of forms that once had none: each plan that is chosen or listed has a program, and the program is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from sympy import Expr, Rational, S, exp, sqrt

import redalg as ra
from redalg.errors import PlanError
from redalg.library import chained_product
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Parallel, Store, index
from redalg.lower_tile.ir.scalars import Kept, Load, ScaledExp, Wide
from redalg.lower_tile.place.lanes import GROUP
from redalg.lower_tile.text.expr_printer import Printer
from redalg.runtime import lowering
from redalg.runtime.call.sizes import newly
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import problem_of
from redalg.strategies.model.cost import Prediction
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from redalg.strategies.search.space import Space

b, g, h, i, j, k, n, q = ra.axes("b g h i j k n q")
d, e, l = ra.axes("d e l")
Q, X, R = map(ra.Tensor, "Qxr")
x, m = ra.tensors("x[b,n] m[n]")


def centre(component: ra.Axis) -> Expr:
    """The centre of mass, by component."""
    return ra.sum(m * R[n, component], n) / ra.sum(m, n)


def lag(distance: int) -> ra.Fused:
    """The autocorrelation of rows at a distance."""
    mean = ra.mean(x, n)
    moved = ra.where(n >= distance, X[b, n - distance] - mean, 0)
    return ra.fuse(ra.sum((x - mean) * moved, n) / ra.sum((x - mean) ** 2, n))


def inertia() -> ra.Fused:
    """Σ m (δ_ij |r − c|² − (r_i − c_i)(r_j − c_j)), whose diagonal holds a sum of no column."""
    along = ra.where(ra.eq(i, j), 1, 0) * ra.sum((R[n, l] - centre(l)) ** 2, l)
    return ra.fuse(ra.sum(m * (along - (R[n, i] - centre(i)) * (R[n, j] - centre(j))), n), axes="i j")


def gradient_of_queries(width: int) -> tuple[ra.Fused, dict[str, int]]:
    """Two products, a cast of what they make and a third product, under a causal mask."""
    K, V, G, L, D = ra.tensors("K[b,h,k,d] V[b,h,k,e] G[b,h,q,e] L[b,h,q] D[b,h,q]")
    p = exp(ra.sum(Q[b, h, q, d] * K, d) / sqrt(d.extent) - L)
    ds = ra.cast(p * (ra.sum(G * V, e) - D), "bfloat16")
    form = ra.fuse(ra.sum(ra.where(k <= q, ds, 0) * ra.Tensor("K")[b, h, k, j], k), axes="b h q j")
    return form, {"b": 2, "h": 16, "q": 4096, "k": 4096, "d": width, "e": width, "j": width}


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_centre_of_its_own_beside_a_lagged_one(target: str, dtype: str) -> None:
    """The lanes of a long row share the one pivot and keep the other."""
    plan = lag(1).lower(target, sizes={"b": 1024, "n": 65536}, dtypes=dtype).plan
    assert numbers_of(plan).level == "thread"


@pytest.mark.parametrize("distance", [1, 3])
@pytest.mark.parametrize("length", [16 * GROUP * 2, 16 * GROUP * 3 + 5, 7])
def test_lanes_of_a_product_with_shifted_data(distance: int, length: int) -> None:
    rows = np.random.default_rng(length).normal(100, 1, (2, length)).astype(np.float32)
    form, options = lag(distance), {"sizes": {"b": 2, "n": length}, "dtypes": {"x": "float32"}}
    plan = with_choices(form.lower("c", **options).plan, level="thread", block_streamed=16)
    out = interpret(form.lower("c", **options, plan=plan).program, {"x": rows})["out"]
    about = rows.astype(np.float64) - rows.mean(axis=1, keepdims=True, dtype=np.float64)
    wanted = (about[:, distance:] * about[:, :-distance]).sum(1) / (about**2).sum(1)
    np.testing.assert_allclose(out, wanted, atol=1e-5)


@pytest.mark.parametrize("points", [1, 100])
def test_a_value_of_rows_that_a_column_masks(points: int) -> None:
    """The mask varies along the columns, so that no buffer of rows holds the value."""
    rng = np.random.default_rng(points)
    r, w = rng.normal(50, 1, (points, 3)), rng.uniform(0.5, 2, points)
    about = r - (w[:, None] * r).sum(0) / w.sum()
    wanted = np.eye(3) * (w * (about**2).sum(1)).sum() - np.einsum("n,ni,nj->ij", w, about, about)
    inputs = {"r": torch.tensor(r, dtype=torch.float32), "m": torch.tensor(w, dtype=torch.float32)}
    made = inertia()(**inputs, backend="tilelang")
    np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=1e-4 * max(1.0, abs(wanted).max()))


@pytest.mark.parametrize("width", [64, 128])
def test_what_plans_list_builds(width: int) -> None:
    """Neither the rules' choice nor the model's first candidates are refused when they are built."""
    form, sizes = gradient_of_queries(width)
    dtypes = {**dict.fromkeys(("Q", "K", "V", "G"), "bfloat16"), "L": "float32", "D": "float32"}
    form.source("sm_90a", sizes=sizes, dtypes=dtypes)
    plans = form.plans(sizes, dtypes, "H200")
    for candidate in islice(plans, 6):
        form.lower("sm_90a", sizes, dtypes, plan=candidate.plan)
    assert str(plans[:2]) == str(plans[0:2])
    assert plans[0].predicted_us <= plans[1].predicted_us


def test_a_listing_of_plans_is_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ranks when it is read, and its length builds nothing; plans are built as they are read, refused ones last."""
    rank, ranked = Space.rank, list[Space]()

    def counted_rank(space: Space) -> list[tuple[Prediction, Schedule]]:
        ranked.append(space)
        return rank(space)

    monkeypatch.setattr(Space, "rank", counted_rank)
    refuse = Mock(wraps=lowering.refusal_of_plan)
    monkeypatch.setattr(lowering, "refusal_of_plan", refuse)
    plans = chained_product().plans({"b": 1, "m": 64, "n": 64, "k": 64, "h": 64}, "bfloat16", "H200")
    assert not ranked
    assert len(plans) > 1
    assert plans
    assert len(ranked) == 1
    assert not refuse.called
    best = plans[:3]
    assert 3 <= refuse.call_count < len(plans)
    every = list(plans)
    refused = [one for one in every if one.refusal]
    assert len(every) == len(plans) >= refuse.call_count
    assert 0 < len(refused) < len(every)
    assert every[-len(refused) :] == refused
    assert (plans[-1], plans[0], list(best)) == (every[-1], every[0], every[:3])
    assert "two tiles of so few were seen summed wrongly" in " ".join(str(plans[-2:]).split())
    assert refused[0].plan.form == "online"


def sizes_of(heads: int, queries: int, keys: int) -> dict[str, int]:
    return {"h": heads, "g": 3, "q": queries, "k": keys, "d": 64}


@pytest.mark.parametrize("target", ["c", "sm_90a"])
def test_stages_over_two_axes_that_are_needed_apart(target: str) -> None:
    """The first call of a form in stages asks which sizes may vary: not those of axes that an index needs apart."""
    K = ra.tensor("K[h,k,d]")
    product = ra.sum(Q[3 * h + g, q, d] * K, d)
    form = ra.fuse(ra.sum(product**2 * Q[3 * h + g, q, d], g, q), axes="h k d").form
    for sizes in (sizes_of(2, 100, 200), sizes_of(3, 130, 260)):
        shapes = {"Q": (3 * sizes["h"], sizes["q"], 64), "K": (sizes["h"], sizes["k"], 64)}
        dtypes = {"Q": "float16", "K": "float16"}
        problem = problem_of(form, target, sizes, dtypes, shapes=shapes, empty="nan", precision="ieee")
        lowered = newly(form, target, problem, None)
        assert isinstance(lowered, Lowered)
        assert len(lowered.stages.forms) == 2


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (ScaledExp(0, 0, Rational(1, 2)), "T.exp2(0.0 * 0.7213475204444817)"),
        (Kept(S.Zero), "(0.0)"),
        (Wide(S(2)), 'T.cast(2.0, "float32")'),
    ],
)
def test_nodes_of_constants_are_printed(node: Expr, text: str) -> None:
    assert Printer({}, "float32").number(node) == text


def test_a_variable_that_nothing_binds_is_refused() -> None:
    """TileLang would refuse it when it compiles, in words that name no cause."""
    program = ra.fuse(ra.sum(x, n)).lower("c", {"b": 4, "n": 5}, "float32").program
    [kernel] = program.kernels
    row, column = index("i"), index("stray")
    buffer = next(one for one in kernel.buffers if len(one.shape) == 1)
    loop = Parallel(((row, buffer.shape[0]),), (Store(buffer.name, (row,), Load(buffer.name, row) + column),))
    broken = replace(program, kernels=(replace(kernel, body=(*kernel.body, loop)),))
    with pytest.raises(PlanError, match="nothing around it binds `stray`"):
        verify(broken)


def test_a_listed_plan_is_taken_by_a_call() -> None:
    """A listed plan is what a call takes as `plan=`."""
    form = ra.fuse(ra.var(x, n))
    data: Mapping[str, torch.Tensor] = {"x": torch.randn(4, 300, generator=torch.Generator().manual_seed(1))}
    plan = form.plans({"b": 4, "n": 300}, "float32", "c")[0].plan
    out = form(**data, backend="tilelang", plan=plan)
    torch.testing.assert_close(out, data["x"].var(dim=1, correction=0))
