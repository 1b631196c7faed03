"""Expression -> Cascade: which axis is streamed, which reductions form the cascade, which are producers.

Rewrites, each exact:

    α-renaming       Σ_i f(X[i]) → Σ_n f(X[n])              n not free in f; both index the same tensor dimension
    unrolling        Σ_j f(j) → f(0) + … + f(J−1)           j of fixed size ≤ 16, and f(j) holds a reduced value
    exchange         Σ_n A·Σ_j g + C → Σ_j Σ_n A·g + Σ_n C  A, C free of j; g holds a reduced value
    count            |n| → Σ_n 1                            n the streamed axis, so that streaming stays right
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, final

from sympy import Add, Dummy, Expr, S
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade, Output, Producer, Reduction, free_axes
from redalg.decompose.domain import with_domain
from redalg.errors import ExpressionError
from redalg.expression import Axis, Element, Extent, Let, Reduce, Value
from redalg.monoids import monoid

UNROLL_LIMIT = 16


def parse(outputs: Mapping[str, tuple[Expr, tuple[Axis, ...] | None]]) -> Cascade:
    """The cascade of named outputs, each an adopted expression with its ordered axes (None: to be found)."""
    written = {name: unroll(same_names(expr)) for name, (expr, _) in outputs.items()}
    names = display_names(list(written.values()))
    exprs = {name: without_names(expr) for name, expr in written.items()}
    axis = streamed_axis(list(exprs.values()))
    builder = _Builder(axis, names)
    lifted = {name: builder.lift(expr, inside=False) for name, expr in exprs.items()}
    made = tuple(_output(name, lifted[name], outputs[name][1], axis, exprs[name]) for name in exprs)
    refuse_foreign_axis(axis, builder, list(exprs.values()))
    cascade = with_domain(Cascade(axis, tuple(builder.reductions), tuple(builder.producers), made))
    cascade.verify()
    return cascade


def without_names(node: Basic) -> Any:
    """The expression without its `let`s, whose values are those of what they name."""
    if isinstance(node, Let):
        return without_names(node.expr)
    args = [without_names(arg) for arg in node.args]
    return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)


def display_names(exprs: list[Expr]) -> dict[Expr, str]:
    """Expression -> the name that a `let` gives it, wherever else it stands."""
    made: dict[Expr, str] = {}
    for let in sorted({one for expr in exprs for one in expr.atoms(Let)}, key=str):
        named = without_names(let)
        other = next((expr for expr, name in made.items() if name == let.name and expr != named), None)
        if other is not None:
            raise ExpressionError(
                f'let: the name "{let.name}" is given to `{other}` and to `{named}`. Give each a name of its own.'
            )
        made.setdefault(named, let.name)
    return made


def refuse_foreign_axis(axis: Axis, builder: _Builder, written: list[Expr]) -> None:
    """An axis on which no term depends is a mistake in its name, not a reduction."""
    if not any(axis in free_axes(one.term) for one in builder.reductions):
        node = next(one for expr in written for one in outermost(expr))
        found = ", ".join(map(str, ordered({a for expr in written for a in expr.atoms(Axis)} - {axis})))
        raise ExpressionError(
            f"`{node}` is reduced over axis {axis}, which no tensor or condition in it carries; the other axes are "
            f"{found or 'none'}. Reduce over an axis of its tensors, or multiply by `{axis}.extent`."
        )


# ---- which axis ------------------------------------------------------------------------------------------------------


def outermost(expr: Basic) -> Iterator[Reduce]:
    """The reductions that stand in no other reduction."""
    if isinstance(expr, Reduce):
        yield expr
    else:
        for arg in expr.args:
            yield from outermost(arg)


def streamed_axis(exprs: list[Expr]) -> Axis:
    """The one axis over which the outputs are reduced; an outer Σ over reduced values only is an epilogue."""
    tops = [node for expr in exprs for node in outermost(expr)]
    if not tops:
        raise ExpressionError(
            f"`{exprs[0]}` reduces over no axis. Write a reduction of it, such as `ra.sum(expr, n)`; "
            "an expression without one needs no fusion."
        )
    for node in tops:
        if len(node.bound) > 1:
            raise ExpressionError(
                f"`{node}` reduces over {len(node.bound)} axes at once, which is not supported yet. "
                f"Nest it: `ra.{node.kind}(ra.{node.kind}(expr, {node.bound[1]}), {node.bound[0]})`."
            )
    found = list(dict.fromkeys(streams(node) for node in tops))
    if len(found) > 1:
        raise ExpressionError(
            f"the outputs are reduced over unrelated axes {', '.join(map(str, found))}: "
            f"{'; '.join(str(node) for node in tops)}. One pass streams one axis: fuse them one by one."
        )
    return found[0]


def streams(node: Reduce) -> Axis:
    """The axis that a reduction streams: its own, or that of the reduced values when it sums nothing else."""
    inner = list(outermost(node.expr))
    axis = node.bound[0]
    numbered = [one for one in inner if one.place == axis]
    if numbered:
        return streams(numbered[0])
    if node.kind == "sum" and inner and not _bare_elements(node.expr) and any(_cascades(one) for one in inner):
        return streams(inner[0])
    return axis


def _bare_elements(expr: Basic) -> bool:
    if isinstance(expr, Reduce):
        return False
    return isinstance(expr, Element) or any(map(_bare_elements, expr.args))


def _cascades(node: Reduce) -> bool:
    return any(set(one.bound) == set(node.bound) for one in node.expr.atoms(Reduce))


# ---- preparation -----------------------------------------------------------------------------------------------------


def same_names(expr: Expr) -> Expr:
    """α-rename inner bound axes to the outer ones that index the same tensor dimensions (see the module)."""

    def visit(node: Basic, outer: Mapping[tuple[str, int], Axis]) -> Basic:
        if isinstance(node, Reduce):
            for place in _places(node.expr, node.bound[0]):
                other = outer.get(place)
                if other is not None and other not in node.bound and other not in free_axes(node.expr):
                    node = node.rebuilt(node.expr.xreplace({node.bound[0]: other}), [other, *node.bound[1:]])
                    break
            outer = {**outer, **{place: axis for axis in node.bound for place in _places(node.expr, axis)}}
        args = [visit(arg, outer) for arg in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)

    return visit(expr, {})


def _places(expr: Expr, axis: Axis) -> list[tuple[str, int]]:
    return sorted({(one.name, place) for one in expr.atoms(Element) for place, index in enumerate(one.indices)
                   if index == axis})  # fmt: skip


def unroll(node: Any, streamed: frozenset[Axis] = frozenset()) -> Any:
    """Write out sums over axes of small fixed size whose terms hold reduced values (see the module).

    A value is reduced when it is so over an axis that an outer reduction streams, or when the sum streams none itself.
    """
    if not isinstance(node, Reduce):
        args = [unroll(arg, streamed) for arg in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)
    [axis, *more] = node.bound
    values = [one for one in node.expr.atoms(Reduce) if axis in free_axes(one)]
    if any(one.place == axis for one in values):  # the elements of one result, which the state holds together
        return node
    holds = any(streamed & set(one.bound) for one in values) or (values and not streamed and streams(node) != axis)
    if holds and node.kind == "sum" and not more and axis.size is not None and axis.size <= UNROLL_LIMIT:
        return unroll(Add(*(node.expr.subs(axis, place) for place in range(axis.size))), streamed)
    inner = unroll(node.expr, streamed | set(node.bound))
    return node if inner is node.expr else node.rebuilt(inner, node.bound)


# ---- lifting ---------------------------------------------------------------------------------------------------------


@final
class _Builder:
    """Replaces reductions by `Value`s, innermost first, and collects what they stand for."""

    def __init__(self, axis: Axis, names: Mapping[Expr, str], *, streamed: bool = True) -> None:
        self.axis, self.names, self.streamed = axis, names, streamed
        self.reductions: list[Reduction] = []
        self.producers: list[Producer] = []
        self.known: dict[Expr, Expr] = {}
        self.counts: Counter[str] = Counter()

    def lift(self, node: Basic, *, inside: bool) -> Expr:
        """The node with every reduction replaced; `inside` a reduction over the streamed axis or not."""
        if isinstance(node, Extent) and node.name == self.axis.name and self.streamed:
            return self._count()
        if isinstance(node, Reduce):
            if node not in self.known:
                self.known[node] = self._reduce(node, inside=inside, hint=self.names.get(node))
            return self.known[node]
        if inside and node in self.names and (axis := self._other_axis(node)) is not None:
            if node not in self.known:
                self.known[node] = self._produce(node, axis, self.names[node], self.names[node])
            return self.known[node]
        if not node.args or isinstance(node, Element):
            return node
        args = [self.lift(arg, inside=inside) for arg in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)

    def _reduce(self, node: Reduce, *, inside: bool, hint: str | None) -> Expr:
        if node.bound == (self.axis,):
            term = self.lift(node.expr, inside=True)
            if node.kind == "prod" and any(one.value in term.atoms(Value) for one in self.reductions):
                self._count()  # Π g·h = (Π g)·h^n, for which the state must hold n
            return self._exchanged(node.kind, term) or self._add(node.kind, term, hint, node.result, node.place)
        if not any(self.axis in one.bound for one in node.expr.atoms(Reduce)):
            return self._produce(node, node.bound[0], f"{node.kind}_{node.bound[0]}", hint)
        body = self.lift(node.expr, inside=inside)
        if node.kind == "sum":
            return Reduce("sum", body, node.bound)
        raise ExpressionError(
            f"`{node}` is a {node.kind} over {node.bound[0]} of values reduced over {self.axis}, which is not "
            "supported yet. Return its operands as outputs and reduce those."
        )

    def _exchanged(self, kind: str, term: Expr) -> Expr | None:
        """Σ_n A·Σ_j g + C → Σ_j Σ_n A·g + Σ_n C."""
        inner = next((one for one in sorted(term.atoms(Reduce), key=str)), None)
        if inner is None:
            return None
        hole = Dummy("hole")
        opened = term.xreplace({inner: hole})
        factor = opened.diff(hole)
        if kind != "sum" or factor.has(hole) or set(inner.bound) & free_axes(opened):
            raise ExpressionError(
                f"`{inner}` reduces values over {inner.bound[0]} inside a {kind} over {self.axis}, in which it does "
                "not stand linearly. Give the axis a size, so that it is written out."
            )
        rest = opened.xreplace({hole: S.Zero})
        first = Reduce("sum", self._add(kind, factor * inner.expr, None), inner.bound)
        return first if rest is S.Zero else first + (self._exchanged(kind, rest) or self._add(kind, rest, None))

    def _add(self, kind: str, term: Expr, hint: str | None, result: str = "", place: Axis | None = None) -> Value:
        for one in self.reductions:
            if (one.monoid.name, one.term, one.result, one.place) == (kind, term, result, place):
                return one.value
        axes = free_axes(term) - {self.axis} | ({place} if place else set())
        name = self._name(f"{kind}_{result}" if result else kind, hint)
        made = Reduction(name, monoid(kind), term, ordered(axes), result, place)
        self.reductions.append(made)
        return made.value

    def _count(self) -> Value:
        return self._add("sum", S.One, "count")

    def _name(self, stem: str, hint: str | None) -> str:
        taken = {one.name for one in self.reductions} | {one.name for one in self.producers}
        if hint is not None and hint not in taken:
            return hint
        name = f"{stem}_{self.counts[stem]}"
        self.counts[stem] += 1
        return name if name not in taken else self._name(stem, None)

    def _other_axis(self, node: Basic) -> Axis | None:
        """The one axis, not the streamed one, over which a named expression is reduced: it is a producer as a whole."""
        inner = list(outermost(node))
        axes = {axis for one in inner for axis in one.bound}
        streamed = any(self.axis in one.bound for one in node.atoms(Reduce))
        return axes.pop() if len(axes) == 1 and not streamed else None

    def _produce(self, node: Expr, axis: Axis, stem: str, hint: str | None) -> Value:
        if any(len(one.bound) > 1 for one in outermost(node)):
            raise ExpressionError(f"`{node}` reduces over several axes at once, which is not supported yet. "
                                  "Nest one reduction in the other.")  # fmt: skip
        axes = ordered(free_axes(node))
        name = self._name(stem, hint)
        inner = _Builder(axis, {one: said for one, said in self.names.items() if one != node}, streamed=False)
        expr = inner.lift(node, inside=False)
        cascade = Cascade(axis, tuple(inner.reductions), tuple(inner.producers), (Output(name, expr, axes),))
        self.producers.append(Producer(name, axes, cascade))
        return self.producers[-1].value


def ordered(axes: set[Axis]) -> tuple[Axis, ...]:
    """Axes in order of name: a canonical order where no one else gives one."""
    return tuple(sorted(axes, key=lambda axis: str(axis.name)))


def _output(name: str, expr: Expr, axes: tuple[Axis, ...] | None, axis: Axis, written: Expr) -> Output:
    free = free_axes(expr)
    if axes is None:
        axes = total_order(free, written)
    foreign = [one for one in axes if one not in free]
    missing = [one for one in ordered(free) if one not in axes]
    if foreign or missing:
        said = [f"{', '.join(map(str, foreign))} not among its free axes"] * bool(foreign)
        said += [f"{', '.join(map(str, missing))} missing"] * bool(missing)
        call = " ".join([str(one) for one in axes if one in free] + [str(one) for one in missing])
        raise ExpressionError(
            f'output `{name}`: axes "{" ".join(map(str, axes))}" have {" and ".join(said)}. '
            f'Its free axes are {{{", ".join(map(str, ordered(free)))}}}: write axes="{call}".'
        )
    return Output(name, expr, axes, carries=axis in free)


def total_order(free: set[Axis], expr: Expr) -> tuple[Axis, ...]:
    """The one order of `free` that the tensors' index orders fix, or an error that writes the call to make."""
    after: dict[Axis, set[Axis]] = {}
    for element in expr.atoms(Element):
        plain = [index for index in element.indices if isinstance(index, Axis)]
        for place, one in enumerate(plain):
            after.setdefault(one, set()).update(plain[place + 1 :])
    left, order = set(free), list[Axis]()
    while left:
        first = [one for one in ordered(left) if not any(one in _reach(other, after) for other in left - {one})]
        if len(first) != 1:
            call = " ".join(map(str, [*order, *ordered(left)]))
            raise ExpressionError(
                "the tensors' index orders do not fix one order of the output axes "
                f'{{{", ".join(map(str, ordered(free)))}}}. Say it, for instance axes="{call}".'
            )
        order.append(first[0])
        left.remove(first[0])
    return tuple(order)


def _reach(axis: Axis, after: Mapping[Axis, set[Axis]]) -> set[Axis]:
    seen, todo = set[Axis](), [axis]
    while todo:
        for one in after.get(todo.pop(), ()):
            if one not in seen:
                seen.add(one)
                todo.append(one)
    return seen
