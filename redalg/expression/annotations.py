"""Arguments beside the annotations of a function, once a call has failed by an error that is none of redalg's.

Only then: a call that fits costs what it did, and what an annotation forbids and a function can do, it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

WORDS: dict[Any, str] = {
    str: "a str", int: "an int", float: "a number", bool: "True or False", Path: "a path", NoneType: "None",
    Mapping: "a dict", Callable: "a function",
}  # fmt: skip
"""A class as a message names it."""


def first_misfit(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> tuple[str, Any, str]:
    """The first argument that is of no kind that its annotation names: its name, its value, and what is needed.

    The name is empty if every argument fits. An annotation that cannot be read at run time names every kind.

    >>> def draw(columns: int | None = None, *, title: str = ""): ...
    >>> first_misfit(draw, ["80"], {}), first_misfit(draw, [], {"title": "x"})
    (('columns', '80', 'an int or None'), ('', None, ''))
    """
    takes = signature(function)
    for name, given in takes.bind(*args, **options).arguments.items():
        kind, hint = takes.parameters[name].kind, annotation_of(function, name)
        values = given if kind is Parameter.VAR_POSITIONAL else [] if kind is Parameter.VAR_KEYWORD else [given]
        for value in values:
            if not fits_hint(value, hint):
                return name, value, hint_in_words(hint)
    return "", None, ""


def annotation_of(function: Callable[..., Any], name: str) -> Any:
    """The annotation of a parameter; `Any` if there is none, or if its names are those of type checkers alone."""
    written = function.__annotations__.get(name, Any)
    try:
        return get_type_hints(SimpleNamespace(__annotations__={name: written}), function.__globals__)[name]
    except (NameError, TypeError, AttributeError):
        return Any


def fits_hint(value: Any, hint: Any) -> bool:
    """Tell if a value is of a kind that an annotation names; numbers of any library are numbers."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits_hint(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    kind = origin or hint
    if not isinstance(kind, type):
        return True
    if kind in (int, float):
        return hasattr(value, "__index__" if kind is int else "__float__")
    try:
        of_kind = isinstance(value, kind)
    except TypeError:  # a protocol that is none at run time
        return True
    if of_kind and issubclass(kind, Mapping) and len(inner) == 2:
        return all(fits_hint(name, inner[0]) and fits_hint(one, inner[1]) for name, one in value.items())
    several = of_kind and issubclass(kind, Collection) and len(inner) == 1 and not isinstance(value, str)
    return all(fits_hint(one, inner[0]) for one in value) if several else of_kind


def hint_in_words(hint: Any) -> str:
    """An annotation in words.

    >>> hint_in_words(str | Sequence[str] | None)
    'a str, a list of str or None'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        *first, last = (hint_in_words(one) for one in inner)
        return f"{', '.join(first)} or {last}"
    if origin is Literal:
        return " or ".join(map(repr, inner))
    kind = origin or hint
    if origin is not None and issubclass(kind, Iterable) and len(inner) == 1:
        return f"a list of {' or '.join(one.__name__ for one in get_args(inner[0]) or inner)}"
    if origin is not None and issubclass(kind, Mapping) and inner[0] is str:
        return "a dict of names"
    return WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")
