"""Options as a caller writes them, brought to plain ones: sizes, places and dtypes by name, known options only.

    sizes, extents    {Axis or name: Integral}                      ->  {name: int}
    start             {Axis or name: Integral}                      ->  {Axis: int}
    dtypes            a dtype for all, or {Element or name: dtype}  ->  {name: name of a dtype}
    dtype             a name, `fp16`, `bf16`, `half`, torch's or NumPy's own

What is no axis, no whole number or no dtype of any library is refused here. What does not fit the expression (an axis
that it lacks, a dtype that kernels lack) is refused where the expression is known.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, SupportsIndex

from redalg.decompose.cascade import Cascade
from redalg.errors import InputError
from redalg.expression import Axis, Element, Extent, Tensor
from redalg.expression.arguments import Spelling, option_names, short_text
from redalg.expression.dtypes import ALIASES
from redalg.expression.spelling import did_you_mean
from redalg.runtime.bind.frameworks import imported_torch

Sizes = Mapping[Any, SupportsIndex]
"""Whole numbers by axis, or by its name."""
LOWERING = ("plan", "shapes", "empty", "precision", "varying")
CHOOSING, RANKING = (*LOWERING, "memory"), ("shapes", "empty", "precision", "memory", "scalars")
OPTIONS = {"lower": LOWERING, "source": LOWERING, "save": LOWERING, "compile": CHOOSING, "plan": CHOOSING,
           "plans": RANKING}  # fmt: skip
"""The options of every method that plans a kernel."""
CARDS_BY = {method: "device" if method in ("plan", "plans") else "target" for method in OPTIONS}
"""The option by which each of these methods takes a card."""


def named_sizes(cascade: Cascade, sizes: Any, caller: str = "", option: str = "sizes") -> dict[str, Any]:
    """Sizes by the cascade's names of axes, none for None; whole numbers of any library become Python's.

    A name that the user wrote and a rewrite took away is that of the axis in its place.

    >>> import redalg as ra
    >>> b, n, k = ra.axes("b n k")
    >>> x = ra.Tensor("x")
    >>> variance = ra.fuse(ra.mean((x[b, n] - ra.mean(x[b, k], k)) ** 2, n))
    >>> named_sizes(variance.cascade, {k: 3, "b": 2})
    {'n': 3, 'b': 2}
    """
    where = f"{caller}: " if caller else ""
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping):
        other = next((name for name in option_names(sizes) if name in ("dtypes", CARDS_BY.get(caller))), None)
        meant = f" Or do you mean {other}={sizes!r}?" if other else ""
        raise InputError(
            f"{where}{option}={short_text(sizes)} gives no axis a size. Write {option}={{n: 4096}}, by axes or by "
            f"their names.{meant}"
        )
    by_name, names = dict[str, Any](), dict[str, str]()
    declared = {axis.name: axis.size for axis in cascade.axes() if axis.size is not None}
    for key, size in sizes.items():
        name = key.name if isinstance(key, Axis | Extent) else key
        if not isinstance(name, str):
            raise InputError(f"{where}{option}={{{key!r}: …}}: {key!r} is no axis. Give axes, or their names.")
        number = python_integer(size)
        if getattr(number, "ndim", 0):
            given = f"{option}={{{name!r}: {short_text(size)}}}"
            raise InputError(f"{where}{given}: the size of an axis is a whole number.")
        for axis in cascade.names_of_axis(name):
            if declared.get(axis, number) != number and isinstance(number, int):
                raise InputError(f"{where}{option} gives axis {name} the size {number}, and it is declared with "
                                 f"{declared[axis]}. Leave it out.")  # fmt: skip
            first = names.setdefault(axis, name)
            if by_name.setdefault(axis, number) != number:
                why = "" if first == name else (
                    f", as `{first}` and as `{name}`: both are names of this axis, since they index the same dimension "
                    "of a tensor")  # fmt: skip
                raise InputError(f"{where}{option} gives axis {axis} two sizes, {by_name[axis]!r} and {number!r}{why}. "
                                 "Give it once.")  # fmt: skip
    return by_name


def python_integer(number: Any) -> Any:
    """A whole number of any library as Python's; anything else as it is, to be refused with its name."""
    return int(number) if isinstance(number, Integral) and not isinstance(number, bool) else number


