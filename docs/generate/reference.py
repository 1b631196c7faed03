"""The reference: signatures and docstrings of public names as MyST's directives, which search and links find."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from textwrap import dedent
from typing import Any

SECTIONS = {"Args": "Arguments"} | {name: name for name in ("Attributes", "Raises", "Returns", "Yields")}
LONGEST = 150
"""Characters of a constructor that users call; longer ones are the library's own."""
OPTION = re.compile(r"  # doctest: \+\w+$", re.MULTILINE)
"""The option of an example, which is no part of what it shows."""
ENTRY = re.compile(r"([\w*., ]+): (.*)", re.DOTALL)


def reference_text(names: list[str]) -> str:
    """The entries of names, each a module's path and what it defines: `redalg.fuse`, `redalg.data.dask.reduction`."""
    return "\n".join(entry(name, resolve(name)) for name in names)


def resolve(name: str) -> Any:
    """The object of a dotted name.

    >>> resolve("redalg.errors.Text").__name__
    'Text'
    """
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError:
        return getattr(resolve(module), attribute)


def entry(name: str, of: Any) -> str:
    """The directive of a function, of a class with its members, or of a constant."""
    if inspect.isclass(of):
        kind = "exception" if issubclass(of, BaseException) else "class"
        body = "\n\n".join([markdown(inspect.getdoc(of) or ""), *members(of)])
        made = "" if kind == "exception" else signature(of)
        return directive(kind, name + (made if len(made) <= LONGEST else ""), body, 6)
    if callable(of):
        return directive("function", name + signature(of), markdown(inspect.getdoc(of) or ""), 6)
    return directive("data", name, "", 6)


def members(of: type) -> Iterator[str]:
    """The directives of a class's public methods and properties, its own first, then its bases'."""
    seen = set()
    for base in of.__mro__:
        if not base.__module__.startswith("redalg"):
            continue
        for name, value in vars(base).items():
            public = not name.startswith("_") or (name == "__call__" and base is not type)
            if not public or name in seen:
                continue
            seen.add(name)
            found = member(name, value)
            if found:
                yield found


def member(name: str, value: Any) -> str:
    """The directive of one attribute of a class; empty if it has no docstring."""
    option, bound = "", 1
    if isinstance(value, property | cached_property):
        kind, function = "property", value.fget if isinstance(value, property) else value.func
    elif isinstance(value, staticmethod | classmethod):
        kind, function = "method", value.__func__
        option, bound = f":{type(value).__name__}:\n", isinstance(value, classmethod)
    elif inspect.isfunction(value):
        kind, function = "method", value
    else:
        return ""
    text = inspect.getdoc(function)
    if not text:
        return ""
    title = name + (signature(function, bound) if kind == "method" else "")
    return directive(kind, title, option + markdown(text), 5)


def directive(kind: str, title: str, body: str, ticks: int) -> str:
    """A directive of Python's domain, fenced by so many backticks."""
    fence = "`" * ticks
    return f"{fence}{{py:{kind}}} {title}\n{body.rstrip()}\n{fence}\n"


class Bare(str):
    """An annotation as it was written: it prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def signature(of: Any, bound: int = 0) -> str:
    """The parameters and the result of a callable, as they were written, without the first `bound` parameters.

    >>> from redalg.errors import Text
    >>> signature(resolve), signature(Text)
    ('(name: str) -> Any', '(*parts: object)')
    """
    try:
        found = inspect.signature(of)
    except ValueError:
        return "()"
    parameters = [one.replace(annotation=_bare(one.annotation)) for one in found.parameters.values()]
    result = inspect.Signature.empty if inspect.isclass(of) else _bare(found.return_annotation)
    return str(inspect.Signature(parameters[bound:], return_annotation=result))


def _bare(annotation: Any) -> Any:
    return Bare(annotation) if isinstance(annotation, str) else annotation


def markdown(text: str) -> str:
    r"""A docstring as Markdown: its sections as lists, its doctests and indented blocks as code.

    >>> print(markdown("Sum of x*y.\n\nArgs:\n    x, y: numbers,\n        real."))
    Sum of x\*y.
    <BLANKLINE>
    **Arguments**
    <BLANKLINE>
    - `x`, `y`: numbers, real.
    """
    return "\n\n".join(_paragraph(one) for one in _paragraphs(text))


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text; indented ones that follow each other are one, and so is what a section holds."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if found and paragraph.startswith("    ") and (found[-1].startswith("    ") or _section(found[-1])):
            found[-1] += "\n\n" + paragraph
        else:
            found.append(paragraph)
    yield from found


def _section(paragraph: str) -> str:
    """The name of the section that a paragraph is; empty if it is none."""
    first, _, rest = paragraph.partition("\n")
    return first[:-1] if first.endswith(":") and first[:-1] in SECTIONS and rest.startswith("    ") else ""


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{OPTION.sub('', text)}\n```"
    if text.startswith("    "):
        return f"```text\n{dedent(text)}\n```"
    section = _section(text)
    if not section:
        return escape(text)
    body = dedent(text.partition("\n")[2])
    if section in ("Returns", "Yields"):
        return f"**{SECTIONS[section]}** {escape(body)}"
    entries = re.split(r"\n(?=\S)", body)
    return f"**{SECTIONS[section]}**\n\n" + "\n".join(_item(one) for one in entries)


def _item(text: str) -> str:
    """An entry of a section, as an item of a list."""
    words = " ".join(text.split())
    found = ENTRY.fullmatch(words)
    if not found:
        return f"- {escape(words)}"
    names = ", ".join(f"`{name.strip()}`" for name in found[1].split(","))
    return f"- {names}: {escape(found[2])}"


def escape(text: str) -> str:
    r"""Text in which only backticks mark anything.

    >>> escape("a*b of `c*d` [e] $f$")
    'a\\*b of `c*d` \\[e\\] \\$f\\$'
    """
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(one if one.startswith("`") else re.sub(r"([\\*_\[\]<>$#|~])", r"\\\1", one) for one in parts)
