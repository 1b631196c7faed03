"""The end of a file that runs on its own: the definition in PyTorch, and a `main` that holds the kernel to it.

How far a kernel may lie from the definition follows from the inputs that `main` draws. A float holds a number to within
its dtype's unit roundoff, so no result is known better than it moves when every input moves by so much: `main` moves
each by sixteen roundoffs, at random and three times (a kernel adds a few hundred partial results one after another, and
as many roundings add up like a random walk). To the largest movement it adds four times what the same unfused code
loses in the kernel's own arithmetic, and four roundings of the output. Where a kernel rounds to a narrow dtype at a
scale that still changes, what is rounded moves by that dtype's unit. Of indices and truth values as many may differ as
change when the inputs move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import final

from sympy import Symbol

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis, RunningCast
from redalg.expression.contents import elements_of, of_kind
from redalg.expression.dtypes import DTYPES, is_eight_bits, is_float
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.lower_tile.ir.program import Parameter, TileProgram
from redalg.lower_tile.ir.runtime_sizes import shape_at
from redalg.strategies.plan import Problem, shape_of
from redalg.unfused.definition import EXPONENTIAL, Definition, definition
from redalg.unfused.legal import divided_weights, integer_bound, roots_and_logs, scalar_value


def unit(dtype: str) -> int:
    """log₂ of the unit roundoff; of an integer, relative to the largest."""
    return -DTYPES[dtype].digits if is_float(dtype) else -8 * DTYPES[dtype].bytes


LARGEST = 1 << 27
"""Elements of a definition's tensors beyond which it is evaluated part by part: a gibibyte of float64."""

CHECK = '''
def shaken(x, by, of_largest=False):
    """An input with every element moved at random, by at most so much of itself (or of the largest)."""
    if not x.is_floating_point():
        return x
    return x + by * (x.abs().max() if of_largest else x) * (2 * torch.rand(x.shape, device=x.device) - 1)


def in_dtype(dtype, evaluate, inputs):
    """A definition in an arithmetic."""
    torch.set_default_dtype(dtype)
    return evaluate(*(x.to(dtype) if x.is_floating_point() else x for x in inputs))


def far(made, exact):
    """The largest difference where both are finite."""
    both = made.isfinite() & exact.isfinite()
    return (made - exact)[both].abs().max().item() if both.any() else 0.0


def check(name, made, exact, plain, moved):
    """Whether an output is as near to the definition as rounding allows; says so.

    Allowed: what the definition moves when its inputs move by sixteen roundoffs (a kernel adds a few hundred partial
    results, whose roundings add up like a random walk), four times what the unfused code loses in the kernel's own
    arithmetic, and four roundings of the largest output; of indices and truth values as many as then change.
    """
    dtype, made = made.dtype, made.to(exact.dtype).reshape(exact.shape)
    if not dtype.is_floating_point:
        wrong, allowed = (made != exact).sum().item(), max((one != exact).sum().item() for one in moved)
        said = f"{wrong} of {exact.numel()} differ"
    else:
        finite = exact[exact.isfinite()]
        if not finite.numel():
            print(f"{name} {tuple(made.shape)}: no finite value on these inputs. Draw others: UNKNOWN")
            return False
        largest = finite.abs().max().item()
        kind, wrong = torch.finfo(dtype), far(made, exact)
        allowed = max(far(one, exact) for one in moved) + 4 * far(plain.to(exact.dtype), exact)
        allowed += 2 * kind.eps * largest + kind.tiny
        wrong = wrong if torch.equal(made.isfinite(), exact.isfinite()) else float("inf")
        said = f"max error {wrong:.2e} of {largest:.2e}"
    right = wrong <= allowed
    print(f"{name} {tuple(made.shape)}: {said}, allowed {allowed:.2e}: {'ok' if right else 'WRONG'}")
    return right


def device_of_kernel():
    """The device of the kernel, `cpu` or `cuda`; ends the program with 2 where this machine has none that runs it."""
    if TARGET["target"] == "c":
        return "cpu"
    arch = TARGET["target"]["arch"].removeprefix("sm_")  # such as 90a
    needed = int(arch.rstrip("a")[:-1]), int(arch.rstrip("a")[-1])
    if torch.cuda.is_available():
        found = torch.cuda.get_device_capability()
        if found == needed or (found[0] == needed[0] and found[1] > needed[1] and not arch.endswith("a")):
            return "cuda"
        here = f"{torch.cuda.get_device_name()} here has {found[0]}.{found[1]}"
    else:
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is built without CUDA"
        here = f"PyTorch {torch.__version__} here sees no GPU, and {built}"
    import sys

    print(f"This kernel needs an NVIDIA GPU of compute capability {needed[0]}.{needed[1]} (sm_{arch}); {here}. Run it "
          "on such a GPU, or save a kernel for this machine by redalg: `fused.save(path, target, …)`, with the target "
          "`c` for a CPU, or that of the GPU.", file=sys.stderr)
    raise SystemExit(2)
'''.strip()
"""The functions that a file holds beside the definition."""


