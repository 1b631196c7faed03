"""The costs of a form, before sizes are known: passes, state, memory, arithmetic, matrix products."""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Add, Expr, Integer, Mul, S, exp
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
from redalg.decompose.domain import live_term
from redalg.explain.model import Line, Part, Table, comma_list
from redalg.expression import Axis, Element, Label, Reduce, Value
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.incremental.factors import group_factors
from redalg.incremental.form import FormOutput, FusedForm
from redalg.strategies.model.instructions import names
from redalg.strategies.model.operations import point_counts

INTEGERS = ("count", "index")
"""Kinds of slots that are integers."""

Cells = tuple[tuple[Part, ...], ...]
ProductOfFactors = tuple[Value, tuple[Axis, ...], tuple[Expr, ...]]
"""A sum, the axes that it reduces, and the factors of its term."""


def cost(form: FusedForm) -> list[Line]:
    """The table of costs."""
    rows: list[Cells] = [*passes(form), (("state",), state_size(form)), *tensor_reads(form), *memory(form)]
    return [Table((), (*rows, *arithmetic(form), *exponentials(form), *contractions(form)))]


def elementwise_cost(form: FusedForm) -> list[Line]:
    """The table of costs of a form that reduces nothing."""
    return [Table((), (*tensor_reads(form), *memory(form)))]


# ---- passes ----------------------------------------------------------------------------------------------------------


def longest_chain(cascade: Cascade) -> tuple[Value, ...]:
    """The longest chain of reductions in which each needs the one before it (of equally long chains, the last)."""
    chains: dict[Value, tuple[Value, ...]] = {}
    for reduction in cascade.reductions:
        before = [chains[value] for value in cascade.values if value in chains and value in values_of(reduction.term)]
        chains[reduction.value] = (*max(reversed(before), key=len, default=()), reduction.value)
    return max(reversed(chains.values()), key=len, default=())


def definition_passes(cascade: Cascade) -> int:
    """Passes over the data that the definition needs."""
    return len(longest_chain(cascade))


def reduced_axes_prose(cascade: Cascade) -> tuple[Part, ...]:
    """The reduced axes, as parts of prose."""
    return comma_list(list(cascade.reduced_axes), " and ")


def outputs_along_axis(form: FusedForm) -> list[FormOutput]:
    """The outputs that carry a reduced axis, for which the data are read once more."""
    return [one for one in form.outputs if one.carries]


def passes(form: FusedForm) -> list[Cells]:
    """One pass, or two if an output carries a reduced axis, beside the passes that the definition's chain needs."""
    chain: list[Basic] = list(longest_chain(form.cascade))
    later: list[Basic] = [Label(one.name) for one in outputs_along_axis(form)]
    passes_needed = len(chain) + bool(later)
    against: tuple[Part, ...] = (f"; the definition needs {passes_needed}: ", *comma_list(chain, ", then "))
    against += (", then ", *comma_list(later)) if later else ()
    here: tuple[Part, ...] = (Integer(1),)
    if later:
        here = (Integer(2), ": pass 1 for the state, pass 2 for ", *comma_list(later))
    name = ("passes over ", *reduced_axes_prose(form.cascade))
    return [(name, (*here, *(against if len(chain) > 1 else ())))]


# ---- state -----------------------------------------------------------------------------------------------------------


def state_size(form: FusedForm) -> tuple[Part, ...]:
    """The size of the state: `|e| + 2 floats per (b, h, q)`, then the floats held once for all, then the integers."""
    row = row_axes(form)
    floats = [one for one in form.slots if one.kind not in INTEGERS]
    sizes = [Mul(*(axis.extent for axis in one.axes if axis not in row)) for one in floats if one.axes or not row]
    parts = _amount(Add(*sizes), "float") if sizes else ()
    parts += (" per ", *per(row)) if row and sizes else ()
    once = [one for one in floats if row and not one.axes]
    for amount, unit in ((Integer(len(once)), "float"), (_counts(form), "integer")):
        if amount is not S.Zero:
            parts += (*((" and ",) if parts else ()), *_amount(amount, unit))
    return parts


def per(axes: tuple[Axis, ...]) -> tuple[Part, ...]:
    """`(b, h, q)`, or `b` alone."""
    return ("(", *comma_list(list(axes)), ")") if len(axes) > 1 else comma_list(list(axes))


def _counts(form: FusedForm) -> Expr:
    return Add(*(Mul(*(axis.extent for axis in one.axes)) for one in form.slots if one.kind in INTEGERS))


