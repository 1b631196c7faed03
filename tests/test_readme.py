"""The README's example runs as it stands there, and its commands exist."""

import re

from tests.source import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})


def test_its_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert {"demo", "test"} <= named <= targets


def test_its_paths_exist() -> None:
    paths = re.findall(r"\]\(([^)#:]+)\)", README)
    assert [path for path in paths if not (ROOT / path).exists()] == []
