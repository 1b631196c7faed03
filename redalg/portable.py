"""A fused function beyond its calls: its definition as text, and the derived backward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.expression.portable import FunctionDefinition
from redalg.incremental.passes import Passes

if TYPE_CHECKING:
    from redalg.gradient import Backward


class Portable(ABC):
    """A function that is told by its definition."""

    cascade: Cascade
    inputs: tuple[str, ...]
    single: bool
    exact: bool
    written: tuple[tuple[str, Expr], ...]

    @property
    @abstractmethod
    def passes(self) -> Passes:
        """The forms of all passes over the data."""

    def to_json(self) -> str:
        """The definition as text: a syntax tree in JSON, with a version; `from_json` derives the function of it again.

        The text is the same in every process. Monoids of `register_monoid` stand in it by name.

        Raises:
            ExpressionError: a name is no identifier, or a node is none of redalg's grammar (`expression/syntax.py`).

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> ra.from_json(total.to_json()).cascade == total.cascade
        True
        """
        known: dict[str, str] = vars(self)
        if "_json" not in known:
            axes = {output.name: tuple(str(axis.name) for axis in output.axes) for output in self.cascade.outputs}
            outputs = tuple((name, expr, axes[name]) for name, expr in self.written)
            known["_json"] = FunctionDefinition(
                outputs, self.inputs, self.single, self.exact, len(self.passes.earlier) + 1
            ).text
        return known["_json"]

    def vjp(self, wrt: Sequence[str] | None = None) -> Backward:
        """The derived backward: the gradients of tensors from cotangents of the outputs, as fused stages.

        Args:
            wrt: the names of the tensors; None for all that have a gradient.

        Raises:
            GradientError: something has no derivative that redalg knows.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> print(ra.fuse(ra.sum(ra.tensor("x[b,n]") ** 2, n), axes="b").vjp())
        saved by the forward: nothing beside the inputs
        grad_x[b, n] = 2*grad_out[b]*x[b, n]    (element by element)
        """
        from redalg.gradient import derive_backward

        return derive_backward(self, wrt)
