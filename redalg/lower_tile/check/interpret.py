"""The NumPy interpreter of the tile program: block after block, statement after statement, as the IR says.

It runs what the generated kernel runs, in the same order and dtypes, without TileLang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any, final

import numpy as np
from sympy import Abs, Add, And, Expr, Max, Min, Mod, Mul, Not, Or, Pow, S, Symbol, ceiling, exp, floor, log, sign
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.core.symbol import Str

from redalg.errors import PlanError
from redalg.expression import Cast, Where
from redalg.expression.dtypes import is_emulated
from redalg.expression.operators import numpy_function, operator_of
from redalg.incremental.arrays.numpy_ops import NumpyOps
from redalg.lower_tile.check.clusters import run_blocks, variables_at
from redalg.lower_tile.check.turns import Blocks, kernels_in_order, points_of_blocks
from redalg.lower_tile.ir.powers import above_and_below, factors_of_power, is_negative_power, is_rsqrt
from redalg.lower_tile.ir.program import (
    Bind,
    Contract,
    Copy,
    Fill,
    JoinBest,
    Keep,
    Kernel,
    Last,
    Loop,
    Parallel,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
)
from redalg.lower_tile.ir.runtime_sizes import shape_at, sizes_in
from redalg.lower_tile.ir.scalars import (
    FAR,
    Divided,
    Fma,
    Instruction,
    Is,
    IsFinite,
    IsNaN,
    Kept,
    Load,
    Ordered,
    OrderedValue,
    Places,
    Ranked,
    RankedIndex,
    RankedValue,
    Rate,
    Rounded,
    ScaledExp,
    TwoTo,
    Wide,
    Within,
    terms_in_order,
)
from redalg.lower_tile.text.expr_printer import is_of_places

UNWRITTEN = 113
"""The value of every element of an integer array before it is written."""
RELATIONS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
PARTS: dict[str, Callable[..., Any]] = {
    "Mantissa": lambda x: np.frexp(x)[0],
    "Exponent": lambda x: np.where(np.isfinite(x), np.frexp(x)[1], 0),
    "Scaled": np.ldexp,
    "Powered": NumpyOps().times_power,
}
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def interpret(
    program: TileProgram, arguments: Mapping[str, Any], *, order: Callable[[Blocks], Blocks] = iter
) -> dict[str, Any]:
    """Run a program on NumPy arrays and numbers by name; return outputs (and workspaces, counters) by name.

    Args:
        program: the tile program.
        arguments: arrays and numbers, by the user's names.
        order: puts the blocks of a launch in another order; no result may depend on it.
    """
    inputs = [one for one in program.parameters if one.role in ("input", "scalar")]
    memory = {one.name: np.asarray(arguments[one.key]) for one in inputs}
    sizes = sizes_in(inputs, {one.key: memory[one.name].shape for one in inputs})
    memory |= {one.name: memory[one.name].reshape(shape_at(one.shape, sizes)) for one in inputs if one.shape}
    arrays = dict[str, Any]()  # by the key: several parameters of one are one array
    for parameter in program.parameters:
        if parameter.role in ("output", "workspace"):
            shape, dtype = shape_at(parameter.shape, sizes), emulation_dtype(parameter.dtype)
            filler = np.nan if parameter.dtype.startswith(("float", "bfloat")) else UNWRITTEN
            array = arrays.setdefault(parameter.key, np.full(shape, filler, dtype))
            memory[parameter.name] = array.reshape(-1)[: prod(shape)].reshape(shape)
        if parameter.role == "counter":
            memory[parameter.name] = np.zeros(shape_at(parameter.shape, sizes), parameter.dtype)
    with np.errstate(all="ignore"):
        for kernel, instances in kernels_in_order(program, memory):
            extents = shape_at(tuple(extent for _, extent in kernel.grid), sizes)
            for points in order(points_of_blocks(kernel, extents)):
                blocks = [_Block(kernel, memory, program.compute) for _ in range(kernel.cluster)]
                taken = [place for place in points if instances is None or place[-1] in instances]
                run_blocks(blocks, kernel, [variables_at(kernel, place, sizes) for place in taken])
    counters = {one.key: memory[one.name] for one in program.parameters if one.role == "counter"}
    return {**arrays, **counters}


def emulation_dtype(dtype: str) -> str:
    """The dtype of a NumPy array: float32 for a dtype that NumPy lacks, whose values are rounded when stored."""
    return "float32" if is_emulated(dtype) else dtype


@final
class _Block:
    def __init__(self, kernel: Kernel, memory: dict[str, Any], compute: str) -> None:
        self.kernel, self.memory, self.compute = kernel, memory, np.dtype(compute)
        self.variables: dict[Symbol, Any] = {}
        self.rounding = {one.name: one.dtype for one in kernel.buffers if is_emulated(one.dtype)}
        self.tiles = {one.name: np.zeros(one.shape, emulation_dtype(one.dtype)) for one in kernel.buffers}

    def execute(self, statement: Statement) -> None:
        {
            Bind: self._bind,
            Copy: self._copy,
            Keep: lambda _: None,
            Fill: self._fill,
            Contract: self._contract,
            ReduceTile: self._reduce,
            JoinBest: self._join,
            Parallel: self._parallel,
            Loop: self._loop,
            Last: self._last,
        }[type(statement)](statement)  # type: ignore[operator]

    # ---- statements --------------------------------------------------------------------------------------------------

    def _bind(self, bind: Bind) -> None:
        self.tiles[bind.name] = np.asarray(self.value(bind.value)).astype(emulation_dtype(bind.dtype))

    def _copy(self, copy: Copy) -> None:
        rest = np.nan if copy.in_bulk else 0  # which no statement may read
        value = self._read(copy.source, rest) if isinstance(copy.source, Region) else self.tiles[copy.source]
        if isinstance(copy.target, Region):
            region = copy.target
            if copy.count is not None and region.name in self.memory:  # what follows is another block's
                [*others, last] = region.place
                length = int(self.value(copy.count))
                value = value[..., :length]
                region = replace(region, place=(*others, (last[0], length) if isinstance(last, tuple) else last))
            self._write(region, value)
        else:
            self.tiles[copy.target][...] = self._round_to_dtype(copy.target, value)

    def _array(self, name: str) -> Any:
        """The array of a parameter or of a tile."""
        return self.tiles[name] if name in self.tiles else self.memory[name]

    def _spans(self, region: Region) -> Iterator[tuple[int, int, int]]:
        """(first, last + 1, wanted length) of every dimension; the first two are cut to the elements that exist."""
        for place, size in zip(region.place, self._array(region.name).shape, strict=True):
            start = int(self.value(place[0] if isinstance(place, tuple) else place))
            length = place[1] if isinstance(place, tuple) else 1
            yield min(max(start, 0), size), min(max(start + length, 0), size), length

    def _read(self, region: Region, rest: float = 0) -> Any:
        spans = list(self._spans(region))
        part = self._array(region.name)[tuple(slice(a, b) for a, b, _ in spans)]
        whole = np.full([length for _, _, length in spans], rest, part.dtype)
        whole[tuple(slice(0, size) for size in part.shape)] = part
        return whole.reshape([p[1] for p in region.place if isinstance(p, tuple)])

    def _write(self, region: Region, tile: Any) -> None:
        spans = list(self._spans(region))
        tile = tile.reshape([length for _, _, length in spans])
        cut = tile[tuple(slice(0, b - a) for a, b, _ in spans)]
        self._array(region.name)[tuple(slice(a, b) for a, b, _ in spans)] = self._round_to_dtype(region.name, cut)

    def _fill(self, fill: Fill) -> None:
        self.tiles[fill.buffer][...] = int(fill.value) if fill.value.is_Integer else float(fill.value)

    def _contract(self, contract: Contract) -> None:
        if not np.all(self.value(contract.guard)):
            return
        a, b = (self.tiles[name].astype(self.compute) for name in (contract.a, contract.b))
        product = (a.T if contract.turned else a) @ (b.T if contract.transposed else b)
        self.tiles[contract.c][...] = product if contract.clear else self.tiles[contract.c] + product

    def _reduce(self, reduction: ReduceTile) -> None:
        result = COMBINE[reduction.kind].reduce(self.tiles[reduction.source], axis=reduction.dim)
        self.tiles[reduction.target][...] = (
            result if reduction.clear else COMBINE[reduction.kind](self.tiles[reduction.target], result)
        )

    def _join(self, join: JoinBest) -> None:
        best = self.tiles[join.best]
        best[...] = np.sort(np.concatenate((best, self.tiles[join.rank]), axis=1), axis=1)[:, : -best.shape[1] - 1 : -1]

    def _loop(self, loop: Loop) -> None:
        for step in range(int(self.value(loop.start)), int(self.value(loop.stop))):
            self.variables[loop.variable] = step
            for statement in loop.body:
                self.execute(statement)

    def _last(self, last: Last) -> None:
        """Run the body if this block comes last. Blocks run one after another here, so it is the last to run."""
        counter, place = self.memory[last.counter], tuple(int(self.value(index)) for index in last.place)
        counter[place] = (counter[place] + 1) % last.parts
        self.tiles[last.flag][...] = counter[place] == 0
        if counter[place] == 0:
            for statement in last.body:
                self.execute(statement)

    def _parallel(self, loop: Parallel) -> None:
        if not np.all(self.value(loop.guard)):
            return
        for place, (name, extent) in enumerate(loop.indices):
            self.variables[name] = np.arange(extent).reshape(
                [-1 if d == place else 1 for d in range(len(loop.indices))]
            )
        shape = tuple(extent for _, extent in loop.indices)
        for store in loop.body:
            self._store(store, shape)
        for name, _ in loop.indices:
            del self.variables[name]

    def _store(self, store: Store, shape: tuple[int, ...]) -> None:
        value = np.broadcast_to(self.value(store.expr), shape)
        if not store.indices and store.target in self.tiles:  # a number of every element, which later stores read
            dtype = self.tiles[store.target].dtype
            self.tiles[store.target] = self._round_to_dtype(store.target, value).astype(dtype)
            return
        where = [np.broadcast_to(self.value(index), shape) for index in store.indices]
        target = self.tiles[store.target] if store.target in self.tiles else self.memory[store.target]
        keep = np.broadcast_to(self.value(store.guard), shape)
        for index, size in zip(where, target.shape, strict=True):
            keep = keep & (index >= 0) & (index < size)
        target[tuple(index[keep] for index in where)] = self._round_to_dtype(store.target, value[keep])

    def _round_to_dtype(self, name: str, value: Any) -> Any:
        """The value, rounded as a buffer of a narrow dtype holds it."""
        return NumpyOps("float32").round_to(value, self.rounding[name]) if name in self.rounding else value

    # ---- expressions -------------------------------------------------------------------------------------------------

    def value(self, node: Basic) -> Any:
        """The value of a scalar expression at the current indices; parts that several share are computed once."""
        self.values = dict[tuple[Basic, Any], Any]()
        return self._part(node)

    def _part(self, node: Basic) -> Any:
        """The value of a part of the expression."""
        if isinstance(node, Symbol):
            return self.variables[node]
        key = node, self.compute
        if key not in self.values:
            self.values[key] = self._operation(node)
        return self.values[key]

    def _operation(self, node: Basic) -> Any:
        if isinstance(node, Load):
            return self._load(node)
        if isinstance(node, Expr) and node.is_number:
            return int(node) if node.is_Integer else self.compute.type(float(node))
        if isinstance(node, Where):
            return np.where(*map(self._part, node.args))
        if isinstance(node, Relational):
            wide = np.dtype("float64") if is_of_places(node) else self.compute
            return RELATIONS[node.rel_op](*(self._in(wide, side) for side in node.args))
        if isinstance(node, Places):
            return whole_place(self._in(np.dtype("float64"), node.args[0]), int(node.args[1]))
        if isinstance(node, Wide):
            return np.asarray(self._in(np.dtype("float64"), node.args[0])).astype(self.compute)
        return self._function(node, [self._part(arg) for arg in node.args if not isinstance(arg, Str)])

    def _in(self, dtype: np.dtype[Any], node: Basic) -> Any:
        """The value of an expression that is computed in a dtype."""
        compute, self.compute = self.compute, dtype
        value = self._part(node)
        self.compute = compute
        return value

    def _load(self, node: Load) -> Any:
        source = self.tiles[node.name] if node.name in self.tiles else self.memory[node.name]
        if not node.indices:
            return source.astype(self.compute) if np.issubdtype(source.dtype, np.floating) else source
        where = np.broadcast_arrays(*(self._part(index) for index in node.indices))
        inside = np.ones(where[0].shape, bool)
        for index, size in zip(where, source.shape, strict=True):
            inside &= (index >= 0) & (index < size)
        places = tuple(np.clip(index, 0, size - 1) for index, size in zip(where, source.shape, strict=True))
        values = source[places]
        values = values.astype(self.compute) if np.issubdtype(values.dtype, np.floating) else values
        return np.where(inside, values, np.zeros((), values.dtype))

    def _function(self, node: Basic, args: list[Any]) -> Any:
        if isinstance(node, Add | Mul | Max | Min):
            return self._fold(node, args)
        if type(node).__name__ in PARTS:
            return PARTS[type(node).__name__](*args)
        if isinstance(node, ScaledExp):
            u, c, q = args
            return np.exp((u - c) * np.asarray(q, self.compute))
        if isinstance(node, Instruction | Kept):
            return instruction(node.name, args[0]) if isinstance(node, Instruction) else args[0]
        if isinstance(node, Pow):
            return self._power(node, *args)
        if type(node) in OWN:
            return OWN[type(node)](*args)
        if isinstance(node, And | Or):
            return (np.logical_and if isinstance(node, And) else np.logical_or).reduce(np.broadcast_arrays(*args))
        simple = {
            Not: np.logical_not,
            IsFinite: np.isfinite,
            IsNaN: np.isnan,
            exp: np.exp,
            log: np.log,
            Abs: np.abs,
            floor: np.floor,
            ceiling: np.ceil,
            sign: np.sign,
        }
        if isinstance(node, floor | ceiling):
            above, below = (np.asarray(self._part(one)) for one in node.args[0].as_numer_denom())
            if all(np.issubdtype(one.dtype, np.integer) for one in (above, below)):
                return above // below if isinstance(node, floor) else -(-above // below)
        if isinstance(node, Mod):
            return args[0] % args[1]
        if type(node) in simple:
            return simple[type(node)](args[0])
        operator = operator_of(node)
        if operator is not None and operator.kernel:
            return np.asarray(numpy_function(operator)(*args)).astype(self.compute)
        if node in (S.true, S.false):
            return node == S.true
        if isinstance(node, Cast):
            return NumpyOps(str(self.compute)).round_to(args[0], node.dtype)
        raise PlanError(f"`{node}`: the tile interpreter has no function `{type(node).__name__}`.")

    def _fold(self, node: Basic, args: list[Any]) -> Any:
        operation = {Add: np.add, Mul: np.multiply, Max: np.maximum, Min: np.minimum}[type(node)]
        if isinstance(node, Add):
            args = [args[node.args.index(term)] for term in terms_in_order(node.args)]
        total = args[0]
        for operand in args[1:]:
            total = operation(total, operand)
        return total

    def _power(self, node: Pow, base: Any, power: Any) -> Any:
        if factors := factors_of_power(node):
            return np.multiply(*map(self._part, factors))
        if node.exp == S.Half:
            return np.sqrt(base)
        if is_rsqrt(node):
            return self.compute.type(1) / np.sqrt(base)
        if is_negative_power(node):
            unit, sides = self.compute.type(1), above_and_below((node,))
            above, below = (reduce(np.multiply, map(self._part, side), unit) for side in sides)
            return above / below
        return np.power(np.asarray(base, self.compute), np.asarray(power, self.compute))


def float_rank(x: Any, n: Any) -> Any:
    """The order of a float's bits (NaN first, both zeros as one), then 2³² − 1 − n."""
    bits = np.asarray(x, np.float32).view(np.int32)
    order = np.where(bits < 0, bits ^ LOW_BITS, bits)
    order = np.where(np.isnan(x), LOW_BITS, np.where(order == -1, 0, order)).astype(np.int64)
    return (order << 32) | (0xFFFFFFFF - np.asarray(n, np.int64))