def global_starts(cascade: Cascade, start: Any, caller: str) -> dict[Axis, int]:
    """The global number of the first element, by axis.

    Raises:
        InputError: no mapping, an axis that the expression lacks, no whole number, or one at which 64 bits end.
    """
    if start is None:
        return {}
    axes = cascade.axes()
    if not isinstance(start, Mapping):
        raise InputError(
            f"{caller}: start={start!r} names no axis. Write start={{{cascade.axis}: {start!r}}}; the axes are "
            f"{', '.join(map(str, axes))}."
        )
    starts = dict[Axis, int]()
    for key, number in start.items():
        axis, first = cascade.find_axis(key, axes), python_integer(number)
        if axis is None or not isinstance(first, int) or isinstance(first, bool) or first < 0:
            raise InputError(
                f"{caller}: start should give an axis its first element's number, as in "
                f"start={{{cascade.axis}: 128}}, not {{{key!r}: {number!r}}}. The axes are "
                f"{', '.join(map(str, axes))}."
            )
        starts[axis] = first
    return starts


def check_places(start: Mapping[Axis, int], sizes: Mapping[str, int], numbers: Collection[Axis], caller: str) -> None:
    """Refuse a piece that reaches beyond the last place; sooner along axes of which `numbers` are made."""
    for axis, first in start.items():
        bits, why = (53, "float64 holds as a number") if axis in numbers else (62, "64-bit integers are added up to")
        size = sizes.get(axis.name, 0)
        if first + size > 2**bits:
            raise InputError(
                f"{caller}: start={{{axis}: {first}}} and {size} elements reach beyond place 2**{bits} - 1, the last "
                f"that {why}. Begin earlier, and add what is left out to the results."
            )


def dtype_name(dtype: Any) -> str:
    """The name of a dtype, given by name or as torch's or NumPy's own.

    >>> dtype_name("bf16")
    'bfloat16'
    """
    if isinstance(dtype, str):
        name = dtype.removeprefix("torch.")
        return ALIASES.get(name, name)
    torch, numpy = imported_torch(), sys.modules.get("numpy")
    if torch is not None and isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    if numpy is not None and (
        isinstance(dtype, numpy.dtype) or (isinstance(dtype, type) and issubclass(dtype, numpy.generic))
    ):
        return str(numpy.dtype(dtype).name)
    raise InputError(f'dtypes: {dtype!r} is no dtype. Give a name such as "float16", or one of torch or NumPy.')


def named_dtypes(cascade: Cascade, dtypes: Any, tensors: Collection[str] = (), caller: str = "") -> dict[str, str]:
    """Dtypes by tensor name; one for all is that of the tensors that stand in arithmetic, the others index (int64).

    Raises:
        InputError: one is none, or is that of a tensor which is not among `tensors`, if these are given.
    """
    if isinstance(dtypes, Mapping):
        named = {_tensor_name(key): dtype_name(one) for key, one in dtypes.items()}
        outputs = {output.name for output in cascade.outputs}  # a launch may round them otherwise than its tensors
        check_tensor_names((name for name in named if name not in outputs), tensors, caller, "dtypes")
        return named
    dtype, floats = dtype_name(dtypes), cascade.value_tensors()
    return {name: dtype if name in floats else "int64" for name in cascade.inputs()}


def check_tensor_names(given: Iterable[str], tensors: Collection[str], caller: str, option: str) -> None:
    """Refuse the name of a tensor that is none of the function's; none are known if no names are given.

    >>> check_tensor_names(["X"], ["x", "w"], "source", "shapes")
    Traceback (most recent call last):
    redalg.errors.InputError: source: shapes={'X': …}: the function has no tensor `X`. Did you mean x? It has x, w.
    """
    unknown = [name for name in given if name not in tensors] if tensors else []
    if unknown:
        where = f"{caller}: " if caller else ""
        raise InputError(f"{where}{option}={{{unknown[0]!r}: …}}: the function has no tensor `{unknown[0]}`."
                         f"{did_you_mean(unknown[0], tensors)} It has {', '.join(tensors)}.")  # fmt: skip


