"""Run-time sizes: one kernel serves many calls, ragged, of one element and of none; what cannot vary is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from sympy import sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.call import sizes
from redalg.runtime.compile.compile import compile_source
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import problem_of
from redalg.strategies.device import CORE
from redalg.strategies.schedule import numbers_of, with_choices
from redalg.strategies.varying import may_vary
from tests.cases.kernels import K, Q, V, fused, problem, worst_error

b, h, q, k, d, n = ra.axes("b h q k d n")
LENGTHS = [(2, 2, 40, 50), (3, 2, 40, 50), (1, 2, 33, 64), (2, 1, 1, 1), (1, 3, 64, 129), (2, 2, 17, 100)]
"""Sizes of b, h, q, k, from call to call."""


def grouped_form() -> ra.Fused:
    """Two heads share keys and values: indices that are no plain axes."""
    keys, values = ra.Tensor("K")[b, h // 2, k, d], ra.Tensor("V")[b, h // 2, k, ra.axes("e")]
    score = ra.sum(ra.Tensor("Q")[b, h, q, d] * keys, d)
    return ra.fuse(ra.sum(ra.softmax(score, k) * values, k), axes="b h q e")


def mean_form() -> ra.Fused:
    """A matrix product whose result holds the extent of a varying axis."""
    return ra.fuse(ra.sum(ra.sum(Q * K, d) * V, k) / k.extent, axes="b h q e")


FORMS = {
    "plain": lambda: fused("attention"),
    "causal": lambda: fused("causal"),
    "masked": lambda: fused("masked"),
    "additive": lambda: fused("additive"),
    "lengths": lambda: fused("lengths"),
    "grouped": grouped_form,
    "mean": mean_form,
}


def drawn(form: ra.Fused, nb: int, nh: int, nq: int, nk: int) -> dict[str, torch.Tensor]:
    """Tensors of the given sizes; the first row of a mask is dead."""
    g = torch.Generator().manual_seed(nb + 10 * nh + 100 * nq + 1000 * nk)
    keys = next(one for one in form.cascade.elements() if one.name == "K")
    heads = nh if h in keys.indices else -(-nh // 2)
    made = {
        "Q": torch.randn(nb, nh, nq, 16, generator=g),
        "K": torch.randn(nb, heads, nk, 16, generator=g),
        "V": torch.randn(nb, heads, nk, 24, generator=g),
        "M": torch.rand(nq, nk, generator=g) < 0.7,
        "A": torch.randn(nq, nk, generator=g),
        "length": torch.randint(0, nk + 1, (nb,), generator=g),
    }
    made["M"][:1] = False
    return {name: made[name] for name in form.cascade.inputs()}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["plain", "lengths", "grouped"])
def test_calls_of_changing_sizes_share_kernels(name: str, fresh: dict[str, Any]) -> None:
    form = FORMS[name]()
    packed = name == "grouped"  # few rows: heads and queries fill a tile together, and are its layout
    for nb, nh, nq, nk in LENGTHS:
        tensors = drawn(form, nb, 2, 40, nk) if packed else drawn(form, nb, nh, nq, nk)
        out = form(**tensors, backend="tilelang", empty="zero")
        assert worst_error(out, form.reference(**tensors), "zero") <= 2e-6
    compiled = len(fresh)
    assert compiled <= 4  # constant sizes; free sizes; all sizes with one row, and with 32
    for extents in ((1, 2, 40, 41), (2, 2, 40, 99)) if packed else ((1, 1, 39, 41), (2, 3, 50, 99), (1, 2, 1, 77)):
        tensors = drawn(form, *extents)
        assert worst_error(form(**tensors, backend="tilelang", empty="zero"), form.reference(**tensors), "zero") <= 2e-6
    assert len(fresh) == compiled


def test_sizes_of_none(fresh: dict[str, Any]) -> None:
    form = fused("attention")
    for extents in ((2, 2, 40, 50), (2, 2, 0, 50), (0, 2, 40, 50), (2, 2, 40, 0), (2, 2, 8, 9)):
        out = form(**drawn(form, *extents), backend="tilelang", empty="zero")
        assert out.shape == (*extents[:3], 24)
        assert extents[3] or not out.any()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("target", ["c", "sm_90a", "sm_80"])
def test_the_tile_interpreter_at_many_sizes(name: str, target: str) -> None:
    """One program, lowered for an example, run at other sizes."""
    form = FORMS[name]()
    lowered = lower(form, target, (2, 2, 40, 200), "b k" if name == "grouped" else "b h q k")
    others = ((1, 2, 40, 65), (3, 2, 40, 1)) if name == "grouped" else ((1, 2, 3, 65), (1, 2, 70, 1))
    for extents in ((2, 2, 40, 200), *others):
        tensors = drawn(form, *extents)
        out = interpret(lowered.program, {key: one.numpy() for key, one in tensors.items()})
        wanted = form.reference(**tensors)
        assert worst_error(torch.from_numpy(out["out"]), wanted, "zero") <= 2e-6


def lower(form: ra.Fused, target: str, sized: tuple[int, int, int, int], varying: str) -> Any:
    options = problem(form, drawn(form, *sized))
    return form.lower(target, **options, varying=varying.split(), empty="zero")


def test_segments_at_many_sizes() -> None:
    """Workspaces and the merge have run-time sizes too."""
    form = fused("attention")
    lowered = lower(form, "sm_90a", (1, 1, 1, 3000), "b h q k")
    assert numbers_of(lowered.plan).segments > 1
    for extents in ((1, 1, 1, 3000), (2, 3, 5, 70), (1, 1, 2, 1)):
        tensors = drawn(form, *extents)
        out = interpret(lowered.program, {key: one.numpy() for key, one in tensors.items()})
        assert worst_error(torch.from_numpy(out["out"]), form.reference(**tensors)) <= 2e-6


@pytest.mark.parametrize("name", ["plain", "causal", "lengths"])
def test_sizes_of_calls_become_run_time_ones_on_a_gpu(name: str, fresh: dict[str, Any]) -> None:
    """Whatever bounds the loop; constant for the first sizes of a family."""
    form, found = FORMS[name](), list[tuple[str, ...]]()
    for extents in ((2, 2, 40, 50), (3, 2, 40, 50), (3, 2, 40, 70)):
        options = problem(form, drawn(form, *extents))
        wanted = {"empty": "nan", "precision": "ieee"}
        asked = problem_of(form.form, "sm_90a", options["sizes"], options["dtypes"], shapes=options["shapes"], **wanted)
        lowered = sizes.newly(form.form, "sm_90a", asked, None)
        assert isinstance(lowered, Lowered)
        found.append(tuple(map(str, lowered.program.sizes)))
    free = ("b_size", "h_size", "q_size")
    assert found == [(), free, ("b_size", "h_size", "k_size", "q_size")]


def test_rows_keep_what_is_contiguous() -> None:
    """The last axis of what tiles copy stays constant; another begins a family of its own."""
    form = fused("variance")
    lowered = form.lower("c", {"b": 5, "n": 7}, {"x": "float32"})
    assert may_vary(lowered.form, lowered.plan.binding, {"x": "float32"}) == {"b"}
    with pytest.raises(ra.PlanError, match=r"axis n cannot change.*Those that can: b"):
        form.lower("c", {"b": 5, "n": 7}, {"x": "float32"}, varying=["n"])
    for shape in ((5, 7), (6, 7), (5, 8), (9, 7), (9, 8)):
        data = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        assert worst_error(form(x=data, backend="tilelang"), form.reference(x=data)) <= 2e-6


def test_a_size_compiled_ahead_keeps_its_kernel(fresh: dict[str, Any]) -> None:
    form = fused("attention")
    for extents in ((1, 1, 4, 5), (2, 1, 4, 5)):
        form(**drawn(form, *extents), backend="tilelang")
    options = problem(form, drawn(form, 7, 1, 4, 5))
    ahead = form.compile("c", sizes=options["sizes"], dtypes=options["dtypes"])
    count = len(fresh)
    form(**drawn(form, 7, 1, 4, 5), backend="tilelang")
    assert len(fresh) == count
    assert "T.dynamic" not in ahead.source.text


def test_texts_differ_in_their_binding_alone() -> None:
    """One schedule, two targets: what follows the binding is the same, sizes included."""
    form = fused("causal")
    chip = lower(form, "sm_80", (2, 2, 64, 64), "b h q k").plan
    core = replace(with_choices(chip, tensor_cores=False), limits=CORE)
    options = problem(form, drawn(form, 2, 2, 64, 64))
    texts = [
        str(form.lower(plan.device.target, **options, varying="bhqk", plan=plan, precision="tf32").source)
        for plan in (with_choices(chip, tensor_cores=False), core)
    ]
    one, other = (text[text.index("# ---- end of binding") :] for text in texts)
    assert one == other
    assert 'b_size, h_size, k_size, q_size = T.dynamic("b_size, h_size, k_size, q_size")' in one


def test_a_saved_kernel_of_varying_sizes_runs_at_others() -> None:
    form = fused("causal")
    lowered = lower(form, "c", (2, 2, 40, 50), "b h q k")
    run = compile_source(lowered.source).run
    for extents in LENGTHS:
        tensors = drawn(form, *extents)
        out = torch.full((*extents[:3], 24), torch.nan)
        run(*(tensors[name] for name in form.cascade.inputs()), out)
        assert worst_error(out, form.reference(**tensors)) <= 2e-6


def test_names_of_sizes_avoid_the_users() -> None:
    rows, k_size = ra.tensors("rows[q,k] k_size[q,k]")
    form = ra.fuse(ra.sum(rows * k_size, q), axes="k")
    lowered = form.lower("c", {"q": 9, "k": 8}, dict.fromkeys(("rows", "k_size"), "float32"), varying=["q"])
    assert [str(one) for one in lowered.program.sizes] == ["q_size"]
    two = ra.fuse(ra.sum(ra.Tensor("q_size")[q, k] * rows, q), axes="k")
    lowered = two.lower("c", {"q": 9, "k": 8}, dict.fromkeys(("rows", "q_size"), "float32"), varying=["q"])
    assert [str(one) for one in lowered.program.sizes] == ["q_size_"]


def test_two_axes_along_one_dimension_may_vary() -> None:
    """Rows beside each other: the tensor's shape binds one of the two, the call the other."""
    i, r, d = ra.axes("i r d")
    x = ra.Tensor("x")
    similar = ra.fuse(ra.sum(ra.softmax(ra.sum(x[i, d] * x[r, d], d), r) * x[r, 0], r), axes="i")
    for length in (48, 130, 33):
        given = torch.randn(length, 16, generator=torch.Generator().manual_seed(length))
        wanted = (given @ given.T).softmax(-1) @ given[:, 0]
        torch.testing.assert_close(similar(x=given, backend="tilelang"), wanted, rtol=1e-5, atol=1e-5)


