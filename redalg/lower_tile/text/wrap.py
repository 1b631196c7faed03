"""Lines of a kernel as a person writes them: no needless parentheses, and none longer than a page is wide.

    x[i] = f(a) + g(b)    →    x[i] = (        x = f(a, b)    →    x = f(        exact: Python reads the same tree
                                   f(a)                                a,
                                   + g(b)                              b
                               )                                   )

A statement that is too long is broken at its loosest operators, or at its commas. A comment that has no room beside its
statement stands above it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import wrap

WIDTH = 120
INDENT = 4
TOKEN = re.compile(r"""\s*("[^"]*"|\d[\d.]*(?:e[+-]?\d+)?|\w[\w.]*|\*\*|//|<=|>=|==|!=|<<|>>|\S)""")
NEEDLESS = re.compile(r"\(\(|[-+*/&|,] \(|= \(|if \(|\(-")
"""The beginnings of parentheses that may be needless."""
LOOSEST_FIRST = ({"or"}, {"and"}, {"<", "<=", ">", ">=", "==", "!="}, {"|"}, {"^"}, {"&"}, {"<<", ">>"}, {"+", "-"},
                 {"*", "/", "//", "%"})  # fmt: skip
OPERATORS = frozenset().union(*LOOSEST_FIRST) | {"**", ",", "=", ":", "if", "not"}
OPEN, CLOSE = "([{", ")]}"
Token = tuple[int, int, str, int]
"""Start, end and text of a token, and the number of brackets around it."""


def wrap_lines(text: str) -> str:
    """A text of one statement a line, without needless parentheses, and with long statements in several lines."""
    return break_long_lines("\n".join(map(without_parentheses, text.split("\n"))))


def break_long_lines(text: str) -> str:
    """A text in which every statement that is too long for a line stands in several."""
    return "\n".join(part for line in text.split("\n") for part in (wrap_line(line) if len(line) > WIDTH else [line]))


def without_parentheses(line: str) -> str:
    """A line without the parentheses that its tree does not need.

    >>> without_parentheses("    x[i] = ((a[i]) > 0.0) & (b * (c * d))  # as written")
    '    x[i] = (a[i] > 0.0) & b * (c * d)  # as written'
    """
    if not NEEDLESS.search(line):
        return line
    code, comment = _apart(line)
    space, code = code[: len(code) - len(code.lstrip())], code.strip()
    head = code.startswith("if ")
    if not head and (" = " not in code or code[-1] in ",:"):
        return line
    plain = ast.unparse(ast.parse(f"{code} pass" if head else code)).replace("'", '"')
    plain = plain.split("\n")[0] if head else plain
    return space + plain + (f"  # {comment}" if comment else "")


def wrap_line(line: str) -> list[str]:
    """The lines of one statement."""
    code, comment = _apart(line)
    indent = len(line) - len(line.lstrip())
    above = wrap(comment, WIDTH - indent, initial_indent="# ", subsequent_indent="#     ") if comment else []
    return [*(" " * indent + part for part in above), *_statement(code.strip(), indent)]


def _apart(line: str) -> tuple[str, str]:
    """The code of a line, and its comment."""
    for _, end, text, _ in _tokens(line):
        if text == "#":
            return line[: end - 1].rstrip(), line[end:].strip()
    return line, ""


def _tokens(text: str) -> Iterator[Token]:
    depth = 0
    for match in TOKEN.finditer(text):
        token = match.group(1)
        depth -= token in CLOSE
        yield match.start(1), match.end(1), token, depth
        depth += token in OPEN


def _statement(code: str, indent: int) -> list[str]:
    """The lines of an assignment, a condition or a call."""
    if code.startswith("if ") and code.endswith(":"):
        return _expression(code[3:-1], indent, "if ", ":")
    equals = next((end for _, end, text, depth in _tokens(code) if text == "=" and depth == 0), None)
    if equals is not None:
        return _expression(code[equals:].strip(), indent, f"{code[:equals]} ")
    return _expression(code, indent)


def _expression(code: str, indent: int, before: str = "", after: str = "", *, enclosed: bool = False) -> list[str]:
    """The lines of an expression; `enclosed` tells if a bracket is open around it, so that a line may end anywhere."""
    whole = " " * indent + before + code + after
    if len(whole) <= WIDTH:
        return [whole]
    places = _breaks(code)
    if places and not enclosed:
        inner = _expression(code, indent + INDENT, enclosed=True)
        return [" " * indent + before + "(", *inner, " " * indent + ")" + after]
    if places:
        starts = [0, *places]
        parts = [code[start:end].strip() for start, end in zip(starts, [*places, len(code)], strict=True)]
        last = len(parts) - 1
        return [line for number, part in enumerate(parts)
                for line in _operand(part, indent, before * (number == 0), after * (number == last))]  # fmt: skip
    opening = _last_bracket(code)
    if opening is None:
        return [whole]
    lines = [" " * indent + before + code[: opening + 1]]
    arguments = _arguments(code[opening + 1 : -1])
    for number, argument in enumerate(arguments):
        lines += _expression(argument, indent + INDENT, "", "," * (number < len(arguments) - 1), enclosed=True)
    return [*lines, " " * indent + code[-1] + after]


def _operand(code: str, indent: int, before: str, after: str) -> list[str]:
    """The lines of an operand with the operator ahead of it, if it has one."""
    operator = next((text for _, _, text, _ in _tokens(code)), "")
    if operator in OPERATORS and code[len(operator) :].startswith(" "):
        return _expression(code[len(operator) :].strip(), indent, f"{before}{operator} ", after, enclosed=True)
    return _expression(code, indent, before, after, enclosed=True)


def _breaks(code: str) -> list[int]:
    """The places of the loosest operators outside of brackets, ahead of which a line may begin; none of a slice."""
    outside, last = list[tuple[int, str]](), "="
    for start, _, text, depth in _tokens(code):
        if depth == 0 and text in (",", ":"):
            return []
        if depth == 0 and text in OPERATORS and last not in OPERATORS:  # else it is a sign
            outside.append((start, text))
        last = text
    for loosest in LOOSEST_FIRST:
        if places := [start for start, text in outside if text in loosest]:
            return places
    return []


def _last_bracket(code: str) -> int | None:
    """The place of the bracket that the last character closes; None if it closes none."""
    opening = [start for start, _, text, depth in _tokens(code) if text in OPEN and depth == 0]
    return opening[-1] if opening and code[-1] in CLOSE else None


def _arguments(code: str) -> list[str]:
    """The parts of a text between commas outside of brackets."""
    commas = [start for start, _, text, depth in _tokens(code) if text == "," and depth == 0]
    starts = [0, *(comma + 1 for comma in commas)]
    return [code[start:end].strip() for start, end in zip(starts, [*commas, len(code)], strict=True)]
