"""Groups as operators in their graph: the graph computes what it did."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from redalg.graphs.analysis import analyze_program
from redalg.graphs.candidates import explore
from redalg.graphs.fusion_plan import plan_fusion
from redalg.graphs.gain import Gain
from redalg.graphs.tables import equal_tables
from redalg.graphs.vertices import vertices_of
from redalg.strategies.device import device_for
from redalg.torch.aten import import_graph
from redalg.torch.groups import share_tables
from redalg.torch.stitch import calls_of, stitch
from tests.graphs.test_analysis import filled
from tests.torch.test_aten import Called, Decoder, Vision, drawn

pytestmark = pytest.mark.filterwarnings("ignore")


def stitched(model: nn.Module, *given: torch.Tensor) -> tuple[GraphModule, int]:
    """A module of a model's graph with its groups as operators, and how many these are."""
    exported = torch.export.export(model.eval(), given).run_decompositions()
    imported = import_graph(exported.graph)
    weights = [name for name in imported.program.inputs if name.startswith("p_")]
    vertices = vertices_of(analyze_program(imported.program.live()), weights)
    candidates = explore(Gain(vertices, device_for("sm_90a")))
    calls = calls_of(candidates.verdicts, plan_fusion(candidates))
    stitch(exported.graph, calls)
    exported.graph_module.recompile()
    module = exported.module()
    assert isinstance(module, GraphModule)
    return module, len(calls)


@pytest.mark.parametrize(("model", "shape"), [(Decoder, (2, 9, 24)), (Vision, (2, 3, 8, 8))])
def test_a_stitched_graph_computes_the_model(model: type[nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    eager, given = model(), drawn(*shape)
    module, count = stitched(eager, given)
    operators = [node for node in module.graph.nodes if node.target is torch.ops.redalg.run.default]
    assert len(operators) == count == 3
    torch.testing.assert_close(module(given), eager.eval()(given), rtol=1e-5, atol=1e-5)
    left = {str(node.target) for node in module.graph.nodes if node.op == "call_function"}
    assert not any("softmax" in name or "norm" in name for name in left)


def test_results_have_their_shape_and_dtype() -> None:
    """Casts of what a kernel writes are by the operator that Inductor fuses."""

    def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weights = (x.bfloat16().float() / 3).softmax(1)
        return weights.bfloat16().reshape(6, 4, 5), (weights * x).sum(1), (x > 0).sum(1).int()

    given = drawn(6, 20)
    module, count = stitched(Called(several), given)
    assert count == 2
    assert torch.ops.aten.to.dtype not in {node.target for node in module.graph.nodes}
    for found, wanted in zip(module(given), several(given), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        torch.testing.assert_close(found.float(), wanted.float(), rtol=1e-2, atol=1e-3)


def test_tensors_side_by_side_are_one_row() -> None:
    """As patches are merged: four neighbours' channels are normed together."""

    def merged(x: torch.Tensor) -> torch.Tensor:
        beside = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return torch.nn.functional.layer_norm(beside, beside.shape[-1:])

    given = drawn(2, 6, 4, 5)
    module, count = stitched(Called(merged), given)
    assert count == 1
    torch.testing.assert_close(module(given), merged(given), rtol=1e-5, atol=1e-5)


def test_what_reads_a_result_may_stand_ahead_of_the_last_input() -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = x.softmax(1)
        read = weights.cumprod(1)
        return read, (weights * x.cumprod(1)).sum(1)

    given = drawn(6, 20)
    module, count = stitched(Called(two), given)
    assert count == 1
    for found, wanted in zip(module(given), two(given), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_group_reads_the_first_places_of_a_table() -> None:
    """As of positions: the operator is given a part of the table."""
    table = drawn(50, 24)
    module, count = stitched(Called(lambda x: (x + table[: x.shape[1], :20]).softmax(-1)), given := drawn(2, 9, 20))
    assert count == 1
    torch.testing.assert_close(module(given), (given + table[:9, :20]).softmax(-1), rtol=1e-5, atol=1e-6)


class Alike(nn.Module):
    """A number of norms, each of its own tensors, with a product between them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(count))
        self.products = nn.ModuleList(nn.Linear(24, 24) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, product in zip(self.norms, self.products, strict=True):
            x = norm(product(x))
        return x


def test_groups_that_are_alike_have_one_text_and_tensors_of_their_own() -> None:
    module, inputs = Alike(12).eval(), (drawn(6, 24),)
    imported = import_graph(torch.export.export(module, inputs).run_decompositions().graph)
    vertices = vertices_of(analyze_program(imported.program.live()))
    candidates = explore(Gain(vertices, device_for("sm_90a")))
    calls = calls_of(candidates.verdicts, plan_fusion(candidates))
    assert len(calls) == 6, "two layers each"
    assert len({call.text for call in calls}) == 2, "the first, and all others"
    assert len({(call.reads, call.writes) for call in calls}) == 6
    for call in calls:
        assert {*call.reads} == {*call.group.reads}
        assert {*call.writes} == {*call.group.writes}


@pytest.mark.parametrize("is_changed", [False, True], ids=["shared", "changed in place"])
def test_readers_of_equal_tables_read_one_of_them(is_changed: bool) -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        first, second = filled(6), filled(6)
        made = x + first
        if is_changed:
            second.add_(1.0)
        return made.exp() + second

    given = drawn(2, 8, 8)
    module = make_fx(masked, tracing_mode="fake")(given)
    same, before = equal_tables(analyze_program(import_graph(module.graph).program)), len(module.graph.nodes)
    assert len(same) == 1
    assert share_tables(module.graph, same) is not is_changed
    module.recompile()
    torch.testing.assert_close(module(given), masked(given))
    assert (len(module.graph.nodes) < before - 18) is not is_changed
