"""Binding: the tensors of a call against the names, ranks, sizes and dtypes that the expression needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sympy import Expr

from redalg.decompose import Cascade
from redalg.errors import InputError
from redalg.expression import Axis, Element, Where

FLOATS = ("float64", "float32", "float16", "bfloat16")
WIDTH = {"float64": 3, "float32": 2, "bfloat16": 1, "float16": 1}


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
        compute: dtype of arithmetic: float64 where an input has it, else float32.
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


def library_of(array: Any) -> str | None:
    """`numpy`, `torch`, or None for neither (without importing torch)."""
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    return "torch" if type(array).__module__.split(".")[0] == "torch" and hasattr(array, "requires_grad") else None


def dtype_name(array: Any) -> str:
    """The dtype as redalg names it, `float32`, `bool`, `int64` …"""
    return str(array.dtype).removeprefix("torch.")


def bind(cascade: Cascade, given: Mapping[str, Any], extents: Mapping[str, int] | None = None,
         chunked: bool = False) -> Bound:  # fmt: skip
    """Check the inputs of a call. `extents` gives axes that no tensor carries; `chunked` allows a part of the axis."""
    tensors, scalars = _named(cascade, given)
    libraries = {name: _library(name, array) for name, array in tensors.items()}
    if len(set(libraries.values())) > 1:
        raise InputError(
            f"the tensors come from two libraries: {_list(libraries)}. Pass all of them as torch tensors, or all as "
            "NumPy arrays."
        )
    library = next(iter(libraries.values()), "numpy")
    devices = {name: str(array.device) if library == "torch" else "cpu" for name, array in tensors.items()}
    if len(set(devices.values())) > 1:
        raise InputError(f"the tensors lie on several devices: {_list(devices)}. Move them to one with `.to(device)`.")
    for name, array in tensors.items():
        if getattr(array, "requires_grad", False):
            raise InputError(f"tensor `{name}` requires a gradient, and redalg has no backward pass yet. Pass "
                             f"`{name}.detach()` if no gradient is needed; nothing is detached silently.")  # fmt: skip
    dtypes = {name: dtype_name(array) for name, array in tensors.items()}
    _check_dtypes(cascade, dtypes)
    sizes = _sizes(cascade, tensors, extents or {}, chunked)
    compute, result = promoted([dtype for dtype in dtypes.values() if dtype in FLOATS])
    return Bound(tensors, scalars, sizes, dtypes, library, next(iter(devices.values()), "cpu"), compute, result)


def promoted(floats: list[str]) -> tuple[str, str]:
    """(compute dtype, output dtype) by torch's promotion: two different 16-bit types meet in float32."""
    if not floats:
        return "float32", "float32"
    widest = max(floats, key=lambda dtype: WIDTH[dtype])
    if WIDTH[widest] == 1 and len(set(floats)) > 1:
        widest = "float32"
    return ("float64" if widest == "float64" else "float32"), widest


def _named(cascade: Cascade, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    wanted, scalars = cascade.inputs(), tuple(one.name for one in cascade.scalars())
    unknown = [name for name in given if name not in wanted and name not in scalars]
    missing = [name for name in (*wanted, *scalars) if name not in given]
    if unknown or missing:
        said = [f"unknown: {', '.join(unknown)}"] * bool(unknown) + [f"missing: {', '.join(missing)}"] * bool(missing)
        needs = ", ".join(_signature(cascade, name) for name in wanted) + "".join(
            f", scalar {name}" for name in scalars
        )
        raise InputError(f"the call's tensors do not fit the expression ({'; '.join(said)}). It needs {needs}.")
    return {name: given[name] for name in wanted}, {name: _number(name, given[name]) for name in scalars}


def _signature(cascade: Cascade, name: str) -> str:
    return str(next(one for one in cascade.elements() if one.name == name))


def _number(name: str, value: Any) -> float:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"scalar `{name}` must be a number, not {type(value).__name__}. Pass a Python float.")
    return float(value)


def _library(name: str, array: Any) -> str:
    found = library_of(array)
    if found is None:
        raise InputError(f"tensor `{name}` is a {type(array).__name__}. Pass a torch tensor or a NumPy array.")
    return found


def _list(items: Mapping[str, str]) -> str:
    return ", ".join(f"{name} on {what}" if what.startswith(("cpu", "cuda")) else f"{name} ({what})"
                     for name, what in items.items())  # fmt: skip


def _check_dtypes(cascade: Cascade, dtypes: Mapping[str, str]) -> None:
    as_value = value_tensors(cascade)
    for name, dtype in dtypes.items():
        if dtype.startswith("complex"):
            raise InputError(f"tensor `{name}` is {dtype}: reductions here are over extended reals. Pass its real and "
                             "imaginary parts as two tensors.")  # fmt: skip
        if dtype not in FLOATS and name in as_value:
            raise InputError(f"tensor `{name}` is {dtype}, and stands in arithmetic, where floating point is needed. "
                             f"Pass it as float32, for instance `{name}.float()`.")  # fmt: skip


def value_tensors(cascade: Cascade) -> set[str]:
    """Tensors that stand in arithmetic, not only in conditions and indices."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, Element):
            found.add(node.name)
            return
        for arg in node.args[1:] if isinstance(node, Where) else node.args:
            visit(arg)

    for expr in cascade.expressions():
        if isinstance(expr, Expr):
            visit(expr)
    return found


def _sizes(cascade: Cascade, tensors: Mapping[str, Any], extents: Mapping[str, int], chunked: bool) -> dict[str, int]:
    seen: dict[str, dict[str, int]] = {}
    for element in cascade.elements():
        shape = tuple(tensors[element.name].shape)
        if len(shape) != len(element.indices):
            raise InputError(f"tensor `{element.name}` has {len(shape)} dimensions {shape}, but `{element}` needs "
                             f"{len(element.indices)}.")  # fmt: skip
        for place, index in enumerate(element.indices):
            if isinstance(index, Axis):
                seen.setdefault(index.name, {})[f"{element.name} (dimension {place})"] = shape[place]
    sizes = {}
    for axis in cascade.axes():
        known = seen.get(axis.name, {})
        if axis.size is not None and axis.name not in known:
            known = {"its declaration": axis.size}
        elif axis.size is not None:
            known = {**known, "its declaration": axis.size}
        if len(set(known.values())) > 1 and not (chunked and axis == cascade.axis and axis.size is not None):
            said = ", ".join(f"{size} in {where}" for where, size in known.items())
            raise InputError(f"axis {axis.name} has several sizes: {said}. Every tensor must agree on it.")
        if not known and axis.name not in extents:
            raise InputError(
                f'axis {axis.name} has no size: no tensor has it as an index. Pass sizes={{"{axis.name}": …}}, or give '
                "the axis a size."
            )
        sizes[axis.name] = next(iter(known.values())) if known else extents[axis.name]
    for name in cascade.extents():
        if name not in sizes:
            sizes[name] = _extent(name, seen, extents)
    return sizes


def _extent(name: str, seen: Mapping[str, Mapping[str, int]], extents: Mapping[str, int]) -> int:
    if name in seen:
        return next(iter(seen[name].values()))
    if name not in extents:
        raise InputError(f'the extent of axis {name} is used, but no tensor has the axis. Pass sizes={{"{name}": …}}.')
    return extents[name]
