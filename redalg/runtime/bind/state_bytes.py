"""States as bytes: a header that says what they are, in JSON, and the buffer of their slots. Nothing in them is code.

    redalg state | newline | length of the header, 8 bytes | header | spaces | buffer

Integers are little-endian. The buffer begins at a multiple of 16 bytes, and lies as `packing` says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.portable import compact_json
from redalg.incremental.form import Slot
from redalg.optional import need_packages
from redalg.runtime.bind.inputs import library_name
from redalg.runtime.bind.packing import ALIGNMENT, Packed, Packing

MARK = b"redalg state\n"
LENGTH_BYTES = 8
DTYPES_OF_SLOTS = ("float32", "float64", "int64")
LIBRARIES = ("numpy", "torch")
ANEW = "Pass the whole of what `State.to_bytes` or `State.state_dict` gave."
Fields = dict[str, Any]
"""The fields of a state, by name."""


def write_header(fields: Fields, packing: Packing) -> str:
    """The header of a state: its fields but for the arrays, whose dtypes and shapes stand beside their slots."""
    slots = [
        {"name": slot.name, "kind": slot.kind, "axes": [[axis.name, axis.size] for axis in slot.axes],
         "dtype": packing.dtypes[slot.name], "shape": packing.shapes[slot.name]}
        for slot in fields["layout"]
    ]  # fmt: skip
    plain = {name: fields[name] for name in ("result", "library", "form", "meaning", "version", "places")}
    named = {name: dict(fields[name]) for name in ("sizes", "starts")}
    scalars = {name: float(value).hex() for name, value in fields["scalars"].items()}
    return compact_json({**plain, **named, "scalars": scalars, "slots": slots})


def to_bytes(header: str, buffer: Any) -> bytes:
    """The bytes of a header and of a buffer of NumPy or torch, on any device.

    Raises:
        InputError: this machine is big-endian.
    """
    if sys.byteorder != "little":
        raise InputError("to_bytes: states travel between little-endian machines alone, and this one is big-endian.")
    numbers = buffer if library_name(buffer) == "numpy" else buffer.cpu().numpy()
    text = header.encode()
    text += b" " * (-(len(MARK) + LENGTH_BYTES + len(text)) % ALIGNMENT)
    return MARK + len(text).to_bytes(LENGTH_BYTES, "little") + text + numbers.tobytes()


def split_bytes(data: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """The header and the buffer that bytes hold.

    Raises:
        InputError: they are no bytes of a state.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError(f"from_bytes: the state should be bytes, not a {type(data).__name__}. {ANEW}")
    data = bytes(data)
    first = len(MARK) + LENGTH_BYTES
    if not data.startswith(MARK):
        raise InputError(f"from_bytes: the bytes begin with {data[: len(MARK)]!r}, those of a state with {MARK!r}. "
                         f"{ANEW}")  # fmt: skip
    length = int.from_bytes(data[len(MARK) : first], "little")
    if len(data) < first + length:
        raise InputError(f"from_bytes: the header should have {length} bytes; {max(0, len(data) - first)} are there. "
                         f"{ANEW}")  # fmt: skip
    try:
        header = data[first : first + length].decode()
    except UnicodeDecodeError as error:
        raise InputError(f"from_bytes: the header is no text ({error}). {ANEW}") from None
    return header, np.frombuffer(data, np.uint8, offset=first + length)


