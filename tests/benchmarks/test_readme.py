"""The code in README.md and docs/ runs as it stands there; what they name exists."""

import re
import shlex
import tomllib
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest

from docs.generate.blocks import FENCE, python_blocks
from docs.generate.links import OUTSIDE, links
from redalg.commands.arguments import command_line
from redalg.commands.subject import subject_of
from redalg.library import PATTERNS
from redalg.strategies.device import ARCHITECTURES
from tests.house.source import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SLOW = {"tuning"}
"""Documents whose code takes more than a few seconds."""
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(path: Path) -> list[str]:
    """The Python blocks of a document."""
    return python_blocks(path.read_text(encoding="utf-8"))


def shown_outputs(path: Path) -> dict[int, str]:
    """What a document shows of the output of its Python blocks, by their number: the block `output` that follows."""
    fences = FENCE.findall(path.read_text(encoding="utf-8"))
    kinds = [kind for kind, _ in fences]
    return {kinds[:place].count("python") - 1: text for place, (kind, text) in enumerate(fences)
            if kind == "output" and "python" in kinds[:place]}  # fmt: skip


def assert_shown(text: str, printed: str) -> None:
    """Every line of a text was printed, in its order; where `…` stands, lines are left out."""
    lines, at = printed.splitlines(), 0
    for line in text.splitlines():
        if line != "…":
            assert line in lines[at:], f"not printed here: {line}"
            at = lines.index(line, at) + 1


# of torch.func's forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else ()) for path in DOCUMENTS],
    ids=lambda path: path.stem,
)
def test_the_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))  # what a spawned process inherits
    namespace: dict[str, object] = {"__name__": path.stem}
    outputs = shown_outputs(path)
    for number, block in enumerate(blocks(path)):
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(block, path.name, "exec"), namespace)
        assert_shown(outputs.get(number, ""), printed.getvalue())


ELSEWHERE = {"STATES": "tests/integration/test_ray.py", "TRAINING": "tests/integration/test_transformers.py"}
"""Documents with blocks `py`, which need packages of tests/integration -> the test that runs them."""
CODE = re.compile(r"^(import|from|>>>|def|class|for|with)\b|^\w+ = |\bra\.", re.MULTILINE)


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_every_block_of_code_is_run(path: Path) -> None:
    """Here as `python`, by tests/integration as `py`; what other blocks and indented lines hold is no Python."""
    text = path.read_text(encoding="utf-8")
    fences = FENCE.findall(text)
    kinds = {kind for kind, _ in fences if not kind.startswith("{")}
    assert kinds <= {"python", "py", "output", ""}
    assert ("py" in kinds) == (path.stem in ELSEWHERE)
    assert [block for kind, block in fences if kind == "" and CODE.search(block)] == []
    indented = re.findall(r"\n\n((?:    [^\n]*\n)+)", FENCE.sub("", text))
    assert [block for block in indented if CODE.search(dedent(block))] == []
    assert "python" not in kinds or path in DOCUMENTS


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_tests_elsewhere_run_these_documents(name: str) -> None:
    text = (ROOT / ELSEWHERE[name]).read_text(encoding="utf-8")
    assert f'"{name}.md"' in text
    assert 'python_blocks(page, "py")' in text


def test_documents_have_code() -> None:
    assert {path.name for path in DOCUMENTS if blocks(path)} >= {"README.md", "STATES.md"}


@pytest.mark.parametrize(("text", "right"), [("a\n…\nc\n", True), ("c\na\n", False), ("d\n", False), ("", True)])
def test_the_rule_for_outputs_itself(text: str, right: bool) -> None:
    with nullcontext() if right else pytest.raises(AssertionError):
        assert_shown(text, "a\nb\nc\n")


def test_the_readme_shows_an_output() -> None:
    assert "One more element" in shown_outputs(ROOT / "README.md")[0]


def test_commands_are_usage() -> None:
    """Every line of `redalg` parses, and its subject exists or can be read."""
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    found = [line for text in texts for line in re.findall(r"^    redalg (.+)$", text, re.MULTILINE)]
    lines = [shlex.split(line, comments=True) for line in found]
    assert {line[0] for line in lines} >= {"doctor", "list", "show", "explain", "plans", "bench"}
    for line in lines:
        options = command_line().parse_args(line)
        if hasattr(options, "subject"):
            assert subject_of(options.subject).given is not None


def test_every_task_of_a_newcomer_has_its_attempts_and_its_time() -> None:
    text = (ROOT / "docs" / "how_to" / "ten_tasks.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    heads, tasks = rows[0], [row for row in rows if row[0].isdigit()]
    assert [int(row[0]) for row in tasks] == [int(one) for one in re.findall(r"^## (\d+)\.", text, re.MULTILINE)]
    assert heads[3:] == ["attempts, first round", "attempts, second round", "seconds", "of them, the program ran"]
    assert all(int(row[5]) >= int(row[6]) > 0 < int(row[3]) and int(row[4]) > 0 for row in tasks)
    assert "a machine's, not a person's" in text


def test_its_facts_are_those_of_the_code() -> None:
    """The extras, the number of patterns, the compute capabilities."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = README.partition("| extra |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:])))
    assert named == extras.keys() - {"dev", "integration"}
    assert f"{len(PATTERNS)} patterns" in README
    capabilities = sorted(".".join(map(str, one.capability)) for one in ARCHITECTURES.values())
    assert f"{', '.join(capabilities[:-1])} and {capabilities[-1]}" in README


def test_its_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_its_paths_exist(path: Path) -> None:
    addresses = [one for one in links(path.read_text(encoding="utf-8")) if not OUTSIDE.match(one)]
    files = [address.partition("#")[0] for address in addresses]
    assert [file for file in files if not (path.parent / file).exists()] == []


def test_every_document_is_linked() -> None:
    """By README those of docs/, and those in its folders by the site's pages."""
    assert [path.name for path in sorted((ROOT / "docs").glob("*.md")) if f"(docs/{path.name})" not in README] == []


def test_the_glossary_names_what_exists() -> None:
    """Every identifier of a row stands in one of the row's files."""
    table = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8").split("|---|---|---|\n")[1]
    for _, meaning, places in (row.strip("| ").split(" | ") for row in table.strip().splitlines()):
        text = "".join((ROOT / "redalg" / one).read_text(encoding="utf-8") for one in re.findall(r"`([^`]+)`", places))
        words = {word for code in re.findall(r"`([^`]+)`", meaning) for word in re.findall(r"[A-Za-z]\w+", code)}
        assert [word for word in sorted(words) if not re.search(rf"\b{word}", text)] == [], meaning
