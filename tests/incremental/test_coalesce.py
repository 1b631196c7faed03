"""Several reduced axes in one kernel: over forms, sizes, plans and targets, the program equals the definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import floor, sqrt

import redalg as ra
from redalg.errors import PlanError
from redalg.incremental.arrange.coalesce import coalesce_axes, runs_of
from redalg.incremental.stages import single
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.call import sizes as runtime_sizes
from redalg.runtime.lowering import problem_of
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from tests.cases.kernels import outputs_of, problem, worst_error
from tests.cases.literature import SEVERAL_AXES
from tests.unfused.test_standalone import run

b, n, c, d, e, k, q = ra.axes("b n c d e k q")
x, y, m, w, z = ra.tensors("x[b,n,c] y[b,c,n] m[b,n] w[c] z[n,c,d,e]")
Q, K, A, B = ra.tensors("Q[q,d,e] K[k,d,e] A[b,q,d] B[b,k,d]")
SCORE = ra.sum(Q * K, d, e)
SIZES = {"b": 3, "n": 5, "c": 7, "d": 4, "e": 3, "k": 9, "q": 6}


def normed(of: Any, *axes: ra.Axis) -> Any:
    """Rows over several axes, less their mean and by their deviation."""
    return (of - ra.mean(of, *axes)) / sqrt(ra.var(of, *axes) + 1)


FORMS: dict[str, Callable[[], ra.Fused]] = {
    **{one.name: one.fuse for one in SEVERAL_AXES},
    "planes": lambda: ra.fuse({"mean": (ra.mean(y, b, n), "c"), "var": (ra.var(y, b, n), "c")}),
    "three of four": lambda: ra.fuse(ra.var(z, n, d, e), axes="c"),
    "all of a tensor": lambda: ra.fuse(ra.sum(x**2, b, n, c), axes=""),
    "logsumexp": lambda: ra.fuse(ra.logsumexp(x, n, c)),
    "any": lambda: ra.fuse(ra.any(x > 2, n, c)),
    "prod": lambda: ra.fuse(ra.prod(1 + x / 10, n, c)),
    "softmax": lambda: ra.fuse(ra.softmax(x, n, c), axes="b n c"),
    "softmax, turned": lambda: ra.fuse(ra.softmax(x, n, c), axes="b c n"),
    "layer norm": lambda: ra.fuse(normed(x, n, c) * w, axes="b n c"),
    "batch norm of planes": lambda: ra.fuse(normed(y, b, n), axes="b c n"),
    "carried along one": lambda: ra.fuse(m / ra.logsumexp(x, n, c), axes="b n"),
    "masked": lambda: ra.fuse(ra.sum(ra.where(n <= c, x, 0), n, c) / ra.sum(ra.where(n <= c, 1, 0), n, c)),
    "extents": lambda: ra.fuse(ra.sum(x * n.extent * c.extent, n, c) / n.extent + c.extent),
    "weights along each": lambda: ra.fuse(ra.sum(x * m * w, n, c) / (1 + ra.sum(m * m, n, c))),
    "in two orders": lambda: ra.fuse(ra.sum(x * y, n, c)),
    "a maximum within": lambda: ra.fuse(ra.sum(x - ra.max(x, n), n, c)),
    "shifted": lambda: ra.fuse(ra.sum(ra.where(n >= 1, x * ra.Tensor("s")[b, n - 1, c], 0), n, c), axes="b"),
    "product": lambda: ra.fuse(ra.sum(ra.tensor("X[q,d,e]") * ra.tensor("W[d,e,k]"), d, e), axes="q k"),
    "scores of all pairs": lambda: ra.fuse(ra.logsumexp(ra.sum(A * B, d), q, k), axes="b"),
    "scores over two": lambda: ra.fuse(ra.logsumexp(SCORE, k), axes="q"),
    "attention over two": lambda: ra.fuse(ra.sum(ra.softmax(SCORE, k) * ra.tensor("V[k,n]"), k), axes="q n"),
    "outputs of two orders": lambda: ra.fuse(
        {"o": (normed(y, b, n), "b c n"), "v": (ra.var(y, b, n), "c"), "t": (ra.softmax(y, b, n), "n c b")}
    ),
    "squares of a product": lambda: ra.fuse(ra.sum(ra.sum(Q * K, d, e) ** 2, k), axes="q"),
    "product and extrema": lambda: ra.fuse({"p": (ra.sum(Q * K, d, e), "q k"), "m": (ra.max(Q, d, e), "q")}),
    "a marginal": lambda: ra.fuse(ra.sum(ra.softmax(x, n, c), n), axes="b c"),
    "a marginal of both, largest": lambda: ra.fuse(
        {"o": (ra.sum(ra.softmax(x, n, c) ** 2, c) + ra.max(x, n, c), "b n"), "z": (ra.logsumexp(x, n, c), "b")}
    ),
    "a marginal of three": lambda: ra.fuse(ra.sum(ra.softmax(z, n, c, d), n, d), axes="c e"),
    "over its marginal": lambda: ra.fuse(ra.softmax(z, n, c, d) / ra.sum(ra.softmax(z, n, c, d), n, c), axes="n c d e"),
    "best over two": lambda: ra.fuse({"v": (ra.topk(SCORE, k, ra.axis("j", size=2))[0], "q j")}),
}
FUSED = {name: make() for name, make in FORMS.items()}


def drawn(name: str, sizes: dict[str, int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Normal numbers for the tensors of a form."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {}
    for one in FUSED[name].cascade.elements():
        shapes[one.name] = [sizes[next(iter(index.free_symbols)).name] for index in one.indices]
    return {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}


TILES = st.fixed_dictionaries({
    "block_row": st.sampled_from([1, 2, 16]), "block_streamed": st.sampled_from([1, 7, 16]),
    "segments": st.sampled_from([1, 3]), "level": st.sampled_from(["thread", "block", "warp"]),
})  # fmt: skip


def planned(plan: Schedule, tile: dict[str, Any], form: ra.Fused) -> Schedule:
    """The plan with a tile that it can have."""
    if numbers_of(plan).level == "thread" and form.form.structures:  # joined lane by lane
        return with_choices(plan, block_streamed=tile["block_streamed"], segments=tile["segments"])
    keep = {"level": numbers_of(plan).level} if numbers_of(plan).multiplies or form.form.places else {}
    rows = {} if plan.binding.row is not None else {"block_row": 1}
    return with_choices(
        plan, **{**tile, **rows, **keep, **({"level": "block"} if numbers_of(plan).level == "row" else {})}
    )


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", FORMS)
@given(st.lists(st.integers(1, 7), min_size=7, max_size=7), st.integers(0, 99), TILES, st.sampled_from(["c", "sm_90a"]))
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_the_program_equals_the_definition(
    name: str, extents: list[int], seed: int, tile: dict[str, Any], target: str
) -> None:
    """⊕_n ⊕_c f(n, c)  →  ⊕_p f(⌊p / |c|⌋, p mod |c|); tensors with n and c side by side are read at p."""
    form = FUSED[name]
    tensors = drawn(name, dict(zip(SIZES, extents, strict=True)), seed)
    wanted, known = form.reference(**tensors), problem(form, tensors)
    assert worst_error(form(**tensors, backend="numpy"), wanted) <= 1e-5
    chosen = form.lower(target, **known).plan
    plans = [chosen] if target != "c" else [chosen, planned(chosen, tile, form)]
    for plan in plans:
        lowered = form.lower(target, **known, plan=plan)
        assert not lowered.form.cascade.inner
        made = interpret(lowered.program, {key: one.numpy() for key, one in tensors.items()})
        for key, one in outputs_of(wanted).items():
            got = torch.from_numpy(made[form.cascade.outputs[0].name if form.single else key])
            assert worst_error(got.reshape(one.shape), one) <= 1e-5


@pytest.mark.parametrize("name", ["batch norm of planes", "carried along one", "scores over two"])
def test_the_c_target_equals_the_definition(name: str) -> None:
    tensors = drawn(name, SIZES)
    assert worst_error(FUSED[name](**tensors, backend="tilelang"), FUSED[name].reference(**tensors)) <= 1e-5


@pytest.mark.parametrize("within", [ra.sum(A * B, d), ra.sum((A - B) ** 2, d)])
def test_a_tile_within_one_part_of_the_axis_is_read_at_that_part(within: Any) -> None:
    """B[b, p mod 64, d] along p, and A[b, ⌊p / 64⌋, d] for a whole tile, which is as long as a part or less."""
    form = ra.fuse(ra.sum(within**2, q, k), axes="b")
    tensors = {"A": torch.randn(16, 64, 16), "B": torch.randn(16, 64, 16)}
    known = problem(form, tensors)
    made = interpret(form.lower("sm_90a", **known).program, {key: one.numpy() for key, one in tensors.items()})
    assert worst_error(torch.from_numpy(made["out"]), form.reference(**tensors)) <= 1e-5


def test_a_tile_that_moves_with_the_loop_by_its_quotient_is_loaded_in_it() -> None:
    """K[b, ⌊k / 4⌋, d]: one row a tile, which no dimension of the tile says."""
    form = ra.fuse(ra.logsumexp(ra.sum(B * ra.Tensor("K")[b, floor(k / 4), d], d), k), axes="b")
    tensors = {"B": torch.randn(2, 16, 5), "K": torch.randn(2, 4, 5)}
    known = problem(form, tensors)
    plan = with_choices(form.lower("c", **known).plan, block_streamed=4, level="block")
    made = interpret(form.lower("c", **known, plan=plan).program, {key: one.numpy() for key, one in tensors.items()})
    assert worst_error(torch.from_numpy(made["out"]), form.reference(**tensors)) <= 1e-5


# ---- what becomes of tensors, sizes and names ------------------------------------------------------------------------


def rewritten(name: str, **more: Any) -> tuple[Any, Any]:
    form = FUSED[name].form
    sizes = {axis.name: SIZES[axis.name] for axis in form.cascade.axes() if axis.size is None}
    asked = problem_of(form, "c", sizes, dict.fromkeys(form.cascade.inputs(), "float32"), shapes={}, empty="nan",
                       precision="ieee")  # fmt: skip
    stages, known = coalesce_axes(single(form), replace(asked, **more))
    return stages.loop, known


@pytest.mark.parametrize(
    ("name", "elements", "shapes"),
    [
        ("Frobenius norm", "image[b, n_c]", {"image": (3, 35)}),
        ("BatchNorm statistics", "image[b_n, c]", {"image": (15, 7)}),
        ("planes", "y[floor(b_n/5), c, Mod(b_n, 5)]", {"y": (3, 7, 5)}),
        ("three of four", "z[floor(n_d_e/12), c, Mod(n_d_e, 12)]", {"z": (5, 7, 12)}),
        ("in two orders", "x[b, n_c] y[b, Mod(n_c, 7), floor(n_c/7)]", {"x": (3, 35), "y": (3, 7, 5)}),
        ("a maximum within", "x[b, floor(n_c/7), Mod(n_c, 7)] x[b, n, Mod(n_c, 7)]", {"x": (3, 5, 7)}),
        ("scores over two", "K[k, d_e] Q[q, d_e]", {"K": (9, 12), "Q": (6, 12)}),
    ],
)
def test_axes_side_by_side_are_one_dimension(name: str, elements: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """x[b, ⌊p / |c|⌋, p mod |c|]  →  x[b, p]; others are read at computed places."""
    form, asked = rewritten(name)
    assert " ".join(map(str, form.cascade.elements())) == elements
    assert asked.shapes == shapes
    form.verify()
    form.cascade.verify()


@given(st.lists(st.integers(-1, 3), max_size=6))
def test_runs_cover_every_dimension_once(numbers: list[int]) -> None:
    covered = [place + one for place, count in runs_of(numbers) for one in range(count)]
    assert covered == list(range(len(numbers)))
    for place, count in runs_of(numbers):
        assert count == 1 or [*numbers[place : place + count]] == [numbers[place] + one for one in range(count)]


def test_one_axis_is_left_as_it_is() -> None:
    stages = single(ra.fuse(ra.var(m, n)).form)
    asked = problem_of(stages.loop, "c", {"b": 2, "n": 3}, {"m": "float32"}, shapes={}, empty="nan", precision="ieee")
    assert coalesce_axes(stages, asked) == (stages, asked)


def test_a_name_that_is_taken_is_not_used() -> None:
    made = ra.fuse(ra.sum(ra.tensor("x[n,c]") * ra.tensor("n_c[n,c]"), n, c), axes="")
    tensors = {"x": torch.randn(3, 4), "n_c": torch.randn(3, 4)}
    lowered = made.lower("c", **problem(made, tensors))
    assert str(lowered.form.cascade.axis) == "n_c_"
    assert "n_c_ numbers the elements along n and c together, the last fastest" in lowered.source.text


def test_a_run_time_size_is_that_of_all_axes_together() -> None:
    """The kernel reads the product of the sizes off the tensor; where it needs them apart they are refused by name."""
    statistics = FUSED["BatchNorm statistics"]
    known: Any = {"sizes": {"b": 3, "n": 5, "c": 7}, "dtypes": {"image": "float32"}}
    lowered = statistics.lower("c", **known, varying="n")
    assert 'image: T.Tensor((b_n_size, 7), "float32")' in lowered.source.text
    for rows, columns in ((3, 5), (1, 1), (4, 33)):
        image = torch.randn(rows, columns, 7)
        made = interpret(lowered.program, {"image": image.numpy()})
        assert worst_error(torch.from_numpy(made["var"]), image.double().var((0, 1), correction=0)) <= 1e-5
    with pytest.raises(PlanError) as error:
        FUSED["planes"].lower("c", sizes=known["sizes"], dtypes={"y": "float32"}, varying="bn")
    assert str(error.value) == (
        "varying: axes b and n are reduced at once and streamed as one axis b_n, and `y[b, c, n]` needs them apart, so "
        "that a kernel has their sizes as constants. Leave b, n out."
    )
    with pytest.raises(PlanError, match="the size of axis n_c cannot change from call to call"):
        FUSED["Frobenius norm"].lower("c", sizes=known["sizes"], dtypes={"image": "float32"}, varying="c")


def test_calls_of_many_sizes_share_a_kernel_where_they_may() -> None:
    form = ra.fuse(ra.sum(x * m, b, n), axes="c")
    weights = ra.fuse(ra.sum(x * m, n, c) / ra.sum(m * m, n, c))
    for made, calls in ((form, ((2, 3), (4, 2), (7, 1))), (weights, ((2, 3), (3, 3), (4, 3)))):
        for sizes in calls:
            tensors = {"x": torch.randn(*sizes, 4), "m": torch.randn(*sizes)}
            assert worst_error(made(**tensors, backend="tilelang"), made.reference(**tensors)) <= 2e-5
        found = {id(lowered) for one, lowered in runtime_sizes._LOWERED.values() if one is made.form}
        assert len(found) == 2  # that of the first sizes, and one for all others


def test_a_kernel_compiled_ahead_is_the_one_that_a_call_takes() -> None:
    form = ra.fuse(ra.sum(x**3, n, c))
    form.compile("c", sizes={"b": 2, "n": 3, "c": 4}, dtypes="float32")
    before = len(runtime_sizes._LOWERED)
    form(x=torch.randn(2, 3, 4), backend="tilelang")
    assert len(runtime_sizes._LOWERED) == before


@pytest.mark.slow
def test_plans_of_several_axes_have_times() -> None:
    table = FUSED["LayerNorm statistics over two axes"].plans({"b": 64, "n": 512, "c": 64}, "float32", "H200")
    assert {one.plan.binding.streamed.name for one in table if isinstance(one.plan, ra.Schedule)} == {"n_c"}
    assert table[0].predicted_us > 64 * 512 * 64 * 4 / 4.8e6


def test_a_saved_file_holds_itself_to_the_definition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = FUSED["layer norm"]
    sizes = {axis.name: SIZES[axis.name] for axis in made.cascade.axes()}
    assert run(made.save(tmp_path / "saved.py", "c", sizes=sizes, dtypes="float32")) == 0
    assert "out (3, 5, 7): max error" in capsys.readouterr().out
    text = made.save(tmp_path / "saved.py", "sm_90a", sizes=sizes, dtypes="float32").read_text(encoding="utf-8")
    assert "sum_0 = x.sum((1, 2))  # [b]" in text


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_what_follows_an_order_is_refused() -> None:
    """The surface gives such a reduction one axis; a form made by hand is refused by name."""
    form = ra.fuse(ra.first(ra.tensor("x[b,n]"), n)).form
    form = replace(form, cascade=replace(form.cascade, inner=(c,)))
    asked = problem_of(form, "c", {"b": 2, "n": 3, "c": 4}, {"x": "float32"}, shapes={}, empty="nan", precision="ieee")
    with pytest.raises(PlanError, match="`first_0` is a first over axes n and c at once, and depends on the order"):
        coalesce_axes(single(form), asked)


def test_more_elements_than_32_bits_number_are_refused() -> None:
    with pytest.raises(PlanError, match="axes n and c, which are reduced at once, have 4294967296 elements together"):
        FUSED["Frobenius norm"].lower("sm_90a", {"b": 1, "n": 65536, "c": 65536}, {"image": "float32"})


def test_a_marginal_of_what_is_reduced_is_a_stage_of_its_own() -> None:
    """The largest and the sum of both axes, then the sum along one of them alone, of the same tensor."""
    forms = FUSED["a marginal"].lower("sm_90a", {"b": 2, "n": 3, "c": 4}, {"x": "float32"}).stages.forms
    assert [[str(one) for one in form.cascade.reduced_axes] for form in forms] == [["n_c"], ["n"]]
    assert [[one.name for one in form.outputs] for form in forms][1] == ["out"]
