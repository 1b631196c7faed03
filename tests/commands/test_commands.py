"""The command line: every verb, on a terminal of 80 or 120 columns and piped, and every way to be wrong."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import redalg as ra
from redalg import __main__ as command
from redalg.__main__ import main
from redalg.commands import machine, measured, subject
from redalg.commands.arguments import EXAMPLES, command_line
from redalg.explain.text import text_width
from redalg.library import PATTERNS
from tests.house.source import ROOT

VARIANCE = "mean((x[b,n] - mean(x[b,n], n))**2, n)"
PROGRAM = """
import redalg as ra

n = ra.axes("n")
x = ra.tensor("x[b,n]")
form = ra.fuse(ra.mean((x - ra.mean(x, n)) ** 2, n))
print(form.explain())
"""
REFUSED = "mean(Abs(x[b,n] - mean(x[b,n], n)), n)"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command: its exit code, output and errors."""

    def call(*arguments: str, columns: int | None = None, terminal: bool = False):
        stream = StringIO()
        if columns is not None or terminal:
            width = columns or 80
            made = Console(file=stream, width=width, force_terminal=terminal)
            monkeypatch.setattr(command, "Console", lambda **more: Console(**more) if more else made)
        capsys.readouterr()
        code = main(arguments)
        found = capsys.readouterr()
        return SimpleNamespace(code=code, out=stream.getvalue() + found.out, err=found.err)

    return call


# ---- list ------------------------------------------------------------------------------------------------------------


def test_the_list_has_every_pattern_under_its_field(run) -> None:
    found = run("list")
    lines = found.out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == PATTERNS.keys()
    assert [line for line in lines[:-1] if not line.startswith(" ")] == sorted({one.field for one in PATTERNS.values()})
    assert "\x1b" not in found.out


def test_the_list_is_narrowed_by_words(run) -> None:
    found = run("list", "attention", "window")
    assert [line.split()[0] for line in found.out.splitlines() if line.startswith("  ")] == ["sliding_window_attention"]


