"""redalg: cascades of reductions, written in SymPy, derived into one pass and compiled into kernels.

    >>> import redalg as ra
    >>> n = ra.axes("n")
    >>> variance = ra.fuse(ra.var(ra.tensor("x[b,n]"), n))

Public names only. Importing redalg loads SymPy, and neither torch nor TileLang nor NumPy.
"""

from typing import TYPE_CHECKING

from redalg.errors import (
    BackendError,
    ExpressionError,
    GradientError,
    InputError,
    LawViolation,
    NotDecided,
    NotFusible,
    OperationError,
    PlanError,
    RedalgError,
)
from redalg.expression import (
    Axis,
    Element,
    Reduce,
    Tensor,
    affine,
    all,  # noqa: A004
    any,  # noqa: A004
    argmax,
    argmin,
    axes,
    axis,
    cast,
    compensated_sum,
    eq,
    first,
    last,
    let,
    logical_and,
    logical_not,
    logical_or,
    max,  # noqa: A004
    min,  # noqa: A004
    ne,
    prod,
    reduce,
    scalars,
    straight_through,
    sum,  # noqa: A004
    sum_at_max,
    tensor,
    tensors,
    topk,
    where,
)
from redalg.expression.arguments import answer_arguments
from redalg.fuse import Fused, analyze, from_json, fuse
from redalg.monoids import register_monoid as _register_monoid
from redalg.registration import register_operators
from redalg.sugar import (
    cosine_similarity,
    covariance,
    entropy,
    layer_norm,
    log_softmax,
    logsumexp,
    mean,
    norm,
    normalize,
    rms_norm,
    softmax,
    std,
    var,
)
from redalg.verdicts import Approximate, Exact, Refused, Undecided
from redalg.version import VERSION

if TYPE_CHECKING:
    from redalg import data as data
    from redalg import library as library
    from redalg.runtime.bind.state import State
    from redalg.strategies.levels import (
        Grid,
        Lanes,
        Loop,
        Pad,
        Parts,
        Persistent,
        ScalarCores,
        TensorCores,
        Whole,
    )
    from redalg.strategies.schedule import Definition, LibraryProduct, Schedule
    from redalg.torch.exported import optimize as optimize
else:
    LATER = {"Schedule": "schedule", "Definition": "schedule", "LibraryProduct": "schedule"} | dict.fromkeys(
        ("Grid", "Lanes", "Loop", "Pad", "Parts", "Persistent", "ScalarCores", "TensorCores", "Whole"), "levels"
    )

    APART = ("data", "library", "optimize")

    def __getattr__(name: str) -> object:
        """Modules, schedules, states and `optimize`, imported when asked for, and where functions come from."""
        from importlib import import_module

        if name == "State":
            return import_module("redalg.runtime.bind.state").State
        if name in ("data", "library"):
            return import_module(f"redalg.{name}")
        if name == "optimize":  # no name of `import *`: it imports torch
            return import_module("redalg.torch").optimize
        if name in LATER:
            return getattr(import_module(f"redalg.strategies.{LATER[name]}"), name)
        from redalg.expression.spelling import missing_name_error

        raise missing_name_error(name, (*__all__, *APART), patterns=lambda: import_module("redalg.library").PATTERNS)

    def __dir__() -> list[str]:
        """Public names, those that are imported when asked for among them."""
        return sorted({*globals(), *__all__, *APART})


__version__ = VERSION
register_monoid = answer_arguments(ExpressionError)(_register_monoid)
register_operators()

__all__ = [
    "Approximate", "Axis", "BackendError", "Definition", "Element", "Exact", "ExpressionError", "Fused",
    "GradientError", "Grid", "InputError", "Lanes", "LawViolation", "LibraryProduct", "Loop", "NotDecided",
    "NotFusible", "OperationError", "Pad", "Parts", "Persistent", "PlanError", "RedalgError", "Reduce", "Refused",
    "ScalarCores", "Schedule", "State", "Tensor", "TensorCores", "Undecided", "Whole", "affine", "all", "analyze",
    "any", "argmax", "argmin", "axes", "axis", "cast", "compensated_sum", "cosine_similarity", "covariance", "entropy",
    "eq", "first", "from_json", "fuse", "last", "layer_norm", "let", "log_softmax", "logical_and", "logical_not",
    "logical_or", "logsumexp", "max", "mean", "min", "ne", "norm", "normalize", "prod", "reduce",
    "register_monoid", "rms_norm", "scalars", "softmax", "std", "straight_through", "sum", "sum_at_max", "tensor",
    "tensors", "topk", "var", "where",
]  # fmt: skip
