"""Make loops over tiles, and replace a loop of one step by its body.

for t < 1: A   →   A with t := 0        exact: the body runs once, at 0 (MCFuser's dead loops)
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, Symbol

from redalg.lower_tile.ir.program import Last, Loop, Statement, map_statement


def over_tiles(variable: Symbol, span: tuple[Expr, Expr], stages: int, step: tuple[Statement, ...]) -> Loop:
    """The loop over the tiles of a span: pipelined, unless a loop within it is (one prefetches, not both)."""
    start, stop = span
    inner = any(isinstance(one, Loop) and one.pipelined and one.stop != 1 for one in step)
    return Loop(variable, stop, 0 if inner else stages, step, pipelined=not inner, start=start)


def without_single_steps(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements with every loop of one step replaced by its body, within loops too."""
    out: list[Statement] = []
    for statement in body:
        if isinstance(statement, Last):
            out.append(replace(statement, body=without_single_steps(statement.body)))
            continue
        if not isinstance(statement, Loop):
            out.append(statement)
            continue
        inner = without_single_steps(statement.body)
        if statement.stop - statement.start == 1:
            out += [at_first_step(one, statement) for one in inner]
        else:
            out.append(replace(statement, body=inner))
    return tuple(out)


def at_first_step(statement: Statement, loop: Loop) -> Statement:
    """A statement of a loop at its first step."""
    return map_statement(statement, lambda node: node.xreplace({loop.variable: loop.start}))