@pytest.mark.parametrize(
    ("words", "name"), [("welford", "variance"), ("hidden markov", "viterbi_step"), ("gqa", "attention")]
)
def test_names_of_the_literature_find_patterns(run, words: str, name: str) -> None:
    assert f"\n  {name} " in run("list", words).out


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_a_terminal(run, columns: int) -> None:
    found = run("list", columns=columns, terminal=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", found.out)
    assert max(map(text_width, plain.splitlines())) <= columns
    assert plain != found.out
    words = " ".join(plain.split())
    assert [entry.name for entry in PATTERNS.values() if entry.summary not in words] == []


def test_what_is_shown_of_a_pattern_fits_a_terminal(run) -> None:
    found = run("show", "variance", "--derivation-only", columns=80)
    assert max(map(text_width, found.out.splitlines())) <= 80


def test_the_list_is_json_too(run) -> None:
    rows = json.loads(run("list", "--json", "routing").out)
    assert {"name", "field", "summary", "source", "sizes", "dtype", "takes"} == rows[0].keys()
    assert "routing" in [row["name"] for row in rows]


def test_a_word_that_is_nowhere_is_told(run) -> None:
    found = run("list", "statistic_s")
    assert found.code == 1
    assert "no pattern and no field has `statistic_s` in it. Did you mean statistics?" in found.err


# ---- explain, show, source, plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["attention", "moments", "mean_absolute_deviation"])
def test_a_derivation_obeys_the_width(run, name: str, columns: int) -> None:
    found = run("explain", name, columns=columns)
    assert found.code == 0
    lines = found.out.splitlines()
    assert max(map(text_width, lines)) <= columns
    assert max(map(text_width, lines)) >= columns - 2
    assert "  The cascade, as defined" in found.out or "two passes" in found.out


def test_an_expression_is_explained(run) -> None:
    n = ra.axes("n")
    found = run("explain", VARIANCE, columns=100)
    assert found.out.strip() == ra.fuse(ra.var(ra.tensor("x[b,n]"), n)).explain().strip()


def test_a_refusal_is_explained_and_exits_with_1(run) -> None:
    found = run("explain", REFUSED)
    assert found.code == 1
    assert found.out.startswith("Not fusible: no state of fixed size exists")
    assert found.out.rstrip().endswith("call        `redalg explain … --passes 2`")
    assert run("explain", REFUSED, "--passes", "2").code == 0


@pytest.mark.parametrize("subject", ["variance", REFUSED])
def test_latex(run, subject: str) -> None:
    assert "$$" in run("explain", subject, "--latex").out


PARTS = {
    "--brief": {"brief": True}, "--section state --section cost": {"section": ["state", "cost"]},
    "--format markdown": {"format": "markdown"},
}  # fmt: skip


@pytest.mark.parametrize("asked", PARTS)
def test_a_part_and_a_format_are_those_of_the_library(run, asked: str) -> None:
    variance = PATTERNS["variance"].build()
    found = run("explain", "variance", *asked.split(), columns=90).out
    assert found.strip() == variance.explain(width=90, **PARTS[asked]).strip()


def test_a_section_of_a_refusal_is_a_label(run) -> None:
    assert run("explain", REFUSED, "--section", "call").out.splitlines()[-1].split()[0] == "call"
    assert "there is no section 'stat'. Did you mean 'state'?" in run("explain", "variance", "--section", "stat").err


def test_what_is_piped_or_in_a_file_is_read(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(VARIANCE))
    piped = run("explain", "-").out
    program, text = tmp_path / "mine.py", tmp_path / "mine.json"
    program.write_text(PROGRAM, "utf-8")
    text.write_text(ra.library.variance().to_json(), "utf-8")
    assert run("explain", str(program)).out == piped
    assert run("explain", str(text)).out == piped
    missing = run("explain", str(tmp_path / "none.py"))
    assert (missing.code, "cannot be read: No such file" in missing.err) == (1, True)


def test_scalars_are_told(run) -> None:
    assert "taken for scalars, as they are no axes: beta" in run("explain", "logsumexp(-beta*E[b,n], n)").err


@pytest.mark.sweep(20)
@pytest.mark.parametrize("target", ["sm_90a", "c"])
@pytest.mark.parametrize("name", PATTERNS)
def test_show_prints_the_derivation_and_a_kernel(run, name: str, target: str) -> None:
    found = run("show", name, "--target", target)
    assert found.code == 0
    derivation, kernel = run("show", name, "--derivation-only").out, run("source", name, "--target", target).out
    assert found.out.startswith(derivation)
    assert found.out.removeprefix(derivation).strip() == kernel.strip()
    assert "T.prim_func" in kernel
    ast.parse(kernel)


def test_a_kernel_alone_is_a_program(run) -> None:
    found = run("show", "variance", "--target", "c", "--sizes", "n=77 b=3", "--dtype", "fp64", "--kernel-only")
    ast.parse(found.out)
    assert '(3, 77), "float64"' in found.out


def test_a_kernel_of_an_expression_tells_its_sizes(run) -> None:
    found = run("source", VARIANCE, "--sizes", "n=128", "--target", "c")
    assert "sizes that were not given: b=256 (--sizes 'b=256' changes them)" in found.err
    ast.parse(found.out)


def test_a_kernel_is_written_to_a_file_that_checks_itself(run, tmp_path: Path) -> None:
    path = tmp_path / "new" / "kernel.py"
    found = run("source", "variance", "--target", "c", "--sizes", "b=2 n=8", "-o", str(path))
    assert (found.code, found.out) == (0, "")
    assert "__main__" in path.read_text("utf-8")


def test_plans_obey_the_width(run) -> None:
    found = run("plans", "attention", "--device", "H100", "--most", "3", columns=80)
    assert max(map(text_width, found.out.splitlines())) <= 80
    _, heading, table = re.split(r"\n(?= +µs|─+\n)", found.out)
    assert heading.split() == ["µs", "bound", "tiling", "plan"]
    lines = [line.split() for line in table.splitlines() if re.match(r" (?:\d+|←) ", line)]
    assert [place for place, *_ in lines] == ["0", "1", "2", "←"]  # rules choose one that is further down
    assert [float(time) for _, time, *_ in lines] == sorted(float(time) for _, time, *_ in lines)
    assert "← a call takes it, by the rules: the model was not fitted to" in " ".join(table.split())


def test_plans_take_values_of_scalars(run) -> None:
    window = "sum(where(q - k < w, x[k] * y[q,k], 0), k)"
    plain, known = (run("plans", window, *options) for options in ((), ("--scalars", "w=256")))
    assert "nothing is assumed to be skipped by `w`" in " ".join(plain.out.split())
    assert "predicted for w = 256" in " ".join(known.out.split())


# ---- mistakes --------------------------------------------------------------------------------------------------------

MISTAKES = {
    ("show", "atention"): "there is no pattern `atention`. Did you mean attention",
    ("show", "zebra"): f"there is no pattern `zebra`. `redalg list` lists all {len(PATTERNS)}.",
    ("show", "variance", "--dtype", "float12"): "dtype: variance takes float16, bfloat16, float32 or float64, and not "
    "float12. Did you mean float32",
    ("show", "attention", "--dtype", "int32"): "dtype: attention takes float16, bfloat16, float32 or float64, and not "
    "int32.",
    ("show", "variance", "--target", "sm_90"): "target 'sm_90' is not known. Did you mean sm_90a?",
    ("show", "variance", "--target", "sm_100"): "target 'sm_100' is not known. Use one of 'sm_90a'",
    ("plans", "variance", "--device", "cpu"): "target 'cpu' is not known. A kernel for the CPU is in C: name it",
    ("show", "variance", "--sizes", "q=3"): "sizes: there is no axis `q` here. The axes are b, n.",
    ("show", "variance", "--sizes", "n:3"): "sizes: `n:3` is not a size. Write axis=size, separated by spaces",
    ("plans", "variance", "--scalars", "w"): "scalars: `w` is no value. Write scalar=number, as in 'w=256'.",
    ("show", "variance", "--sizes", "n=-3"): "sizes: `n=-3` is not a size.",
    ("explain", "sum(softmx(x[n], n), n)"): "there is no function `softmx`. Did you mean softmax",
    ("source", REFUSED): "Not fusible: no state of fixed size exists",
    ("bench", "variance", "--device", "cuda"): "there is no CUDA device here",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=lambda one: " ".join(one[:4]))
def test_a_mistake_is_told_before_anything_is_printed(run, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "bench" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    found = run(*arguments)
    assert (found.code, found.out) == (1, "")
    assert found.err.replace("\n", " ").startswith(MISTAKES[arguments])


def test_sizes_without_quotes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", "variance", "--sizes", "b=8", "n=64"])
    assert "n=64. Several of an option are one argument, in quotes: --sizes 'b=8 n=64'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["show", "variance", "more"])
    assert "quotes" not in capsys.readouterr().err


def test_an_option_that_takes_few_words_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "variance", "--device", "gpu"])
    assert "redalg bench: argument --device: invalid choice: 'gpu' (choose from" in capsys.readouterr().err


