"""The house rules, read off the source: sizes, names, classes, docstrings, words that the engine may not know.

An exception stands in a table with its reason; one that is no longer needed fails.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.house.source import ROOT, Function, Source, dotted, sources

FUNCTION_LINES = 70
MEDIAN_FUNCTION_LINES = 10
FILE_LINES = 450
LONG_FUNCTIONS: dict[str, str] = {}  # "redalg/module.py:function": why it may be long
LONG_FILES: dict[str, str] = {}  # "redalg/module.py": why it may be long

# Where workloads may be named: the sugar, the library, what shows them, and the package's list of public names.
KNOWS_WORKLOADS = (
    *(
        "redalg/sugar.py",
        "redalg/library/",
        "redalg/__main__.py",
        "redalg/demo",
        "redalg/commands",
        "redalg/__init__.py",
    ),
    "redalg/torch/sums.py",  # its operators are PyTorch's
)
WORKLOADS = {
    *("attention", "sdpa", "mha", "gqa", "mla", "moe", "flash", "flashattention", "flashdecoding"),
    *("softmax", "logsoftmax", "layernorm", "rmsnorm", "quant", "quantize", "quantized", "quantization"),
}
SPEAKS_TO_THE_TERMINAL = ("redalg/__main__.py", "redalg/demo", "redalg/commands")
VAGUE_MODULES = {"util", "utils", "helper", "helpers", "misc", "common"}
CLOSED_BASES = {"ABC", "Protocol", "NamedTuple", "TypedDict", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
SETUP_FILES = ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run")
MACHINE_FOLDERS = ("home", "root", "Users", "work", "tmp", "opt", "mnt")

ENGINE = sources("redalg")
ALL = sources("redalg", "tests", "benchmarks", "docs")


def body_lines(function: Function) -> int:
    """The lines of a function from `def` on, its docstring left out: documentation is not length."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def words(text: str) -> set[str]:
    """The lower-case words of a text; identifiers are split at underscores and capitals.

    >>> sorted(words("flash_softmax(FlashAttention), quantity"))
    ['attention', 'flash', 'flashattention', 'quantity', 'softmax']
    """
    runs = re.findall(r"[A-Za-z]+", text)
    parts = [part for run in runs for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", run)]
    return {word.lower() for word in runs + parts}


def is_frozen_dataclass(decorator: ast.expr) -> bool:
    if not isinstance(decorator, ast.Call) or not is_dataclass(decorator):
        return False
    return any(key.arg == "frozen" and ast.unparse(key.value) == "True" for key in decorator.keywords)


def is_dataclass(decorator: ast.expr) -> bool:
    return last_name(decorator) == "dataclass"


def last_name(node: ast.expr) -> str:
    """`C` of `a.b.C`, `C(…)` or `C[…]`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return dotted(node).split(".")[-1]


def is_abstract(cls: ast.ClassDef) -> bool:
    decorators = [mark for item in cls.body if isinstance(item, Function) for mark in item.decorator_list]
    return any(last_name(mark) == "abstractmethod" for mark in decorators)


def sympy_names(source: Source) -> set[str]:
    """The names that a file imports from SymPy, and `sympy` itself."""
    froms = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
    names = {a.asname or a.name for node in froms if (node.module or "").split(".")[0] == "sympy" for a in node.names}
    return names | {"sympy"}


def is_closed(cls: ast.ClassDef, outside: set[str]) -> bool:
    """Whether a class is final or abstract, or of a kind that is so by itself: see house rule 9."""
    if any(last_name(mark) == "final" or is_frozen_dataclass(mark) for mark in cls.decorator_list):
        return True
    bases = {last_name(base) for base in cls.bases} | {dotted(base).split(".")[0] for base in cls.bases}
    return is_abstract(cls) or bool(bases & (CLOSED_BASES | outside))


def is_exception(cls: ast.ClassDef, source: Source) -> bool:
    return source.module == "redalg.errors" or any(last_name(base).endswith("Error") for base in cls.bases)


def offenders(rule: Callable[[Source], Iterable[object]], among: Iterable[Source] = ALL) -> list[str]:
    """Every finding of a rule, after the name of its file."""
    return [f"{source.name}: {found}" for source in among for found in rule(source)]


# ---- sizes -----------------------------------------------------------------------------------------------------------


def long_functions(source: Source) -> Iterator[str]:
    return (function.name for function in source.functions() if body_lines(function) > FUNCTION_LINES)


def test_functions_are_short() -> None:
    assert [found for found in offenders(long_functions) if found.replace(": ", ":") not in LONG_FUNCTIONS] == []


def test_functions_have_a_small_median() -> None:
    lengths = [body_lines(function) for source in ENGINE for function in source.functions()]
    assert median(lengths or [0]) <= MEDIAN_FUNCTION_LINES


def test_files_are_short() -> None:
    long = {source.name for source in ALL if len(source.text.splitlines()) > FILE_LINES}
    assert long - LONG_FILES.keys() == set()


def test_every_exception_is_still_needed() -> None:
    assert LONG_FUNCTIONS.keys() <= {found.replace(": ", ":") for found in offenders(long_functions)}
    assert LONG_FILES.keys() <= {source.name for source in ALL if len(source.text.splitlines()) > FILE_LINES}


# ---- names, classes, words -------------------------------------------------------------------------------------------


def test_names_of_a_module_are_bound_once() -> None:
    """A second binding further down silently changes what functions above it read."""

    def bound_again(source: Source) -> Iterator[str]:
        targets = [target for node in source.tree.body if isinstance(node, ast.Assign) for target in node.targets]
        targets += [node.target for node in source.tree.body if isinstance(node, ast.AnnAssign)]
        bound = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
        names = [node.id for node in bound if isinstance(node, ast.Name)]
        return (name for name, times in Counter(names).items() if times > 1)

    assert offenders(bound_again) == []


def test_the_engine_knows_no_workload() -> None:
    def named_workloads(source: Source) -> Iterator[str]:
        lines = enumerate(source.text.splitlines(), 1)
        return (f"{number}: {line}" for number, line in lines if words(line) & WORKLOADS)

    assert offenders(named_workloads, [one for one in ENGINE if not one.name.startswith(KNOWS_WORKLOADS)]) == []


def test_module_names_say_what_is_inside() -> None:
    assert [source.name for source in ALL if source.path.stem in VAGUE_MODULES] == []


def test_classes_are_abstract_or_final() -> None:
    def open_classes(source: Source) -> Iterator[str]:
        outside = sympy_names(source)
        return (
            f"{cls.lineno}: {cls.name}"
            for cls in source.classes()
            if not is_closed(cls, outside) and not is_exception(cls, source)
        )

    assert offenders(open_classes, ENGINE) == []


def test_dataclasses_are_frozen() -> None:
    def thawed(source: Source) -> Iterator[str]:
        marks = [(cls.name, mark) for cls in source.classes() for mark in cls.decorator_list if is_dataclass(mark)]
        return (name for name, mark in marks if not is_frozen_dataclass(mark))

    assert offenders(thawed, ENGINE) == []


def test_modules_have_docstrings() -> None:
    assert [source.name for source in ALL if not ast.get_docstring(source.tree)] == []


def test_the_engine_prints_nothing() -> None:
    def prints(source: Source) -> Iterator[int]:
        calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
        return (call.lineno for call in calls if dotted(call.func) == "print")

    assert offenders(prints, [one for one in ENGINE if not one.name.startswith(SPEAKS_TO_THE_TERMINAL)]) == []


# ---- machines --------------------------------------------------------------------------------------------------------


def test_set_up_names_no_host() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in SETUP_FILES}
    hosts = {name: re.findall(r"\S*(?:://|index-url|find-links)\S*", text) for name, text in texts.items()}
    assert {name: found for name, found in hosts.items() if found} == {}


def test_no_machine_is_named() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in (*SETUP_FILES, "README.md", "CONTRIBUTING.md")}
    texts |= {source.name: source.text for source in ALL}
    pattern = re.compile(rf"(?<![\w.}}\])/])/(?:{'|'.join(MACHINE_FOLDERS)})/\S*")
    paths = {name: pattern.findall(text) for name, text in texts.items()}
    assert {name: found for name, found in paths.items() if found} == {}


# ---- the rules themselves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("class A: pass", False),
        ("@final\nclass A: pass", True),
        ("@dataclass\nclass A: pass", False),
        ("@dataclass(frozen=True, slots=True)\nclass A: pass", True),
        ("class A(Enum): pass", True),
        ("class A(Protocol[T]): pass", True),
        ("class A:\n    @abstractmethod\n    def f(self): ...", True),
        ("from sympy import Expr\nclass A(Expr): pass", True),
        ("import sympy\nclass A(sympy.Expr): pass", True),
        ("class A(Expr): pass", False),
    ],
)
def test_the_class_rule_itself(text: str, closed: bool) -> None:
    source = Source(Path("redalg/example.py"), text)
    assert [is_closed(cls, sympy_names(source)) for cls in source.classes()] == [closed]