def _amount(number: Expr, unit: str) -> tuple[Part, ...]:
    return (number, f" {unit}" + ("" if number == 1 else "s"))


def row_axes(form: FusedForm) -> tuple[Axis, ...]:
    """The axes that all slots of floats share; slots without axes are left out."""
    floats = [one.axes for one in form.slots if one.kind not in INTEGERS and one.axes]
    return tuple(axis for axis in (floats[0] if floats else ()) if all(axis in axes for axes in floats))


# ---- reads -----------------------------------------------------------------------------------------------------------


def tensor_reads(form: FusedForm) -> list[Cells]:
    """The tensors that stream along the axis, and those that stay."""
    elements = form.cascade.elements()
    streamed = [one for one in elements if free_axes(one) & set(form.cascade.reduced_axes)]
    resident = [one for one in elements if one not in streamed]
    first, second = of_the_state(form), of_the_outputs(form)
    both = [one for one in streamed if one in first and one in second]
    rows: list[Cells] = (
        [(("read twice",), (*comma_list(list(both)), "; once where a row fits on chip"))] if both else []
    )
    once = [one for one in streamed if one not in both]
    rows += [(("read once",), comma_list(list(once)))] if once else []
    return rows + ([(("stays at hand",), comma_list(list(resident)))] if resident else [])


def memory(form: FusedForm) -> list[Cells]:
    """The numbers read from memory and written to it, beside the numbers that the definition's passes read."""
    tensors = {one.name: one for one in form.cascade.elements()}
    both = {one.name for one in of_the_state(form) & of_the_outputs(form)}
    read = Add(*(element_count(one) * (2 if name in both else 1) for name, one in tensors.items()))
    times = definition_passes(form.cascade)
    streamed = {name for name, one in tensors.items() if free_axes(one) & set(form.cascade.reduced_axes)}
    most = "" if all(one.is_plain for one in tensors.values()) else "at most "
    output_numbers = Add(*(Mul(*(axis.extent for axis in one.axes)) for one in form.outputs))
    here: tuple[Part, ...] = (most, *_amount(read, "number"), " read, ", output_numbers, " written")
    more = Add(*(element_count(one) * (times - 1) for name, one in tensors.items() if name in streamed))
    against: tuple[Part, ...] = (f"; {times} passes read ", read + more) if times > 1 else ()
    return [(("memory",), (*here, *against)), (("",), ("of 4 bytes each in float32, 2 in 16 bits",))]


def element_count(element: Element) -> Expr:
    """The count of numbers that are read of a tensor: the product of the extents of its axes."""
    return Mul(*(axis.extent for axis in sorted(free_axes(element), key=str)))


def of_the_state(form: FusedForm) -> set[Element]:
    """The elements that pass 1 reads."""
    return _read(form, [one.term for one in form.cascade.reductions])


def of_the_outputs(form: FusedForm) -> set[Element]:
    """The elements that pass 2 reads."""
    return _read(form, [one.expr for one in outputs_along_axis(form)])


def _read(form: FusedForm, exprs: list[Expr]) -> set[Element]:
    values = {value for expr in exprs for value in values_of(expr)}
    producers = [one.cascade for one in form.cascade.producers if one.value in values]
    exprs = exprs + [expr for cascade in producers for expr in cascade.expressions()]
    return {element for expr in exprs for element in elements_of(expr)}


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def arithmetic(form: FusedForm) -> list[Cells]:
    """The operations beside matrix products, by the axes along which each is done anew, as rates count them."""
    axes, streamed = {axis.name: axis for axis in form.cascade.axes()}, set(form.cascade.reduced_axes)
    counts = {_streamed_last({axes[name] for name in own}, streamed): count
              for own, count in counts_beside_products(form).items()}  # fmt: skip
    parts: tuple[Part, ...] = ()
    for place in sorted(counts, key=lambda place: (len(place), str(place))):
        number = Integer(counts[place])
        parts += (", ", number) if parts else _amount(number, "operation")
        parts += (" per ", *per(place)) if place else ()
    return [(("arithmetic",), parts)] if parts else []


def counts_beside_products(form: FusedForm) -> dict[frozenset[str], int]:
    """The operations that rates count, without those of matrix products, by the names of axes."""
    counts = point_counts(form)
    for _, _, factors in (*matrix_products(form), *row_products(form)):
        if counts[names(*factors)] >= 2:  # else it is made once for all of the streamed axis
            counts[names(*factors)] -= 2
    return {own: count for own, count in counts.items() if count}


