"""The header of a rank: one message of fixed size, by which ranks agree on a call before any sends its state.

    message   := magic  length  elements  text  rows    4096 bytes: 8, 4, 8 (little-endian integers), JSON, zeros, 8
    elements  := of the axis that is split, in this rank's shard
    rows      := of the rows that are split, in this rank's shard
    text      := what must be the same on every rank; and the reason, if a rank cannot take part

Its size is the same in every version, so that ranks of two versions read each other's and fail with an error that says
so. All ranks read the same headers, and so all raise or none does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from struct import pack, unpack_from
from typing import Any, final

from redalg.errors import InputError
from redalg.runtime.known.naming import text_digest

HEADER_BYTES = 4096
MAGIC = b"redalg-h"
TEXT_START = len(MAGIC) + 12
TEXT_STOP = HEADER_BYTES - 8
FORMAT = 6
"""Version of headers and messages."""
MOST_WORDS = 1500
"""Characters of a reason, and of a form's meaning."""
ADVICE = {
    "format": "Install one version of redalg on all ranks.",
    "state_format": "Install one version of redalg on all ranks.",
    "form": "Call the function of one expression on all ranks, in one order of calls.",
    "axis": "Split one axis on all ranks.",
    "rows_axis": "Split the same rows on all ranks, or none.",
    "layout": "Pass one `zigzag=` on all ranks.",
    "device": "Pass tensors on devices of one kind.",
    "whole": "Pass a DTensor of one shape on all ranks, or plain tensors, which may have any lengths.",
    "sizes": "A shard may differ in length along the axis that is split; everything else is whole on every rank.",
    "starts": "Pass pieces of the same rows on all ranks of the group.",
    "dtypes": "Convert the tensors to one dtype on all ranks.",
    "scalars": "Pass the same numbers on all ranks.",
    "empty": "Pass one `empty=` on all ranks.",
    "deterministic": "Pass one `deterministic=` on all ranks.",
    "sharded": "Pass one `sharded=` on all ranks.",
    "groups": "Pass `by=` with one `groups=` on all ranks, or on none.",
    "exchange": "Pass one `exchange=` to `distributed` on all ranks.",
}
WORDS = {
    "format": "format of messages",
    "state_format": "format of states",
    "form": "form",
    "axis": "axis that is split",
    "rows_axis": "axis of rows that are split",
    "layout": "order of shards",
    "device": "kind of device",
    "whole": "length of the whole, as DTensors tell it",
    "sizes": "size of axis {}",
    "starts": "first place of axis {}",
    "dtypes": "dtype of tensor {}",
    "scalars": "scalar {}",
    "empty": "option `empty`",
    "deterministic": "option `deterministic`",
    "sharded": "axis along which outputs are split",
    "groups": "number of groups",
    "exchange": "option `exchange`",
}
"""How a field is called, in the order in which fields are compared; `{}` is the name in a field that has several."""


