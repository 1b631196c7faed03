"""Stretches of rows that lie on whole lines of the L2 cache."""

from __future__ import annotations

from sympy import Add, Expr

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.program import Parameter
from redalg.strategies.device import LINE_BYTES


def is_part_of_lines(start: Expr, length: int, source: Parameter) -> bool:
    """Tell if a stretch of a parameter's rows is one of equal parts that lie on whole lines."""
    equal = bool(source.shape[-1] % length == 0) and length * DTYPES[source.dtype].bytes % LINE_BYTES == 0
    return equal and all(term.as_coeff_Mul()[0] % length == 0 for term in Add.make_args(start))
