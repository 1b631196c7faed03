"""Bind a call: check its tensors against the names, ranks, sizes and dtypes that the expression needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite
from typing import Any, final

import numpy as np

from redalg.decompose.cascade import Cascade
from redalg.decompose.parse.written import OPTIONS, unread_inputs
from redalg.errors import GradientError, InputError
from redalg.expression import Axis, Scalar
from redalg.expression.dtypes import DTYPES, floats, is_eight_bits, is_float
from redalg.expression.spelling import did_you_mean
from redalg.incremental.remembered import Remembered
from redalg.runtime.bind.frameworks import imported_torch

UNSIGNED = ("uint16", "uint32", "uint64")
"""Integers that torch stores and does not compute with."""


@final
@dataclass(frozen=True)
class Bound:
    """The inputs of one call, checked.

    Attributes:
        tensors: name -> array, all of one library, on one device.
        scalars: name -> number.
        sizes: axis name -> extent.
        dtypes: tensor name -> dtype's name.
        library: `numpy` or `torch`.
        device: `cpu`, `cuda:0` and so on.
        compute: dtype of arithmetic: float64 if an input has it, else float32.
        result: dtype of outputs, torch's promotion of the inputs'.
    """

    tensors: Mapping[str, Any]
    scalars: Mapping[str, float]
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    library: str
    device: str
    compute: str
    result: str


CHOICES = {"empty": ("nan", "zero"), "precision": ("ieee", "tf32", "wide")}
"""Options of a call that name one of a few things."""


def check_choice(option: str, value: Any, where: str = "") -> None:
    """Refuse a value that an option does not have; `where` names the method, as in `"finish: "`."""
    choices = CHOICES[option]
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{where}{option}={value!r} is not an option. Use one of {', '.join(map(repr, choices))}.")


def check_memory(value: Any, where: str = "") -> None:
    """Refuse a memory limit that is no number of bytes; `where` names the method."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InputError(f"{where}memory={value!r} is no number of bytes. Pass an int such as 2**28, or leave it out.")


def library_name(array: Any) -> str | None:
    """`numpy`, `torch`, or None for neither (without importing torch)."""
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    return "torch" if type(array).__module__.split(".")[0] == "torch" and hasattr(array, "requires_grad") else None


