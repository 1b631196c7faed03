"""The derived monoid in public: leaf, merge and finish of a state that travels (pickled, sent, merged elsewhere)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import Expr

from redalg.errors import InputError
from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, values_of
from redalg.incremental.evaluate import Scope
from redalg.incremental.form import FusedForm, Slot
from redalg.incremental.interpret import Executor, Slots
from redalg.runtime.arrays import (
    assembled,
    from_axes,
    ops_for,
    output_dtype,
    scope_for,
    tensors_for,
    to_axes,
    to_library,
)
from redalg.runtime.blocks import Ranges, blocks, pieces, stream
from redalg.runtime.inputs import Bound, bind, check_choice, library_of
from redalg.runtime.options import check_places, named_dtypes, named_sizes, starts


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
        covers: (start, stop) of the streamed axis, in global numbering; None where pieces that do not adjoin were
            merged, which a form whose order matters refuses.
    """

    slots: Mapping[str, Any]
    layout: tuple[Slot, ...]
    sizes: Mapping[str, int]
    result: str
    library: str
    device: str
    scalars: Mapping[str, float]
    covers: tuple[int, int] | None = (0, 0)

    def __str__(self) -> str:
        return "\n".join(f"{slot}: {tuple(self.slots[slot.name].shape)}" for slot in self.layout)


def leaf(form: FusedForm, given: Mapping[str, Any], start: Any, extents: Any) -> State:
    """The state of a piece of the data whose first element along the streamed axis has the global number `start`."""
    start, extents = starts(form.cascade, start, "leaf"), named_sizes(extents, "leaf", "extents")
    lone = [one for one in form.cascade.extents() if one in reduced_names(form) and one not in extents]
    if lone:
        raise InputError(
            f"leaf: an expression holds the extent of axis {lone[0]}, of which a piece has a part, and a state counts "
            f"the elements of {' and '.join(reduced_names(form))} together alone. Pass its total, "
            f'`leaf(…, extents={{"{lone[0]}": …}})`.'
        )
    bound = bind(form.cascade, given, extents, chunked=True)
    check_places(form.cascade, start, bound.sizes, "leaf")
    ops = ops_for(bound, bound.library)
    executor = Executor(form, ops)
    scope = scope_for(form.cascade, bound, ops, tensors_for(bound, bound.library), start=start, extents=extents)
    with ops.quiet():
        slots = stream(executor, scope, blocks(form, bound.sizes))
    made = packed(form, slots, scope, replace(bound, sizes={**bound.sizes, **extents}))
    return replace(made, covers=scope.ranges[form.cascade.axis])


def reduced_names(form: FusedForm) -> tuple[str, ...]:
    """The names of the reduced axes."""
    return tuple(str(axis.name) for axis in form.cascade.reduced)


def empty_state(form: FusedForm, sizes: Any, dtypes: Any, device: str, library: str) -> State:
    """The identity of `merge`: the state of no elements."""
    sizes, cascade = named_sizes(sizes, "empty_state"), form.cascade
    shapes = {one.name: [_size(index, sizes, form) for index in one.indices] for one in cascade.elements()}
    named = named_dtypes(cascade, "float32") | named_dtypes(cascade, {} if dtypes is None else dtypes)
    unknown = [name for name in named if name not in shapes]
    if unknown:
        raise InputError(f"empty_state: dtypes: the expression holds no tensor `{unknown[0]}`. It holds "
                         f"{', '.join(sorted(shapes))}.")  # fmt: skip
    given: dict[str, Any] = {
        name: no_elements(name, shape, named[name], device, library) for name, shape in shapes.items()
    }
    given |= {one.name: 1.0 for one in form.cascade.scalars()}
    given_sizes = {name: size for name, size in sizes.items() if name not in reduced_names(form)}
    made = leaf(form, given, {}, {**given_sizes, **dict.fromkeys(reduced_names(form), 0), **_totals(form, sizes)})
    return replace(made, scalars={})  # whatever the scalars are


