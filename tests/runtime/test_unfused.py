"""The unfused form as a plan: what admits it, what it computes, who chooses it, and what is remembered of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Max, sqrt

import redalg as ra
from benchmarks import sweep, tune
from benchmarks.families import FAMILIES
from redalg.library import chained_product
from redalg.runtime.call import sizes as sizing
from redalg.runtime.known import stored, tuned
from redalg.runtime.lowering import choose_library, space_for
from redalg.runtime.tune import tuner
from redalg.runtime.unfused import unfused
from redalg.strategies.device import device_for
from redalg.strategies.model.unfused import predict_unfused
from redalg.strategies.schedule import AnySchedule, Definition
from redalg.strategies.search.choice import loses_to, preferred_schedule
from redalg.strategies.search.search import Found, Limits, Trial
from redalg.strategies.search.space import Space
from tests.cases.kernels import CASES, fused, problem, tensors_of, worst_error
from tests.house.source import ROOT
from tests.sweeps import FIRST

b, m, n, k, h = ra.axes("b m n k h")
A, B, D = ra.tensors("A[b,m,k] B[b,k,n] D[b,n,h]")
X, W, V = ra.tensors("X[m,k] W[n,k] V[n,h]")
PRODUCT = ra.sum(X * W, k)
G6 = {"b": 1, "m": 512, "n": 512, "k": 1024, "h": 256}
WIDE = {"b": 1, "m": 1024, "n": 1024, "k": 1024, "h": 2048}
"""A chain whose columns no block holds: a kernel makes the product in between again for every tile of them."""
CHAIN = chained_product()


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is remembered but what a test keeps, and no lowering of one test is another's."""
    monkeypatch.setenv(tuned.SWITCH, "on")
    monkeypatch.setattr(tuned, "PACKS", tmp_path / "packs")
    monkeypatch.setattr(tuned, "cache_file", lambda name: tmp_path / "tuned" / tuned.file_name(name))
    monkeypatch.setattr(tuner, "FEW", Limits(population=2, batch=2, patience=1))
    yield
    sizing.forget(CHAIN.form)


def space(form: ra.Fused, sizes: dict[str, int], dtype: str, card: str = "H200", **options: str) -> Space:
    return space_for(form.form, card, sizes, dict.fromkeys(form.cascade.inputs(), dtype), **options)


def plain_plan(form: ra.Fused, sizes: dict[str, int], dtype: str = "float32", card: str = "c") -> Definition:
    """The unfused plan of the list, without the list."""
    return unfused.admit_unfused(form.form, space(form, sizes, dtype, card)).plan


def drawn(sizes: dict[str, int], seed: int = 0, **how: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"A": "bmk", "B": "bkn", "D": "bnh", "X": "mk", "W": "nk", "V": "nh"}
    return {name: torch.randn([sizes[one] for one in axes if one in sizes], generator=generator, **how)
            for name, axes in shapes.items() if set(axes) <= set(sizes)}  # fmt: skip


def taken(form: ra.Fused, sizes: dict[str, int], **how: Any) -> dict[str, torch.Tensor]:
    return {name: one for name, one in drawn(sizes, **how).items() if name in form.cascade.inputs()}


def error(made: Any, wanted: Any) -> float:
    return float((torch.as_tensor(made).double() - wanted).abs().max() / wanted.abs().max())


# ---- what it computes ------------------------------------------------------------------------------------------------


ADMITTED: dict[str, Callable[[], ra.Fused]] = {
    "chain": lambda: CHAIN,
    "product": lambda: ra.fuse(PRODUCT, axes="m n"),
    "turned product": lambda: ra.fuse(PRODUCT, axes="n m"),
    "clipped": lambda: ra.fuse(ra.sum(Max(PRODUCT, 0) * V, n), axes="m h"),
    "mean of squares": lambda: ra.fuse(ra.mean(PRODUCT**2 * V, n), axes="m h"),
    "scaled": lambda: ra.fuse(ra.sum(PRODUCT * V, n) / sqrt(ra.scalars("rate", positive=True)), axes="m h"),
    "largest": lambda: ra.fuse({"top": (ra.max(PRODUCT, n), "m"), "all": (ra.sum(PRODUCT, n), "m")}),
}


