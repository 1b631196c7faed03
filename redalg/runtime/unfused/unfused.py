"""The unfused form as a plan: the definition as operations of PyTorch (products by cuBLAS), beside the fused kernels.

    plan    := `unfused form: 2 operations by PyTorch`; it is listed, asked for, predicted, tuned, remembered and chosen
    running := the definition's text (`lower_tile.definition`) as a function, made once for a form and its sizes

Fusion is no gain if a product is large and what it leaves in memory is small. The unfused form is admitted only if
it is as accurate as the kernel and takes about as much memory (elsewhere `admit_unfused` raises `PlanError`):

    dtypes       all tensors are of one: float64 or float32, in which the kernel calculates as well; or bfloat16, where
                 every tensor in between is an operand of a further product, which the kernel rounds to bfloat16 too.
                 Never float16: what is between may be beyond 65504
    overflow     the fused form shifts and scales nothing that the definition adds up as it stands: it has no pivots
    elements     every element counts and is read where it stands: no masks, gathers, roundings, selections, no order
    memory       the largest tensor in between has no more bytes than `memory=` says; where that is left out, than 8
                 times the inputs and outputs

A product of 8-bit floats with scales of rows and columns is admitted as well if PyTorch has it (`scaled`).

Float32 products take TF32 if `precision="tf32"` and PyTorch is allowed to; sums of bfloat16 products are in float32.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, final

from sympy import S
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
from redalg.errors import PlanError
from redalg.expression import Axis, Cast, Element, RunningCast, Value, Where
from redalg.expression.contents import is_plainly_indexed, of_kind, values_of
from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.runtime.bind import backends
from redalg.runtime.bind.arrays import output_dtype
from redalg.runtime.bind.inputs import Bound, native, scalars_of
from redalg.runtime.bind.narrow import to_numpy
from redalg.runtime.unfused.scaled import scaled_product, scaled_product_text
from redalg.strategies.device import DeviceSpec
from redalg.strategies.model.cost import Prediction
from redalg.strategies.model.unfused import expression, predict_unfused
from redalg.strategies.plan import Problem, shape_of
from redalg.strategies.rules.products import operands_dtype
from redalg.strategies.schedule import Definition
from redalg.strategies.search.candidates import Candidate
from redalg.strategies.search.space import Space
from redalg.unfused.definition import EXPONENTIAL, definition

ALLOWED = ("float64", "float32", "bfloat16")
MEMORY = 8
"""Largest allowed tensor in between, as a multiple of the bytes of inputs and outputs."""
MADE = ("device=device", "get_default_dtype")
"""Words of a definition that makes tensors of numbers: PyTorch's default decides their dtype."""
VIEWS = ("permute", "expand", "reshape", "squeeze", "select", "narrow")
"""Methods that launch nothing."""
Array = Any
Change = tuple[Callable[[], object], Callable[[], object]]
"""The function that changes a setting, and the one that gives it back."""


@final
@dataclass(frozen=True)
class Unfused:
    """The unfused form of a problem.

    Attributes:
        form, problem, plan: what it is for, and how it prints.
        text: the function `definition`, of the tensors and scalars in the cascade's order.
        prediction: its predicted time.
    """

    form: FusedForm
    problem: Problem
    plan: Definition
    text: str
    prediction: Prediction

    @property
    def candidate(self) -> Candidate:
        """The form's line in the list of plans."""
        return Candidate(self.plan, self.prediction.time_us, self.prediction.bound, expression(self.form))

    def by(self, origin: str, predicted_us: float | None = None) -> Unfused:
        """The same form with another origin and predicted time (by default its own)."""
        predicted_us = predicted_us or self.prediction.time_us
        return replace(self, plan=replace(self.plan, origin=origin, predicted_us=predicted_us))


# ---- admission -------------------------------------------------------------------------------------------------------


def admit_unfused(form: FusedForm, space: Space) -> Unfused:
    """The unfused form beside a space of kernels; `PlanError` if it would be less accurate, or take far more memory.

    Args:
        form: as the definition is written; `space.form` is what the kernel makes of it.
    """
    problem = space.problem
    if (product := scaled_product(form, problem, space.device)) is not None:
        return unfused_form(form, space, scaled_product_text(product, form, problem), 0)
    reason = obstacle(form, problem, space.device) or (
        rounding_refusal(form, space) if "bfloat16" in problem.dtypes.values() else ""
    )
    code = None if reason else definition("definition", form.cascade, problem.sizes, problem.shapes)
    largest = 0 if code is None else bytes_between(form.cascade, problem, code.elements)
    if code is None or (reason := unfit(code.text, largest, moved_bytes(form, problem), problem.memory)):
        raise PlanError(f"the unfused form is not offered: {reason}. Take one of the kernels that `fused.plans` lists.")
    return unfused_form(form, space, code.text, largest)


