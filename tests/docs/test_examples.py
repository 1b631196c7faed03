"""Every public name has a docstring, and an example in it, which pytest runs with all doctests of redalg/.

The rule, by kind of name:

    a function, a class, an error        its own docstring has an example
    a method or property of a class      its own docstring has one, or an example of its class, or of the class that
                                         defines it, reads it as `.name`; a class that can be called is shown so

Public are `redalg.__all__`, what docs/reference lists, the patterns of `redalg.library`, and `VALUES`: what calls give
to users. An example that is skipped says so in words (`SKIPPED`).
"""

import doctest
import inspect
import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

import pytest

import redalg as ra
from docs.generate.reference import resolve
from docs.generate.stage import DOCS, MARK
from redalg.library import PATTERNS

VALUES = (
    "redalg.distributed.rows.DistributedRows", "redalg.explain.picture.Picture",
    "redalg.incremental.form.Slot",
    "redalg.instruments.accuracy.Accuracy", "redalg.instruments.bench.Bench",
    "redalg.instruments.comparison.Comparison", "redalg.runtime.bind.module.FusedModule",
    "redalg.runtime.compile.compile.Kernel", "redalg.runtime.lowered.Lowered", "redalg.runtime.tune.tuner.Tuned",
    "redalg.strategies.search.candidates.Candidate", "redalg.strategies.search.candidates.Candidates",
    "redalg.torch.explanation.Explanation",
)  # fmt: skip
"""The values that methods give to users, beside those that docs/reference lists."""
DEPRECATED = {"redalg.Schedule.choices", "redalg.Definition.choices", "redalg.LibraryProduct.choices"}
"""Names that warn, and that the next version does not have."""
SKIPPED = {
    "redalg.Fused.tune": "it measures for seconds; docs/how_to/tuning.md runs it",
    "redalg.runtime.tune.tuner.Tuned": "so does this",
    "redalg.data.ray.aggregation": "ray is installed for tests/integration alone, which run it",
    "redalg.library.transformers.register_with_transformers": "so is transformers",
    "redalg.torch.explain": "it compiles a model by Inductor; docs/GRAPHS.md runs it",
}
"""Name -> the reason why its example is not run here."""


@cache
def public_names() -> tuple[str, ...]:
    """The dotted names of all public functions, classes and errors."""
    listed = {
        name
        for path in DOCS.rglob("*.md")
        for kind, text in MARK.findall(path.read_text(encoding="utf-8"))
        if kind == "reference"
        for name in text.split()
    }
    every = {f"redalg.{name}" for name in (*ra.__all__, "optimize")} | listed | set(VALUES)
    return tuple(sorted(every | {f"redalg.library.{name}" for name in PATTERNS}))


def public_members(of: type) -> Iterator[tuple[str, Any, type]]:
    """The public methods and properties of a class: name, function, and the class of redalg that defines it."""
    seen = set()
    for base in (one for one in of.__mro__ if one.__module__.startswith("redalg")):
        for name, value in vars(base).items():
            function = value.fget if isinstance(value, property) else value
            function = function.func if isinstance(function, cached_property) else inspect.unwrap(function)
            function = getattr(function, "__func__", function)
            if name not in seen and (not name.startswith("_") or name == "__call__") and inspect.isfunction(function):
                seen.add(name)
                yield name, function, base


def examples(of: Any) -> list[doctest.Example]:
    """The examples of a docstring; inherited ones are none of its own."""
    return doctest.DocTestParser().get_examples(of.__doc__ or "")


def faults(name: str) -> Iterator[str]:
    """The docstrings and examples that a name and its members lack."""
    of = resolve(name)
    yield from lacking(name, of, bool(examples(of)))
    if not inspect.isclass(of):
        return
    for member, function, base in public_members(of):
        shown = [one.source for owner in (of, base) for one in examples(owner)]
        read = any(re.search(rf"\.{member}\b", text) for text in shown) or (member == "__call__" and bool(shown))
        if f"{name}.{member}" not in DEPRECATED:
            yield from lacking(f"{name}.{member}", function, bool(examples(function)) or read)


def lacking(name: str, of: Any, has_example: bool) -> Iterator[str]:
    """The faults of one docstring."""
    if not (of.__doc__ or "").strip():
        yield f"{name}: no docstring"
    elif not has_example:
        yield f"{name}: no example"


def every_example(name: str) -> Iterator[tuple[str, doctest.Example]]:
    """The examples of a name and of its members, with the name that each stands at."""
    of = resolve(name)
    yield from ((name, one) for one in examples(of))
    if inspect.isclass(of):
        for member, function, _ in public_members(of):
            yield from ((f"{name}.{member}", one) for one in examples(function))


def test_every_public_name_has_a_docstring_with_an_example() -> None:
    assert [fault for name in public_names() for fault in faults(name)] == []


def test_an_example_that_is_skipped_has_a_reason() -> None:
    found = {at for name in public_names() for at, one in every_example(name) if one.options.get(doctest.SKIP)}
    assert found == SKIPPED.keys()


def test_doctests_of_the_library_are_run(pytestconfig: pytest.Config) -> None:
    assert "redalg" in pytestconfig.getini("testpaths")
    assert "--doctest-modules" in pytestconfig.getini("addopts")


def bare() -> None:
    pass


class Shown:
    """A class.

    >>> Shown().first
    1
    """

    @property
    def first(self) -> int:
        """The example of the class reads it."""
        return 1

    @property
    def firstly(self) -> int:
        """Nothing shows it."""
        return 1

    def second(self) -> int:
        """Two.

        >>> Shown().second()
        2
        """
        return 2


@pytest.mark.parametrize(
    ("name", "found"), [("bare", ["bare: no docstring"]), ("Shown", ["Shown.firstly: no example"])]
)
def test_the_rule_itself(name: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "resolve", globals().__getitem__)
    monkeypatch.setattr(Shown, "__module__", "redalg.shown")
    assert list(faults(name)) == found
