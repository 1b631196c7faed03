"""Inputs of a function that nobody gives: sizes, shapes, and numbers that are legal for it.

signs       as they were declared; positive where a sum of the tensor divides, or its logarithm or root is taken
integers    within the dimension that they index, or among the places of the axes that they are compared with
scalars     0.75, or the nearest that they were declared to be; an integer is 2
seeds       each tensor's from its name, so that one more tensor changes no other
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from typing import Any, Protocol, final
from zlib import crc32

import numpy as np
from sympy import Expr, Integer, lambdify
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
from redalg.errors import BackendError, InputError
from redalg.expression import Axis, Element, Scalar
from redalg.expression.axis import Extent
from redalg.expression.dtypes import DTYPES, is_float
from redalg.incremental.passes import Passes
from redalg.runtime.bind.frameworks import imported_torch
from redalg.runtime.bind.inputs import assumptions, promote_dtypes
from redalg.runtime.bind.options import Sizes, named_dtypes, named_shapes, named_sizes
from redalg.unfused.legal import divided_weights, integer_bound, roots_and_logs, scalar_value

GATHERED = 64
"""Length of a dimension that is read at places which the data tell."""
Tensors = dict[str, Any]
Shape = tuple[int, ...]
Change = Callable[["Numbers"], Any]
"""Numbers -> the array of one tensor."""


class Measurable(Protocol):
    """A fused function, as instruments call it."""

    @property
    def cascade(self) -> Cascade:
        """The reductions, as they were parsed."""

    @property
    def written(self) -> tuple[tuple[str, Expr], ...]:
        """Each output's name and its expression as it was given."""

    @property
    def passes(self) -> Passes:
        """The forms of all passes."""

    @property
    def _unread_inputs(self) -> Mapping[str, Element | Scalar]: ...

    def __call__(self, /, *positional: Any, backend: str | None = None, sizes: Sizes | None = None,
                 **tensors: Any) -> Any: ...  # fmt: skip

    def reference(self, /, *positional: Any, sizes: Sizes | None = None, **tensors: Any) -> Any:
        """The definition in float64."""

    def plans(self, sizes: Sizes | None = None, dtypes: Any = "float16", device: str = "sm_90a", **options: Any) -> Any:
        """The plans of a call by predicted time."""


# ---- sizes -----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Scale:
    """The sizes that are chosen where nobody gives them.

    Attributes:
        streamed, free, inner: of the streamed axis, of those of outputs, of those of inner reductions.
        work: elements that all axes together may have; the largest are halved.
        least, least_streamed: sizes below which nothing is halved.
    """

    streamed: int = 4096
    free: int = 256
    inner: int = 64
    work: float = math.inf
    least: int = 16
    least_streamed: int = 16

    def sizes(self, cascade: Cascade, given: Mapping[str, int]) -> dict[str, int]:
        """A size for every axis that has none of its own; those that are given stay.

        Raises:
            InputError: a size is given for an axis that the function lacks, or is no size.
        """
        outside = {axis for output in cascade.outputs for axis in output.axes}
        own = {axis.name: self.streamed if axis == cascade.axis else self.free if axis in outside else self.inner
               for axis in cascade.axes() if axis.size is None}  # fmt: skip
        declared = {axis.name for axis in cascade.axes() if axis.size is not None}
        given = {name: size for name, size in given.items() if name not in declared}
        foreign = [name for name in given if name not in own]
        if foreign:
            raise InputError(f"sizes: there is no axis `{foreign[0]}` here. The axes are {', '.join(own)}.")
        for name, size in given.items():
            if not isinstance(size, int) or size < 0:
                raise InputError(f"sizes: the size of axis {name} should be a non-negative int, not {size!r}.")
        made = self.smaller({**own, **given}, given, str(cascade.axis.name))
        return alike_sizes(cascade, made, given)

    def smaller(self, sizes: Mapping[str, int], given: Iterable[str], streamed: str) -> dict[str, int]:
        """Sizes of at most the work: the largest that are not given are halved.

        >>> Scale(work=2**20).smaller({"b": 1024, "n": 4096, "k": 64}, ["k"], "n")
        {'b': 128, 'n': 128, 'k': 64}
        """
        made = dict(sizes)
        free = [axis for axis in made if axis not in given]
        while math.prod(made.values()) > self.work:
            long = [one for one in free if made[one] > (self.least_streamed if one == streamed else self.least)]
            if not long:
                break
            made[max(long, key=made.__getitem__)] //= 2
        return made