def no_elements(name: str, shape: list[int], dtype: str, device: str, library: str) -> Any:
    """An array of a shape and dtype."""
    import numpy as np

    if library not in ("numpy", "torch"):
        raise InputError(f'empty_state: library={library!r} is not an option. Use "numpy" or "torch".')
    try:
        if library == "numpy":
            return np.zeros(shape, dtype)
        import torch

        return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)
    except (AttributeError, TypeError):
        raise InputError(f"empty_state: {library} has no dtype {dtype!r}, given of tensor `{name}`.") from None


def _totals(form: FusedForm, sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of reduced axes that stand in expressions by themselves."""
    return {name: sizes[name] for name in reduced_names(form) if name in form.cascade.extents() and name in sizes}


def _size(index: Any, sizes: Mapping[str, int], form: FusedForm) -> int:
    if index in form.cascade.reduced:
        return 0
    if isinstance(index, Axis):
        if index.name not in sizes and index.size is None:
            raise InputError(f'empty_state: the size of axis {index} is missing. Pass sizes={{"{index}": …}}.')
        return int(sizes.get(index.name, index.size or 0))
    return max([1, *sizes.values()])


def merge(form: FusedForm, a: State, b: State) -> State:
    """a ⊕ b. Both must be states of this form, over the same free axes."""
    for state in (a, b):
        check(form, state)
    for what in ("library", "device", "result"):
        if getattr(a, what) != getattr(b, what):
            raise InputError(f"merge: the states are of {getattr(a, what)} and of {getattr(b, what)}. Make both from "
                             "tensors of one library, device and dtype.")  # fmt: skip
    if dict(a.sizes) != dict(b.sizes):
        raise InputError(
            f"merge: the states are of different sizes, {dict(a.sizes)} and {dict(b.sizes)}. Merge states of the same "
            "rows."
        )
    a, b = in_order(form, *one_set_of_scalars(a, b))
    scope, executor = unpacked_scope(form, a)
    with scope.ops.quiet():
        slots = executor.merge(scope, unpack(form, a, scope), unpack(form, b, scope))
    return replace(packed(form, slots, scope, None, like=a), covers=together(a, b))


def one_set_of_scalars(a: State, b: State) -> tuple[State, State]:
    """Both states with the scalars of either (an empty state has none)."""
    if any(a.scalars[name] != b.scalars[name] for name in a.scalars.keys() & b.scalars.keys()):
        raise InputError(
            f"merge: the states were made with different scalars, {dict(a.scalars)} and {dict(b.scalars)}. Make both "
            "with the same."
        )
    scalars = {**a.scalars, **b.scalars}
    return replace(a, scalars=scalars), replace(b, scalars=scalars)


def in_order(form: FusedForm, a: State, b: State) -> tuple[State, State]:
    """Where order matters, the piece that comes first and then the other, which must adjoin it."""
    if not form.ordered or a.covers is None or b.covers is None or is_empty(a) or is_empty(b):
        return a, b
    if b.covers < a.covers:
        a, b = b, a
    if a.covers and b.covers and a.covers[1] != b.covers[0]:
        raise InputError(misplaced(form, a.covers, b.covers))
    return a, b


def misplaced(form: FusedForm, a: tuple[int, int], b: tuple[int, int]) -> str:
    """What lies between two pieces, or in both."""
    axis = form.cascade.axis
    kinds = ", ".join(dict.fromkeys(str(one.monoid) for one in form.structures if not one.monoid.commutative))
    gap, start, stop = a[1] < b[0], min(a[1], b[0]), max(b[0], min(a[1], b[1]))
    verb = "is" if stop == start + 1 else "are"
    found = f"{_elements(start, stop)} of axis {axis} {verb} {'missing between them' if gap else 'in both'}"
    return (
        f"merge: the states hold {_elements(*a)} and {_elements(*b)}, and {kinds} depends on the order of elements: "
        f"{found}. Give every leaf its `start={{{axis}: …}}`, and merge neighbours."
    )


def _elements(start: int, stop: int) -> str:
    return f"element {start}" if stop == start + 1 else f"elements {start} to {stop - 1}"


def is_empty(state: State) -> bool:
    """Whether a state holds no element."""
    return state.covers is not None and state.covers[0] == state.covers[1]


def together(a: State, b: State) -> tuple[int, int] | None:
    """What two states cover; None where that is no one range."""
    if is_empty(a) or is_empty(b):
        return b.covers if is_empty(a) else a.covers
    adjoin = a.covers is not None and b.covers is not None and a.covers[1] == b.covers[0]
    return (a.covers[0], b.covers[1]) if adjoin and a.covers and b.covers else None


def finish(form: FusedForm, state: State, given: Mapping[str, Any] | None, empty: str, start: Any) -> dict[str, Any]:
    """The outputs of a state; `given` holds the tensors and scalars that stand in the outputs themselves.

    Outputs that carry a reduced axis are made for the piece of it that `given` holds, which begins at `start`.
    """
    check(form, state)
    given = given or {}
    start = starts(form.cascade, start, "finish")
    needed = {one.name: one for expr in finished_exprs(form) for one in elements_of(expr)}
    missing = sorted(str(one) for name, one in needed.items() if name not in given)
    if missing:
        raise InputError(
            f"finish: the outputs hold {', '.join(missing)}, which a state does not. Pass them as tensors: "
            f'`finish(state, {{"{missing[0].split("[")[0]}": …}})`.'
        )
    check_choice("empty", empty, "finish: ")
    known = {*form.cascade.inputs(), *(one.name for one in form.cascade.scalars())}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(f"finish: the expression holds no tensor `{unknown[0]}`. It holds {', '.join(sorted(known))}.")
    check_scalars(form, state, given)
    piece = piece_sizes(form, state, {name: given[name] for name in needed})
    check_places(form.cascade, start, piece, "finish")
    for name, element in needed.items():
        check_given(given[name], element, state.library, {**state.sizes, **piece})
        check_kind(given[name], element, name in form.cascade.value_tensors())
    scope, executor = unpacked_scope(form, state, given, empty, piece=piece, start=start)
    with scope.ops.quiet():
        made = assembled(finished(form, executor, scope, unpack(form, state, scope), piece),
                         {one.name: (one.axes, output_dtype(one, form, state.result)) for one in form.outputs},
                         scope, state.library)  # fmt: skip
    return to_library(made, state.library, state.library)


def check_scalars(form: FusedForm, state: State, given: Mapping[str, Any]) -> None:
    """Scalars are those that the state was made with; an empty state takes them from the call."""
    for one in form.cascade.scalars():
        name, held = one.name, state.scalars.get(one.name)
        if held is not None and name in given and float(given[name]) != held:
            raise InputError(f"finish: scalar `{name}` is {given[name]}, and the state was made with {held}. Leave it "
                             "out, or make the state with the other.")  # fmt: skip
        used = any(one in expr.free_symbols for expr in finished_exprs(form))
        if held is None and used and name not in given:
            raise InputError(f"finish: the outputs hold the scalar `{name}`, which an empty state has not. Pass it: "
                             f'`finish(state, {{"{name}": …}})`.')  # fmt: skip


def finished(
    form: FusedForm, executor: Executor, scope: Scope, slots: Slots, piece: Mapping[str, int]
) -> Iterator[tuple[Ranges, dict[str, Any]]]:
    """The outputs without a reduced axis, then block after block those with one."""
    values = executor.resolved(scope, slots)
    yield {}, executor.outputs(scope, values, carries=False)
    if any(one.carries for one in form.outputs):
        sizes = {str(axis.name): scope.length(axis) for axis in form.cascade.axes()} | dict(piece)
        for part in pieces(executor.reduced, scope, blocks(form, sizes)):
            yield part, executor.outputs(scope.over(part), values, carries=True)


def finished_exprs(form: FusedForm) -> list[Expr]:
    """What `finish` evaluates: outputs, assignments, and the producers that stand in them."""
    exprs = [one.expr for one in form.outputs] + [one.expr for one in form.assignments]
    used = {value for expr in exprs for value in values_of(expr)}
    produced = [one for one in form.cascade.producers if one.value in used]
    return exprs + [expr for one in produced for expr in one.cascade.expressions()]


def piece_sizes(form: FusedForm, state: State, given: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of axes that the tensors of `finish` have and a state has not: those of the piece."""
    exprs = finished_exprs(form)
    sizes: dict[str, int] = {}
    for element in sorted({one for expr in exprs for one in elements_of(expr)}, key=str):
        for index, size in zip(element.indices, given[element.name].shape, strict=False):
            if isinstance(index, Axis) and (index.name in reduced_names(form) or index.name not in state.sizes):
                sizes.setdefault(index.name, int(size))
    return sizes


def check_given(array: Any, element: Element, library: str, sizes: Mapping[str, int]) -> None:
    """Refuse what does not fit an output's own tensor: of another library, rank or size."""
    name = element.name
    if library_of(array) != library:
        raise InputError(f"finish: tensor `{name}` is a {type(array).__name__}, and the state is of {library}.")
    wanted = [sizes.get(str(index), size) for index, size in zip(element.indices, array.shape, strict=False)]
    if len(array.shape) != len(element.indices) or list(array.shape) != wanted:
        raise InputError(f"finish: tensor `{name}` has shape {tuple(array.shape)}; `{element}` needs {tuple(wanted)}.")


def check_kind(array: Any, element: Element, is_value: bool) -> None:
    """Refuse a gradient, and integers or booleans where they stand in arithmetic."""
    if getattr(array, "requires_grad", False) or (is_value and "float" not in str(array.dtype)):
        raise InputError(f"finish: tensor `{element.name}` should hold floating-point numbers without a gradient.")


def check(form: FusedForm, state: State) -> None:
    """Refuse a state of another form."""
    if not isinstance(state, State) or state.layout != form.slots:
        slots = f"a state of slots {', '.join(s.name for s in state.layout)}" if isinstance(state, State) else ""
        raise InputError(
            f"the state should have the form's slots {', '.join(slot.name for slot in form.slots)}; it is "
            f"{slots or f'a {type(state).__name__}'}. Make it by `leaf` of the same `Fused`."
        )


def packed(form: FusedForm, slots: Slots, scope: Scope, bound: Bound | None, like: State | None = None) -> State:
    """A state from the interpreter's arrays."""
    values = {value.name: (value, array) for value, array in slots.items()}
    arrays = {slot.name: to_axes(values[slot.name][1], slot.axes, scope) for slot in form.slots}
    if like is not None:
        return State(arrays, form.slots, like.sizes, like.result, like.library, like.device, like.scalars)
    if bound is None:
        raise AssertionError("a new state needs its inputs")
    sizes = {name: size for name, size in bound.sizes.items() if name not in reduced_names(form)}
    sizes |= _totals(form, bound.sizes)
    return State(arrays, form.slots, sizes, bound.result, bound.library, bound.device, dict(bound.scalars))


def unpacked_scope(
    form: FusedForm,
    state: State,
    given: Mapping[str, Any] | None = None,
    empty: str = "nan",
    *,
    piece: Mapping[str, int] | None = None,
    start: Mapping[Axis, int] | None = None,
) -> tuple[Scope, Executor]:
    """A scope over the state's free axes and a piece of the reduced ones (empty unless given), and an executor."""
    dtype = next(
        (str(a.dtype).removeprefix("torch.") for a in state.slots.values() if "float" in str(a.dtype)), "float32"
    )
    sizes = {**state.sizes, **dict.fromkeys(reduced_names(form), 0), **(piece or {})}
    scalars = {**state.scalars, **{k: v for k, v in (given or {}).items() if isinstance(v, int | float)}}
    tensors = {k: v for k, v in (given or {}).items() if k not in scalars}
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
