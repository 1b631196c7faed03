"""Derivatives of one node by its arguments, with PyTorch's conventions at kinks.

where(c, a, b)   g → where(c, g, 0) for a, where(c, 0, g) for b            no gradient for c
|u|              g·sign(u), 0 at 0
Max(a, b)        g to the larger, in equal parts where several are         Min alike
cast(u, float)   g: straight through; 0 for an integer dtype
straight_through(v, u)   g for u
⌊u⌋, sign(u)     0
f(u, …)          g·∂f/∂u, as SymPy knows it
"""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Abs, Add, Dummy, Eq, Expr, Max, Min, Mod, Mul, S, ceiling, floor, sign
from sympy.core.function import ArgumentIndexError, Derivative
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFunction

from redalg.errors import GradientError
from redalg.expression import Cast, Let, Reduce, StraightThrough, Where
from redalg.expression.contents import elements_of, free_axes

STEPS = (floor, ceiling, sign, Relational, BooleanFunction)
"""Nodes that are constant nearly everywhere."""


def partials(node: Expr, g: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield an argument of a node and g·∂node/∂argument, for every argument that has a derivative.

    Raises:
        GradientError: the node has no derivative that redalg knows.
    """
    if isinstance(node, Where):
        condition, a, b = node.args
        yield a, Where(condition, g, S.Zero)
        yield b, Where(condition, S.Zero, g)
    elif isinstance(node, Let):
        yield node.expr, g
    elif isinstance(node, StraightThrough):
        yield node.source, g
    elif isinstance(node, Cast):
        if "float" in node.dtype:
            yield node.args[0], g
    elif isinstance(node, Add):
        yield from ((one, g) for one in node.args)
    elif isinstance(node, Mul):
        for place, factor in enumerate(node.args):
            yield factor, times(g, Mul(*node.args[:place], *node.args[place + 1 :]))
    elif isinstance(node, Max | Min):
        ties = Add(*(Where(Eq(one, node), S.One, S.Zero) for one in node.args))
        for argument in node.args:
            yield argument, Where(Eq(argument, node), times(g, 1 / ties), S.Zero)
    elif isinstance(node, Abs):
        yield node.args[0], times(g, sign(node.args[0]))
    elif not isinstance(node, STEPS):
        yield from _by_sympy(node, g)


def _by_sympy(node: Expr, g: Expr) -> Iterator[tuple[Expr, Expr]]:
    """As SymPy differentiates a function."""
    if isinstance(node, Mod):
        raise GradientError(f"`{node}` has no derivative that redalg knows: a remainder jumps. Write it without `Mod`.")
    places = [Dummy(f"a{place}", real=True) for place in range(len(node.args))]
    function = node.func(*places)
    for argument, place in zip(node.args, places, strict=True):
        if not argument.free_symbols:
            continue
        try:
            slope = function.diff(place)
        except ArgumentIndexError as error:
            raise _unknown(node) from error
        if slope.has(Derivative):
            raise _unknown(node)
        yield argument, times(g, slope.xreplace(dict(zip(places, node.args, strict=True))))


def times(g: Expr, factor: Expr) -> Expr:
    """g·factor, where(c, g, 0)·factor as where(c, g·factor, 0): what a mask hides stays hidden, and is never read.

    So does what a mask hides within a sum: Σ where(c, u, 0)·factor is Σ where(c, u·factor, 0).
    """
    if isinstance(g, Where) and S.Zero in g.args[1:]:
        condition, a, b = g.args
        return Where(condition, *(S.Zero if one is S.Zero else times(one, factor) for one in (a, b)))
    if g.is_Add:
        return Add(*(times(one, factor) for one in g.args))
    masked = next((one for one in Mul.make_args(g) if is_masked_sum(one)), None)
    if masked is None or not elements_of(factor) or free_axes(factor) & {*masked.bound}:
        return g * factor
    return g / masked * masked.rebuilt(times(masked.expr, factor), masked.bound)


def is_masked_sum(node: Expr) -> bool:
    """Tell if a node is Σ where(c, u, 0), or Σ Σ where(c, u, 0)."""
    if not isinstance(node, Reduce) or node.kind != "sum":
        return False
    return is_masked_sum(node.expr) or (isinstance(node.expr, Where) and S.Zero in node.expr.args)


def _unknown(node: Expr) -> GradientError:
    return GradientError(f"`{node}` has no derivative that redalg knows ({type(node).__name__}). Detach the tensors "
                         "that it reads, or write it by functions with a derivative.")  # fmt: skip
