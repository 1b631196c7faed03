"""Every stage prints and verifies: goldens of attention and variance at every level, and one text for two targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Copy, Parallel, Region, Statement, TileProgram
from redalg.lower_tile.text.bindings import BEGIN, END
from redalg.runtime.lowered import Lowered
from redalg.strategies.schedule import Definition, numbers_of, with_choices
from tests.cases.kernels import fused

PROBLEMS = {
    "attention": ("causal", {"b": 2, "h": 3, "q": 200, "k": 300, "d": 64, "e": 48}, "float16"),
    "variance": ("variance", {"b": 1000, "n": 5000}, "float32"),
}


def lowered(name: str, target: str = "sm_90a", **options: object) -> Lowered:
    form, sizes, dtype = PROBLEMS[name]
    one = fused(form)
    made: Lowered = one.lower(target, sizes, dict.fromkeys(one.cascade.inputs(), dtype), **options)
    return made


@pytest.mark.parametrize("name", PROBLEMS)
def test_cascade_decomposition_and_form(name: str, golden) -> None:
    one = fused(PROBLEMS[name][0])
    for stage in (one.cascade, one.decomposition, one.form):
        stage.verify()
    golden(f"{name}.cascade", f"{one.cascade}\n\n{one.decomposition}\n\n{one.form}\n")


@pytest.mark.parametrize("name", PROBLEMS)
def test_plan_and_tile_program(name: str, golden) -> None:
    made = lowered(name)
    verify(made.program)
    golden(f"{name}.program", f"{made.plan}\n\n{made.program}\n")


@pytest.mark.parametrize("name", PROBLEMS)
def test_source(name: str, golden) -> None:
    golden(f"{name}.source", lowered(name).source.text)


def test_one_dtype_for_all_tensors() -> None:
    form, sizes = fused("attention"), {"b": 1, "h": 2, "q": 8, "k": 16, "d": 4, "e": 4}
    by_name = form.lower("c", sizes, dict.fromkeys("QKV", "float32"))
    assert form.lower("c", sizes, "float32").source.text == by_name.source.text


def test_source_of_several_segments(golden) -> None:
    made = lowered("attention")
    made = lowered("attention", plan=with_choices(made.plan, segments=2))
    golden("attention.segments", made.source.text)


def test_program_of_parts_merged_in_the_launch(golden) -> None:
    by_lane = {"level": "thread", "block_streamed": 1024, "segments": 2, "merge": "launch"}
    made = lowered("variance", plan=with_choices(lowered("variance").plan, **by_lane))
    golden("variance.launch", f"{made.plan}\n\n{made.program}\n")


@pytest.mark.parametrize("name", PROBLEMS)
def test_one_text_for_cuda_and_c(name: str) -> None:
    """Under one plan the two targets' texts differ only between the marks of the binding header.

    Whole rows go in turns of a GPU's threads (`whole_row_sums`), and not in C: they are taken tile by tile here.
    """
    cuda = lowered(name)
    c_device = lowered(name, "c").plan.device
    tiles = {"level": "block", "block_streamed": 1024} if numbers_of(cuda.plan).level == "row" else {}
    plan = replace(with_choices(cuda.plan, tensor_cores=False, warp_specialized=False, **tiles), limits=c_device)
    plans = (with_choices(cuda.plan, tensor_cores=False, **tiles), plan)
    texts = [lowered(name, plan.device.target, plan=plan).source.text for plan in plans]
    bodies = []
    for text, one in zip(texts, plans, strict=True):
        before, rest = text.split(BEGIN.format(target=one.device.target))
        bodies.append((before.split("Schedule:")[0], rest.split(END)[1]))
    assert bodies[0] == bodies[1]


def test_a_plan_that_exceeds_shared_memory() -> None:
    plan = with_choices(lowered("attention").plan, block_row=256, block_streamed=2048, stages=1)
    with pytest.raises(PlanError) as error:
        lowered("attention", plan=plan)
    assert str(error.value) == (
        f"plan `{plan}` needs 294912 bytes of shared memory for kernel `stream k, finish`; a block of sm_90a "
        "(H200) has 232448. Use smaller tiles or fewer stages."
    )


def test_a_plan_for_another_target() -> None:
    plan = lowered("attention").plan
    with pytest.raises(PlanError, match=r"the plan is for sm_90a, and the kernel for sm_80\. Make a plan for sm_80\."):
        lowered("attention", "sm_80", plan=plan)


def test_an_unknown_target() -> None:
    with pytest.raises(
        PlanError, match=r"target 'sm_75' is not known\. Use one of 'sm_90a', 'sm_89', 'sm_86', 'sm_80', 'c', 'H200'"
    ):
        lowered("attention", "sm_75")


def broken(program: TileProgram, kind: type) -> TileProgram:
    """The program with one statement of a kind spoilt."""
    kernel = program.kernels[0]
    place, one = next((place, one) for place, one in enumerate(kernel.body) if isinstance(one, kind))
    spoilt: Statement
    if isinstance(one, Copy):
        spoilt = replace(one, source=Region("Q", ()))
    else:
        assert isinstance(one, Parallel)
        spoilt = replace(one, indices=one.indices[:0])
    body = (*kernel.body[:place], spoilt, *kernel.body[place + 1 :])
    return replace(program, kernels=(replace(kernel, body=body),))


@pytest.mark.parametrize("kind", [Copy, Parallel])
def test_verify_refuses_a_broken_program(kind: type) -> None:
    with pytest.raises(PlanError, match="kernel `stream k, finish`, statement"):
        verify(broken(lowered("attention").program, kind))


def test_a_plan_names_its_form() -> None:
    assert [one.kind for one in fused("causal").forms] == ["online", "unfused"]
    plan = Definition(lowered("attention").plan.device)
    with pytest.raises(PlanError) as error:
        lowered("attention", plan=plan)
    assert str(error.value) == (
        "the plan `unfused form: 0 operations by PyTorch` has no kernel of its own: it takes PyTorch's operations. "
        "Pass it to a call, or leave plan= out."
    )


def test_the_header_names_this_version() -> None:
    from redalg.lower_tile.text.header import VERSION

    assert ra.__version__ == VERSION
    assert f"Generated by redalg {VERSION}." in lowered("variance").source.text
