"""The interpreter of programs on arrays, and the monoid of a form by it: leaf, merge and finish in any order.

The state is a tuple of named arrays. Nothing here knows which array library runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, final

from sympy import S

from redalg.decompose.cascade import Cascade
from redalg.expression import Value
from redalg.expression.contents import values_of
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.conditioned import Conditioned
from redalg.incremental.arrays.evaluate import Scope, is_whole
from redalg.incremental.arrays.folds import contract_along, count_along, fold_along, some_along
from redalg.incremental.arrays.structured import fold_elements, join_elements
from redalg.incremental.arrays.tape import Recorder, Tape
from redalg.incremental.combine.finish import finish_program, output_program
from redalg.incremental.combine.let import Assign, Fold, Folding, Gather, Join, Let, Program
from redalg.incremental.combine.programs import definitions, leaf_program, merge_program, productions, programs
from redalg.incremental.combine.sources import FIRST, SECOND, tag_slots
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered

Slots = dict[Value, Any]


def run_program(program: Program, scope: Scope, values: Mapping[Value, Any]) -> Slots:
    """The results of a program over the scope's ranges, from the values that it is given."""
    if scope.far:
        return run_lines(program, scope, values)
    arrays = list(map(values.__getitem__, program.inputs))
    tape = tape_of(program, scope, arrays)
    return dict(zip(program.results, tape.run(scope, arrays), strict=True))


def run_lines(program: Program, scope: Scope, values: Mapping[Value, Any]) -> Slots:
    """The same, line by line."""
    plain = scope.over({}, dict(values))
    live, masks = plain, program.domain is not S.true
    for let in program.lets:
        if masks and values_of(program.domain) <= plain.values.keys():  # producers of the mask are made before it
            holds = plain.evaluate(program.domain)
            live, masks = plain.under(holds), False
            live.memo[program.domain] = holds
        run_let(let, plain if isinstance(let, Gather) else live)
    return {slot: plain.values[value] for slot, value in program.results.items()}


Key = tuple[Any, ...]
"""What a tape was recorded for: the library, its dtypes, and those of tensors and inputs."""
tapes: Remembered[dict[Key, Tape]] = Remembered(lambda _: {})
"""Program -> its tapes."""
DTYPE = attrgetter("dtype")


def tape_of(program: Program, scope: Scope, arrays: list[Any]) -> Tape:
    """The tape of a program for arrays like these; it is recorded if there is none."""
    known, ops = tapes(program), scope.ops
    key = (type(ops), ops.compute, ops.device, scope.axes, tuple(scope.tensors), *map(DTYPE, scope.tensors.values()),
           *map(DTYPE, arrays), *map(is_whole, scope.scalars.values()))  # fmt: skip
    if key not in known:
        known[key] = record_tape(program, scope, arrays)
    return known[key]


def record_tape(program: Program, scope: Scope, arrays: list[Any]) -> Tape:
    """Record a program over the first element of every axis."""
    first = (slice(0, 1),) * len(scope.axes)
    sample = scope.over({axis: (start, min(stop, start + 1)) for axis, (start, stop) in scope.ranges.items()})
    recorder = Recorder(scope.ops, sample, [array[first] for array in arrays])
    values = dict(zip(program.inputs, recorder.inputs, strict=True))
    results = run_lines(program, replace(sample, ops=recorder), values)
    return recorder.tape(list(results.values()))


def run_let(let: Let, scope: Scope) -> None:
    """Add what a line defines to the scope's values."""
    if isinstance(let, Assign):
        scope.values[let.value] = scope.at(let.expr, let.precision)
    elif isinstance(let, Fold):
        scope.values[let.value] = _fold(let.folding, scope)
    elif isinstance(let, Gather):
        element = scope.ops.apply(partial(fold_elements, let), scope, *lifted_parts(let, scope))
        scope.values.update(zip(let.values, scope.ops.several(len(let.values), element), strict=True))
    elif isinstance(let, Join):
        element = scope.ops.apply(partial(join_elements, let), scope, *map(scope.evaluate, (*let.first, *let.second)))
        scope.values.update(zip(let.values, scope.ops.several(len(let.values), element), strict=True))


