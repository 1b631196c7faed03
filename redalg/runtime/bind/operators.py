"""The registration of redalg's operators with PyTorch.

redalg::name(…) → Tensor[]         what it makes
redalg::name_only(…) → Tensor      the tensor of a list of one: C++ that Inductor writes (`cpp_wrapper`) takes no
                                   such list
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LIBRARY = torch.library.Library("redalg", "FRAGMENT")
"""The registration of the operators, which lasts as long as this object."""
Several = Callable[..., list[Tensor]]
ONLY = "_only"


def define_operator(name: str, parameters: str, compute: Several, fake: Several) -> None:
    """Register an operator that returns a list."""
    register(name, f"({parameters}) -> Tensor[]", compute, fake)


def define_operators(name: str, parameters: str, compute: Several, fake: Several) -> None:
    """Register an operator that returns a list, and the one that returns the tensor of a list of one."""
    define_operator(name, parameters, compute, fake)
    register(name + ONLY, f"({parameters}) -> Tensor", only(compute), only(fake))


def register(name: str, schema: str, compute: Callable[..., object], fake: Callable[..., object]) -> None:
    """Register an operator."""
    LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"redalg::{name}", fake, lib=LIBRARY)


def only(compute: Several) -> Callable[..., Tensor]:
    """A function that returns the only tensor of another's list."""

    def first(*args: object) -> Tensor:
        [made] = compute(*args)
        return made

    return first