@final
@dataclass(frozen=True)
class Example:
    """The material of a check: a program, the forms as they were derived; sizes, shapes and draws of its inputs.

    Attributes:
        program: the program that runs, of the last pass.
        passes: the forms, before lowering changed them.
        problem: with the sizes that `main` uses.
        shapes, dtypes: of every tensor that is given, by the user's name.
        run_time: the example's sizes of a program with run-time sizes.
    """

    program: TileProgram
    passes: Passes
    problem: Problem
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    run_time: Mapping[Symbol, int]

    @property
    def form(self) -> FusedForm:
        """The form of the last pass."""
        return self.passes.last

    def shape(self, name: str, form: FusedForm) -> tuple[int, ...]:
        """A tensor's shape as the user indexes it."""
        if name in self.shapes:
            return self.shapes[name]
        return tuple(int(one) for one in shape_of(name, form.cascade.elements(), self.problem))


def check_script(example: Example, seed: int = 0) -> str:
    """Definition and main of a file that holds its kernel to PyTorch."""
    sizes = example.problem.sizes
    shapes_of_last = {name: example.shape(name, example.form) for name in example.form.cascade.inputs()}
    last = definition("definition", example.form.cascade, sizes, shapes_of_last)
    parts = [last]
    for number, form in enumerate(example.passes.earlier, 1):
        shapes = {name: example.shape(name, form) for name in form.cascade.inputs()}
        parts.insert(number - 1, definition(f"pass_{number}", form.cascade, sizes, shapes))
    helpers = [EXPONENTIAL] if any("exponential(" in one.text for one in parts) else []
    cut = in_parts(last, example.form.cascade, sizes)
    functions = [*helpers, *(one.text for one in parts), *([cut] if cut else []), CHECK]
    return "\n\n\n".join([*functions, main_text(example, "in_parts" if cut else "definition", seed)])