def unfused_form(form: FusedForm, space: Space, text: str, largest: int) -> Unfused:
    """The unfused form of a definition's text, whose largest tensor in between has `largest` bytes."""
    count = launch_count(text)
    time = predict_unfused(form, space.problem, space.device, count, largest)
    plan = Definition(space.device, count, predicted_us=time.time_us, origin="model")
    return Unfused(form, space.problem, plan, text, time)


def offer_unfused(form: FusedForm, space: Space) -> Unfused | None:
    """The unfused form; None if it is not admitted."""
    if obstacle(form, space.problem, space.device):  # the cheap part: most forms end here
        return None
    try:
        return admit_unfused(form, space)
    except PlanError:
        return None


def outruns_kernel(unfused_form: Unfused, space: Space) -> bool:
    """Tell if PyTorch's operation for a product of 8-bit floats is predicted to be no slower than the rules' kernel.

    Its prediction is within 16 % of ten measured products, and the kernel's is not too low.
    """
    scaled = scaled_product(unfused_form.form, unfused_form.problem, space.device) is not None
    return scaled and unfused_form.prediction.time_us <= space.predict(space.rules_schedule).time_us


def obstacle(form: FusedForm, problem: Problem, device: DeviceSpec) -> str:
    """The reason why PyTorch may not run a form's definition as it is written; empty if it may."""
    dtypes = set(problem.dtypes.values())
    if scaled_product(form, problem, device) is not None:
        return ""
    if len(dtypes) != 1 or not dtypes <= set(ALLOWED):
        return (f"its tensors are of {', '.join(sorted(dtypes)) or 'no dtype'}, and it takes one of "
                f"{', '.join(ALLOWED)} for all of them")  # fmt: skip
    if form.is_elementwise:
        return "it reduces nothing, and one kernel reads every tensor once"
    if form.pivots:
        bases = ", ".join(f"`{one.base}`" for one in form.pivots)
        return f"the kernel shifts or scales {bases}, which the definition takes as it stands, so that it may overflow"
    if form.structures:
        return f"`{form.structures[0].values[0].name}` selects elements, or depends on their order"
    if any(one.inner for one in cascades(form.cascade)):
        return "several axes are reduced at once"
    if any(one.domain is not S.true for one in cascades(form.cascade)) or has_kinds(form.cascade, Where):
        return "elements are masked, which kernels do not read"
    if has_kinds(form.cascade, Cast, RunningCast):
        return "numbers are rounded within it"
    if any(not is_plainly_indexed(one) for one in form.cascade.elements()):
        return "elements are read at places that are computed"
    if problem.empty != "nan" and any(one.empty is not S.false for one in form.outputs):
        return f"a ratio over no elements would not be {problem.empty}"
    return ""


def rounding_refusal(form: FusedForm, space: Space) -> str:
    """The reason to refuse if PyTorch would round to bfloat16 what the kernel does not; empty if both round alike."""
    cascade = form.cascade
    reason = "tensors between its operations would be rounded to bfloat16, which the kernel keeps"
    results = set(values(cascade))
    sums = [one for whole in cascades(cascade) for one in whole.reductions]
    bare = all(one.monoid.name == "sum" and is_matrix_product(one.term) for one in sums)
    only_values = all(one.expr in results for whole in cascades(cascade) for one in whole.outputs)
    nested = any(one.cascade.producers or set(one.cascade.reduced_axes) & set(one.axes) for one in cascade.producers)
    within = any(values_of(one.term) & set(cascade.values) for one in cascade.reductions)
    if not bare or not only_values or nested or within or cascade.parameters:
        return reason
    products = space.form.accumulators
    alike = all(len(product.factors) == 2
                and operands_dtype(product, space.form, space.problem, space.device) == "bfloat16"
                for product in products)  # fmt: skip
    return "" if alike and len(space.stages.forms) == 1 and not space.form.extrema else reason


def unfit(text: str, largest: int, traffic: int, memory: int | None = None) -> str:
    """The reason why a definition's text is not run on tensors of so many bytes; empty if it may be."""
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    if any(word in text for word in MADE):
        return "it makes tensors of numbers"
    if any(len(one.args) > 3 and word_of(one) == "einsum" for one in calls):
        return "it multiplies more than two tensors at once"
    if memory is not None and largest > memory:
        return f"a tensor of {largest} bytes would lie between its operations, and memory={memory}"
    if largest > MEMORY * traffic:
        return (f"a tensor of {largest} bytes would lie between its operations, more than {MEMORY} times the {traffic} "
                "bytes of inputs and outputs")  # fmt: skip
    return ""