def test_a_misspelt_verb_exits_with_2(run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["exlain", "variance"])
    assert error.value.code == 2
    assert "redalg: there is no verb `exlain`. Did you mean explain?" in capsys.readouterr().err


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["explain"])
    assert error.value.code == 2
    assert "the following arguments are required: SUBJECT" in capsys.readouterr().err


# ---- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [None, *EXAMPLES])
def test_help_teaches_in_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                    verb: str | None) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*([verb] if verb else []), "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    examples = [line.strip() for line in text.splitlines() if line.startswith("  redalg ") or "| redalg" in line]
    assert examples
    if verb:
        assert all(f"redalg {verb}" in line for line in examples)


@pytest.mark.parametrize("verb", EXAMPLES)
def test_examples_are_usage(verb: str) -> None:
    """Each parses; a subject that is a pattern exists, and an expression can be read."""
    for line in EXAMPLES[verb].splitlines():
        words = shlex.split(line.partition("redalg ")[2].partition("    ")[0].partition(" > ")[0])
        options = command_line().parse_args(words)
        named = getattr(options, "subject", "-")
        if named not in ("-", "mine.py"):
            assert subject.subject_of(named).given is not None


def test_without_a_verb_there_is_help(run) -> None:
    found = run()
    assert found.code == 0
    assert all(f"  {verb} " in found.out for verb in EXAMPLES)


# ---- measuring -------------------------------------------------------------------------------------------------------


def test_bench_measures_and_judges(run) -> None:
    found = run("bench", "sum(exp(x[b,n] - max(x[b,n], n)), n)", "--sizes", "b=2 n=64", "--dtype", "float64")
    assert found.code == 0
    rows = [line.split() for line in found.out.splitlines() if line.startswith(" redalg")]
    assert [row[1] for row in rows] == ["kernel", "blocks"]
    assert all(float(row[-1]) < 1e-12 for row in rows)
    assert "expression, b=2 n=64, float64, CPU" in found.out


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_can_be_drawn_and_run(name: str) -> None:
    """Tensors of small sizes, through both backends of arrays."""
    entry = subject.subject_of(name)
    sizes = {axis: min(size, 32) for axis, size in entry.all_sizes.items()}
    if name == "relative_bias_attention":
        sizes["q"] = sizes["k"] = 512
    setting = replace(measured.drawn_setting(entry, "cpu"), sizes=sizes, given=replace(entry, sizes=sizes).shapes)
    tensors = setting.draw()
    if name == "quantized_product":
        tensors["W"] = tensors["W"].float()
    out = entry.function(**tensors, sizes=setting.absent_sizes, backend="torch")
    for one in out if isinstance(out, tuple) else (out,):
        assert torch.isfinite(one.double()).any()