x = ra.tensor("x[b,h,n]")
ROWS = {
    "softmax": lambda: ra.fuse(ra.softmax(x, n), axes="b h n"),
    "norm": lambda: ra.fuse((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + 1e-5), axes="b h n"),
    "columns": lambda: ra.fuse(ra.sum(x * x, b, h), axes="n"),
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_any_number_have_one_kernel_and_each_length_its_own(name: str, fresh: dict[str, Any]) -> None:
    form, known = ROWS[name](), {"b": 3, "h": 17, "n": 16}
    assert sizes.axes_of_own_kernels(form.passes, "c", known, {"x": "float32"}) == {"n"}
    counts = list[int]()
    for shape in ((3, 17, 16), (3, 19, 16), (3, 21, 16), (3, 20, 16), (3, 21, 20), (3, 21, 24)):
        given = torch.randn(shape, generator=torch.Generator().manual_seed(shape[1]))
        assert worst_error(form(x=given, backend="tilelang"), form.reference(x=given)) <= 2e-6
        counts.append(len(fresh))
    assert counts == [1, 2, 2, 2, 3, 4]


def test_every_size_of_a_form_in_stages_has_a_kernel_of_its_own() -> None:
    """A row's two axes are streamed as one, and read apart by what stores them: no loop holds both."""
    (i, j), (b, h, r, s) = ra.axes("i j"), ra.axes("b h r s")
    x, y = ra.Tensor("x"), ra.Tensor("y")
    row = x[b, r, h, s] + y[b, h, r, s]
    spread = ra.sum((row - ra.sum(row, r, s) / 16) ** 2, r, s)
    form = ra.fuse({"both": (x[b, i, h, j] + y[b, h, i, j], "b h i j"), "spread": (spread, "b h")})
    known = {"b": 3, "h": 17, "i": 2, "j": 8, "r": 2, "s": 8}
    own = sizes.axes_of_own_kernels(form.passes, "sm_90a", known, dict.fromkeys("xy", "float32"))
    assert own == known.keys()