@pytest.mark.parametrize("name", ADMITTED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_the_definition_in_the_tensors_own_dtype(name: str, dtype: str) -> None:
    form, sizes = ADMITTED[name](), {"b": 2, "m": 33, "n": 70, "k": 40, "h": 20}
    tensors = taken(form, sizes, dtype=getattr(torch, dtype))
    known = {name: size for name, size in sizes.items() if name in {str(one) for one in form.cascade.axes()}}
    scalars = {str(one.name): 0.7 for one in form.cascade.scalars()}
    plan = plain_plan(form, known, dtype)
    out = form(**tensors, **scalars, backend="tilelang", plan=plan)
    wanted = form.reference(**tensors, **scalars)
    pairs = list(zip(out, wanted, strict=True)) if name == "largest" else [(out, wanted)]
    for one, other in pairs:
        assert (str(one.dtype), one.is_contiguous(), one.shape) == (f"torch.{dtype}", True, other.shape)
        assert error(one, other) <= (2e-6 if dtype == "float32" else 1e-14)


@given(data=st.data())
def test_any_sizes_and_strides_and_libraries(data: st.DataObject) -> None:
    known = {name: data.draw(st.integers(1, 12), name) for name in "bmnkh"}
    tensors = drawn(known)
    given_: dict[str, Any] = {name: tensors[name] for name in "ABD"}
    if data.draw(st.booleans(), "strided"):
        given_["B"] = given_["B"].mT.contiguous().mT
    wanted = CHAIN.reference(**given_)
    if data.draw(st.booleans(), "numpy"):
        given_ = {name: one.numpy() for name, one in given_.items()}
    plan = Definition(device_for("c"))
    around = known["b"] * sum(known[one] * known[two] for one, two in ("mk", "kn", "nh", "mh"))
    if known["b"] * known["m"] * known["n"] > unfused.MEMORY * around:
        with pytest.raises(ra.PlanError, match="bytes would lie between"):
            CHAIN(**given_, backend="tilelang", plan=plan)
        return
    out = CHAIN(**given_, backend="tilelang", plan=plan)
    assert isinstance(out, type(given_["A"]))
    assert error(out, wanted) <= 1e-5


def test_on_the_c_target_bfloat16_is_float32_within() -> None:
    """As in the kernel of that target: the product in between is not rounded."""
    sizes = {"b": 1, "m": 40, "n": 64, "k": 48, "h": 24}
    tensors = {name: one.bfloat16() for name, one in taken(CHAIN, sizes).items()}
    out = CHAIN(**tensors, backend="tilelang", plan=plain_plan(CHAIN, sizes, "bfloat16"))
    assert out.dtype == torch.bfloat16
    assert error(out, CHAIN.reference(**tensors)) <= 2.0**-8


def test_products_of_two_are_launched_as_such() -> None:
    spelled = {"mk,kn->mn": "A @ B", "nk,mk->mn": "B @ A.mT", "bkm,bnk->bmn": "A.mT @ B.mT", "k,kn->n": None,
               "bmk,kn->bmn": None, "mk,mn->kn": "A.mT @ B", "mk,kn->m": None}  # fmt: skip
    for spec, wanted in spelled.items():
        sides = spec.split("->")[0].split(",")
        extents = dict(zip("bmkn", (2, 3, 4, 5), strict=True))
        tensors = [torch.randn([extents[one] for one in side]) for side in sides]
        call = ast.parse(f"torch.einsum('{spec}', A, B)", mode="eval")
        text = ast.unparse(unfused.Products().visit(call))
        assert ("einsum" in text) == (wanted is None)
        names = {"torch": torch, "A": tensors[0], "B": tensors[1]}
        assert torch.allclose(eval(text, names), torch.einsum(spec, *tensors), atol=1e-5)
        assert wanted is None or torch.equal(eval(text, names), eval(wanted, names))


# ---- what admits it --------------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[], ra.Fused], str, str]] = {
    "float16": (lambda: CHAIN, "float16", "its tensors are of float16"),
    "a weight": (lambda: fused("attention"), "float32", "the kernel shifts or scales"),
    "a norm": (lambda: fused("norm"), "float32", "the kernel shifts or scales"),
    "a selection": (lambda: fused("routing"), "float32", "the kernel shifts or scales"),
    "a largest element's place": (lambda: fused("argmax"), "float32", "selects elements, or depends on their order"),
    "a mask": (lambda: ra.fuse(ra.sum(ra.where(n > 3, PRODUCT, 0) * V, n), axes="m h"), "float32", "are masked"),
    "a rounding": (lambda: ra.fuse(ra.sum(ra.cast(PRODUCT, "int8") * V, n), axes="m h"), "float32", "are rounded"),
    "a place": (lambda: ra.fuse(ra.sum(n * PRODUCT, n), axes="m"), "float32", "it makes tensors of numbers"),
    "what is clipped in bfloat16": (ADMITTED["clipped"], "bfloat16", "which the kernel keeps"),
    "a mean in bfloat16": (ADMITTED["mean of squares"], "bfloat16", "which the kernel keeps"),
    "rows in bfloat16": (ADMITTED["largest"], "bfloat16", "which the kernel keeps"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_elsewhere_it_is_refused_with_the_reason(name: str) -> None:
    made, dtype, said = REFUSED[name]
    form = made()
    sizes = {str(one): one.size or 16 for one in form.cascade.axes()}
    one = space(form, sizes, dtype)
    assert unfused.offer_unfused(form.form, one) is None
    plan = Definition(one.device)
    with pytest.raises(ra.PlanError, match=said) as error:
        choose_library(form.form, "H200", one.problem, plan)
    assert str(error.value).endswith("Take one of the kernels that `fused.plans` lists.")
    assert all(one.plan.form != "unfused" for one in form.plans(sizes, dtype, "H200"))


def test_what_is_between_may_not_be_far_larger_than_what_is_around() -> None:
    small, large = {"m": 64, "n": 64, "k": 16, "h": 16}, {"m": 4096, "n": 4096, "k": 16, "h": 16}
    form = ADMITTED["clipped"]()
    assert unfused.offer_unfused(form.form, space(form, small, "float32")) is not None
    with pytest.raises(ra.PlanError, match=f"a tensor of {4 * 4096 * 4096} bytes would lie between"):
        unfused.admit_unfused(form.form, space(form, large, "float32"))


def test_of_the_kernels_cases_what_is_admitted_is_right() -> None:
    """Rows that are masked or empty, numbers beyond the root of the range, NaN: those forms are refused."""
    seen = list[str]()
    for case in CASES:
        form, tensors = fused(case.form), tensors_of(case)
        options = problem(form, tensors, dict(case.sizes))
        plan = plan_admitted(form, options, case.empty)
        if plan is None:
            continue
        out = form(**tensors, sizes=case.sizes, empty=case.empty, backend="tilelang", plan=plan)
        assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= max(case.tolerance, 4e-6)
        seen.append(case.name)
    assert {"product", "weighted mean"} <= {*seen}
    assert len(seen) < len(CASES) / 3


def plan_admitted(form: ra.Fused, known: dict[str, Any], empty: str) -> Definition | None:
    extents = {axis.name: axis.size for axis in form.cascade.axes() if axis.size is not None}
    options = {"empty": empty, "shapes": known["shapes"]}
    plain = unfused.offer_unfused(
        form.form, space_for(form.form, "c", extents | known["sizes"], known["dtypes"], **options)
    )
    return None if plain is None else plain.plan


@pytest.mark.parametrize("what", ["source", "lower", "compile", "save"])
def test_it_has_no_kernel(what: str, tmp_path: Path) -> None:
    plan = plain_plan(CHAIN, G6, "bfloat16", "H200")
    arguments: dict[str, Any] = {"sizes": G6, "dtypes": dict.fromkeys("ABD", "bfloat16"), "target": "H200"}
    place = (tmp_path / "kernel.py",) if what == "save" else ()
    with pytest.raises(ra.PlanError, match="unfused form: 2 operations by PyTorch` has no kernel"):
        getattr(CHAIN, what)(*place, **arguments, plan=plan)


def test_a_plan_is_for_a_target() -> None:
    sizes = {"b": 1, "m": 8, "n": 8, "k": 8, "h": 8}
    with pytest.raises(ra.PlanError, match="the plan is for sm_90a, and the kernel for c"):
        CHAIN(**taken(CHAIN, sizes), backend="tilelang", plan=plain_plan(CHAIN, sizes, "bfloat16", "H200"))


# ---- listing and the model -------------------------------------------------------------------------------------------


def test_it_is_listed_with_its_predicted_time() -> None:
    found = CHAIN.plans(G6, "bfloat16", "H200")[:FIRST]
    (one,) = [one for one in found if one.plan.form == "unfused"]
    assert one.plan == plain_plan(CHAIN, G6, "bfloat16", "H200")
    assert (one.expression, one.bound) == ("bmnk, bhmn", "launch")
    assert str(one.plan) == "unfused form: 2 operations by PyTorch"
    fitting = [other.predicted_us for other in found if other.smem_bytes <= device_for("H200").smem_bytes]
    assert fitting == sorted(fitting)
    assert found[0] == one


def test_the_model_follows_what_was_measured() -> None:
    """The pairs of products that peers of the benchmark ran on an H200: within 15 %."""
    content = json.loads((ROOT / "benchmarks/results/chains.json").read_text(encoding="utf-8"))
    seen = 0
    for line in content["rows"]:
        one = space(CHAIN, line["sizes"], "bfloat16")
        plain = unfused.admit_unfused(CHAIN.form, one)
        assert plain.prediction.time_us == pytest.approx(line["contestants"]["cuBLAS"]["median_us"], rel=0.15)
        seen += 1
    assert seen == 12


def test_more_work_and_more_operations_take_longer() -> None:
    one = space(CHAIN, G6, "bfloat16")
    times = [predict_unfused(CHAIN.form, replace(one.problem, sizes={**G6, "k": G6["k"] * times}), one.device, count,
                             1 << 20)
             for times, count in ((1, 2), (2, 2), (2, 3))]  # fmt: skip
    assert times[0].time_us < times[1].time_us < times[2].time_us
    assert all(time.time_us > 0 for time in times)


# ---- choice ----------------------------------------------------------------------------------------------------------


def remembered(
    form: ra.Fused,
    sizes: dict[str, int],
    plan: AnySchedule,
    measured_us: float,
    dtype: str = "bfloat16",
    card: str = "H200",
) -> tuned.Entry:
    one = space(form, sizes, dtype, card)
    extents, key = tuned.key_sizes(form.form, one.problem), tuned.problem_key(form.form, one.problem, one.device)
    return tuned.Entry(key, extents, stored.write_line(plan), measured_us, 9.4)


@pytest.mark.slow
def test_without_measuring_it_is_taken_where_it_promises_more_than_the_model_errs_by() -> None:
    assert CHAIN.plan(G6, "bfloat16", "H200").form == "online"  # 9.4 µs beside 9.8: the model errs by more
    plan = CHAIN.plan(WIDE, "bfloat16", "H200")
    assert (plan.form, plan.origin) == ("unfused", "model")
    one, promised = space(CHAIN, WIDE, "bfloat16"), plan.predicted_us or 0.0
    best = min(one.predict(kernel).time_us for kernel in one.plans())
    assert 1.25 * promised < best
    assert not loses_to(one, best)


@pytest.mark.parametrize("card", ["A100", "A10"])
def test_the_model_chooses_on_the_architecture_that_it_was_fitted_on(card: str) -> None:
    one = space(CHAIN, WIDE, "bfloat16", card)
    assert choose_library(CHAIN.form, card, one.problem, None) is None
    assert one.predict(preferred_schedule(one)).time_us > unfused.admit_unfused(CHAIN.form, one).prediction.time_us


def test_what_is_remembered_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faster of what was measured at these very sizes; the switch leaves the model alone."""
    kernel = CHAIN.lower("H200", G6, dict.fromkeys("ABD", "bfloat16")).plan
    plain = plain_plan(CHAIN, G6, "bfloat16", "H200")
    tuned.add_entries(tuned.pack_file("H200"), [remembered(CHAIN, G6, kernel, 9.5), remembered(CHAIN, G6, plain, 9.1)])
    plan = CHAIN.plan(G6, "bfloat16", "H200")
    assert (plan.form, plan.origin, plan.predicted_us, str(plan)) == (
        "unfused", "pack", 9.4, "unfused form: 2 operations by PyTorch")  # fmt: skip
    assert CHAIN.lower("H200", G6, dict.fromkeys("ABD", "bfloat16")).plan.origin == "pack"  # the kernel's own entry
    tuned.remember(remembered(CHAIN, G6, kernel, 9.0))
    assert CHAIN.plan(G6, "bfloat16", "H200").form == "online"
    monkeypatch.setenv(tuned.SWITCH, "off")
    assert CHAIN.plan(WIDE, "bfloat16", "H200").origin == "model"


def test_a_kernel_that_is_remembered_goes_before_the_models_promise() -> None:
    kernel = CHAIN.lower("H200", WIDE, dict.fromkeys("ABD", "bfloat16")).plan
    tuned.remember(remembered(CHAIN, WIDE, kernel, 500.0))
    assert CHAIN.plan(WIDE, "bfloat16", "H200").form == "online"


def test_it_is_remembered_for_its_very_sizes_alone() -> None:
    tuned.remember(remembered(CHAIN, G6, plain_plan(CHAIN, G6, "bfloat16", "H200"), 9.1))
    assert CHAIN.plan(G6, "bfloat16", "H200").form == "unfused"
    other = space(CHAIN, {**G6, "m": 500}, "bfloat16")
    assert list(tuned.tuned_schedules(CHAIN.form, other)) == []


def test_an_entry_is_read_as_it_was_kept_and_others_load_unchanged() -> None:
    kept = remembered(CHAIN, G6, plain_plan(CHAIN, G6, "bfloat16", "H200"), 9.1)
    assert kept.schedule == "definition"
    path = tuned.remember(kept)
    assert tuned.read_entries(path) == {kept.name: kept}
    shipped = Path(ra.__file__).parent / "tuned" / "H200.json"
    lines = json.loads(shipped.read_text(encoding="utf-8"))["entries"]
    assert len(tuned.parse_file(shipped) or {}) == len(lines)


def test_a_call_takes_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"b": 1, "m": 16, "n": 24, "k": 16, "h": 8}
    tuned.remember(remembered(CHAIN, sizes, plain_plan(CHAIN, sizes), 1.0, "float32", "c"))
    ran: list[unfused.Unfused] = []
    step = unfused.unfused_operations

    def noted(made: unfused.Unfused, bound: Any) -> Any:
        ran.append(made)
        return step(made, bound)

    monkeypatch.setattr(unfused, "unfused_operations", noted)
    tensors = taken(CHAIN, sizes, seed=3)
    made = CHAIN(**tensors, backend="tilelang")
    assert [one.plan.origin for one in ran] == ["cache"]
    assert error(made, CHAIN.reference(**tensors)) <= 2e-6
    CHAIN.compile("c", sizes=sizes, dtypes="float32")  # compiling a kernel does not make calls take it
    again = CHAIN(**{name: one.clone() for name, one in tensors.items()}, backend="tilelang")
    assert torch.equal(again, made)
    assert CHAIN.plan(sizes, "float32", "c").form == "unfused"


# ---- tuning ----------------------------------------------------------------------------------------------------------


def test_tuning_measures_it_beside_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a simulated clock, on which it wins: it is checked like any other, and calls take it from then on."""
    timed = tuner.Measuring.check_and_time

    def simulated(measuring: tuner.Measuring, step: Any) -> Any:
        outcome = timed(measuring, step)
        return replace(outcome, measured_us=1e-3) if isinstance(step, unfused.Operations) else outcome

    monkeypatch.setattr(tuner.Measuring, "check_and_time", simulated)
    form, sizes = ra.fuse(PRODUCT, axes="m n"), {"m": 24, "n": 40, "k": 32}
    result = form.tune(**taken(form, sizes), budget_s=120.0)
    (mine,) = [one for one in result.trials if one.candidate.form == "unfused"]
    assert (mine.failure, mine.measured_us, mine.turn, result.best) == ("", 1e-3, 1, mine)
    assert result.trials[0].candidate.form == "online"
    plan = form.plan(sizes, "float32", "c")
    assert (plan.form, plan.origin) == ("unfused", "cache")
    assert sorted(one.is_unfused for one in tuned.read_entries(result.path).values()) == [False, True]
    assert form.lower("c", sizes, {"X": "float32", "W": "float32"}).plan.origin == "cache"
    assert "unfused form: 1 operations by PyTorch" in result.table(most=None).text(160)


def test_a_later_tuning_may_find_a_faster_kernel() -> None:
    form, sizes = ra.fuse(PRODUCT, axes="m n"), {"m": 24, "n": 40, "k": 32}
    task = tuner.task_of(form.passes, taken(form, sizes), {}, tuner.Tuning())
    rules, plain = next(task.space.plans()), task.by_library[0].plan
    for kernel_us, wins in ((9.5, "unfused"), (9.0, "online")):
        trials = tuple(Trial(plan, 1.0, time, "", 1) for plan, time in ((rules, kernel_us), (plain, 9.1)))
        tuner.keep_fastest(task, Found(trials, 2, "exhausted"), rules, 0.0)
        assert form.plan(sizes, "float32", "c").form == wins


# ---- benchmarks ------------------------------------------------------------------------------------------------------


def test_a_sweep_of_the_best_has_it() -> None:
    family = FAMILIES["chains"]
    row = next(one for one in family.rows(torch.device("cpu")) if one.name == "C1")
    found = sweep.draw(family, row, "c", sweep.Wish(1, best=True))
    assert found.plain is not None
    assert sweep.line_of(found.plain) == {"plan": "unfused form: 2 operations by PyTorch", "form": "unfused"}
    assert sweep.draw(family, row, "c", sweep.Wish(0)).plain is None
    assert sweep.line_of(found.lowered[0].plan)["form"] == "online"


def test_its_time_is_packed_beside_the_best_kernels() -> None:
    one = space(CHAIN, G6, "bfloat16")
    kernels, plain = one.plans(), plain_plan(CHAIN, G6, "bfloat16", "H200")
    times = ((next(kernels), 9.6), (next(kernels), 9.5), (plain, 9.1))
    lines = [{**sweep.line_of(plan), "median_us": time} for plan, time in times]
    environment = {"device": "NVIDIA H200", "target": "sm_90a",
                   "versions": {"redalg": ra.__version__, "tilelang": tuned.tilelang_version()}}  # fmt: skip
    rows = [{"name": "G6", "sizes": G6, "plans": lines}]
    tune.packed([{"benchmark": "sweep-chains", "environment": environment, "rows": rows}], None)
    held = {one.is_unfused: one.measured_us for one in tuned.read_entries(tuned.pack_file("H200")).values()}
    assert held == {False: 9.5, True: 9.1}
    assert str(CHAIN.plan(G6, "bfloat16", "H200")) == "unfused form: 2 operations by PyTorch"
