"""The tilelang backend: bound tensors in, kernels from the caches, outputs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from redalg.errors import BackendError, InputError
from redalg.incremental.form import FormOutput, FusedForm
from redalg.lower_tile.ir.program import Parameter
from redalg.lower_tile.ir.runtime_sizes import shape_at
from redalg.lower_tile.text.emit import Source
from redalg.runtime.bind import arrays, backends
from redalg.runtime.bind.gathers import check_gathers, gathers_any
from redalg.runtime.bind.inputs import Bound, native, scalars_of
from redalg.runtime.bind.packing import Packing, empty_buffer, views_of
from redalg.runtime.call.counters import Counters
from redalg.runtime.call.memory_order import keep_last, orders_in_memory, step_in_order
from redalg.runtime.call.prepared import Step, rebind, without_tensors
from redalg.runtime.call.sizes import lowering_for, measured_plan
from redalg.runtime.compile.compile import Kernel, compile_source, launch_function
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import run_time_sizes
from redalg.runtime.unfused import unfused
from redalg.runtime.unfused.product import ProductPass
from redalg.runtime.unfused.product_parts import ProductSteps

ALIGNMENT_BYTES = 16
"""The alignment of a tensor's address that the bulk copy engine and vector loads need."""
Make = Callable[[Any], Any]


def step(form: FusedForm, bound: Bound, options: Mapping[str, Any]) -> Step:
    """The step that runs the generated kernel on tensors like these, compiled now; or the unfused form, by its plan.

    Tensors without elements are finished by the interpreter: nothing to launch.
    """
    refuse_missing_torch()
    check_device(bound)
    binding = without_tensors(bound)
    if any(size == 0 for size in bound.sizes.values()):
        return Launch(form, binding, None, False, options["empty"])
    if orders := orders_in_memory(form, bound, planned=options["plan"] is not None):
        plan = options["plan"] or (measured_plan(form, bound, options) if keep_last(orders) else None)
        return step_in_order(form, bound, orders, partial(step, options={**options, "plan": plan}))
    tensors = backends.tensors_for(bound, "torch")
    checks = gathers_any(form.cascade) and (options["check"] or bound.device == "cpu")
    if checks:  # before anything is compiled
        check_indices(form, bound)
    lowered = lowering_for(form, bound, tensors, options)
    if isinstance(lowered, unfused.Unfused):
        return unfused.unfused_operations(lowered, bound)
    if isinstance(lowered, ProductPass):
        return steps_of_product(lowered, bound, options)
    recipe = recipe_of(lowered, kernel_for(lowered), bound, tensors, packed=options.get("packed", False))
    return Launch(form, binding, recipe, checks, options["empty"])


def steps_of_product(product: ProductPass, bound: Bound, options: Mapping[str, Any]) -> Step:
    """The step that multiplies by the library, and passes over the product with a kernel."""
    for_part = {**options, "plan": None}
    return ProductSteps(product, lambda form, part: step(form, part, for_part), bound.result, bound.library == "numpy")


def check_device(bound: Bound) -> None:
    """Refuse tensors on a device that runs no kernel: `meta` has no memory at all."""
    if not bound.device.startswith(("cpu", "cuda")):
        raise InputError(
            f'backend="tilelang": the tensors {", ".join(bound.tensors)} lie on {bound.device}, and kernels run on cpu '
            'and cuda. Move them there, or pass backend="torch".'
        )


def check_indices(form: FusedForm, bound: Bound) -> None:
    """Refuse a gather that leaves its tensor."""
    ops, tensors = backends.ops_for(bound, "torch"), backends.tensors_for(bound, "torch")
    check_gathers(form.cascade, arrays.scope_for(form.cascade, bound, ops, tensors))


@final
@dataclass(frozen=True)
class Launch:
    """A pass by the generated kernel; `recipe` is None if there is nothing to launch."""

    form: FusedForm
    bound: Bound
    recipe: Recipe | None
    checks_indices: bool
    empty: str

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.recipe is None:
            return arrays.run(self.form, rebind(self.bound, self.form.cascade, inputs), "torch", self.empty)
        if self.checks_indices:
            check_indices(self.form, rebind(self.bound, self.form.cascade, inputs))
        if not self.recipe.scalars:
            return self.recipe.launch(inputs, ())
        scalars = scalars_of(self.form.cascade, inputs)
        return self.recipe.launch(inputs, [scalars[name] for name in self.recipe.scalars])


