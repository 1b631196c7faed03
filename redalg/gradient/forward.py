"""Forward mode of a fused function, as a value: the tangents of its outputs, of those of its tensors.

    ȯ = Σ_x ẋ·∂o/∂x        linear in the tangents ẋ, which have the axes of x: a cascade over what o streams
    stages                 one, if one form makes all tangents that reduce; else one for each output, parts before it

Nothing is saved: a tangent's pass makes the row values of its output again, beside its own sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

from sympy import Expr

from redalg.display import Displayed
from redalg.errors import InputError
from redalg.explain.ask import Request
from redalg.expression.arguments import answer_methods
from redalg.gradient.arrays import zeros_like
from redalg.gradient.explanation import Names, equations_of_names, explain_forward, stage_in_names
from redalg.gradient.stage import (
    JointStage,
    Stage,
    for_dtypes,
    for_tensors,
    lines_of_stages,
    shapes_of_tensors,
    sizes_of,
    source_options,
    sources_of_stages,
)
from redalg.runtime.bind.options import Sizes, named_dtypes, named_sizes


@answer_methods(InputError, "__call__")
@final
@dataclass(frozen=True, repr=False)
class Forward(Displayed):
    """The derived forward mode, which is called on tangents and tensors.

    Attributes:
        function: the function itself.
        stages: what is computed, in order.
        tangents: output -> the name of the stage's tensor that is its tangent; an output without one is constant.
        names: tensor -> the name of its tangent in the stages.
        proofs: extremum -> why it has no tangent.
        again: derives it for the dtypes of the tensors, if some have 16 bits or fewer.
        given: the names by `ra.let`, each with what it names in tensors.

    >>> import numpy as np, redalg as ra
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> forward = ra.fuse(ra.mean(x**2, n)).jvp()
    >>> print(forward)
    linear in: tangent_x (of x)
    tangent_out[] = sum(2*tangent_x[n]*x[n], n)/|n|    (passes: 1)
    >>> forward.for_tensors({"x": np.float32([1.0])})(np.float32([1.0, 0.0]), x=np.float32([3.0, 4.0]))
    {'out': array(3., dtype=float32)}
    >>> list(forward.source("H100", sizes={"n": 4096}, dtypes="float32"))
    ['tangent_out']
    """

    function: Any
    stages: tuple[Stage | JointStage, ...]
    tangents: Mapping[str, str]
    names: Mapping[str, str]
    proofs: Mapping[Expr, str] = field(default_factory=dict)
    again: Callable[[Mapping[str, str]], Forward] | None = None
    given: Names = ()

    def __call__(self, tangents: Any, /, *, sizes: Sizes | None = None, **tensors: Any) -> dict[str, Any]:
        """The tangents of the outputs by name; an output that is constant has none.

        Args:
            tangents: of the tensors: a dict by tensor name, or one array where one tensor has a tangent; those left
                out are 0.
            sizes: extents of axes that no tensor carries, by axis or by its name.
            tensors: the tensors and scalars of the function, by name.

        >>> import numpy as np, redalg as ra
        >>> n = ra.axes("n")
        >>> square = ra.fuse(ra.sum(ra.tensor("x[n]") ** 2, n))
        >>> square.jvp()(np.array([1.0, 0.0, 2.0]), x=np.array([1.0, 2.0, 6.0]))["out"]
        array(26.)
        """
        own = self.for_tensors(tensors)
        given = tangents if isinstance(tangents, Mapping) else {self._only_tensor: tangents}
        self._check(given, tensors)
        known = dict(tensors)
        for name, own_name in own.names.items():
            known[own_name] = zeros_like(tensors[name]) if given.get(name) is None else given[name]
        lengths = {**sizes_of(self.function.cascade, tensors), **named_sizes(self.function.cascade, sizes, "jvp")}
        for stage in own.stages:
            known |= stage.tensors(known, lengths)
        return {output: known[name] for output, name in own.tangents.items()}

    def for_tensors(self, tensors: Mapping[str, Any]) -> Forward:
        """Forward mode for tensors of their dtypes: if one has 16 bits or fewer, a tangent has its output's dtype."""
        return for_tensors(self, tensors)

    @property
    def _only_tensor(self) -> str:
        """The name of the tensor with a tangent, if there is one."""
        if len(self.names) != 1:
            raise InputError(f"tangents: the tensors with a tangent are {', '.join(self.names) or 'none'}. Pass a dict "
                             "of tangents by tensor name.")  # fmt: skip
        return next(iter(self.names))

    def _check(self, given: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        """Refuse tangents of what has none, and those of another shape than their tensor's."""
        if wrong := sorted(given.keys() - self.names.keys()):
            raise InputError(f"tangents: {', '.join(wrong)} is no tensor with a tangent. Those are "
                             f"{', '.join(self.names) or 'none'}.")  # fmt: skip
        if absent := sorted(self.names.keys() - tensors.keys()):
            raise InputError(f"the call lacks the tensors {', '.join(absent)}. Pass them by keyword.")
        for name, tangent in given.items():
            shape, needed = tuple(getattr(tangent, "shape", ())), tuple(getattr(tensors[name], "shape", ()))
            if tangent is not None and shape != needed:
                raise InputError(f"tangents: that of `{name}` has shape {shape}, and the tensor has {needed}. Pass an "
                                 "array of the tensor's shape.")  # fmt: skip

    def explain(
        self, section: str | Sequence[str] | None = None, *, brief: bool = False, width: int | None = None,
        format: str = "text",
    ) -> str:  # fmt: skip
        """The tangents that are read, names by `ra.let`, extrema without a tangent, and the stages.

        Args:
            section: a section or several, by name: `tangents`, `stages`; `names` and `pivots` if there are some. The
                name of a stage alone gives the derivation of its function. None for all.
            brief: the stages without their equations.
            width, format: as of `Fused.explain`.

        Raises:
            InputError: there is no such section, stage or format, or the width is below 40.

        >>> import redalg as ra
        >>> n, x = ra.axes("n"), ra.tensor("x[b,n]")
        >>> mu = ra.let("mu", ra.mean(x, n))
        >>> forward = ra.fuse(ra.mean((x - mu) ** 2, n)).jvp()
        >>> print(forward.explain(["tangents", "names"], width=60))
        Forward mode: tangent_out[b]
        ════════════════════════════
        1 stage, each fused by the same engine. Sections are
        tangents, names, stages, tangent_out.
        <BLANKLINE>
        1  Tangents that the outputs' are linear in ────────────────
        <BLANKLINE>
           `tangent_x` is that of `x`.
        <BLANKLINE>
        2  Names that were given ───────────────────────────────────
        <BLANKLINE>
           In tensors
             mu[b] = (Σ_n x[b,n])/|n|
        """
        return explain_forward(self, Request(section, brief, width, format))

    def __str__(self) -> str:
        tangents = ", ".join(f"{name} (of {tensor})" for tensor, name in self.names.items())
        lines = [
            f"linear in: {tangents or 'nothing'}",
            *(f"no tangent: {one}. {why}" for one, why in self.proofs.items()),
            *(f"{one.left} = {one.right}" for one in equations_of_names(self.stages, self.given)),
        ]
        return "\n".join([*lines, *lines_of_stages(self.stages, partial(stage_in_names, names=self.given))])

    def source(
        self, target: str = "sm_90a", sizes: Sizes | None = None, dtypes: Any = "float16", **options: Any
    ) -> dict[str, str]:  # fmt: skip
        """The TileLang programs by stage, as calls on tensors of these dtypes run them.

        Options as of `Fused.source`; sizes by the function's axes. A tangent has its tensor's dtype, if `dtypes` does
        not name it.
        """
        given, cascade = named_dtypes(self.function.cascade, dtypes), self.function.cascade
        own = for_dtypes(self, given)
        options = source_options(cascade, given, options, own.names.values(), own.stages)
        known = {own_name: given[name] for name, own_name in own.names.items()}
        options["dtypes"] = {**known, **given}
        lengths = named_sizes(cascade, sizes, "source")
        shapes = shapes_of_tensors(cascade, lengths, options.get("shapes", {}))
        options["shapes"] = shapes | {name: shapes[tensor] for tensor, name in own.names.items() if tensor in shapes}
        return sources_of_stages(own.stages, target, lengths, options)
