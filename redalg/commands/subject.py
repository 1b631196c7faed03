"""The subject of a command: a pattern of the library, an expression, or a file; its sizes and dtypes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from redalg import Approximate, Exact, Fused, InputError, analyze, from_json
from redalg.commands.notation import Written, read_expression
from redalg.explain import explain_refusal
from redalg.expression.dtypes import DTYPES
from redalg.expression.spelling import did_you_mean
from redalg.instruments.drawing import MEASURED, all_names
from redalg.library import PATTERNS, Pattern
from redalg.library.pattern import FLOATS
from redalg.runtime.bind.options import dtype_name, named_shapes, named_sizes
from redalg.strategies.device import device_for

SUFFIXES = (".py", ".json", ".txt")


@final
@dataclass(frozen=True)
class Subject:
    """The subject of a command.

    Attributes:
        name: the pattern's name, or `expression`.
        pattern: that of the library, if it is one.
        given: the verdict, or the function of a pattern.
        scalars: the names of an expression that were taken for scalars.
        sizes: sizes by axis that the user gave.
        dtype: the dtype that the user gave.
        given_shapes: the shapes that the user gave, of tensors whose indices do not tell them.
    """

    name: str
    given: Any
    pattern: Pattern | None = None
    scalars: tuple[str, ...] = ()
    sizes: Mapping[str, int] | None = None
    dtype: str | None = None
    given_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def function(self) -> Fused:
        """The function; a verdict without one is an error with its reasons."""
        if isinstance(self.given, Fused):
            return self.given
        if isinstance(self.given, Exact | Approximate):
            fused: Fused = self.given.fused
            return fused
        raise InputError(explain_refusal(self.given))

    @cached_property
    def all_sizes(self) -> dict[str, int]:
        """The size of every axis without one of its own: those given, the pattern's, or those of an expression."""
        own = dict(self.pattern.sizes) if self.pattern else MEASURED.sizes(self.function.cascade, {})
        foreign = [axis for axis in self.sizes or {} if axis not in own]
        if foreign:
            near = did_you_mean(foreign[0], own)
            raise InputError(f"sizes: there is no axis `{foreign[0]}` here. The axes are {', '.join(own)}.{near}")
        return {**own, **(self.sizes or {})}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors that have an index that is no axis, where they are known."""
        known = self.pattern.tensor_shapes(self.all_sizes) if self.pattern else {}
        return {**known, **self.given_shapes}

    def dtypes(self, target: str) -> dict[str, str]:
        """The dtype of every tensor; on the C target float32, unless one was given."""
        entry = self.pattern or Pattern(self.name, "", lambda: self.function, {})
        return entry.dtypes(self.function, self.dtype or ("float32" if target == "c" else None))

    def problem(self, target: str) -> dict[str, Any]:
        """The sizes, dtypes and shapes, as `source` and its kin take them."""
        return {"sizes": self.all_sizes, "dtypes": self.dtypes(target), "shapes": self.shapes}


# ---- reading ---------------------------------------------------------------------------------------------------------


def subject_of(
    text: str, *, axes: str | None = None, passes: int | None = None, sizes: str = "", dtype: str | None = None,
    shapes: str = "",
) -> Subject:  # fmt: skip
    """The subject that a user names.

    Args:
        text: the name of a pattern, an expression, the path of a file (`.py`, `.json`, `.txt`), or `-` for what stands
            on the standard input.
        axes, passes: those of `fuse`, for an expression.
        sizes: `q=1 k=513`.
        dtype: of the tensors that are computed with.
        shapes: `x=4,64`, of tensors whose indices do not tell them.

    Raises:
        InputError: it is none of these, or sizes, shapes and dtype are none.

    >>> subject_of("variance", sizes="n=77").all_sizes
    {'b': 1024, 'n': 77}
    """
    made = _find_subject(text, axes, passes)
    made = replace(made, sizes=parse_sizes(sizes), dtype=_known_dtype(dtype, made))
    if isinstance(made.given, Fused | Exact | Approximate):
        cascade = made.function.cascade
        given = named_shapes(cascade, parse_shapes(shapes), tensors=all_names(made.function))
        made = replace(made, sizes=named_sizes(cascade, made.sizes), given_shapes=given)
        made.all_sizes  # noqa: B018 - a wrong axis is told before anything is printed
    return made


def _find_subject(text: str, axes: str | None, passes: int | None) -> Subject:
    if text in PATTERNS and axes is None and passes is None:
        return Subject(text, PATTERNS[text].build(), PATTERNS[text])
    if text == "-":
        return _of_text(sys.stdin.read(), axes, passes)
    if text.endswith(SUFFIXES):
        try:
            return _of_text(Path(text).read_text(encoding="utf-8"), axes, passes)
        except OSError as cause:
            raise InputError(f"the file {text} cannot be read: {cause.strerror}.") from cause
    if text.isidentifier() and text not in PATTERNS:
        near = did_you_mean(text, PATTERNS)
        raise InputError(f"there is no pattern `{text}`.{near} `redalg list` lists all {len(PATTERNS)}.")
    return _of_text(text, axes, passes)


def _of_text(text: str, axes: str | None, passes: int | None) -> Subject:
    """An expression, or a function as JSON."""
    if text.lstrip().startswith("{") and '"redalg function' in text:
        return Subject("expression", from_json(text))
    written: Written = read_expression(text)
    passes = passes if passes is not None else written.options.get("passes")
    verdict = analyze(written.expr, axes or written.axes, passes=passes)
    return Subject("expression", verdict, scalars=written.scalars)


def parse_sizes(text: str) -> dict[str, int]:
    """Read sizes by axis name.

    >>> parse_sizes("q=1 k=513")
    {'q': 1, 'k': 513}
    """
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    wrong = ["".join(pair) for pair in pairs if not pair[0].isidentifier() or not pair[2].isdigit()]
    if wrong:
        raise InputError(f"sizes: `{wrong[0]}` is not a size. Write axis=size, separated by spaces, as in 'q=1 k=513'.")
    return {axis: int(size) for axis, _, size in pairs}


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read shapes by tensor name.

    >>> parse_shapes("x=4,64 K=12,16,2,8")
    {'x': (4, 64), 'K': (12, 16, 2, 8)}
    """
    pairs = [pair.partition("=") for pair in text.split()]
    wrong = ["".join(one) for one in pairs if not one[0].isidentifier() or not all(map(str.isdigit, one[2].split(",")))]
    if wrong:
        raise InputError(f"shapes: `{wrong[0]}` is no shape. Write tensor=size,size, separated by spaces, as in "
                         "'x=4,64 K=12,16,2,8'.")  # fmt: skip
    return {name: tuple(map(int, shape.split(","))) for name, _, shape in pairs}


def parse_scalars(text: str) -> dict[str, float]:
    """Read the values of scalars by name.

    >>> parse_scalars("w=256, t=0.5")
    {'w': 256.0, 't': 0.5}
    """
    values = dict[str, float]()
    for pair in text.replace(",", " ").split():
        name, _, number = pair.partition("=")
        try:
            values[name] = float(number)
        except ValueError:
            raise InputError(f"scalars: `{pair}` is no value. Write scalar=number, as in 'w=256'.") from None
    return values


def _known_dtype(dtype: str | None, subject: Subject) -> str | None:
    """A dtype that the subject takes."""
    if dtype is None:
        return None
    name = dtype_name(dtype)
    takes = subject.pattern.takes if subject.pattern else FLOATS
    if name not in takes:
        near = "" if name in DTYPES else did_you_mean(name, takes)
        raise InputError(f"dtype: {subject.name} takes {', '.join(takes[:-1])} or {takes[-1]}, and not {dtype}.{near}")
    return name


def known_target(target: str) -> str:
    """A target or a card that redalg knows; the error of one that it does not names them."""
    device_for(target)
    return target
