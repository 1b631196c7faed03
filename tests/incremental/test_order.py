"""The rewrites of a form before it is planned: a list of data, each exact, and each found somewhere."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from sympy import exp, sqrt

import redalg as ra
from redalg.incremental.arrange.order import REWRITES, rewritten_form
from redalg.incremental.stages import Stages, single
from redalg.runtime.bind.arrays import run
from redalg.runtime.bind.inputs import bind
from redalg.runtime.lowering import problem_of
from redalg.strategies.plan import Problem

b, n, m, c, q, k, d, e = ra.axes("b n m c q k d e")
j = ra.axis("j", size=3)
x, w, z, r = ra.tensors("x[b,n] w[b,n] z[n,m] r[b,n,j]")
Q, K, V, W, I = ra.tensors("Q[q,d] K[k,d] V[k,e] W[d,e] I[b,n,c]")
SCORE = ra.sum(Q * K, d) / sqrt(d.extent)
SIZES = {"b": 4, "n": 40, "m": 6, "c": 3, "q": 70, "k": 9, "d": 4, "e": 5, "j": 3}
EXPRESSIONS: dict[str, tuple[Any, str]] = {
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
}


@cache
def fused(name: str) -> ra.Fused:
    expr, axes = EXPRESSIONS[name]
    return ra.fuse(expr, axes=axes)


def drawn(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {one.name: [SIZES[str(axis)] for axis in one.indices] for one in fused(name).cascade.elements()}
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
    return known[stages.returned[0].name]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_rewrite_is_exact(name: str) -> None:
    data = drawn(name)
    stages, problem = single(fused(name).form), asked(name)
    wanted = np.asarray(fused(name).reference(**data))
    for rewrite in REWRITES:
        stages, problem = rewrite.apply(stages, problem)
        for form in stages.forms:
            form.verify()
        found = computed(stages, problem, data).reshape(wanted.shape)  # axes reduced at once are one axis of outputs
        np.testing.assert_allclose(found, wanted, rtol=1e-11, err_msg=str(rewrite))


def changes(name: str) -> set[str]:
    """The rewrites that change anything of a form."""
    found, stages, problem = set[str](), single(fused(name).form), asked(name, "float16")
    for rewrite in REWRITES:
        made = rewrite.apply(stages, problem)
        found |= {rewrite.name} if made[0].forms != stages.forms else set()
        stages, problem = made
    return found


def test_every_rewrite_applies_somewhere_and_says_how() -> None:
    found = set[str]().union(*map(changes, EXPRESSIONS))
    assert found == {rewrite.name for rewrite in REWRITES}
    for rewrite in REWRITES:
        assert all((rewrite.before, rewrite.after, rewrite.where.startswith("where ")))
        assert str(rewrite) == f"{rewrite.name}: {rewrite.before} → {rewrite.after}, {rewrite.where}"


def test_the_list_is_what_lowering_does() -> None:
    stages, problem = rewritten_form(fused("attention").form, asked("attention"))
    lowered = fused("attention").lower("c", dict(problem.sizes), "float64")
    assert lowered.stages.forms == stages.forms