def alike_sizes(cascade: Cascade, sizes: Mapping[str, int], given: Iterable[str]) -> dict[str, int]:
    """Sizes with one for all axes that index the same dimension of a tensor: what is given, or the least."""
    made, known = dict(sizes), set(given)
    places = defaultdict[tuple[str, int], set[str]](set)
    for element in cascade.elements():
        for place, index in enumerate(element.indices):
            if isinstance(index, Axis) and index.name in made:
                places[element.name, place].add(index.name)
    for names in places.values():
        size = min(made[name] for name in (names & known or names))
        made |= dict.fromkeys(names - known, size)
    return made


MEASURED = Scale()
"""Of what is timed on a GPU."""
ON_CPU = Scale(work=2**24)
JUDGED = Scale(4096, 64, 16, 2**20, 4, 512)
"""Of what is judged."""


# ---- the problem -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Setting:
    """A function with sizes and dtypes, for which inputs are drawn.

    Attributes:
        fused: the function.
        sizes: of every axis that has none of its own, by name.
        dtypes: of every tensor, by name.
        given: shapes by tensor, of those whose indices do not tell them.
        device: `cpu` or `cuda`.
        library: `torch` or `numpy`.
    """

    fused: Measurable
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    given: Mapping[str, Shape] = field(default_factory=dict)
    device: str = "cpu"
    library: str = "torch"

    @staticmethod
    def of_options(
        fused: Measurable, sizes: Sizes | None, dtypes: Any, scale: Scale, **more: Any
    ) -> Setting:  # fmt: skip
        """The setting that a user asks for."""
        chosen = scale.sizes(fused.cascade, named_sizes(fused.cascade, sizes))
        names = all_names(fused)
        named = {**dict.fromkeys(names, "float32"), **named_dtypes(fused.cascade, dtypes, names)}
        unknown = [name for name in named.values() if name not in DTYPES]
        if unknown:
            raise InputError(f"dtypes: {unknown[0]!r} is no dtype of redalg. There are {', '.join(DTYPES)}.")
        given = named_shapes(fused.cascade, more.pop("given", None) or {}, tensors=names)
        return Setting(fused, chosen, named, given, **more)

    @property
    def result(self) -> str:
        """The dtype of floating-point outputs."""
        return dtype_of_result(self.dtypes.values())

    @cached_property
    def all_sizes(self) -> dict[str, int]:
        """The sizes, and those that axes have of themselves."""
        return {axis.name: axis.size for axis in self.fused.cascade.axes() if axis.size is not None} | dict(self.sizes)

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """Every element that is read, those of the expression alone too."""
        unread = [one for one in self.fused._unread_inputs.values() if isinstance(one, Element)]
        return (*self.fused.cascade.elements(), *unread)

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of every tensor."""
        names = dict.fromkeys(one.name for one in self.elements)
        return {name: self.given.get(name) or self._shape(name) for name in names}

    def _shape(self, name: str) -> Shape:
        read = [one.indices for one in self.elements if one.name == name]
        return tuple(max(extent_of(index, self.all_sizes) for index in at) for at in zip(*read, strict=True))

    @property
    def scalars(self) -> dict[str, float]:
        """A legal value of every run-time scalar."""
        unread = [one for one in self.fused._unread_inputs.values() if isinstance(one, Scalar)]
        found = (*self.fused.cascade.scalars(), *unread)
        return {one.name: scalar_value(one, [test for _, test in assumptions(one)]) for one in found}

    @cached_property
    def signs(self) -> dict[str, str]:
        """`positive`, `nonnegative` or `finite`, of the tensors that must be: by declaration, or to have a value."""
        declared = {one.name: one.label.assumption for one in self.elements if one.label.assumption}
        needed = divided_weights(self.fused.cascade) | roots_and_logs([expr for _, expr in self.fused.written])
        return {**dict.fromkeys(needed, "positive"), **declared}

    @property
    def absent_sizes(self) -> dict[str, int]:
        """The sizes that a call needs: those of axes that no tensor carries."""
        carried = {index.name for one in self.elements for index in one.indices if isinstance(index, Axis)}
        return {name: size for name, size in self.sizes.items() if name not in carried}

    def draw(self, change: Change | None = None, only: Iterable[str] | None = None, *, name: str = "") -> Tensors:
        """Tensors and scalars by name.

        Args:
            change: makes a tensor of its numbers; None for normal ones.
            only: the tensors that are changed; None for all floats.
            name: of the draw, which seeds it.
        """
        made: Tensors = {}
        chosen = set(self.shapes) if only is None else set(only)
        for tensor in self.shapes:
            numbers = self.numbers(tensor, name)
            changed = change if change and tensor in chosen else normal_numbers
            made[tensor] = numbers.array(changed) if is_float(self.dtypes[tensor]) else numbers.integers()
        return made | self.scalars

    def numbers(self, tensor: str, draw: str = "") -> Numbers:
        """The source of a tensor's numbers."""
        return Numbers(self, tensor, self.shapes[tensor], crc32(f"{draw} {tensor}".encode()))


