"""The derived monoid in public: leaf, merge and finish of a state that travels (pickled, sent, merged elsewhere).

A state says of which form it is (`identity`) and which places it holds (`places`). States of another form, and pieces
in the wrong place, are refused if they would give another number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, final

from sympy.core.basic import Basic

from redalg.errors import BackendError, InputError
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from redalg.expression.dtypes import is_emulated
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import Executor, Slots
from redalg.incremental.form import FusedForm, Slot
from redalg.runtime.bind.arrays import from_axes, scope_for, to_axes
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.backends import ops_for, tensors_for
from redalg.runtime.bind.blocks import block_lengths, stream
from redalg.runtime.bind.identity import VERSION, first_difference, identity
from redalg.runtime.bind.inputs import Bound, array_dtype, bind, library_name, without_gradients
from redalg.runtime.bind.options import check_places, global_starts, named_dtypes, named_sizes
from redalg.runtime.bind.places import (
    Box,
    Boxes,
    axes_by_place,
    computed_axes,
    finished_exprs,
    is_nothing,
    join_boxes,
    leaf_exprs,
    places_matter,
    shared_box,
    under_two_indices,
)


@final
@dataclass(frozen=True)
class State:
    """A state of the derived monoid: slots by name, with their kinds, axes and arrays. It pickles.

    Attributes:
        slots: name -> array, dimensions in the order of the slot's axes.
        layout: the slots' names, kinds and axes.
        sizes: axis name -> extent, of the axes other than the streamed one.
        result: dtype of outputs (that of the tensors that the state was made from).
        library: `numpy` or `torch`.
        device: where the arrays lie.
        scalars: the run-time scalars that the leaf was given.
        places: boxes of the reduced axes that the state holds, in global numbering; None if pieces that do not
            adjoin were merged, and places do not matter.
        starts: global number of the first element of every other axis whose place the form asks for.
        form: digest of what the slots hold.
        meaning: the same in words, line by line.
        version: of this format; 0 of states made before there were versions.
    """

    slots: Mapping[str, Any]
    layout: tuple[Slot, ...]
    sizes: Mapping[str, int]
    result: str
    library: str
    device: str
    scalars: Mapping[str, float]
    places: Boxes | None = ()
    starts: Mapping[str, int] = field(default_factory=dict)
    form: str = ""
    meaning: tuple[str, ...] = ()
    version: int = 0

    @property
    def covers(self) -> tuple[int, int] | None:
        """(start, stop) of the streamed axis if the state holds one box; (0, 0) if it is empty; else None."""
        if self.places is None or len(self.places) > 1:
            return None
        return self.places[0][0] if self.places else (0, 0)

    def __str__(self) -> str:
        return "\n".join(f"{slot}: {tuple(self.slots[slot.name].shape)}" for slot in self.layout)


@without_autocast()
def leaf(form: FusedForm, inputs: Mapping[str, Any], start: Any, extents: Any) -> State:
    """The state of a piece of the data whose first element along the streamed axis has the global number `start`."""
    start, extents = global_starts(form.cascade, start, "leaf"), named_sizes(extents, "leaf", "extents")
    check_piece_indices(leaf_exprs(form), form, "leaf", beside=finished_exprs(form))
    inputs = without_gradients(inputs)
    lone = [one for one in form.cascade.extents() if one in reduced_names(form) and one not in extents]
    if lone:
        raise InputError(
            f"leaf: an expression holds the extent of axis {lone[0]}, of which a piece has a part, and a state counts "
            f"the elements of {' and '.join(reduced_names(form))} together alone. Pass its total, "
            f'`leaf(…, extents={{"{lone[0]}": …}})`.'
        )
    bound = bind(form.cascade, inputs, extents, chunked=True)
    check_places(start, bound.sizes, frozenset().union(*map(computed_axes, leaf_exprs(form))), "leaf")
    ops = ops_for(bound, bound.library)
    executor = Executor(form, ops)
    scope = scope_for(form.cascade, bound, ops, tensors_for(bound, bound.library), start=start, extents=extents)
    with ops.quiet():
        slots = stream(executor, scope, block_lengths(form, bound.sizes))
    state = pack_state(form, slots, scope, replace(bound, sizes={**bound.sizes, **extents}))
    box = tuple(scope.ranges[axis] for axis in form.cascade.reduced_axes)
    others = axes_by_place(form) - set(form.cascade.reduced_axes)
    return replace(
        state,
        places=() if is_nothing(box) else (box,),
        starts={axis.name: start[axis] for axis in form.cascade.axes() if axis in others & start.keys()},
    )


def check_piece_indices(
    exprs: Iterable[Basic], form: FusedForm, method: str, beside: Iterable[Basic] = ()
) -> None:  # fmt: skip
    """Refuse a tensor under two indices if a piece of it serves the one and not the other, which `exprs` read.

    The first may stand in the expressions `beside` them.
    """
    exprs = tuple(exprs)
    read = {one for expr in exprs for one in elements_of(expr)}
    pairs = under_two_indices((*exprs, *beside), form.cascade.reduced_axes)
    both = next((pair for pair in pairs if pair[1] in read), None)
    if both is None:
        return
    cut, whole = both
    names = (f"{cut.name}_{number or 'all'}" for number in count())
    name = next(new for new in names if new not in form.cascade.inputs())
    other = str(whole).replace(f"{whole.name}[", f"{name}[", 1)
    along = ", ".join(map(str, form.cascade.reduced_axes))
    raise InputError(
        f"{method}: tensor `{cut.name}` stands under two indices, `{cut}` and `{whole}`: one of them would take a "
        f"piece along axis {along} for the whole. Write the expression with two "
        f"tensors, `{cut}` and `{other}`; pass the piece as `{cut.name}`, and all of it as `{name}`."
    )


def reduced_names(form: FusedForm) -> tuple[str, ...]:
    """The names of the reduced axes."""
    return tuple(str(axis.name) for axis in form.cascade.reduced_axes)


def empty_state(form: FusedForm, sizes: Any, dtypes: Any, device: str, library: str) -> State:
    """The identity of `merge`: the state of no elements."""
    sizes, cascade = named_sizes(sizes, "empty_state"), form.cascade
    check_piece_indices(leaf_exprs(form), form, "empty_state")
    shapes = {one.name: [_size(index, sizes, form) for index in one.indices] for one in cascade.elements()}
    dtype_of = named_dtypes(cascade, "float32") | named_dtypes(cascade, {} if dtypes is None else dtypes)
    unknown = [name for name in dtype_of if name not in shapes]
    if unknown:
        raise InputError(f"empty_state: dtypes: the expression holds no tensor `{unknown[0]}`. It holds "
                         f"{', '.join(sorted(shapes))}.")  # fmt: skip
    inputs: dict[str, Any] = {
        name: no_elements(name, shape, dtype_of[name], device, library) for name, shape in shapes.items()
    }
    inputs |= {one.name: 1.0 for one in form.cascade.scalars()}
    free_sizes = {name: size for name, size in sizes.items() if name not in reduced_names(form)}
    state = leaf(form, inputs, {}, {**free_sizes, **dict.fromkeys(reduced_names(form), 0), **_totals(form, sizes)})
    return replace(state, scalars={}, places=())  # whatever the scalars are


def no_elements(name: str, shape: list[int], dtype: str, device: str, library: str) -> Any:
    """An array of a shape and dtype."""
    import numpy as np

    if library not in ("numpy", "torch"):
        raise InputError(f'empty_state: library={library!r} is not an option. Use "numpy" or "torch".')
    try:
        if library == "numpy" and not is_emulated(dtype):  # other packages may give it these names
            return np.zeros(shape, dtype)
        if library == "torch":
            import torch

            return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)
    except ModuleNotFoundError:
        raise BackendError('empty_state: library="torch" needs torch, which is not installed. Pass library="numpy".') \
            from None  # fmt: skip
    except (AttributeError, TypeError):
        pass
    raise InputError(f"empty_state: {library} has no dtype {dtype!r}, given of tensor `{name}`.")


def _totals(form: FusedForm, sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of reduced axes that stand in expressions by themselves."""
    return {name: sizes[name] for name in reduced_names(form) if name in form.cascade.extents() and name in sizes}