def missing_dtypes_error(names: Sequence[str]) -> InputError:
    """The error about tensors whose dtypes are not given."""
    return InputError(f'the dtypes of tensors {", ".join(names)} are missing. Pass dtypes={{"{names[0]}": …}}.')


def _tensor_name(key: Any, option: str = "dtypes") -> str:
    name = key.name if isinstance(key, Element) else key.label.name if isinstance(key, Tensor) else key
    if not isinstance(name, str):
        raise InputError(f"{option}={{{key!r}: …}}: {key!r} is no tensor. Give tensors, or their names.")
    return name


def _axes_that_vary(cascade: Cascade, varying: Any, caller: str) -> tuple[str, ...]:
    """The names of the axes whose size is a run-time one; a text is the name of one, or a letter for each."""
    axes, alone = cascade.axes(), isinstance(varying, Axis) or not isinstance(varying, Collection)
    if isinstance(varying, str):
        alone = cascade.find_axis(varying, axes) is not None
    found = [cascade.find_axis(key, axes) for key in ([varying] if alone else varying)]
    if None in found:
        raise InputError(
            f"{caller}: varying={varying!r} should name axes whose size is a run-time one, as in varying="
            f'["{cascade.axis}"]. The axes are {", ".join(map(str, cascade.axes()))}.'
        )
    return tuple(axis.name for axis in found if axis is not None)


def known_options(
    options: Mapping[str, Any], cascade: Cascade, caller: str, tensors: Collection[str] = ()
) -> dict[str, Any]:
    """The options, each of which must be known; names of `varying` and `shapes` may be given as axes and tensors.

    `tensors` are the names that `shapes` may have, those of earlier passes among them.
    """
    names = OPTIONS[caller]
    if unknown := {name: value for name, value in options.items() if name not in names}:
        takes = (*names, "sizes", "dtypes", CARDS_BY[caller])
        needs = ["…"] if caller in ("lower", "save", "compile") else []
        advice = Spelling(caller, takes, [axis.name for axis in cascade.axes()], needs=needs).advice(unknown)
        raise InputError(
            f"{caller}: there is no option `{next(iter(unknown))}`.{' ' * bool(advice)}{advice} The options are "
            f"{', '.join(names)}; tiles and threads are fields of a plan."
        )
    plain = dict(options)
    if "varying" in plain:
        plain["varying"] = _axes_that_vary(cascade, plain["varying"], caller)
    if plain.get("shapes") is not None:
        plain["shapes"] = named_shapes(cascade, plain["shapes"], caller, tensors)
    return plain


def named_shapes(
    cascade: Cascade, shapes: Any, caller: str = "", tensors: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
    """The shapes of tensors by name, each of as many whole numbers as the tensor has dimensions.

    Raises:
        InputError: one is none, or is that of a tensor which is not among `tensors`, if these are given.
    """
    where = f"{caller}: " if caller else ""
    ranks = {one.name: len(one.indices) for one in cascade.elements()}
    example = f'shapes={{"{next(iter(ranks), "x")}": (64, 4096)}}'
    if not isinstance(shapes, Mapping):
        raise InputError(f"{where}shapes={short_text(shapes)} gives no tensor a shape. Write `{example}`.")
    by_name = dict[str, tuple[int, ...]]()
    for key, shape in shapes.items():
        name = _tensor_name(key, "shapes")
        several = isinstance(shape, Collection) and not isinstance(shape, str)
        numbers = [*map(python_integer, shape)] if several else []
        rank = ranks.get(name, len(numbers))
        if len(numbers) != rank or not all(isinstance(one, int) and one >= 0 for one in numbers) or not several:
            raise InputError(f"{where}shapes={{{name!r}: {short_text(shape)}}}: tensor `{name}` has {rank} "
                             f"dimensions. Give a whole number for each, as in `shapes={{{name!r}: {(64,) * rank}}}`."
                             )  # fmt: skip
        by_name[name] = tuple(numbers)
    check_tensor_names(by_name, tensors, caller, "shapes")
    return by_name
