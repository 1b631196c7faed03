"""A saved kernel runs on its own: redalg cannot be imported where it runs, and it holds itself to PyTorch."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from sympy import log, sqrt

import redalg as ra
from redalg import library
from tests.cases.kernels import CASES, Case, fused, problem, tensors_of, worst_error

SCRIPT = """
import importlib.util, sys
sys.modules["redalg"] = None  # an import of redalg would raise
import torch
spec = importlib.util.spec_from_file_location("saved", "saved.py")
saved = importlib.util.module_from_spec(spec)
spec.loader.exec_module(saved)
arguments = torch.load("arguments.pt")
saved.compiled()(*arguments)
torch.save(arguments, "done.pt")
"""

k, q, n = ra.axes("k q n")
length, slope = ra.tensors("length[b] slope[h]")
HEADS = {"b": 2, "h": 4, "q": 33, "k": 77, "d": 32, "e": 48}
ROWS = {"b": 5, "n": 1000}
SCORES = {"i": 5, "v": 300, "d": 33}
QUANTIZED = {"x": "float16", "W": "float8_e4m3fn", "w": "float32"}
TOKENS, TILES = {"t": 70, "c": 300, "n": 100, "j": 6}, {"m": 33, "n": 40, "k": 130}
PAGED = {"K": (40, 4, 2, 32), "V": (40, 4, 2, 48), "pages": (2, 20)}

Saved = tuple[Callable[[], ra.Fused], Mapping[str, int], Any, dict[str, Any]]
LIBRARY: dict[str, Saved] = {
    "attention": (library.attention, HEADS, "float16", {}),
    "sinks, statistics": (
        lambda: library.attention(sinks=True, mask=k <= q, also=["lse", "top"]), HEADS, "float32", {}),
    "linear bias": (lambda: library.attention(lambda s: s - slope * (q - k), k <= q), HEADS, "float32", {}),
    "pages": (lambda: library.attention(page=4, groups=2, mask=k < length), HEADS, "float32", {"shapes": PAGED}),
    "lengths, zero": (lambda: library.attention(mask=k < length), HEADS, "float32", {"empty": "zero"}),
    "mla_decode": (library.mla_decode, {"b": 2, "h": 5, "k": 77, "c": 32, "r": 16, "e": 32}, "float32", {}),
    "routing": (lambda: library.routing(6), TOKENS, "float32", {}),
    "quantized_product": (library.quantized_product, TILES, QUANTIZED, {}),
    "quantized_product, power of two": (
        lambda: library.quantized_product(power_of_two=True), TILES, QUANTIZED, {}),
    "quantized_product, two passes": (
        lambda: library.quantized_product(exact=True, result="bfloat16"), TILES, QUANTIZED, {}),
    "chained_product": (library.chained_product, {"b": 2, "m": 33, "n": 77, "k": 60, "h": 40}, "bfloat16", {}),
    "softmax": (lambda: library.softmax(n < length), ROWS, "float32", {}),
    "log_softmax": (library.log_softmax, ROWS, "float32", {}),
    "layer_norm": (library.layer_norm, ROWS, "float16", {}),
    "rms_norm": (library.rms_norm, ROWS, "float32", {}),
    "cross_entropy": (
        library.cross_entropy, ROWS, "float32", {"shapes": {"x": (5, 1000), "target": (5,)}}),
    "linear_cross_entropy": (
        lambda: library.linear_cross_entropy(label_smoothing=0.1, biased=True), SCORES, "float32", {}),
    "linear_distillation": (library.linear_distillation, SCORES | {"c": 20}, "float32", {}),
    "variance": (library.variance, ROWS, "float32", {}),
    "inertia": (library.inertia, ROWS, "float32", {}),
    "logsumexp": (library.logsumexp, ROWS, "float32", {}),
    "softmax_denominator": (library.softmax_denominator, ROWS, "float32", {}),
    "weighted_mean": (library.weighted_mean, ROWS, "float32", {}),
    "weighted_variance": (library.weighted_variance, ROWS, "float32", {}),
}  # fmt: skip


def of_registry(entry: library.Pattern) -> Saved:
    """A pattern at small sizes."""
    sizes = {axis: min(size, 24) for axis, size in entry.sizes.items()}
    return entry.build, sizes, entry.dtypes(entry.build(), "float32"), {"shapes": entry.tensor_shapes(sizes)}


APART = {  # pattern: why a file does not find itself right on the numbers that it draws
    "block_quantization": "float32 rounds across a step of 8 bits where float64 does not",
}
NAMES = (*LIBRARY, *(name for name in library.PATTERNS if name not in LIBRARY | APART))


def save(name: str, path: Path, target: str = "c") -> Path:
    make, sizes, dtypes, options = LIBRARY.get(name) or of_registry(library.PATTERNS[name])
    return make().save(path, target=target, sizes=sizes, dtypes=dtypes, **options)


def run(path: Path) -> Any:
    """Run a file as a program, here; gives back its exit status."""
    before = torch.get_default_dtype()
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as done:
        return done.code
    finally:
        torch.set_default_dtype(before)
    raise AssertionError("the file did not say whether it is right")


def test_every_function_of_the_library_is_saved() -> None:
    assert library.PATTERNS.keys() - APART.keys() <= {name.split(",")[0] for name in NAMES}


def test_a_number_of_numbers_alone_is_the_larger_one(tmp_path: Path) -> None:
    """The divisor of a sample's variance, max(0, n - 1), holds no tensor."""
    form = ra.fuse(ra.var(ra.tensor("x[b,n]"), n, correction=1), axes="b")
    path = form.save(tmp_path / "saved.py", target="c", sizes={"b": 5, "n": 7}, dtypes="float32")
    assert run(path) == 0


