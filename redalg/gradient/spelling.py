"""The stages as kernels want them: one product for what shares factors, axes of their own, operands of 16 bits.

e^u·e^(r·u)                    →  e^((1 + r)·u)                 r a number: 1/e^u overflows where e^u is 0
log(e^u·v)                     →  u + log v                     e^u may be 0 or overflow where u is finite
a·x + a·y                      →  a·(x + y)                     in what a reduction adds
(r·x + y)·s                    →  r·s·x + s·y                   where factors of rows cancel then
x·Σ u − Σ (r·u + q·v) + y·Σ v  →  (x − r)·Σ u + (y − q)·Σ v      of rows r and q, sums of u = y − m that a mean lost
2·x − 2·y                      →  2·(x − y)                     in an operand of a product, which is rounded anyway
a·x + where(c, a·y, 0)         →  a·(x + where(c, y, 0))        too: a NaN or infinity of a is in a·x
a·x + Σ_j where(c, a·y, 0)     →  a·(x + Σ_j where(c, y, 0))    so too, where a has no j
where(c, x, 0) + where(c, where(e, y, 0), 0)  →  where(c, x + where(e, y, 0), 0)
Σ_k,e w[q,k]·V[k,e]·G[q,e]     →  Σ_k w[q,k]·Σ_e V[k,e]·G[q,e]  w is computed by reductions, and V and G are tensors
Σ_q,k w(Σ_d Q[q,d]·K[k,d])     →  Σ_q Σ_k w(Σ_d Q[q,d]·K[k,d])  a row of a product of matrices at a time
Σ_q,k a[q,k]·Σ_b w[b,q,k]      →  Σ_b,q,k a·w                   first, if w holds such a product
Σ_q where(c, w[q,k]·Q[q,d], 0)  →  Σ_q Q[q,d]·where(c, w, 0)    of a product of matrices, whose elements are numbers
Σ_k K[k,d]·w(Σ_d Q[q,d]·K[k,d])  →  Σ_k K[k,d]·w(Σ_c Q[q,c]·K[k,c])   d is an axis of the stage: it binds another
Σ_n (x − r/|n|)                →  Σ_n (x − r/|n_1|)             |n_1| is |n|, told by a call and not counted
Σ_k K[k,d]·w[q,k]              →  Σ_k K[k,d]·cast(w[q,k])       of a product of matrices, to the dtype of K
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_

from sympy import Add, And, Expr, Mul, S, exp, expand_mul, log
from sympy.core.basic import Basic

from redalg.decompose.parse.axes import outermost_reductions
from redalg.expression import Axis, Cast, Element, Extent, Reduce, Scalar, Where
from redalg.expression.contents import free_axes, inner_reductions, of_kind, reductions_of
from redalg.expression.rebuild import replace_nodes, with_args
from redalg.gradient.rules import is_masked_sum, times
from redalg.lower_tile.ir.names import Names


def with_joined_exponentials(node: Basic) -> Basic:
    """An expression whose products hold one exponential for those whose exponents are multiples of each other, and
    whose logarithms hold none as a factor."""
    if not node.args or isinstance(node, Element):
        return node
    node = with_args(node, [with_joined_exponentials(one) for one in node.args])
    if isinstance(node, log):
        factors = Mul.make_args(node.args[0])
        rest = Mul(*(one for one in factors if not isinstance(one, exp)))
        return Add(*(one.args[0] for one in factors if isinstance(one, exp)), log(rest))
    exponents = dict[Expr, list[Expr]]()
    for factor in Mul.make_args(node):
        if isinstance(factor, exp):
            exponents.setdefault(_direction(factor.args[0]), []).append(factor.args[0])
    several = [own for own in exponents.values() if len(own) > 1]
    if not several:
        return node
    rest = [one for one in node.args if not any(one.args[0] in own for own in several if isinstance(one, exp))]
    return Mul(*rest, *(exp(Add(*own)) for own in several))


def _direction(exponent: Expr) -> Expr:
    """The expression that an exponent is a multiple of, alike for all of its multiples."""
    _, whole = exponent.as_content_primitive()
    return -whole if whole.could_extract_minus_sign() else whole


def with_shared_factors(node: Basic) -> Basic:
    """An expression in which every sum of products has the factors of all its terms once."""
    if not node.args or isinstance(node, Element):
        return node
    node = with_args(node, [with_shared_factors(one) for one in node.args])
    return _with_common_factors(node) if isinstance(node, Add) else node


def _with_common_factors(total: Expr) -> Expr:
    """A sum whose terms share their masks and factors, and whose sums over the same axes are one if they share some."""
    terms = _terms_of(total)
    common, masks = _common(terms), _common_masks(terms)
    if len(terms) == 1 or not (common or masks):
        return Add(*terms)
    if masks:
        return Where(And(*masks), _with_common_factors(Add(*(_without_masks(term, masks) for term in terms))), S.Zero)
    return Mul(*common.elements(), Add(*(_without(term, common) for term in terms)))


def _terms_of(total: Expr) -> list[Expr]:
    """The terms of a sum: c·Σ f·x + d·Σ g·x is one term, Σ x·(c·f + d·g)."""
    by_axes, terms = dict[Basic, list[tuple[Expr, Reduce]]](), list[Expr]()
    for term in Add.make_args(total):
        sums = [one for one in Mul.make_args(term) if isinstance(one, Reduce) and one.kind == "sum"]
        factor = term / sums[0] if len(sums) == 1 else S.One
        if len(sums) == 1 and not free_axes(factor) & set(sums[0].bound):
            by_axes.setdefault(sums[0].args[2], []).append((factor, sums[0]))
        else:
            terms.append(term)
    for pairs in by_axes.values():
        within = [one.expr for _, one in pairs]
        if len(pairs) > 1 and (_common(within) or _common_masks(within)):
            inside = Add(*(factor * one.expr for factor, one in pairs))
            terms.append(pairs[0][1].rebuilt(_with_common_factors(inside), pairs[0][1].bound))
        else:
            terms += [factor * one for factor, one in pairs]
    return terms


def _without(term: Expr, common: Counter[Expr]) -> Expr:
    """A term without factors that it has, within its mask if it is masked, and within a masked sum."""
    total = _masked_sum_of(term)
    if total is not None and common - Counter(Mul.make_args(term)):
        beside = Counter(Mul.make_args(term / total))
        inner = total.rebuilt(_without(total.expr, common - beside), total.bound)
        return Mul(*(beside - common).elements(), inner)
    condition, product = _mask_of(term)
    rest = Mul(*(Counter(Mul.make_args(product)) - common).elements())
    return rest if condition is None else Where(condition, rest, S.Zero)


def _mask_of(term: Expr) -> tuple[Basic | None, Expr]:
    """The condition and the product of a term where(c, y, 0) times a number; none and the term of any other.

    A mask within a mask is one of both conditions.
    """
    number, mask = term.as_coeff_Mul()
    if isinstance(mask, Where) and mask.args[2] is S.Zero:
        inner, product = _mask_of(mask.args[1])
        return mask.args[0] if inner is None else And(mask.args[0], inner), number * product
    return None, term


def _masked_sum_of(term: Expr) -> Reduce | None:
    """The sum Σ where(c, y, 0) that is a factor of a term; None if it has none, or several."""
    sums = [one for one in Mul.make_args(term) if is_masked_sum(one)]
    return sums[0] if len(sums) == 1 else None


def _factors_of(term: Expr) -> Counter[Expr]:
    """The factors of a term within its mask, and those within a masked sum that have none of its axes."""
    total, (_, product) = _masked_sum_of(term), _mask_of(term)
    if total is None:
        return Counter(Mul.make_args(product))
    within = _factors_of(total.expr)
    own = Counter({one: times for one, times in within.items() if not free_axes(one) & {*total.bound}})
    return own + Counter(Mul.make_args(term / total))


def masks_and_rest(expr: Expr, is_wanted: Callable[[Basic], bool] = lambda _: True) -> tuple[tuple[Basic, ...], Expr]:
    """(c, e) and y of where(c, where(e, y, 0), 0), as far as the conditions are wanted."""
    conditions = list[Basic]()
    while isinstance(expr, Where) and expr.args[2] is S.Zero and is_wanted(expr.args[0]):
        conditions += And.make_args(expr.args[0])
        expr = expr.args[1]
    return tuple(dict.fromkeys(conditions)), expr


def _common_masks(terms: Sequence[Expr]) -> list[Basic]:
    """The conditions that mask all terms, in order."""
    conditions = [_conditions(term) for term in terms]
    return [one for one in conditions[0] if all(one in other for other in conditions)] if len(terms) > 1 else []


def _conditions(term: Expr) -> tuple[Basic, ...]:
    """The conditions of a term's masks, all of which hold where it counts."""
    condition, _ = _mask_of(term)
    return () if condition is None else tuple(sorted(And.make_args(condition), key=str))


