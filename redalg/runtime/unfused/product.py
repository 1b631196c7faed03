"""A product by the library as a plan: a tensor of scores by PyTorch (cuBLAS), then the form's one pass over it.

    out[i] = F(Σ_d h[i, d]·w[v, d])   →   s[i, v] = Σ_d h[i, d]·w[v, d] by the library; out[i] = F(s) in one pass
                                          for parts of i, so that no more of s is stored than the memory allows

The tensor is of the dtype in which a kernel computes, so that nothing is rounded that the kernel does not round. It
pays where the library multiplies much faster than a kernel does: true float32 on a GPU. Elsewhere it is listed, asked
for and tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, Mul, S

from redalg.decompose.cascade import Cascade, Producer
from redalg.decompose.verdict.passes import free_name, substitute_tensors
from redalg.decompose.verdict.verdict import decompose
from redalg.errors import NotDecided, NotFusible, PlanError
from redalg.expression import Axis, Element, Label, Value
from redalg.expression.contents import is_plainly_indexed, nodes_of
from redalg.expression.dtypes import DTYPES, is_float
from redalg.incremental.derive.derive import derive
from redalg.incremental.form import FusedForm
from redalg.runtime.unfused.unfused import is_matrix_product
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import TensorCores
from redalg.strategies.model.cost import CLOCKS_US, LANES, Prediction
from redalg.strategies.model.unfused import OPERATION_US, elements
from redalg.strategies.plan import Problem, shape_of
from redalg.strategies.schedule import LibraryProduct
from redalg.strategies.search.candidates import Candidate
from redalg.strategies.search.space import Space

ROWS = 64
"""Rows of a part are a multiple of so many, if there are more."""
SHARE, NARROW_SHARE = 0.75, 0.65
"""The part of the peak of CUDA cores that the library reaches in float32 (H100: 10.5 ms for scores of 4096 x 32000 x
2048), and of tensor cores in 16 bits (0.83 to 0.89 ms)."""
STORED = 2
"""Without a limit a part takes at most so many times the bytes of the call's inputs and outputs. Parts waste the last
wave of each product: two halves of scores of 4096 x 32000 x 2048 take 3 % longer than all at once (H100)."""
DOUBT = 1.25
"""Predicted times further apart than this tell which plan is faster."""


# ---- the algebra -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ProductSplit:
    """A form as a product and a pass over it.

    Attributes:
        left, right: the factors; the product sums over `axis`.
        tensor: the product, with the axes that both factors have first, then those of `left`, then those of `right`.
        form: the form in which the product is a tensor.
        cuttable: the axes that inputs and outputs may be cut along.
        cut: the axis that they are cut along; None if nothing is cut.
    """

    left: Element
    right: Element
    axis: Axis
    tensor: Element
    form: FusedForm
    cuttable: tuple[Axis, ...]
    cut: Axis | None = None

    def at(self, sizes: Mapping[str, int]) -> ProductSplit:
        """The same, cut along the longest axis that may be."""
        return replace(self, cut=max(self.cuttable, key=lambda axis: sizes[str(axis)], default=None))

    @property
    def batch(self) -> tuple[Axis, ...]:
        """The axes that both factors have, the summed one apart."""
        return tuple(axis for axis in self.left.indices if axis != self.axis and axis in self.right.indices)

    def rows(self, element: Element) -> tuple[Axis, ...]:
        """The axes that one factor alone has."""
        return tuple(axis for axis in element.indices if axis != self.axis and axis not in self.batch)

    def place(self, name: str) -> int | None:
        """The dimension of a tensor that is cut; None if it lacks the axis."""
        read = (*self.form.cascade.elements(), self.left, self.right)
        indices = next(one.indices for one in read if one.name == name)
        return indices.index(self.cut) if self.cut in indices else None

    def output_places(self) -> dict[str, int]:
        """The dimension of every output that is cut."""
        return {} if self.cut is None else {one.name: one.shape.index(self.cut) for one in self.form.outputs}


_SPLITS: dict[int, tuple[FusedForm, ProductSplit | str]] = {}


def split_product(form: FusedForm) -> ProductSplit | str:
    """The form split at its first product, found once; or the reason why there is none."""
    if id(form) not in _SPLITS:
        _SPLITS[id(form)] = form, _split_product(form)
    return _SPLITS[id(form)][1]


def require_product(form: FusedForm) -> ProductSplit:
    """The form split at its first product; `PlanError` if there is none."""
    split = split_product(form)
    if isinstance(split, str):
        raise PlanError(f"no product is left to the library: {split}. Take a kernel.")
    return split


def _split_product(form: FusedForm) -> ProductSplit | str:
    cascade, product = form.cascade, first_product(form)
    if product is None:
        return "it computes no product of two tensors for every streamed element"
    producer, number, factors = product
    right, left = sorted(factors, key=lambda one: cascade.axis not in one.indices)
    batch = [axis for axis in left.indices if axis in right.indices and axis != producer.cascade.axis]
    alone = [axis for one in (left, right) for axis in one.indices if axis not in (*batch, producer.cascade.axis)]
    tensor = Element(Label(free_name(producer.name, replace(cascade, producers=()))), *batch, *alone)
    others = tuple(one for one in cascade.producers if one is not producer)
    rest = substitute_tensors(replace(cascade, producers=others), {producer.value: number * tensor})
    try:
        passing = derive(decompose(rest))
    except (NotFusible, NotDecided) as refusal:  # pragma: no cover - what fuses of a product fuses of its values
        return f"{refusal}"
    return ProductSplit(left, right, producer.cascade.axis, tensor, passing, axes_to_cut(rest, tensor, (left, right)))


def first_product(form: FusedForm) -> tuple[Producer, Expr, tuple[Element, ...]] | None:
    """The first producer that multiplies two tensors for every streamed element, with its number and its factors."""
    for producer in form.cascade.producers:
        factors = matrix_factors(producer)
        if factors is not None and form.cascade.axis in producer.axes:
            return producer, *factors
    return None


def matrix_factors(producer: Producer) -> tuple[Expr, tuple[Element, ...]] | None:
    """The number and the two tensors whose product a producer sums; None if it is anything else."""
    term = producer.cascade.sum_alone
    if term is None or producer.cascade.domain is not S.true or producer.cascade.inner:
        return None
    number, product = term.as_coeff_Mul()
    elements = tuple(one for one in Mul.make_args(product) if isinstance(one, Element))
    plain = is_matrix_product(product) and len(elements) == 2 and all(map(is_plainly_indexed, elements))
    return (number, elements) if plain and {*producer.axes} <= {*elements[0].indices, *elements[1].indices} else None


def axes_to_cut(cascade: Cascade, tensor: Element, factors: tuple[Element, ...]) -> tuple[Axis, ...]:
    """The axes of the tensor, none that is reduced, that all outputs have and that stand as indices alone."""
    read = [*cascade.elements(), *factors]

    def may_be_cut(axis: Axis) -> bool:
        outputs = all(axis in one.axes for one in cascade.outputs)
        reduced = axis in cascade.reduced_axes or str(axis.name) in cascade.extents()
        return outputs and not reduced and stands_as_index(axis, cascade) and has_one_place(axis, read)

    return tuple(filter(may_be_cut, tensor.indices))


def stands_as_index(axis: Axis, cascade: Cascade) -> bool:
    """Tell if an axis is nowhere a number, and no part of a computed place."""
    parents = (node for expr in cascade.expressions() for node in nodes_of(expr) if axis in node.args)
    return all(isinstance(node, Element | Value) for node in parents)


def has_one_place(axis: Axis, read: list[Element]) -> bool:
    """Tell if every tensor has an axis at one dimension, wherever it is read."""
    places: dict[str, set[tuple[int, ...]]] = {}
    for element in read:
        found = tuple(place for place, index in enumerate(element.indices) if index == axis)
        places.setdefault(element.name, set()).add(found)
    return all(len(found) == 1 and len(next(iter(found))) <= 1 for found in places.values())


# ---- the plan --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ProductPass:
    """A product by the library and a pass over it, for a problem.

    Attributes:
        split, problem, plan: what it is for, and how it prints; `plan.rows` is a number if the axis is cut.
        prediction: its predicted time.
    """

    split: ProductSplit
    problem: Problem
    plan: LibraryProduct
    prediction: Prediction

    @property
    def candidate(self) -> Candidate:
        """Its line in the list of plans."""
        loops = "".join(map(str, self.split.tensor.indices))
        text = f"{loops}{self.split.axis}, {loops}"
        return Candidate(self.plan, self.prediction.time_us, self.prediction.bound, text)

    def by(self, origin: str, predicted_us: float | None = None) -> ProductPass:
        """The same plan with another origin and predicted time (by default its own)."""
        predicted_us = predicted_us or self.prediction.time_us
        return replace(self, plan=replace(self.plan, origin=origin, predicted_us=predicted_us))


def product_refusal(form: FusedForm, problem: Problem) -> str:
    """The reason why no product of a form is left to the library; empty if one is."""
    split = split_product(form)
    if isinstance(split, str):
        return split
    dtypes = {problem.dtypes[factor.name] for factor in (split.left, split.right)}
    if len(dtypes) != 1 or not all(is_float(dtype) and DTYPES[dtype].bytes > 1 for dtype in dtypes):
        return f"its factors are of {', '.join(sorted(dtypes))}, and the library multiplies floats of one dtype"
    if problem.varying:
        return "its sizes are run-time ones"
    return ""


def rows_of_part(split: ProductSplit, problem: Problem, wanted: int | None, moved: int) -> int:
    """The rows of a part: as wanted, or as many as the memory holds, by default `STORED` times the bytes moved.

    Raises:
        PlanError: a part exceeds the memory that the call allows, or the default if no rows are wanted.
    """
    total = problem.sizes[split.cut.name] if split.cut is not None else 1
    row = elements(tuple(map(str, split.tensor.indices)), problem) // total * DTYPES[problem.compute].bytes
    if wanted is not None and split.cut is None:
        raise PlanError(f"the product is not cut into {wanted} rows: no axis of it is one of every output and an index "
                        "alone. Pass `LibraryProduct()`, or give the call more memory.")  # fmt: skip
    limit = STORED * moved if problem.memory is None else problem.memory
    rows = min(total, wanted or max(1, limit // row))
    rows = rows if wanted or rows in (1, total) or rows < ROWS else rows // ROWS * ROWS
    if rows * row > limit and not (wanted and problem.memory is None):
        least = f"{rows} of {split.cut}" if split.cut is not None else "it whole, as no axis of it may be cut"
        raise PlanError(
            f"the product {split.tensor} takes {rows * row} bytes, for {least}, and the limit is {limit} bytes. Take a "
            "kernel, or raise memory=."
        )
    return rows


def part_problem(split: ProductSplit, problem: Problem, rows: int) -> tuple[dict[str, int], dict[str, str]]:
    """The sizes and dtypes of the pass over one part."""
    form = split.form
    names = {str(axis.name) for axis in form.cascade.axes()} | set(form.cascade.extents())
    sizes = {name: size for name, size in problem.sizes.items() if name in names}
    sizes |= {} if split.cut is None else {str(split.cut.name): rows}
    dtypes = {**problem.dtypes, split.tensor.name: problem.compute}
    return sizes, {name: dtypes[name] for name in form.cascade.inputs()}


def shapes_of_part(split: ProductSplit, problem: Problem, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a part that the caller gave, each cut."""
    part = replace(problem, sizes=sizes)
    given = {name: shape for name, shape in problem.shapes.items() if name in split.form.cascade.inputs()}
    places = {name: split.place(name) for name in given}
    cut = {name: tuple(sizes[str(split.cut)] if number == places[name] else size for number, size in enumerate(shape))
           for name, shape in given.items()}  # fmt: skip
    return cut | {split.tensor.name: shape_of(split.tensor.name, [split.tensor], part)}


