"""Expressions as text, read and not run: Python's syntax over redalg's functions and SymPy's, and nothing else.

    text       := statement (";" or a line between two)
    statement  := name = expr                         a value; its name stands in the derivation
                | name, name = topk(…) | affine(…)
                | name[axis, …] = expr                an output, with its axes in order; several may be given
                | expr                                the output, if it is the last statement
                | fuse(expr, axes="…", passes=…)      the same with options: it ends the text
                | import …, from … import …           are passed over, as is a docstring
    expr       := name[index, …]                      an element of a tensor
                | name                                an axis if it indexes or is reduced somewhere, else a scalar
                | number | oo | pi | nan | expr + - * / ** // % expr | expr < <= > >= == != expr
                | expr and or & | expr | not ~ expr | expr if expr else expr
                | name.extent | name(expr, …, option=…)

A line of a program that only builds an expression, `s = ra.sum(Q * K, d)`, is a statement too: prefixes of modules are
dropped, and `axes`, `tensors` and the other declarations of redalg are functions. Nothing is evaluated but these.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import sympy
from sympy import Expr, Integer, Rational, nan, oo, pi
from sympy.codegen import cfunctions
from sympy.logic.boolalg import Boolean

import redalg
from redalg.errors import RedalgError
from redalg.expression import Axis, Let, Reduce, Tensor, axes, let, scalars, where
from redalg.expression.operators import OPERATORS
from redalg.expression.spelling import did_you_mean, spelling_of

LONGEST = 20_000
"""Characters of a text."""
MOST_BITS = 100_000
"""Bits of a number that a power may have."""
SHOWN = 96
"""Characters of a line that an error shows."""
CONSTANTS: Mapping[str, Any] = {"oo": oo, "inf": oo, "pi": pi, "nan": nan, "True": True, "False": False, "None": None}
NAMES = """
    affine all any argmax argmin cast compensated_sum cosine_similarity covariance entropy eq first last layer_norm let
    log_softmax logical_and logical_not logical_or logsumexp max mean min ne norm normalize prod rms_norm softmax std
    sum sum_at_max topk var where axes axis tensors tensor scalars Tensor"""
"""Functions of redalg."""
CONDITIONS = {"Eq": "eq", "Ne": "ne", "And": "logical_and", "Or": "logical_or", "Not": "logical_not"}
"""SymPy's names, as it prints them, and redalg's."""
MODULES = ("ra", "redalg", "sympy", "sp")
REDUCED_FROM = {"sum_at_max": 2, "affine": 2, "covariance": 2, "cosine_similarity": 2, "extent": 0}
"""Function -> the place of the first argument that is an axis, where it is not the second."""
ENDS = ("fuse", "analyze")
Options = dict[str, Any]


class NotationError(RedalgError):
    """A text that is no expression of this notation; the message shows the place."""


@final
@dataclass(frozen=True)
class Written:
    """The arguments of `fuse` that a text gives.

    Attributes:
        expr: an expression, or outputs by name.
        axes: the axes of the one output, if they are given.
        options: `passes` and `exact`, if they are given.
        scalars: the names that were taken for scalars, as they are no axes.
    """

    expr: Any
    axes: str | None = None
    options: Options = field(default_factory=dict)
    scalars: tuple[str, ...] = ()


def read_expression(text: str) -> Written:
    """The expression that a text gives.

    Raises:
        NotationError: the text is none; the message has the line, and a caret below the place.

    >>> read_expression("mean((x[b,n] - mean(x[b,n], n))**2, n)").expr
    sum((x[b, n] - sum(x[b, n], n)/|n|)**2, n)/|n|
    >>> read_expression("m = max(x[b,n], n); out[b] = sum(exp(x[b,n] - m), n)").expr
    {'out': (sum(exp(x[b, n] - max(x[b, n], n)), n), 'b')}
    >>> read_expression("sum(softmx(x[n], n), n)")
    Traceback (most recent call last):
    redalg.commands.notation.NotationError: there is no function `softmx`. Did you mean softmax?
        sum(softmx(x[n], n), n)
            ^^^^^^
    """
    tree = _tree(text)
    reader = _Reader(text, dict.fromkeys(sorted(_axis_names(tree))))
    for statement in tree.body:
        reader.read(statement)
        if reader.ended:
            break
    return reader.arguments()


@cache
def functions() -> Mapping[str, Callable[..., Any]]:
    """The functions that may stand in a text, by name: redalg's, and those of SymPy that redalg knows."""
    known: dict[str, Callable[..., Any]] = {name: getattr(redalg, name) for name in NAMES.split()}
    known |= {name: getattr(sympy if hasattr(sympy, name) else cfunctions, name) for name in OPERATORS}
    known |= {"sqrt": sympy.sqrt, "abs": sympy.Abs, "ceil": sympy.ceiling}
    known |= {name: getattr(redalg, known_as) for name, known_as in CONDITIONS.items()}
    return known | {"extent": lambda one: one.extent}


