"""The rewrites of a form, before it is planned and after: lists of data, each exact, and each found somewhere."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from sympy import exp, sqrt

import redalg as ra
from redalg.incremental.arrange import arrange_products
from redalg.incremental.arrange.order import (
    REWRITES,
    REWRITES_AFTER_PLANNING,
    REWRITES_IN_KERNELS,
    FormRewrite,
    rewrite_stages,
)
from redalg.incremental.stages import Stages, single
from redalg.runtime.bind.arrays import run
from redalg.runtime.bind.inputs import bind
from redalg.runtime.lowering import problem_of
from redalg.strategies import binding
from redalg.strategies.plan import Problem
from tests.house.source import sources

b, n, m, c, q, k, d, e, p = ra.axes("b n m c q k d e p")
j = ra.axis("j", size=3)
ARRANGE = "redalg.incremental.arrange"
LISTED: tuple[FormRewrite, ...] = (*REWRITES, *REWRITES_AFTER_PLANNING, *REWRITES_IN_KERNELS)
x, w, z, r = ra.tensors("x[b,n] w[b,n] z[n,m] r[b,n,j]")
Q, K, V, W, I = ra.tensors("Q[q,d] K[k,d] V[k,e] W[d,e] I[b,n,c]")
P, Y = ra.tensors("P[p,j] Y[k,j]")
PRODUCT = ra.sum(Q * K, d)
SCORE = PRODUCT / sqrt(d.extent)
BEST = ra.max(ra.sum(Q * ra.tensor("K[l,d]"), d), ra.axes("l"))
SIZES = {"l": 9, "b": 4, "n": 40, "m": 6, "c": 3, "q": 70, "k": 9, "d": 4, "e": 5, "j": 3, "p": 150}
EXPRESSIONS: dict[str, tuple[Any, str | None]] = {
    "variance": (ra.var(x, n), "b"),
    "norm": (ra.norm(x, n), "b"),
    "deviation": (ra.std(x, n), "b"),
    "softmax": (ra.softmax(x, n), "b n"),
    "attention": (ra.sum(ra.softmax(SCORE, k) * V, k), "q e"),
    "a sum for every row": (ra.sum(exp(w * ra.sum(z, m)), n), "b"),
    "products of products": (ra.sum(SCORE * ra.sum(K * W, d), k), "q e"),
    "a short axis summed": (ra.sum(ra.max(r, n), j), "b"),
    "a long axis summed": (ra.sum(ra.max(I, n) ** 2, b), "c"),
    "several axes": (sqrt(ra.sum(I**2, n, c)), "b"),
    "several axes of an output": (ra.softmax(I, n, c) / ra.sum(ra.logsumexp(I, n, c), b), "b n c"),
    "a part of the axes": (ra.sum(I / ra.max(I, n, c), n), "b c"),
    "neighbours in memory": (ra.sum(w * ra.Tensor("r")[b, n, 0] * ra.Tensor("r")[b, n, 1], n), "b"),
    "a kernel of vectors": (ra.sum(exp(-ra.sum((P - Y) ** 2, j)), k), "p"),
    "a row for many columns": (ra.sum(x, n) * ra.Tensor("h")[p], "b p"),
    "elements side by side": (I * ra.Tensor("J")[b, n, c], "b n c"),
    "elements of a row": ({"sum": (ra.sum(x, n), "b"), "twice": (2 * V, "k e")}, None),
    "a value and its place": ({"least": (-ra.min(x, n), "b"), "at": (ra.argmin(x, n), "b")}, None),
    "the largest of scores": (ra.sum(ra.where(ra.eq(PRODUCT, BEST), ra.tensor("R[q,p]"), 0), q), "k p"),
    "a maximum that cancels": (ra.sum(exp(w - ra.max(x, n)) * exp(ra.max(x, n)), n), "b"),
}


@cache
def fused(name: str) -> ra.Fused:
    expr, axes = EXPRESSIONS[name]
    return ra.fuse(expr, axes=axes)


def drawn(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {one.name: [SIZES.get(str(axis), 3) for axis in one.indices] for one in fused(name).cascade.elements()}
    return {tensor: rng.uniform(0.5, 1.5, shape) for tensor, shape in shapes.items()}


def asked(name: str, dtype: str = "float64") -> Problem:
    names = fused(name).cascade.inputs()
    axes = {str(axis) for axis in fused(name).cascade.axes()}
    sizes = {axis: size for axis, size in SIZES.items() if axis in axes}
    shapes = {tensor: array.shape for tensor, array in drawn(name).items()}
    return problem_of(fused(name).form, "c", sizes, dict.fromkeys(names, dtype), shapes=shapes, empty="nan",
                      precision="ieee")  # fmt: skip


def computed(stages: Stages, problem: Problem, data: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output of the stages, each run on arrays; tensors in the shapes that the problem has them in."""
    known = {name: array.reshape(problem.shapes.get(name, array.shape)) for name, array in data.items()}
    for form in stages.forms:
        taken = {name: known[name] for name in form.cascade.inputs()}
        sizes = {str(axis): problem.sizes[str(axis)] for axis in form.cascade.axes()}
        known |= run(form, bind(form.cascade, taken, sizes), "numpy", "nan")
    return known[stages.outputs[0].name]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_rewrite_is_exact(name: str) -> None:
    data = drawn(name)
    stages, problem = single(fused(name).form), asked(name)
    reference = fused(name).reference(**data)
    wanted = np.asarray(reference if fused(name).single else reference[0])
    for rewrite in LISTED:
        stages, problem = rewrite.apply(stages, problem)
        for form in stages.forms:
            form.verify()
        found = computed(stages, problem, data).reshape(wanted.shape)  # axes reduced at once are one axis of outputs
        np.testing.assert_allclose(found, wanted, rtol=1e-11, err_msg=str(rewrite))


