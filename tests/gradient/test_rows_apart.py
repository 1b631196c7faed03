"""Numbers of rows that products read, and stages of one pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sympy import Expr, oo, tanh
from sympy.logic.boolalg import Boolean

import redalg as ra
from redalg.gradient.stage import JointStage
from redalg.library import attention

b, h, q, k, d, e, v = ra.axes("b h q k d e v")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
LENGTH, BIAS = ra.tensors("length[b] bias[h,q,k]")
S = ra.sum(Q * K, d) / 2
SCORES: dict[str, Expr] = {
    "plain": S, "causal": ra.where(k <= q, S, -oo), "window": ra.where((k <= q) & (q - k < 3), S, -oo),
    "length": ra.where(k < LENGTH, S, -oo), "capped": 5 * tanh(S / 5), "biased": S + BIAS,
}  # fmt: skip
NARROW = (torch.float16, torch.bfloat16)
Tensors = dict[str, torch.Tensor]


def weighted(scores: Expr) -> ra.Fused:
    """Values weighted by the softmax of scores."""
    return ra.fuse(ra.sum(ra.softmax(scores, k) * V, k), axes="b h q e")


def drawn(form: ra.Fused, dtype: torch.dtype, **sizes: int) -> Tensors:
    """Inputs of a form; of the first batch no key counts by its length."""
    extents = {"b": 2, "h": 2, "q": 6, "k": 7, "d": 4, "e": 4} | sizes
    generator = torch.Generator().manual_seed(0)
    data = {one.name: torch.randn([extents[str(axis)] for axis in one.indices], generator=generator).to(dtype)
            for one in form.cascade.elements()}  # fmt: skip
    if "length" in data:
        data["length"] = torch.tensor([0, 4], dtype=torch.int32)
    return data


def gradients(call: Any, data: Tensors, cotangent: torch.Tensor) -> Tensors:
    leaves = {name: one.clone().requires_grad_(one.is_floating_point()) for name, one in data.items()}
    wanted = {name: one for name, one in leaves.items() if one.requires_grad}
    made = call(**leaves)
    found = torch.autograd.grad(made, list(wanted.values()), cotangent.to(made.dtype))
    return dict(zip(wanted, found, strict=True))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_16_bits_are_those_of_float64(name: str, dtype: torch.dtype) -> None:
    """Also in rows of which nothing counts, where they are 0."""
    form = weighted(SCORES[name])
    data = drawn(form, dtype)
    cotangent = torch.randn(2, 2, 6, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    wide = {key: one.double() if one.is_floating_point() else one for key, one in data.items()}
    exact = gradients(form, wide, cotangent.double())
    for key, got in gradients(form, data, cotangent).items():
        assert got.dtype == dtype
        assert bool(got.isfinite().all())
        bound = 4 * torch.finfo(dtype).eps * exact[key].abs().max()
        assert float((got.double() - exact[key]).abs().max()) <= bound, key


@pytest.mark.parametrize("hidden", [float("nan"), float("inf")])
def test_what_a_mask_hides_has_no_part_in_gradients(hidden: float) -> None:
    form = weighted(SCORES["length"])
    data = drawn(form, torch.bfloat16)
    spoilt = {name: one.clone() for name, one in data.items()}
    for row, length in enumerate(data["length"].tolist()):
        spoilt["K"][row, :, length:] = spoilt["V"][row, :, length:] = hidden
    cotangent = torch.ones(2, 2, 6, 4, dtype=torch.bfloat16)
    plain, found = gradients(form, data, cotangent), gradients(form, spoilt, cotangent)
    torch.testing.assert_close(found["Q"], plain["Q"], rtol=0, atol=0)
    counts = torch.arange(7)[None, :] < data["length"][:, None]
    for name in "KV":
        inside = counts[:, None, :, None].expand_as(found[name])
        torch.testing.assert_close(found[name][inside], plain[name][inside], rtol=0, atol=0)


def names_of(form: ra.Fused, **dtypes: torch.dtype) -> list[str]:
    """The stages of a backward of bfloat16 by name."""
    given = {one.name: torch.empty(1, dtype=dtypes.get(one.name, torch.bfloat16)) for one in form.cascade.elements()}
    return [stage.name for stage in form.vjp().for_tensors(given).stages]


def test_stages_of_one_pass_are_one() -> None:
    whole = ["grad_row_sum_0, log_sum", "grad_Q", "grad_K, grad_V"]
    assert names_of(weighted(SCORES["causal"])) == whole
    assert names_of(weighted(SCORES["capped"])) == whole
    assert names_of(attention(sinks=True)) == [whole[0], "grad_sinks", *whole[1:]]


def test_numbers_of_rows_are_finite() -> None:
    """The kernels ask no score for infinities, nor divide by a sum."""
    [_, of_queries, of_keys] = weighted(S).vjp().for_tensors(drawn(weighted(S), torch.bfloat16)).stages
    sizes = dict.fromkeys("bhqkde", 128)
    dtypes = dict.fromkeys(("Q", "K", "V", "grad_out"), "bfloat16") | dict.fromkeys(("grad_row_sum_0", "log_sum"),
                                                                                   "float32")  # fmt: skip
    for stage in (of_queries, of_keys):
        text = stage.source("sm_90a", sizes, dtypes={name: dtypes[name] for name in stage.inputs})
        kernel = text[text.index("with T.Kernel") : text.index("def compiled")]
        assert "infinity" not in kernel
        assert kernel.count("T.exp2(") == 1


def test_parts_of_other_widths_run_alone() -> None:
    form = weighted(S)
    data = drawn(form, torch.bfloat16, e=3)
    cotangent = torch.randn(2, 2, 6, 3).bfloat16()
    joint = form.vjp().for_tensors(data).stages[-1]
    assert isinstance(joint, JointStage)
    assert [joint.serves({"d": 4, "e": size}) for size in (4, 3)] == [True, False]
    wide = {name: one.double() for name, one in data.items()}
    exact = gradients(form, wide, cotangent.double())
    for name, got in gradients(form, data, cotangent).items():
        torch.testing.assert_close(got.double(), exact[name], rtol=3e-2, atol=3e-2)


def test_a_part_that_is_wanted_alone_runs_alone() -> None:
    form = weighted(S)
    data = drawn(form, torch.bfloat16)
    leaf = data["V"].clone().requires_grad_()
    made = form(Q=data["Q"], K=data["K"], V=leaf)
    [alone] = torch.autograd.grad(made, leaf, torch.ones_like(made))
    every = gradients(form, data, torch.ones(2, 2, 6, 4, dtype=torch.bfloat16))
    torch.testing.assert_close(alone, every["V"])


@pytest.mark.parametrize("mask", [None, k < LENGTH], ids=str)
def test_a_loss_reads_the_sum_of_a_row_as_one_number(mask: Boolean | None) -> None:
    """Row numbers of a loss are made once; its operands read them, and labels."""
    label, scores = ra.tensor("label[b]"), ra.sum(ra.tensor("t[b,d]") * ra.tensor("u[k,d]"), d)
    masked = scores if mask is None else ra.where(mask, scores, -oo)
    loss = ra.fuse(ra.logsumexp(masked, k) - ra.sum(ra.where(ra.eq(k, label), scores, 0), k), axes="b")
    names = names_of(loss, label=torch.int64, length=torch.int32)
    assert names[0] == "log_sum"
    assert not any("row_factor" in name for name in names)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_shared_heads_sum_what_each_of_them_makes(dtype: torch.dtype) -> None:
    """Each head's gradients of K and V are one pass on tensor cores; the heads of a group are added after it."""
    form = attention(mask=k <= q, groups=3)
    generator = torch.Generator().manual_seed(0)
    shapes = {"Q": (2, 6, 5, 4), "K": (2, 2, 7, 4), "V": (2, 2, 7, 4)}
    data = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
    names = [stage.name for stage in form.vjp().for_tensors(data).stages]
    assert names == ["grad_row_sum_0, log_sum", "grad_Q", "grad_K_part, grad_V_part", "grad_K", "grad_V"]
    cotangent = torch.randn(2, 6, 5, 4, generator=generator).to(dtype)
    exact = gradients(form, {name: one.double() for name, one in data.items()}, cotangent.double())
    for name, got in gradients(form, data, cotangent).items():
        bound = 4 * torch.finfo(dtype).eps * exact[name].abs().max()
        assert float((got.double() - exact[name]).abs().max()) <= bound, name


def test_the_source_is_that_of_the_parts_where_widths_differ() -> None:
    """Where V is wider than K, gradients of K and V are two programs, as they run."""
    form = weighted(S)
    backward = form.vjp().for_tensors(drawn(form, torch.bfloat16))
    dtypes = dict.fromkeys(("Q", "K", "V", "grad_out", "made_out"), "bfloat16")
    sizes = dict.fromkeys("bhqkd", 128)
    number = {width: backward.source(sizes={**sizes, "e": width}, dtypes=dtypes)["grad_K, grad_V"].count("def main(")
              for width in (128, 64)}  # fmt: skip
    assert number == {128: 1, 64: 2}
