"""The backward of a fused function: what the forward saves, and the stages that make the gradients of it.

    row values r   the reductions of row size, saved by the forward; those that are pivots have no gradient
    stages         ∂/∂r, last first, then ∂/∂x of every tensor x: each a cascade of its own over plain tensors

What has an element for each row and streamed element is never saved: it is computed again in the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.errors import InputError
from redalg.expression import Axis, Element, Scalar
from redalg.expression.contents import nodes_of
from redalg.expression.dtypes import DTYPES
from redalg.runtime.bind.inputs import array_dtype, dtypes_of_floats


@final
@dataclass(frozen=True)
class Stage:
    """One tensor of the backward.

    Attributes:
        name: of the tensor: `grad_x` of a tensor or row value x.
        expr: what it is, in the user's tensors, the row values, and the tensors of earlier stages.
        axes: its dimensions in order.
        fused: the stage as a function; None if it reduces over nothing, and is evaluated element by element.
        renamed: axis that it binds instead of one of its own dimensions -> that dimension.
    """

    name: str
    expr: Expr
    axes: tuple[Axis, ...]
    fused: Any
    renamed: Mapping[str, str] = field(default_factory=dict)

    def run(self, tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """The tensor, of those that it reads; in their promoted dtype."""
        given = {name: one for name, one in tensors.items() if name in self.inputs}
        if self.fused is not None:
            return self.fused(**given, sizes=self._own(sizes))
        from redalg.gradient.elementwise import elementwise_value

        return elementwise_value(self.expr, self.axes, given, sizes)

    def source(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang program of a stage that reduces; `sizes` may hold other axes too."""
        text: str = self.fused.source(target, sizes=self._own(sizes), **options)
        return text

    def _own(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of the axes that it has."""
        known = {axis.name for axis in self.fused.cascade.axes()} | set(self.fused.cascade.extents())
        all_sizes = {**sizes, **{new: sizes[old] for new, old in self.renamed.items() if old in sizes}}
        return {name: size for name, size in all_sizes.items() if name in known}

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the tensors and of the scalars that it reads."""
        return frozenset(one.name for one in nodes_of(self.expr) if isinstance(one, Element | Scalar))

    def __str__(self) -> str:
        indices = ", ".join(map(str, self.axes))
        return f"{self.name}[{indices}] = {self.expr}"


@final
@dataclass(frozen=True)
class Backward:
    """The derived backward, which is called on cotangents and tensors.

    Attributes:
        forward: the function with the row values beside its outputs, in one pass as before.
        saved: the names of the row values.
        stages: what is computed, in order.
        gradients: tensor -> the name of the stage that makes its gradient.
        cotangents: output -> the name of its cotangent in the stages; the outputs in order.
        made: output -> its name in the stages, of those that they read.
        proofs: extremum -> why it has no gradient.
        once: true of products, whose stages are no functions to differentiate: at two zeros they are 0 and their own
            derivative is not.
        again: derives it for the dtypes of the tensors, if some have 16 bits or fewer.
    """

    forward: Any
    saved: tuple[str, ...]
    stages: tuple[Stage, ...]
    gradients: Mapping[str, str]
    cotangents: Mapping[str, str]
    made: Mapping[str, str] = field(default_factory=dict)
    proofs: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    again: Callable[[Mapping[str, str]], Backward] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the forward's outputs."""
        return tuple(self.cotangents)

    def __call__(self, cotangents: Any, /, *, sizes: Mapping[str, int] | None = None, **tensors: Any) -> dict[str, Any]:
        """The gradients by tensor name.

        Args:
            cotangents: of the outputs: one tensor, or a dict by output name; those left out are 0.
            sizes: extents of axes that no tensor carries, by name.
            tensors: the tensors and scalars of the forward, by name.

        >>> import numpy as np, redalg as ra
        >>> n = ra.axes("n")
        >>> square = ra.fuse(ra.sum(ra.tensor("x[n]") ** 2, n))
        >>> square.vjp()(np.array(1.0), x=np.array([1.0, 2.0, 6.0]))["x"]
        array([ 2.,  4., 12.])
        """
        own = self.for_tensors(tensors)
        made = own.forward(**tensors, sizes=dict(sizes or {}))
        names = (*own.outputs, *own.saved)
        known = dict(zip(names, (made,) if own.forward.single else made, strict=True))
        return own.from_saved(cotangents, known, tensors, sizes or {})

    def for_tensors(self, tensors: Mapping[str, Any]) -> Backward:
        """The backward for tensors of their dtypes: row values are float32 where a tensor has 16 bits or fewer."""
        arrays = {name: array_dtype(one) for name, one in tensors.items() if hasattr(one, "dtype")}
        floats = dtypes_of_floats(arrays)
        if self.again is None or not any(map(is_narrow, floats.values())):
            return self
        known: dict[Any, Backward] = vars(self).setdefault("_for_dtypes", {})
        key = tuple(sorted(floats.items()))
        if key not in known:
            known[key] = replace(self.again(floats), again=None)
        return known[key]

    def from_saved(
        self, cotangents: Any, made: Mapping[str, Any], tensors: Mapping[str, Any], sizes: Mapping[str, int],
        wanted: Iterable[str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The gradients of the `wanted` tensors (None: of all), of what the forward has made: outputs, row values."""
        given = cotangents if isinstance(cotangents, Mapping) else {self.outputs[0]: cotangents}
        self._check(given, made)
        zeros = {name: made[name] * 0 for name in self.outputs if given.get(name) is None}
        known = {**tensors, **{name: made[name] for name in self.saved}}
        known |= {name: made[output] for output, name in self.made.items()}
        known |= {name: zeros.get(output, given.get(output)) for output, name in self.cotangents.items()}
        lengths = {**self._sizes(tensors), **sizes}
        names = self.gradients.keys() if wanted is None else [one for one in wanted if one in self.gradients]
        for stage in needed_stages(self.stages, [self.gradients[name] for name in names]):
            known[stage.name] = stage.run(known, lengths)
        return {name: known[self.gradients[name]] for name in names}

    def _check(self, given: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Refuse cotangents of no output, and those of another shape than their output's."""
        if wrong := sorted(given.keys() - set(self.outputs)):
            raise InputError(f"cotangents: {', '.join(wrong)} is no output. The outputs are {', '.join(self.outputs)}.")
        for name, cotangent in given.items():
            shape, wanted = tuple(getattr(cotangent, "shape", ())), tuple(made[name].shape)
            if cotangent is not None and shape != wanted:
                raise InputError(f"cotangents: that of `{name}` has shape {shape}, and the output has {wanted}. Pass "
                                 "an array of the output's shape.")  # fmt: skip

    def _sizes(self, tensors: Mapping[str, Any]) -> dict[str, int]:
        """The extents of axes by the tensors' shapes, and of dimensions that no axis indexes."""
        names = {element.name for element in self.forward.cascade.elements()}
        dimensions = {dimension(name, place).name: size for name in names
                      for place, size in enumerate(tensors[name].shape)}  # fmt: skip
        return dimensions | lengths_of(self.forward.cascade, tensors)

    def explain(self) -> str:
        """The row values that are saved, the stages, and why an extremum has no gradient."""
        outputs = [f"{name} (the output {output})" for output, name in self.made.items()]
        lines = [f"saved by the forward: {', '.join([*self.saved, *outputs]) or 'nothing beside the inputs'}"]
        lines += [f"no gradient: {name}. {why}" for name, why in self.proofs.items()]
        for stage in self.stages:
            passes = "element by element" if stage.fused is None else f"passes: {len(stage.fused.passes)}"
            lines.append(f"{stage}    ({passes})")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    def source(
        self, target: str = "sm_90a", *, sizes: Mapping[str, int] | None = None, **options: Any
    ) -> dict[str, str]:
        """The TileLang programs by stage; options as of `Fused.source`, sizes by the forward's axes."""
        return {one.name: one.source(target, sizes or {}, **options) for one in self.stages if one.fused is not None}


def needed_stages(stages: Sequence[Stage], last: Iterable[str]) -> list[Stage]:
    """The stages that make some tensors, in order."""
    needed, found = set(last), list[Stage]()
    for stage in reversed(stages):
        if stage.name in needed:
            found.append(stage)
            needed |= stage.inputs
    return found[::-1]


def lengths_of(cascade: Cascade, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The extents of axes by the shapes of the tensors that are there; symbolic ones stay so."""
    elements = (element for element in cascade.elements() if element.name in tensors)
    places = (place for one in elements for place in zip(one.indices, tensors[one.name].shape, strict=True))
    return {index.name: size for index, size in places if isinstance(index, Axis)}


def is_narrow(dtype: str) -> bool:
    """Tell if a dtype has fewer bits than float32."""
    return DTYPES[dtype].bytes < DTYPES["float32"].bytes


def dimension(tensor: str, place: int) -> Axis:
    """The axis of a gradient's dimension whose index is no axis."""
    return Axis(f"{tensor}_{place}")