def dtype_of_result(dtypes: Iterable[str]) -> str:
    """The dtype of floating-point outputs of tensors of these dtypes.

    >>> dtype_of_result(["float16", "int32", "float32"])
    'float32'
    """
    return promote_dtypes([one for one in dtypes if is_float(one)])[1]


def all_names(fused: Measurable) -> list[str]:
    """The tensors of a function, those that no reduction reads too."""
    unread = [name for name, one in fused._unread_inputs.items() if isinstance(one, Element)]
    return [*fused.cascade.inputs(), *unread]


def extent_of(index: Expr, sizes: Mapping[str, int]) -> int:
    """The length of a dimension that is read at an index, at most.

    >>> from redalg import axes
    >>> h, n = axes("h n")
    >>> extent_of(h // 4, {"h": 32}), extent_of(n - 1, {"n": 100}), extent_of(n, {"n": 100})
    (8, 99, 100)
    >>> extent_of(h - n + n.extent - 1, {"h": 32, "n": 100})
    131
    """
    if isinstance(index, Axis):
        return index.size or sizes[index.name]
    if has_data(index):
        return GATHERED
    index = index.xreplace({one: Integer(sizes[one.name]) for one in index.atoms(Extent)})
    axes = sorted(index.atoms(Axis), key=str)
    ends = product(*((0, (axis.size or sizes[axis.name]) - 1) for axis in axes))
    place = lambdify(axes, index, "math")
    return max(1, *(int(place(*at)) + 1 for at in ends), 1)


def has_data(index: Basic) -> bool:
    """Tell if an index is made of data."""
    return isinstance(index, Element) or any(map(has_data, index.args))


def library_for(backend: str | None, device: str) -> str:
    """The array library that inputs are drawn by: PyTorch where it is installed, NumPy for its own backend.

    Raises:
        BackendError: there is no such device.
    """
    if backend == "numpy" or (find_spec("torch") is None and device == "cpu"):
        return "numpy"
    chosen_device(device)
    return "torch"


