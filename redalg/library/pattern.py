"""The registry of the library: every pattern's function, field, sizes and dtypes, for what lists, shows or times them.

    @pattern("statistics", b=1024, n=8192)
    def variance() -> Fused: …

A pattern is a function that can be called without arguments; its docstring begins with its definition and has a
paragraph `Source: …`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import getdoc, signature
from typing import Any, TypeVar, cast, final

from redalg.errors import ExpressionError, RedalgError
from redalg.expression.arguments import answer_arguments, short_text
from redalg.fuse import Fused

Function = TypeVar("Function", bound=Callable[..., Fused])
PATTERNS: dict[str, Pattern] = {}
"""The patterns by name, in the order in which the library's modules define them."""
FLOATS = ("float16", "bfloat16", "float32", "float64")


@final
@dataclass(frozen=True)
class Pattern:
    """A function of the library, and what its kernel is shown and timed for.

    Attributes:
        name: that of the function.
        field: the field that it is from.
        build: the function.
        sizes: axis -> extent as it is met in use, of every axis without a size of its own.
        dtype: of the tensors whose values are computed with.
        tensors: name -> dtype, of those that have another one.
        shapes: name -> the dimensions of a tensor that has an index that is no axis: `axis`, `axis/number` or a number.
        takes: the dtypes that may be asked for.

    >>> from redalg.library import PATTERNS
    >>> found = PATTERNS["variance"]
    >>> found.field, found.sizes, found.summary
    ('statistics', {'b': 1024, 'n': 8192}, 'Population variance of the rows of x[b,n]: Σ (x - mean)² / n, as out[b]')
    >>> found.source
    "RedFuser (ASPLOS '26), Eq. 44. Its derived form is Welford's (1962), merged as by Chan et al. (1979)"
    >>> found.dtypes(found.build(), "float16")
    {'x': 'float16'}
    """

    name: str
    field: str
    build: Callable[..., Fused]
    sizes: Mapping[str, int]
    dtype: str = "float32"
    tensors: Mapping[str, str] | None = None
    shapes: Mapping[str, str] | None = None
    takes: tuple[str, ...] = FLOATS

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return _paragraphs(self.build)[0].removesuffix(".")

    @property
    def source(self) -> str:
        """The paper or book that the pattern is from."""
        found = [one.removeprefix("Source: ") for one in _paragraphs(self.build) if one.startswith("Source: ")]
        return found[0].removesuffix(".") if found else ""

    def dtypes(self, fused: Fused, dtype: str | None = None) -> dict[str, str]:
        """The dtype of every tensor: `dtype` of those that are computed with, int64 of those that index.

        Args:
            fused: the pattern's function.
            dtype: None for the pattern's own, and for those of the tensors that have another one.
        """
        computed = fused.cascade.value_tensors()
        made = {name: (dtype or self.dtype) if name in computed else "int64" for name in fused.cascade.inputs()}
        return made | ({} if dtype else dict(self.tensors or {}))

    def tensor_shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors that have an index that is no axis.

        >>> from redalg.library import grouped_query_attention
        >>> PATTERNS["grouped_query_attention"].tensor_shapes({"b": 1, "h": 32, "k": 100, "d": 64, "e": 64})
        {'K': (1, 8, 100, 64), 'V': (1, 8, 100, 64)}
        """
        return {
            name: tuple(_dimension(one, sizes) for one in text.split()) for name, text in (self.shapes or {}).items()
        }


def pattern(
    field: str,
    *,
    dtype: str = "float32",
    tensors: Mapping[str, str] | None = None,
    shapes: Mapping[str, str] | None = None,
    takes: tuple[str, ...] = FLOATS,
    **sizes: int,
) -> Callable[[Function], Function]:
    """Enter a function into the registry: a decorator. Of arguments that the function does not take it tells.

    Args:
        field, dtype, tensors, shapes, takes: those of a `Pattern`.
        sizes: axis -> extent.
    """

    def register(function: Function) -> Function:
        name = function.__name__
        advice = f"Axes get their sizes from the tensors of a call: write `library.{name}()(…)`."
        answered = refuse_operands(name, answer_arguments(ExpressionError, advice)(function))
        PATTERNS[name] = Pattern(name, field, answered, sizes, dtype, tensors, shapes, takes)
        return cast("Function", answered)

    return register


def refuse_operands(name: str, function: Callable[..., Fused]) -> Callable[..., Fused]:
    """The function with errors in words where arguments fit it by number, and cannot stand in its expression."""

    @wraps(function)
    def build(*args: Any, **options: Any) -> Fused:
        try:
            return function(*args, **options)
        except RedalgError:
            raise
        except (TypeError, AttributeError, KeyError, ValueError) as cause:
            given = signature(function).bind(*args, **options).arguments
            told = ", ".join(f"{option}={short_text(value)}" for option, value in given.items())
            raise ExpressionError(
                f"library.{name}: {told} cannot stand in its expression ({type(cause).__name__}: {cause}). Give "
                'numbers, or scalars such as `ra.scalars("t", positive=True)`, which get their numbers at the call.'
            ) from cause

    return build


def _paragraphs(function: Callable[..., Fused]) -> list[str]:
    """The paragraphs of a docstring, a line each."""
    return [" ".join(one.split()) for one in re.split(r"\n\s*\n", getdoc(function) or "")]


def _dimension(text: str, sizes: Mapping[str, int]) -> int:
    """A dimension of `h/4`, of `h` or of `128`; a part that is not whole counts as one."""
    name, _, parts = text.partition("/")
    extent = sizes[name] if name in sizes else int(name)
    return -(-extent // int(parts or 1))
