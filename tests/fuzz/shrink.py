"""Findings made small: the least expression, data and way that still show them, as one line of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from sympy import Expr, S
from sympy.core.basic import Basic

import redalg as ra
from redalg.expression import Axis, Reduce
from redalg.expression.rebuild import with_args
from tests.fuzz.case import Case, Outputs, axes_of
from tests.fuzz.data import Data
from tests.fuzz.executions import Executions, Finding, judged
from tests.fuzz.spell import preamble, spelled
from tests.fuzz.verdicts import RAW, decide

STEPS = 400
"""Candidates that are tried at most."""


def smaller(expr: Basic) -> Iterator[Basic]:
    """Expressions with one node replaced by one of its parts or by a number, larger cuts first."""
    if isinstance(expr, Reduce):
        yield from (expr.rebuilt(one, expr.bound) for one in smaller(expr.expr) if isinstance(one, Expr))
        return
    parts = [one for one in expr.args if isinstance(one, Expr) and not isinstance(one, Axis)]
    if isinstance(expr, ra.Element) or not isinstance(expr, Expr):
        parts = []
    yield from parts
    if isinstance(expr, Expr) and not expr.is_number:
        yield from (S.One, S.Zero)
    if (expr.is_Add or expr.is_Mul) and len(expr.args) > 2:
        yield from (expr.func(*(one for one in expr.args if one is not left)) for left in expr.args)
    if isinstance(expr, ra.Element):
        return
    for number, part in enumerate(expr.args):
        for made in smaller(part):
            yield with_args(expr, [*expr.args[:number], made, *expr.args[number + 1 :]])


def candidates(outputs: Outputs) -> Iterator[Outputs]:
    """Smaller outputs: one of several, a part of one, one with a smaller part."""
    if len(outputs) > 1:
        yield from ({name: one} for name, one in outputs.items())
        return
    [(name, (expr, _))] = outputs.items()
    for made in smaller(expr):
        if isinstance(made, Expr) and made.has(Reduce):
            yield {name: (made, axes_of(made))}


def shrunk(outputs: Outputs, shows: Callable[[Outputs], bool]) -> Outputs:
    """The least outputs found that still show a finding."""
    left = STEPS
    while left > 0:
        found = None
        for one in islice(candidates(outputs), left):
            left -= 1
            if safely(shows, one):
                found = one
                break
        if found is None:
            return outputs
        outputs = found
    return outputs


def safely(shows: Callable[[Outputs], bool], outputs: Outputs) -> bool:
    try:
        return shows(outputs)
    except Exception:  # noqa: BLE001 - another failure is not the finding
        return False


def found_again(outputs: Outputs, data: Data, way: str, kind: str, error: str = "") -> Finding | None:
    """The finding of a kind that outputs show on data, run in one way; an error is of a class."""
    decision = decide(Case("shrunk", 0, outputs))
    if decision.kind != "Exact":
        return None
    found = judged(outputs, decision.verdict.fused, data, Executions(), [way])
    return next((one for one in found if one.kind == kind and one.said.startswith(error)), None)


def least(finding: Finding) -> Finding:
    """A finding of the same kind in fewer places, of moderate data if those show it, and of the least expression."""
    error = finding.said.split(":", maxsplit=1)[0] if finding.kind == "raw error" else ""
    for way in ("numpy", "in twos", "merged"):
        again = found_again(finding.outputs, finding.data, way, finding.kind, error)
        if again is not None:
            finding = again
            break
    for change in ({"kind": "plain"}, *({"length": length} for length in (1, 2, 3, 5))):
        data = replace(finding.data, **change)
        if data.length <= finding.data.length:
            finding = found_again(finding.outputs, data, finding.way, finding.kind, error) or finding

    def shows(outputs: Outputs) -> bool:
        return found_again(outputs, finding.data, finding.way, finding.kind, error) is not None

    outputs = shrunk(finding.outputs, shows)
    return found_again(outputs, finding.data, finding.way, finding.kind, error) or finding


def line_of(finding: Finding) -> str:
    """One line of Python that shows a finding."""
    given = ", ".join(f'"{name}": ({spelled(expr)}, "{axes}")' for name, (expr, axes) in finding.outputs.items())
    data = finding.data
    return (
        f"from tests.fuzz.shrink import *; {preamble(finding.outputs)}; "
        f'print(found_again({{{given}}}, Data({data.seed}, {data.length}, "{data.kind}"), "{finding.way}", '
        f'"{finding.kind}"))'
    )


def least_raw(outputs: Outputs, said: str) -> Outputs:
    """The least outputs whose verdict ends in the same raw error."""
    error = said.split(":", maxsplit=1)[0]

    def shows(one: Outputs) -> bool:
        decision = decide(Case("shrunk", 0, one))
        return decision.kind == RAW and decision.reason.startswith(error)

    return shrunk(outputs, shows)


__all__ = ["Data", "found_again", "least", "least_raw", "line_of", "shrunk"]