def is_matrix_product(term: Basic) -> bool:
    """Tell if a term is a product of two tensors or values, each with an axis that the other lacks."""
    factors = term.args if getattr(term, "is_Mul", False) else ()
    if len(factors) != 2 or not all(isinstance(one, Element | Value) for one in factors):
        return False
    first, second = (of_kind(Axis, one) for one in factors)
    return not first <= second and not second <= first


def cascades(cascade: Cascade) -> Iterator[Cascade]:
    """A cascade, then the cascades of its producers and of theirs."""
    yield cascade
    for producer in cascade.producers:
        yield from cascades(producer.cascade)


def values(cascade: Cascade) -> Iterator[Value]:
    """The values that the reductions and producers of a cascade make, and those of its producers."""
    for whole in cascades(cascade):
        yield from (one.value for one in whole.reductions)
        yield from (one.value for one in whole.producers)


def has_kinds(cascade: Cascade, *kinds: type[Basic]) -> bool:
    """Tell if anything of these kinds stands in a cascade."""
    return any(of_kind(kind, *cascade.expressions()) for kind in kinds)


def bytes_between(cascade: Cascade, problem: Problem, elements: int) -> int:
    """Bytes of the largest tensor made in between; `elements` is the size of the largest within expressions."""
    sizes = [prod(problem.sizes[str(axis)] for axis in one.indices) for one in values(cascade)]
    return max([elements, *sizes]) * DTYPES[next(iter(problem.dtypes.values()))].bytes


def moved_bytes(form: FusedForm, problem: Problem) -> int:
    """Bytes of inputs and outputs."""
    elements = form.cascade.elements()
    names = {one.name for one in elements}
    inputs = {name: prod(problem.shapes.get(name) or shape_of(name, elements, problem)) for name in names}
    outputs = sum(prod(problem.sizes[str(axis)] for axis in one.axes) for one in form.outputs)
    read, written = DTYPES[next(iter(problem.dtypes.values()))], DTYPES[problem.result]
    return sum(inputs.values()) * read.bytes + outputs * written.bytes


def launch_count(text: str) -> int:
    """The number of PyTorch operations that a definition launches: its calls and signs, views apart.

    >>> launch_count("torch.einsum('mk,kn->mn', A, B).permute(1, 0) * D")
    2
    """
    nodes = list(ast.walk(ast.parse(text)))
    none = {*VIEWS, *(one.name for one in nodes if isinstance(one, ast.FunctionDef))}
    calls = sum(isinstance(one, ast.Call) and word_of(one) not in none for one in nodes)
    signs = [one for one in nodes if isinstance(one, ast.BinOp | ast.UnaryOp | ast.Compare)]
    return calls + sum(any(isinstance(part, ast.Name | ast.Call) for part in ast.walk(one)) for one in signs)


def word_of(call: ast.Call) -> str:
    """The name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


# ---- running ---------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Operations:
    """A pass by PyTorch's operations, on tensors of one kind.

    Attributes:
        function: the definition.
        inputs: names, and the dtypes that PyTorch takes them in (None: it takes them as they are).
        outputs: names, and the dtypes in which the caller gets them.
        cascade: of the scalars.
        tf32: True if float32 products may be rounded to TF32.
    """

    function: Callable[..., tuple[Array, ...]]
    inputs: tuple[tuple[str, Any], ...]
    outputs: tuple[tuple[str, Any], ...]
    cascade: Cascade
    device: Any
    dtype: Any
    numpy: bool
    tf32: bool

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        arguments = [self.to_input(inputs[name], dtype) for name, dtype in self.inputs]
        arguments += [torch.full((), scalar, dtype=self.dtype, device=self.device)
                      for scalar in scalars_of(self.cascade, inputs).values()]  # fmt: skip
        with exactly(self.device.type, tf32=self.tf32):
            results = self.function(*arguments)
        return {name: self.to_output(one, dtype) for (name, dtype), one in zip(self.outputs, results, strict=True)}

    def to_input(self, array: Array, dtype: Any) -> Array:
        """A tensor as PyTorch takes it."""
        array = backends.torch_of(native(array)) if self.numpy else array
        return array if dtype is None else array.to(dtype)

    def to_output(self, array: Array, dtype: Any) -> Array:
        """An output as a kernel gives it: contiguous, in its dtype."""
        array = array.to(dtype).contiguous()
        return to_numpy(array) if self.numpy else array


def unfused_operations(unfused_form: Unfused, bound: Bound) -> Operations:
    """The operations that run the unfused form on tensors bound like these."""
    import torch

    cascade, problem = unfused_form.form.cascade, unfused_form.problem
    inputs = tuple((name, getattr(torch, wanted) if (wanted := problem.dtypes[name]) != bound.dtypes[name] else None)
                   for name in cascade.inputs())  # fmt: skip
    outputs = tuple(
        (out.name, getattr(torch, output_dtype(out, unfused_form.form, problem.result)))
        for out in unfused_form.form.outputs
    )
    module: dict[str, Any] = {"torch": torch}
    tree = Products().visit(ast.parse(f"{EXPONENTIAL}\n\n\n{unfused_form.text}"))
    exec(compile(ast.fix_missing_locations(tree), "<definition>", "exec"), module)
    where, dtype = torch.device(bound.device), getattr(torch, problem.compute)
    return Operations(module["definition"], inputs, outputs, cascade, where, dtype, bound.library == "numpy",
                      problem.precision == "tf32")  # fmt: skip


@final
class Products(ast.NodeTransformer):
    """Write `torch.matmul` for every `torch.einsum` that is one: the host takes a fifth of the time to launch it."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite one call if it is such an `einsum`."""
        self.generic_visit(node)
        if word_of(node) != "einsum" or len(node.args) != 3 or not isinstance(node.args[0], ast.Constant):
            return node
        return matmul(str(node.args[0].value), node.args[1:]) or node


