"""Exponentials of a scaled row less its maximum, as they were written.

Where exponentials read y − max y of a row, with y = x·s or x/s, Inductor's passes make of it

    where(the row of y is finite, (x·t − max(x·t))·(t·s), y − max y)          t = 1 or −1: the sign of s

so that it scales once. Both branches are one number but for rounding. The second follows from y alone: read so,
a row is one pass. The graph itself is not changed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

aten, prims = torch.ops.aten, torch.ops.prims
SCALINGS = (aten.mul.Tensor, aten.div.Tensor)


def node_in_plain_form(node: Node) -> Node:
    """The node with the numbers of Inductor's choice between two forms of y − max y; any other node itself."""
    if node.target is not aten.where.self or len(node.args) != 3:
        return node
    condition, scaled_once, written = node.args
    if not isinstance(written, Node) or not isinstance(scaled_once, Node) or scaled_once.target not in SCALINGS:
        return node
    below = argument_of(scaled_once, 0)
    y, x = minuend_of(written), None if below is None else minuend_of(below)
    if y is None or x is None or not is_finite_row(condition, y) or not are_scaled_alike(y, x, scaled_once):
        return node
    return written


def minuend_of(node: Node) -> Node | None:
    """y of y − max y along a row; None of any other node."""
    y, most = argument_of(node, 0), argument_of(node, 1)
    if node.target is not aten.sub.Tensor or y is None or most is None or most.target is not aten.amax.default:
        return None
    return y if most.args[0] is y else None


def is_finite_row(condition: Any, y: Node) -> bool:
    """Tell if a condition says that the row of y is finite, as Inductor writes it."""
    row = condition
    for target in (aten.logical_not.default, aten.any.dims, aten.logical_not.default):
        if not isinstance(row, Node) or row.target is not target:
            return False
        row = row.args[0]
    if not isinstance(row, Node) or row.target is not aten.mul.Tensor:
        return False
    same, large = argument_of(row, 0), argument_of(row, 1)
    if same is None or large is None or (same.target, large.target) != (aten.eq.Tensor, aten.ne.Scalar):
        return False
    size = argument_of(large, 0)
    return same.args == (y, y) and size is not None and size.target is aten.abs.default and size.args == (y,)


def are_scaled_alike(y: Node, signed: Node, scaled_once: Node) -> bool:
    """Tell if y is x·s or x/s, `signed` is x·t, and `scaled_once` scales by t·s as y is scaled by s."""
    scaled = without_cast(y)
    if signed.target is not aten.mul.Tensor or scaled.target is not scaled_once.target:
        return False
    x, sign = argument_of(signed, 0), signed.args[1]
    factors = [*scaled.args]
    if x is None or without_cast(x) not in factors:
        return False
    factors.remove(without_cast(x))
    [scale], whole = factors, scaled_once.args[1]
    if isinstance(whole, Node):
        return whole.target is aten.mul.Tensor and whole.args == (sign, scale)
    if not isinstance(scale, int | float) or not isinstance(sign, int):
        return False
    return abs(sign) == 1 and bool(whole == sign * scale)


def argument_of(node: Node, place: int) -> Node | None:
    """An argument of a node if it is a node."""
    given = node.args[place] if place < len(node.args) else None
    return given if isinstance(given, Node) else None


def without_cast(node: Node) -> Node:
    """The node that a cast of Inductor's reads; any other node itself."""
    source = argument_of(node, 0)
    return source if source is not None and node.target is prims.convert_element_type.default else node
