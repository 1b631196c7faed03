"""The backward of a fused function: what the forward saves, and the stages that make the gradients of it.

    row values r   the reductions of row size, saved by the forward; those that are pivots have no gradient
    stages         ∂/∂r, last first, then ∂/∂x of every tensor x: each a cascade of its own over plain tensors

What has an element for each row and streamed element is never saved: it is computed again in the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

from sympy import Expr

from redalg.display import Displayed
from redalg.errors import InputError
from redalg.explain.ask import Request
from redalg.expression.arguments import answer_methods
from redalg.gradient.arrays import zeros_like
from redalg.gradient.explanation import Names, equations_of_names, explain_backward, stage_in_names
from redalg.gradient.stage import (
    AnyStage,
    for_dtypes,
    for_tensors,
    lines_of_stages,
    needed_stages,
    shapes_of_tensors,
    sizes_of,
    sizes_of_dimensions,
    source_options,
    sources_of_stages,
)
from redalg.runtime.bind.arrays import output_dtypes
from redalg.runtime.bind.inputs import dtypes_of_floats, library_name
from redalg.runtime.bind.options import Sizes, named_dtypes, named_sizes


@answer_methods(InputError, "__call__")
@final
@dataclass(frozen=True, repr=False)
class Backward(Displayed):
    """The derived backward, which is called on cotangents and tensors.

    Attributes:
        forward: the function with the row values beside its outputs, in one pass as before.
        saved: the names of the row values.
        stages: what is computed, in order.
        gradients: tensor -> the name of the stage that makes its gradient.
        cotangents: output -> the name of its cotangent in the stages; the outputs in order.
        made: output -> its name in the stages, of those that they read.
        proofs: extremum -> why it has no gradient.
        once: true of products, whose stages are no functions to differentiate: at two zeros they are 0 and their own
            derivative is not.
        again: derives it for the dtypes of the tensors, if some have 16 bits or fewer.
        names: those that `ra.let` gives, each with what it stands for in the stages.

    >>> import numpy as np, redalg as ra
    >>> backward = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), ra.axes("n"))).vjp()
    >>> backward.outputs, backward.saved
    (('out',), ('row_max_0', 'row_sum_0'))
    >>> print(backward)
    saved by the forward: row_max_0, row_sum_0
    no gradient: max(x[b, n], n). No output depends on it: their forms are the same with any number in its place.
    grad_x[b, n] = grad_out[b]*where(Ne(row_max_0[b], -oo), exp(-row_max_0[b] + x[b, n]), ...
    >>> tensors = {"x": np.float32([[0, 0]])}
    >>> own = backward.for_tensors(tensors)
    >>> made = own.forward(**tensors)._asdict()
    >>> own.from_saved(np.float32([1]), made, tensors, {})["x"]
    array([[0.5, 0.5]], dtype=float32)
    >>> list(backward.source("H100", sizes={"b": 64, "n": 4096}, dtypes="float32"))
    ['grad_x']
    """

    forward: Any
    saved: tuple[str, ...]
    stages: tuple[AnyStage, ...]
    gradients: Mapping[str, str]
    cotangents: Mapping[str, str]
    made: Mapping[str, str] = field(default_factory=dict)
    proofs: Mapping[Expr, str] = field(default_factory=dict)
    once: bool = False
    again: Callable[[Mapping[str, str]], Backward] | None = None
    names: Names = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the forward's outputs."""
        return tuple(self.cotangents)

    def __call__(self, cotangents: Any, /, *, sizes: Sizes | None = None, **tensors: Any) -> dict[str, Any]:
        """The gradients by tensor name.

        Args:
            cotangents: of the outputs: one tensor, or a dict by output name; those left out are 0.
            sizes: extents of axes that no tensor carries, by axis or by its name.
            tensors: the tensors and scalars of the forward, by name.

        >>> import numpy as np, redalg as ra
        >>> n = ra.axes("n")
        >>> square = ra.fuse(ra.sum(ra.tensor("x[n]") ** 2, n))
        >>> square.vjp()(np.array(1.0), x=np.array([1.0, 2.0, 6.0]))["x"]
        array([ 2.,  4., 12.])
        """
        own = self.for_tensors(tensors)
        sizes = named_sizes(own.forward.cascade, sizes, "vjp")
        made = own.forward(**tensors, sizes=sizes)
        names = (*own.outputs, *own.saved)
        known = dict(zip(names, (made,) if own.forward.single else made, strict=True))
        return own.from_saved(cotangents, known, tensors, sizes)

    def for_tensors(self, tensors: Mapping[str, Any]) -> Backward:
        """The backward for tensors of their dtypes: row values are float32 where a tensor has 16 bits or fewer."""
        return for_tensors(self, tensors)

    def from_saved(
        self, cotangents: Any, made: Mapping[str, Any], tensors: Mapping[str, Any], sizes: Mapping[str, int],
        wanted: Iterable[str] | None = None, *, lengths: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The gradients of the `wanted` tensors (None: of all), of what the forward has made: outputs, row values.

        `lengths` are those of the axes of tensors; None: as the tensors have them, which must agree.
        """
        given = cotangents if isinstance(cotangents, Mapping) else {self.outputs[0]: cotangents}
        self._check(given, made)
        zeros = {name: zeros_like(made[name]) for name in self.outputs if given.get(name) is None}
        known = {**tensors, **{name: made[name] for name in self.saved}}
        known |= {name: made[output] for output, name in self.made.items()}
        known |= {name: zeros.get(output, given.get(output)) for output, name in self.cotangents.items()}
        lengths = {**(sizes_of(self.forward.cascade, tensors) if lengths is None else lengths), **sizes}
        names = self.gradients.keys() if wanted is None else [one for one in wanted if one in self.gradients]
        for stage in needed_stages(self.stages, [self.gradients[name] for name in names]):
            known |= stage.tensors(known, lengths)
        return {name: known[self.gradients[name]] for name in names}

    def _check(self, given: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Refuse cotangents of no output, and those of another shape than their output's."""
        if wrong := sorted(given.keys() - set(self.outputs)):
            raise InputError(f"cotangents: {', '.join(wrong)} is no output. The outputs are {', '.join(self.outputs)}.")
        for name, cotangent in given.items():
            shape, wanted = tuple(getattr(cotangent, "shape", ())), tuple(made[name].shape)
            if cotangent is not None and library_name(cotangent) != library_name(made[name]):
                raise InputError(f"cotangents: that of `{name}` is a {type(cotangent).__name__}, and the output is a "
                                 f"{type(made[name]).__name__} of shape {wanted}. Pass such a one.")  # fmt: skip
            if cotangent is not None and shape != wanted:
                raise InputError(f"cotangents: that of `{name}` has shape {shape}, and the output has {wanted}. Pass "
                                 "an array of the output's shape.")  # fmt: skip

    def explain(
        self, section: str | Sequence[str] | None = None, *, brief: bool = False, width: int | None = None,
        format: str = "text",
    ) -> str:  # fmt: skip
        """The row values that are saved, names by `ra.let`, extrema without a gradient, and the stages.

        Args:
            section: a section or several, by name: `saved`, `stages`; `names` and `pivots` if there are some. The name
                of a stage alone gives the derivation of its function. None for all.
            brief: the stages without their equations.
            width, format: as of `Fused.explain`.

        Raises:
            InputError: there is no such section, stage or format, or the width is below 40.

        >>> import redalg as ra
        >>> n, x = ra.axes("n"), ra.tensor("x[b,n]")
        >>> mu = ra.let("mu", ra.mean(x, n))
        >>> backward = ra.fuse(ra.mean((x - mu) ** 4, n), passes=2).vjp()
        >>> print(backward.explain("names", width=60))
        The backward: grad_x[b,n]
        ═════════════════════════
        1 stage, each fused by the same engine. Sections are saved,
        names, stages, grad_x.
        <BLANKLINE>
        1  Names that were given ───────────────────────────────────
        <BLANKLINE>
           In row values and tensors
             mu[b] = row_sum_0[b]/|n|
        """
        return explain_backward(self, Request(section, brief, width, format))

    def __str__(self) -> str:
        outputs = [f"{name} (the output {output})" for output, name in self.made.items()]
        lines = [f"saved by the forward: {', '.join([*self.saved, *outputs]) or 'nothing beside the inputs'}"]
        lines += [f"no gradient: {name}. {why}" for name, why in self.proofs.items()]
        lines += [f"{one.left} = {one.right}" for one in equations_of_names(self.stages, self.names)]
        return "\n".join([*lines, *lines_of_stages(self.stages, partial(stage_in_names, names=self.names))])

    def source(
        self, target: str = "sm_90a", sizes: Sizes | None = None, dtypes: Any = "float16", **options: Any
    ) -> dict[str, str]:  # fmt: skip
        """The TileLang programs by stage, as calls on tensors of these dtypes run them.

        Options as of `Fused.source`; sizes by the forward's axes. `dtypes` may name cotangents and row values too:
        without that a cotangent has its output's dtype.

        Raises:
            InputError: an axis has no size, a tensor of which no index tells a dimension has no shape, or an option is
                not known.

        >>> import redalg as ra
        >>> b, n, x = *ra.axes("b n"), ra.Tensor("x")
        >>> backward = ra.fuse(ra.sum(ra.tensor("g[n]") * x[b, n // 4], n), axes="b").vjp()
        >>> sorted(backward.source("H100", sizes={"b": 64, "n": 4096}, dtypes="float32", shapes={"x": (64, 1024)}))
        ['grad_g', 'grad_x']
        """
        given, cascade = named_dtypes(self.forward.cascade, dtypes), self.forward.cascade
        own = for_dtypes(self, given)
        names = (*own.cotangents.values(), *own.saved, *own.made.values())
        options = source_options(cascade, given, options, names, own.stages)
        read = {name: given[name] for name in own.forward.cascade.inputs()}
        known = output_dtypes(own.forward, dtypes_of_floats(read))
        known |= {name: known[output] for output, name in (*own.made.items(), *own.cotangents.items())}
        options["dtypes"] = {**known, **given}
        lengths = named_sizes(cascade, sizes, "source")
        shapes = shapes_of_tensors(own.forward.cascade, lengths, options.get("shapes", {}))
        options["shapes"] = shapes | {
            name: shapes[output] for output, name in (*own.made.items(), *own.cotangents.items())
        }
        return sources_of_stages(own.stages, target, sizes_of_dimensions(shapes) | lengths, options)