def exponentials(form: FusedForm) -> list[Cells]:
    """The different exponentials in the loop (each an operation of the arithmetic too), and in a merge."""
    domain = form.cascade.domain
    terms = [live_term(one.term, domain) for one in form.extrema]
    terms += [live_term(one.term, domain) for one in form.accumulators]
    terms += [one.term for one in form.structures]
    found = sorted({one for term in terms for one in term.atoms(exp)}, key=str)
    if not found:
        return []
    where = [_streamed_last(all_axes(one), set(form.cascade.reduced_axes)) for one in found]
    parts: tuple[Part, ...] = ()
    for axes in dict.fromkeys(where):
        parts += (*((", ",) if parts else ()), Integer(where.count(axes)), " per ", *per(axes))
    weights = {pivot.value for one in form.accumulators for pivot, _ in one.weight}
    merge = f", and {2 * len(weights)} per row of the state in a merge" if weights else ""
    return [(("exponentials",), (*parts, merge))]


def _streamed_last(axes: set[Axis], streamed: set[Axis]) -> tuple[Axis, ...]:
    return tuple(sorted(axes, key=lambda one: (one in streamed, one.name)))


def contractions(form: FusedForm) -> list[Cells]:
    """The matrix products, and the operations of each."""
    rows: list[Cells] = []
    of_rows = row_products(form)
    for value, reduced, factors in (*matrix_products(form), *of_rows):
        live = [live_term(one, form.cascade.domain) for one in factors]
        axes = sorted({place for one in live for place in all_axes(one)}, key=str)
        most = "at most " if form.cascade.domain is not S.true else ""
        flops = Mul(Integer(2), *(place.extent for place in axes))
        rest = (", of a single row",) if (value, reduced, factors) in of_rows else ()
        rows.append((("matrix product",), (value, " = ", Reduce("sum", Mul(*live, evaluate=False), reduced), *rest)))
        rows.append((("",), (most, flops, " floating-point operations")))
    return rows


def row_products(form: FusedForm) -> list[ProductOfFactors]:
    """The sums of a factor and a tensor of more axes: products of a row and a matrix, where no axis makes rows.

    In Σ_d Q[b,h,d]·K[b,h,k,d] Q is a row of d for every (b, h), and K a matrix of (k, d).
    """
    known = {value for value, _, _ in matrix_products(form)}
    sums = [
        (producer.value, producer.cascade.reduced_axes, reduction.term)
        for producer in form.cascade.producers
        for reduction in producer.cascade.reductions
        if reduction.monoid.name == "sum"
    ]
    own = form.cascade.reduced_axes
    sums += [(part.value, own, Mul(*_factors(part.weight, part.factors))) for part in form.accumulators]
    found = ((value, reduced, _row_and_matrix(term, reduced)) for value, reduced, term in sums if value not in known)
    return [(value, reduced, factors) for value, reduced, factors in found if factors]


def _row_and_matrix(term: Expr, reduced: tuple[Axis, ...]) -> tuple[Expr, ...]:
    """The factor of fewer axes and the tensor of all, of those that hold the reduced axes; nothing without both."""
    factors = [one for one in Mul.make_args(term) if all_axes(one) >= set(reduced)]
    axes = set[Axis]().union(*map(all_axes, factors))
    matrix = [one for one in factors if all_axes(one) == axes]
    row = [one for one in factors if all_axes(one) != axes]
    return (Mul(*row), *matrix) if row and len(matrix) == 1 and isinstance(matrix[0], Element) else ()


def matrix_products(form: FusedForm) -> list[ProductOfFactors]:
    """The sums whose factors share no more than the reduced axes and a batch, with these axes and factors."""
    found = [
        (accumulator.value, form.cascade.reduced_axes, _factors(accumulator.weight, accumulator.factors))
        for accumulator in form.accumulators
        if len(accumulator.factors) > 1
    ]
    for producer in form.cascade.producers:
        for reduction in producer.cascade.reductions:
            factors = group_factors(reduction.term, ()) if reduction.monoid.name == "sum" else ()
            if len(factors) > 1:
                found.insert(0, (producer.value, producer.cascade.reduced_axes, factors))
    return found


def _factors(weight: Iterable[tuple[object, object]], factors: tuple[Expr, ...]) -> tuple[Expr, ...]:
    scales = [exp(q * (pivot.base - pivot.value)) for pivot, q in weight]  # type: ignore[attr-defined]
    return (Mul(*scales, factors[0]), *factors[1:])


def all_axes(expr: Basic) -> set[Axis]:
    """The axes on which an expression depends, its values' own among them."""
    return {one for one in expr.free_symbols if isinstance(one, Axis)}