def read_state(header: str, buffer: Any, library: str | None, device: str, caller: str) -> Fields:
    """The fields of a state of a header and of a buffer of bytes, with arrays of a library and on a device.

    Raises:
        InputError: the header is none of this format, or the buffer does not fit it.
    """
    import json

    try:
        found = json.loads(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{caller}: the header is no JSON ({type(error).__name__}: {error}). {ANEW}") from None
    fields = _fields(found, caller)
    fields["library"] = library or fields["library"]
    if fields["library"] not in LIBRARIES:
        raise InputError(f'{caller}: library={library!r} is not an option. Use "numpy" or "torch".')
    packing = fields.pop("packing")
    if tuple(buffer.shape) != (packing.nbytes,) or str(buffer.dtype).removeprefix("torch.") != "uint8":
        raise InputError(f"{caller}: the slots take {packing.nbytes} bytes; the buffer has shape {tuple(buffer.shape)} "
                         f"and dtype {buffer.dtype}. {ANEW}")  # fmt: skip
    slots = Packed(in_library(buffer, fields["library"], device), packing)
    return {**fields, "slots": slots, "device": device if fields["library"] == "torch" else "cpu"}


def in_library(buffer: Any, library: str, device: str) -> Any:
    """A copy of a buffer in a library, on a device."""
    if library == "numpy":
        return np.array(buffer if library_name(buffer) == "numpy" else buffer.cpu().numpy())
    need_packages("a state in torch", "redalg[torch]", "torch")
    import torch

    numbers = torch.from_numpy(np.array(buffer)) if library_name(buffer) == "numpy" else buffer.clone()
    return numbers.to(device)


# ---- what a header may hold ------------------------------------------------------------------------------------------


def _fields(found: Any, caller: str) -> Fields:
    """The fields that a header holds, each of its kind, and the packing of the slots."""
    if not isinstance(found, Mapping):
        raise InputError(f"{caller}: the header should be an object of JSON; it is {str(found)[:40]}. {ANEW}")

    def field(name: str, kind: str, read: Callable[[Any], Any]) -> Any:
        if name not in found:
            raise InputError(f"{caller}: the header has no `{name}`. {ANEW}")
        try:
            return read(found[name])
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            raise InputError(f"{caller}: `{name}` of the header should be {kind}; it is {str(found[name])[:60]}. "
                             f"{ANEW}") from None  # fmt: skip

    slots = field("slots", "a list of slots with name, kind, axes, dtype and shape", lambda one: [*map(_slot, one)])
    packing = Packing({slot.name: dtype for slot, dtype, _ in slots}, {slot.name: shape for slot, _, shape in slots})
    if len(packing.dtypes) != len(slots):
        raise InputError(f"{caller}: two slots of the header have one name. {ANEW}")
    return {
        "layout": tuple(slot for slot, _, _ in slots),
        "packing": packing,
        **{name: field(name, "a text", _text) for name in ("result", "library", "form")},
        "version": field("version", "an integer", _integer),
        "meaning": field("meaning", "a list of texts", lambda one: tuple(map(_text, _list(one)))),
        "scalars": field("scalars", "numbers by name, in hexadecimal", lambda one: _by_name(one, float.fromhex)),
        "sizes": field("sizes", "integers by name", lambda one: _by_name(one, _size)),
        "starts": field("starts", "integers by name", lambda one: _by_name(one, _integer)),
        "places": field("places", "null, or boxes of pairs of integers", _boxes),
    }


def _slot(found: Any) -> tuple[Slot, str, tuple[int, ...]]:
    axes = tuple(Axis(_name(name), None if size is None else _size(size)) for name, size in _list(found["axes"]))
    dtype, shape = found["dtype"], tuple(map(_size, _list(found["shape"])))
    if dtype not in DTYPES_OF_SLOTS or len(shape) != len(axes):
        raise ValueError
    return Slot(_name(found["name"]), _text(found["kind"]), axes), dtype, shape


def _boxes(found: Any) -> tuple[tuple[tuple[int, int], ...], ...] | None:
    if found is None:
        return None
    return tuple(tuple(_pair(edge) for edge in _list(box)) for box in _list(found))


def _pair(found: Any) -> tuple[int, int]:
    first, stop = map(_integer, _list(found))
    return first, stop


def _by_name(found: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    return {_name(name): read(value) for name, value in found.items()}


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError
    return found


def _name(found: Any) -> str:
    if not _text(found).isidentifier():
        raise ValueError
    return str(found)


def _integer(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError
    return found


def _size(found: Any) -> int:
    if _integer(found) < 0:
        raise ValueError
    return int(found)
