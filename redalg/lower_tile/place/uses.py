"""The reads of a program's values by its lines, which tell what needs a buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sympy import Mul

from redalg.expression import Value
from redalg.incremental.combine.let import Assign, Fold, Let, Program
from redalg.lower_tile.place.expressions import divides, value_occurrences


def needs_of(let: Let) -> Counter[Value]:
    """The values that a line reads where it is placed, each as often as its text holds it.

    The second operand of a matrix product is read from the data.
    """
    moves = let.moves if isinstance(let, Assign) else ()
    exprs = [part for move in moves for part in move] or let.exprs
    exprs = exprs[:1] if isinstance(let, Fold) else exprs
    return Counter(value for expr in exprs for value in value_occurrences(expr))


def read_by_quotients(lines: Mapping[Value, Assign]) -> set[Value]:
    """The values of quotients, and of products with a reciprocal that is a line of its own."""
    quotients = {value for value, let in lines.items() if divides(let.expr)}
    products = {value for value, let in lines.items() if isinstance(let.expr, Mul) and quotients & set(let.expr.args)}
    return {needed for value in quotients | products for needed in needs_of(lines[value])}


def uses_of(program: Program) -> Counter[Value]:
    """The number of reads of every value, by lines that a result needs and by results."""
    uses = Counter(program.results.values())
    for let in reversed(program.lets):
        if any(uses[value] for value in let.values):
            uses.update(needs_of(let))
    return uses
