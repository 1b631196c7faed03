"""Reverse mode on an expression: the adjoints of the elements that it reads.

    d = Σ_B f             f̄ = d̄                       f̄ holds for every element of B
    d = max_B u           ū = where(u = d, d̄ / Σ_B [u = d], 0)         ties share, as in torch.amax; min alike
    d = ⊕_B u, w          w̄ by the elements that ⊕ joins, such as those at max u (`attained`)          ū = 0
    d = logsumexp_B u     ū = d̄·exp(u − d)
    d = Π_B u             ū = where(u ≠ 0, d/u, Π_B where(u = 0, 1, u)·[one u is 0]·d̄)      once: `Backward.once`
    d = compensated_sum_B f   f̄ = d̄
    d_j = topk_B u        ū = Σ_j where(place of u = index_j, d̄_j, 0)     the elements that were selected
    d = first_B u         ū = where(place of u = that of the first, d̄, 0)    last alike
    h = affine_B a, b     b̄ = h̄·Π_{m > n} a_m, ā = b̄·(h before n)    (`recurrence`)
    d = ⊕_B u, registered   u's components by the rule that was registered; `lift` and `lower` by the chain rule
    argmax, any, all      0
    p of v, pointwise     v̄ += Σ_{axes of p that v lacks} p̄·∂p/∂v

An adjoint is an expression over the free axes of its node: the derivative by the node's value at an index. Exact by the
chain rule; what all consumers of a node give is added before it is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from sympy import Add, Eq, Expr, Mul, S, exp, oo
from sympy.core.basic import Basic

from redalg.decompose.parse.names import without_names
from redalg.decompose.parse.parse import without_nothing
from redalg.decompose.parse.same_axes import common_names, same_names
from redalg.errors import GradientError, InputError
from redalg.expression import Axis, Element, Label, Reduce, Where
from redalg.expression import prod as prod_over
from redalg.expression import sum as sum_over
from redalg.expression.contents import axes_by_name, elements_of, free_axes, reductions_of
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.attained import CHOSEN, adjoint_of_weight
from redalg.gradient.recurrence import operands_of_recurrence, with_sums_of_tangents
from redalg.gradient.rows import CONSTANT, component_results, place_of, tensor_names
from redalg.gradient.rules import partials, times
from redalg.monoids import monoid
from redalg.monoids.monoid import Parts
from redalg.monoids.table import KNOWN

LINEAR = ("sum", "compensated_sum")
PRODUCT = ("a product (`ra.prod`) has no second derivative in redalg: where two factors are 0 the stages say nothing "
           "of it. Take the gradient once.")  # fmt: skip


NO_RULE = (
    "redalg has no derivative of a reduction of this kind. Those of sum, mean, prod, max, min, logsumexp, topk, first, "
    "last, affine, of what stands at a maximum or beside it, and of all that is made of them are known: detach the "
    "tensors that it reads, or write it by those."
)

NOT_REGISTERED = (
    'the monoid `{0}` was registered without a rule of its derivative. Pass `vjp=` to `ra.register_monoid("{0}", …)`: '
    "a function (total, element, g) of the total's components, an element's, and the adjoints of the total's, that "
    "gives the adjoints of the element's. Or detach the tensors that it reads."
)


def adjoints(seeds: Mapping[Expr, Expr]) -> dict[Element, Expr]:
    """The adjoint of every element that expressions read, from theirs.

    Raises:
        GradientError: something in them has no derivative that redalg knows.
    """
    found: dict[Basic, list[Expr]] = {node: [g] for node, g in seeds.items()}
    result: dict[Element, Expr] = {}
    for node in in_reverse(seeds):
        g = Add(*found.pop(node, []))
        if g is S.Zero:
            continue
        if isinstance(node, Element):
            result[node] = g
            continue
        for argument, part in arguments_of(node, g):
            if elements_of(argument):
                found.setdefault(argument, []).append(
                    sum_of(part, axes_by_name(axes_around(node) - free_axes(argument)))
                )
    return result


def holds_product(exprs: Iterable[Expr]) -> bool:
    """Tell if expressions hold a product over an axis, whose derivative has none of its own."""
    return any(one.kind == "prod" for expr in exprs for one in reductions_of(expr))


def differentiable_definition(fused: Any, wrt: Iterable[str] | None, method: str) -> dict[str, Expr]:
    """The outputs of a function as they were written, without names, and with one name for a dimension's bound axes.

    Raises:
        GradientError: the function is the derivative of a product.
        InputError: `wrt` names no tensor of it.
    """
    if fused.once:
        raise GradientError(PRODUCT)
    plain = {name: without_nothing(name, with_sums_of_tangents(without_names(expr))) for name, expr in fused.written}
    given = {name: same_names(expr) for name, expr in plain.items()}
    in_common = common_names(given.values())
    written = {name: in_common(expr) for name, expr in given.items()}
    tensors = tensor_names(written.values())
    if wrong := [one for one in wrt or () if one not in tensors]:
        raise InputError(f"{method}: wrt names {', '.join(wrong)}, which is no tensor of the expression. The tensors "
                         f"are {', '.join(sorted(tensors))}.")  # fmt: skip
    return written


def in_reverse(nodes: Mapping[Expr, Expr]) -> list[Expr]:
    """The nodes that hold elements, consumers before what they are made of."""
    order, seen = list[Expr](), set[Basic]()

    def visit(node: Basic) -> None:
        if node in seen or not elements_of(node):
            return
        seen.add(node)
        for argument in () if isinstance(node, Element) else node.args:
            visit(argument)
        if isinstance(node, Expr):
            order.append(node)

    for node in nodes:
        visit(node)
    return order[::-1]


def axes_around(node: Expr) -> frozenset[Axis]:
    """The axes over which what a node hands on varies: those that it binds, or its own."""
    if not isinstance(node, Reduce):
        return free_axes(node)
    return frozenset(node.bound) if node.place is None else frozenset((*node.bound, node.place))


def arguments_of(node: Expr, g: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield the arguments of a node, with the node's adjoint times its derivative, at every place of both."""
    if not isinstance(node, Reduce):
        yield from partials(node, g)
    elif node.kind in LINEAR:
        yield node.expr, g
    elif node.kind == "logsumexp":
        yield node.expr, Where(node > -oo, times(g, exp(node.expr - node)), S.Zero)
    elif node.kind in ("max", "min"):
        ties = sum_over(Where(Eq(node.expr, node), S.One, S.Zero), *node.bound)
        yield node.expr, Where(Eq(node.expr, node), times(g, 1 / ties), S.Zero)
    elif node.kind in CHOSEN:
        yield node.operands[1], adjoint_of_weight(node, g)
    elif node.kind == "prod":
        zeros = sum_over(Where(Eq(node.expr, 0), S.One, S.Zero), *node.bound)
        others = prod_over(Where(Eq(node.expr, 0), S.One, node.expr), *node.bound)
        alone = Where(Eq(zeros, 1), times(g, others), S.Zero)
        yield node.expr, Where(Eq(node.expr, 0), alone, times(g, node / node.expr))
    elif monoid(node.kind).vjp is not None:
        yield from _by_rule(node, g)
    elif node.kind == "affine":
        yield from operands_of_recurrence(node, g)
    elif node.result != "indices" and (place := place_of(node)) is not None:
        yield node.operands[0], Where(Eq(node.bound[0], place), g, S.Zero)
    elif node.kind not in CONSTANT and node.kind != "topk":
        own = any(one.name == node.kind for one in KNOWN)
        raise GradientError(f"`{node}` has no gradient: {NO_RULE if own else NOT_REGISTERED.format(node.kind)}")