def in_parts(whole: Definition, cascade: Cascade, sizes: Mapping[str, int]) -> str:
    """The definition along one of its axes, a few at a time; empty if its tensors are small."""
    cuts = [(axis, places_of(axis, cascade)) for axis in whole.free]
    candidates = [(axis, places) for axis, places in cuts if places is not None and sizes[axis.name] > 1]
    if whole.elements <= LARGEST or not candidates:
        return ""
    axis, places = candidates[0]
    length = sizes[axis.name]
    step = max(1, length * LARGEST // whole.elements)
    outputs = ", ".join(str(one.axes.index(axis)) for one in cascade.outputs)
    return "\n".join([
        "def in_parts(*inputs):",
        f'    """The definition for {step} of {axis} at a time, to bound its memory."""',
        f"    places, pieces = ({', '.join(map(str, places))},), []",
        f"    for start in range(0, {length}, {step}):",
        f"        stop = min(start + {step}, {length})",
        "        cut = [x if at is None else x.narrow(at, start, stop - start) for x, at in zip(inputs, places)]",
        "        pieces.append(definition(*cut))",
        f"    return tuple(torch.cat(parts, place) for parts, place in zip(zip(*pieces), ({outputs},)))",
    ])  # fmt: skip


def places_of(axis: Axis, cascade: Cascade) -> list[int | None] | None:
    """For every input, the dimension that an axis indexes (None: no such); None if one tensor has two."""
    dimensions: list[int | None] = []
    for name in cascade.inputs():
        indices = [one.indices for one in cascade.elements() if one.name == name]
        places = {tuple(dimension for dimension, index in enumerate(one) if index == axis) for one in indices}
        if len(places) != 1 or len(place := places.pop()) > 1:
            return None
        dimensions.append(place[0] if place else None)
    return [*dimensions, *(None for _ in cascade.scalars())]


# ---- main ------------------------------------------------------------------------------------------------------------


def main_text(example: Example, define: str, seed: int) -> str:
    """Text of `main`: draw inputs, run the kernel and the definition, compare, exit with 1 if an output is wrong."""
    program, cascade = example.program, example.form.cascade
    parameters = [replace(one, shape=shape_at(one.shape, example.run_time)) for one in program.parameters]
    inputs = {one.key: one for one in parameters if one.role in ("input", "scalar")}
    outputs = {one.key: one for one in parameters if one.role == "output"}
    lines = ["device = device_of_kernel()", f"torch.manual_seed({seed})"]
    lines += earlier_passes(example)
    lines += ["arguments = {", *(f'    "{one.name}": {first_draw(one, example)},' for one in parameters), "}"]
    lines += ["compiled()(*arguments.values())", ""]
    lines += ["inputs = (", *(f"    {definition_argument(inputs[name], example)}," for name in cascade.inputs())]
    lines += [f'    torch.tensor(arguments["{inputs[str(number.name)].name}"], device=device),'
              for number in cascade.scalars()]  # fmt: skip
    lines += [")", f"moves = ({', '.join(input_moves(example))},)  # how far each input is moved"]
    lines += [f"plain = in_dtype(torch.{example.problem.compute}, {define}, inputs)  # in the kernel's arithmetic"]
    lines += [f"exact = in_dtype(torch.float64, {define}, inputs)"]
    lines += [f"moved = [{define}(*(shaken(x, *move) for x, move in zip(inputs, moves))) for _ in range(3)]"]
    lines += empties(example)
    lines += [
        "right = [",
        *(f"    {output_check(outputs[one.name], place)}," for place, one in enumerate(cascade.outputs)),
    ]
    lines += ["]", "raise SystemExit(0 if all(right) else 1)"]
    return "\n".join(['if __name__ == "__main__":', *(f"    {line}" if line else "" for line in lines)])


def earlier_passes(example: Example) -> list[str]:
    """The inputs and results of the passes before the last, by their definitions."""
    if not example.passes.earlier:
        return []
    results = {output.name for output in example.passes.intermediates}
    inputs = {name: Parameter(name, example.shape(name, form), example.dtypes[name], "input", name)
              for form in example.passes.earlier for name in form.cascade.inputs() if name not in results}  # fmt: skip
    lines = ["before = {", *(f'    "{one.name}": {random(one, example)},' for one in inputs.values()), "}"]
    for number, form in enumerate(example.passes.earlier, 1):
        cascade = form.cascade
        arguments = [f'before["{name}"]' + ".double()" * (name in inputs and "float" in inputs[name].dtype)
                     for name in cascade.inputs()]  # fmt: skip
        arguments += [f"torch.tensor({scalar_value(one)}, device=device)" for one in cascade.scalars()]
        names = ", ".join(f'"{one.name}"' for one in cascade.outputs)
        lines += [f"before |= zip(({names},), in_dtype(torch.float64, pass_{number}, ({', '.join(arguments)},)))"]
    return lines


def first_draw(parameter: Parameter, example: Example) -> str:
    """The text of an argument's first value."""
    before = {name for form in example.passes.earlier for name in form.cascade.inputs()}
    before |= {output.name for output in example.passes.intermediates}
    if parameter.role == "scalar":
        return str(scalar_value(next(each for each in example.form.cascade.scalars() if each.name == parameter.key)))
    if parameter.role == "counter":
        return f"torch.zeros({parameter.shape}, dtype=torch.{parameter.dtype}, device=device)"
    if parameter.role in ("output", "workspace"):
        nothing = "-2" if "int" in parameter.dtype else 'float("nan")'
        return f"torch.full({parameter.shape}, {nothing}, dtype=torch.{parameter.dtype}, device=device)"
    if parameter.key in before:
        return f'before["{parameter.key}"].to(torch.{parameter.dtype}).reshape({parameter.shape})'
    return random(parameter, example)


def random(parameter: Parameter, example: Example) -> str:
    """Normal numbers, positive where they must be; integers within what they index or bound, 0 and 1 of masks."""
    if "int" in parameter.dtype:
        high = 2 if parameter.dtype == "uint8" else integer_bound_of(parameter.key, example)
        return f"torch.randint(0, {high}, {parameter.shape}, dtype=torch.{parameter.dtype}).to(device)"
    text = f"torch.randn({parameter.shape})" + ".abs().add(0.1)" * (parameter.key in positive_inputs(example))
    return f"{text}.to(torch.{parameter.dtype}).to(device)"


def positive_inputs(example: Example) -> set[str]:
    """The tensors that were declared so, under a logarithm or a root, or whose sum divides."""
    cascades = [form.cascade for form in example.passes]
    elements = chain(*(each.elements() for each in cascades))
    declared = {one.name for one in elements if one.label.assumption in ("positive", "nonnegative")}
    return declared | divided_weights(cascades[-1]) | roots_and_logs(chain(*(each.expressions() for each in cascades)))


def integer_bound_of(name: str, example: Example) -> int:
    """The bound below which a tensor's integers lie."""
    elements = [element for form in example.passes for element in form.cascade.elements()]
    exprs = [expr for form in example.passes for expr in form.cascade.expressions()]
    shapes = {each: example.shape(each, form) for form in example.passes for each in form.cascade.inputs()}
    return integer_bound(name, elements, exprs, shapes, example.problem.sizes)


def definition_argument(parameter: Parameter, example: Example) -> str:
    """An argument as the definition takes it: in the user's shape, in float64 or 64-bit integers."""
    shape = example.shape(parameter.key, example.form)
    reshape = "" if shape == shape_at(parameter.shape, example.run_time) else f".reshape({shape})"
    return f'arguments["{parameter.name}"]{reshape}.{"long" if "int" in parameter.dtype else "double"}()'


def input_moves(example: Example) -> list[str]:
    """The move of each input: the widest rounding of any, as operands are rounded to one another's dtypes."""
    cascade, dtypes = example.form.cascade, example.problem.dtypes
    floats = [unit(dtype) for dtype in dtypes.values() if is_float(dtype) and not is_eight_bits(dtype)]
    base = max(floats, default=unit("float32")) + 4
    casts = of_kind(RunningCast, *(factor for one in example.form.accumulators for factor in one.factors))
    narrow = {one.name: cast.dtype for cast in casts for one in elements_of(cast)}
    units = {name: max(base, unit(narrow[name])) if name in narrow else base for name in cascade.inputs()}
    moves = [f"(2**{units[name]}{', True' * ('int' in narrow.get(name, ''))},)" for name in cascade.inputs()]
    return [*moves, *(f"(2**{base},)" for _ in cascade.scalars())]


def empties(example: Example) -> list[str]:
    """Lines that set ratios over no elements to 0, if they are to be 0."""
    if example.problem.empty != "zero":
        return []
    return ["exact, plain, *moved = (  # a ratio over no elements is 0 here",
            "    tuple(torch.nan_to_num(x, 0.0, torch.inf, -torch.inf) for x in one) for one in (exact, plain, *moved)",
            ")"]  # fmt: skip


def output_check(parameter: Parameter, place: int) -> str:
    """The check of one output."""
    parts = f"exact[{place}], plain[{place}], [one[{place}] for one in moved]"
    return f'check("{parameter.name}", arguments["{parameter.name}"], {parts})'
