"""Kinds, depths, lives and regions of a model's statements, by their definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from redalg.graphs.analysis import Analysis, Kind, analyze_program
from redalg.graphs.tables import equal_tables
from redalg.graphs.vertices import vertices_of
from tests.torch.test_aten import Called, Decoder, Vision, drawn, exported

pytestmark = pytest.mark.filterwarnings("ignore")


def analysis_of(model: torch.nn.Module, *given: torch.Tensor) -> Analysis:
    return analyze_program(exported(model.eval(), given)[0].program)


DECODER = Decoder, (2, 9, 24)
VISION = Vision, (2, 3, 8, 8)


@pytest.fixture(params=[DECODER, VISION], ids=["decoder", "vision"])
def analysis(request: pytest.FixtureRequest) -> Analysis:
    make, shape = request.param
    return analysis_of(make(), drawn(*shape))


def test_kinds_are_those_of_the_operators() -> None:
    found = analysis_of(Decoder(), drawn(2, 9, 24))
    kinds = Counter(found.kinds.values())
    assert kinds[Kind.CONTRACTION] == 9  # seven linear maps, scores and their weights' products
    assert kinds[Kind.REDUCTION] == 3  # two norms' means and the weights of scores
    assert Kind.EXTERNAL not in kinds
    seen = analysis_of(
        Called(lambda t, i: (t[i].sum(1), (t * t.T).sum(1), t @ t[0])), drawn(4, 4), torch.tensor([1, 2])
    )
    assert Counter(seen.kinds.values())[Kind.MOVEMENT] == 1
    assert Kind.CONTRACTION not in seen.kinds.values()  # a matrix by a vector moves more than it computes


def test_regions_hold_every_statement_that_moves_more_than_it_computes(analysis: Analysis) -> None:
    placed = [name for region in analysis.regions for name in region.names]
    assert len(placed) == len({*placed})
    wanted = {name for name, kind in analysis.kinds.items() if kind.is_memory_intensive and not kind.is_of_readers}
    assert wanted <= {*placed}
    assert all(analysis.kinds[name].is_memory_intensive for name in placed)


def test_no_path_leaves_a_region_and_comes_back(analysis: Analysis) -> None:
    program = analysis.program
    after: dict[str, set[str]] = {}
    for statement in reversed(program.statements):
        for name in statement.results:
            readers = {each for one in program.readers()[name] for each in one.results}
            after[name] = readers.union(*(after[one] for one in readers))
    for region in analysis.regions:
        inside = {*region.names}
        between = {name for name in after if after[name] & inside and any(name in after[one] for one in inside)}
        assert between <= inside


def test_a_region_says_what_it_reads_and_writes(analysis: Analysis) -> None:
    program = analysis.program
    known = {one.name: one for one in program.expressions()}
    for region in analysis.regions:
        inside = {*region.names}
        assert {*region.reads} == {read for name in inside for read in known[name].reads} - inside
        outside = {name for one in program.statements if not {*one.results} <= inside for name in one.reads}
        assert {*region.writes} == inside & (outside | {*program.outputs})


def test_depths_count_products_on_the_longest_path(analysis: Analysis) -> None:
    for statement in analysis.program.statements:
        for name, read in ((name, read) for name in statement.results for read in statement.reads):
            heavy = read in analysis.kinds and not analysis.kinds[read].is_memory_intensive
            assert analysis.depths[name] >= analysis.depths[read] + heavy


def test_a_tensor_lives_from_its_definition_to_its_last_reader(analysis: Analysis) -> None:
    program = analysis.program
    for name, (first, last) in analysis.lives.items():
        assert first == -1 if name in program.inputs else name in program.statements[first].results
        later = [number for number, one in enumerate(program.statements) if name in one.reads]
        assert last == (len(program.statements) if name in program.outputs else max(later, default=first))


def test_it_prints_a_line_for_each_region() -> None:
    found = analysis_of(Called(lambda a, w: (a.exp().sum(1, keepdim=True) * a) @ w.relu()), drawn(3, 4), drawn(4, 5))
    assert str(found) == (
        "3 elementwise, 1 reduction, 1 contraction\n"
        "region 0, depth 0: 3 statements, 1 reduce; given_0 → mul, 96 bytes\n"
        "region 1, depth 0: 1 statements, 0 reduce; given_1 → relu, 160 bytes"
    )


def test_masks_belong_to_their_readers() -> None:
    """What is computed from places, or from far fewer numbers, unless a function takes many instructions."""

    def masked(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        mask = (places[None, :] <= places[:, None]) & (places < lengths[:, None, None])
        turned = (places[:, None] * x[0, 0]).sin()
        return torch.where(mask, x, -1.0) * turned + lengths[places % 2, None]

    seen = analysis_of(Called(masked), drawn(2, 64, 64), torch.tensor([5, 30]))
    operators = {one.name: one.origin for one in seen.program.expressions()}
    kinds = {operators[name].split(":")[0]: kind for name, kind in seen.kinds.items()}
    assert {kinds[name] for name in ("le", "lt", "bitwise_and", "index")} == {Kind.EXPANSION}
    assert {kinds[name] for name in ("sin", "where")} == {Kind.ELEMENTWISE}


@pytest.mark.parametrize(("keys", "read", "kind"), [(128, False, Kind.EXPANSION), (128, True, Kind.ELEMENTWISE),
                                                    (8, False, Kind.ELEMENTWISE)])  # fmt: skip
def test_truths_that_masks_alone_read_belong_to_their_readers(keys: int, read: bool, kind: Kind) -> None:
    """They are stored if something else reads them, or if the mask has no more bytes than the integers."""

    def masked(x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        truths, places = counts > 0, torch.arange(keys)
        mask = truths[:, None, :] & (places <= places[:, None])
        return torch.where(mask, x, -1.0), *((x.sum(1) * truths,) if read else ())

    seen = analysis_of(Called(masked), drawn(2, keys, keys), torch.ones(2, keys, dtype=torch.int64))
    [name] = [one.name for one in seen.program.expressions() if one.origin.startswith("gt")]
    assert seen.kinds[name] is kind


def filled(steps: int, start: float = 0.0) -> torch.Tensor:
    """A mask that is filled piece by piece, so that each piece has all before it."""
    mask = torch.full((8, 8), start)
    for step in range(steps):
        mask = torch.where(mask > step, mask + 1.0, mask.T * 2.0)
    return mask


@pytest.mark.parametrize(("function", "count"), [
    (lambda x: (x + filled(6)).exp() + filled(6), 1),
    (lambda x: (x + filled(6)).exp() + filled(6, 1.0), 0),
    (lambda x: (x + filled(6), filled(6).T), 0),
], ids=["equal", "unlike", "one is an output"])  # fmt: skip
def test_equal_tables_are_one(function: Callable[[torch.Tensor], torch.Tensor], count: int) -> None:
    seen = analysis_of(Called(function), drawn(2, 8, 8))
    assert len(seen.tables) == 2
    assert len(equal_tables(seen)) == count


def test_a_mask_of_many_operations_is_a_table() -> None:
    for steps, is_table in ((2, False), (9, True)):
        seen = analysis_of(Called(lambda x, steps=steps: x + filled(steps)), drawn(2, 8, 8))
        assert bool(seen.tables) is is_table
        assert all(seen.kinds[name] is Kind.ELEMENTWISE for name in seen.tables)
        assert {*vertices_of(seen).names}.isdisjoint(seen.tables)
