"""A group as one expression means what its statements mean, one after another; and the algebra fuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sympy import Eq, Integer, S, asinh, atanh, exp, floor, log, pi, sqrt, tanh
from torch import nn

import redalg as ra
from redalg.errors import GraphError
from redalg.expression import Axis, Tensor, Where
from redalg.expression.contents import of_kind
from redalg.graphs import compose as module
from redalg.graphs.compose import Composed, compose, split_axis
from redalg.graphs.evaluation import stays_plain
from redalg.graphs.interpret import interpret_program
from redalg.graphs.program import TensorProgram, TensorType
from redalg.torch.aten import import_graph
from tests.torch.test_aten import Called, Decoder, drawn, exported

pytestmark = pytest.mark.filterwarnings("ignore")


def behind(program: TensorProgram, name: str) -> set[str]:
    """A tensor, and what it is made of down to products of matrices with weights."""
    known = {one.name: one for one in program.expressions()}
    found, waiting = set[str](), [name]
    while waiting:
        each = waiting.pop()
        expression = known.get(each)
        if expression is None or each in found or expression.origin.partition(":")[0] in ("mm", "addmm"):
            continue
        found.add(each)
        waiting += expression.reads
    return found


def values_of(program: TensorProgram, arrays: dict[str, Any]) -> dict[str, Any]:
    """Every tensor of a program."""
    every = TensorProgram(program.inputs, program.statements, tuple(program.types))
    return interpret_program(every, arrays)


def check(program: TensorProgram, arrays: dict[str, Any], composed: Composed) -> tuple[dict[str, Any], Any]:
    """A composed output is the program's tensor; the arrays that it reads, and its own."""
    every, types = values_of(program, arrays), program.types
    given = {name: every[name] for name in composed.reads}
    alone = TensorProgram({name: types[name] for name in given}, (composed.expression("float32"),), (composed.name,))
    found = interpret_program(alone, given)[composed.name]
    torch.testing.assert_close(found.reshape(every[composed.name].shape), every[composed.name], rtol=2e-5, atol=2e-5)
    return given, found


def decoder() -> tuple[TensorProgram, dict[str, Any]]:
    torch.manual_seed(0)
    imported, arrays = exported(Decoder().eval(), (drawn(2, 9, 24),))
    return imported.program, arrays


def test_two_products_with_weights_of_exponentials_between_are_one_pass() -> None:
    """Through rotations, shared heads, a mask, a cast, and a transposition of what is written; no name is known."""
    program, arrays = decoder()
    written = [one.name for one in program.expressions() if one.origin.partition(":")[0] == "bmm"][-1]
    while (readers := program.readers()[written]) and readers[0].origin.partition(":")[0] not in ("mm", "addmm"):
        written = next(iter(readers[0].results))
    composed = compose(program, behind(program, written), written)
    assert composed.reads == ("mm", "mm_1", "mm_2")
    given, found = check(program, arrays, composed)
    fused = ra.fuse(composed.term, axes=" ".join(axis.name for axis in composed.axes))
    assert len(fused.passes) == 1
    assert len(fused.form.slots) == 3
    sizes = {axis.name: int(size) for axis, size in composed.sizes.items()}
    torch.testing.assert_close(fused(**given, sizes=sizes).float(), found, rtol=2e-5, atol=2e-5)


def test_every_reduction_of_a_model_composes() -> None:
    """Each with all that it is made of: a norm from what was added before it, weights from scores."""
    program, arrays = decoder()
    many = [one for one in program.expressions() if one.relies_on_many]
    assert len(many) > 8
    for one in many:
        group = {one.name} | {name for read in one.reads for name in behind(program, read)}
        check(program, arrays, compose(program, group, one.name))