def ranked_value(rank: Any) -> Any:
    """The float that a rank was made of."""
    order = (rank >> 32).astype(np.int32)
    values = np.where(order < 0, order ^ LOW_BITS, order).astype(np.int32).view(np.float32)
    return np.where(order == np.iinfo(np.int32).min, np.float32(-np.inf), values)


def ranked_index(rank: Any) -> Any:
    """The place that a rank was made of."""
    rest = rank & 0xFFFFFFFF
    return np.where(rest == 0, -1, 0xFFFFFFFF - rest)


def double_order(x: Any) -> Any:
    """The order of a double's bits (NaN first, both zeros as one)."""
    bits = np.asarray(x, np.float64).view(np.int64)
    order = np.where(bits < 0, bits ^ LOW_BITS_64, bits)
    return np.where(np.isnan(x), LOW_BITS_64, np.where(order == -1, 0, order))


def ordered_value(order: Any) -> Any:
    """The double that an order was made of."""
    values = np.asarray(np.where(order < 0, order ^ LOW_BITS_64, order), np.int64).view(np.float64)
    return np.where(order == np.iinfo(np.int64).min, -np.inf, values)


def multiply_add(a: Any, k: Any, c: Any) -> Any:
    """a·k + c, rounded once."""
    return (np.multiply(a, k, dtype=np.longdouble) + c).astype(np.result_type(a))


