"""The condition number to watch: by how much the terms of a value outweigh it.

    κ(v) = Σ|terms| / |v|        of every sum in `finish` whose terms may differ in sign
    Σ_l |B(x_l; c)| for |a|      where the terms of an accumulator a may differ in sign

About κ·ε of v is lost in a type of unit roundoff ε (Higham 2002, section 4.2). A difference of two numbers that carry
no rounding is left out, such as that of an extremum and a pivot. Displacements are left out too: a pivot makes them
small, and the values that they stand beside are counted. All of it follows from the form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from sympy import Abs, Add, Expr, Function, Mul, Symbol, exp
from sympy.logic.boolalg import Boolean

from redalg.decompose.domain import live_term
from redalg.decompose.separate.signs import sign_of
from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain.model import Equation, Line, Part, column, comma_list, sentence
from redalg.explain.notation import DELTA
from redalg.expression import Element, Label, Reduce, Value
from redalg.expression.contents import free_axes
from redalg.incremental.form import Accumulator, FormOutput, FusedForm

KAPPA, EPSILON = Symbol("κ"), Symbol("ε")
RELATIVE = ("scaled_product",)
"""Monoids whose rounding is relative: no terms cancel in them."""
ABOVE, BELOW = ("positive", "nonnegative"), ("negative", "nonpositive")


@final
@dataclass(frozen=True)
class Cancellation:
    """κ of one sum: the value whose sum it is, the sum as it stands, and Σ|terms|."""

    value: Expr
    whole: Expr
    terms: Expr

    @property
    def equation(self) -> Equation:
        """κ(value) = Σ|terms| / |value|"""
        return Equation(Function("κ")(self.value), Mul(self.terms, 1 / Abs(self.whole), evaluate=False))


def the_condition(decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """κ of every difference and of every sum over terms of both signs, with its usual size."""
    conditions = Conditions(decomposition, form)
    by_output = {one.name: conditions.of(one) for one in form.outputs}
    sums = list(dict.fromkeys(one for several in by_output.values() for one in several))
    lines: list[Line] = []
    if sums:
        lines.append(
            column(
                (
                    KAPPA,
                    " = Σ|terms| / |value|",
                ),
                [one.equation for one in sums],
            )
        )
        remark = (" of a value is lost, where ", EPSILON, " is the unit roundoff of the state's type. Where ", KAPPA)
        lines.append(sentence("About ", Mul(EPSILON, KAPPA), *remark, " nears 1/ε, no digit is left."))
        lines += [sentence(*one) for one in conditions.as_a_rule(sums)]
    other = [one.name for one in form.outputs if conditions.dependencies(one) & conditions.unfollowed]
    if other:
        why = ": what a monoid of several components loses by rounding is not followed here."
        lines.append(sentence("Of ", *comma_list([Label(name) for name in other]), why))
    plain: list[Any] = [Label(name) for name, several in by_output.items() if not several and name not in other]
    if plain:
        why = ": no difference of rounded numbers is taken, and no sum has terms of both signs."
        lines.append(sentence("For ", *comma_list(plain), " it is 1" if sums else " the condition number is 1", why))
    return lines


@final
class Conditions:
    """The sums of one form that may cancel."""

    def __init__(self, decomposition: Decomposition, form: FusedForm) -> None:
        self.form, domain = form, form.cascade.domain
        self.facts = dict(decomposition.separator.facts)
        self.facts |= {one.value: ("sum", live_term(one.term, domain)) for one in form.accumulators}
        self.facts |= {one.value: (one.monoid.name, live_term(one.term, domain)) for one in form.extrema}
        self.signed = {accumulator.value: accumulator for accumulator in form.accumulators
                       if not accumulator.droppable and sign_of(accumulator.value, self.facts) is None}  # fmt: skip
        self.unfollowed = {value for structure in form.structures for value in structure.values
                           if not structure.monoid.exact and structure.monoid.name not in RELATIVE}  # fmt: skip
        self.unrounded = {*form.independent_values, *(one.value for one in form.pivots)}

    def of(self, output: FormOutput) -> tuple[Cancellation, ...]:
        """The sums to watch of an output, in the order in which finish makes them."""
        dependencies = self.dependencies(output)
        sums = [cancellation for step in self.form.assignments
                if step.value in dependencies and not step.value.name.startswith(DELTA)
                for cancellation in self.cancellations(step.value, step.expr)]  # fmt: skip
        return tuple(dict.fromkeys([*sums, *self.cancellations(Label(output.name), output.expr)]))

    def dependencies(self, output: FormOutput) -> set[Value]:
        """The values that an output is made of, directly or through other assignments."""
        definitions = {one.value: one.expr for one in self.form.assignments}
        values, new = set[Value](), set(output.expr.atoms(Value))
        while new:
            values |= new
            new = {value for one in new if one in definitions for value in definitions[one].atoms(Value)} - values
        return values

    def cancellations(self, value: Expr, expr: Expr) -> Iterator[Cancellation]:
        """The sums in an expression that may cancel, then the accumulators over terms of both signs outside them."""
        sums = [one for one in nested_sums(expr) if self.cancels(one)]
        for total in sums:
            yield Cancellation(
                value, value if total == expr and isinstance(value, Value) else total, self.magnitude(total)
            )
        inside = {symbol for one in sums for symbol in one.atoms(Value)}
        for symbol in sorted(values_outside_exponents(expr) - inside, key=str):
            if symbol in self.signed:
                yield Cancellation(symbol, symbol, self.magnitude(symbol))

    def cancels(self, node: Expr) -> bool:
        """Tell if the terms of a sum of rounded numbers may differ in sign."""
        if any(set(self.form.cascade.reduced_axes) & free_axes(one) for one in node.atoms(Element)):
            return False  # a second pass takes it at every element
        if all(one in self.unrounded or -one in self.unrounded for one in node.args):
            return False
        signs = [sign_of(term, self.facts) for term in node.args]
        return not (all(one in ABOVE for one in signs) or all(one in BELOW for one in signs))

    def magnitude(self, expr: Expr) -> Expr:
        """Σ|terms|, with Σ|terms| for every accumulator over terms of both signs."""
        return Add(*(Mul(*map(self._absolute, Mul.make_args(one))) for one in Add.make_args(expr)))

    def _absolute(self, factor: Expr) -> Expr:
        base, power = factor.as_base_exp()
        if base in self.signed and power.is_Integer and power > 0:
            return self._absolute_sum(self.signed[base]) ** power
        sign = sign_of(factor, self.facts)
        return factor if sign in ABOVE else -factor if sign in BELOW else Abs(factor)

    def _absolute_sum(self, accumulator: Accumulator) -> Expr:
        term = live_term(accumulator.term, self.form.cascade.domain)
        return Reduce("sum", Mul(*map(self._absolute, Mul.make_args(term))), self.form.cascade.reduced_axes)

    # ---- as a rule ---------------------------------------------------------------------------------------------------

    def as_a_rule(self, sums: list[Cancellation]) -> Iterator[tuple[Part, ...]]:
        """The sentences on the usual size of κ, and on when it is large."""
        about = [one.value for one in self.form.slot_pivots]
        moving = {one.value for one in self.form.accumulators if self._holds(one, {*about})}
        differences = [one for one in sums if one.whole not in self.signed]
        about_centres = [one for one in differences if one.whole.atoms(Value) & moving or self._depends_on(one, moving)]
        if about_centres:
            yield ("In a difference about ", *comma_list(about), " it is about 1 as a rule, since what the terms ",
                   "share is taken off before they are summed; large where the result is small beside the deviations ",
                   "from ", *comma_list(about), ".")  # fmt: skip
        if len(about_centres) < len(differences):
            yield ("Where no centre shifts the terms it is about 1 unless they cancel: the value is then small beside ",
                   "what it is made of here. `finish(…, condition=True)` gives its size.")  # fmt: skip
        if any(one.terms.atoms(Reduce) for one in sums):
            yield ("Σ|…| over the elements stands for a sum whose terms may differ in sign: no more than that sum ",
                   "where one sign prevails, and large beside it where they cancel.")  # fmt: skip

    def _holds(self, accumulator: Accumulator, values: set[Value]) -> bool:
        return any(factor.atoms(Value) & values for factor in accumulator.factors)

    def _depends_on(self, cancellation: Cancellation, values: set[Value]) -> bool:
        return any(one.expr.atoms(Value) & values for one in self.form.assignments if one.value == cancellation.value)


def nested_sums(node: Any) -> Iterator[Expr]:
    """The sums in an expression, the outer before the inner, without those in exponents, conditions and reductions."""
    if isinstance(node, exp | Boolean | Reduce | Value):
        return
    if isinstance(node, Add):
        yield node
    for arg in node.args:
        if isinstance(arg, Expr):
            yield from nested_sums(arg)


def values_outside_exponents(node: Any) -> set[Value]:
    """The values in an expression, without those in exponents and conditions."""
    if isinstance(node, Value):
        return {node}
    if isinstance(node, exp | Boolean):
        return set()
    return {value for arg in node.args for value in values_outside_exponents(arg)}
