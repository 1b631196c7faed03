"""A function of data that comes in pieces: its states, which any tree of merges joins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redalg.decompose.cascade import Cascade
from redalg.decompose.verdict.passes import refuse_states
from redalg.decompose.verdict.verdict import Decomposition
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.arguments import answer_methods
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.options import Sizes

if TYPE_CHECKING:
    from redalg.runtime.bind.state import State


@answer_methods(InputError)
class Streaming(ABC):
    """A function that is made of pieces of its data."""

    cascade: Cascade
    earlier: tuple[Decomposition, ...]

    @property
    @abstractmethod
    def form(self) -> FusedForm:
        """The form whose states these are."""

    @abstractmethod
    def _pass_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of the last pass, of those of the whole function."""

    @abstractmethod
    def _outputs(self, arrays: Mapping[str, Any]) -> Any:
        """The outputs as a call returns them."""

    def _check_named(self, caller: str, tensors: Any, before: str = "") -> None:
        """Refuse what is no mapping of names to tensors."""
        if not isinstance(tensors, Mapping):
            names = ", ".join(f'"{name}": …' for name in self.cascade.inputs())
            raise InputError(f"{caller}: a {type(tensors).__name__} is given. Pass tensors by name: "
                             f"`{caller}({before}{{{names}}})`.")  # fmt: skip
        if wrong := [key for key in tensors if not isinstance(key, str)]:
            raise InputError(f"{caller}: a tensor is given by `{wrong[0]}`, a {type(wrong[0]).__name__}, and should be "
                             f"by its name, a str. Write `{caller}({before}{{\"{getattr(wrong[0], 'name', '…')}\": "
                             "…})`.")  # fmt: skip

    def leaf(self, tensors: Mapping[str, Any], start: Sizes | None = None,
             extents: Sizes | None = None, *, backend: str | None = None, by: Any = None,
             groups: int | None = None) -> State:  # fmt: skip
        """The state of a piece of the data: arrays over the free axes alone, whatever the length of the piece.

        Args:
            tensors: every array and scalar by name; those with the streamed axis hold a piece of it, of any length.
            start: `{axis: global number of the piece's first element}` (0 where left out), for masks, indices, order.
            extents: sizes by axis or by its name: those that no tensor has, totals that an expression holds alone.
            backend: `"tilelang"` for a generated kernel, `"library"` for the operations of torch or NumPy. Left out,
                tensors on CUDA take a kernel, but for an empty piece, and for tensors that are read at computed places
                of a piece that starts beyond 0. By group there are kernels where they are asked for.
            by: the group of every element along the streamed axis, an integer from 0 to `groups` - 1, in any order: the
                state of every group, in one pass. Its slots have the groups as their first axis.
            groups: the number of groups, those without an element counted.

        Returns:
            A state, which pickles: `.slots`, name -> array, as `state` lists them, at least float32 (integers int64).

        Raises:
            InputError: the tensors or the keys do not fit the expression, a total is missing, or the form takes several
                passes.
            BackendError: no kernel makes the state of this piece, and one was asked for.

        >>> import numpy as np, redalg as ra
        >>> mean = ra.fuse(ra.mean(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> print(mean.leaf({"x": np.float32([[1, 2, 6], [2, 2, 2]])}))
        count[] count: ()
        sum_0[b] accumulator: (2,)
        >>> print(mean.leaf({"x": np.float32([[1, 2, 6], [2, 2, 2]])}, by=np.array([0, 3, 0]), groups=4))
        count[groups] count: (4,)
        sum_0[groups, b] accumulator: (4, 2)
        """
        from redalg.runtime.call.states import leaf

        self._check_named("leaf", tensors)
        refuse_states("leaf", self.cascade, self.earlier)
        inputs = self._pass_inputs(tensors)
        return leaf(self.form, inputs, start, extents or {}, backend, by=by, groups=groups)

    def merge(self, a: State, *more: State, backend: str | None = None) -> State:
        """The state of all pieces together, in any order (the laws hold modulo the pivot: compare `finish`).

        Where a reduction depends on the order of elements (`first`, `last`, `affine`), the pieces must adjoin, as the
        `start` of their leaves says; the one that comes first is taken first. None changes, and the slots keep their
        shapes. Source: RedFuser (ASPLOS '26), Eqs. 11, 15.

        Args:
            a, more: the states.
            backend: `"tilelang"` for a generated kernel, one for each number of states; `"library"` for the operations
                of torch or NumPy, which merge neighbours as a tree. Left out, states on CUDA take a kernel if there is
                one: not with run-time scalars, nor for slots that are lists (`topk`).

        Raises:
            InputError: they differ in form, rows, library, device, dtype or scalars, or do not adjoin where they must.
            BackendError: no kernel merges these states, and one was asked for.

        >>> import numpy as np, redalg as ra
        >>> n = ra.axes("n")
        >>> at = ra.fuse(ra.argmax(ra.tensor("x[n]"), n))
        >>> a, b = at.leaf({"x": np.float32([1, 7])}), at.leaf({"x": np.float32([9, 2, 9])}, start={n: 2})
        >>> int(at.finish(at.merge(b, a)))
        2
        """
        from redalg.runtime.call.states import form_of_states, merge_any

        refuse_states("merge", self.cascade, self.earlier)
        return merge_any(form_of_states(self.form, a, *more), (a, *more), backend)

    def update(self, state: State, tensors: Mapping[str, Any], start: Sizes | None = None,
               extents: Sizes | None = None, *, by: Any = None) -> State:  # fmt: skip
        """The state of what a state holds and of a piece more, in the memory of the state, which is spent by it.

        The buffer has one owner, the state that is returned. What shares it changes with it: `state` itself, arrays of
        its slots, and the views of `expand`. What `leaf`, `merge` of several, `take`, `to_bytes`, `state_dict` and
        their inverses give has memory of its own. A piece that is refused leaves the state as it was.

        Args:
            state: the running state.
            tensors, extents: as in `leaf`.
            start: `{axis: global number of the piece's first element}`; left out, the piece follows what the state
                holds.
            by: the groups of the piece's elements, for a state by group.

        Returns:
            The running state from now on. Its `buffer` is that of `state`, which no one may read as a state again.

        Raises:
            InputError: as `leaf` and `merge`, or the piece asks for wider slots than the state has.

        >>> import numpy as np, redalg as ra
        >>> n = ra.axes("n")
        >>> at = ra.fuse(ra.argmax(ra.tensor("x[n]"), n))
        >>> state = at.empty_state({}, library="numpy")
        >>> for batch in ([1, 7], [9, 2, 9]):
        ...     state = at.update(state, {"x": np.float32(batch)})
        >>> int(at.finish(state)), state.covers
        (2, (0, 5))
        """
        from redalg.runtime.call.states import update

        self._check_named("update", tensors, "state, ")
        refuse_states("update", self.cascade, self.earlier)
        return update(self.form, state, self._pass_inputs(tensors), start, extents or {}, by=by)

    def take(self, state: State, rows: Any, axis: Axis | str) -> State:
        """The state of some rows of a state, in memory of its own: requests that leave a batch, or go on in another.

        Args:
            state: the state.
            rows: their numbers along the axis (a sequence or an array, in any order, again and again), or a slice.
            axis: one that is not reduced.

        Raises:
            InputError: there are no such rows, or their places matter and they do not follow each other.

        >>> import numpy as np, redalg as ra
        >>> b, n = ra.axes("b n")
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))
        >>> state = total.leaf({"x": np.float32([[1, 2], [3, 4], [5, 6]])})
        >>> total.finish(total.take(state, [2, 0], b)).tolist()
        [11.0, 3.0]
        """
        from redalg.runtime.bind.rows import take_rows

        refuse_states("take", self.cascade, self.earlier)
        return take_rows(self.form, state, rows, axis)

    def put(self, state: State, rows: Any, other: State, axis: Axis | str) -> State:
        """The state with some rows replaced by those of another, in the memory of the state, which is spent by it.

        The rows of an empty state begin anew. Rows may hold other elements than the state, and other numbers of them.
        Where the order of elements alone matters, they go on after what they hold, at the places of the state.

        Args:
            state: the state.
            rows: the numbers along the axis of the rows to be replaced, each once, or a slice.
            other: a state of so many rows.
            axis: one that is not reduced.

        Raises:
            InputError: the rows do not fit the state, differ in a slot that all rows share (a count), or hold other
                places than the state where places matter.

        >>> import numpy as np, redalg as ra
        >>> b, n = ra.axes("b n")
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))
        >>> state = total.leaf({"x": np.float32([[1, 2], [3, 4], [5, 6]])})
        >>> state = total.put(state, [1], total.leaf({"x": np.float32([[7]])}), b)
        >>> total.finish(state).tolist()
        [3.0, 7.0, 11.0]
        """
        from redalg.runtime.bind.rows import put_rows

        refuse_states("put", self.cascade, self.earlier)
        return put_rows(self.form, state, rows, other, axis)

    def expand(self, state: State, sizes: Sizes, of: Streaming | None = None) -> State:
        """The state of many rows that are alike, from that of one: a prefix that rows share. Its slots are views.

        Args:
            state: the state.
            sizes: the numbers of rows by axis, or by its name.
            of: the function that the state is of, if that is this one but for tensors which lack some of these axes.
                A prefix of keys that have no batch is read once for all rows so.

        Raises:
            InputError: the state has other than one row along an axis, the places along it matter, or `of` is another
                function.

        >>> import numpy as np, redalg as ra
        >>> b, n = ra.axes("b n")
        >>> total, shared = (ra.fuse(ra.sum(ra.tensor(x), n)) for x in ("x[b,n]", "x[n]"))
        >>> prefix = total.expand(shared.leaf({"x": np.float32([1, 2])}), {b: 3}, of=shared)
        >>> total.finish(total.merge(prefix, total.leaf({"x": np.float32([[0], [1], [2]])}))).tolist()
        [3.0, 4.0, 5.0]
        """
        from redalg.runtime.bind.rows import expand_rows

        refuse_states("expand", self.cascade, self.earlier)
        return expand_rows(self.form, state, sizes, None if of is None else of.form)

    def finish(self, state: State, tensors: Mapping[str, Any] | None = None, empty: str = "nan",
               start: Sizes | None = None, *, condition: bool = False, by: Any = None,
               backend: str | None = None) -> Any:  # fmt: skip
        """The outputs of a state.

        Args:
            state: the state of all the data.
            tensors: those that stand in the outputs themselves. An output that carries the reduced axis is made for
                the piece of it that they hold: pass piece after piece to make it part by part.
            empty: what a ratio over no elements is, `"nan"` or `"zero"`.
            start: `{axis: global number of the piece's first element}` (0 where left out), for masks over the axis.
            condition: give κ of every output beside it, the shape alike: about κ·ε of the output is lost, where ε is
                the unit roundoff of the state's type (Higham 2002, section 1.6). 1 where nothing cancels.
            backend: `"tilelang"` for a generated kernel, `"library"` for the operations of torch or NumPy. Left out,
                states on CUDA take a kernel if there is one: not where an output reduces tensors itself, nor for a
                piece that starts beyond 0 where places matter, nor with `condition`.
            by: of a state by group, the groups of the elements that `tensors` hold, for outputs that keep the axis. The
                other outputs have the groups as their first dimension.

        Returns:
            What a call gives, dimensions in the order of the output axes, a reduced axis as long as the piece; with
            `condition` a pair of the outputs and their κ.

        Raises:
            InputError: the state is none of this form, a tensor that an output holds is missing, or one does not fit.
            BackendError: no kernel makes these outputs, and one was asked for.

        >>> import numpy as np, redalg as ra
        >>> share = ra.fuse(ra.normalize(ra.tensor("x[n]"), ra.axes("n"), p=1))
        >>> state = share.leaf({"x": np.float32([1, 2, 5])})
        >>> share.finish(state, {"x": np.float32([2, 5])}, start={ra.axes("n"): 1}).tolist()
        [0.25, 0.625]
        >>> gap = ra.fuse(ra.sum(ra.tensor("x[n]"), ra.axes("n")) - ra.max(ra.tensor("x[n]"), ra.axes("n")))
        >>> value, kappa = gap.finish(gap.leaf({"x": np.float32([1, 1e6])}), condition=True)
        >>> float(value), float(kappa)
        (1.0, 1000001.0)
        """
        from redalg.runtime.call.groups import finish_any

        refuse_states("finish", self.cascade, self.earlier)
        if tensors is not None:
            self._check_named("finish", tensors, "state, ")
        inputs = tensors and self._pass_inputs(tensors)
        results = finish_any(self.form, state, inputs, empty, start, condition=condition, by=by, backend=backend)
        return tuple(map(self._outputs, results)) if condition else self._outputs(results[0])

    def empty_state(self, sizes: Sizes, dtypes: Any = "float32", device: str = "cpu",
                    library: str = "torch", *, groups: int | None = None) -> State:  # fmt: skip
        """The identity of `merge`: the state of no elements.

        Args:
            sizes: extents of the free axes, by axis or by its name, and totals of reduced axes as in `leaf(extents=)`.
            dtypes: of the tensors that other states are made from: one for all, or by tensor name.
            device, library: of those tensors (torch or numpy).
            groups: the number of groups, for states by group.

        Raises:
            InputError: a size is missing, or the form takes several passes.

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> state = total.empty_state({"b": 2}, library="numpy")
        >>> state.covers, total.finish(state)
        ((0, 0), array([0., 0.], dtype=float32))
        """
        from redalg.runtime.call.states import nothing_of

        refuse_states("empty_state", self.cascade, self.earlier)
        return nothing_of(self.form, sizes, dtypes, str(device), library, groups=groups)