GROUPS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "conditions": (lambda a, b: torch.where((a > 0) & (b < 1), a, b).sum(1), (drawn(3, 5), drawn(3, 5) + 1)),
    "nested sums of one length": (lambda a: (a - a.mean(-1, keepdim=True)).square().mean(-1), (drawn(3, 5),)),
    "sums of two lengths": (lambda a: (a @ a.mT).softmax(-1) @ a.exp(), (drawn(2, 3, 5),)),
    "heads apart and together": (
        lambda a: (a.view(2, 3, 4, 6).transpose(1, 2) * 2).transpose(1, 2).reshape(2, 3, 24).sum(1), (drawn(2, 3, 24),),
    ),
    "a sum over what is joined": (lambda a: (a.transpose(1, 2).reshape(2, 12) * 3).sum(1), (drawn(2, 3, 4),)),
    "tables": (lambda a: (a[torch.tensor([2, 0, 0])] * 2).sum(0), (drawn(4, 5),)),
    "pieces of one length": (
        lambda a: torch.cat([a[:, ::2] * 2, a[:, 1::2].sin()], 2).square().mean(2), (drawn(3, 6, 5),),
    ),
    "pieces": (lambda a: torch.cat([a[:, 2:] * 2, a[:, :2]], 1).cos().amax(1), (drawn(3, 5),)),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_means_its_statements(name: str) -> None:
    function, given = GROUPS[name]
    imported, arrays = exported(Called(function), given)
    [output] = imported.program.outputs
    check(imported.program, arrays, compose(imported.program, behind(imported.program, output), output))


def test_it_prints_the_output_at_its_axes() -> None:
    imported, _ = exported(Called(GROUPS["a sum over what is joined"][0]), GROUPS["a sum over what is joined"][1])
    [output] = imported.program.outputs
    assert str(compose(imported.program, behind(imported.program, output), output)) == (
        "sum_1[i0] = sum(3*given_0[i0, r0i, r0o], r0o, r0i)\n    i0 < 2, r0i < 3, r0o < 4"
    )


def test_what_is_too_long_or_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = decoder()
    with pytest.raises(GraphError, match="`bmm` is no tensor expression of the group view"):
        compose(program, {"view"}, "bmm")
    monkeypatch.setattr(module, "MOST_OPERATIONS", 10)
    with pytest.raises(GraphError, match=r"operations, more than 10\. Take a smaller group"):
        compose(program, behind(program, "bmm_1"), "bmm_1")


def test_a_group_of_symbolic_sizes() -> None:
    """One expression for every batch and length."""
    torch.manual_seed(0)
    model = Called(nn.Softmax(-1))
    dims = {"given": ({0: torch.export.Dim("b", max=9), 1: torch.export.Dim("n", max=99)},)}
    found = torch.export.export(model, (drawn(2, 3),), dynamic_shapes=dims).run_decompositions()
    program = import_graph(found.graph).program
    [output] = program.outputs
    composed = compose(program, behind(program, output), output)
    assert all(size.free_symbols for size in composed.sizes.values())
    given = drawn(4, 7)
    [name] = composed.reads
    fused = ra.fuse(composed.term, axes=" ".join(axis.name for axis in composed.axes))
    torch.testing.assert_close(fused(**{name: given}), given.softmax(-1), rtol=1e-5, atol=1e-6)


def test_a_place_of_floating_point_numbers_is_refused() -> None:
    """As the buckets of relative positions are: their logarithms are computed outside, once."""

    def buckets(table: torch.Tensor) -> torch.Tensor:
        far = (torch.arange(6).float() + 1).log().to(torch.int64)
        return table[far].exp()

    program = exported(Called(buckets), (drawn(4, 3),))[0].program
    [read] = program.outputs
    with pytest.raises(GraphError, match=r"is read at .*computed from floating-point numbers.*out of the group"):
        compose(program, behind(program, read), read)


def test_a_truth_value_that_is_asked_to_be_false() -> None:
    program, arrays = exported(Called(lambda x: torch.where((x > 0).logical_not(), x.exp(), x)), (drawn(4, 3),))
    [output] = program.program.outputs
    check(program.program, arrays, compose(program.program, behind(program.program, output), output))


