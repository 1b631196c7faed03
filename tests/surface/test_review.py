"""What held users back, point after point of a review, and that it holds them back no more.

Displays, brief explanations, notebooks, the site and the command line have their own tests (`tests/explain`,
`tests/commands`, `test_notebooks`); names in derivations are in `tests/explain/test_names.py`, slips in `test_slips`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, exp, oo, sqrt

import redalg as ra
from redalg.library import PATTERNS, attention, gravity, theil_index

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
b, n, k, d, q = ra.axes("b n k d q")
x, w = ra.tensors("x[b,n] w[n]")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")


def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)) * scale


def test_the_page_of_the_review_answers_every_point() -> None:
    """Every point has what was found, what was done, and code with its output, which `test_readme` runs."""
    _, *points = re.split(
        r"^## ", (ROOT / "docs/guide/fifteen_points.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert [int(point.partition(".")[0]) for point in points] == [*range(1, 16)]
    needed = ("\n*Found:* ", "\n*Done:* ", "\n```python\n", "\n```output\n")
    assert [(point[:20], one) for point in points for one in needed if one not in point] == []


# ---- gradients -------------------------------------------------------------------------------------------------------


def test_parameters_train_and_need_no_detaching() -> None:
    fused = ra.fuse(ra.sum(ra.rms_norm(x, n) * w, n))
    data, weight = draw(3, 8), torch.nn.Parameter(draw(8))
    fused(x=data, w=weight).sum().backward()
    plain = (data / (data.square().mean(1, keepdim=True)).sqrt()).sum(0)
    torch.testing.assert_close(weight.grad, plain)
    with torch.no_grad():
        assert not fused(x=data, w=weight).requires_grad
    assert "gradients" in README


# ---- PyTorch's machinery ---------------------------------------------------------------------------------------------


def test_vmap_and_grad_of_torch_work() -> None:
    fused = ra.fuse(ra.var(ra.tensor("x[n]"), n))
    data = draw(4, 16)
    torch.testing.assert_close(torch.func.vmap(lambda row: fused(x=row))(data), data.var(1, correction=0))
    row = torch.func.grad(lambda row: fused(x=row))(data[0])
    torch.testing.assert_close(row, 2 * (data[0] - data[0].mean()) / 16)


@pytest.mark.slow
def test_a_graph_has_the_call_as_one_operator() -> None:
    fused = ra.fuse(ra.var(x, n))
    data = draw(4, 16)
    compiled = torch.compile(lambda t: fused(x=t) + 1, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(data), data.var(1, correction=0) + 1)

    class Module(torch.nn.Module):
        def forward(self, t: torch.Tensor) -> Any:
            return fused(x=t)

    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(Module(), (data,), dynamic_shapes={"t": {0: rows}})
    torch.testing.assert_close(exported.module()(draw(7, 16)), draw(7, 16).var(1, correction=0))


# ---- crashes ---------------------------------------------------------------------------------------------------------


def test_what_crashed_has_a_kernel_of_short_lines() -> None:
    m = ra.mean(x, n)
    lag = ra.where(n > 0, ra.Tensor("x")[b, n - 1] - m, 0)
    r, mass = ra.tensors("r[n,l] m[n]")
    centre = ra.sum(mass * r, n) / ra.sum(mass, n)
    fused = {
        "autocorrelation": (ra.fuse(ra.sum((x - m) * lag, n) / ra.sum((x - m) ** 2, n)), {"b": 1024, "n": 65536}),
        "one body": (ra.fuse(ra.sum(mass * ra.sum((r - centre) ** 2, ra.axes("l")), n)), {"n": 4096, "l": 3}),
    }
    for function, sizes in fused.values():
        text = function.source("sm_90a", sizes=sizes, dtypes="float32")
        assert max(map(len, text.splitlines())) <= 120


def test_a_tensor_without_data_is_refused_by_kernels() -> None:
    data = torch.randn(1, 1, 3, 4, device="meta")
    with pytest.raises(ra.InputError, match="lie on meta, and kernels run on cpu and cuda"):
        attention()(Q=data, K=data, V=data, backend="tilelang")


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_the_hint_of_a_refusal_is_a_call_that_works() -> None:
    deviation = ra.mean(Abs(x - ra.mean(x, n)), n)
    with pytest.raises(ra.NotFusible) as caught:
        ra.fuse(deviation)
    assert "`ra.fuse(…, passes=2)`" in caught.value.hint
    fused, data = ra.fuse(deviation, passes=2), draw(3, 100)
    torch.testing.assert_close(fused(x=data), (data - data.mean(1, keepdim=True)).abs().mean(1))


# ---- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["correlation", "moments", "inertia_tensor", "gravity"])
def test_kernels_with_a_centre_read_as_written_by_hand(name: str) -> None:
    pattern = PATTERNS[name]
    fused = pattern.build()
    text = fused.source("sm_90a", sizes=pattern.sizes, dtypes=pattern.dtypes(fused))
    assert max(map(len, text.splitlines())) <= 120
    assert "T.pow(" not in text


def test_vectors_are_as_fast_as_their_components() -> None:
    """The prediction for N bodies in space, as vectors and as three outputs."""
    here, there = ra.tensors("xi[i] yi[i] zi[i]"), ra.tensors("x[j] y[j] z[j]")
    j, mass, eps = ra.axes("j"), ra.tensor("m[j]"), ra.scalars("eps", positive=True)
    pairs = [(a, c) for a, c in zip(there, here, strict=True)]
    distance = sqrt(sum((a - c) ** 2 for a, c in pairs) + eps) ** 3
    three = ra.fuse({f"a{a.name}": (ra.sum(mass * (a - c) / distance, j), "i") for a, c in pairs})
    vectors = gravity()
    sizes = {"i": 4096, "j": 4096}
    slow, fast = (
        fused.plans(sizes=known, device="H100", dtypes="float32")[0].predicted_us
        for fused, known in ((vectors, {**PATTERNS["gravity"].sizes, **sizes}), (three, sizes))
    )
    assert slow <= 1.5 * fast


def test_tiles_outside_a_window_are_skipped_beside_a_sink_too() -> None:
    scores = ra.sum(Q * K, d) / sqrt(d.extent)
    sizes = {"b": 1, "h": 8, "q": 4096, "k": 4096, "d": 64, "e": 64}

    def predicted(mask: Any) -> float:
        fused = ra.fuse(ra.sum(ra.softmax(ra.where(mask, scores, -oo), k) * V, k), axes="b h q e")
        return float(fused.plans(sizes=sizes, device="H100", dtypes="float16")[0].predicted_us)

    causal = k <= q
    assert predicted(ra.logical_and(causal, ra.logical_or(q - k < 256, k < 4))) < predicted(causal) / 2


# ---- packaging -------------------------------------------------------------------------------------------------------


def test_without_pytorch_arrays_of_numpy_work_by_default() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np, redalg as ra;"
        "f = ra.fuse(ra.var(ra.tensor('x[n]'), ra.axes('n'))); print(float(f(x=np.array([1.0, 2.0, 6.0]))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "4.666666666666667"


def test_the_readme_begins_with_how_to_install() -> None:
    assert README.index("pip install") < README.index("## Example")
    assert (ROOT / "redalg" / "py.typed").is_file()


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_digits_are_kept_off_the_beaten_path() -> None:
    data = torch.rand(1, 1000, generator=torch.Generator().manual_seed(0)) + 1e4
    fused = theil_index()
    [name] = fused.cascade.inputs()
    share = data.double() / data.double().mean(1, keepdim=True)
    torch.testing.assert_close(fused(**{name: data}).double(), (share * share.log()).mean(1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_a_deviation_of_far_data_is_in_range(scale: float) -> None:
    data = draw(2, 64, scale=scale)
    torch.testing.assert_close(ra.fuse(ra.std(x, n))(x=data).double(), data.double().std(1, correction=0))
    rows = ra.fuse(ra.layer_norm(x, n, eps=0))(x=data)
    torch.testing.assert_close(rows, torch.nn.functional.layer_norm(data / scale, (64,), eps=0), rtol=1e-5, atol=1e-5)


def test_the_definition_and_the_form_agree_where_an_element_has_no_weight() -> None:
    fused = ra.fuse(ra.sum(exp(x) * x, n) / ra.sum(exp(x), n))
    data = torch.tensor([[1.0, -oo, 2.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(fused(x=data), fused.reference(x=data))
    assert "Where x[b,n] is −∞ an element has no weight" in fused.explain()


# ---- reach -----------------------------------------------------------------------------------------------------------


def test_samples_signs_and_other_devices() -> None:
    data = np.array([[1.0, 2.0, 6.0]])
    assert ra.fuse(ra.var(x, n, correction=1))(x=data) == [7.0]
    assert sqrt(ra.tensor("y[n]", positive=True) ** 2) == ra.tensor("y[n]", positive=True)
    for card in ("A100", "RTX 4090"):
        assert "tilelang" in ra.fuse(ra.var(x, n)).source(card, sizes={"b": 64, "n": 4096})


def test_a_weight_of_one_minus_a_parameter_fuses() -> None:
    """It was undecided, with a hint that could not be followed."""
    rest = 1 - ra.scalars("alpha")
    place = n.extent - 1 - n
    fused = ra.fuse(ra.sum(rest**place * x, n) / ra.sum(rest**place, n))
    data = draw(2, 9).double()
    weights = 0.75 ** torch.arange(8, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(fused(x=data, alpha=0.25), (data * weights).sum(1) / weights.sum())
