"""Calls in graphs that PyTorch traces: one operator each, with its fake, its backward, and symbolic sizes."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sympy import oo
from torch.library import opcheck

import redalg as ra
from redalg.expression.portable import of_literal
from redalg.gradient.backward import Backward
from redalg.gradient.operators import Call, read_call
from redalg.runtime.bind.functions import FUNCTIONS, TEXTS, function_of_text, text_of

b, n, h, q, k, d, e = ra.axes("b n h q k d e")
x, w = ra.tensors("x[b,n] w[n]")
t = ra.scalars("t", positive=True)
SCORES = ra.sum(ra.tensor("Q[b,h,q,d]") * ra.tensor("K[b,h,k,d]"), d) / 4
FORMS: dict[str, tuple[ra.Fused, dict[str, tuple[int, ...]]]] = {
    "variance": (ra.fuse(ra.var(x, n), axes="b"), {"x": (3, 7)}),
    "softmax": (ra.fuse(ra.softmax(x, n), axes="b n"), {"x": (3, 7)}),
    "several": (ra.fuse({"s": (ra.sum(x**2 * w, n), "b"), "best": (ra.max(x, n), "b")}), {"x": (3, 7), "w": (7,)}),
    "causal": (ra.fuse(ra.sum(ra.softmax(ra.where(k <= q, SCORES, -oo), k) * ra.tensor("V[b,h,k,e]"), k),
                       axes="b h q e"), {"Q": (1, 2, 5, 4), "K": (1, 2, 6, 4), "V": (1, 2, 6, 3)}),
}  # fmt: skip


def drawn(name: str, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {key: torch.randn(shape, generator=generator).to(dtype).requires_grad_()
            for key, shape in FORMS[name][1].items()}  # fmt: skip


def total(out: Any) -> torch.Tensor:
    parts = (out,) if isinstance(out, torch.Tensor) else tuple(out)
    return sum((one.float().square().sum() for one in parts), torch.zeros(()))


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch.compiler.reset()
    made: Callable[..., Any] = torch.compile(function, fullgraph=True, **options)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_a_traced_call_is_the_call(name: str, dtype: torch.dtype) -> None:
    form, data = FORMS[name][0], drawn(name, dtype)

    def loss(**tensors: torch.Tensor) -> torch.Tensor:
        return total(form(**tensors)) * 2

    wanted = loss(**data)
    found = compiled(loss, backend="aot_eager")(**data)
    torch.testing.assert_close(found, wanted)
    gradients = (torch.autograd.grad(one, list(data.values())) for one in (found, wanted))
    for mine, eager in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, eager)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
def test_inductor_compiles_what_stands_beside_it() -> None:
    form, data = FORMS["several"][0], drawn("several")

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        made = form(x=torch.tanh(x), w=w * 2)
        return (made.s * made.best).sum()

    found, wanted = compiled(loss)(**data), loss(**data)
    torch.testing.assert_close(found, wanted)
    gradients = (torch.autograd.grad(one, list(data.values())) for one in (found, wanted))
    for mine, eager in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, eager)


def test_a_size_that_changes_does_not_compile_again() -> None:
    form, graphs = FORMS["softmax"][0], list[Any]()

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    call = compiled(lambda x: form(x=x) + 1, backend=backend, dynamic=True)
    for rows, length in ((3, 7), (4, 9), (11, 30)):
        data = torch.randn(rows, length)
        torch.testing.assert_close(call(data), form(x=data) + 1)
    assert len(graphs) == 1


@pytest.mark.parametrize("name", FORMS)
def test_the_operator_is_as_pytorch_asks(name: str) -> None:
    form, data = FORMS[name][0], drawn(name)
    for training in (False, True):
        call = Call(form.to_json(), tuple(data), (), (), "nan", "ieee", "", training)
        tensors = [one if training else one.detach() for one in data.values()]
        opcheck(torch.ops.redalg.run.default, (call.text, tensors, [], []))


def test_scalars_sizes_and_options_reach_the_operator() -> None:
    form = ra.fuse(ra.sum(ra.softmax(x / t, n) * n.extent, n), axes="b")
    counted = ra.fuse(ra.sum(ra.where(n < 3, x, 0), n) / k.extent, axes="b")
    data = torch.randn(3, 7, requires_grad=True)

    def both(x: torch.Tensor) -> torch.Tensor:
        return form(x=x, t=0.5) + counted(x=x, sizes={"k": 4}, empty="zero")

    found, wanted = compiled(both, backend="aot_eager")(data), both(data)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), data)[0] for one in (found, wanted)))


def test_positional_tensors_and_no_gradient() -> None:
    form = ra.fuse(ra.sum(x * w, n), axes="b", inputs=(x, w))
    one, two = torch.randn(3, 7, requires_grad=True), torch.randn(7)
    with torch.no_grad():
        found = compiled(form, backend="aot_eager")(one, two)
    torch.testing.assert_close(found, form(one.detach(), two))
    assert not found.requires_grad


def test_a_product_has_no_second_derivative_in_a_graph_either() -> None:
    form = ra.fuse(ra.prod(x, n), axes="b")
    data = torch.randn(2, 4, requires_grad=True)
    found = compiled(lambda x: form(x=x).sum(), backend="aot_eager")(data)
    torch.testing.assert_close(torch.autograd.grad(found, data), torch.autograd.grad(data.prod(1).sum(), data))


def test_a_module_holds_a_function() -> None:
    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.form = torch.nn.Linear(7, 7), FORMS["variance"][0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.form(x=self.linear(x))

    module, data = Pooled(), torch.randn(3, 7)
    found = compiled(module, backend="aot_eager")(data)
    torch.testing.assert_close(found, module(data))
    found.sum().backward()
    assert module.linear.weight.grad is not None


def test_calls_are_texts() -> None:
    text = FORMS["several"][0].to_json()
    call = Call(text, ("x", "w"), ("t",), (), "nan", "ieee", "numpy", True, ("out",), ("x",))
    assert read_call(call.text) == call
    assert '"' not in call.text
    assert read_call(of_literal(call.text)) == call
    assert read_call(Call(text, (), (), (), "nan", "ieee", "", False).text).names == ()


def test_copies_have_numbers_of_their_own() -> None:
    form = FORMS["variance"][0]
    again, other = pickle.loads(pickle.dumps(form)), copy.deepcopy(form)
    assert len({form.number, again.number, other.number}) == 3
    assert again == form == other
    assert FUNCTIONS[again.number] is again


def test_a_text_is_the_function_that_is_here() -> None:
    form = ra.fuse(ra.var(x * 17, n), axes="b")
    assert function_of_text(text_of(form.number)) is form


def test_a_function_that_is_gone_is_derived_again() -> None:
    data = torch.randn(3, 7)
    form = ra.fuse(ra.var(x * 19, n), axes="b")
    text, wanted = text_of(form.number), form(x=data)
    del form
    gc.collect()
    assert text not in TEXTS
    call = Call(text, ("x",), (), (), "nan", "ieee", "", False)
    torch.testing.assert_close(torch.ops.redalg.run(call.text, [data], [], [])[0], wanted)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"function":3}', "__import__('os').getcwd()"])
def test_a_text_that_is_no_call_is_refused(text: str) -> None:
    with pytest.raises(ra.ExpressionError, match="redalg::run: the text"):
        torch.ops.redalg.run(text, [torch.ones(2)], [], [])


@pytest.mark.parametrize("option", [{"memory": 10}, {"check": True}])
def test_options_that_a_graph_cannot_have_are_refused(option: dict[str, Any]) -> None:
    form = FORMS["variance"][0]
    with pytest.raises(Exception, match="are no options of a call within"):
        compiled(lambda x: form(x=x, **option), backend="aot_eager")(torch.randn(3, 7))


def test_a_backend_is_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str | None]()
    before = ra.Fused.__call__

    def listen(self: ra.Fused, *args: Any, **options: Any) -> Any:
        if not torch.compiler.is_compiling():
            asked.append(options.get("backend"))
        return before(self, *args, **options)

    form = FORMS["variance"][0]
    call = compiled(lambda x: form(x=x, backend="numpy"), backend="aot_eager")
    monkeypatch.setattr(ra.Fused, "__call__", listen)
    call(torch.randn(3, 7))
    assert asked == ["numpy"]


def test_gradients_that_nobody_asks_for_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    form, data = FORMS["several"][0], drawn("several")
    wanted = list[tuple[str, ...]]()
    before = Backward.from_saved

    def listen(self: Backward, *args: Any) -> Any:
        wanted.append(tuple(args[-1]))
        return before(self, *args)

    monkeypatch.setattr(Backward, "from_saved", listen)
    found = compiled(lambda x, w: form(x=x, w=w).s.sum(), backend="aot_eager")(data["x"], data["w"].detach())
    found.backward()
    assert wanted == [("x",)]
    torch.testing.assert_close(data["x"].grad, 2 * data["x"].detach() * data["w"].detach())


def test_an_output_has_a_gradient_by_its_own_tensors_alone() -> None:
    form, data = ra.fuse({"s": (ra.sum(x, n), "b"), "best": (ra.max(w, n), "")}), drawn("several")
    call = Call(form.to_json(), ("x", "w"), (), (), "nan", "ieee", "", training=True)
    for other in ("x", "w"):
        tensors = [data[name] if name == other else data[name].detach() for name in ("x", "w")]
        made = torch.ops.redalg.run(call.text, tensors, [], [])
        assert [one.requires_grad for one in made[:2]] == [other == "x", other == "w"]


def test_a_pickle_holds_nothing_that_is_only_remembered() -> None:
    form = ra.fuse(ra.var(x, n), axes="b")
    before = len(pickle.dumps(form))
    form(x=torch.randn(3, 7, requires_grad=True)).sum().backward()
    assert len(pickle.dumps(form)) == before
