"""Rules of operators that move elements: views, slices, joins, gathers; and of tensors that are made of nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sympy import And, Eq, Expr, Integer, Mod, S
from sympy.core.basic import Basic

from redalg.expression import Where
from redalg.graphs.views import broadcast, from_end, reshape_place
from redalg.torch.site import Operand, Site, Unwritten, rules_by_name

# ---- views -----------------------------------------------------------------------------------------------------------


def view_rule(at: Site) -> Basic:
    """The elements in row-major order, in another shape."""
    return at.read(at["self"], reshape_place(at["self"].type.shape, at.results[0].shape, at.axes()))


def permute_rule(at: Site) -> Basic:
    """The dimensions in another order."""
    operand, axes = at["self"], at.axes()
    order = list(range(operand.rank))
    if at.operator == "permute":
        order = [int(one) % operand.rank for one in at["dims"]]
    elif operand.rank > 1:
        a, b = (at.dimension(operand, "dim0"), at.dimension(operand, "dim1")) if at.operator != "t" else (0, 1)
        order[a], order[b] = order[b], order[a]
    return at.read(operand, [axes[order.index(dim)] for dim in range(operand.rank)])


def expand_rule(at: Site) -> Basic:
    """Dimensions of one element, repeated."""
    return at.read(at["self"], broadcast(at["self"].type.shape, at.axes()))


def repeat_rule(at: Site) -> Basic:
    """The tensor, several times along each dimension."""
    operand, axes = at["self"], at.axes()
    last = axes[len(axes) - operand.rank :]
    return at.read(operand, [Mod(axis, size) for axis, size in zip(last, operand.type.shape, strict=True)])


def unsqueeze_rule(at: Site) -> Basic:
    """A dimension of one element more."""
    axes, dim = at.axes(), int(at["dim"]) % (at["self"].rank + 1)
    return at.read(at["self"], [axis for one, axis in enumerate(axes) if one != dim])


def squeeze_rule(at: Site) -> Basic:
    """Dimensions of one element fewer."""
    operand, kept = at["self"], iter(at.axes())
    dims = at.dimensions(operand) if at["dim"] is not None else range(operand.rank)
    shape = operand.type.shape
    return at.read(operand, [S.Zero if one in dims and size == 1 else next(kept) for one, size in enumerate(shape)])


def select_rule(at: Site) -> Basic:
    """One place of a dimension, which goes."""
    operand, place = at["self"], list[Expr](at.axes())
    dim = at.dimension(operand)
    place.insert(dim, from_end(at["index"], operand.type.shape[dim]))
    return at.read(operand, place)


def slice_rule(at: Site) -> Basic:
    """Every s-th place of a dimension, from one on."""
    operand, place = at["self"], list[Expr](at.axes())
    dim = at.dimension(operand)
    step = Integer(1 if at["step"] is None else at["step"])
    place[dim] = at.start("start", operand.type.shape[dim], 0) + step * place[dim]
    return at.read(operand, place)


def split_rule(at: Site) -> tuple[Basic, ...]:
    """Pieces of a dimension, one after another."""
    operand, dim, first, pieces = at["self"], at.dimension(at["self"]), S.Zero, list[Basic]()
    for number, result in enumerate(at.results):
        place = list[Expr](at.axes(number))
        place[dim] = first + place[dim]
        pieces.append(at.read(operand, place))
        first += result.shape[dim]
    return tuple(pieces)


def unbind_rule(at: Site) -> tuple[Basic, ...]:
    """Each place of a dimension."""
    operand, dim = at["self"], at.dimension(at["self"])
    axes = at.axes()
    return tuple(at.read(operand, [*axes[:dim], Integer(one), *axes[dim:]]) for one in range(len(at.results)))


def flip_rule(at: Site) -> Basic:
    """Dimensions from their ends to their beginnings."""
    operand, dims = at["self"], at.dimensions(at["self"], "dims")
    shape = operand.type.shape
    return at.read(operand, [shape[one] - 1 - axis if one in dims else axis for one, axis in enumerate(at.axes())])


def roll_rule(at: Site) -> Basic:
    """Dimensions turned round by so many places."""
    operand, place = at["self"], list[Expr](at.axes())
    if not at["dims"]:
        raise Unwritten("a roll of the elements in one row")
    for dim, shift in zip(at["dims"], at["shifts"], strict=True):
        along = int(dim) % operand.rank
        place[along] = Mod(place[along] - shift, operand.type.shape[along])
    return at.read(operand, place)


# ---- joins -----------------------------------------------------------------------------------------------------------


def cat_rule(at: Site) -> Basic:
    """Tensors one after another along a dimension."""
    pieces = [one for one in at["tensors"] if one.type.shape != (0,)]
    dim = at.dimension(pieces[0])
    return join_pieces(at, pieces, dim, at.axes())


def join_pieces(at: Site, pieces: Sequence[Operand], dim: int, axes: Sequence[Expr]) -> Basic:
    """The element of the first piece that reaches its place along a dimension."""
    first, *rest = pieces
    here, size = at.value(first, axes), first.type.shape[dim]
    if not rest:
        return here
    beyond = [*axes[:dim], axes[dim] - size, *axes[dim + 1 :]]
    return Where(axes[dim] < size, here, join_pieces(at, rest, dim, beyond))


def stack_rule(at: Site) -> Basic:
    """Tensors side by side along a new dimension."""
    operands, axes = at["tensors"], at.axes()
    dim = int(at["dim"] or 0) % len(axes)
    place = [*axes[:dim], *axes[dim + 1 :]]
    found = at.value(operands[-1], place)
    for number, operand in reversed([*enumerate(operands[:-1])]):
        found = Where(axes[dim] <= number, at.value(operand, place), found)
    return found


def pad_rule(at: Site) -> Basic:
    """A number around a tensor."""
    operand, place, inside = at["self"], list[Expr](at.axes()), list[Basic]()
    around = list(at["pad"])
    for number, before in enumerate(around[::2]):
        dim = operand.rank - 1 - number
        place[dim] = place[dim] - before
        inside += [place[dim] >= 0, place[dim] < operand.type.shape[dim]]
    return Where(And(*inside), at.value(operand, place), at.value(at["value"] or 0))


def scatter_rule(at: Site) -> Basic:
    """A tensor with another in the place of some of its elements along a dimension."""
    operand, source, axes = at["self"], at["src"], list[Expr](at.axes())
    dim = at.dimension(operand)
    size, step = operand.type.shape[dim], Integer(1 if at["step"] is None else at["step"])
    if at.operator == "select_scatter":
        here = Eq(axes[dim], from_end(at["index"], size))
        return Where(here, at.value(source, [*axes[:dim], *axes[dim + 1 :]]), at.value(operand))
    if step != 1:
        raise Unwritten("elements that are written over lie apart")
    first, stop = at.start("start", size, 0), at.start("end", size, size)
    place = [*axes[:dim], axes[dim] - first, *axes[dim + 1 :]]
    return Where(And(axes[dim] >= first, axes[dim] < stop), at.value(source, place), at.value(operand))


# ---- gathers ---------------------------------------------------------------------------------------------------------


def embedding_rule(at: Site) -> Basic:
    """The rows of a table that indices name."""
    *place, column = at.axes()
    return at.read(at["weight"], [integer_index(at, at["indices"], place), column])


def integer_index(at: Site, indices: Operand, place: Sequence[Expr]) -> Expr:
    """An index that a tensor of integers holds."""
    if "int" not in indices.type.dtype or indices.type.dtype == "uint8":  # by which PyTorch understands a mask
        raise Unwritten("an index is no integer: how many elements a mask takes is not known")
    return at.value(indices, place)


def index_rule(at: Site) -> Basic:
    """Elements at the places that tensors of integers hold; a negative index counts from the end."""
    operand, given = at["self"], list(at["indices"])
    given += [None] * (operand.rank - len(given))
    tensors = [one for one, each in enumerate(given) if each is not None]
    apart = tensors != list(range(tensors[0], tensors[-1] + 1))
    rank = max(given[one].rank for one in tensors)
    first, axes = 0 if apart else tensors[0], at.axes()
    at_tensors = axes[first : first + rank]
    rest = iter([*axes[:first], *axes[first + rank :]])
    place = list[Expr]()
    for size, each in zip(operand.type.shape, given, strict=True):
        if each is None:
            place.append(next(rest))
            continue
        index = integer_index(at, each, broadcast(each.type.shape, at_tensors))
        place.append(Where(index < 0, index + size, index))
    return at.read(operand, place)


def gather_rule(at: Site) -> Basic:
    """Along a dimension, the places that a tensor of integers holds."""
    operand, place = at["self"], list[Expr](at.axes())
    place[at.dimension(operand)] = integer_index(at, at["index"], at.axes())
    return at.read(operand, place)


def index_select_rule(at: Site) -> Basic:
    """Along a dimension, the places that one row of integers holds."""
    operand, place = at["self"], list[Expr](at.axes())
    dim = at.dimension(operand)
    place[dim] = integer_index(at, at["index"], [place[dim]] if at["index"].rank else [])
    return at.read(operand, place)


# ---- of nothing ------------------------------------------------------------------------------------------------------


def constant_rule(at: Site) -> Basic:
    """One number everywhere; 0 where numbers are not set, as any would do: but integers, which may be places."""
    for name in ("fill_value", "s", "value"):
        if at[name] is not None:
            return at.read(at[name])
    word = at.operator.removesuffix("_like").removeprefix("new_")
    if word == "empty" and not at.results[0].dtype.startswith(("float", "bfloat")):
        raise Unwritten("its elements are not set, and a trial may read at them")
    truth = S.true if word == "ones" else S.false
    return truth if at.results[0].dtype == "bool" else S(int(word == "ones"))


def range_rule(at: Site) -> Basic:
    """a, a + s, a + 2s, …"""
    start = at.value(0 if at["start"] is None else at["start"])
    return start + at.axes()[0] * at.value(1 if at["step"] is None else at["step"])


MOVES = rules_by_name({
    "view reshape _unsafe_view": view_rule, "permute transpose t": permute_rule, "expand": expand_rule,
    "repeat": repeat_rule, "unsqueeze": unsqueeze_rule, "squeeze": squeeze_rule, "select": select_rule,
    "slice": slice_rule, "split split_with_sizes chunk": split_rule, "unbind": unbind_rule, "flip": flip_rule,
    "roll": roll_rule, "cat": cat_rule, "stack": stack_rule, "constant_pad_nd": pad_rule,
    "slice_scatter select_scatter": scatter_rule, "embedding": embedding_rule, "index _unsafe_index": index_rule,
    "gather": gather_rule, "index_select": index_select_rule, "full full_like new_full": constant_rule,
    "zeros zeros_like new_zeros ones ones_like new_ones scalar_tensor fill": constant_rule,
    "empty empty_like new_empty": constant_rule, "arange iota": range_rule,
})  # fmt: skip
"""Operator -> its rule."""
