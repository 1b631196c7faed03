"""Expressions as a syntax tree in JSON, and back; nothing is evaluated, and what is no node of this grammar is refused.

    tree    := [row, …]                   a node that stands in several places is one row
    row     := [kind, field, …]           a field that is a node is the number of an earlier row
    number  := ["integer", 3] | ["rational", 1, 2] | ["float", "0x3p-1", bits] | ["constant", "oo"]
             | ["axis", name, size or null] | ["extent", name] | ["scalar", name, {"positive": true}]
             | ["element", name, sign, [index, …]] | ["let", name, number] | ["cast", number, dtype]
             | ["where", condition, number, number] | ["straight_through", value, source]
             | ["Add" | "Mul", number, …] | ["Pow", number, number]
             | ["exp" …, number, …]       a function by its name in `operators.py`
             | ["reduce", monoid, [number, …], [axis, …], result or "", place or null]
    condition := ["constant", "true"] | ["Eq" …, number, number] | ["And" | "Or", condition, …] | ["Not", condition]

A node has the arguments that it had, in their order: expressions that are read are equal to those that were written. A
monoid is named: a process that reads a registered one registers it before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, final

import sympy
from mpmath.libmp import from_man_exp
from sympy import Add, And, Expr, Float, Integer, Max, Min, Mul, Not, Or, Pow, Rational, S, Tuple
from sympy.core.basic import Basic
from sympy.core.facts import InconsistentAssumptions
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression.axis import Axis, Extent, Scalar
from redalg.expression.dtypes import DTYPES
from redalg.expression.known import FACTS
from redalg.expression.nodes import UNDEFINED, Cast, Let, Where
from redalg.expression.operators import OPERATORS
from redalg.expression.reduce import Reduce
from redalg.expression.straight_through import StraightThrough
from redalg.expression.tensor import Element, Label
from redalg.monoids.table import MONOIDS

Row = list[Any]
CONSTANTS: dict[str, Basic] = {
    "oo": S.Infinity, "-oo": S.NegativeInfinity, "nan": S.NaN, "undefined": UNDEFINED, "pi": S.Pi, "E": S.Exp1,
    "EulerGamma": S.EulerGamma, "Catalan": S.Catalan, "GoldenRatio": S.GoldenRatio,
    "TribonacciConstant": S.TribonacciConstant, "true": S.true, "false": S.false,
}  # fmt: skip
ASSUMPTIONS = {*FACTS, "commutative", "extended_real"}
HEX = re.compile(r"(-?)0x([0-9a-f]+)p([+-]\d{1,9})")
MOST_BITS = 1 << 16
"""The most binary digits of a float."""


@final
@dataclass(frozen=True)
class Kind:
    """A kind of rows.

    Attributes:
        fields: the sort of each field; several of a sort may follow if the last ends in `…`.
        write: the fields of a node, nodes among them.
        read: the node of its fields.
    """

    fields: tuple[str, ...]
    write: Callable[[Any], Iterable[Any]]
    read: Callable[..., Basic]


@final
class UnfitFieldError(Exception):
    """A field is not of its sort."""


# ---- kinds -----------------------------------------------------------------------------------------------------------


def _constant(name: str) -> Basic:
    if name not in CONSTANTS:
        raise UnfitFieldError(f"{name!r} is none of the constants {', '.join(CONSTANTS)}")
    return CONSTANTS[name]


def _element_arguments(node: Any) -> tuple[Any, ...]:
    return node.name, node.label.assumption, [*node.indices]


def _arguments(node: Basic) -> tuple[Basic, ...]:
    return node.args


def _plain(head: Any) -> Callable[..., Basic]:
    def read(*args: Basic) -> Basic:
        made: Basic = head(*args, evaluate=False)
        return made

    return read


def _extremum(head: Any) -> Callable[..., Basic]:
    def read(*args: Basic) -> Basic:
        made: Any = Expr.__new__(head, *args)
        made._argset = frozenset(args)
        return cast(Basic, made)

    return read


def _float_fields(number: Float) -> tuple[str, int]:
    sign, mantissa, exponent, _ = number._mpf_
    return f"{'-' * sign}{int(mantissa):#x}p{exponent:+d}", number._prec


def _float(text: str, bits: int) -> Float:
    match = HEX.fullmatch(text)
    if match is None or not 0 < bits <= MOST_BITS:
        raise UnfitFieldError(f"`{text}` of {bits} bits is no float, such as 0x3p-1 of 53 bits")
    sign, mantissa, exponent = match.groups()
    number = from_man_exp(int(f"{sign}{mantissa}", 16), int(exponent))
    return Float(number if number[1] else 0.0, precision=bits)  # SymPy makes an integer of a zero


def _rational(above: int, below: int) -> Rational:
    if below < 2:
        raise UnfitFieldError(f"the denominator {below} is not above 1")
    return Rational(above, below)


def _scalar(name: str, assumptions: Mapping[str, Any]) -> Scalar:
    unknown = sorted(assumptions.keys() - ASSUMPTIONS)
    if unknown or not all(one is None or isinstance(one, bool) for one in assumptions.values()):
        raise UnfitFieldError(f"{assumptions} are no assumptions of SymPy with true, false or null")
    try:
        return Scalar(name, **assumptions)
    except InconsistentAssumptions as error:
        raise UnfitFieldError(f"the assumptions {assumptions} exclude each other") from error


def _element(name: str, sign: str, indices: Sequence[Expr]) -> Element:
    if sign not in ("", "positive", "nonnegative", "finite"):
        raise UnfitFieldError(f"the sign {sign!r} is none of '', 'positive', 'nonnegative' and 'finite'")
    return Element(Label(name, sign), *indices)


def _reduction_fields(node: Reduce) -> tuple[Any, ...]:
    return node.kind, list(node.operands), list(node.bound), node.result, node.place


def _reduction(name: str, operands: Sequence[Expr], bound: Sequence[Axis], result: str, place: Axis | None) -> Reduce:
    kind = MONOIDS.get(name)
    if kind is None:
        raise UnfitFieldError(f"no monoid is named {name!r} in this process: register it by `ra.register_monoid` "
                              "before the text is read")  # fmt: skip
    results = [one.name for one in kind.results]
    if len(operands) != len(kind.domains) or not bound or result not in results:
        raise UnfitFieldError(f"{len(operands)} operands over {len(bound)} axes with the result {result!r} are none of "
                              f"{name}, which has {len(kind.domains)} operands and the results {results}")  # fmt: skip
    return Reduce(name, operands[0] if len(operands) == 1 else Tuple(*operands), bound, result, place)


def _where(condition: Boolean, a: Expr, b: Expr) -> Basic:
    made: Basic = Expr.__new__(Where, condition, a, b)
    return made


KINDS: dict[str, Kind] = {
    "integer": Kind(("int",), lambda node: (int(node.p),), Integer),
    "rational": Kind(("int", "int"), lambda node: (int(node.p), int(node.q)), _rational),
    "float": Kind(("text", "int"), _float_fields, _float),
    "axis": Kind(("name", "size"), lambda node: (node.name, node.size), Axis),
    "extent": Kind(("name",), lambda node: (node.name,), Extent),
    "scalar": Kind(("name", "assumptions"), lambda node: (node.name, node.__getnewargs_ex__()[1]), _scalar),
    "element": Kind(("name", "text", "numbers"), _element_arguments, _element),
    "let": Kind(("name", "number"), lambda node: (node.name, node.expr), Let),
    "straight_through": Kind(("number", "number"), _arguments, StraightThrough),
    "cast": Kind(("number", "dtype"), lambda node: (node.args[0], node.dtype), Cast),
    "where": Kind(("condition", "number", "number"), _arguments, _where),
    "reduce": Kind(("text", "numbers", "axes", "text", "place"), _reduction_fields, _reduction),
    "Add": Kind(("number", "number", "number…"), _arguments, _plain(Add)),
    "Mul": Kind(("number", "number", "number…"), _arguments, _plain(Mul)),
    "Pow": Kind(("number", "number"), _arguments, _plain(Pow)),
    "Max": Kind(("number", "number", "number…"), _arguments, _extremum(Max)),
    "Min": Kind(("number", "number", "number…"), _arguments, _extremum(Min)),
    "And": Kind(("condition", "condition", "condition…"), _arguments, And),
    "Or": Kind(("condition", "condition", "condition…"), _arguments, Or),
    "Not": Kind(("condition",), _arguments, _plain(Not)),
    **{name: Kind(("number", "number"), _arguments, _plain(head))
       for name, head in {"Eq": Eq, "Ne": Ne, "Lt": Lt, "Le": Le, "Gt": Gt, "Ge": Ge}.items()},
    "constant": Kind(("text",), lambda node: [name for name, one in CONSTANTS.items() if one is node], _constant),
}  # fmt: skip
OWN = {Axis: "axis", Extent: "extent", Scalar: "scalar", Element: "element", Let: "let", Cast: "cast", Where: "where",
       StraightThrough: "straight_through", Reduce: "reduce", Add: "Add", Mul: "Mul", Pow: "Pow", And: "And", Or: "Or",
       Not: "Not", Eq: "Eq", Ne: "Ne", Lt: "Lt", Le: "Le", Gt: "Gt", Ge: "Ge"}  # fmt: skip


@cache
def _function(name: str) -> Kind:
    """The kind of an elementary function."""
    from sympy.codegen import cfunctions

    head = getattr(sympy, name, None) or getattr(cfunctions, name)
    return Kind(("number",) * OPERATORS[name].inputs, _arguments, _plain(head))


def kind_of_row(name: Any) -> Kind | None:
    """The kind of that name; None if there is none."""
    if not isinstance(name, str):
        return None
    return KINDS.get(name) or (_function(name) if name in OPERATORS else None)


def _name_of_kind(node: Basic) -> str:
    if any(node is one for one in CONSTANTS.values()):
        return "constant"
    if isinstance(node, Rational):
        return "integer" if node.q == 1 else "rational"
    head: Any = type(node)
    return "float" if isinstance(node, Float) else OWN.get(head, head.__name__)


# ---- sorts of fields -------------------------------------------------------------------------------------------------


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


SORTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_integer, "an integer"),
    "size": (lambda value: value is None or (_is_integer(value) and value >= 0), "null or a size"),
    "text": (lambda value: isinstance(value, str), "a text"),
    "name": (lambda value: isinstance(value, str) and value.isidentifier(), "an identifier"),
    "dtype": (lambda value: isinstance(value, str) and value in DTYPES, f"one of {', '.join(DTYPES)}"),
    "assumptions": (lambda value: isinstance(value, Mapping), "an object of assumptions"),
    "number": (lambda value: isinstance(value, Expr), "the number of an earlier row that is a number"),
    "condition": (lambda value: isinstance(value, Boolean), "the number of an earlier row that is a condition"),
    "axis": (lambda value: isinstance(value, Axis), "the number of an earlier row that is an axis"),
}
"""Sort → the test that a field passes, and what it needs in words."""
NODES = ("number", "condition", "axis")
LISTS = {"numbers": "number", "axes": "axis"}


def _sorts_of(kind: Kind, number: int) -> list[str]:
    """The sorts of a number of fields."""
    *first, last = kind.fields
    if last.endswith("…"):
        first, last = first + [last[:-1]] * (number - len(first)), ""
    sorts = [*first, last] if last else first
    if len(sorts) != number:
        raise UnfitFieldError(f"{number} fields are given, and it has {len(sorts)}: {', '.join(kind.fields)}")
    return sorts


def _check_field(sort: str, value: Any) -> Any:
    test, needed = SORTS[sort]
    if not test(value):
        raise UnfitFieldError(f"`{value}` is not {needed}")
    return value


def _each_node(sort: str, value: Any, each: Callable[[str, Any], Any]) -> Any:
    """A field with `each` done to it, or to everything in it if it is a list."""
    if sort == "place":
        return None if value is None else each("axis", value)
    if sort not in LISTS:
        return each(sort, value)
    if not isinstance(value, list):
        raise UnfitFieldError(f"`{value}` is not a list")
    return [each(LISTS[sort], one) for one in value]


# ---- both ways -------------------------------------------------------------------------------------------------------


def write_tree(exprs: Iterable[Basic]) -> tuple[list[Row], list[int]]:
    """The rows of expressions, and the number of each one's row.

    >>> from redalg import axes, max, tensor
    >>> write_tree([max(tensor("x[n]"), axes("n"))])[0]
    [['axis', 'n', None], ['element', 'x', '', [0]], ['reduce', 'max', [1], [0], '', None]]
    """
    rows, numbers = list[Row](), dict[Basic, int]()

    def field(sort: str, value: Any) -> Any:
        return number(_check_field(sort, value)) if sort in NODES else _check_field(sort, value)

    def number(node: Basic) -> int:
        if node not in numbers:
            row = _row(node, field)
            numbers[node] = len(rows)
            rows.append(row)
        return numbers[node]

    return rows, [number(one) for one in exprs]


def _row(node: Basic, field: Callable[[str, Any], Any]) -> Row:
    name = _name_of_kind(node)
    kind = kind_of_row(name)
    if kind is None:
        raise ExpressionError(f"`{node}` cannot be written as text: it is made by `{name}`, and a text has sums, "
                              f"products, powers, conditions, redalg's nodes and the functions {', '.join(OPERATORS)}. "
                              "Write it by these.")  # fmt: skip
    try:
        fields = [*kind.write(node)]
        return [
            name,
            *(_each_node(sort, one, field) for sort, one in zip(_sorts_of(kind, len(fields)), fields, strict=True)),
        ]
    except UnfitFieldError as error:
        raise ExpressionError(f"`{node}` cannot be written as text: {error}. Write it otherwise.") from error


def read_tree(rows: Any) -> list[Basic]:
    """The nodes of rows, in order.

    Raises:
        ExpressionError: a row is none of the grammar; the message has the row.
    """
    nodes = list[Basic]()

    def field(sort: str, value: Any) -> Any:
        if sort not in NODES:
            return _check_field(sort, value)
        known = _is_integer(value) and 0 <= value < len(nodes)
        return _check_field(sort, nodes[value] if known else value)

    if not isinstance(rows, list):
        raise ExpressionError(f"the syntax tree is `{rows}`, not a list of rows. {ANEW}")
    for place, row in enumerate(rows):
        kind = kind_of_row(row[0]) if isinstance(row, list) and row else None
        if kind is None:
            known = ", ".join([*KINDS, *(one for one in OPERATORS if one not in KINDS)])
            raise ExpressionError(f"row {place} of the syntax tree is `{row}`, of no kind that redalg reads: {known}. "
                                  f"{ANEW}")  # fmt: skip
        try:
            sorts = _sorts_of(kind, len(row) - 1)
            nodes.append(kind.read(*(_each_node(sort, one, field) for sort, one in zip(sorts, row[1:], strict=True))))
        except (UnfitFieldError, ExpressionError) as error:
            raise ExpressionError(f"row {place} of the syntax tree is `{row}`: {error}. {ANEW}") from error
    return nodes


ANEW = "Write the text anew by `to_json`, with this version of redalg."