def _without_masks(term: Expr, masks: Sequence[Basic]) -> Expr:
    """A masked term without some of its conditions."""
    left, (_, product) = [one for one in _conditions(term) if one not in masks], _mask_of(term)
    return Where(And(*left), product, S.Zero) if left else product


def _common(terms: Sequence[Expr]) -> Counter[Expr]:
    """The factors that all terms have, without numbers: also within masks, if a term has none."""
    hidden = (_mask_of(term)[0] is not None or _masked_sum_of(term) is not None for term in terms)
    factors = (lambda term: Counter(Mul.make_args(term))) if all(hidden) else _factors_of
    common = reduce(and_, map(factors, terms))
    return Counter({one: times for one, times in common.items() if not one.is_number})


def with_shared_numbers(node: Basic) -> Basic:
    """An expression whose products have the number once that all terms of a sum in them are multiples of."""
    if not node.args or isinstance(node, Element | Reduce):
        return node
    node = with_args(node, [with_shared_numbers(one) for one in node.args])
    if not isinstance(node, Mul):
        return node
    numbers = [_shared_number(factor) for factor in node.args]
    # SymPy multiplies a sum out where a number is its only factor: a product of more keeps both
    factors = [factor if number is S.One else Add(*(_size_and_rest(term)[1] for term in factor.args))
               for number, factor in zip(numbers, node.args, strict=True)]  # fmt: skip
    return Mul(*numbers, *factors)


