"""The states of pieces of data, and that of none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, final

from sympy.core.basic import Basic

from redalg.errors import BackendError, InputError
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from redalg.expression.dtypes import is_emulated
from redalg.incremental.arrays.interpret import Executor
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered
from redalg.runtime.bind.arrays import scope_for
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.backends import ops_for, tensors_for
from redalg.runtime.bind.blocks import (
    BLOCK_ELEMENTS,
    BLOCK_ELEMENTS_OF_A_CORE,
    block_lengths,
    makes_products,
    stream,
)
from redalg.runtime.bind.inputs import Bound, bind, without_gradients
from redalg.runtime.bind.options import check_places, global_starts, named_dtypes, named_sizes
from redalg.runtime.bind.places import (
    axes_in_arithmetic,
    finished_exprs,
    is_nothing,
    leaf_exprs,
    row_axes_by_place,
    under_two_indices,
)
from redalg.runtime.bind.state import State, copy_with, pack_state, reduced_names, total_extents


@final
@dataclass(frozen=True)
class Piece:
    """A piece of the data, checked.

    Attributes:
        inputs, bound: as they were given, without gradients, and bound.
        start: the global number of the first element, by axis.
        extents: sizes that no tensor has, and totals.
    """

    inputs: Mapping[str, Any]
    bound: Bound
    start: Mapping[Axis, int]
    extents: Mapping[str, int]

    @property
    def whole(self) -> Bound:
        """The tensors bound, with the totals of axes of which the piece has a part: a state has those sizes."""
        return replace(self.bound, sizes={**self.bound.sizes, **self.extents})

    def complete(self, state: State, form: FusedForm) -> State:
        """The state with the places that it holds."""
        reduced = form.cascade.reduced_axes
        firsts = ((axis, self.start.get(axis, 0)) for axis in reduced)
        box = tuple((first, first + self.bound.sizes[axis.name]) for axis, first in firsts)
        others = row_axes_by_place(form) if self.start else ()
        starts = {axis.name: first for axis, first in self.start.items() if axis in others}
        return copy_with(state, places=() if is_nothing(box) else (box,), starts=starts)


def _check_leaf_indices(form: FusedForm) -> bool:
    check_piece_indices(leaf_exprs(form), form, "leaf", beside=finished_exprs(form))
    return True


_checked: Remembered[bool] = Remembered(_check_leaf_indices)


def read_piece(form: FusedForm, inputs: Mapping[str, Any], start: Any, extents: Any) -> Piece:
    """A piece whose first element along the streamed axis has the global number `start`."""
    start, extents = global_starts(form.cascade, start, "leaf"), named_sizes(form.cascade, extents, "leaf", "extents")
    _checked(form)
    inputs = without_gradients(inputs)
    lone = [one for one in form.cascade.extents() if one in reduced_names(form) and one not in extents]
    if lone:
        raise InputError(
            f"leaf: an expression holds the extent of axis {lone[0]}, of which a piece has a part, and a state counts "
            f"the elements of {' and '.join(reduced_names(form))} together alone. Pass its total, "
            f'`leaf(…, extents={{"{lone[0]}": …}})`.'
        )
    bound = bind(form.cascade, inputs, extents, chunked=True)
    check_places(start, bound.sizes, axes_in_arithmetic(form), "leaf")
    return Piece(inputs, bound, start, extents)


@without_autocast()
def leaf_by_arrays(form: FusedForm, piece: Piece) -> State:
    """The state of a piece, by the operations of its library."""
    bound = piece.bound
    ops = ops_for(bound, bound.library)
    executor, tensors = Executor(form, ops), tensors_for(bound, bound.library)
    scope = scope_for(form.cascade, bound, ops, tensors, start=piece.start, extents=piece.extents)
    on_core = bound.library == "numpy" and not makes_products(form)
    lengths = block_lengths(form, bound.sizes, BLOCK_ELEMENTS_OF_A_CORE if on_core else BLOCK_ELEMENTS)
    with ops.quiet():
        slots = stream(executor, scope, lengths)
    return piece.complete(pack_state(form, slots, scope, piece.whole), form)


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


def empty_state(form: FusedForm, sizes: Any, dtypes: Any, device: str, library: str) -> State:
    """The identity of `merge`: the state of no elements."""
    sizes, cascade = named_sizes(form.cascade, sizes, "empty_state"), form.cascade
    check_piece_indices(leaf_exprs(form), form, "empty_state")
    shapes = {one.name: [_size(index, sizes, form) for index in one.indices] for one in cascade.elements()}
    dtype_of = named_dtypes(cascade, "float32") | named_dtypes(
        cascade, {} if dtypes is None else dtypes, tuple(shapes), "empty_state"
    )
    inputs: dict[str, Any] = {
        name: no_elements(name, shape, dtype_of[name], device, library) for name, shape in shapes.items()
    }
    inputs |= {one.name: 1.0 for one in form.cascade.scalars()}
    extents = {name: size for name, size in sizes.items() if name not in reduced_names(form)}
    extents |= dict.fromkeys(reduced_names(form), 0) | total_extents(form, sizes)
    state = leaf_by_arrays(form, read_piece(form, inputs, {}, extents))
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
    except RuntimeError as cause:
        raise InputError(f"empty_state: torch makes no tensor on device={device!r}. Give the name of a device that it "
                         'knows here, such as "cpu" or "cuda".') from cause  # fmt: skip
    raise InputError(f"empty_state: {library} has no dtype {dtype!r}, given of tensor `{name}`.")


def _size(index: Any, sizes: Mapping[str, int], form: FusedForm) -> int:
    if index in form.cascade.reduced_axes:
        return 0
    if isinstance(index, Axis):
        if index.name not in sizes and index.size is None:
            raise InputError(f'empty_state: the size of axis {index} is missing. Pass sizes={{"{index}": …}}.')
        size = sizes.get(index.name, index.size)
        if not isinstance(size, int) or size < 0:
            raise InputError(f"empty_state: the size of axis {index} should be a non-negative int, not {size!r}.")
        return size
    return max([1, *sizes.values()])
