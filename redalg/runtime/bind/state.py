"""A state as a value: slots in one buffer, what they are of, and the checks of states that come from elsewhere.

A state says of which form it is (`identity`) and which places it holds (`places`). States of another form, and pieces
in the wrong place, are refused if they would give another number.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, final

from redalg.display import Displayed
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.arguments import answer_methods
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import Executor, Slots
from redalg.incremental.form import FusedForm, Slot
from redalg.incremental.remembered import Remembered
from redalg.incremental.state_outputs import INTEGERS, values_of_slots
from redalg.runtime.bind.arrays import from_axes, scope_for, to_axes
from redalg.runtime.bind.backends import ops_for
from redalg.runtime.bind.identity import VERSION, first_difference, identity
from redalg.runtime.bind.inputs import Bound, array_dtype, library_name
from redalg.runtime.bind.packing import Packed
from redalg.runtime.bind.places import Boxes
from redalg.runtime.bind.state_bytes import ANEW, in_library, read_state, split_bytes, to_bytes, write_header


@answer_methods(InputError)
@final
@dataclass(frozen=True, repr=False)
class State(Displayed):
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

    >>> import numpy as np, redalg as ra
    >>> n = ra.axes("n")
    >>> mean = ra.fuse(ra.mean(ra.tensor("x[n]"), n))
    >>> state = mean.leaf({"x": np.float32([1, 2, 6])})
    >>> list(state.slots), state.covers, state.buffer.nbytes
    (['count', 'sum_0'], (0, 3), 32)
    >>> again = ra.State.from_bytes(state.to_bytes())
    >>> other = ra.State.from_state_dict(state.state_dict(), library="numpy")
    >>> float(mean.finish(mean.merge(again, other)))
    3.0
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

    @property
    def buffer(self) -> Any:
        """All slots in one array of bytes, of the same library and device: what moves in one message.

        The slots of a state that redalg made are views of it, in the order of `layout`, each from a multiple of 16
        bytes. Of a state that was put together otherwise it is a copy.
        """
        return self._in_buffer.buffer

    @property
    def _in_buffer(self) -> Packed:
        if isinstance(self.slots, Packed):
            return self.slots
        return Packed.of({slot.name: self.slots[slot.name] for slot in self.layout}, self.library, self.device)

    @property
    def _header(self) -> str:
        return write_header({one.name: getattr(self, one.name) for one in fields(self)}, self._in_buffer.packing)

    def to_bytes(self) -> bytes:
        """The state as bytes for another process: a header in JSON, and the slots as they lie in memory.

        >>> import numpy as np, redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[n]"), ra.axes("n")))
        >>> data = total.leaf({"x": np.float32([1, 2])}).to_bytes()
        >>> float(total.finish(ra.State.from_bytes(data)))
        3.0
        """
        return to_bytes(self._header, self.buffer)

    @classmethod
    def from_bytes(cls, data: bytes, *, library: str | None = None, device: str = "cpu") -> State:
        """The state of what `to_bytes` gave: data alone, of which nothing is executed.

        Args:
            data: the bytes.
            library: `numpy` or `torch`; None for that of the state.
            device: where a state of torch lies.

        Raises:
            InputError: they are no state's, or cut short.
        """
        header, buffer = split_bytes(data)
        return cls(**read_state(header, buffer, library, device, "from_bytes"))

    def state_dict(self) -> dict[str, Any]:
        """The state as `{"header": text, "buffer": tensor of bytes}`, which `torch.load` reads with `weights_only`."""
        packed = self._in_buffer
        return {"header": self._header, "buffer": in_library(packed.buffer, "torch", self.device)}

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any], *, library: str | None = None,
                        device: str | None = None) -> State:  # fmt: skip
        """The state of what `state_dict` gave, on the device of its buffer unless another is asked for.

        Raises:
            InputError: it has no header and buffer of a state.
        """
        if not isinstance(state_dict, Mapping):
            raise InputError(f"from_state_dict: it should be a dict, not a {type(state_dict).__name__}. {ANEW}")
        header, buffer = state_dict.get("header"), state_dict.get("buffer")
        if not isinstance(header, str) or library_name(buffer) is None:
            raise InputError(f"from_state_dict: it should have a `header` and a `buffer`; it has "
                             f"{', '.join(map(str, state_dict)) or 'nothing'}. {ANEW}")  # fmt: skip
        there = str(getattr(buffer, "device", "cpu")) if device is None else device
        return cls(**read_state(header, buffer, library, there, "from_state_dict"))

    def __str__(self) -> str:
        return "\n".join(f"{slot}: {tuple(self.slots[slot.name].shape)}" for slot in self.layout)


def reduced_names(form: FusedForm) -> tuple[str, ...]:
    """The names of the reduced axes."""
    return tuple(str(axis.name) for axis in form.cascade.reduced_axes)


def total_extents(form: FusedForm, sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of reduced axes that stand in expressions by themselves."""
    return {name: sizes[name] for name in reduced_names(form) if name in form.cascade.extents() and name in sizes}


