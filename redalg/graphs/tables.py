"""Tables that are equal: what depends on no tensor, by the same terms, is one tensor for all who read it.

    mask_5[i, j] = where(i < 49, 1, 0)    mask_7[i, j] = where(i < 49, 1, 0)    →    whoever reads mask_7 reads mask_5

Each layer of a model fills a mask of its own, piece by piece. A compiler sees other tensors, as each is filled on one
that the layer made for it.
"""

from __future__ import annotations

from redalg.graphs.analysis import Analysis, Kind
from redalg.graphs.program import TensorExpression
from redalg.graphs.structure import line_of


def equal_tables(analysis: Analysis) -> dict[str, str]:
    """Table → the first one that is equal to it. One that leaves the program, as it is or by views, stays itself."""
    program, classes = analysis.program, dict[tuple[object, ...], str]()
    first, same, leaving = dict[str, str](), dict[str, str](), leaving_tensors(analysis)
    for expression in program.expressions():
        if not first.keys() >= {*expression.reads}:
            continue
        text, tensors = line_of(expression, program.types)
        name = expression.name
        first[name] = classes.setdefault((text, *(first[each] for each in tensors if each != name)), name)
        if first[name] != name and name in analysis.tables and not {name, first[name]} & leaving:
            same[name] = first[name]
    return same


def leaving_tensors(analysis: Analysis) -> set[str]:
    """The outputs of a program, and what they are views of."""
    leaving = {*analysis.program.outputs}
    for statement in reversed(analysis.program.statements):
        if isinstance(statement, TensorExpression) and analysis.kinds[statement.name] is Kind.VIEW:
            leaving |= {*statement.reads} if statement.name in leaving else set()
    return leaving
