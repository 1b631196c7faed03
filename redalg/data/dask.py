"""Reductions of dask arrays: a leaf for every chunk, a tree of merges, and `finish`, in one lazy graph.

The graph is made here rather than by `dask.array.reduction`. That one takes a single array, does not tell a chunk where
it lies, and gives one output: a state needs all tensors of its piece and the global number of its first element, and
finishes into as many outputs as the function has. As there, `split_every` bounds how many states meet in one task.

Every task is a function of its arguments alone, so that the graph runs on threads, on processes and on a cluster, and
what a lost worker held is computed again. The function is one node, which all tasks share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product
from math import isnan
from numbers import Integral
from typing import Any, final

import numpy as np

from redalg.data.functions import (
    BY_NUMPY,
    Cuts,
    cut_dimensions,
    definition_digest,
    finished_tensors,
    read_names,
    streamable_form,
    unread_names,
)
from redalg.data.packages import import_engine
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.arguments import answer_arguments
from redalg.fused import Fused
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.runtime.bind.arrays import output_kinds
from redalg.runtime.bind.groups import check_by, check_grouped
from redalg.runtime.bind.inputs import UNSIGNED, Bound, bind, check_choice
from redalg.runtime.bind.options import Sizes, named_sizes
from redalg.runtime.bind.state import State

Place = tuple[int, ...]
"""The number of a chunk along every axis that is cut."""
SPLIT_EVERY = 4
"""States that one task merges, if neither the call nor dask's configuration says: as many as dask's own reductions."""
KEYS = "by"
"""The name of the keys among the arrays: no tensor may bear it."""


@answer_arguments(InputError)
def reduction(fused: Fused, tensors: Any, /, *, axis: Any = None, split_every: Any = None, sizes: Sizes | None = None,
              empty: str = "nan", by: Any = None, groups: int | None = None, **others: Any) -> Any:  # fmt: skip
    """The outputs of a function of dask arrays, as dask arrays, lazily.

    Args:
        fused: the function. Its outputs keep no reduced axis.
        tensors: the array of the only tensor, or of the first of `inputs=`; or all arrays and scalars by name. Arrays
            are dask's or NumPy's. Those that share an axis are brought to the same chunks, as in all of dask.
        axis: the dimensions of the first tensor that are reduced, by number, or reduced axes. The expression says them:
            a call that gives others is refused.
        split_every: how many states one task merges along all reduced axes, at least 2; or `{axis: number}`, the axis
            by itself, by name or by the first tensor's dimension. Without it dask's configuration, or 4.
        sizes: extents of axes that no tensor carries.
        empty: what a ratio over no elements is, `"nan"` or `"zero"`.
        by: the group of every element of the reduced axis, a dask or NumPy array of integers from 0 to `groups` - 1 in
            any order: one pass makes the states of all groups, chunk by chunk, which are merged.
        groups: the number of groups, those without an element counted.
        others: further arrays and scalars, by name.

    Returns:
        A dask array, or a namedtuple of them, in the dtype and the order of dimensions that a call gives. Axes that are
        free keep their chunks; those that an output or a term needs whole come in one chunk, as do groups, which are
        the first dimension.

    Raises:
        BackendError: dask is not installed.
        InputError: an output keeps a reduced axis, the form takes several passes, an array does not fit the expression
            or does not know its chunks. A key beyond the groups is found by the task that reads it.

    >>> import dask.array as da, numpy as np, redalg as ra
    >>> mean = ra.fuse(ra.mean(ra.tensor("x[n]"), ra.axes("n")))
    >>> chunked = da.from_array(np.array([1.0, 2.0, 6.0]), chunks=2)
    >>> reduction(mean, chunked, by=np.array([0, 2, 0]), groups=3).compute()
    array([3.5, nan, 2. ])
    """
    da = import_engine("dask.array", "dask", "reduction")
    form = streamable_form(fused, "reduction")
    check_choice("empty", empty, "reduction: ")
    inputs = inputs_by_name(fused, tensors, others)
    arrays, scalars = dask_arrays(da, fused, inputs, by)
    bound = bind(form.cascade, {**stand_ins(arrays), **scalars}, named_sizes(form.cascade, sizes, "reduction"))
    first = next(name for name in (*inputs, *arrays) if name in arrays)
    check_reduced_dimensions(axis, first, form)
    cuts: Cuts = cut_dimensions(form)
    if by is not None or groups is not None:
        arrays[KEYS] = keys_of_elements(da, by, groups, form, bound)
        cuts = {**cuts, KEYS: (axis_of_keys(form, cuts),)}
        bound = replace(bound, sizes={**bound.sizes, group_axis(form).name: int(groups or 0)})
    arrays, chunks = align_chunks(arrays, cuts)
    every = neighbours_by_axis(
        split_every, tuple(one for one in form.cascade.reduced_axes if one in chunks), first, form
    )
    graph = Graph(fused, arrays, cuts, chunks, scalars, bound, every, empty)
    return graph.outputs(da)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def inputs_by_name(fused: Fused, tensors: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays and scalars by name; an array without one is that of the first tensor."""
    if not isinstance(tensors, Mapping):
        names, scalars = read_names(fused)
        free = [name for name in fused.inputs or names if name not in others and name not in scalars]
        if len(free) != 1 and not fused.inputs:
            raise InputError(
                f"reduction: the array has no name, and the expression holds the tensors {', '.join(names)}. Pass a "
                f'mapping, `reduction(fused, {{"{names[0]}": …}})`, or all but one by keyword.'
            )
        tensors = dict(zip(free[:1], (tensors,), strict=False))
    twice = next((name for name in tensors if name in others), None)
    if twice is not None:
        raise InputError(f"reduction: tensor `{twice}` is given twice, in the mapping and by keyword. Give it once.")
    unread = unread_names(fused)
    return {name: value for name, value in {**tensors, **others}.items() if name not in unread}


