"""Rules of operators that select elements, or sum, count and write at places that elements decide.

    topk, sort    the selection that the engine knows: values, and their places if nothing depends on which of equal
                  elements they are of
    cumsum        Σ_j where(j ≤ i, x[j], 0)
    histc         Σ_j where(x[j] = first + i, 1, 0)             of whole numbers, a bin for each
    scatter       where(any_j index[j] = i, Σ_j where(index[j] = i, source[j], 0), x[i])

The last three go over a whole row for every element that they make: they are written if that takes few steps. If an
index may have a place twice, a scatter is written if it writes one number to all, or adds.
"""

from __future__ import annotations

from sympy import Eq, Expr, Integer, Mul, S
from sympy.core.basic import Basic

from redalg.expression import Axis, Where
from redalg.expression.contents import free_axes
from redalg.expression.reduce import any as any_of
from redalg.expression.reduce import sum as sum_of
from redalg.expression.structured import topk
from redalg.graphs.views import broadcast
from redalg.torch.elementwise import round_quotient
from redalg.torch.moves import integer_index
from redalg.torch.site import Site, Unwritten, rules_by_name, to_truth

MOST_STEPS = 1 << 18
"""The steps that an operator takes as a reduction, at most: beyond, a library is faster, which takes fewer."""
MOST_SELECTED = 256
"""The elements of a row that the engine selects, at most."""
MOST_BINS = 1024
"""Bins, at most, for which PyTorch's rounding moves no whole number across an edge."""
EXACT_INTEGERS = ("uint8", "int8", "int16", "int32")
"""Integers that are themselves in every arithmetic that compares them."""


def check_step_count(*sizes: Expr) -> None:
    """`Unwritten` if the product of sizes is not known, or more steps than an operator may take."""
    steps = Mul(*sizes)
    if not steps.is_Integer:
        raise Unwritten("its sizes vary, and with them the steps that it takes as a reduction")
    if steps > MOST_STEPS:
        raise Unwritten(f"as a reduction it takes {steps} steps, and a library's algorithm far fewer")


# ---- selections ------------------------------------------------------------------------------------------------------


def select_largest(at: Site, count: Expr, *, largest: bool) -> tuple[Basic, ...]:
    """The largest or least elements along a dimension, best first, and their places."""
    operand = at["self"]
    if not operand.rank:
        raise Unwritten("it selects from one number")
    if not at.readers.get(1, frozenset()) <= {"output"}:
        raise Unwritten("its places are used, and which of equal elements they are of is PyTorch's choice")
    dim, is_float = at.dimension(operand, default=-1), operand.type.dtype.startswith(("float", "bfloat"))
    if not count.is_Integer or not 1 <= count <= MOST_SELECTED:
        raise Unwritten(f"it selects {count} elements of a row, and the engine from 1 to {MOST_SELECTED}")
    if not is_float and operand.type.dtype not in EXACT_INTEGERS:
        raise Unwritten("it compares truths, or integers of 64 bits")
    if is_float and not largest:
        raise Unwritten("from the least element on, NaN comes last, and in the engine's selections first")
    place_axis = at.numbering_axis(dim)
    place = [*at.axes()]
    place[dim] = axis = at.bound(operand.type.shape[dim])
    term = at.value(operand, place)
    values, indices = topk(term if largest else -term, axis, place_axis)
    return values if largest else -values, indices


def topk_rule(at: Site) -> tuple[Basic, ...]:
    """The k largest or least elements along a dimension."""
    if at["sorted"] is False and at["k"] != 1:
        raise Unwritten("it selects elements in an order that is PyTorch's choice")
    return select_largest(at, S(at["k"]), largest=at["largest"] is not False)


def sort_rule(at: Site) -> tuple[Basic, ...]:
    """All elements along a dimension in order."""
    operand = at["self"]
    size = operand.type.shape[at.dimension(operand, default=-1)] if operand.rank else S.One
    return select_largest(at, size, largest=at["descending"] is True)


# ---- sums and counts -------------------------------------------------------------------------------------------------


def running_sum_rule(at: Site) -> Basic:
    """The sum of all elements up to a place; those of another dtype are cast to it before."""
    operand = at["self"]
    if not operand.rank:
        return at.value(operand)
    dim, axes = at.dimension(operand), at.axes()
    size = operand.type.shape[dim]
    check_step_count(*operand.type.shape, size)
    axis = at.bound(size)
    x = at.value(operand, [*axes[:dim], axis, *axes[dim + 1 :]])
    cut = operand.type.dtype.startswith(("float", "bfloat")) and "int" in at.results[0].dtype
    return sum_of(Where(axis <= axes[dim], round_quotient(x, "trunc") if cut else x, S.Zero), axis)


