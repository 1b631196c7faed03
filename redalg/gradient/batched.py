"""A function of one more dimension: what `torch.vmap` makes of a call.

x[b, n], w[n] → out[b], of a batch of x   →   x[v, b, n], w[n] → out[v, b]     one call, fused as any other
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sympy import Expr

from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, nodes_of
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.stage import axes_text
from redalg.gradient.stages import PASSES
from redalg.lower_tile.ir.names import Names


def of_batch(fused: Any, names: Iterable[str]) -> Any:
    """The function whose tensors of some names, and whose outputs, have the batch for their first dimension."""
    batched = frozenset(names)
    known: dict[frozenset[str], Any] = vars(fused).setdefault("_of_batch", {})
    if batched not in known:
        known[batched] = _of_batch(fused, batched)
    return known[batched]


def lacks_batch(fused: Any, names: Iterable[str]) -> bool:
    """Tell if some output reads none of the tensors of a batch."""
    batched = frozenset(names)
    return any(not batched & {element.name for element in elements_of(expr)} for _, expr in fused.written)


def _of_batch(fused: Any, names: frozenset[str]) -> Any:
    taken = {node.name for _, expr in fused.written for node in nodes_of(expr) if isinstance(node, Axis)}
    batch = Axis(Names(tuple(taken)).fresh("batch"))

    def with_batch(expr: Expr) -> Expr:
        elements = (element for element in elements_of(expr) if element.name in names)
        others = {element: Element(element.args[0], batch, *element.indices) for element in elements}
        made: Expr = replace_nodes(expr, others)
        return made

    axes = {output.name: axes_text((batch, *output.axes)) for output in fused.cascade.outputs}
    written = {name: (with_batch(expr), axes[name]) for name, expr in fused.written}
    passes = PASSES[-1] if fused.earlier else None
    if fused.single:
        [(expr, own)] = written.values()
        return fused.of_outputs(expr, own, passes, exact=fused.exact, once=fused.once)
    return fused.of_outputs(written, None, passes, exact=fused.exact, once=fused.once)
