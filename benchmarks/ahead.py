"""Kernels of calls and of their backwards, compiled before anything is timed.

Every function is lowered and compiled into the cache on disk by a process of its own, all at once. Then this process
lowers them too, so that calls of changing sizes take the kernels of their own sizes, and find them on disk.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from os import cpu_count

import torch

from benchmarks.family import Problem, Tensors
from redalg.gradient.operand import OperandStage, call_arguments
from redalg.gradient.recorded import backward_of
from redalg.gradient.stage import JointStage, Stage, needed_stages, own_sizes, sizes_of
from redalg.runtime.bind.arrays import output_dtypes
from redalg.runtime.bind.inputs import array_dtype, dtypes_of_floats
from redalg.runtime.call.ahead import kernels_of_call
from redalg.runtime.call.sizes import ahead
from redalg.runtime.compile.compile import compile_source
from redalg.runtime.lowering import lower_passes

# ---- backwards -------------------------------------------------------------------------------------------------------


def recorded_problems(problem: Problem, gradients: Sequence[str]) -> Iterator[Problem]:
    """The function with its row values, then the stages of its backward that make some tensors' gradients."""
    known = {name: placeholder(shape, problem.dtypes[name]) for name, shape in problem.shapes.items()}
    backward = backward_of(problem.function).for_tensors(known)
    yield problem._replace(function=backward.forward)
    sizes = {**sizes_of(backward.forward.cascade, known), **problem.sizes}
    dtypes = output_dtypes(backward.forward, dtypes_of_floats(dtypes_of(known)))
    for output in backward.forward.cascade.outputs:
        value = placeholder([sizes[axis.name] for axis in output.axes], dtypes[output.name])
        names = (output.name, backward.made.get(output.name), backward.cotangents.get(output.name))
        known |= {name: value for name in names if name is not None}
    for stage in needed_stages(backward.stages, [backward.gradients[name] for name in gradients]):
        serves = stage.serves(sizes)
        if isinstance(stage, OperandStage) and serves:
            yield from operand_problems(stage, known, sizes)
        for one in [stage] if serves else stage.parts:
            read = {name: value for name, value in known.items() if name in one.inputs}
            known |= {part.name: placeholder([sizes[axis.name] for axis in part.axes], part.dtype_of(dtypes_of(read)))
                      for part in one.parts}  # fmt: skip
            if isinstance(one, Stage | JointStage) and one.fused is not None:
                shapes = {name: tuple(value.shape) for name, value in read.items()}
                yield Problem(one.fused, own_sizes(one.fused, sizes, one.renamed), dtypes_of(read), shapes)


def operand_problems(stage: OperandStage, known: Tensors, sizes: Mapping[str, int]) -> Iterator[Problem]:
    """The operand of products, of parts of every length; the library multiplies."""
    lengths = {part.stop - part.start: (given, part) for given, part in stage.inputs_by_part(known, sizes)}
    for length, (given, part) in lengths.items():
        read = {
            name: one for name, one in call_arguments(stage.function, given).items() if isinstance(one, torch.Tensor)
        }
        own = own_sizes(stage.function, {**sizes, part.axis.name: length})
        yield Problem(stage.function, own, dtypes_of(read), {name: tuple(one.shape) for name, one in read.items()})


def placeholder(shape: Sequence[int], dtype: str) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype or "float32"), device="meta")


def dtypes_of(tensors: Tensors) -> dict[str, str]:
    return {name: array_dtype(one) for name, one in tensors.items()}


# ---- kernels ---------------------------------------------------------------------------------------------------------


def compile_all(problems: Sequence[Problem], target: str) -> list[str]:
    """Compile every kernel; for each function what went wrong, if anything: it is met again when the function runs."""
    workers = max(1, min(len(problems), cpu_count() or 1))
    with get_context("spawn").Pool(workers) as pool:
        said = pool.map(partial(compile_kernels, target), problems, chunksize=1)
    for (function, sizes, dtypes, shapes), failure in zip(problems, said, strict=True):
        if not failure:
            lower_passes(function.passes, target, sizes, dtypes, ahead, shapes=shapes)
    return said


def compile_kernels(target: str, problem: Problem) -> str:
    """Compile the kernels that a call takes into the cache on disk; gives back what went wrong, if anything."""
    try:
        function, sizes, dtypes, shapes = problem
        for lowered in kernels_of_call(function.passes, target, sizes, dtypes, shapes):
            compile_source(lowered.source)
    except Exception as failure:  # noqa: BLE001 - a function that does not compile is a result
        return f"{type(failure).__name__}: {failure}"[:300]
    return ""