def _by_rule(node: Reduce, g: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield the operands of a registered monoid's reduction, by the rule of its derivative.

    The adjoint goes through `lower` to the components of the total, by the rule to those of an element, and through
    `lift` to the operands. Elements of tensors that no user can name stand for components and operands.
    """
    kind, [axis] = monoid(node.kind), node.bound
    total = component_results(node)
    parts = [Element(Label(f"{kind.name}.{one.name}")) for one in kind.components]
    by_part = adjoints({kind.lower(*parts)[kind.result(node.result)[0]]: g})
    known = dict(zip(parts, total, strict=True))
    counts = [one.integer for one in kind.components]
    whole = [replace_nodes(S.Zero if count else by_part.get(part, S.Zero), known)
             for count, part in zip(counts, parts, strict=True)]  # fmt: skip
    operands = [Element(Label(f"{kind.name}.{place}"), axis) for place in range(len(node.operands))]
    rule = cast("Callable[[Parts, Parts, Parts], Parts]", kind.vjp)
    own = rule(total, tuple(kind.lift(*node.operands, axis)), tuple(whole))
    seeds = dict[Expr, Expr]()
    for count, lifted, part in zip(counts, kind.lift(*operands, axis), own, strict=True):
        seeds[lifted] = Add(seeds.get(lifted, S.Zero), S.Zero if count else part)
    given = dict(zip(operands, node.operands, strict=True))
    yield from ((given[operand], replace_nodes(part, given)) for operand, part in adjoints(seeds).items())


def sum_of(part: Expr, axes: tuple[Axis, ...]) -> Expr:
    """Σ over axes; factors without them stand outside, and an axis that nothing has counts its elements."""
    if not axes or part is S.Zero:
        return part
    if part.is_Add:
        return Add(*(sum_of(one, axes) for one in part.args))
    factors = part.args if part.is_Mul else (part,)
    inside = Mul(*(one for one in factors if free_axes(one) & set(axes)))
    outside = Mul(*(one for one in factors if not free_axes(one) & set(axes)))
    bound = tuple(axis for axis in axes if axis in free_axes(inside))
    lengths = Mul(*(axis.extent for axis in axes if axis not in bound))
    return outside * lengths * (sum_over(inside, *bound) if bound else inside)