def histogram_rule(at: Site) -> Basic:
    """The numbers of elements that are a + i, of whole numbers; those beyond both ends do not count."""
    operand, bins = at["self"], int(at["bins"])
    first, last = at.value(at["min"]), at.value(at["max"])
    if not operand.is_whole or not 2 <= bins <= MOST_BINS or not first.is_Integer or last - first != bins - 1:
        raise Unwritten("it counts numbers in bins, of which rounding decides at their edges")
    check_step_count(*operand.type.shape, Integer(bins))
    over = [at.bound(size) for size in operand.type.shape]
    count = Where(Eq(at.value(operand, over), first + at.axes()[0]), S.One, S.Zero)
    return sum_of(count, *over) if over else count


# ---- scatters --------------------------------------------------------------------------------------------------------


def write_at(at: Site, is_here: Basic, source: Expr, over: Axis, *, added: bool, alone: bool, size: Expr) -> Basic:
    """An element of the first operand, or what is written to its place, or the sum of both.

    Args:
        at: the call.
        is_here: the condition that a place on `over` is written to the element.
        source: what is written from that place.
        added: true if it is added.
        alone: true if at most one place is written to an element.
        size: the number of elements along the dimension: if so many places are written, each alone, nothing stays.
    """
    old, total = at.value(at["self"], at.axes()), sum_of(Where(is_here, source, S.Zero), over)
    if added:
        return old + total
    if alone and at.lengths[over] == size:
        return total
    is_written = to_truth(any_of(is_here, over))
    if over not in free_axes(source):
        return Where(is_written, source, old)
    if not alone:
        raise Unwritten("a place may be written twice, and which of both stays is PyTorch's choice")
    return Where(is_written, total, old)


def indexed_scatter_rule(at: Site) -> Basic:
    """A tensor, along a dimension of which a source is written, or added, to the places that an index holds."""
    operand, index, source = at["self"], at["index"], at["value"] if at["src"] is None else at["src"]
    if at["reduce"] is not None:
        raise Unwritten("it joins what it writes with what was there")
    if not operand.rank or not index.rank:
        raise Unwritten("it writes to one number")
    dim, place = at.dimension(operand), [*at.axes()]
    shape, others = operand.type.shape, index.type.shape
    if any(size != other for one, (size, other) in enumerate(zip(shape, others, strict=True)) if one != dim):
        raise Unwritten("its index is shorter than what it writes to")
    check_step_count(*shape, others[dim])
    here, over = place[dim], at.bound(others[dim])
    place[dim] = over
    return write_at(at, Eq(integer_index(at, index, place), here), at.value(source, place), over,
                    added=at.operator == "scatter_add", alone=index.distinct == dim, size=shape[dim])  # fmt: skip


def index_put_rule(at: Site) -> Basic:
    """A tensor with elements at indices written, or added: a mask, or one row of places along a dimension."""
    operand, values, given = at["self"], at["values"], list(at["indices"])
    tensors = [one for one, each in enumerate(given) if each is not None]
    dim, index, added = tensors[0], given[tensors[0]], bool(at["accumulate"])
    if index.type.dtype == "bool" and len(tensors) == 1 and index.rank == operand.rank and not values.rank:
        old, new = at.value(operand, at.axes()), at.value(values, ())
        return Where(at.truth(index, at.axes()), old + new if added else new, old)
    if len(tensors) > 1 or index.rank != 1 or not operand.rank:
        raise Unwritten("it writes to places that several numbers say")
    size, count = operand.type.shape[dim], index.type.shape[0]
    check_step_count(*operand.type.shape, count)
    place = [*at.axes()]
    here, over = place[dim], at.bound(count)
    place[dim] = over
    number = integer_index(at, index, [over])
    source = at.value(values, broadcast(values.type.shape, place))
    is_here = Eq(Where(number < 0, number + size, number), here)
    return write_at(at, is_here, source, over, added=added, alone=index.distinct == 0, size=size)


PLACES = rules_by_name({
    "topk": topk_rule, "sort": sort_rule, "cumsum": running_sum_rule, "histc": histogram_rule,
    "scatter scatter_add": indexed_scatter_rule, "index_put": index_put_rule,
})  # fmt: skip
"""Operator -> its rule."""
