"""docs/ARCHITECTURE.md, made of the modules' docstrings: `python -m tests.house.architecture` writes it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house.source import ROOT
from tests.house.test_layering import LAYERS

DOCUMENT = ROOT / "docs" / "ARCHITECTURE.md"
PACKAGE = ROOT / "redalg"
HEAD = """\
# Architecture

Every file of the library, from what the user writes to the kernel that runs: a room (a folder) imports from itself and
from the rooms below it. `tests/house/test_layering.py` proves the order, and `make architecture` makes this page of the
modules' docstrings. The README shows the stages in one picture; [GLOSSARY.md](GLOSSARY.md) has the words.
"""
STAGES = (
    ("The table of contents", ("pipeline",)),
    ("What the user writes", ("library", "sugar")),
    (
        "What the user holds",
        ("__init__", "registration", "fuse", "fused", "portable", "algebra", "differentiable", "streaming", "verdicts",
         "explained", "explain", "display", "instruments"),
    ),
    ("What the user wrote → its derivatives", ("gradient",)),
    ("Graph of a framework → TensorProgram", ("torch", "graphs")),
    ("Data of an engine → states", ("data",)),
    ("The command line", ("__main__", "commands", "demo")),
    ("Expression → Cascade", ("decompose.parse", "decompose")),
    (
        "Cascade → Decomposition, or the verdict that there is none",
        ("decompose.verdict", "decompose.separate", "decompose.extrema", "decompose.samples"),
    ),
    ("Decomposition → FusedForm", ("incremental.derive", "incremental")),
    ("FusedForm → programs, and their run on arrays", ("incremental.combine", "incremental.arrays")),
    ("FusedForm → what one loop holds", ("incremental.arrange",)),
    ("FusedForm → Schedule", ("strategies.search", "strategies.model", "strategies.rules", "strategies")),
    (
        "Schedule → TileProgram → source",
        ("lower_tile.place", "lower_tile.check", "lower_tile.passes", "lower_tile.text", "lower_tile.workarounds",
         "lower_tile.ir", "lower_tile"),
    ),
    ("The definition, as PyTorch and as arrays", ("unfused", "definition")),
    (
        "Source → kernel → call",
        ("runtime", "runtime.compile", "runtime.bind", "runtime.call", "runtime.known", "runtime.together",
         "runtime.tune", "runtime.unfused"),
    ),
    ("States of ranks → outputs", ("distributed",)),
    ("What all stages know", ("expression", "monoids", "optional", "errors", "progress", "version")),
)  # fmt: skip


def summary(path: Path) -> str:
    """The first sentence, or line, of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def files(layer: str) -> list[Path]:
    """The files of a layer, `__init__` first."""
    folder = PACKAGE.joinpath(*layer.split("."))
    if not folder.is_dir():
        return [folder.with_suffix(".py")]
    return sorted(folder.glob("*.py"), key=lambda path: (path.name != "__init__.py", path.name))


def document() -> str:
    """The page."""
    parts = [HEAD]
    for title, layers in STAGES:
        parts.append(f"\n## {title}\n\n| file | |\n|---|---|\n")
        for layer in layers:
            parts += [f"| `{path.relative_to(PACKAGE)}` | {summary(path)} |\n" for path in files(layer)]
    return "".join(parts)


def unplaced() -> set[str]:
    """Layers that no stage lists."""
    return set(LAYERS) - {layer for _, layers in STAGES for layer in layers}


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
