"""Run-time sizes on a GPU: few kernels serve calls of many sizes, whatever bounds the loop; each result is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from redalg.lower_tile.text.emit import Source
from redalg.runtime.call import sizes
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import problem_of
from tests.cases.kernels import fused, problem, worst_error

pytestmark = pytest.mark.gpu

SIZES = {
    "queries": [(2, 8, 512, 512), (3, 8, 512, 512), (2, 8, 500, 700), (1, 8, 77, 77), (4, 8, 1000, 1000),
                (1, 8, 130, 64), (2, 8, 64, 1), (1, 8, 300, 2000), (5, 8, 333, 129)],
    "many queries": [(2, 16, 1500, 1500), (1, 16, 2048, 2048), (2, 16, 1999, 1999), (1, 16, 1030, 3001)],
    "one query": [(4, 8, 1, 512), (4, 8, 1, 513), (3, 8, 1, 514), (4, 8, 1, 1000), (1, 8, 1, 7), (4, 8, 1, 4096)],
}  # fmt: skip
"""Sizes of b, h, q, k, from call to call."""
FORMS = ["attention", "causal", "window", "band", "lengths", "spans", "shared heads", "shared heads, causal", "sinks",
         "linear bias", "soft cap", "masked", "additive"]  # fmt: skip
GROUPS = {"shared heads": 4, "shared heads, causal": 2}
WIDTHS = {"queries": 64, "many queries": 128, "one query": 128}


def drawn(name: str, sized: tuple[int, int, int, int], width: int, where: str = "cuda") -> dict[str, torch.Tensor]:
    """Tensors of a call; the first row of a mask is dead, and the second length is 0."""
    (nb, nh, nq, nk), form, groups = sized, fused(name), GROUPS.get(name, 1)
    g = torch.Generator(where).manual_seed(nb + 10 * nh + 100 * nq + 1000 * nk)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, device=where).half()

    def whole(most: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, most, shape, generator=g, device=where, dtype=torch.int32)

    cache = (nb, nh // groups, nk, width)
    makers: dict[str, Any] = {
        "Q": lambda: normal(nb, nh, nq, width), "K": lambda: normal(*cache), "V": lambda: normal(*cache),
        "M": lambda: (whole(10, nq, nk) < 7) & (torch.arange(nq, device=where) > 0)[:, None],
        "A": lambda: normal(nq, nk), "begin": lambda: whole(nk, nb),
        "length": lambda: whole(nk + 1, nb) * (torch.arange(nb, device=where) != 1).int(),
        "slope": lambda: normal(nh) / 50, "sinks": lambda: normal(nh),
    }  # fmt: skip
    return {name: makers[name]() for name in form.cascade.inputs()}


def sources(name: str, calls: str, chip: str) -> Iterator[Source]:
    """The texts of the kernels that calls take, one after another."""
    form = fused(name)
    for extents in SIZES[calls]:
        options = problem(form, drawn(name, extents, WIDTHS[calls], "cpu"))
        of_call = {"shapes": options["shapes"], "empty": "zero", "precision": "ieee"}
        asked = problem_of(form.form, chip, options["sizes"], options["dtypes"], **of_call)
        lowered = sizes.newly(form.form, chip, asked, None)
        assert isinstance(lowered, Lowered)
        yield lowered.source


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("name", FORMS)
def test_few_kernels_serve_calls_of_many_sizes(name: str, calls: str, fresh: dict[str, Any]) -> None:
    form = fused(name)
    for extents in SIZES[calls]:
        tensors = drawn(name, extents, WIDTHS[calls])
        out = form(**tensors, backend="tilelang", empty="zero")
        error = worst_error(out, form.reference(**tensors), "zero")
        assert error <= 2e-3, f"{extents}: {error:.1e}"
    assert len(fresh) < len(SIZES[calls])
