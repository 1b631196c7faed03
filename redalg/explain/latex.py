r"""LaTeX: one displayed block a section, for MathJax as notebooks load it (`aligned`, `\text`; no macros)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from sympy import Expr, Pow, S, latex
from sympy.core.basic import Basic

from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain.model import (
    Code,
    Derivation,
    Equation,
    Equations,
    Line,
    Matrices,
    Matrix,
    Notice,
    Part,
    Section,
    Sentence,
    Table,
)
from redalg.explain.notation import (
    ATOM,
    EACH,
    HAT,
    POWER,
    PRIME,
    PRODUCT,
    Writer,
    is_negative,
    ordered_terms,
    split_marks,
)
from redalg.explain.text import WRITER as PLAIN
from redalg.explain.text import text_width
from redalg.explain.whole import derivation
from redalg.expression.operators import OPERATORS
from redalg.incremental.passes import Passes

LINE = 100
"""Columns of the text form beyond which a sentence or a sum is broken, since MathJax breaks neither."""

GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi", "pi"),
    *("rho", "sigma", "tau", "phi", "chi", "psi", "omega", "varphi", "varepsilon", "Delta"),
}
LETTERS = {"κ": "kappa", "φ": "varphi", "ε": "varepsilon", "Δ": "Delta"}
COMMANDS = {"max", "min"} | {operator.latex for operator in OPERATORS.values() if operator.latex}
"""Functions for which LaTeX has a command."""
BIG_OPERATORS = {
    "sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "any": r"\bigvee", "all": r"\bigwedge",
}  # fmt: skip


def explain_latex(decomposition: Decomposition, passes: Passes) -> str:
    """The derivation as LaTeX: a displayed block for each section, for MathJax; arguments as of `explain_text`."""
    return render(derivation(decomposition, passes))


# ---- the writer ------------------------------------------------------------------------------------------------------


@final
class LatexWriter(Writer):
    """`sum_1_acc` is written sum with the subscript 1, acc; `delta_c_0` is δ with the subscript c_0."""

    def __init__(self) -> None:
        self.comparisons = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne"}
        self.words = {"And": r"\wedge", "Or": r"\vee", "Not": r"\neg", "Xor": r"\veebar"}
        self.minus = "-"

    def name(self, name: str) -> str:
        base, marks = split_marks(name)
        head, *below = base.strip("_").split("_") if base.strip("_") else [base]
        lower = [self.name("_".join(below))] if head in ("delta", "rho") and below else [upright(one) for one in below]
        lower += [letter for letter, mark in EACH.items() if mark in marks]
        top = (
            upright(head)
            if HAT not in marks
            else (rf"\hat{{{upright(head)}}}" if is_short(head) else rf"\widehat{{{upright(head)}}}")
        )
        body = top + (f"_{{{','.join(lower)}}}" if lower else "")
        return body + ("'" if PRIME in marks else "")

    def symbol(self, name: str) -> str:
        return self.name("".join(LETTERS.get(one, one) for one in name))

    def element(self, name: str, indices: Sequence[Basic]) -> str:
        head, below = self.name(name), ",".join(self.many(indices))
        if not indices:
            return head
        return rf"{head}\left[{below}\right]" if "_" in head else f"{head}_{{{below}}}"

    def parentheses(self, body: str) -> str:
        return rf"\left({body}\right)"

    def product(self, factors: Sequence[str]) -> str:
        return r" \, ".join(factors)

    def fraction(self, above: Sequence[Expr], below: Sequence[Expr]) -> tuple[str, int]:
        parts = (
            self.write(side[0]) if len(side) == 1 else self.product([self.write(x, POWER) for x in side])
            for side in (above, below)
        )
        return rf"\frac{{{next(parts)}}}{{{next(parts)}}}", PRODUCT

    def power(self, base: Expr, exponent: Expr) -> tuple[str, int]:
        if exponent == S.Half:
            return rf"\sqrt{{{self.write(base)}}}", ATOM
        return f"{{{self.write(base, ATOM)}}}^{{{self.write(exponent)}}}", POWER

    def function(self, name: str, args: Sequence[Basic]) -> str:
        if name == "exp" and not any(is_negative(one.exp) for one in args[0].atoms(Pow)):
            return f"e^{{{self.write(args[0])}}}"
        name = LETTERS.get(name, name)
        head = rf"\{name}" if name in GREEK or name in COMMANDS else rf"\operatorname{{{escape_latex(name)}}}"
        return head + self.parentheses(", ".join(self.many(args)))

    def brackets(self, kind: str, body: str) -> str:
        left, right = ("|", "|") if kind == "abs" else (r"\lfloor ", r"\rfloor ")
        return rf"\left{left}{body}\right{right}"

    def reduction(self, kind: str, axes: Sequence[str], body: str) -> str:
        word = escape_latex(kind).replace(".", "{.}")  # a full stop has a space behind it
        operator = BIG_OPERATORS.get(kind, rf"\operatorname*{{{word}}}")
        return rf"{operator}_{{{','.join(map(self.name, axes))}}} {body}"

    def cases(self, condition: str, a: str, b: str) -> str:
        return rf"\begin{{cases}} {a} & {condition} \\ {b} & \text{{otherwise}} \end{{cases}}"

    def foreign(self, expr: Basic) -> str:
        return str(latex(expr))


WRITER = LatexWriter()


def is_short(word: str) -> bool:
    """Tell if a word is one letter, or the name of one."""
    return len(word) == 1 or word in GREEK


def upright(word: str) -> str:
    """A word of a name: a letter stays italic, Greek is Greek, anything longer is upright."""
    if len(word) == 1 or word.isdecimal():
        return word
    return rf"\{word}" if word in GREEK else rf"\mathrm{{{escape_latex(word)}}}"


def escape_latex(text: str) -> str:
    """Escape the characters of a text that have a meaning in LaTeX."""
    return "".join("\\" + one if one in "_%&#{}$" else one for one in text)


# ---- layout ----------------------------------------------------------------------------------------------------------


def render(content: Derivation) -> str:
    """A block for the heading and one for every section."""
    blocks = [display_rows([*prose_rows(content.heading, r"\textbf"), *prose_rows(content.summary.parts)])]
    blocks += [display_rows(list(section_rows(number, one))) for number, one in enumerate(content.sections, 1)]
    return "\n\n".join(blocks)


def notice_latex(notice: Notice) -> str:
    """A block: the heading, and the entries under their labels."""
    rows = list(prose_rows((notice.heading,), r"\textbf"))
    for label, sentence in notice.entries:
        rows += [rf"\textit{{{escape_latex(label)}}}", *(rf"\quad {row}" for row in prose_rows(sentence.parts))]
    return display_rows(rows)


def display_rows(rows: Sequence[str]) -> str:
    """Rows, one below the other at the left, as displayed mathematics."""
    body = " \\\\[4pt]\n".join(f"& {row}" for row in rows)
    return f"$$\n\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n$$"


def section_rows(number: int, section: Section) -> Iterator[str]:
    """The title, then every line."""
    yield rf"\textbf{{{number}. {escape_latex(section.title)}}}"
    for line in section.lines:
        yield from line_rows(line)


def line_rows(line: Line) -> Iterator[str]:
    """One line of the model as rows."""
    if isinstance(line, Sentence):
        yield from prose_rows(line.parts)
    elif isinstance(line, Table):
        yield r"\quad " + table_latex(line)
    elif isinstance(line, Matrices):
        yield from [*prose_rows(line.title), r"\quad " + matrices_latex(line)]
    else:
        source = rf"\quad\text{{({escape_latex(line.source)})}}" if line.source else ""
        title = list(prose_rows(line.title))
        yield from [*title[:-1], title[-1] + source]
        yield r"\quad " + equations_latex(line)


def prose_latex(parts: Sequence[Part], style: str = r"\text") -> str:
    """Prose with mathematics in it, in one row."""
    return " ".join(written for one in parts if (written := part_latex(one, style)))


def part_latex(piece: Part, style: str) -> str:
    """One part of prose."""
    if isinstance(piece, Code):
        return rf"\texttt{{{escape_latex(piece)}}}"
    if isinstance(piece, str):
        return rf"{style}{{{escape_latex(piece)}}}" if piece else ""
    return WRITER.write(piece)


def prose_rows(parts: Sequence[Part], style: str = r"\text") -> Iterator[str]:
    """Prose broken between words into rows of at most `LINE` columns."""
    row, width = list[Part](), 0
    for word in words(parts):
        size = text_width(word if isinstance(word, str) else PLAIN.write(word))
        if width and width + size > LINE and word != " ":
            yield prose_latex(join_strings(row), style)
            row, width = [], 0
        row.append(word)
        width += size
    yield prose_latex(join_strings(row), style)


def words(parts: Sequence[Part]) -> Iterator[Part]:
    """Parts with prose split after every space."""
    for part in parts:
        if isinstance(part, str) and not isinstance(part, Code):
            pieces = part.split(" ")
            yield from (piece + " " for piece in pieces[:-1])
            yield from pieces[-1:]
        else:
            yield part


def join_strings(row: Sequence[Part]) -> list[Part]:
    """Neighbouring strings joined."""
    strings = list[Part]()
    for word in row:
        previous = strings[-1] if strings else None
        if (
            isinstance(word, str)
            and isinstance(previous, str)
            and not isinstance(word, Code)
            and not isinstance(previous, Code)
        ):
            strings[-1] = previous + word
        else:
            strings.append(word)
    return strings


def equations_latex(line: Equations) -> str:
    """Equations aligned at their relations."""
    rows = [row for equations in line.rows for row in break_equations(equations)]
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def break_equations(equations: Sequence[Equation]) -> Iterator[str]:
    """One row of equations; a long sum goes on in the next."""
    [first, *others] = equations
    if others or not first.right.is_Add or text_width(PLAIN.write(first.right)) <= LINE:
        yield r" &\qquad ".join(equation_latex(one) for one in equations)
        return
    row, width, lead = "", 0, f"{WRITER.write(first.left)} &{relation(first)} "
    for term in ordered_terms(first.right):
        body = WRITER.write(term)
        text = body if is_negative(term) or not (row or lead.startswith("&")) else f"+ {body}"
        size = text_width(PLAIN.write(term))
        if row and width + size > LINE:
            yield lead + row
            row, width, lead = "", 0, r"&\qquad "
        row, width = f"{row} {text}".strip(), width + size
    yield lead + row


def equation_latex(equation: Equation) -> str:
    """left &= right"""
    return f"{WRITER.write(equation.left)} &{relation(equation)} {WRITER.write(equation.right)}"


def relation(equation: Equation) -> str:
    """The sign of an equation's relation."""
    return {"≈": r"\approx", "≤": r"\le"}.get(equation.relation, equation.relation)


def matrices_latex(line: Matrices) -> str:
    """left = first · second"""
    left, first, second = map(matrix_latex, (line.left, line.first, line.second))
    return f"{left} = {first} {second}"


def matrix_latex(matrix: Matrix) -> str:
    """A matrix in brackets; an entry that is 0 is a dot."""
    rows = (" & ".join(r"\cdot" if one == 0 else WRITER.write(one) for one in row) for row in matrix)
    return r"\begin{bmatrix} " + r" \\ ".join(rows) + r" \end{bmatrix}"


def table_latex(table: Table) -> str:
    """Columns, all to the left."""
    rows = [" & ".join(r"\displaystyle " + prose_latex(cell) for cell in row) for row in table.cells]
    if table.header:
        rows.insert(0, " & ".join(rf"\text{{{escape_latex(one)}}}" for one in table.header) + r" \\ \hline")
    columns = "l" * len(table.cells[0])
    body = rows[0] + ("\n" if table.header else " \\\\\n") + " \\\\\n".join(rows[1:]) if len(rows) > 1 else rows[0]
    return f"\\begin{{array}}{{{columns}}}\n{body}\n\\end{{array}}"