def _size(index: Any, sizes: Mapping[str, int], form: FusedForm) -> int:
    if index in form.cascade.reduced_axes:
        return 0
    if isinstance(index, Axis):
        if index.name not in sizes and index.size is None:
            raise InputError(f'empty_state: the size of axis {index} is missing. Pass sizes={{"{index}": …}}.')
        return int(sizes.get(index.name, index.size or 0))
    return max([1, *sizes.values()])


@without_autocast()
def merge(form: FusedForm, a: State, b: State) -> State:
    """a ⊕ b. Both must be states of this form, over the same free axes."""
    for state in (a, b):
        check_state(form, state, "merge")
    for what in ("library", "device", "result"):
        if getattr(a, what) != getattr(b, what):
            raise InputError(f"merge: the states are of {getattr(a, what)} and of {getattr(b, what)}. Make both from "
                             "tensors of one library, device and dtype.")  # fmt: skip
    if dict(a.sizes) != dict(b.sizes):
        raise InputError(
            f"merge: the states are of different sizes, {dict(a.sizes)} and {dict(b.sizes)}. Merge states of the same "
            "rows."
        )
    check_starts(a, b)
    places = together(form, a, b)
    a, b = sort_pieces(form, *one_set_of_scalars(a, b))
    scope, executor = unpacked_scope(form, a)
    with scope.ops.quiet():
        slots = executor.merge(scope, unpack(form, a, scope), unpack(form, b, scope))
    return replace(pack_state(form, slots, scope, None, like=b if is_empty_state(a) else a), places=places)


