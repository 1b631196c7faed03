"""The derivation of a backward: from what the user wrote to stages.

outputs o     x̄ and r̄ get what the cotangents hand on through o, read over row values
              where o is a sum of the degree p < 0 in r: r̄ = p/r·Σ ō·o, for which no sum is made again
r, last one first   r̄ is a stage of its own if it reduces; what it hands on goes to x̄ and to earlier row values
pivots        are skipped: no output depends on them (`invariant`)
tensors X     X̄[j] = Σ_a [j = i(a)] g(a), the adjoints of its elements X[i(a)] (`places`)
              e^(x − m) is o/r of an output o = e^(x − m)·r, which is read in place of x, m and r
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, final

from sympy import Add, And, Eq, Expr, Integer, Mul, Ne, S, exp
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.definition.outputs import result_dtype
from redalg.errors import GradientError
from redalg.expression import Axis, Element, Label, Reduce, Where
from redalg.expression.contents import (
    axes_by_name,
    elements_of,
    free_axes,
    inner_reductions,
    is_plainly_indexed,
    nodes_of,
    of_kind,
    reductions_of,
)
from redalg.expression.degrees import NoDegreeError, degree_of
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.backward import Backward
from redalg.gradient.explanation import names_in_stages
from redalg.gradient.exponentials import INTRODUCED, with_pivots
from redalg.gradient.invariant import INVARIANT, pivots_among
from redalg.gradient.places import at_place, with_axes
from redalg.gradient.residuals import without_residuals
from redalg.gradient.reverse import adjoints, differentiable_definition, holds_product, sum_of
from redalg.gradient.rows import RowValues, tensor_names
from redalg.gradient.spelling import masks_and_rest, with_rows_outside, with_shared_factors
from redalg.gradient.stage import axes_text, dimension, is_narrow, needed_stages
from redalg.gradient.stages import PASSES, Stages
from redalg.gradient.together import join_stages
from redalg.lower_tile.ir.names import Names
from redalg.runtime.bind.arrays import output_dtypes


def derive_backward(fused: Any, wrt: Sequence[str] | None = None, dtypes: Mapping[str, str] | None = None) -> Backward:
    """The backward of a fused function by some of its tensors (None: by all that have a gradient).

    `dtypes` are those of its floating-point tensors, if some have 16 bits or fewer: then row values are float32, and
    products of matrices round what they compute to their tensors' dtype.

    Raises:
        GradientError: something has no derivative that redalg knows, or a stage has no form.
        InputError: `wrt` names no tensor.
    """
    written, pivots = with_pivots(differentiable_definition(fused, wrt, "vjp"))
    derivation = Derivation(fused, written, pivots, RowValues.of(fused, written), dtypes or {})
    gradients = derivation.run(wrt)
    names = names_in_stages([expr for _, expr in fused.written], derivation.rows)
    return replace(derivation.backward(gradients), again=partial(derive_backward, fused, wrt), names=names)


@final
class Derivation:
    """One derivation under way.

    Attributes:
        fused, written, rows: the function, its outputs' expressions without display names, and its row values.
        introduced: maxima in them that the function itself does not hold.
        stages: those that are derived, in order.
        cotangents: output -> the name of its cotangent.
        made: output -> the name of its tensor in the stages that read it.
        by_row: the adjoints of the elements of row values so far.
        seeds: the adjoints of what the outputs and the row values are, read over row values.
        by_stage: what the stages of row values are, at some indices.
        totals: sums of a row value and others -> the number that stands for each while adjoints are made.
        dtypes: of the floating-point tensors, cotangents and outputs that have 16 bits or fewer.
        names: those of tensors, row values, cotangents and stages.
    """

    def __init__(self, fused: Any, written: Mapping[str, Expr], introduced: Sequence[Reduce], rows: RowValues,
                 dtypes: Mapping[str, str]) -> None:  # fmt: skip
        self.fused, self.written, self.introduced, self.rows = fused, written, introduced, rows
        self.by_stage = dict[str, tuple[tuple[Expr, ...], Expr]]()
        self.totals = dict[Expr, Element]()
        self.dtypes = {name: one for name, one in dtypes.items() if is_narrow(one)}
        self.by_output = output_dtypes(fused, dtypes) if self.dtypes else {}
        self.cotangents = dict[str, str]()
        self.made = dict[str, str]()
        self.by_row = dict[Element, list[Expr]]()
        self.seeds = dict[Expr, Expr]()
        self.names = Names((*tensor_names(written.values()), *rows.names.values()))
        self.stages = Stages.of(fused, written, rows, self.names, self.dtypes)

    def run(self, wrt: Sequence[str] | None) -> dict[str, str]:
        """Derive all stages; the gradients' names by tensor."""
        for name, expr in self.written.items():
            self.cotangents[name] = self.names.fresh(f"grad_{name}")
            self._has_dtype(self.cotangents[name], name)
            g, node = Element(Label(self.cotangents[name]), *self._axes[name]), self.rows.read(expr)
            if repeated := {*self._axes[name]} - free_axes(expr):  # an element of the output is read many times
                self._hand_on(node, sum_of(g, axes_by_name(repeated)), None)
            else:
                self._hand_on(node, g, partial(self._output, name))
        for reduce in reversed(list(self.rows.names)):
            if reduce.result != "indices" and reduce not in self.pivots:
                self._through_row(reduce)
        return self._of_tensors(wrt)

    def backward(self, gradients: Mapping[str, str]) -> Backward:
        """The result, with a forward that makes the row values that stages read."""
        needed = needed_stages(self.stages.found, gradients.values())
        read = set[str]().union(*(stage.inputs for stage in needed))
        parts = [part for stage in needed for part in stage.parts]
        stages = join_stages(parts, self.stages)
        saved = {name: reduce for reduce, name in self.rows.names.items() if name in read}
        given = {name: (expr, axes_text(self._axes[name])) for name, expr in self.fused.written}
        wide = {name: self.stages.wide(self.rows.with_nan_of_sum(reduce)) for name, reduce in saved.items()}
        kept = {name: (expr, axes_text(axes_by_name(free_axes(expr)))) for name, expr in wide.items()}
        passes = PASSES[-1] if self.fused.earlier else None
        forward = self.fused.of_outputs({**given, **kept}, None, passes, exact=self.fused.exact) if kept else self.fused
        proofs = {str(reduce): INTRODUCED if reduce in self.introduced else INVARIANT for reduce in self.pivots}
        once = holds_product(self.written.values())
        made = {output: name for output, name in self.made.items() if name in read}
        return Backward(forward, tuple(kept), tuple(stages), gradients, self.cotangents, made, proofs, once)

    @cached_property
    def _axes(self) -> dict[str, tuple[Axis, ...]]:
        return {one.name: one.axes for one in self.fused.cascade.outputs}

    @cached_property
    def pivots(self) -> tuple[Reduce, ...]:
        """The extrema that are proved to have no gradient."""
        outputs = [(expr, axes_text(self._axes[name])) for name, expr in self.written.items()]
        own = {one for expr in self.written.values() for one in reductions_of(expr)}
        others = (one for one in self.rows.names if one in own and one not in self.introduced)
        return *self.introduced, *pivots_among(others, outputs, self.fused.of_outputs)

    def _has_dtype(self, name: str, output: str) -> None:
        """Note the dtype of a tensor that has an output's."""
        dtype = self.by_output.get(output)
        if dtype is not None and is_narrow(dtype):
            self.dtypes[name] = dtype

    def _by_value(self, expr: Expr, value: Callable[[], Element], g: Expr) -> dict[Element, Expr]:
        """The parts that the adjoint g of an expression hands on to the row values of which its sums have a degree.

        `value` gives the tensor that holds the expression.
        """
        found = dict[Element, Expr]()
        for element in (*map(self.rows.element, self.rows.names), *self.totals.values()):
            degree = degree_in(element, expr)
            if degree is None or not degree.is_negative:  # where r is 0, o is 0 too if the degree is positive
                continue
            whole = value()
            rest = free_axes(whole) - free_axes(element)
            part = self.rows.zero_where_empty(whole, self._source(element))
            found[element] = degree * sum_of(g * part, axes_by_name(rest)) / element
        return found

    def _source(self, element: Element) -> Expr:
        """The terms of a row value, or of the row values in a total, read over row values."""
        terms = Add.make_args(self._total_of.get(element, element))
        return Add(*(self.rows.read(one.expr) for one in self.rows.names if self.rows.element(one) in terms))

    def _with_totals(self, expr: Expr) -> Expr:
        """An expression that reads sums of a row value and others, such as 1/(Σ e^x + t), as one number each.

        Its degree in such a total is known where that in the row value is not; what the total gets, its terms get.
        """
        rows = {self.rows.element(one) for one in self.rows.names if one.kind == "sum"}
        for total in nodes_of(expr):
            own = rows & set(total.args) if isinstance(total, Add) and not reductions_of(total) else set()
            if own and total not in self.totals:
                element = Element(Label(self.names.fresh("total")), *axes_by_name(free_axes(total)))
                opened = replace_nodes(expr, {total: element})
                if not own & elements_of(opened) and degree_in(element, opened) is not None:
                    self.totals[total] = element
        return replace_nodes(expr, dict(self.totals))

    def _output(self, name: str) -> Element:
        """The tensor of an output, which the stages read."""
        if name not in self.made:
            self.made[name] = self.names.fresh(f"made_{name}")
            self._has_dtype(self.made[name], name)
        return Element(Label(self.made[name]), *self._axes[name])

    def _row(self, reduce: Reduce) -> Element:
        """The tensor of a row value: that of an output, if one is no more than it."""
        element = self.rows.element(reduce)
        same = (name for name, expr in self.written.items() if self.rows.read(expr) == element)
        output = next(same, None)
        return element if output is None else self._output(output)

    def _hand_on(self, node: Expr, g: Expr, value: Callable[[], Element] | None) -> None:
        """Keep a node's adjoint, and add what it hands on to row values; `value` gives the tensor that holds it."""
        node = self._with_totals(node) if value is not None else node
        self.seeds[node] = Add(self.seeds.get(node, S.Zero), g)
        through = {} if value is None else self._by_value(node, value, g)
        for element, part in (adjoints({node: g}) | through).items():
            whole = self._read(part)
            if element.name in self.rows.names.values():
                self.by_row.setdefault(element, []).append(whole)
            elif element in self._total_of:
                self._hand_on(self._total_of[element], whole, None)

    def _read(self, expr: Expr) -> Expr:
        """An expression that reads the tensors of row values that stand in it as reductions of each other.

        But for a number to which it compares what it is made of, if that is computed: a stage computes it itself.
        """
        relations = of_kind(Eq, expr) | of_kind(Ne, expr)
        compared = {node for one in relations for node in nodes_of(one)} & self._numbers_to_compare
        known = {one: row for one, row in self._definitions.items() if one not in compared}
        return replace_nodes(expr, {**known, **self._total_of})

    @property
    def _total_of(self) -> dict[Element, Expr]:
        """The number that stands for a total -> the total."""
        return {element: total for total, element in self.totals.items()}

    @cached_property
    def _definitions(self) -> dict[Basic, Expr]:
        """Row values as reductions of each other, and the tensors that hold them."""
        return {self.rows.definition(one): self.rows.element(one) for one in self.rows.names}

    @cached_property
    def _numbers_to_compare(self) -> set[Basic]:
        """Those of them that are numbers, and no places, of what is computed."""
        rows = (one for one in self.rows.names if not all(isinstance(part, Element) for part in one.operands))
        return {self.rows.definition(one) for one in rows if result_dtype(one) == "float64"}

    def _through_row(self, reduce: Reduce) -> None:
        """Hand a row value's adjoint on, from a stage of its own if it is made by reductions."""
        element = self.rows.element(reduce)
        totals = {one: self.rows.element(one) for one in self.rows.names}
        g = without_residuals(Add(*self.by_row.pop(element, [])), totals, self.dtypes)
        if g is S.Zero:
            return
        if reductions_of(g):
            conditions, inner = masks_and_rest(g, lambda one: not reductions_of(one))  # what they hide stays hidden
            reduced = [one for one in Mul.make_args(inner) if reductions_of(one)]
            within = Mul(*reduced) if any(map(reads_numbers, reduced)) else inner  # a stage has a tensor's dtype
            outside = [] if within == inner else [one for one in Mul.make_args(inner) if one not in reduced]
            axes = tuple(axis for axis in element.indices if axis in free_axes(within))
            name = self.stages.append(f"grad_{element.name}", within, axes)
            self.by_stage[name] = axes, within
            self.stages.apart.names.add(name)
            g = Mul(*outside, Element(Label(name), *axes))
            g = Where(And(*conditions), g, S.Zero) if conditions else g
        self._hand_on(self.rows.definition(reduce), g, partial(self._row, reduce))

    def _of_tensors(self, wrt: Sequence[str] | None) -> dict[str, str]:
        """The stages of the tensors' gradients, along their dimensions; their names by tensor."""
        rows, by_tensor = set(self.rows.names.values()), dict[str, dict[Element, Expr]]()
        rows |= {one.name for one in self.totals.values()}
        known = {expr: Element(Label(name), *axes) for name, (axes, expr) in self.by_stage.items()}
        for element, part in adjoints(self.seeds).items():
            if element.name not in rows and (wrt is None or element.name in wrt):
                by_tensor.setdefault(element.name, {})[element] = replace_nodes(self._read(part), known)
        gradients = dict[str, str]()
        for tensor, parts in by_tensor.items():
            [first, *others] = parts
            order = first.indices if is_plainly_indexed(first) and not others else tuple(
                dimension(tensor, place, self.fused.cascade) for place in range(len(first.indices)))  # fmt: skip
            made = {one: self._at_axes(tensor, one, part) for one, part in parts.items()}
            expr = Add(*(self._at_place(one, part, tuple(order)) for one, part in made.items()))
            gradients[tensor] = self._append_gradient(tensor, expr, tuple(order))
        return gradients

    def _at_axes(self, tensor: str, element: Element, part: Expr) -> Expr:
        """The gradient by one element, as a stage at the element's own axes if it sums products and is read at places.

        Heads that share a tensor sum what each of them makes; masked sums over all heads would multiply for each.
        """
        axes = tuple(dict.fromkeys(axis for index in element.indices for axis in axes_by_name(free_axes(index))))
        if is_plainly_indexed(element) or not inner_reductions(part) or free_axes(part) != {*axes}:
            return part
        name = self.stages.append(f"grad_{tensor}_part", part, axes, self.dtypes.get(tensor))
        return Element(Label(name), *axes)

    def _at_place(self, element: Element, part: Expr, order: tuple[Axis, ...]) -> Expr:
        """The gradient at a tensor's places by one element; where they are renamed, empty rows are told before."""
        own = part if element.indices == order else self.rows.zero_empty_rows(with_shared_factors(part))
        return at_place(element, own, order, self.stages.axis_names)

    def _append_gradient(self, tensor: str, expr: Expr, order: tuple[Axis, ...]) -> str:
        """Append the gradient of a tensor: one pass of its rows if it reduces over nothing but what stages make."""
        name, dtype = f"grad_{tensor}", self.dtypes.get(tensor)
        whole = expr if reductions_of(expr) else self._with_stages(expr)
        try:
            return self.stages.append(name, self._with_outputs(whole), order, dtype)
        except GradientError:
            if whole == expr:
                raise
            return self.stages.append(name, self._with_outputs(expr), order, dtype)

    def _with_outputs(self, expr: Expr) -> Expr:
        """An expression that reads e^(x − m) from an output that is a multiple of it, by a number of its row."""
        known = dict[Basic, Expr]()
        for name, written in self.written.items():
            factors = Mul.make_args(self.rows.read(written))
            weights = [one for one in factors if isinstance(one, exp) and not reductions_of(one)]
            rest = Mul(*(one for one in factors if one not in weights))
            if len(weights) != 1 or free_axes(weights[0]) != {*self._axes[name]} or weights[0] not in nodes_of(expr):
                continue
            if not reductions_of(rest) and free_axes(rest) < {*self._axes[name]} and not rest.is_number:
                known[weights[0]] = self.rows.zero_where_empty(self._output(name), weights[0]) / rest
        return with_rows_outside(replace_nodes(expr, known)) if known else expr

    def _with_stages(self, expr: Expr) -> Expr:
        """An expression that reads no stage of a row value: it holds what they are."""
        read = {one: self._stage_at(one) for one in elements_of(expr) if one.name in self.by_stage}
        return self._with_stages(replace_nodes(expr, read)) if read else expr

    def _stage_at(self, element: Element) -> Expr:
        """The expression of a stage at an element's indices."""
        indices, expr = self.by_stage[element.name]
        return with_axes(
            expr, {axis: place for axis, place in zip(indices, element.indices, strict=True) if axis != place}
        )


def degree_in(element: Element, expr: Expr) -> Expr | None:
    """The degree of an expression in an element that stands in its sums; None if it has none, or stands in none."""
    within = [one for one in reductions_of(expr) if element in elements_of(one)]
    if not within or any(one.kind != "sum" or set(one.bound) & free_axes(element) for one in within):
        return None
    try:
        return degree_of(expr, lambda node: Integer(node == element) if isinstance(node, Element) else None, (Reduce,))
    except NoDegreeError:
        return None


def reads_numbers(expr: Basic) -> bool:
    """Tell if an expression reads elements as numbers, not only in comparisons."""
    if isinstance(expr, Element | Relational):
        return isinstance(expr, Element)
    return any(map(reads_numbers, expr.args))