def test_a_saved_file_may_count_beside_logarithms(tmp_path: Path) -> None:
    """A number of elements is a number in PyTorch too, of which no `torch.where` asks if it is 0."""
    v = ra.axis("v")
    scores = ra.tensor("x[b,v]")
    form = ra.fuse((v.extent * ra.logsumexp(scores, v) - ra.sum(scores, v)) / v.extent, axes="b")
    path = form.save(tmp_path / "saved.py", target="c", sizes={"b": 5, "v": 7}, dtypes="float32")
    assert "torch.where" not in path.read_text()
    assert run(path) == 0


def test_inputs_are_drawn_where_the_definition_has_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Positive numbers under a logarithm; where nothing that is drawn has a value, the file does not say right."""
    x = ra.tensor("x[b,n]")
    for term, said in ((log(x), ": ok"), (sqrt(x - 100), "no finite value on these inputs. Draw others: UNKNOWN")):
        form = ra.fuse(ra.sum(term, n), axes="b")
        path = form.save(tmp_path / "saved.py", target="c", sizes={"b": 5, "n": 7}, dtypes="float32")
        assert run(path) == (said != ": ok")
        assert said in capsys.readouterr().out


@pytest.mark.sweep(24)
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_file_finds_itself_right(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(name, tmp_path / "saved.py")
    assert run(path) == 0
    said = re.findall(r"max error (\S+) of (\S+), allowed", capsys.readouterr().out)
    assert said
    assert all(0 < float(largest) < float("inf") for _, largest in said)


@pytest.mark.sweep(24)
@pytest.mark.parametrize("name", NAMES)
def test_a_file_for_a_gpu_differs_in_no_line_of_its_check(name: str, tmp_path: Path) -> None:
    """But for dtypes that the C target lacks."""
    texts = [save(name, tmp_path / target, target).read_text(encoding="utf-8") for target in ("c", "sm_90a")]
    compile(texts[1], "saved.py", "exec")
    functions = [text.split("def compiled():")[1].split("if __name__")[0] for text in texts]
    assert functions[0] == functions[1]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("variance", "return ", "return 1.00001 * "),
        pytest.param("routing", ".indices.narrow", ".indices.flip(1).narrow", marks=pytest.mark.slow),
        ("softmax", "n < length", "n <= length"),
        pytest.param("sinks, statistics", "k <= q", "k < q", marks=pytest.mark.slow),
        ("quantized_product", "448 * x", "400 * x"),
    ],
)
def test_a_saved_file_finds_itself_wrong(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    """Its definition is changed a little: the kernel is then not what the file says."""
    path = save(name, tmp_path / "saved.py")
    text = path.read_text(encoding="utf-8")
    kernel, after = text.split("def definition(")
    definition, check = after.split("def shaken(")
    assert right in definition
    definition = definition.replace(right, wrong)
    path.write_text(f"{kernel}def definition({definition}def shaken({check}", encoding="utf-8")
    assert run(path) == 1


@pytest.mark.parametrize(
    ("target", "capability", "said"),
    [
        ("sm_90a", (9, 0), ""),
        ("sm_90a", (10, 0), "needs an NVIDIA GPU of compute capability 9.0 (sm_90a); Some Card here has 10.0. "),
        ("sm_80", (8, 6), ""),  # of the same generation, and newer
        ("sm_86", (8, 0), "needs an NVIDIA GPU of compute capability 8.6 (sm_86); Some Card here has 8.0. "),
        ("sm_80", None, f"PyTorch {torch.__version__} here sees no GPU, and is built "),
        ("c", None, ""),
    ],
)
def test_a_saved_file_says_which_gpu_it_needs(
    target: str, capability: tuple[int, int] | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = save("variance", tmp_path / "saved.py", target)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some Card")
    device = runpy.run_path(str(path))["device_of_kernel"]
    if not said:
        assert device() == ("cpu" if target == "c" else "cuda")
        return
    assert run(path) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Run it on such a GPU, or save a kernel for this machine" in shown


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in CASES if "1e8 ± 30" not in one.name])
def test_every_kernel_finds_itself_right(case: Case, tmp_path: Path) -> None:
    form = fused(case.form)
    options = problem(form, tensors_of(case), case.sizes)
    assert run(form.save(tmp_path / "saved.py", target="c", empty=case.empty, **options)) == 0


@pytest.mark.parametrize("name", ["attention", *(pytest.param(one, marks=pytest.mark.slow)
                                                 for one in ("routing", "inertia"))])  # fmt: skip
def test_a_large_definition_is_evaluated_in_parts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redalg.unfused.standalone.LARGEST", 1000)
    path = save(name, tmp_path / "saved.py")
    assert "def in_parts(" in path.read_text(encoding="utf-8")
    assert run(path) == 0


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["ragged, d ≠ e", "weighted variance"])
def test_a_saved_file_runs_without_redalg(name: str, tmp_path: Path) -> None:
    case = next(one for one in CASES if one.name == name)
    tensors, form = tensors_of(case), fused(case.form)
    options = problem(form, tensors)
    form.save(tmp_path / "saved.py", target="c", sizes=options["sizes"], dtypes=options["dtypes"])
    wanted = form.reference(**tensors)
    out = torch.full(wanted.shape, torch.nan)
    torch.save([*(tensors[name] for name in form.cascade.inputs()), out], tmp_path / "arguments.pt")
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, check=True, capture_output=True)
    *_, out = torch.load(tmp_path / "done.pt")
    assert worst_error(out, wanted) <= case.tolerance


def test_a_saved_file_is_a_program(tmp_path: Path) -> None:
    path = save("logsumexp", tmp_path / "lse.py")
    process = subprocess.run([sys.executable, str(path)], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert re.search(r"^out \(5,\): max error .* allowed .*: ok$", process.stdout, re.MULTILINE)