def check_starts(a: State, b: State) -> None:
    """Refuse two states whose rows begin at different places (an empty state fits any rows)."""
    if is_empty_state(a) or is_empty_state(b):
        return
    differ = [name for name in {**a.starts, **b.starts} if a.starts.get(name, 0) != b.starts.get(name, 0)]
    if differ:
        firsts = " and ".join(str(one.starts.get(differ[0], 0)) for one in (a, b))
        raise InputError(f"merge: the states begin at different places of axis {differ[0]}, {firsts}. Merge states of "
                         "the same rows.")  # fmt: skip


def one_set_of_scalars(a: State, b: State) -> tuple[State, State]:
    """Both states with the scalars of either (an empty state has none); different values are refused."""
    if any(a.scalars[name] != b.scalars[name] for name in a.scalars.keys() & b.scalars.keys()):
        raise InputError(
            f"merge: the states were made with different scalars, {dict(a.scalars)} and {dict(b.scalars)}. Make both "
            "with the same."
        )
    scalars = {**a.scalars, **b.scalars}
    return replace(a, scalars=scalars), replace(b, scalars=scalars)


def sort_pieces(form: FusedForm, a: State, b: State) -> tuple[State, State]:
    """Sort two pieces by their places if order matters; the second must adjoin the first."""
    if not form.is_ordered or is_empty_state(a) or is_empty_state(b):
        return a, b
    first, second = a.covers, b.covers
    if first is None or second is None:
        return a, b
    if second < first:
        a, b, first, second = b, a, second, first
    if first[1] != second[0]:
        raise InputError(misplacement_message(form, first, second))
    return a, b


def misplacement_message(form: FusedForm, a: tuple[int, int], b: tuple[int, int]) -> str:
    """The message for two pieces that do not adjoin: the elements between them, or in both."""
    axis = form.cascade.axis
    kinds = ", ".join(dict.fromkeys(str(one.monoid) for one in form.structures if not one.monoid.commutative))
    gap, start, stop = a[1] < b[0], min(a[1], b[0]), max(b[0], min(a[1], b[1]))
    verb = "is" if stop == start + 1 else "are"
    problem = f"{_elements(start, stop)} of axis {axis} {verb} {'missing between them' if gap else 'in both'}"
    return (
        f"merge: the states hold {_elements(*a)} and {_elements(*b)}, and {kinds} depends on the order of elements: "
        f"{problem}. Give every leaf its `start={{{axis}: …}}`, and merge neighbours."
    )


def _elements(start: int, stop: int) -> str:
    return f"element {start}" if stop == start + 1 else f"elements {start} to {stop - 1}"


def is_empty_state(state: State) -> bool:
    """Tell if a state holds no element."""
    return state.places == ()


def together(form: FusedForm, a: State, b: State) -> Boxes | None:
    """The places of two states; if places matter, those that both hold, or that one does not know, are refused."""
    if is_empty_state(a) or is_empty_state(b):
        return b.places if is_empty_state(a) else a.places
    if not places_matter(form):
        boxes = None if a.places is None or b.places is None else join_boxes(a.places, b.places)
        return boxes if boxes is not None and len(boxes) == 1 and not shared_box(a.places or (), b.places or ()) \
            else None  # fmt: skip
    if a.places is None or b.places is None:
        raise InputError("merge: a state does not say which places it holds, and the expression depends on places. "
                         "Make it again by `leaf`.")  # fmt: skip
    both = None if form.is_ordered else shared_box(a.places, b.places)
    if both is not None:
        raise InputError(overlap_message(form, both))
    return join_boxes(a.places, b.places)


def overlap_message(form: FusedForm, both: Box) -> str:
    """The message for two pieces that hold the same places."""
    overlap = " × ".join(f"{_elements(*edge)} of axis {axis}"
                         for axis, edge in zip(form.cascade.reduced_axes, both, strict=True))  # fmt: skip
    starts_wanted = ", ".join(f"{axis}: …" for axis in form.cascade.reduced_axes)
    return (
        f"merge: both states hold {overlap}, and the expression depends on the places of elements (a mask by place, an "
        f"index, a shift). Give every leaf its `start={{{starts_wanted}}}`, and merge each piece once."
    )