def library_us(split: ProductSplit, problem: Problem, device: DeviceSpec) -> float:
    """The predicted time of the library's product: it multiplies, or reads and writes, whichever takes longer."""
    width = DTYPES[problem.dtypes[split.left.name]].bytes
    product, *factors = (tuple(map(str, one.indices)) for one in (split.tensor, split.left, split.right))
    flops = 2 * elements((*product, str(split.axis)), problem)
    moved = width * sum(elements(factor, problem) for factor in factors)
    moved += DTYPES[problem.compute].bytes * elements(product, problem)
    rate = device.multiprocessors * LANES * CLOCKS_US * 2 * SHARE / (2 if problem.compute == "float64" else 1)
    if width == 2 or problem.precision == "tf32":
        rate = device.product_tflops * 1e6 * NARROW_SHARE
    return max(flops / rate, moved / (device.memory_gb_s * 1e3))


def product_pass(split: ProductSplit, space: Space, part: Space, rows: int) -> ProductPass:
    """The plan for parts of so many rows; `part` is the space of the pass over one of them."""
    problem, device = space.problem, space.device
    total = problem.sizes[split.cut.name] if split.cut is not None else rows
    parts = -(-total // rows)
    passing = parts * part.predict(part.rules_schedule).time_us
    multiplying, launch = library_us(split, problem, device), 2 * parts * OPERATION_US
    prediction = Prediction(multiplying + passing + launch,
                            {"product": multiplying, "memory": passing, "launch": launch})  # fmt: skip
    axis = "" if split.cut is None else str(split.cut)
    plan = LibraryProduct(rows if rows < total else None, axis, device, prediction.time_us, "model")
    return ProductPass(split, problem, plan, prediction)


def beats_kernel(product: ProductPass, space: Space) -> bool:
    """Tell if the library's product wins over a kernel by more than the models err.

    The models know it where a kernel `multiplies_slowly`, and the pass over the product multiplies nothing.
    """
    passing = product.split.form
    multiplies = passing.cascade.producers or any(len(one.factors) > 1 for one in passing.accumulators)
    return not multiplies and DOUBT * product.prediction.time_us < space.predict(space.rules_schedule).time_us


def multiplies_slowly(space: Space) -> bool:
    """Tell if a kernel multiplies float32 on the CUDA cores of a GPU."""
    scalar = not any(isinstance(level, TensorCores) for level in space.rules_schedule.levels)
    return scalar and space.device.target != "c" and space.problem.compute == "float32"