def test_a_branch_asks_for_no_condition_again() -> None:
    """Of equalities, and of places; where a number is NaN neither of two comparisons holds."""

    def thrice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        equal = torch.where(x == 0, 1.0, torch.where(x != 0, -x.abs(), x.exp()))
        place = torch.arange(x.shape[1])
        places = torch.where(place < 2, torch.where(place < 2, x, x.exp()), torch.where(place >= 2, x.sin(), 2 * x))
        return equal, places, torch.where(x < 1, 1.0, torch.where(x >= 1, x, 5.0))

    given = torch.tensor([[0.0, 1.0, torch.nan, -2.0], [3.0, 0.0, 0.5, torch.nan]])
    program, arrays = exported(Called(thrice), (given,))
    composed = [compose(program.program, behind(program.program, one), one) for one in program.program.outputs]
    assert [len(of_kind(Where, one.term)) for one in composed] == [1, 1, 2]
    for one, wanted in zip(composed, thrice(given), strict=True):
        alone = TensorProgram(program.program.inputs, (one.expression("float32"),), (one.name,))
        torch.testing.assert_close(interpret_program(alone, arrays)[one.name], wanted, equal_nan=True)


def test_places_in_conditions_are_plain_where_an_axis_is_split() -> None:
    """x[⌊i/3⌋, i mod 3] where ⌊i/3⌋ < 2: the condition asks for the outer axis."""

    def masked(x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(12)
        return torch.where(torch.arange(12) // 3 < 2, flat, -flat).exp()

    imported, arrays = exported(Called(masked), (drawn(4, 3),))
    program = imported.program
    [output] = program.outputs
    composed = compose(program, behind(program, output), output)
    assert not composed.term.has(floor)
    check(program, arrays, composed)


def test_a_sum_of_places_in_a_condition_is_split_too() -> None:
    """A running count within a mask reads no tensor, and its axis may be one that a product has to split."""
    i, r = Axis("i"), Axis("r")
    x, count = Tensor("x")[i], ra.sum(Where(r <= i, 1, 0), r)
    whole = Composed("y", (i,), {i: Integer(12), r: Integer(12)}, Where(Eq(count, 5), x, -x))
    given = {"x": drawn(12)}
    found = []
    for each in (whole, split_axis(whole, r, Integer(4))):
        program = TensorProgram({"x": TensorType((Integer(12),), "float32")}, (each.expression("float32"),), ("y",))
        found.append(interpret_program(program, given)["y"])
    assert torch.equal(*found)
    assert r not in each.sizes


def test_sums_that_are_shifted_under_a_condition_run() -> None:
    """As the gradient of halves turned is: each row of the sum stands where it has an element."""

    def turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        made = torch.einsum("ir,rj->ij", a, b)
        return torch.cat([made[:, 3:] * 2, made[:, :3].sin()], 1)

    imported, arrays = exported(Called(turned), (drawn(4, 5), drawn(5, 6)))
    program = imported.program
    [output] = program.outputs
    composed = compose(program, [one.name for one in program.expressions()], output)
    given, wanted = check(program, arrays, composed)
    fused = ra.fuse(composed.term, axes=" ".join(map(str, composed.axes)))
    sizes = {str(axis): int(size) for axis, size in composed.sizes.items()}
    known = {axis.name for axis in fused.cascade.axes()}
    found = fused(**given, sizes={name: size for name, size in sizes.items() if name in known})
    torch.testing.assert_close(found.reshape(wanted.shape).float(), wanted.float(), rtol=1e-5, atol=1e-5)


def test_a_row_that_is_reduced_and_written_is_read_along_one_axis() -> None:
    imported, arrays = exported(Called(lambda x: x / x.square().sum(-1, keepdim=True)), (drawn(4, 6),))
    program = imported.program
    [output] = program.outputs
    composed = compose(program, [one.name for one in program.expressions()], output)
    assert len(composed.sizes) == len(composed.axes) == 2
    check(program, arrays, composed)


def test_what_sympy_is_not_asked_to_evaluate_is_as_it_writes_it() -> None:
    x, y = (Tensor(name)[Axis("i")] for name in "xy")
    kept = {x - y, 2 * x * y, -x - y, x / y, sqrt(x), x**2 - y, exp(x) - exp(y), x / 2 - y, tanh(x), -x}
    others = {x + 1, log(x) + y, 2 * log(x), atanh(x), x * log(y), pi * x, S.Zero, asinh(x) - y}
    for arg in kept | others:
        for function in (exp, tanh):
            assert not stays_plain(function, arg) or function(arg, evaluate=False) == function(arg)
        assert stays_plain(exp, arg) == (arg in kept)
    assert not stays_plain(tanh, -x)