def by_name(fused: Any, positional: Sequence[Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a call by name, those given by position too, in the order of the function's `inputs`."""
    names = fused.inputs
    if len(positional) > len(names):
        own = list(unread_inputs(fused.written, []))  # of no cascade: all that was written
        order = f"({own[0]},)" if len(own) == 1 else f"({', '.join(own)})"
        number = f"at most {len(names)}" if names else f"none, since `fuse` was given no inputs={order}"
        given = "1 positional tensor" if len(positional) == 1 else f"{len(positional)} positional tensors"
        raise InputError(f"the call has {given}; it may have {number}. Pass them by keyword, as in `fused(x=…)`.")
    by_position = dict(zip(names, positional, strict=False))
    if twice := [name for name in by_position if name in tensors]:
        raise InputError(f"tensor `{twice[0]}` is given by position and by keyword. Give it once.")
    return {**by_position, **tensors}


def is_recorded(inputs: Mapping[str, Any]) -> bool:
    """Tell if PyTorch records a call on these tensors, or transforms it (`torch.func`)."""
    torch = imported_torch()
    if torch is None:
        return False
    from redalg.runtime.bind.private import is_eager, is_transforming

    if not is_eager():
        if is_transforming():
            return True
        if may_have_tangents():
            return any(has_tangent(one) or getattr(one, "requires_grad", False) for one in inputs.values())
    if not torch.is_grad_enabled():
        return False
    return True in [getattr(one, "requires_grad", False) for one in inputs.values()]


def refuse_scalar_gradients(scalars: Iterable[Scalar], inputs: Mapping[str, Any]) -> None:
    """Refuse run-time scalars that require a gradient, where PyTorch records one."""
    torch = imported_torch()
    if torch is not None and torch.is_grad_enabled():
        refuse_derivatives(one.name for one in scalars if getattr(inputs.get(one.name), "requires_grad", False))


def refuse_derivatives(scalars: Iterable[str]) -> None:
    """Refuse derivatives by run-time scalars, which are numbers to a form."""
    if names := sorted(set(scalars)):
        raise GradientError(words_on_scalars(names))


def words_on_scalars(names: Sequence[str]) -> str:
    """The refusal of derivatives by run-time scalars."""
    return (f"redalg has derivatives by tensors alone, not by the run-time scalar `{'`, `'.join(names)}`. "
            f"Write it as a tensor without axes, `ra.tensor(\"{names[0]}[]\")`, or pass `{names[0]}.detach()` if no "
            "derivative by it is needed.")  # fmt: skip


def may_have_tangents() -> bool:
    """Tell if PyTorch computes tangents: within a level of forward mode, but for the insides of recorded calls."""
    if imported_torch() is None:
        return False
    from redalg.runtime.bind.private import computes_tangents, is_in_forward_mode

    return is_in_forward_mode() and computes_tangents()


def has_tangent(array: Any) -> bool:
    """Tell if an array is a tensor of PyTorch with a tangent, within a level of forward mode."""
    forward_ad = sys.modules["torch"].autograd.forward_ad
    return hasattr(array, "requires_grad") and forward_ad.unpack_dual(array).tangent is not None


def without_gradients(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tensors of a call; if torch records no gradients, those that require one are detached.

    Under `torch.no_grad` and `torch.inference_mode` a parameter is a tensor like any other. A tangent is not lost: no
    tensor is detached where they may be.
    """
    torch = imported_torch()
    if torch is None or torch.is_grad_enabled() or may_have_tangents():
        return inputs
    return {name: one.detach() if getattr(one, "requires_grad", False) else one for name, one in inputs.items()}


def native(array: Any) -> Any:
    """Arrays as array libraries and kernels read them: no NumPy scalars, the machine's byte order, int64 for uint64."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return as_signed(array) if str(getattr(array, "dtype", "")).removeprefix("torch.") in UNSIGNED else array


def as_signed(array: Any) -> Any:
    """Unsigned integers as int64: no array library computes with both, and places are int64."""
    signed = array.astype(np.int64) if isinstance(array, np.ndarray | np.generic) else array.long()
    if bool((signed < 0).any()):
        raise InputError("an unsigned integer beyond 2**63 - 1 is given, and places are 64-bit signed integers. Pass "
                         "smaller ones.")  # fmt: skip
    return signed


def array_dtype(array: Any) -> str:
    """The dtype as redalg names it, `float32`, `bool`, `int64` …"""
    return _name_of_dtype(array.dtype)


@cache
def _name_of_dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def bind(cascade: Cascade, inputs: Mapping[str, Any], extents: Mapping[str, int] | None = None,
         chunked: bool = False) -> Bound:  # fmt: skip
    """Check the inputs of a call. `extents` gives axes that no tensor carries; `chunked` allows a part of the axis."""
    tensors, scalars = _select_inputs(cascade, inputs)
    tensors = {name: native(array) for name, array in tensors.items()}
    libraries = {name: _library(name, array) for name, array in tensors.items()}
    if len(set(libraries.values())) > 1:
        raise InputError(
            f"the tensors come from two libraries: {_list(libraries)}. Pass all of them as torch tensors, or all as "
            "NumPy arrays."
        )
    library = next(iter(libraries.values()), "numpy")
    devices = {name: str(array.device) if library == "torch" else "cpu" for name, array in tensors.items()}
    if len(set(devices.values())) > 1:
        where = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise InputError(f"the tensors lie on several devices: {where}. Move them to one with `.to(device)`.")
    for name, array in tensors.items():
        _check_array(name, array)
    dtypes = {name: array_dtype(array) for name, array in tensors.items()}
    compute, result = promote_dtypes([dtype for dtype in dtypes.values() if is_float(dtype)])
    _check_dtypes(cascade, dtypes, library, compute)
    _check_extents(cascade, extents or {})
    sizes = _sizes(cascade, tensors, extents or {}, chunked)
    return Bound(tensors, scalars, sizes, dtypes, library, next(iter(devices.values()), "cpu"), compute, result)


def dtypes_of_floats(dtypes: Mapping[str, str]) -> dict[str, str]:
    """The dtypes of floating-point tensors, by name."""
    return {name: one for name, one in dtypes.items() if is_float(one)}


def promote_dtypes(dtypes: list[str]) -> tuple[str, str]:
    """(compute dtype, output dtype) by torch's promotion: two different 16-bit types meet in float32.

    Floats of 8 bits only store numbers: beside wider ones they decide nothing, and alone they meet in float32.
    """
    wide = [dtype for dtype in dtypes if not is_eight_bits(dtype)]
    if not wide:
        return "float32", "float32"
    widest = max(wide, key=lambda dtype: DTYPES[dtype].bytes)
    if DTYPES[widest].bytes == 2 and len(set(wide)) > 1:
        widest = "float32"
    return ("float64" if widest == "float64" else "float32"), widest


def _select_inputs(cascade: Cascade, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    signatures = _SIGNATURES(cascade)
    refuse_scalar_gradients(cascade.scalars(), inputs)
    check_call_names(signatures, [one.name for one in cascade.scalars()], inputs, cascade.axes)
    return {name: inputs[name] for name in signatures}, {
        scalar.name: scalar_of(scalar, inputs[scalar.name]) for scalar in cascade.scalars()
    }


def _option_meant(name: str, axes: Collection[str]) -> str:
    """The advice for a name that is no tensor's: an axis, or what reads like an option of a call."""
    if name in axes:
        return f'`{name}` is an axis, whose size is that of its tensors; if none has it, write sizes={{"{name}": …}}.'
    if name in ("device", "dtype", "out", "dim", "axis"):
        return f"A call has no option `{name}`: it runs where its tensors lie, in their dtypes, over the axes written."
    near = did_you_mean(name, OPTIONS)
    return f"`{name}` is no option of a call.{near}" if near else ""


def check_call_names(
    tensors: Mapping[str, str], scalars: Collection[str], inputs: Mapping[str, Any],
    axes: Callable[[], Sequence[Axis]] = tuple,
) -> None:  # fmt: skip
    """Refuse a call that lacks one of the tensors (name -> how the expression writes it) or scalars, or has another."""
    unknown = [name for name in inputs if name not in tensors and name not in scalars]
    absent = [name for name in (*tensors, *scalars) if name not in inputs]
    if unknown or absent:
        problems = [f"unknown: {', '.join(unknown)}"] * bool(unknown) + [f"missing: {', '.join(absent)}"] * bool(absent)
        needs = ", ".join([*tensors.values(), *(f"scalar {name}" for name in scalars)])
        known = [axis.name for axis in axes()]
        options = " ".join(filter(None, (_option_meant(name, known) for name in unknown)))
        advice = f" {options}" if options else ""
        raise InputError(
            f"the call's tensors do not fit the expression ({'; '.join(problems)}). It needs {needs}.{advice}"
        )


def _signature(cascade: Cascade, name: str) -> str:
    return str(next(one for one in cascade.elements() if one.name == name))


_SIGNATURES: Remembered[dict[str, str]] = Remembered(
    lambda cascade: {name: _signature(cascade, name) for name in cascade.inputs()}
)


ASSUMPTIONS: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("positive", lambda value: value > 0),
    ("nonnegative", lambda value: value >= 0),
    ("negative", lambda value: value < 0),
    ("nonpositive", lambda value: value <= 0),
    ("nonzero", lambda value: value != 0),
    ("integer", lambda value: value.is_integer()),
    ("finite", isfinite),
)


@cache
def assumptions(scalar: Scalar) -> tuple[tuple[str, Callable[[float], bool]], ...]:
    """The assumptions that a scalar was declared with, each with the test that a number meets it."""
    return tuple(
        (name, holds)
        for name, holds in ASSUMPTIONS
        if getattr(scalar, f"is_{name}") or getattr(scalar, f"is_extended_{name}", False)
    )


def scalars_by_name(scalars: Iterable[Scalar], values: Any, caller: str) -> dict[str, float]:
    """The values of some of the run-time scalars, by name, each as a call takes it.

    Raises:
        InputError: no mapping, no scalar of the function, or a number that it may not be.
    """
    known = {one.name: one for one in scalars}
    if not isinstance(values, Mapping):
        raise InputError(f'{caller}: scalars={values!r} gives no scalar a value. Write scalars={{"w": 256}}.')
    named = {one.name if isinstance(one, Scalar) else one: value for one, value in values.items()}
    if unknown := [name for name in named if name not in known]:
        raise InputError(f"{caller}: the function has no run-time scalar `{unknown[0]}`."
                         f"{did_you_mean(str(unknown[0]), known)} It has {', '.join(known) or 'none'}.")  # fmt: skip
    return {name: scalar_of(known[name], value) for name, value in named.items()}


def scalar_of(scalar: Scalar, value: Any) -> float:
    """The number of a run-time scalar; it must meet the assumptions that the derivation was given."""
    number = _number(scalar.name, value)
    for name, holds in assumptions(scalar):
        if not holds(number):
            raise InputError(
                f"scalar `{scalar.name}` was declared {name}, and is {number}. The form was derived on that "
                "assumption: pass such a number, or declare the scalar without it."
            )
    return number


def _number(name: str, value: Any) -> float:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"scalar `{name}` must be a number, not {type(value).__name__}. Pass a Python float.")
    if isinstance(value, int) and abs(value) > 2**53 and int(float(value)) != value:
        raise InputError(f"scalar `{name}` is {value}, and scalars are float64, which holds integers up to 2**53. Pass "
                         "it as an integer tensor.")  # fmt: skip
    return float(value)


def _library(name: str, array: Any) -> str:
    library = library_name(array)
    if library is None:
        raise InputError(f"tensor `{name}` is a {type(array).__name__}. Pass a torch tensor or a NumPy array.")
    return library


def _list(items: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({what})" for name, what in items.items())


def _check_array(name: str, array: Any) -> None:
    """Refuse an array that would be read wrongly: gradients, sparse layouts, masked arrays."""
    if getattr(array, "requires_grad", False):
        raise InputError(f"tensor `{name}` requires a gradient, and only a call records one: states and the reference "
                         f"do not. Work under `torch.no_grad()`, or pass `{name}.detach()`, if no gradient is needed; "
                         "nothing is detached silently.")  # fmt: skip
    if may_have_tangents() and has_tangent(array):
        raise InputError(f"tensor `{name}` has a tangent (`torch.func.jvp`, `forward_ad`), and only a call has "
                         f"derivatives: states and the reference do not. Pass `unpack_dual({name}).primal` if no "
                         "tangent is needed; none is dropped silently.")  # fmt: skip
    if getattr(array, "is_nested", False):
        raise InputError(f"tensor `{name}` is nested, and redalg reads rows of one length. Pass "
                         f"`torch.nested.to_padded_tensor({name}, 0.0)`, and mask what is beyond each row's length by "
                         "`ra.where`.")  # fmt: skip
    layout = str(getattr(array, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise InputError(f"tensor `{name}` has layout {layout}, and redalg reads strided tensors. Pass "
                         f"`{name}.to_dense()`.")  # fmt: skip
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"tensor `{name}` is a NumPy masked array, whose mask redalg does not read. Pass its data and "
                         "its mask as two tensors, and use `ra.where`.")  # fmt: skip


def _check_extents(cascade: Cascade, extents: Mapping[str, int]) -> None:
    """Refuse a size given by the caller if the expression lacks its axis, or if it is no non-negative integer."""
    names = sorted({axis.name for axis in cascade.axes()} | set(cascade.extents()))
    for name, size in extents.items():
        if name not in names:
            raise InputError(f"sizes: the expression has no axis {name!r}; it has {', '.join(names)}.")
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            raise InputError(f"sizes: the size of axis {name} should be a non-negative int, not {size!r}.")


def _check_dtypes(cascade: Cascade, dtypes: Mapping[str, str], library: str, compute: str) -> None:
    as_value = cascade.value_tensors()
    for name, dtype in dtypes.items():
        if dtype.startswith("complex"):
            raise InputError(f"tensor `{name}` is {dtype}: reductions here are over extended reals. Pass its real and "
                             "imaginary parts as two tensors.")  # fmt: skip
        if not dtype.startswith(("float", "bfloat16", "int", "uint", "bool")):
            raise InputError(f"tensor `{name}` is {dtype}, which is no number. Pass booleans, integers or floats.")
        if not is_float(dtype) and name in as_value and not _casts_are_exact(dtype, compute, cascade.casts_of(name)):
            wide = dtype.endswith(("32", "64"))  # float32 has 24 bits of an integer
            method, float_dtype = ("double", "float64") if wide else ("float", "float32")
            call = f"{name}.{method}()" if library == "torch" else f'{name}.astype("{float_dtype}")'
            raise InputError(
                f"tensor `{name}` is {dtype}, and stands in arithmetic, where one of {', '.join(floats())} is needed. "
                f"Convert it, for instance `{call}`."
            )


def _casts_are_exact(dtype: str, compute: str, casts: Collection[str]) -> bool:
    """Tell if an integer of a dtype is only read rounded to floats that hold it exactly, as the arithmetic does."""
    needed = DTYPES[dtype].digits if dtype in DTYPES else inf
    return all(is_float(one) and needed <= DTYPES[one].digits for one in (compute, *casts))


def _sizes(cascade: Cascade, tensors: Mapping[str, Any], extents: Mapping[str, int], chunked: bool) -> dict[str, int]:
    by_axis: dict[str, dict[str, int]] = {}
    for element in cascade.elements():
        shape = tuple(tensors[element.name].shape)
        if len(shape) != len(element.indices):
            raise InputError(f"tensor `{element.name}` has {len(shape)} dimensions {shape}, but `{element}` needs "
                             f"{len(element.indices)}.")  # fmt: skip
        for place, index in enumerate(element.indices):
            if index.is_Integer and not 0 <= int(index) < shape[place]:
                raise InputError(
                    f"`{element}`: index {index} is out of range for dimension {place}, which has {shape[place]} "
                    "elements."
                )
            if isinstance(index, Axis):
                by_axis.setdefault(index.name, {})[f"{element.name} (dimension {place})"] = shape[place]
    sizes = {}
    for axis in cascade.axes():
        sources = by_axis.get(axis.name, {})
        if not (chunked and axis in cascade.reduced_axes and sources):  # of which the tensors hold a part
            sources = sources | ({} if axis.size is None else {"its declaration": axis.size})
            sources = sources | ({"sizes=": extents[axis.name]} if axis.name in extents else {})
        if len(set(sources.values())) > 1:
            conflict = ", ".join(f"{size} in {where}" for where, size in sources.items())
            raise InputError(f"axis {axis.name} has several sizes: {conflict}. Every tensor must agree on it.")
        if not sources and axis.name not in extents:
            raise InputError(
                f'axis {axis.name} has no size: no tensor has it as an index. Pass sizes={{"{axis.name}": …}}, or give '
                "the axis a size."
            )
        sizes[axis.name] = next(iter(sources.values())) if sources else extents[axis.name]
    for name in cascade.extents():
        if name not in sizes:
            sizes[name] = _extent(name, by_axis, extents)
    return sizes


def _extent(name: str, by_axis: Mapping[str, Mapping[str, int]], extents: Mapping[str, int]) -> int:
    if name in by_axis:
        return next(iter(by_axis[name].values()))
    if name not in extents:
        raise InputError(f'the extent of axis {name} is used, but no tensor has the axis. Pass sizes={{"{name}": …}}.')
    return extents[name]


def scalars_of(cascade: Cascade, inputs: Mapping[str, Any]) -> dict[str, float]:
    """The run-time scalars of a call, each checked against the assumptions that it was declared with."""
    return {one.name: scalar_of(one, inputs[one.name]) for one in cascade.scalars()}
