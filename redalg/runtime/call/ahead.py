"""The kernels that a call will take, before there are tensors to call with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.runtime.call.sizes import ahead
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import choose_library_for, lower_passes
from redalg.runtime.unfused.product import ProductPass, part_problem, shapes_of_part


def kernels_of_call(
    passes: Passes,
    target: str,
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
) -> list[Lowered]:
    """The kernels of a call: of every pass its own, or the one over a product by the library.

    Calls in this process take the lowerings of here. A pass that PyTorch evaluates has none.

    Args:
        passes: of a function.
        target: the card or architecture.
        sizes: of the axes.
        dtypes, shapes: of the tensors.
    """
    found = lower_passes(passes, target, sizes, dtypes, kernel_of_pass, shapes=shapes)
    return [lowered for lowered in found if lowered is not None]


def kernel_of_pass(
    form: FusedForm, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, str], **options: Any
) -> Lowered | None:
    """The kernel of a pass; None if PyTorch evaluates all of it."""
    plain = choose_library_for(form, target, sizes, dtypes, **options)
    if plain is None:
        return ahead(form, target, sizes, dtypes, **options)
    if not isinstance(plain, ProductPass):
        return None
    rows = plain.plan.rows or plain.problem.sizes.get(str(plain.split.cut), 0)
    part_sizes, part_dtypes = part_problem(plain.split, plain.problem, rows)
    shapes = shapes_of_part(plain.split, plain.problem, part_sizes)
    return kernel_of_pass(plain.split.form, target, part_sizes, part_dtypes, **{**options, "shapes": shapes})
