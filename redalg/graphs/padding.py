"""Products without the zeros with which their factors are padded.

    p[i, r] = where(r < 49, x[i, r], 0), r < 56;  c[i, j] = Σ_r p[i, r]·q[r, j];  y[i, j] = c[i, j], i < 49
    →   y[i, j] = Σ_r x[i, r]·z[r, j], r < 49             q as p

A compiler pads factors so that a library multiplies faster, and cuts the product down to what was asked for. A kernel
pads its tiles itself. Exact: a place that no factor has gives 0·0, and so does not count. What reads the whole of a
padded product, or factors of which one is not padded along what is summed, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sympy import Expr, Integer, Max, Mul, S, cancel

from redalg.expression import Axis, Element, Reduce, Where
from redalg.expression.contents import elements_of, of_kind
from redalg.expression.rebuild import replace_nodes
from redalg.graphs.compose import Composer
from redalg.graphs.indices import plain_node
from redalg.graphs.lay import under
from redalg.graphs.program import Statement, TensorExpression, TensorProgram, TensorType

Known = Mapping[str, TensorExpression]


def remove_padding(program: TensorProgram) -> TensorProgram:
    """The same program, in which whatever reads a part of a padded product multiplies what was padded."""
    known, statements, types = dict[str, TensorExpression](), list[Statement](), program.types
    for statement in program.statements:
        if isinstance(statement, TensorExpression):
            known[statement.name] = without_zeros(statement, known, types)
            statements.append(known[statement.name])
        else:
            statements.append(statement)
    return TensorProgram(program.inputs, tuple(statements), program.outputs).live()


def without_zeros(expression: TensorExpression, known: Known, types: Mapping[str, TensorType]) -> TensorExpression:
    """A padded product, or a view of a part of one, as the product of what was padded; any other as it is."""
    chain = [expression, *views_behind(expression, known)]
    product = chain[-1]
    reductions, factors = of_kind(Reduce, product.term), [*padded_behind(product, known)]
    if not factors or not reductions or not (len(chain) == 1 or has_fewer_elements(expression.type, product.type)):
        return expression
    composer = Composer({one.name: one for one in (*chain, *factors)}, types)
    axes = composer.axes_of(expression.type.shape)
    term = composer.value(expression.name, axes)
    sums = of_kind(Reduce, term)
    sizes = composer.sizes | {axis: length_of_sum(one, axis, composer.sizes) for one in sums for axis in one.bound}
    term = replace_nodes(term, {one: one.rebuilt(plain_node(one.expr, sizes), one.bound) for one in sums})
    if of_kind(Where, term):
        return expression
    lengths = tuple((axis, sizes[axis]) for one in sums for axis in one.bound)
    return TensorExpression(expression.name, expression.type, axes, term, lengths, product.origin)


def views_behind(expression: TensorExpression, known: Known) -> Iterator[TensorExpression]:
    """Yield the statements through which an element of another is an element of one tensor, and that tensor's."""
    while isinstance(expression.term, Element) and expression.term.name in known:
        expression = known[expression.term.name]
        yield expression


def padded_behind(product: TensorExpression, known: Known) -> Iterator[TensorExpression]:
    """Yield the padded tensors that a statement reads, and the views through which it does."""
    for name in product.reads:
        chain = [known[name], *views_behind(known[name], known)] if name in known else []
        if chain and is_padded(chain[-1]):
            yield from chain


def is_padded(expression: TensorExpression) -> bool:
    """Tell if a tensor is another with zeros around it."""
    term = expression.term
    return (
        isinstance(term, Where)
        and isinstance(term.args[1], Element)
        and term.args[2] == 0
        and not elements_of(term.condition)
    )


def has_fewer_elements(part: TensorType, whole: TensorType) -> bool:
    """Tell if a tensor has fewer elements than another, whatever the sizes."""
    sizes, of_whole = Mul(*part.shape), Mul(*whole.shape)
    ratio = cancel(sizes / of_whole) if of_whole != 0 else S.One
    return bool(ratio.is_number and ratio < 1)


def length_of_sum(reduction: Reduce, axis: Axis, sizes: Mapping[Axis, Expr]) -> Expr:
    """The length of a reduced axis beyond which every factor is 0; its own if one is not, or it is no sum."""
    factors = [one for one in Mul.make_args(reduction.expr) if elements_of(one)]
    whole = reduction.kind != "sum" or not all(isinstance(one, Where) and one.args[2] == 0 for one in factors)
    if whole or not isinstance(sizes[axis], Integer):
        return sizes[axis]
    ranges = {each: (S.Zero, size) for each, size in sizes.items()}
    found = (under(factor.args[0], ranges)[axis] for factor in factors)
    return Max(*(low + size for low, size in found))