def matmul(spec: str, tensors: list[ast.expr]) -> ast.expr | None:
    """`torch.matmul` of two tensors if it is what the specification says, else None.

    >>> A, B = (ast.parse(name, mode="eval").body for name in "AB")
    >>> ast.unparse(matmul("bnk,bmk->bmn", [A, B])), matmul("mk,bkn->bmn", [A, B])
    ('torch.matmul(B, A.mT)', None)
    """
    sides, result = spec.split("->")
    pairs = list(zip(sides.split(","), tensors, strict=True))
    batch, row, column = result[:-2], result[-2:-1], result[-1:]
    bound = set(sides) - set(result) - {","}
    if len(bound) != 1 or not row:
        return None
    k = bound.pop()
    for (left, a), (right, b) in (pairs, pairs[::-1]):
        if left in (batch + row + k, batch + k + row) and right in (batch + k + column, batch + column + k):
            texts = (
                f"({ast.unparse(a)})" + ".mT" * (left[-1] == row),
                f"({ast.unparse(b)})" + ".mT" * (right[-1] == k),
            )
            return ast.parse(f"torch.matmul({', '.join(texts)})", mode="eval").body
    return None


@contextmanager
def exactly(device: str, *, tf32: bool) -> Iterator[None]:
    """Switch off what PyTorch may be allowed globally: autocast, float32 products in fewer digits, sums in 16 bits.

    PyTorch has no such setting for a call. Each is changed only if it is allowed, and then given back; products of
    other threads meanwhile are more exact than they need be, never less.
    """
    import torch

    changes = [*rounded_products(device, tf32=tf32), *short_sums(device)]
    for change, _ in changes:
        change()
    try:
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                yield
        else:
            yield
    finally:
        for _, give_back in changes:
            give_back()


def rounded_products(device: str, *, tf32: bool) -> Iterator[Change]:
    """The changes that make float32 products exact, and those that undo them; none if products are exact.

    PyTorch 2.9 has two ways to say it, and refuses to multiply if they disagree: the one that was used is used.
    """
    import torch

    backends: Any = torch.backends
    settings = [backends.cuda.matmul, getattr(backends.mkldnn, "matmul", None)]
    settings = [one for one in settings if hasattr(one, "fp32_precision")]
    where = settings[0 if device == "cuda" else -1] if settings else None
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # `fp32_precision` was set
        before = "highest"
    mode = {"high": "tf32", "medium": "bf16"}.get(before, "ieee") if where is None else where.fp32_precision
    if mode in ("ieee", "none") or (tf32 and mode == "tf32"):
        return
    if before == "highest":
        yield partial(setattr, where, "fp32_precision", "ieee"), partial(setattr, where, "fp32_precision", mode)
        return
    yield partial(torch.set_float32_matmul_precision, "highest"), partial(torch.set_float32_matmul_precision, before)
    for setting in settings:  # what the setting for both is not to change
        yield int, partial(setattr, setting, "fp32_precision", setting.fp32_precision)


def short_sums(device: str) -> Iterator[Change]:
    """The changes that make sums of bfloat16 products in float32, and those that undo them."""
    import torch

    where: Any = torch.backends.cuda.matmul
    name = "allow_bf16_reduced_precision_reduction"
    if device == "cuda" and getattr(where, name):
        split = getattr(where, f"{name}_split_k", None)
        exact, before = (False, True) if split is None else ((False, split), (True, split))
        yield partial(setattr, where, name, exact), partial(setattr, where, name, before)
