"""A function's definition as text, which another process reads: JSON with a version, and nothing in it is evaluated.

{"format": "redalg function, 1",
 "outputs": [[name, number of a row, [axis, …]], …],   the expressions, and the order of their axes
 "inputs": [name, …],                                  the tensors in the order in which they may be positional
 "single": true, "exact": false, "passes": 1,          the options of `fuse`
 "nodes": [row, …]}                                    the syntax tree (`expression/syntax.py`)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import unquote

from sympy import Expr
from sympy.core.basic import Basic

from redalg.errors import ExpressionError
from redalg.expression import Element, Scalar
from redalg.expression.contents import of_kind
from redalg.expression.syntax import ANEW, read_tree, write_tree

FORMAT = "redalg function, 1"


@final
@dataclass(frozen=True)
class FunctionDefinition:
    """All that a fused function is derived from.

    Attributes:
        outputs: name, expression and the names of the axes in order.
        inputs: names of the tensors in positional order.
        single: whether there is one output, and it is no namedtuple.
        exact: whether approximations are refused.
        passes: the number of passes over the data.
    """

    outputs: tuple[tuple[str, Expr, tuple[str, ...]], ...]
    inputs: tuple[str, ...] = ()
    single: bool = True
    exact: bool = False
    passes: int = 1

    @property
    def text(self) -> str:
        """The definition as JSON, the same text in every process.

        Raises:
            ExpressionError: a node has no place in the grammar.
        """
        rows, numbers = write_tree(expr for _, expr, _ in self.outputs)
        outputs = [[name, number, axes] for (name, _, axes), number in zip(self.outputs, numbers, strict=True)]
        fields = {"format": FORMAT, "outputs": outputs, "inputs": self.inputs, "single": self.single,
                  "exact": self.exact, "passes": self.passes, "nodes": rows}  # fmt: skip
        return compact_json(fields)

    @property
    def arguments(self) -> tuple[Any, str | None]:
        """The expressions and the axes, as `fuse` takes them."""
        outputs = {name: (expr, " ".join(axes)) for name, expr, axes in self.outputs}
        return outputs[self.outputs[0][0]] if self.single else (outputs, None)

    @property
    def elements(self) -> list[Element | Scalar]:
        """An element of each input, in order."""
        exprs = [expr for _, expr, _ in self.outputs]
        known = {one.name: one for one in (*of_kind(Element, *exprs), *of_kind(Scalar, *exprs))}
        unknown = [name for name in self.inputs if name not in known]
        if unknown:
            raise ExpressionError(f"from_json: the input `{unknown[0]}` is in no expression; in them are "
                                  f"{', '.join(sorted(known))}. {ANEW}")  # fmt: skip
        return [known[name] for name in self.inputs]


def compact_json(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


LITERAL = str.maketrans({"%": "%25", "'": "%27", "\\": "%5C", '"': "'"})


def as_literal(text: str) -> str:
    """A text without double quotes and backslashes, which compilers may write between double quotes as it is.

    >>> as_literal('{"name":"x"}')
    "{'name':'x'}"
    """
    return text.translate(LITERAL)


def of_literal(text: str) -> str:
    """The text of which `as_literal` made a literal; any text with double quotes is itself."""
    return text if '"' in text else unquote(text.replace("'", '"'))


def parse_json(text: Any, caller: str) -> Any:
    """The value of a JSON text.

    Raises:
        ExpressionError: it is none.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ExpressionError(f"{caller}: the text is no JSON ({type(error).__name__}: {error}). {ANEW}") from error


def read_definition(text: str) -> FunctionDefinition:
    """The definition that a text holds.

    Raises:
        ExpressionError: the text is no definition of this version; the message says what was found.
    """
    fields = parse_json(text, "from_json")
    found = fields.get("format") if isinstance(fields, Mapping) else fields
    if found != FORMAT:
        raise ExpressionError(f"from_json: the text has the format {found!r}, and this version of redalg reads "
                              f"{FORMAT!r}. {ANEW}")  # fmt: skip
    _check_fields(fields)
    nodes = read_tree(fields["nodes"])
    outputs = tuple(_output(one, nodes) for one in fields["outputs"])
    return FunctionDefinition(outputs, tuple(fields["inputs"]), fields["single"], fields["exact"], fields["passes"])


def _check_fields(fields: Mapping[str, Any]) -> None:
    tests = {
        "format": True,
        "outputs": isinstance(fields.get("outputs"), list) and bool(fields["outputs"]),
        "inputs": _are_names(fields.get("inputs")),
        "single": isinstance(fields.get("single"), bool),
        "exact": isinstance(fields.get("exact"), bool),
        "passes": type(fields.get("passes")) is int and fields["passes"] > 0,
        "nodes": isinstance(fields.get("nodes"), list),
    }
    wrong = [name for name, holds in tests.items() if not holds] + sorted(map(str, fields.keys() - tests.keys()))
    if wrong:
        raise ExpressionError(f"from_json: the field `{wrong[0]}` is {fields.get(wrong[0])!r}, and should be as "
                              f"`to_json` writes it; the fields are {', '.join(tests)}. {ANEW}")  # fmt: skip
    if fields["single"] and (len(fields["outputs"]) > 1):
        raise ExpressionError(f"from_json: {len(fields['outputs'])} outputs are given for a function of one. {ANEW}")


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one.isidentifier() for one in value)


def _output(value: Any, nodes: list[Basic]) -> tuple[str, Expr, tuple[str, ...]]:
    if isinstance(value, list) and len(value) == 3 and _are_names(value[:1]) and _are_names(value[2]):
        name, place, axes = value
        node = nodes[place] if type(place) is int and 0 <= place < len(nodes) else None
        if isinstance(node, Expr):
            return name, node, tuple(axes)
    raise ExpressionError(f"from_json: the output {value!r} is no name, number of a row that is a number, and list of "
                          f"axes. {ANEW}")  # fmt: skip