def dask_arrays(da: Any, fused: Fused, inputs: Mapping[str, Any], by: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors as dask arrays, and what is none of them: scalars, and names that `bind` refuses."""
    names, _ = read_names(fused)
    arrays, rest = dict[str, Any](), dict[str, Any]()
    for name, value in inputs.items():
        if name not in names:
            rest[name] = value
        elif isinstance(value, da.Array):
            arrays[name] = value
        elif isinstance(value, np.ndarray | np.generic):
            arrays[name] = da.from_array(np.asarray(value), chunks=-1)
        else:
            raise InputError(f"reduction: tensor `{name}` is a {type(value).__name__}. Pass a dask or a NumPy array.")
    if not any(isinstance(value, da.Array) for value in (*inputs.values(), by)):
        raise InputError("reduction: no tensor is a dask array. Call the function itself on arrays that are here.")
    for name, array in arrays.items():
        if any(isnan(size) for size in array.shape):
            raise InputError(f"reduction: tensor `{name}` has chunks of unknown sizes, {array.chunks}, and a piece "
                             f"must know its place. Call `{name}.compute_chunk_sizes()` before.")  # fmt: skip
    return arrays, rest


def stand_ins(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """NumPy arrays of the same shapes and dtypes that take no memory, to be checked as the inputs of a call."""
    dtypes = {name: "int64" if array.dtype.name in UNSIGNED else array.dtype for name, array in arrays.items()}
    return {name: np.broadcast_to(np.zeros((), dtypes[name]), array.shape) for name, array in arrays.items()}


def keys_of_elements(da: Any, by: Any, groups: Any, form: FusedForm, bound: Bound) -> Any:
    """The keys of the elements of the reduced axis, as a dask array.

    Raises:
        InputError: the function has no states by group, or the keys do not fit the axis.
    """
    check_by(by, groups, "reduction")
    check_grouped(form, "reduction")
    if not isinstance(by, da.Array | np.ndarray):
        raise InputError(f"reduction: by= is a {type(by).__name__}. Pass a dask or a NumPy array of integers.")
    size, where = bound.sizes[form.cascade.axis.name], f"by= holds the group of every element along {form.cascade.axis}"
    if by.shape != (size,):
        raise InputError(f"reduction: {where}; it should have shape ({size},), and has {by.shape}.")
    if by.dtype.kind not in "iu":
        raise InputError(f"reduction: {where} as an integer, and is {by.dtype}. Number the groups 0, 1, 2, ….")
    return by if isinstance(by, da.Array) else da.from_array(by, chunks=-1)


def axis_of_keys(form: FusedForm, cuts: Cuts) -> Axis | None:
    """The axis that keys are cut along; None where no tensor is."""
    axis = form.cascade.axis
    return axis if any(axis in places for places in cuts.values()) else None


def check_reduced_dimensions(given: Any, first: str, form: FusedForm) -> None:
    """Refuse other dimensions than those that the expression reduces."""
    if given is None:
        return
    axes = {axis_of_key(key, first, form, "axis") for key in (given if isinstance(given, tuple | list) else (given,))}
    if axes != set(form.cascade.reduced_axes):
        reduced = ", ".join(map(str, form.cascade.reduced_axes))
        raise InputError(
            f"reduction: axis={given!r} is {', '.join(sorted(map(str, axes)))}, and the expression reduces over "
            f"{reduced}. Leave `axis` out, or write the expression over the other axis."
        )


def axis_of_key(key: Any, first: str, form: FusedForm, option: str) -> Axis:
    """An axis, given by itself, by its name, or as a dimension of the first tensor."""
    element = next(one for one in form.cascade.elements() if one.name == first)
    found: Any = form.cascade.find_axis(key, form.cascade.axes())
    if isinstance(key, Integral) and -len(element.indices) <= int(key) < len(element.indices):
        found = element.indices[int(key)]
    if not isinstance(found, Axis):
        raise InputError(f"reduction: {option}={key!r} is no axis of the expression, and no dimension of `{element}` "
                         f"that one axis reads. The axes are {', '.join(map(str, form.cascade.axes()))}.")  # fmt: skip
    return found


def align_chunks(arrays: Mapping[str, Any], cuts: Cuts) -> tuple[dict[str, Any], dict[Axis, Place]]:
    """The arrays with the same chunks along each axis that may be cut, whole along the others; and these chunks."""
    given: dict[Axis, set[Place]] = {}
    for name, array in arrays.items():
        for axis, lengths in zip(cuts[name], array.chunks, strict=True):
            if axis is not None:
                given.setdefault(axis, set()).add(tuple(map(int, lengths)))
    chunks = {axis: common_chunks(lengths) for axis, lengths in given.items()}
    whole = ((name, tuple((sum(lengths),) for lengths in array.chunks)) for name, array in arrays.items())
    wanted = {
        name: tuple(all_of if axis is None else chunks[axis] for axis, all_of in zip(cuts[name], lengths, strict=True))
        for name, lengths in whole
    }
    return {name: array.rechunk(wanted[name]) for name, array in arrays.items()}, chunks


def common_chunks(given: Collection[Place]) -> Place:
    """The lengths of chunks that end wherever a chunk of one of the cuts of an axis does.

    >>> common_chunks([(3, 4), (5, 0, 2)])
    (3, 2, 2)
    """
    if len(given) == 1:
        return next(iter(given))
    ends = sorted({end for lengths in given for end in accumulate(lengths)} - {0})
    return tuple(stop - start for start, stop in zip((0, *ends), ends, strict=False)) or (0,)


def neighbours_by_axis(given: Any, reduced: Sequence[Axis], first: str, form: FusedForm) -> dict[Axis, int]:
    """The number of neighbours along each reduced axis that one task merges."""
    from dask import config

    given = given or config.get("split_every", None) or SPLIT_EVERY
    numbers = given if isinstance(given, Mapping) else {"": given}
    wrong = next((n for n in numbers.values() if not isinstance(n, Integral) or isinstance(n, bool) or n < 2), None)
    if wrong is not None:
        raise InputError(f"reduction: split_every={given!r} should be an int of at least 2, or such an int by axis.")
    if isinstance(given, Mapping):
        by_axis = {axis_of_key(key, first, form, "split_every"): int(number) for key, number in given.items()}
        return {axis: by_axis.get(axis, 2) for axis in reduced}
    return dict.fromkeys(reduced, max(int(given ** (1 / max(1, len(reduced)))), 2))


# ---- the graph -------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Graph:
    """The parts that the graph of a reduction is made of.

    Attributes:
        fused: the function.
        arrays: the tensors, of the same chunks along each axis.
        cuts: the axis that each of their dimensions is cut along.
        chunks: the lengths of chunks along each axis.
        scalars: by name.
        bound: the inputs of the whole, checked.
        every: the number of neighbours along each reduced axis that one task merges.
        empty: what a ratio over no elements is.
    """

    fused: Fused
    arrays: Mapping[str, Any]
    cuts: Cuts
    chunks: Mapping[Axis, Place]
    scalars: Mapping[str, Any]
    bound: Bound
    every: Mapping[Axis, int]
    empty: str

    @property
    def groups(self) -> int | None:
        """The number of groups; None without keys."""
        return self.bound.sizes[group_axis(self.fused.form).name] if KEYS in self.arrays else None

    @property
    def form(self) -> FusedForm:
        """The form of the states."""
        return self.fused.form if self.groups is None else grouped_form(self.fused.form)

    @property
    def free(self) -> tuple[Axis, ...]:
        """The axes that outputs have and chunks cut."""
        return tuple(axis for axis in sorted(self.chunks, key=str) if axis not in self.every)

    def outputs(self, da: Any) -> Any:
        """The function's outputs, as dask arrays over one graph."""
        from dask.highlevelgraph import HighLevelGraph

        token = self.token()
        tasks: dict[Any, Any] = {f"redalg-{token}": self.fused}
        for block in self.places(self.free):
            tasks |= self.block_tasks(token, block)
        name = f"finish-{token}"
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=list(self.arrays.values()))
        results = dict[str, Any]()
        for number, (output, (axes, dtype)) in enumerate(output_kinds(self.form, self.bound.result).items()):
            lengths = tuple(self.chunks.get(axis, (self.bound.sizes[axis.name],)) for axis in axes)
            layer = {key: (partial(item_of, number), (name, *block)) for key, block in self.keys(output, token, axes)}
            own = HighLevelGraph({**graph.layers, f"{output}-{token}": layer},
                                 {**graph.dependencies, f"{output}-{token}": {name}})  # fmt: skip
            meta = np.empty((0,) * len(axes), dtype)
            results[output] = da.Array(own, f"{output}-{token}", lengths, meta=meta, dtype=meta.dtype)
        return next(iter(results.values())) if self.fused.single else self.fused.result(**results)

    def token(self) -> str:
        """A name that graphs of equal functions and arrays share."""
        from dask.base import tokenize

        names = [(name, array.name) for name, array in sorted(self.arrays.items())]
        every = sorted((axis.name, number) for axis, number in self.every.items())
        scalars, sizes = sorted(self.scalars.items()), sorted(self.bound.sizes.items())
        return str(tokenize(definition_digest(self.fused), names, scalars, sizes, every, self.empty))

    def places(self, axes: Sequence[Axis]) -> Iterator[Place]:
        """The numbers of all chunks along some axes."""
        return product(*(range(len(self.chunks[axis])) for axis in axes))

    def keys(self, output: str, token: str, axes: Sequence[Axis]) -> Iterator[tuple[tuple[Any, ...], Place]]:
        """The keys of an output's chunks, each with the number of the free chunks that it is made from."""
        for place in product(*(range(len(self.chunks.get(axis, (0,)))) for axis in axes)):
            at = dict(zip(axes, place, strict=True))
            yield (f"{output}-{token}", *place), tuple(at.get(axis, 0) for axis in self.free)

    def block_tasks(self, token: str, block: Place) -> dict[Any, Any]:
        """The tasks of the free chunks `block`: leaves of all pieces, the merges of them, and the outputs."""
        function, reduced, names = f"redalg-{token}", tuple(self.every), tuple(self.arrays)
        tasks, states = dict[Any, Any](), dict[Place, Any]()
        firsts = {axis: (0, *accumulate(lengths)) for axis, lengths in self.chunks.items()}
        for place in self.places(reduced):
            at = dict(zip((*self.free, *reduced), (*block, *place), strict=True))
            start = {axis.name: firsts[axis][number] for axis, number in at.items()}
            leaf = partial(leaf_of_chunk, names=names, scalars=self.scalars, start=start, extents=self.totals,
                           groups=self.groups)  # fmt: skip
            states[place] = key = (f"leaf-{token}", *block, *place)
            tasks[key] = (leaf, function, *(self.chunk_key(name, at) for name in names))
        for depth, level in enumerate(merge_levels(states, tuple(self.every.values()))):
            below, states = states, {}
            for place, members in level.items():
                states[place] = below[members[0]]
                if len(members) > 1:
                    states[place] = key = (f"merge-{token}", depth, *block, *place)
                    tasks[key] = (merge_chunks, function, *(below[member] for member in members))
        wanted = [name for name in names if name in finished_tensors(self.fused.form)]
        finish = partial(finish_chunk, names=tuple(wanted), scalars=self.scalars, empty=self.empty)
        chunks = [self.chunk_key(name, dict(zip(self.free, block, strict=True))) for name in wanted]
        tasks[f"finish-{token}", *block] = (finish, function, states[(0,) * len(reduced)], *chunks)
        return tasks

    @property
    def totals(self) -> dict[str, int]:
        """The sizes that no chunk knows: those of axes that no tensor has, and extents that stand by themselves."""
        cascade = self.fused.form.cascade
        known = {axis.name for places in self.cuts.values() for axis in places if axis is not None}
        asked = {*cascade.extents(), *(axis.name for axis in cascade.axes())}
        return {name: size for name, size in self.bound.sizes.items() if name in asked - known | {*cascade.extents()}}

    def chunk_key(self, name: str, at: Mapping[Axis, int]) -> tuple[Any, ...]:
        """The key of a tensor's chunk at a place."""
        return (self.arrays[name].name, *(0 if axis is None else at[axis] for axis in self.cuts[name]))


