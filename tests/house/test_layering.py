"""Imports follow the order of the stages, and importing redalg is light.

The order is proved from the source, so that imports inside functions and under TYPE_CHECKING count too.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.source import ROOT, Source, dotted, sources

PACKAGE = "redalg"
ROOT_MODULE = "__init__"
# A layer imports from itself and from those after it. A layer is a file of the package, or a room: a folder, whose own
# files stand below the rooms in it where it has some. `__init__` is the package's own namespace: it may take names from
# any layer, and only what stands before it, the command line, may import from it.
LAYERS = (
    *("__main__", "commands", "demo", ROOT_MODULE, "torch", "graphs", "data"),
    *("registration", "library", "fuse", "fused", "portable", "instruments", "explained"),
    *("distributed", "algebra", "differentiable", "streaming", "verdicts", "gradient", "explain"),
    *("runtime.together", "runtime.tune", "runtime.call", "pipeline"),
    *("runtime", "runtime.unfused", "runtime.bind", "runtime.known", "runtime.compile"),
    "unfused",
    *(
        "lower_tile.place",
        "lower_tile.check",
        "lower_tile.passes",
        "lower_tile.text",
        "lower_tile.workarounds",
        "lower_tile.ir",
        "lower_tile",
    ),
    *("strategies.search", "strategies.model", "strategies.rules", "incremental.arrange", "strategies"),
    *("incremental.derive", "incremental.arrays", "incremental.combine", "incremental"),
    *("decompose.verdict", "decompose.parse", "decompose.extrema", "decompose.samples", "decompose.separate"),
    *("decompose", "sugar", "definition", "expression", "monoids", "optional", "errors", "progress", "version"),
    "display",
)
BACKENDS = {"torch", "tilelang", "tvm", "triton"}
MAY_IMPORT_BACKENDS = {  # module or package: why
    "redalg.runtime": "it runs forms on tensors",
    "redalg.distributed": "its collectives are PyTorch's",
    "redalg.definition.tensors": "it evaluates definitions on tensors",
    "redalg.gradient.first_only": "it is PyTorch's function of gradients without a derivative",
    "redalg.gradient.recorded": "it is PyTorch's function of a call that records a gradient",
    "redalg.gradient.operators": "it registers the operators of graphs that PyTorch traces",
    "redalg.gradient.traced": "PyTorch traces it",
    "redalg.gradient.within_operator": "PyTorch traces past it",
    "redalg.library.transformers": "its models are PyTorch's",
    "redalg.instruments": "it measures calls on tensors",
    "redalg.torch": "it imports PyTorch's graphs",
    "redalg.commands": "it measures, and tells what is installed; nothing but the command line imports it",
    "redalg.demo": "it compares with PyTorch; nothing but the command line imports it",
}
NOT_LOADED_BY_IMPORT = {"torch", "tilelang", "numpy", "rich"}


@dataclass(frozen=True)
class Import:
    """One imported module, by its absolute dotted name, and the line that imports it."""

    module: str
    line: int


def imports(source: Source) -> Iterator[Import]:
    """Every import of a file, at any depth; `import_module("…")` and `__import__("…")` too."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.stmt | ast.expr):
            yield from (Import(module, node.lineno) for module in imported_modules(node, source))


def imported_modules(node: ast.stmt | ast.expr, source: Source) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = absolute(node, source)
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in {"import_module", "__import__"}:
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def absolute(node: ast.ImportFrom, source: Source) -> str:
    """The absolute name of the module that `from … import` names; dots count up from the file's package."""
    if not node.level:
        return node.module or ""
    parents = source.path.parent.parts
    parents = parents[: len(parents) - node.level + 1]
    return ".".join([*parents, node.module] if node.module else parents)


def layer(module: str) -> str:
    """The layer of an absolute name inside redalg: `redalg.axes`, a public name, belongs to `__init__`."""
    parts = module.split(".")[1:]
    return next((one for one in (".".join(parts[:2]), ".".join(parts[:1])) if one in LAYERS), ROOT_MODULE)


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def upward_imports(source: Source) -> list[str]:
    """The imports of a file of redalg that go against the order, as `file:line imports module`."""
    own = layer(source.module)
    if own == ROOT_MODULE:
        return []
    return [
        f"{source.name}:{found.line} imports {found.module}"
        for found in imports(source)
        if is_inside(found.module, PACKAGE) and LAYERS.index(layer(found.module)) < LAYERS.index(own)
    ]


def backend_imports(source: Source) -> list[str]:
    if any(is_inside(source.module, allowed) for allowed in MAY_IMPORT_BACKENDS):
        return []
    return [
        f"{source.name}:{found.line} imports {found.module}"
        for found in imports(source)
        if found.module.split(".")[0] in BACKENDS
    ]


def example(path: str, text: str) -> Source:
    return Source(Path(path), text)


def test_imports_follow_the_stages() -> None:
    assert [found for source in sources(PACKAGE) for found in upward_imports(source)] == []


def test_only_the_runtime_imports_a_backend() -> None:
    assert [found for source in sources(PACKAGE) for found in backend_imports(source)] == []


def test_every_module_and_every_room_has_a_layer() -> None:
    folder = ROOT / PACKAGE
    files = {path.stem for path in folder.glob("*.py")}
    rooms = {".".join(path.parent.relative_to(folder).parts) for path in folder.rglob("*/*.py")}
    assert files | rooms == set(LAYERS)


def test_no_name_is_both_a_module_and_a_package() -> None:
    folder = ROOT / PACKAGE
    assert [path.name for path in folder.glob("*.py") if path.with_suffix("").is_dir()] == []


def test_import_redalg_is_light() -> None:
    code = f"import sys, {PACKAGE}; print(*({NOT_LOADED_BY_IMPORT} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize(
    "text",
    [
        "from redalg.fuse import fuse",
        "from redalg import fuse",
        "from redalg import axes",
        "import redalg",
        "from ...fuse import fuse",
        "from ... import explain",
        "def f():\n    from redalg.runtime import run",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from redalg.strategies import Plan",
        "import importlib\nimportlib.import_module('redalg.runtime.cache')",
    ],
)
def test_an_upward_import_is_found(text: str) -> None:
    assert len(upward_imports(example("redalg/decompose/parse/parse.py", text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from redalg.sugar import softmax",
        "from redalg.expression import axis",
        "from .separate import separate",
        "from . import separate",
        "from ...monoids.laws import check",
        "import sympy",
    ],
)
def test_a_downward_import_is_let_through(text: str) -> None:
    assert upward_imports(example("redalg/decompose/parse/parse.py", text)) == []


@pytest.mark.parametrize(
    "text", ["import torch", "from torch.utils import dlpack", "def f():\n    import tilelang.language"]
)
def test_a_backend_import_is_found(text: str) -> None:
    assert len(backend_imports(example("redalg/lower_tile/text/emit.py", text))) == 1
    assert backend_imports(example("redalg/runtime/call/dispatch.py", text)) == []
