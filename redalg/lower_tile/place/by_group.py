"""A sweep over elements by group, as a kernel: one loop, which takes every element into the sums of its group.

    for n: g = keys[n];  found[g, k] ⊕= f_k(x[n], known[g, 0], known[g, 1], …)      for every fold k
           for e: found_columns[g, k, e] ⊕= f_k(x[n], v[n, e], known[g, …], known_columns[g, …, e])

`known` holds the values of groups that the sweep reads, side by side, and `found` what it makes: an element touches few
places in memory, whatever the number of folds. The loop is in order; its arithmetic is float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from sympy import Expr, Integer, Max, Min, S
from sympy.core.basic import Basic

from redalg.errors import PlanError
from redalg.expression import Axis, Element, Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.let import Assign, Fold
from redalg.incremental.combine.sweeps import Sweep
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.names import kernel_name
from redalg.lower_tile.ir.program import Bind, Kernel, Loop, Parallel, Parameter, Statement, Store, TileProgram, index
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.lower_tile.passes.subexpressions import eliminate_common_subexpressions
from redalg.lower_tile.place.expressions import scaled_exp, with_tests, without_factors
from redalg.lower_tile.place.space import E_, J, Space, keep_nan
from redalg.strategies.plan import Plan, Problem

KEYS, KNOWN, FOUND = "group_keys", "group_known", "group_found"
KNOWN_COLUMNS, FOUND_COLUMNS = "group_known_columns", "group_found_columns"
"""Parameters: no tensor of a user has these names."""
ELEMENTS, GROUPS = index("elements"), index("groups")
"""Run-time sizes."""
EACH = index("each")
GROUP = Load(KEYS, J)


@final
@dataclass(frozen=True)
class Sides:
    """The values of groups that a kernel reads and makes, by the array that holds them side by side.

    Attributes:
        known, known_columns: values that it reads: one for every group, or one for every column of it.
        found, found_columns: folds, likewise.
    """

    known: tuple[Value, ...]
    known_columns: tuple[Value, ...]
    found: tuple[Fold, ...]
    found_columns: tuple[Fold, ...]

    @classmethod
    def of_sweep(cls, sweep: Sweep) -> Sides:
        """The sides of a sweep's kernel."""
        known = (tuple(value for value in sweep.reads if bool(value.indices) is wide) for wide in (False, True))
        found = (tuple(fold for fold in sweep.folds if bool(fold.value.indices) is wide) for wide in (False, True))
        return cls(*known, *found)

    @property
    def reads(self) -> dict[str, tuple[Value, ...]]:
        """The arrays that a kernel reads, by name, without those that are empty."""
        arrays = {KNOWN: self.known, KNOWN_COLUMNS: self.known_columns}
        return {name: side for name, side in arrays.items() if side}

    @property
    def makes(self) -> dict[str, tuple[Fold, ...]]:
        """The arrays that a kernel makes, likewise."""
        arrays = {FOUND: self.found, FOUND_COLUMNS: self.found_columns}
        return {name: side for name, side in arrays.items() if side}


def program_of_sweep(
    sweep: Sweep, axis: Axis, column: Axis | None, plan: Plan, *, problem: Problem, elements: tuple[Element, ...]
) -> TileProgram:  # fmt: skip
    """The program of a sweep over tensors that lie along the axis, and along one more if there are columns.

    Raises:
        PlanError: an expression is one that kernels lack.
    """
    space = Space(plan, problem, {axis: J} | ({} if column is None else {column: E_}), {})
    sides = Sides.of_sweep(sweep)
    reads: dict[Value, Expr] = {value: Load(KNOWN, GROUP, Integer(place)) for place, value in enumerate(sides.known)}
    binds = list[Bind]()
    if sides.found_columns:  # the loop over columns finds them ready
        binds += [Bind(f"{KNOWN}_{place}", read, "float64") for place, read in enumerate(reads.values())]
        reads = {value: Load(f"{KNOWN}_{place}") for place, value in enumerate(sides.known)}
    reads |= {value: Load(KNOWN_COLUMNS, GROUP, Integer(place), E_) for place, value in enumerate(sides.known_columns)}
    for line in sweep.lines:
        reads[line.value] = element_line(line, space, reads)
        if sides.found_columns and column not in line.value.indices:
            binds.append(Bind(f"line_{len(binds)}", reads[line.value], "float64"))
            reads[line.value] = Load(binds[-1].name)
    stores = [_store(fold, Load(FOUND, GROUP, Integer(place)), space, reads) for place, fold in enumerate(sides.found)]
    columns = [_store(fold, Load(FOUND_COLUMNS, GROUP, Integer(place), E_), space, reads)
               for place, fold in enumerate(sides.found_columns)]  # fmt: skip
    body: list[Statement] = [*binds, *([Parallel(((EACH, 1),), tuple(stores))] if stores else [])]
    width = 1 if column is None else int(problem.sizes[column.name])
    body += [Parallel(((E_, width),), tuple(columns))] if columns else []
    read = {load.name for bind in binds for load in bind.value.atoms(Load)}
    read |= {load.name for store in (*stores, *columns) for load in store.expr.atoms(Load)}
    named = {kernel_name(element.name): element for element in elements}
    inputs = [Parameter(name, _shape(element, axis, width), problem.dtypes[element.name], "input", element.name)
              for name, element in named.items() if name in read]  # fmt: skip
    loop = Loop(J, ELEMENTS, 0, tuple(body), pipelined=False)
    kernel = Kernel(((index("block"), 1),), (), (loop,), "every element into its group")
    parameters = (*inputs, *_group_parameters(sides, width))
    program = TileProgram("groups", parameters, (kernel,), "float64", (ELEMENTS, GROUPS))
    program = eliminate_common_subexpressions(program)
    verify(program)
    return program


def _shape(element: Element, axis: Axis, width: int) -> tuple[Expr | int, ...]:
    return tuple(ELEMENTS if one == axis else width for one in element.indices)


def _group_parameters(sides: Sides, width: int) -> Iterator[Parameter]:
    yield Parameter(KEYS, (ELEMENTS,), "int64", "input", KEYS)
    numbers = {name: len(side) for name, side in (*sides.reads.items(), *sides.makes.items())}
    for name, number in numbers.items():
        columns = (width,) if name in (KNOWN_COLUMNS, FOUND_COLUMNS) else ()
        yield Parameter(name, (GROUPS, number, *columns), "float64", "output" if name in sides.makes else "input", name)


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
