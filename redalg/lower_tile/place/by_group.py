"""A sweep over elements by group, as a kernel: one loop, which takes every element into the sums of its group.

    for n: g = keys[n];  found[g, k] ⊕= f_k(x[n], known[g, 0], known[g, 1], …)      for every fold k

`known` holds the values of groups that the sweep reads, side by side, and `found` what it makes: an element touches two
places in memory, whatever the number of folds. The loop is in order; its arithmetic is float64.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Expr, Integer, Max, Min, S, Symbol
from sympy.core.basic import Basic

from redalg.errors import PlanError
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.let import Assign, Fold
from redalg.incremental.combine.sweeps import Sweep
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.names import kernel_name
from redalg.lower_tile.ir.program import Kernel, Loop, Parallel, Parameter, Store, TileProgram, index
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.lower_tile.passes.subexpressions import eliminate_common_subexpressions
from redalg.lower_tile.place.expressions import scaled_exp, with_tests, without_factors
from redalg.lower_tile.place.space import J, Space, keep_nan
from redalg.strategies.plan import Plan, Problem

KEYS, KNOWN, FOUND = "keys", "known", "found"
ELEMENTS, GROUPS = index("elements"), index("groups")
"""Run-time sizes."""
EACH = index("each")


def program_of_sweep(sweep: Sweep, axis: Axis, plan: Plan, problem: Problem) -> TileProgram:
    """The program of a sweep over tensors that lie along the axis alone.

    Raises:
        PlanError: an expression is one that kernels lack.
    """
    space = Space(plan, problem, {axis: J}, {})
    group = Load(KEYS, J)
    reads: dict[Value, Expr] = {value: Load(KNOWN, group, Integer(place)) for place, value in enumerate(sweep.reads)}
    for line in sweep.lines:
        reads[line.value] = element_line(line, space, reads)
    stores = tuple(_store(fold, Load(FOUND, group, Integer(place)), space, reads)
                   for place, fold in enumerate(sweep.folds))  # fmt: skip
    tensors = sorted({read.name for store in stores for read in store.expr.atoms(Load)} - {KEYS, KNOWN, FOUND})
    inputs = [Parameter(kernel_name(name), (ELEMENTS,), problem.dtypes[name], "input", name) for name in tensors]
    parameters = (
        *inputs,
        Parameter(KEYS, (ELEMENTS,), "int64", "input", KEYS),
        Parameter(KNOWN, (GROUPS, max(len(sweep.reads), 1)), "float64", "input", KNOWN),
        Parameter(FOUND, (GROUPS, len(sweep.folds)), "float64", "output", FOUND),
    )
    loop = Loop(J, ELEMENTS, 0, (Parallel(((EACH, 1),), stores),), pipelined=False)
    kernel = Kernel(((index("block"), 1),), (), (loop,), "every element into its group")
    program = TileProgram("groups", parameters, (kernel,), "float64", (ELEMENTS, GROUPS))
    program = eliminate_common_subexpressions(program)
    verify(program)
    return program


def element_line(line: Assign, space: Space, reads: Mapping[Value, Expr]) -> Expr:
    """A line of elements, as reads of tensors and of values of groups; a sum stays one number in what reads it."""
    if line.moves:
        made: Expr = S.One
        for q, u, c in line.moves:
            made *= scaled_exp(element_expr(u, space, reads), element_expr(c, space, reads), space.read(q))
        return made
    read = element_expr(line.expr, space, reads)
    return Kept(read) if read.is_Add else read


def element_expr(expr: Basic, space: Space, reads: Mapping[Value, Expr]) -> Expr:
    """An expression as reads of tensors and of values of groups."""
    tests = with_tests(expr)
    read: Expr = space.with_values({value: reads[value] for value in values_of(tests)}).read(tests)
    return without_factors(read)


def _store(fold: Fold, target: Load, space: Space, reads: Mapping[Value, Expr]) -> Store:
    kind, factors = fold.folding.kind, fold.folding.factors
    terms = [element_expr(factor, space, reads) for factor in factors]
    if kind in ("count", "any"):
        terms = [S.One if terms[0] == S.true else Where(terms[0], S.One, S.Zero)]
    if kind in ("sum", "count", "any"):
        expr = target + Kept(terms[0] if len(terms) == 1 else _product(terms))
    elif kind == "prod":
        expr = target * terms[0]
    elif kind in ("max", "min"):
        expr = keep_nan(Max if kind == "max" else Min, [target, terms[0]])
    else:
        raise PlanError(f"no kernel folds by {kind}.")
    return Store(target.name, target.indices, expr)


def _product(terms: list[Expr]) -> Expr:
    made: Expr = S.One
    for term in terms:
        made *= term
    return made


def sizes_of_sweep(elements: int, groups: int) -> dict[Symbol, int]:
    """The run-time sizes of a program."""
    return {ELEMENTS: elements, GROUPS: groups}