def changes(name: str) -> set[str]:
    """The rewrites that change anything of a form."""
    found, stages, problem = set[str](), single(fused(name).form), asked(name, "float16")
    for rewrite in LISTED:
        made = rewrite.apply(stages, problem)
        found |= {rewrite.name} if made[0].forms != stages.forms else set()
        stages, problem = made
    return found


def test_every_rewrite_applies_somewhere_and_says_how() -> None:
    found = set[str]().union(*map(changes, EXPRESSIONS))
    assert found == {rewrite.name for rewrite in LISTED}
    for rewrite in LISTED:
        assert all((rewrite.before, rewrite.after, rewrite.where.startswith("where ")))
        assert str(rewrite) == f"{rewrite.name}: {rewrite.before} → {rewrite.after}, {rewrite.where}"


def test_the_list_is_what_lowering_does() -> None:
    stages, problem = rewrite_stages(REWRITES, single(fused("attention").form), asked("attention"))
    lowered = fused("attention").lower("c", dict(problem.sizes), "float64")
    assert lowered.stages.forms == stages.forms


def test_rows_become_one_after_planning_alone() -> None:
    """A plan is chosen for the tensor as it was; where sizes vary, the tensor stays as it was."""
    form, problem = fused("neighbours in memory").form, asked("neighbours in memory")
    before, problem = rewrite_stages(REWRITES, single(form), problem)
    after, _ = rewrite_stages(REWRITES_AFTER_PLANNING, before, problem)
    assert {str(one) for one in after.elements if one.name == "r"} == {"r[b, 3*n]", "r[b, 3*n + 1]"}
    lowered = fused("neighbours in memory").lower("c", {"b": 4, "n": 40}, "float64", shapes={"r": (4, 40, 3)})
    assert lowered.stages.forms == after.forms
    varying = replace(problem, varying=frozenset("b"))
    assert rewrite_stages(REWRITES_AFTER_PLANNING, before, varying) == (before, varying)


def test_only_kernels_leave_out_what_nothing_reads() -> None:
    """A header shows the state as it was derived."""
    form = fused("a maximum that cancels").form
    lowered = fused("a maximum that cancels").lower("c", {"b": 4, "n": 40}, "float64")
    (kernel,) = rewrite_stages(REWRITES_IN_KERNELS, single(form), asked("a maximum that cancels"))[0].forms
    unread = {str(one.value) for one in form.extrema} - {str(one.value) for one in kernel.extrema}
    assert unread
    assert all(f"  {name} = max " in lowered.source.text for name in unread)
    assert not unread & {buffer.name for one in lowered.program.kernels for buffer in one.buffers}


@pytest.mark.parametrize("varying", [frozenset(), frozenset("kl")])
def test_axes_that_may_differ_in_a_call_share_nothing(varying: frozenset[str]) -> None:
    form, problem = fused("the largest of scores").form, asked("the largest of scores")
    stages, _ = rewrite_stages(REWRITES, single(form), problem)
    before = REWRITES.index(next(one for one in REWRITES if one.name == "equal stages"))
    divided, problem = rewrite_stages(REWRITES[:before], single(form), problem)
    after, _ = REWRITES[before].apply(divided, replace(problem, varying=varying))
    assert (after.forms == divided.forms) is bool(varying)
    assert len(stages.forms) == 3


def test_a_loop_is_arranged_and_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From form to source one form is bound: each of the stages has its binding from those before it."""
    found = list[str]()
    for module, function in ((binding, "_bound"), (arrange_products, "_arrange")):
        worked_out = getattr(module, function)
        monkeypatch.setattr(module, function, partial(noted, function, worked_out, found))
    ra.fuse(*EXPRESSIONS["attention"]).source("c", sizes={"q": 71, "k": 9, "d": 4, "e": 5}, dtypes="float32")
    assert sorted(found) == ["_arrange", "_bound"]


def noted(name: str, function: Callable[..., Any], found: list[str], *given: Any) -> Any:
    found.append(name)
    return function(*given)


def test_the_lists_hold_every_rewrite() -> None:
    """The rest of the library applies rewrites of forms by the lists alone, never one by itself."""
    found = {
        (source.name, str(node.module))
        for source in sources("redalg") if not source.module.startswith(ARRANGE)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{ARRANGE}.")
    }  # fmt: skip
    assert {module for _, module in found} == {f"{ARRANGE}.order", f"{ARRANGE}.variants"}
    assert [name for name, module in found if module.endswith("variants")] == ["redalg/algebra.py"]


def test_every_rewrite_of_the_room_is_reached_from_the_lists() -> None:
    """A module that states a rewrite, in its docstring, is imported by `order`, or by what that imports."""
    modules = {source.module: source for source in sources("redalg/incremental/arrange")}
    reached, left = set[str](), [f"{ARRANGE}.order"]
    while left:
        module = left.pop()
        reached.add(module)
        nodes = (node for node in ast.walk(modules[module].tree) if isinstance(node, ast.ImportFrom))
        left += [node.module for node in nodes if node.module in modules.keys() - reached]
    assert {name for name, one in modules.items() if "→" in (ast.get_docstring(one.tree) or "")} <= reached