def check_state(form: FusedForm, state: State, method: str) -> None:
    """Refuse all but a state of this form: another form's, one of another version, one whose arrays do not fit it."""
    if not isinstance(state, State) or state.layout != form.slots:
        slots = f"a state of slots {', '.join(s.name for s in state.layout)}" if isinstance(state, State) else ""
        raise InputError(
            f"the state should have the form's slots {', '.join(slot.name for slot in form.slots)}; it is "
            f"{slots or f'a {type(state).__name__}'}. Make it by `leaf` of the same `Fused`."
        )
    if state.version != VERSION:
        raise InputError(f"{method}: the state is of format {state.version}, and this redalg reads format {VERSION}. "
                         "Make it again by `leaf`, or finish it with the redalg that made it.")  # fmt: skip
    own = identity(form)
    if state.form != own.digest:
        difference = first_difference(state.meaning, own.lines)
        raise InputError(
            f"{method}: the state is of form {state.form}, and this is form {own.digest}"
            f"{difference and ': '}{difference}. Make states by `leaf` of the same `Fused`."
        )
    for slot in state.layout:
        check_slot(slot, state, method)


def check_slot(slot: Slot, state: State, method: str) -> None:
    """Refuse an array that does not fit its slot: one of another library, shape or dtype."""
    array = state.slots.get(slot.name)
    shape = tuple(state.sizes.get(axis.name, axis.size) for axis in slot.axes)
    integer = slot.kind in ("count", "index")
    dtypes = ("int64",) if integer else ("float32", "float64")
    if array is None or library_name(array) != state.library:
        problem = "missing" if array is None else f"a {type(array).__name__}"
        raise InputError(f"{method}: slot `{slot.name}` of the state is {problem}; it should be an array of "
                         f"{state.library}. Pass states as `leaf` and `merge` make them.")  # fmt: skip
    if tuple(array.shape) != shape or array_dtype(array) not in dtypes:
        raise InputError(
            f"{method}: slot `{slot.name}` of the state has shape {tuple(array.shape)} and dtype {array_dtype(array)}; "
            f"it should have {shape} and {' or '.join(dtypes)}. Pass states as `leaf` and `merge` make them."
        )


def pack_state(form: FusedForm, slots: Slots, scope: Scope, bound: Bound | None, like: State | None = None) -> State:
    """A state from the interpreter's arrays."""
    values = {value.name: (value, array) for value, array in slots.items()}
    arrays = {slot.name: to_axes(values[slot.name][1], slot.axes, scope) for slot in form.slots}
    if like is not None:
        return replace(like, slots=arrays)
    if bound is None:
        raise AssertionError("a new state needs its inputs")
    sizes = {name: size for name, size in bound.sizes.items() if name not in reduced_names(form)}
    sizes |= _totals(form, bound.sizes)
    own = identity(form)
    return State(arrays, form.slots, sizes, bound.result, bound.library, bound.device, dict(bound.scalars),
                 form=own.digest, meaning=own.lines, version=VERSION)  # fmt: skip


def unpacked_scope(
    form: FusedForm,
    state: State,
    inputs: Mapping[str, Any] | None = None,
    empty: str = "nan",
    *,
    piece: Mapping[str, int] | None = None,
    start: Mapping[Axis, int] | None = None,
) -> tuple[Scope, Executor]:
    """A scope over the state's free axes and a piece of the reduced ones (empty unless given), and an executor."""
    kinds = ("accumulator", "component", "extremum", "pivot")  # of far places the last two may be wider
    numbers = sorted((kinds.index(slot.kind), slot.name) for slot in state.layout if slot.kind in kinds)
    plain = "float64" if state.result == "float64" else "float32"
    dtype = array_dtype(state.slots[numbers[0][1]]) if numbers else plain
    sizes = {**state.sizes, **dict.fromkeys(reduced_names(form), 0), **(piece or {})}
    scalars = {**state.scalars, **{k: v for k, v in (inputs or {}).items() if isinstance(v, int | float)}}
    tensors = {k: v for k, v in (inputs or {}).items() if k not in scalars}
    bound = Bound(tensors, scalars, sizes, {}, state.library, state.device, dtype, state.result)
    ops = ops_for(bound, state.library)
    totals = _totals(form, state.sizes)
    scope = scope_for(form.cascade, bound, ops, tensors, start=start, extents=totals)
    return scope, Executor(form, ops, empty)


def unpack(form: FusedForm, state: State, scope: Scope) -> Slots:
    """The interpreter's arrays of a state."""
    values = {one.value.name: one.value for one in form.extrema} | {one.value.name: one.value for one in form.pivots}
    values |= {one.value.name: one.value for one in form.accumulators}
    values |= {value.name: value for one in form.structures for value in one.values}
    return {values[slot.name]: from_axes(state.slots[slot.name], slot.axes, scope) for slot in state.layout}