def merge_levels(states: Mapping[Place, Any], every: Sequence[int]) -> Iterator[dict[Place, list[Place]]]:
    """The levels of the tree that merges states, in the order of places; a group's place is that of its first member.

    >>> for level in merge_levels(dict.fromkeys([(0,), (1,), (2,), (3,), (4,)]), (2,)):
    ...     print(level)
    {(0,): [(0,), (1,)], (1,): [(2,), (3,)], (2,): [(4,)]}
    {(0,): [(0,), (1,)], (1,): [(2,)]}
    {(0,): [(0,), (1,)]}
    """
    places = sorted(states)
    while len(places) > 1:
        level: dict[Place, list[Place]] = {}
        for place in places:
            group = tuple(number // length for number, length in zip(place, every, strict=True))
            level.setdefault(group, []).append(place)
        yield level
        places = sorted(level)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def leaf_of_chunk(function: Fused, *arrays: Any, names: Sequence[str], scalars: Mapping[str, Any],
                  start: Mapping[str, int], extents: Mapping[str, int], groups: int | None) -> State:  # fmt: skip
    """The state of a piece, by group if its keys are among the arrays."""
    tensors = {**dict(zip(names, arrays, strict=True)), **scalars}
    by = tensors.pop(KEYS) if groups is not None else None
    return function.leaf(tensors, start=start, extents=extents, backend=BY_NUMPY, by=by, groups=groups)


def merge_chunks(function: Fused, *states: State) -> State:
    """The state of neighbours together."""
    return function.merge(*states, backend=BY_NUMPY)


def finish_chunk(function: Fused, state: State, *arrays: Any, names: Sequence[str], scalars: Mapping[str, Any],
                 empty: str) -> tuple[Any, ...]:  # fmt: skip
    """The outputs of a state, in order."""
    result = function.finish(state, {**dict(zip(names, arrays, strict=True)), **scalars}, empty)
    return (result,) if function.single else tuple(result)


def item_of(number: int, outputs: Sequence[Any]) -> Any:
    """One output of all."""
    return outputs[number]
