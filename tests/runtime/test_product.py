"""A product by the library before a pass: as the definition, in parts, within the memory, chosen where it wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Eq, oo, sqrt, tanh

import redalg as ra
from redalg.library import attention
from redalg.runtime.known import stored, tuned
from redalg.runtime.lowering import offer_product, space_for
from redalg.runtime.tune import tuner
from redalg.runtime.unfused.product import ProductSplit, split_product
from redalg.runtime.unfused.unfused import offer_unfused
from redalg.strategies.device import device_for
from redalg.strategies.search.search import Limits

b, g, i, j, v, d = ra.axes("b g i j v d")
h, w, t = ra.tensor("h[i,d]"), ra.tensor("w[v,d]"), ra.tensor("t[i]")
SCORES = ra.sum(h * w, d)
BATCHED = ra.sum(ra.tensor("q[b,i,d]") * ra.tensor("k[b,v,d]"), d)
GROUPED = ra.sum(ra.tensor("q[b,g,i,d]") * ra.tensor("k[b,v,d]"), d)
FORMS: dict[str, ra.Fused] = {
    "loss": ra.fuse(ra.logsumexp(SCORES, v) - ra.sum(ra.where(Eq(v, t), SCORES, 0), v), axes="i"),
    "softcap": ra.fuse(ra.logsumexp(30 * tanh(SCORES / 30), v), axes="i"),
    "two outputs": ra.fuse({"lse": (ra.logsumexp(SCORES, v), "i"), "best": (ra.argmax(SCORES, v), "i")}),
    "carries": ra.fuse(ra.softmax(SCORES, v), axes="i v"),
    "transposed": ra.fuse(ra.max(ra.sum(ra.tensor("h[d,i]") * ra.tensor("w[d,v]"), d), v), axes="i"),
    "halved": ra.fuse(ra.sum(ra.sum(h * w / 2, d) ** 2, v), axes="i"),
    "a batch": ra.fuse(ra.var(BATCHED, v), axes="b i"),
    "groups": ra.fuse(ra.logsumexp(GROUPED, v), axes="i b g"),
    "values": ra.fuse(ra.sum(ra.softmax(BATCHED / sqrt(5), v) * ra.tensor("x[b,v]"), v), axes="b i"),
    "a length": ra.fuse(ra.logsumexp(ra.where(v < ra.tensor("n[b]"), BATCHED, -oo), v),
                        axes="b i"),
}  # fmt: skip
EXTENTS = {"b": 3, "g": 2, "i": 10, "v": 37, "d": 5}


def inputs(form: ra.Fused, extents: Mapping[str, int], seed: int = 0) -> dict[str, torch.Tensor]:
    generator, found = torch.Generator().manual_seed(seed), {}
    for element in form.cascade.elements():
        shape = [extents[str(axis)] for axis in element.indices]
        found[element.name] = torch.randn(shape, generator=generator)
        if element.name in ("t", "n"):
            found[element.name] = torch.randint(1, extents["v"], shape, generator=generator)
    return found


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for one, other in pairs:
        torch.testing.assert_close(torch.as_tensor(one).double(), torch.as_tensor(other).double(), rtol=tolerance,
                                   atol=tolerance)  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("rows", [None, 1, 3, 4, 10, 11])
@pytest.mark.parametrize("name", FORMS)
def test_it_is_the_definition(name: str, rows: int | None) -> None:
    form = FORMS[name]
    tensors = inputs(form, EXTENTS)
    close(form(**tensors, backend="tilelang", plan=ra.LibraryProduct(rows)), form.reference(**tensors))


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_it_is_the_definition_at_any_sizes(data: st.DataObject) -> None:
    form = FORMS[data.draw(st.sampled_from(["loss", "a batch", "carries"]))]
    extents = {name: data.draw(st.integers(1, 9)) for name in "bgid"} | {"v": data.draw(st.integers(2, 9))}
    tensors = inputs(form, extents, data.draw(st.integers(0, 99)))
    plan = ra.LibraryProduct(data.draw(st.none() | st.integers(1, 9)))
    close(form(**tensors, backend="tilelang", plan=plan), form.reference(**tensors))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_scores_are_of_the_dtype_of_the_arithmetic(dtype: torch.dtype) -> None:
    form, tensors = FORMS["loss"], inputs(FORMS["loss"], EXTENTS)
    tensors = {name: one if name == "t" else one.to(dtype) for name, one in tensors.items()}
    found = form(**tensors, backend="tilelang", plan=ra.LibraryProduct(4))
    assert found.dtype == form(**tensors, backend="tilelang").dtype
    close(found, form.reference(**tensors), 1e-12 if dtype == torch.float64 else 2e-5)


def test_numpy_arrays_and_later_calls_of_other_sizes() -> None:
    form, plan = FORMS["loss"], ra.LibraryProduct(4)
    for rows in (10, 7, 10):
        arrays = {name: one.numpy() for name, one in inputs(form, {**EXTENTS, "i": rows}, rows).items()}
        found = form(**arrays, backend="tilelang", plan=plan)
        assert isinstance(found, np.ndarray)
        close(found, form.reference(**arrays))


def test_no_part_exceeds_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from redalg.runtime.unfused import product_parts

    stores, multiply = list[torch.Tensor](), product_parts.multiply_factors

    def kept(*some: Any, **more: Any) -> torch.Tensor:
        stores.append(multiply(*some, **more))
        return stores[-1]

    monkeypatch.setattr(product_parts, "multiply_factors", kept)
    form, tensors = FORMS["loss"], inputs(FORMS["loss"], EXTENTS)
    limit = 4 * EXTENTS["v"] * 4
    close(form(**tensors, backend="tilelang", plan=ra.LibraryProduct(), memory=limit), form.reference(**tensors))
    assert [one.shape[0] for one in stores] == [4, 4, 2]
    assert max(one.nbytes for one in stores) <= limit


REFUSED: dict[str, tuple[ra.Fused, dict[str, Any], str]] = {
    "too little memory": (FORMS["loss"], {"plan": ra.LibraryProduct(), "memory": 100},
                          r"takes 148 bytes, for 1 of i, and the limit is 100 bytes\. Take a kernel, or raise memory="),
    "rows beyond the memory": (FORMS["loss"], {"plan": ra.LibraryProduct(8), "memory": 1000},
                               r"takes 1184 bytes, for 8 of i"),
    "no product": (ra.fuse(ra.var(h, d), axes="i"), {"plan": ra.LibraryProduct()},
                   "it computes no product of two tensors for every streamed element"),
    "places as numbers": (ra.fuse(ra.max(SCORES + i, v), axes="i"), {"plan": ra.LibraryProduct(3)},
                          "the product is not cut into 3 rows"),
    "no bytes": (FORMS["loss"], {"memory": -1}, r"memory=-1 is no number of bytes\. Pass an int such as 2\*\*28"),
    "another backend": (FORMS["loss"], {"memory": 1, "backend": "torch"}, "memory= belongs to kernels"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_reason(name: str) -> None:
    form, options, said = REFUSED[name]
    with pytest.raises(ra.RedalgError, match=said):
        form(**inputs(form, EXTENTS), **{"backend": "tilelang", **options})


@pytest.mark.parametrize("rows", [0, -1, True, 2.0])
def test_rows_are_a_positive_number(rows: Any) -> None:
    with pytest.raises(ra.PlanError, match="rows should be a positive int, or None for all"):
        ra.LibraryProduct(rows)


def test_a_tensor_read_along_two_axes_is_not_cut() -> None:
    gram = ra.sum(ra.tensor("x[i,d]") * ra.tensor("x[j,d]"), d)
    split = split_product(ra.fuse(ra.max(gram, j), axes="i").passes.last)
    assert isinstance(split, ProductSplit)
    assert split.cuttable == ()


SIZES, WIDE = {"i": 4096, "v": 32000, "d": 2048}, {"h": "float32", "w": "float32", "t": "int64"}


def test_it_is_chosen_where_products_in_float32_are_slow() -> None:
    form = FORMS["loss"]
    plan = form.plan(SIZES, WIDE, "H100")
    assert isinstance(plan, ra.LibraryProduct)
    assert plan.form == "library"
    assert plan.rows is None
    long = form.plan({**SIZES, "i": 16384}, WIDE, "H100")
    assert isinstance(long, ra.LibraryProduct)
    assert 4096 <= (long.rows or 0) < 16384
    assert form.plans(SIZES, WIDE, "H100")[0].plan == plan
    assert form.plan(SIZES, WIDE, "H100", memory=2**26) == ra.LibraryProduct(512)
    assert form.plan(SIZES, WIDE, "H100", memory=0).form == "online"
    assert form.plan(SIZES, {**WIDE, "h": "bfloat16", "w": "bfloat16"}, "H100").form == "online"
    assert form.plan(SIZES, WIDE, "c").form == "online"


def test_the_definition_keeps_to_the_memory_too() -> None:
    chain = ra.fuse(ra.sum(SCORES * ra.tensor("x[v,j]"), v), axes="i j")
    sizes, dtypes = {"i": 512, "v": 512, "d": 512, "j": 512}, dict.fromkeys("hwx", "float32")
    offers = [offer_unfused(chain.passes.last, space_for(chain.passes.last, "H100", sizes, dtypes, memory=memory))
              for memory in (None, 512 * 512 * 4, 512 * 512 * 4 - 1)]  # fmt: skip
    assert [offer is not None for offer in offers] == [True, True, False]


def test_a_form_that_multiplies_its_product_again_keeps_its_kernel() -> None:
    sizes = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": 64, "e": 64}
    assert attention().plan(sizes, "float32", "H100").form == "online"
    space = space_for(attention().passes.last, "H100", sizes, dict.fromkeys("QKV", "float32"))
    assert offer_product(attention().passes.last, space) is not None


def test_its_kernel_is_not_written_out() -> None:
    with pytest.raises(ra.PlanError, match="has no kernel of its own: it takes PyTorch's operations"):
        FORMS["loss"].source("H100", sizes=SIZES, dtypes=WIDE, plan=ra.LibraryProduct())


@pytest.mark.parametrize("plan", [ra.LibraryProduct(), ra.LibraryProduct(512)])
def test_it_is_kept_in_files(plan: ra.LibraryProduct) -> None:
    line, space = stored.write_line(plan), space_for(FORMS["loss"].passes.last, "c", SIZES, WIDE)
    assert stored.form_of(line) == "library"
    assert stored.read_line(line, space.binding, device_for("c")) == plan
    assert stored.form_of("product by the library 0") == "online"


@pytest.mark.slow
def test_tuning_measures_it_and_calls_take_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(tuned.SWITCH, "on")
    monkeypatch.setattr(tuned, "cache_file", lambda name: tmp_path / tuned.file_name(name))
    monkeypatch.setattr(tuner, "FEW", Limits(population=2, batch=2, patience=1))
    form = ra.fuse(ra.max(ra.sum(ra.tensor("h[i,d]") * ra.tensor("w[v,d]"), d) ** 3, v), axes="i")
    tensors = inputs(form, {"i": 33, "v": 65, "d": 17})
    result = form.tune(**tensors, budget_s=60.0, progress=False)
    forms = {one.candidate.form: one.measured_us for one in result.trials if one.measured_us is not None}
    assert {"online", "library"} <= set(forms)
    best = result.best
    assert best is not None
    assert form.plan({"i": 33, "v": 65, "d": 17}, "float32", "c").form == best.candidate.form
    close(form(**tensors, backend="tilelang"), form.reference(**tensors))