@final
@dataclass(frozen=True)
class Header:
    """The terms of a call, as a rank states them.

    Attributes:
        elements, rows: of the axis that is split, and of the rows if those are split too, in this rank's shard.
        rows_axis, layout: the axis of rows that are split, and the order in which shards lie; empty if none are.
        form, meaning: of the states, as in `State`.
        target: of this rank's device; ranks may have several, and choose by that of the first.
        groups: their number, of a call by group; 0 of any other.
        sharded: the free axis along which ranks keep their slices of outputs; empty if all have whole ones.
        whole: the lengths of split axes that DTensors tell; empty of plain tensors, which tell none.
        exchange: the option; empty if it was left out.
        card, reach: this rank's GPU, and those whose memory it reads, with spaces between; ranks have several.
        obstacle: why others cannot read this rank's memory; empty if they may.
        error: why this rank cannot take part; empty if it can.
    """

    error: str = ""
    elements: int = 0
    rows: int = 0
    state_format: int = 0
    form: str = ""
    meaning: str = ""
    axis: str = ""
    rows_axis: str = ""
    layout: str = ""
    device: str = ""
    target: str = ""
    empty: str = ""
    deterministic: int = 0
    groups: int = 0
    sharded: str = ""
    whole: str = ""
    exchange: str = ""
    card: str = ""
    reach: str = ""
    obstacle: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    scalars: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """The header as a message. What is too long for it is told by a digest."""
        fields = asdict(self) | {"meaning": self.meaning[:MOST_WORDS], "error": self.error[:MOST_WORDS]}
        elements, rows = fields.pop("elements"), fields.pop("rows")  # which may be others on every rank
        text = json.dumps(fields).encode()
        for name in ("meaning", "dtypes", "sizes", "scalars", "starts", "error"):
            if len(text) > TEXT_STOP - TEXT_START:
                shorter = fields[name][:100] if isinstance(fields[name], str) else values_digest(fields[name])
                fields[name] = shorter
                text = json.dumps(fields).encode()
        return (MAGIC + pack("<Iq", len(text), elements) + text).ljust(TEXT_STOP, b"\0") + pack("<q", rows)

    @classmethod
    def of_bytes(cls, message: bytes) -> Header:
        """The header of a message; of one that is none, a header that says so."""
        if message[: len(MAGIC)] != MAGIC:
            return cls("it sent something that is no header of redalg: its call is another one")
        length, elements = unpack_from("<Iq", message, len(MAGIC))
        [rows] = unpack_from("<q", message, TEXT_STOP)
        fields = json.loads(message[TEXT_START : TEXT_START + length]) | {"elements": elements, "rows": rows}
        known = {name: value for name, value in fields.items() if name in cls.__dataclass_fields__}
        return cls(**known)


def values_digest(fields: Mapping[str, Any]) -> dict[str, str]:
    """The digest of several values, in the place of them."""
    return {"(digest)": text_digest(json.dumps(fields, sort_keys=True))[:16]}


def check_headers(headers: Sequence[Header], names: Sequence[int]) -> None:
    """Raise `InputError` if a rank cannot take part, or if ranks differ. `names` are the numbers that errors give them.

    Every rank raises the same error.
    """
    formats = {name: one.format for name, one in zip(names, headers, strict=True)}
    if len(set(formats.values())) > 1:
        raise InputError(difference_message("format", "", formats))
    failed = {name: one.error for name, one in zip(names, headers, strict=True) if one.error}
    if failed:
        raise InputError(failure_message(failed))
    for of in WORDS:
        values = [getattr(one, of) for one in headers]
        keys = sorted({key for value in values for key in value}) if isinstance(values[0], Mapping) else [""]
        for key in keys:
            found = [value.get(key) if key else value for value in values]
            if len(set(found)) > 1:
                shown = [f"{one.form} ({one.meaning})" for one in headers] if of == "form" else found
                raise InputError(difference_message(of, key, dict(zip(names, shown, strict=True))))


def failure_message(failed: Mapping[int, str]) -> str:
    """The message if ranks cannot take part: which, and why."""
    reasons = "; ".join(f"rank {name}: {reason}" for name, reason in failed.items())
    return f"distributed: {ranks_in_words(list(failed))} made no state of its shard, so no rank has a result. {reasons}"


def difference_message(of: str, key: str, by_rank: Mapping[int, Any]) -> str:
    """The message if ranks differ in a field: the values, with the ranks of each."""
    groups = dict[Any, list[int]]()
    for name, value in by_rank.items():
        groups.setdefault(value, []).append(name)
    values = "; ".join(f"{'missing' if value is None else 'none' if value == '' else value} on {ranks_in_words(names)}"
                       for value, names in groups.items())  # fmt: skip
    return f"distributed: the ranks differ in the {WORDS[of].format(key)}: {values}. {ADVICE[of]}"


def ranks_in_words(names: Sequence[int]) -> str:
    """Ranks as a text has them.

    >>> ranks_in_words([0, 2, 3])
    'ranks 0, 2 and 3'
    """
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(map(str, names[:-1]))} and {names[-1]}"