def test_shapes_are_told_where_indices_do_not(run) -> None:
    gather = "sum(x[b, i[n]], n)"
    assert "(8, 64)" in run("source", gather, "--target", "c", "--sizes", "b=8 n=32", "--shapes", "x=8,64").out
    for shapes, said in (
        ("X=8,64", "no tensor `X`. Did you mean x?"),
        ("x=8", "has 2 dimensions"),
        ("x=8;1", "is no shape"),
    ):
        found = run("plans", gather, "--shapes", shapes)
        assert found.code == 1
        assert said in found.err


def test_sizes_are_small_on_a_cpu_but_for_those_that_are_given() -> None:
    entry = subject.subject_of("variance", sizes="n=1000000")
    assert measured.drawn_setting(entry, "cpu").sizes == {"b": 16, "n": 1000000}
    assert measured.drawn_setting(entry, "cuda").sizes == {"b": 1024, "n": 1000000}


@pytest.mark.slow
def test_tune_remembers_a_plan(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    found = run("tune", "variance", "--sizes", "b=4 n=256", "--budget", "20", "--most", "3")
    assert found.code == 0
    assert "tuned for c" in found.out
    assert f"remembered in {tmp_path}" in found.out


# ---- the machine -----------------------------------------------------------------------------------------------------


def test_doctor_says_what_is_here(run) -> None:
    found = run("doctor")
    assert found.code == 0
    assert all(name in found.out for name in ("Python", "torch", "tilelang", "nvcc", "C++ compiler", "cache"))
    assert "Kernels on the CPU: yes." in found.out


def test_doctor_says_what_to_install(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name in ("tilelang", "torch") else object())
    monkeypatch.setattr(machine, "tool_version", lambda command: "")
    found = run("doctor")
    assert "generated kernels: pip install 'redalg[tilelang]'" in found.out
    assert "Kernels on the CPU: no, for want of tilelang and C++ compiler." in found.out
    assert "Calls on NumPy arrays (backend=numpy): yes." in found.out


def test_a_tool_that_fails_is_not_found(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    tool.chmod(0o755)
    assert machine.tool_version(str(tool)) == ""
    tool.write_text("#!/bin/sh\necho tool\necho release 12.4\n", "utf-8")
    assert machine.tool_version(str(tool)) == f"{tool}: release 12.4"
    assert machine.tool_version("") == ""


def test_the_cache_is_shown_and_cleared(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "H200.json").write_text("x" * 2048, "utf-8")
    (tmp_path / "note").write_text("y", "utf-8")
    found = run("cache")
    assert [line.split() for line in found.out.splitlines()[1:]] == [
        ["note", "1", "B", "1", "files"], ["tuned", "2.0", "KiB", "1", "files"]]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", StringIO("n\n"))
    assert run("cache", "--clear").code == 1
    assert (tmp_path / "note").exists()
    monkeypatch.setattr(sys, "stdin", StringIO("yes\n"))
    assert run("cache", "--clear").code == 0
    assert list(tmp_path.iterdir()) == []
    assert "empty" in run("cache", "--clear", "--yes").out


# ---- as a command ----------------------------------------------------------------------------------------------------


def test_reading_loads_neither_torch_nor_tilelang() -> None:
    code = (
        "import sys; from redalg.__main__ import main; main(['show', 'variance', '--target', 'c']);"
        "print({'torch', 'tilelang'} & sys.modules.keys(), file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert process.stderr == "set()\n"
    assert "T.prim_func" in process.stdout
    assert "\x1b" not in process.stdout


@pytest.mark.slow
def test_a_pipe_that_closes_early_is_no_traceback() -> None:
    line = f"{sys.executable} -m redalg show attention | head -1"
    process = subprocess.run(line, shell=True, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "Traceback" not in process.stderr


def test_the_page_has_every_verb_and_the_error_as_it_is(run) -> None:
    page = (ROOT / "docs" / "COMMANDS.md").read_text(encoding="utf-8")
    verbs = page.partition("| verb |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z]+)", verbs, re.MULTILINE)) == EXAMPLES.keys()
    assert run("explain", "sum(softmx(x[n], n), n)").err.strip() in page