def _shared_number(factor: Expr) -> Expr:
    """The size of the number that all terms of a sum are multiples of; 1 of anything else."""
    numbers = {_size_and_rest(term)[0] for term in factor.args} if isinstance(factor, Add) else set()
    return numbers.pop() if len(numbers) == 1 else S.One


def _size_and_rest(term: Expr) -> tuple[Expr, Expr]:
    """The size of a term's number, and what is left, of its sign."""
    number, rest = number_and_rest(term)
    return (-number, -rest) if number.could_extract_minus_sign() else (number, rest)


def number_and_rest(expr: Expr) -> tuple[Expr, Expr]:
    """The number that an expression is a multiple of, and the rest."""
    numbers = [one for one in Mul.make_args(expr) if is_constant(one)]
    return Mul(*numbers), Mul(*(one for one in Mul.make_args(expr) if one not in numbers))


def is_constant(node: Basic) -> bool:
    """Tell if an expression is a number, or one of extents."""
    return not node.has(Element, Reduce, Scalar) and not free_axes(node)


def with_rows_outside(node: Basic) -> Expr:
    """An expression whose sums have their rows' factors outside, and are multiplied out, so that these may cancel."""
    if not node.args or isinstance(node, Element | Where):
        return node
    if isinstance(node, Reduce):
        inner = with_rows_outside(node.expr)
        own, rows = list[Expr](), list[Expr]()
        for factor in Mul.make_args(inner):
            (own if free_axes(factor) & {*node.bound} else rows).append(factor)
        return node if node.kind != "sum" else Mul(*rows) * node.rebuilt(Mul(*own), node.bound)
    return expand_mul(with_args(node, [with_rows_outside(one) for one in node.args]), deep=False)


def with_inner_sums(expr: Expr) -> Expr:
    """An expression in which what is computed by reductions is multiplied once for all products of two tensors."""
    changed: dict[Basic, Expr] = {}
    for reduction in reductions_of(expr):
        if reduction.kind == "sum" and len(reduction.bound) > 1:
            changed[reduction] = _with_inner_sum(reduction)
    return replace_nodes(expr, {old: new for old, new in changed.items() if new != old})


def _with_inner_sum(total: Reduce) -> Expr:
    """A sum of products, with an inner one over an axis that its tensors alone have."""
    factors = Mul.make_args(total.expr)
    for axis in total.bound:
        own = [one for one in factors if axis in free_axes(one)]
        others = [one for one in factors if one not in own]
        if len(own) > 1 and all(isinstance(one, Element) for one in own) and any(map(reductions_of, others)):
            inner = total.rebuilt(Mul(*own), (axis,))
            return total.rebuilt(Mul(*others, inner), tuple(one for one in total.bound if one != axis))
    return total