# ---- axes ------------------------------------------------------------------------------------------------------------


def _axis_names(tree: ast.Module) -> set[str]:
    """The names that index a tensor, or that are reduced over, and to which no value is given."""
    given = {name.id for statement in tree.body for name in _targets(statement)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            found |= _names(node.slice)
        elif isinstance(node, ast.Call):
            name = _function_name(node)
            first = REDUCED_FROM.get(name, 1)
            if first != 1 or hasattr(redalg, name):
                found |= {one.id for argument in node.args[first:] for one in _plain(argument)}
        elif isinstance(node, ast.Attribute) and node.attr == "extent":
            found |= _names(node.value)
    return found - given - CONSTANTS.keys()


def _targets(statement: ast.stmt) -> Iterator[ast.Name]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _plain(target)


def _plain(node: ast.expr) -> Iterator[ast.Name]:
    """The names that a node is, or that it lists."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Tuple | ast.List):
        for part in node.elts:
            yield from _plain(part)


def _names(node: ast.expr) -> set[str]:
    """The names in an index, but for those of tensors and functions."""
    bases = {id(one.value) for one in ast.walk(node) if isinstance(one, ast.Subscript)}
    bases |= {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and id(one) not in bases}


def _function_name(node: ast.Call) -> str:
    function = node.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


# ---- the reader ------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class _Reader:
    """A text on its way to an expression: what names mean, and what was found so far."""

    text: str
    known_axes: Mapping[str, None]
    values: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, tuple[Any, str]] = field(default_factory=dict)
    last: list[Any] = field(default_factory=list)
    ended: list[Written] = field(default_factory=list)
    scalars: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> Written:
        """The arguments that the whole text gives."""
        names = tuple(name for name in self.scalars)
        if self.ended:
            return Written(self.ended[0].expr, self.ended[0].axes, self.ended[0].options, names)
        if self.outputs:
            return Written(dict(self.outputs), scalars=names)
        if not self.last:
            raise NotationError("the text gives no expression. End it with one, or with name[axis, …] = expression.")
        return Written(self.last[0], scalars=names)

    # ---- statements --------------------------------------------------------------------------------------------------

    def read(self, statement: ast.stmt) -> None:
        """Take one statement."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self.assign(statement.targets[0], statement.value)
        elif isinstance(statement, ast.Expr):
            if not (isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)):
                self.last[:] = [self.expression(statement.value)]
        else:
            raise self.error(statement, "only assignments and expressions are read, and nothing is run.")

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Take an assignment."""
        made = self.value(value)
        if isinstance(target, ast.Name):
            self.values[target.id] = made = _with_name(target.id, made)
            self.last[:] = [made] if isinstance(made, Expr) else self.last
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            names = [one.id for one in _plain(target.slice)]
            self.outputs[target.value.id] = (self.need_expression(value, made), " ".join(names))
        elif isinstance(target, ast.Tuple):
            names = [one.id for one in _plain(target)]
            if not isinstance(made, tuple) or len(made) != len(names):
                raise self.error(value, f"it does not give {len(names)} values.")
            self.values.update(zip(names, made, strict=True))
        else:
            raise self.error(target, "this is no name. Write name = expression, or name[axis, …] = expression.")

    # ---- expressions -------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Any:
        """The value of a node, which must be an expression."""
        return self.need_expression(node, self.value(node))

    def need_expression(self, node: ast.expr, made: Any) -> Any:
        """A value that is an expression, or what `fuse` was given."""
        if not isinstance(made, Expr | Boolean | dict | Written):
            raise self.error(node, "this is no expression.")
        return made

    def value(self, node: ast.expr) -> Any:
        """The value of a node."""
        rule = RULES.get(type(node))
        if rule is None:
            raise self.error(node, f"{_kind(node)} has no meaning here.")
        try:
            return rule(self, node)
        except NotationError:
            raise
        except RecursionError as cause:
            raise NotationError("the expression is nested too deeply.") from cause
        except Exception as cause:
            raise self.error(node, str(cause) or type(cause).__name__) from cause

    def number(self, node: ast.Constant) -> Any:
        if isinstance(node.value, bool | str) or node.value is None:
            return node.value
        if isinstance(node.value, int):
            return Integer(node.value)
        if isinstance(node.value, float):
            return self.decimal(node)
        raise self.error(node, "this is no real number.")

    def decimal(self, node: ast.Constant) -> Expr:
        """The fraction that is written, 1/10 of 0.1; of a text with many digits the nearest float."""
        written, value = ast.get_source_segment(self.text.strip(), node) or "", float(str(node.value))
        if not 1e-99 < abs(value) < 1e99 or len(written) > 30:
            if value in (0.0, float("inf")) and written.strip("0.") != "":
                raise self.error(node, "the number is not in the range of float64.")
            return Rational(value)
        return Rational(written)

    def name(self, node: ast.Name) -> Any:
        for known in (self.values, CONSTANTS):
            if node.id in known:
                return known[node.id]
        if node.id in self.known_axes:
            return axes(node.id)
        return self.scalars.setdefault(node.id, scalars(node.id))

    def attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in MODULES and node.attr in CONSTANTS:
            return CONSTANTS[node.attr]
        owner = self.value(node.value)
        if node.attr == "extent" and isinstance(owner, Axis):
            return owner.extent
        advice = spelling_of(node.attr) or "The extent of an axis n is n.extent."
        raise self.error(node, f"there is no attribute `{node.attr}`. {advice}")

    def arithmetic(self, node: ast.BinOp) -> Any:
        operation = BINARY.get(type(node.op))
        if operation is None:
            raise self.error(node, spelling_of("matmul") or "" if isinstance(node.op, ast.MatMult) else
                             f"{_kind(node.op)} has no meaning here.")  # fmt: skip
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow) and _is_large(left, right):
            raise self.error(node, "the number is too large to be written out.")
        return operation(left, right)

    def sign(self, node: ast.UnaryOp) -> Any:
        made = self.value(node.operand)
        if isinstance(node.op, ast.Not | ast.Invert):
            return redalg.logical_not(made)
        return -made if isinstance(node.op, ast.USub) else made

    def compare(self, node: ast.Compare) -> Any:
        sides = [self.value(one) for one in (node.left, *node.comparators)]
        made = []
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            relation = RELATIONS.get(type(operator))
            if relation is None:
                raise self.error(node, f"{_kind(operator)} has no meaning here.")
            made.append(relation(int(left) if isinstance(left, Integer) else left, right))
        return made[0] if len(made) == 1 else redalg.logical_and(*made)

    def join(self, node: ast.BoolOp) -> Any:
        join = redalg.logical_and if isinstance(node.op, ast.And) else redalg.logical_or
        return join(*(self.value(one) for one in node.values))

    def choose(self, node: ast.IfExp) -> Any:
        return where(self.value(node.test), self.value(node.body), self.value(node.orelse))

    def several(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self.value(one) for one in node.elts)

    def outputs_of(self, node: ast.Dict) -> Any:
        return {self.value(key): self.value(one) for key, one in zip(node.keys, node.values, strict=True) if key}

    def element(self, node: ast.Subscript) -> Any:
        indices = self.value(node.slice)
        indices = indices if isinstance(indices, tuple) else (indices,)
        if isinstance(node.value, ast.Name) and node.value.id not in self.values:
            return Tensor(node.value.id)[indices]
        base = self.value(node.value)
        if isinstance(base, Tensor):
            return base[indices]
        if isinstance(base, tuple) and len(indices) == 1 and isinstance(indices[0], Integer):
            return base[int(indices[0])]
        raise self.error(node, "this has no elements. A tensor's name stands before its indices, as in x[b, n].")

    def call(self, node: ast.Call) -> Any:
        name, owner = _function_name(node), getattr(node.func, "value", None)
        if owner is not None and not (isinstance(owner, ast.Name) and owner.id in MODULES):
            raise self.error(node.func, f"`{ast.unparse(node.func)}` is no function here. Write {name}(…).")
        arguments = [self.value(one) for one in node.args]
        if any(one.arg is None for one in node.keywords):
            raise self.error(node, "options are written out, name=value.")
        options = {str(one.arg): _plain_value(self.value(one.value)) for one in node.keywords}
        if name in ENDS:
            return self.end(node, arguments, options)
        function = functions().get(name)
        if function is None:
            advice = f" {spelling_of(name) or ''}".rstrip() or did_you_mean(name, functions())
            raise self.error(node.func, f"there is no function `{name}`.{advice}")
        return function(*arguments, **options)

    def end(self, node: ast.Call, arguments: list[Any], options: Options) -> Any:
        """Take a call of `fuse`."""
        expr, *more = arguments or [options.pop("expr", None)]
        given = more[0] if more else options.pop("axes", None)
        options.pop("inputs", None)
        unknown = options.keys() - {"passes", "exact"}
        if expr is None or unknown:
            raise self.error(node, "fuse takes an expression, axes=, passes= and exact=.")
        self.ended.append(Written(expr, given, options))
        return self.ended[-1]

    def error(self, node: Any, message: str) -> NotationError:
        """An error with the line of a node, and carets below it."""
        return NotationError(f"{message.rstrip()}\n{_pointer(self.text, node)}")


Rule = Callable[[_Reader, Any], Any]
RULES: Mapping[type[ast.AST], Rule] = {
    ast.Constant: _Reader.number, ast.Name: _Reader.name, ast.Attribute: _Reader.attribute,
    ast.BinOp: _Reader.arithmetic, ast.UnaryOp: _Reader.sign, ast.Compare: _Reader.compare, ast.BoolOp: _Reader.join,
    ast.IfExp: _Reader.choose, ast.Tuple: _Reader.several, ast.List: _Reader.several, ast.Dict: _Reader.outputs_of,
    ast.Subscript: _Reader.element, ast.Call: _Reader.call,
}  # fmt: skip
BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.Pow: lambda a, b: a**b, ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b, ast.BitAnd: redalg.logical_and,
    ast.BitOr: redalg.logical_or,
}  # fmt: skip
RELATIONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
    ast.Eq: redalg.eq, ast.NotEq: redalg.ne,
}  # fmt: skip


def _with_name(name: str, made: Any) -> Any:
    """A value that reduces, by the name that it is given, which the derivation keeps; any other value as it is."""
    return let(name, made) if isinstance(made, Expr) and made.has(Reduce) and not isinstance(made, Let) else made


def _plain_value(made: Any) -> Any:
    """A Python number of an integer, as options want it."""
    return int(made) if isinstance(made, Integer) else made


def _is_large(base: Any, power: Any) -> bool:
    """True if a power of numbers would be written out in more than `MOST_BITS`."""
    if not (getattr(base, "is_Rational", False) and getattr(power, "is_Integer", False)):
        return False
    bits = max(int(abs(base.p)).bit_length(), int(base.q).bit_length())
    return bits > 1 and abs(int(power)) * bits > MOST_BITS


# ---- texts and errors ------------------------------------------------------------------------------------------------


def _tree(text: str) -> ast.Module:
    """The syntax tree of a text."""
    if len(text) > LONGEST:
        raise NotationError(f"the text has {len(text)} characters, and at most {LONGEST} are read.")
    try:
        return ast.parse(text.strip())
    except SyntaxError as cause:
        shown = _line_with_carets(cause.text or "", (cause.offset or 1) - 1, (cause.end_offset or 0) - 1)
        raise NotationError(f"the text is no expression: {cause.msg}.\n{shown}") from cause
    except (RecursionError, MemoryError, ValueError) as cause:
        raise NotationError(f"the text is no expression: {str(cause) or 'it is nested too deeply'}.") from cause


def _pointer(text: str, node: Any) -> str:
    """The line of a node, and carets below the node."""
    line = text.strip().splitlines()[node.lineno - 1]

    def column(offset: int) -> int:
        return len(line.encode()[:offset].decode(errors="ignore"))

    stop = node.end_col_offset if node.end_lineno == node.lineno else len(line.encode())
    return _line_with_carets(line, column(node.col_offset), column(stop))


def _line_with_carets(line: str, start: int, stop: int) -> str:
    """A line, or the part of it about a place, and carets below the place."""
    line, left = line.rstrip("\n"), max(0, start - SHOWN // 2)
    shown = line[left : left + SHOWN]
    return f"    {shown}\n    {' ' * (start - left)}{'^' * max(1, min(stop, left + len(shown)) - start)}"


def _kind(node: ast.AST) -> str:
    """The name of a node's kind."""
    return f"`{type(node).__name__}`"