def chosen_device(name: str | None) -> str:
    """`cuda` where there is one, unless the user says otherwise.

    Raises:
        BackendError: there is no such device.
    """
    import torch

    if name not in ("cpu", "cuda", None):
        raise BackendError(f"device: {name!r} is no device here. Use 'cpu' or 'cuda'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise BackendError("there is no CUDA device here: torch.cuda.is_available() is False. Leave the device out.")
    return name or ("cuda" if torch.cuda.is_available() else "cpu")


# ---- numbers ---------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Numbers:
    """The source of one tensor's numbers, in float64 (float32 if the tensor has no more digits and nothing is asked).

    Attributes:
        setting: of the function.
        name, shape: of the tensor.
        seed: of its numbers.
    """

    setting: Setting
    name: str
    shape: Shape
    seed: int

    @cached_property
    def generator(self) -> Any:
        """Of the array library, on the device."""
        if self.setting.library == "numpy":
            return np.random.default_rng(self.seed)
        torch: Any = imported_torch()
        return torch.Generator(self.setting.device).manual_seed(self.seed)

    @property
    def dtype(self) -> str:
        """The dtype of the tensor."""
        return self.setting.dtypes[self.name]

    @property
    def sign(self) -> str:
        """The sign that the tensor must have; empty for any."""
        return self.setting.signs.get(self.name, "")

    @property
    def streamed_place(self) -> int | None:
        """The dimension of the streamed axis; None if the tensor lacks it."""
        axis = self.setting.fused.cascade.axis
        found = [one.indices for one in self.setting.elements if one.name == self.name]
        return next((at for indices in found for at, index in enumerate(indices) if index.has(axis)), None)

    @property
    def xp(self) -> Any:
        """The array library."""
        return np if self.setting.library == "numpy" else imported_torch()

    def normal(self) -> Any:
        """Standard normal numbers; magnitudes from 0.1 on where the tensor must be positive."""
        if self.setting.library == "numpy":
            made = self.generator.standard_normal(self.shape)
        else:
            kind = self.xp.float64 if self.dtype == "float64" else self.xp.float32
            made = self.xp.randn(self.shape, generator=self.generator, dtype=kind, device=self.setting.device)
        return abs(made) + 0.1 if self.sign in ("positive", "nonnegative") else made

    def uniform(self) -> Any:
        """Numbers from 0 to 1."""
        if self.setting.library == "numpy":
            return self.generator.random(self.shape)
        return self.xp.rand(self.shape, generator=self.generator, dtype=self.xp.float64, device=self.setting.device)

    def array(self, change: Change) -> Any:
        """The tensor in its dtype: what a change makes of the numbers, with the sign that it must have."""
        made = change(self)
        if self.sign in ("positive", "nonnegative"):
            made = abs(made)
        if self.setting.library == "torch":
            return made.to(getattr(self.xp, self.dtype))
        if not DTYPES[self.dtype].in_numpy:
            raise BackendError(f"NumPy has no {self.dtype}: install PyTorch, or take other dtypes.")
        with np.errstate(over="ignore"):
            return made.astype(self.dtype)

    def integers(self) -> Any:
        """Integers that index, or truth values."""
        setting = self.setting
        if setting.dtypes[self.name] == "bool":
            return self.uniform() < 0.5
        exprs = [*(expr for _, expr in setting.fused.written), *setting.fused.cascade.expressions()]
        high = max(1, integer_bound(self.name, setting.elements, exprs, setting.shapes, setting.all_sizes))
        high = min(high, DTYPES[self.dtype].largest)
        if setting.library == "numpy":
            return self.generator.integers(0, high, self.shape).astype(self.dtype)
        made = self.xp.randint(0, high, self.shape, generator=self.generator, device=setting.device)
        return made.to(getattr(self.xp, self.dtype))


def normal_numbers(numbers: Numbers) -> Any:
    """Normal numbers: the ordinary data."""
    return numbers.normal()
