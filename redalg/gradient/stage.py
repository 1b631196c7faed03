"""The stages of a derivation, forward or backward, and what they are run with: sizes, and dtypes of the tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeVar, final

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.display import Displayed
from redalg.expression import Axis, Element, Extent, Scalar
from redalg.expression.contents import nodes_of
from redalg.expression.dtypes import DTYPES
from redalg.gradient.again import outputs_of
from redalg.gradient.arrays import by_library_of, repeat_along
from redalg.runtime.bind.arrays import output_dtypes
from redalg.runtime.bind.inputs import array_dtype, dtypes_of_floats, promote_dtypes
from redalg.runtime.bind.options import check_tensor_names, known_options, missing_dtypes_error


class Derivative(Protocol):
    """A derivation that is made again for tensors of 16 bits or fewer."""

    @property
    def again(self) -> Callable[[Mapping[str, str]], Any] | None:
        """Derives it for dtypes of floating-point tensors."""


D = TypeVar("D", bound=Derivative)


class AnyStage(Protocol):
    """One or several tensors of a derivation, as a backward or a forward mode runs them."""

    @property
    def name(self) -> str:
        """The names of its tensors."""

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the tensors and of the scalars that it reads."""

    @property
    def parts(self) -> tuple[Stage, ...]:
        """The stages that its tensors would be alone."""

    @property
    def function(self) -> Any:
        """Its function; None if it reduces over nothing."""

    def serves(self, sizes: Mapping[str, int], /) -> bool:
        """Tell if its tensors are made together at these sizes."""

    def tensors(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensors by name, of those that it reads."""

    def source(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """Its TileLang programs; `sizes` may hold other axes too."""


SECOND = "_second"
"""The end of the name of a second axis over the places of one."""


@final
@dataclass(frozen=True, repr=False)
class Stage(Displayed):
    """One tensor of a derivation.

    Attributes:
        name: of the tensor: `grad_x` of a tensor or row value x, `tangent_o` of an output o.
        expr: what it is, in the user's tensors, the row values, and the tensors of earlier stages.
        axes: its dimensions in order.
        fused: the stage as a function of the axes that it has; None if it is a tensor as it stands, or a number.
        renamed: axis that it binds instead of one of its own dimensions, or length that a call tells -> the dimension.
    """

    name: str
    expr: Expr
    axes: tuple[Axis, ...]
    fused: Any
    renamed: Mapping[str, str] = field(default_factory=dict)

    def run(self, tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """The tensor, of those that it reads; in their promoted dtype."""
        given = {name: one for name, one in tensors.items() if name in self.inputs}
        if self.fused is None:
            from redalg.gradient.elementwise import elementwise_value

            made = elementwise_value(self.expr, self.axes, given, sizes)
            return made if given else by_library_of(made, tensors)
        [made] = outputs_of(self.fused, given, own_sizes(self.fused, sizes, self.renamed))
        return repeat_along(made, self.fused.cascade.outputs[0].axes, self.axes, sizes)

    @property
    def function(self) -> Any:
        """Its function; None if it reduces over nothing."""
        return self.fused

    @property
    def parts(self) -> tuple[Stage, ...]:
        """Itself."""
        return (self,)

    def in_axes_of_inputs(self, column: Axis | None = None) -> Expr:
        """Its expression with the inputs' own axes within, and with another axis for its last one, if one is given."""
        expr = self.expr if column is None else self.expr.xreplace({self.axes[-1]: column})
        read: Expr = expr.xreplace({Axis(new): Axis(old) for new, old in self.renamed.items()})
        return read

    def serves(self, _sizes: Mapping[str, int]) -> bool:
        """Tell that it is alone."""
        return True

    def tensors(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensor by its name."""
        return {self.name: self.run(known, sizes)}

    def source(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang program of a stage that is a function; `sizes` may hold other axes too."""
        text: str = self.fused.source(target, sizes=own_sizes(self.fused, sizes, self.renamed), **options)
        return text

    def dtype_of(self, dtypes: Mapping[str, str]) -> str:
        """The dtype of its tensor, of those of what it reads."""
        own = dtypes_of_floats({name: one for name, one in dtypes.items() if name in self.inputs})
        if self.fused is None:
            return promote_dtypes([*own.values()])[1]
        [dtype] = output_dtypes(self.fused, own).values()
        return dtype

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the tensors and of the scalars that it reads."""
        return frozenset(one.name for one in nodes_of(self.expr) if isinstance(one, Element | Scalar))

    @property
    def printable(self) -> Expr:
        """Its expression with lengths by the names of their axes, as it is printed."""
        return self.expr.xreplace({Extent(new): Extent(old) for new, old in self.renamed.items()})

    def __str__(self) -> str:
        indices = ", ".join(map(str, self.axes))
        return f"{self.name}[{indices}] = {self.printable}"


@dataclass(frozen=True)
class StagesTogether(ABC):
    """Several tensors that are made together where sizes allow it, and each alone elsewhere.

    Attributes:
        parts: the stages that they would be alone, in order.
    """

    parts: tuple[Stage, ...]

    @property
    def name(self) -> str:
        """The names of its tensors."""
        return ", ".join(part.name for part in self.parts)

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the tensors and of the scalars that it reads."""
        return frozenset().union(*(part.inputs for part in self.parts))

    @property
    @abstractmethod
    def function(self) -> Any:
        """The function of all, or that of what they share."""

    @abstractmethod
    def serves(self, sizes: Mapping[str, int], /) -> bool:
        """Tell if its tensors are made together at these sizes."""

    @abstractmethod
    def tensors_of_all(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensors by name, made together."""

    @abstractmethod
    def source_of_all(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang programs that make them together."""

    def tensors(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensors by name, of those that it reads."""
        if self.serves(sizes):
            return self.tensors_of_all(known, sizes)
        return {part.name: part.run(known, sizes) for part in self.parts}

    def source(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang programs; `sizes` may hold other axes too."""
        if self.serves(sizes):
            return self.source_of_all(target, sizes, **options)
        return "\n\n".join(sources_of_stages(self.parts, target, sizes, options).values())

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))


@final
@dataclass(frozen=True)
class JointStage(StagesTogether):
    """Several tensors of the passes of one function.

    Attributes:
        fused: the function of all.
        renamed: axis that it has instead of one of the parts' own -> that axis.
        alike: axes of the parts that must have one size.
    """

    fused: Any
    renamed: Mapping[str, str] = field(default_factory=dict)
    alike: tuple[str, ...] = ()

    @property
    def function(self) -> Any:
        """The function of all."""
        return self.fused

    def serves(self, sizes: Mapping[str, int], /) -> bool:
        """Tell if the axes that must be alike have one size."""
        return len({sizes[name] for name in self.alike}) <= 1

    def tensors_of_all(self, known: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """The tensors by name, of one function."""
        given = {name: one for name, one in known.items() if name in self.inputs}
        made = outputs_of(self.fused, given, own_sizes(self.fused, sizes, self.renamed))
        return dict(zip((part.name for part in self.parts), made, strict=True))

    def source_of_all(self, target: str, sizes: Mapping[str, int], **options: Any) -> str:
        """The TileLang program of the function."""
        text: str = self.fused.source(target, sizes=own_sizes(self.fused, sizes, self.renamed), **options)
        return text


def needed_stages(stages: Sequence[AnyStage], last: Iterable[str]) -> list[AnyStage]:
    """The stages that make some tensors, in order; of several together those that are needed."""
    needed, found = set(last), list[AnyStage]()
    for stage in reversed(stages):
        parts = [part for part in stage.parts if part.name in needed]
        found += [stage] if len(parts) == len(stage.parts) else reversed(parts)
        needed |= frozenset().union(*(part.inputs for part in parts))
    return found[::-1]


def for_tensors(derived: D, tensors: Mapping[str, Any]) -> D:
    """A derivation for tensors of their dtypes."""
    return for_dtypes(derived, {name: array_dtype(one) for name, one in tensors.items() if hasattr(one, "dtype")})


def for_dtypes(derived: D, dtypes: Mapping[str, str]) -> D:
    """A derivation for tensors of some dtypes, derived once for each choice of narrow ones."""
    floats = dtypes_of_floats(dtypes)
    if derived.again is None or not any(map(is_narrow, floats.values())):
        return derived
    known: dict[Any, D] = vars(derived).setdefault("_for_dtypes", {})
    key = tuple(sorted(floats.items()))
    if key not in known:
        known[key] = replace(derived.again(floats), again=None)
    return known[key]


def lines_of_stages(stages: Iterable[AnyStage], write: Callable[[Expr], Expr] | None = None) -> Iterator[str]:
    """Yield a line for each stage, with its passes over the data; `write` puts its expressions into other words."""
    for stage in stages:
        parts = (part if write is None else replace(part, expr=write(part.printable)) for part in stage.parts)
        text = "\n".join(map(str, parts))
        elementwise = stage.function is None or stage.function.form.is_elementwise
        yield f"{text}    ({'element by element' if elementwise else f'passes: {len(stage.function.passes)}'})"


def sources_of_stages(
    stages: Iterable[AnyStage], target: str, sizes: Mapping[str, int], options: Mapping[str, Any]
) -> dict[str, str]:
    """The TileLang programs of the stages that are functions, by name.

    The options `dtypes` and `shapes` are those of what the stages are given.
    """
    known, found = dict[str, str](options["dtypes"]), dict[str, str]()
    shapes = dict[str, tuple[int, ...]](options.get("shapes") or {})
    for stage in stages:
        known |= {part.name: known.get(part.name) or part.dtype_of(known) for part in stage.parts}
        if stage.function is not None:
            own: dict[str, Any] = {"dtypes": {name: known[name] for name in stage.inputs if name in known}}
            own["shapes"] = {name: one for name, one in shapes.items() if name in stage.inputs}
            found[stage.name] = stage.source(target, sizes, **{**options, **own})
        shapes |= {part.name: tuple(sizes.get(axis.name, axis.size) for axis in part.axes) for part in stage.parts}
    return found


def source_options(
    cascade: Cascade, given: Mapping[str, str], options: Mapping[str, Any], own: Iterable[str],
    stages: Iterable[AnyStage],
) -> dict[str, Any]:  # fmt: skip
    """The options of `source`, each known: `dtypes` and `shapes` name tensors of the function, or of the derivation.

    Raises:
        InputError: there is no such option or tensor, or a tensor of the function has no dtype.
    """
    named = (*cascade.inputs(), *own, *(part.name for stage in stages for part in stage.parts))
    check_tensor_names(given, named, "source", "dtypes")
    if absent := [name for name in cascade.inputs() if name not in given]:
        raise missing_dtypes_error(absent)
    return known_options(options, cascade, "source", named)


def own_sizes(fused: Any, sizes: Mapping[str, int], renamed: Mapping[str, str] | None = None) -> dict[str, int]:
    """The sizes of the axes that a function has; `renamed` ones have those of others, and so have those beside them."""
    found, others = dict[str, int](), renamed or {}
    for name in names_with_sizes(fused):
        own = name
        while (size := sizes.get(others.get(own, own), sizes.get(own))) is None and own.endswith(SECOND):
            own = own.removesuffix(SECOND)
        if size is not None:
            found[name] = size
    return found


def names_with_sizes(fused: Any) -> tuple[str, ...]:
    """The names of a function's axes and of the extents that it reads, found once."""
    known: dict[str, Any] = vars(fused)
    if "_names_with_sizes" not in known:
        cascade = fused.cascade
        known["_names_with_sizes"] = tuple(sorted({axis.name for axis in cascade.axes()} | set(cascade.extents())))
    names: tuple[str, ...] = known["_names_with_sizes"]
    return names


def sizes_of(cascade: Cascade, tensors: Mapping[str, Any]) -> dict[str, int]:
    """The extents of axes by the tensors' shapes, and of dimensions that no axis indexes."""
    names = {element.name for element in cascade.elements()}
    return sizes_of_dimensions({name: tensors[name].shape for name in names}) | lengths_of(cascade, tensors)


def sizes_of_dimensions(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The extents of the dimensions of tensors, by the axes that gradients at places have."""
    places = [(dimension(name, place), size) for name, shape in shapes.items() for place, size in enumerate(shape)]
    beside = {second_axis(axis).name: size for axis, size in places}  # where an axis has a dimension's name
    return {axis.name: size for axis, size in places} | beside


def shapes_of_tensors(
    cascade: Cascade, sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors that are read and made, as far as sizes of axes tell them; with those in `shapes`."""
    known = {axis.name: axis.size for axis in cascade.axes() if axis.size is not None} | dict(sizes)
    found = {output.name: tuple(known[axis.name] for axis in output.axes) for output in cascade.outputs}
    by_place = {
        (element.name, place): known[index.name]
        for element in cascade.elements()
        for place, index in enumerate(element.indices)
        if isinstance(index, Axis) and index.name in known
    }
    for element in cascade.elements():
        places = [(element.name, place) for place in range(len(element.indices))]
        if all(place in by_place for place in places):
            found[element.name] = tuple(by_place[place] for place in places)
    return found | {name: tuple(shape) for name, shape in shapes.items()}


def lengths_of(cascade: Cascade, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The extents of axes by the shapes of the tensors that are there; symbolic ones stay so."""
    elements = (element for element in cascade.elements() if element.name in tensors)
    places = (place for one in elements for place in zip(one.indices, tensors[one.name].shape, strict=True))
    return {index.name: size for index, size in places if isinstance(index, Axis)}


def is_narrow(dtype: str) -> bool:
    """Tell if a dtype has fewer bits than float32."""
    return DTYPES[dtype].bytes < DTYPES["float32"].bytes


@lru_cache(1024)
def dimension(tensor: str, place: int) -> Axis:
    """The axis of a gradient's dimension whose index is no axis."""
    return Axis(f"{tensor}_{place}")


def axes_text(axes: Iterable[Axis]) -> str:
    """Axes as `fuse` takes them."""
    return " ".join(map(str, axes))


@lru_cache(1024)
def second_axis(axis: Axis) -> Axis:
    """A second axis over the places of one, which a derivative binds beside it."""
    return axis.renamed(f"{axis.name}{SECOND}")