def lifted_parts(let: Gather, scope: Scope) -> list[Any]:
    """The components of the elements that a line folds, an array each."""
    parts = zip(let.parts, let.structure.monoid.components, strict=True)
    return [scope.evaluate(part) if component.integer else scope.number(part) for part, component in parts]


def _fold(folding: Folding, scope: Scope) -> Any:
    places, kind = scope.dims(folding.axes), folding.kind
    if kind in ("count", "any"):
        [condition] = map(scope.evaluate, folding.factors)
        return scope.ops.apply(count_along(places) if kind == "count" else some_along(places), scope, condition)
    factors = [scope.at(factor, folding.precision) for factor in folding.factors]
    fold = contract_along(places) if len(factors) > 1 else fold_along(kind, places, float(folding.identity))
    return scope.ops.apply(fold, scope, *factors)


@final
class Executor:
    """Runs a form on one array library. `policy` says what an empty ratio is: `nan` or `zero`."""

    def __init__(self, form: FusedForm, ops: ArrayOps, policy: str = "nan") -> None:
        self.form, self.ops, self.policy = form, ops, policy
        self.reduced, self.programs = form.cascade.reduced_axes, programs(form)

    def leaf(self, scope: Scope) -> Slots:
        """The state of the block that the scope's ranges name."""
        return run_program(self.programs.of(leaf_program), scope, {})

    def merge(self, scope: Scope, a: Slots, b: Slots) -> Slots:
        """a ⊕ b, a before b."""
        return run_program(self.programs.of(merge_program), scope, tag_slots(a, FIRST) | tag_slots(b, SECOND))

    def identity(self, scope: Scope) -> Slots:
        """The empty state: a leaf of no elements."""
        start, _ = scope.ranges[self.form.cascade.axis]
        return self.leaf(scope.over({self.form.cascade.axis: (start, start)}, dict(scope.values)))

    def finish(self, scope: Scope, slots: Slots) -> dict[str, Any]:
        """The outputs of a state that carry no reduced axis, each with one dimension per axis."""
        return self.outputs(scope, self.finish_values(scope, slots), carries=False)

    def finish_values(self, scope: Scope, slots: Slots) -> Slots:
        """The values that `finish` knows: the slots, the pivots, and every value that it assigns."""
        return run_program(self.programs.of(finish_program), scope, slots)

    def outputs(self, scope: Scope, values: Slots, *, carries: bool) -> dict[str, Any]:
        """The outputs from the resolved values. If they carry a reduced axis, they span the scope's range of it."""
        program = self.programs.of(output_program, carries=carries, empty=self.policy)
        arrays = run_program(program, scope, values)
        return {value.name: array for value, array in arrays.items()}

    def conditions(self, scope: Scope, values: Slots, *, carries: bool) -> dict[str, Any]:
        """κ of the outputs that `outputs` returns for the same arguments (`conditioned`)."""
        outputs = [one for one in self.form.outputs if one.carries is carries]
        used = {value for one in outputs for value in values_of(one.expr)}
        read = used & {producer.value for producer in self.form.cascade.producers} - values.keys()
        known = {**produce(self.form.cascade, scope), **values} if read else values
        conditioned = Conditioned(self.form, scope.over({}, known))
        return {one.name: conditioned.of(one) for one in outputs}


def interpret_cascade(cascade: Cascade, scope: Scope) -> dict[str, Any]:
    """The outputs by the definition, reduction by reduction: the interpreter of the Cascade, and the reference."""
    return {value.name: array for value, array in run_program(definitions(cascade), scope, {}).items()}


def produce(cascade: Cascade, scope: Scope) -> Slots:
    """The producers over the scope's ranges, as they are defined."""
    return run_program(productions(cascade), scope, {})