def with_row_sums(expr: Expr) -> Expr:
    """An expression whose sums over pairs of rows and columns of a product of matrices are sums of sums of rows."""
    changed = {one: _sum_of_rows(one) for one in outermost_reductions(expr) if one.kind == "sum"}
    return replace_nodes(expr, {old: new for old, new in changed.items() if new != old})


def _sum_of_rows(total: Reduce) -> Reduce:
    """Σ_q Σ_k for Σ_q,k of what is computed by a product of matrices of rows q and columns k; else the sum itself."""
    whole = _joint_sum(total)
    columns = (axis for one in inner_reductions(whole) for axis in _columns_of(one, {*whole.bound}))
    column = min(columns, key=str, default=None)
    if column is None:
        return total
    rows = tuple(axis for axis in whole.bound if axis != column)
    return whole.rebuilt(whole.rebuilt(whole.expr, (column,)), rows)


def _joint_sum(total: Reduce) -> Reduce:
    """Σ_A,B a·f for Σ_A a·Σ_B f, if f is computed."""
    sums = [one for one in Mul.make_args(total.expr) if isinstance(one, Reduce) and one.kind == "sum"]
    if len(sums) != 1 or not inner_reductions(sums[0]) or free_axes(total.expr / sums[0]) & {*sums[0].bound}:
        return total
    return _joint_sum(total.rebuilt(times(sums[0].expr, total.expr / sums[0]), (*total.bound, *sums[0].bound)))


def _columns_of(product: Reduce, bound: set[Axis]) -> set[Axis]:
    """The axes, of some, of rows and of columns of a product of two matrices; none of anything else."""
    factors = Mul.make_args(product.expr)
    if product.kind != "sum" or len(factors) != 2 or not all(isinstance(one, Element) for one in factors):
        return set()
    left, right = (free_axes(one) & bound for one in factors)
    return {*left ^ right} if left - right and right - left else set()


def with_collected_sums(expr: Expr) -> Expr:
    """A sum in which what multiplies equal sums is added first, if terms that hold them hide one: it may cancel."""
    if not isinstance(expr, Add):
        return expr
    parts = {term: _parts_of(term) for term in expr.args}
    whole = [term for term, own in parts.items() if len(own) == 1 and own[0][1] is not None]
    known = {parts[term][0][1] for term in whole}
    hiding = [term for term, own in parts.items() if len(own) > 1 and all(total in known for _, total in own)]
    if not hiding:
        return expr
    factors = dict[Expr, Expr]()
    for term in (*whole, *hiding):
        for factor, total in parts[term]:
            factors[total] = Add(factors.get(total, S.Zero), factor)
    rest = (term for term in expr.args if term not in whole and term not in hiding)
    return Add(*rest, *(factor * total for total, factor in factors.items()))


def _parts_of(term: Expr) -> list[tuple[Expr, Expr | None]]:
    """(f, S) of f·S, several of f·Σ (r·u + q·v)·w with r and q of rows; (term, None) of any other."""
    sums = [one for one in Mul.make_args(term) if isinstance(one, Reduce) and one.kind == "sum"]
    if len(sums) != 1:
        return [(term, None)]
    [total], bound = sums, {*sums[0].bound}
    factors = Mul.make_args(total.expr)
    sums_of_sums = [one for one in factors if isinstance(one, Add) and all(map(_has_sum, one.args))]
    several = sums_of_sums[0] if sums_of_sums else S.One
    own = [one for one in factors if one is not several]
    made = list[tuple[Expr, Expr | None]]()
    for part in several.args or (S.One,):
        inside = [*own, *Mul.make_args(part)]
        rows = [one for one in inside if not free_axes(one) & bound]
        body = Mul(*(one for one in inside if one not in rows))
        made.append((term / total * Mul(*rows), total.rebuilt(body, total.bound)))
    return made


def _has_sum(term: Expr) -> bool:
    """Tell if a factor of a term is a sum."""
    return any(isinstance(one, Add) for one in Mul.make_args(term))