def recipe_of_steps(steps: Sequence[Step]) -> Recipe | None:
    """The recipe of steps that are one kernel and nothing beside it: no check, and no scalars; None of others."""
    [*earlier, last] = steps
    if earlier or not isinstance(last, Launch) or last.checks_indices:
        return None
    return last.recipe if last.recipe is not None and not last.recipe.scalars else None


@final
@dataclass(frozen=True)
class Recipe:
    """The recipe by which a kernel is called on tensors of one kind.

    Attributes:
        entry: takes the arguments in order.
        inputs: names, and the function that brings a tensor to the kernel's shape and dtype (None: it has them).
        scalars: names.
        allocate: allocates each output and workspace, and finds counters.
        finish: outputs' names, their place among those, and the function that gives them the caller's shape and dtype.
    """

    entry: Callable[..., Any]
    inputs: tuple[tuple[str, Make | None], ...]
    scalars: tuple[str, ...]
    allocate: Callable[[], list[Any]]
    finish: tuple[tuple[str, int, Make | None], ...]

    def launch(self, inputs: Mapping[str, Any], scalars: Iterable[float]) -> dict[str, Any]:
        """Call the kernel with inputs, scalars, fresh outputs and workspaces, counters at 0, in the program's order."""
        results = self.allocate()
        self.entry(*self._arguments(inputs), *scalars, *results)
        return {name: results[place] if make is None else make(results[place]) for name, place, make in self.finish}

    def launch_into(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """As `launch`, of a kernel that writes into one buffer: into these tensors, which have its own shapes."""
        if not isinstance(self.allocate, OneBuffer):
            raise AssertionError("the kernel writes no buffer")
        self.entry(*self._arguments(inputs), *self.allocate.results_in(outputs))

    def _arguments(self, inputs: Mapping[str, Any]) -> list[Any]:
        return [with_alignment(inputs[name] if make is None else make(inputs[name])) for name, make in self.inputs]


def with_alignment(array: Any) -> Any:
    """A tensor whose address kernels take: itself, or a copy."""
    return array.clone() if array.data_ptr() % ALIGNMENT_BYTES else array


def recipe_of(
    lowered: Lowered, kernel: Kernel, bound: Bound, tensors: Mapping[str, Any], *, packed: bool = False
) -> Recipe:  # fmt: skip
    """The recipe of a lowered problem, for tensors like these; `packed`: its outputs are views of one buffer."""
    import torch

    parameters, where = concrete(lowered, tensors, bound.sizes), torch.device(bound.device)
    inputs = [one for one in parameters if one.role == "input"]
    results = [one for one in parameters if one.role not in ("input", "scalar")]
    places = {one.key: place for place, one in enumerate(results)}
    return Recipe(
        launch_function(kernel),
        tuple((one.key, maker(tensors[one.key], one, numpy=bound.library == "numpy")) for one in inputs),
        tuple(one.key for one in parameters if one.role == "scalar"),
        in_one_buffer(results, lowered, where) if packed else in_their_own(results, where),
        tuple((output.name, places[output.name], finisher(output, lowered, results[places[output.name]], bound))
              for output in lowered.stages.outputs),
    )  # fmt: skip


def in_their_own(parameters: Sequence[Parameter], where: Any) -> Callable[[], list[Any]]:
    """The function that makes every output and workspace by itself, and finds counters."""
    allocators = tuple(allocator(one, where) for one in parameters)
    return lambda: [one() for one in allocators]


@final
@dataclass(frozen=True)
class OneBuffer:
    """A function that makes every output, all in one buffer, and workspaces.

    Attributes:
        packing: of the outputs, in the kernel's shapes.
        keys: of outputs, workspaces and counters, in the kernel's order.
        others: allocators of those that are no outputs.
        where: the device.
    """

    packing: Packing
    keys: tuple[str, ...]
    others: Mapping[str, Callable[[], Any]]
    where: Any

    def __call__(self) -> list[Any]:
        return self.results_in(views_of(empty_buffer(self.packing, "torch", self.where), self.packing))

    def results_in(self, outputs: Mapping[str, Any]) -> list[Any]:
        """These outputs, and workspaces beside them."""
        return [outputs[key] if key in outputs else self.others[key]() for key in self.keys]


def in_one_buffer(parameters: Sequence[Parameter], lowered: Lowered, where: Any) -> OneBuffer:
    """As `in_their_own`, but that outputs lie side by side in one buffer, in their order."""
    outputs, known = [one.name for one in lowered.stages.outputs], {one.key: one for one in parameters}
    packing = Packing({name: known[name].dtype for name in outputs}, {name: known[name].shape for name in outputs})
    others = {one.key: allocator(one, where) for one in parameters if one.key not in packing.dtypes}
    return OneBuffer(packing, tuple(one.key for one in parameters), others, where)


def allocator(parameter: Parameter, where: Any) -> Callable[[], Any]:
    """The function that makes an output or a workspace, or finds a counter."""
    import torch

    if parameter.role == "counter":
        return Counters(parameter.shape, where)
    return partial(torch.empty, parameter.shape, dtype=_dtype(parameter.dtype), device=where)


def concrete(lowered: Lowered, tensors: Mapping[str, Any], lengths: Mapping[str, int]) -> tuple[Parameter, ...]:
    """The program's parameters at a call's sizes.

    Of two axes along one dimension of a tensor its shape binds one; the call's lengths of axes bind the other.
    """
    shapes = {name: tuple(one.shape) for name, one in tensors.items()}
    now = replace(lowered.problem, sizes={**lowered.problem.sizes, **lengths}, shapes=shapes)
    sizes = run_time_sizes(lowered.program, now, lowered.stages.loop)
    return tuple(replace(one, shape=shape_at(one.shape, sizes)) for one in lowered.program.parameters)


def maker(array: Any, parameter: Parameter, *, numpy: bool) -> Make | None:
    """The function that converts a tensor like this one to the kernel's input; None if it fits already."""
    if numpy:
        return lambda one: to_parameter(backends.torch_of(native(one)), parameter)
    if not array.is_contiguous() or array.is_neg() or array.dtype != _dtype(parameter.dtype):
        return lambda one: to_parameter(one, parameter)
    return None if tuple(array.shape) == parameter.shape else lambda one: one.view(parameter.shape)


def to_parameter(array: Any, parameter: Parameter) -> Any:
    """A tensor as the kernel takes it: contiguous, masks as bytes."""
    import torch

    array = array.resolve_neg().contiguous()
    if array.dtype == torch.bool:
        array = array.view(torch.uint8)
    return array.to(_dtype(parameter.dtype)).reshape(parameter.shape)


def finisher(output: FormOutput, lowered: Lowered, parameter: Parameter, bound: Bound) -> Make | None:
    """The function that converts a kernel's output to the caller's; None if it fits already."""
    shape = tuple(bound.sizes[axis.name] for axis in output.shape)
    dtype, numpy = lowered.results[output.name], bound.library == "numpy"
    if dtype == parameter.dtype and not numpy:
        return None if shape == parameter.shape else lambda array: array.view(shape)

    def finish(array: Any) -> Any:
        array = array.reshape(shape).to(_dtype(dtype))
        return array.numpy() if numpy else array

    return finish


def refuse_missing_torch() -> None:
    """Refuse a call without torch: TileLang is called with torch tensors."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise BackendError(
            'backend="tilelang" needs torch to hold its tensors, and torch is not installed. Install both '
            '(`pip install "redalg[tilelang]"`), or pass backend="numpy".'
        ) from error


def kernel_for(lowered: Lowered) -> Kernel:
    """The compiled kernel of a lowering: see `kernel_of_source`."""
    return kernel_of_source(lowered.source)


def kernel_of_source(source: Source) -> Kernel:
    """The compiled kernel of a source, from this process or from TileLang's cache on disk."""
    if source.text not in _KERNELS:
        _KERNELS[source.text] = compile_source(source)
    return _KERNELS[source.text]


_KERNELS: dict[str, Kernel] = {}


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)
