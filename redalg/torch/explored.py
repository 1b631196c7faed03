"""The calls of the groups of trained graphs, kept for other processes: they explore nothing.

{"format": "redalg calls, 1",
 "calls": [{"text": …, "reads": [name, …], "writes": [name, …], "views": {name: [size, …]}, "sizes": [size, …],
            "parts": {name: [[dimension, size], …]}, "group": {…}}, …],    a size is its place in "sizes"
 "sizes": [number of a row, …], "nodes": [row, …]}        the syntax tree of the sizes (`expression/syntax.py`)

For inference Inductor keeps graphs with their groups. Groups that are trained are put before Inductor sees the graph.
The file is `explored/<digest>.json` in the cache folder, under a digest of all on which exploration depends: the
program's text, the versions, redalg's sources, the device. Nothing in it is evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any

import torch
from sympy import Expr
from sympy.core.basic import Basic

from redalg.errors import GraphError, RedalgError
from redalg.expression import Axis
from redalg.expression.portable import compact_json
from redalg.expression.syntax import read_tree, write_tree
from redalg.gradient.operators import read_call
from redalg.graphs.fusion_plan import Group
from redalg.graphs.program import External, Statement, TensorProgram
from redalg.graphs.structure import line_of
from redalg.runtime.compile.cache import folder
from redalg.torch.decisions import environment_of, read_own_text, sources_digest, write_own_text
from redalg.torch.sizes import Hints
from redalg.torch.stitch import GroupCall

FORMAT = "redalg calls, 1"


def calls_kept(
    program: TensorProgram, device: torch.device, depends_on: Iterable[Any], hints: Hints,
    find: Callable[[], list[GroupCall]],
) -> list[GroupCall]:  # fmt: skip
    """The calls of a program's groups, as another process found them, or found now and kept.

    Args:
        program, device: the program, and the device of its tensors.
        depends_on: all else on which exploration depends.
        hints: the lengths that varying sizes have now.
        find: explores the program.
    """
    parts = (*environment_of(device), sources_digest(), *map(str, depends_on), text_of_program(program))
    path = folder() / "explored" / f"{sha256(chr(0).join(parts).encode()).hexdigest()}.json"
    text = read_own_text(path)
    calls = None if text is None else calls_of_text(text, program, hints)
    if calls is None:
        calls = find()
        write_own_text(path, text_of_calls(calls))
    return calls


def text_of_program(program: TensorProgram) -> str:
    """The text of a program on which exploration depends: numbers stand in it with all their digits."""
    inputs = (f"{name}: {each}" for name, each in program.inputs.items())
    lines = (text_of_statement(statement, program) for statement in program.statements)
    return "\n".join((*inputs, *lines, *program.outputs))


def text_of_statement(statement: Statement, program: TensorProgram) -> str:
    """The text of a statement, with the names of its tensors."""
    return str(statement) if isinstance(statement, External) else str(line_of(statement, program.types))


# ---- both ways -------------------------------------------------------------------------------------------------------


def text_of_calls(calls: Iterable[GroupCall]) -> str:
    """Calls as JSON. Symbols of sizes stand in it as axes of their names."""
    calls, sizes = [*calls], dict[Expr, int]()

    def number(size: Expr) -> int:
        return sizes.setdefault(size, len(sizes))

    written = [asdict(call) | {
        "views": {name: [*map(number, shape)] for name, shape in call.views.items()},
        "sizes": [*map(number, call.sizes)],
        "parts": {name: [[dim, number(length)] for dim, length in part] for name, part in call.parts.items()},
    } for call in calls]  # fmt: skip
    rows, numbers = write_tree(size.xreplace({one: Axis(one.name) for one in size.free_symbols}) for size in sizes)
    return compact_json({"format": FORMAT, "calls": written, "sizes": numbers, "nodes": rows})


def calls_of_text(text: str, program: TensorProgram, hints: Hints) -> list[GroupCall] | None:
    """The calls of their JSON, for a program of its sizes; None if the text is none, or if it is another program's."""
    try:
        found = json.loads(text)
        if found.pop("format") != FORMAT or found.keys() != {"calls", "sizes", "nodes"}:
            return None
        nodes, symbols = read_tree(found["nodes"]), {symbol.name: symbol for symbol in hints}
        sizes = [with_symbols_of(nodes[number], symbols) for number in found["sizes"]]
        return [call_of_fields(each, sizes, program) for each in found["calls"]]
    except (ValueError, TypeError, LookupError, AttributeError, RedalgError):
        return None


def with_symbols_of(size: Basic, symbols: Mapping[str, Basic]) -> Basic:
    """A size with symbols in the place of axes."""
    return size.xreplace({axis: symbols[axis.name] for axis in size.atoms(Axis)})


def call_of_fields(given: Mapping[str, Any], sizes: list[Any], program: TensorProgram) -> GroupCall:
    """The call of its fields in JSON.

    Raises:
        GraphError: a tensor is none of the program's.
        ExpressionError, LookupError, TypeError: a field lacks, or is of another kind.
    """
    own = dict(given["group"])
    group = Group(**{field.name: tuple(own.pop(field.name)) for field in fields(Group) if field.name != "gain_us"},
                  gain_us=float(own.pop("gain_us")))  # fmt: skip
    reads, writes = tuple(given["reads"]), tuple(given["writes"])
    if missing := {*group.members, *group.names, *group.reads, *group.writes, *reads, *writes} - program.types.keys():
        raise GraphError(f"the program has no tensor {', '.join(sorted(missing))}")
    views = {name: tuple(sizes[number] for number in shape) for name, shape in given["views"].items()}
    parts = {name: tuple((dim, sizes[number]) for dim, number in part) for name, part in given["parts"].items()}
    return GroupCall(read_call(given["text"]).text, reads, writes, views,
                     tuple(sizes[number] for number in given["sizes"]), parts, group)  # fmt: skip
