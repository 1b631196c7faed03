"""Python files as syntax trees, for the tests that hold the source itself to rules."""

import ast
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: `path` is relative to the checkout's root."""

    path: Path
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def name(self) -> str:
        """The path with forward slashes, as the tables of exceptions write it."""
        return self.path.as_posix()

    @property
    def module(self) -> str:
        """The dotted name under which Python imports this file."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def classes(self) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]


def sources(*folders: str) -> list[Source]:
    """Every Python file under the named folders of the checkout, in order of path."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of names; the empty string for anything else.

    >>> dotted(ast.parse("dataclasses.dataclass", mode="eval").body)
    'dataclasses.dataclass'
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""