def with_masked_weights(expr: Expr) -> Expr:
    """An expression in which a mask of a product of matrices is one of what is computed: the other is a tensor."""
    changed: dict[Basic, Expr] = {}
    for reduction in reductions_of(expr):
        body = reduction.expr
        if reduction.kind == "sum" and isinstance(body, Where) and body.args[2] is S.Zero:
            condition, term, _ = body.args
            tensor = next((one for one in Mul.make_args(term) if _is_matrix_beside(one, term / one)), None)
            if tensor is not None and free_axes(condition) <= free_axes(term / tensor):
                masked = tensor * Where(condition, term / tensor, S.Zero)
                changed[reduction] = reduction.rebuilt(masked, reduction.bound)
    return replace_nodes(expr, changed)


def _is_matrix_beside(factor: Expr, rest: Expr) -> bool:
    """Tell if a factor is a tensor's element, and its product with what is computed is one of matrices."""
    axes, others = free_axes(factor), free_axes(rest)
    return isinstance(factor, Element) and bool(reductions_of(rest) and axes - others and others - axes)


def with_own_axes(expr: Expr, order: Sequence[Axis], names: Names) -> tuple[Expr, dict[str, str]]:
    """An expression whose inner reductions bind none of some axes, and what the new axes are called after.

    Outer ones may, and those of the same row within them: a row is reduced and written in one pass. Where the same
    stands within another too, the outer one is renamed with it: a comparison of both would else see two roundings.
    """
    own, known = dict[Axis, Axis](), dict[Basic, Basic]()

    def rename(given: Basic, outer: frozenset[Axis] | None = None) -> Basic:
        node = given
        if not node.args:
            return node
        bound = frozenset(node.bound) if isinstance(node, Reduce) else frozenset()
        within = outer if not bound else bound | (outer or frozenset())
        node = with_args(node, [rename(one, within) for one in node.args])
        clash = [axis for axis in bound if axis in order and axis not in outer] if outer is not None else []
        if not clash:
            return node
        for axis in clash:
            own.setdefault(axis, axis.renamed(names.fresh(axis.name)))
        renamed = tuple(own[axis] if axis in clash else axis for axis in node.bound)
        known[given] = node.rebuilt(node.expr.xreplace({axis: own[axis] for axis in clash}), renamed)
        return known[given]

    made = rename(expr)
    twice = {one: known[one] for one in outermost_reductions(expr) if one in known}
    return rename(replace_nodes(expr, twice)) if twice else made, {new.name: axis.name for axis, new in own.items()}


def with_told_lengths(expr: Expr, names: Names) -> tuple[Expr, dict[str, str]]:
    """An expression whose sums read the lengths of their axes as numbers that a call tells, and what these lengths are.

    Of a mean that is rounded Σ (x − r/|n|) is what it lost; Σ x − r has no digit of that.
    """
    sums = [one for one in reductions_of(expr) if one.kind == "sum"]
    read = {total: {axis.extent for axis in total.bound} & of_kind(Extent, total.expr) for total in sums}
    told = {length: names.fresh(length.name) for length in sorted(set().union(*read.values()), key=str)}
    others = {length: Extent(name) for length, name in told.items()}
    changed = {total: total.rebuilt(total.expr.xreplace(others), total.bound) for total, own in read.items() if own}
    return replace_nodes(expr, changed), {name: length.name for length, name in told.items()}


def with_narrow_operands(expr: Expr, dtypes: Mapping[str, str]) -> Expr:
    """An expression in which products of matrices have computed operands of their tensors' dtypes."""
    changed: dict[Basic, Expr] = {}
    for reduction in reductions_of(expr):
        if reduction.kind == "sum":
            changed[reduction] = reduction.rebuilt(
                _in_branches(reduction.expr, lambda term: _with_narrow_factor(term, dtypes)), reduction.bound
            )
    return replace_nodes(expr, changed)


def _in_branches(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """An expression with what a mask leaves of it changed."""
    if isinstance(expr, Where) and S.Zero in expr.args[1:]:
        condition, *branches = expr.args
        return Where(condition, *(one if one is S.Zero else _in_branches(one, change) for one in branches))
    return change(expr)


def _with_narrow_factor(term: Expr, dtypes: Mapping[str, str]) -> Expr:
    """A product of a tensor and of what has other axes, which is rounded to the tensor's dtype."""
    for factor in Mul.make_args(term):
        if _is_matrix_beside(factor, term / factor) and factor.name in dtypes:
            return factor * Cast(term / factor, dtypes[factor.name])
    return term