def rate(c: Any, k: Any, power: Any) -> Any:
    """k; the power of 2 where |c·k| ≥ 2^27."""
    return np.where(np.abs(c) < 2.0**27 / np.abs(k), k, power).astype(np.result_type(c))


LOW_BITS, LOW_BITS_64 = np.int32(0x7FFFFFFF), np.int64(0x7FFFFFFFFFFFFFFF)


def whole_place(x: Any, n: Any) -> Any:
    """⌊x⌋, the nearest integer within 2^30 of 0; n for NaN."""
    near = np.clip(np.floor(x), -FAR, FAR)
    return np.where(np.isnan(near), n, near).astype(np.int32)


def instruction(name: str, x: Any) -> Any:
    """A function as the hardware has it: 0 below 2^-126."""
    exact = INSTRUCTIONS[name](x)
    return np.where(np.abs(exact) < np.finfo(np.float32).tiny, np.zeros_like(exact), exact)


INSTRUCTIONS: dict[str, Any] = {
    "power_of_two": np.exp2, "reciprocal_of": np.reciprocal, "root_of": np.sqrt,
    "inverse_root_of": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
OWN: dict[type, Any] = {
    Is: np.equal, Within: lambda condition, _: condition, Fma: multiply_add, Rounded: np.multiply, Rate: rate,
    Divided: np.divide,
    Ranked: float_rank, RankedValue: ranked_value, RankedIndex: ranked_index, Ordered: double_order,
    OrderedValue: ordered_value, TwoTo: lambda power: 1 << power,
}  # fmt: skip