def copy_with(state: State, **fields: Any) -> State:
    """The state with other fields, as `dataclasses.replace` gives it in a third of the time."""
    copy = object.__new__(State)
    vars(copy).update(vars(state), **fields)
    return copy


def is_empty_state(state: State) -> bool:
    """Tell if a state holds no element."""
    return state.places == ()


KINDS = 4096
"""Number of kinds of states that are remembered for a form; beyond it, all are forgotten at once."""
_CHECKED: Remembered[set[Hashable]] = Remembered(lambda _: set())
"""Form -> the kinds of states that were found to be of it."""


def kind_of_state(state: State) -> Hashable:
    """All of a state that `check_state` looks at, but for its layout; None if its slots lie in no common buffer."""
    if not isinstance(state.slots, Packed):
        return None
    arrays = state.slots.packing.key, type(state.slots.buffer), state.library, state.device
    return arrays, tuple(state.sizes.items()), state.form, state.version, state.result


def check_state(form: FusedForm, state: State, method: str) -> None:
    """Refuse all but a state of this form: another form's, one of another version, one whose arrays do not fit it."""
    kind = kind_of_state(state) if isinstance(state, State) and state.layout == form.slots else None
    known = _CHECKED(form)
    if kind is not None and kind in known:
        return
    check_new_state(form, state, method)
    if len(known) >= KINDS:
        known.clear()
    if kind is not None:
        known.add(kind)


def check_new_state(form: FusedForm, state: State, method: str) -> None:
    """As `check_state`, whatever was checked before."""
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
    integer = slot.kind in INTEGERS
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
    known = {slot.name: to_axes(values[slot.name][1], slot.axes, scope) for slot in form.slots}
    if like is not None:
        return replace(like, slots=Packed.of(known, like.library, like.device))
    if bound is None:
        raise AssertionError("a new state needs its inputs")
    return new_state(form, known, bound)


def new_state(form: FusedForm, arrays: Mapping[str, Any], bound: Bound) -> State:
    """The state of arrays for every slot, made of tensors bound like these; it does not say which places it holds."""
    sizes = {name: size for name, size in bound.sizes.items() if name not in reduced_names(form)}
    sizes |= total_extents(form, bound.sizes)
    own, slots = identity(form), Packed.of(arrays, bound.library, bound.device)
    return State(slots, form.slots, sizes, bound.result, bound.library, bound.device, dict(bound.scalars),
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
    totals = total_extents(form, state.sizes)
    scope = scope_for(form.cascade, bound, ops, tensors, start=start, extents=totals)
    return scope, Executor(form, ops, empty)


def unpack(form: FusedForm, state: State, scope: Scope) -> Slots:
    """The interpreter's arrays of a state."""
    values = values_of_slots(form)
    return {values[slot.name]: from_axes(state.slots[slot.name], slot.axes, scope) for slot in state.layout}
