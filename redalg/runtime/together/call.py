"""A call of steps: by one launch on a GPU, and one after another elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast, final

import torch

from redalg.errors import PlanError
from redalg.lower_tile.ir.program import Parameter
from redalg.lower_tile.ir.runtime_sizes import shape_at
from redalg.runtime.bind.inputs import array_dtype
from redalg.runtime.call.kernels import allocator, kernel_of_source, to_parameter, with_alignment
from redalg.runtime.compile.compile import launch_function
from redalg.runtime.lowering import target_of
from redalg.runtime.together.lower import LoweredSteps, lower_steps
from redalg.runtime.together.steps import Shape, Steps, read_steps

Kind = tuple[str, str, tuple[str, ...]]
"""The text of steps, the device, and the dtypes of what is given."""
MOST_LAUNCHES = 256
"""Launches of sizes that vary that are kept, one for each lengths; kernels serve all lengths, and stay."""
_LAUNCHES: dict[tuple[Kind, tuple[int, ...]], Launch] = {}
_FIRST: dict[Kind, tuple[int, ...]] = {}
"""The lengths at which the kernel of a kind was planned: it takes all others too."""


@final
@dataclass(frozen=True)
class Launch:
    """The launch of steps on tensors of one kind.

    Attributes:
        entry: takes a tensor for every parameter of the program, in order.
        given: every parameter that is an input, and its table, or the number of the tensor that is given.
        made: of every other, its key and its shape.
        allocators: key -> the function that makes its tensor.
        returned: the outputs' keys, shapes and dtypes.
    """

    entry: Callable[..., Any]
    given: tuple[tuple[Parameter, int | torch.Tensor], ...]
    made: tuple[tuple[str, Shape], ...]
    allocators: Mapping[str, Callable[[], torch.Tensor]]
    returned: tuple[tuple[str, Shape, torch.dtype], ...]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run all steps on tensors."""
        found = {key: allocate() for key, allocate in self.allocators.items()}
        inputs = (each if isinstance(each, torch.Tensor) else kernel_input(tensors[each], parameter)
                  for parameter, each in self.given)  # fmt: skip
        self.entry(*inputs, *(view_of_first(found[key], shape) for key, shape in self.made))
        return [found[key].view(shape).to(dtype) for key, shape, dtype in self.returned]


def call_steps(text: str, tensors: Sequence[torch.Tensor], lengths: tuple[int, ...] = ()) -> list[torch.Tensor]:
    """The outputs of steps on tensors, in the order in which the text has them; `lengths` are those that vary.

    Raises:
        PlanError: the steps have no launch on the tensors' device.
    """
    steps = read_steps(text)
    device = tensors[0].device
    if device.type != "cuda" or 0 in lengths:
        return run_in_turn(steps.at(lengths), tensors)
    kind = text, str(device), tuple(map(array_dtype, tensors))
    if (kind, lengths) not in _LAUNCHES:
        dtypes, first = dict(zip(steps.inputs, kind[2], strict=True)), _FIRST.setdefault(kind, lengths)
        _LAUNCHES[kind, lengths] = launch_of(steps, device, dtypes, lengths, first)
        drop_oldest()
    return _LAUNCHES[kind, lengths](tensors)


def drop_oldest() -> None:
    """Forget launches of sizes that vary beyond the most; others have tables, which captured graphs read."""
    varying = [key for key in _LAUNCHES if key[1]]
    for key in varying[: len(varying) - MOST_LAUNCHES]:
        del _LAUNCHES[key]


def run_in_turn(steps: Steps, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of steps, function after function."""
    known = dict(zip(steps.inputs, tensors, strict=True))
    for step in steps.steps:
        function = step.function_of_step()
        own = zip(step.names, step.reads, step.views, step.offsets, strict=True)
        given = {name: known[read].reshape(-1)[offset : offset + prod(shape)].reshape(shape)
                 for name, read, shape, offset in own}  # fmt: skip
        made = function(**given, sizes=dict(step.sizes))
        known |= dict(zip(step.writes, (made,) if function.single else tuple(made), strict=True))
    return [known[name].reshape(shape).to(getattr(torch, dtype)) for name, shape, dtype in steps.outputs]


# ---- the launch ------------------------------------------------------------------------------------------------------


def launch_of(
    steps: Steps, device: torch.device, dtypes: Mapping[str, str], lengths: tuple[int, ...] = (),
    first: tuple[int, ...] = (),
) -> Launch:  # fmt: skip
    """The launch of steps on a device at lengths of what varies, by the kernel that was planned at the first ones."""
    lowered = lower_steps(steps, target_of(str(device)), dtypes, first)
    check_residence(lowered, device)
    program, sizes = lowered.source.program, dict(zip(steps.sizes, lengths, strict=True))
    at = {symbol: sizes[str(symbol)] for symbol in program.sizes}
    parameters = [replace(one, shape=shape_at(one.shape, at)) for one in program.parameters]
    numbers, tables = {name: number for number, name in enumerate(steps.inputs)}, lowered.tables
    given = list[tuple[Parameter, int | torch.Tensor]]()
    for parameter in parameters:
        if parameter.key in tables:
            table = torch.tensor(tables[parameter.key], dtype=torch.int32, device=device).view(parameter.shape)
            given.append((parameter, table))
        elif parameter.role == "input":
            given.append((parameter, numbers[parameter.key]))
    made = [one for one in parameters if one.role != "input"]
    allocators = {one.key: allocator(one, device) for one in reversed(made)}
    returned = tuple((name, shape, getattr(torch, dtype)) for name, shape, dtype in steps.at(lengths).outputs)
    entry = launch_function(kernel_of_source(lowered.source))
    return Launch(entry, tuple(given), tuple((one.key, one.shape) for one in made), allocators, returned)


def check_residence(lowered: LoweredSteps, device: torch.device) -> None:
    """Raise `PlanError` if a device does not hold all blocks of a launch at once, as they wait for each other."""
    together = lowered.source.program.together
    assert together is not None
    room = together.beside * torch.cuda.get_device_properties(device).multi_processor_count
    if together.blocks > room:
        raise PlanError(f"the launch has {together.blocks} blocks that wait for each other, and {device} holds {room} "
                        "at once. Run the steps one after another.")  # fmt: skip


def view_of_first(tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The first elements of a tensor, as many as a shape has, in the shape."""
    count = prod(shape)
    return tensor.view(shape) if tensor.numel() == count else tensor.view(-1)[:count].view(shape)


def kernel_input(tensor: torch.Tensor, parameter: Parameter) -> torch.Tensor:
    """The first elements of a tensor, as many as the kernel takes, as it takes them."""
    array = tensor if tensor.numel() == prod(parameter.shape) else tensor.reshape(-1)[: prod(parameter.shape)]
    return cast(torch.Tensor, with_alignment(to_parameter(array, parameter)))
