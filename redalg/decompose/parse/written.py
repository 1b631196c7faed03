"""The user's input: outputs by name with their axes, in spellings that are accepted or refused by name."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from keyword import iskeyword
from typing import Any

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.decompose.parse.foreign import in_own_nodes, one_axis_per_name
from redalg.errors import ExpressionError
from redalg.expression import Axis, Element, Scalar
from redalg.expression.axis import split_names
from redalg.expression.contents import of_kind

OPTIONS = ("backend", "plan", "empty", "precision", "sizes", "check", "by", "groups", "budget_s", "seed", "progress")
"""Options of a call, and of `tune`: names that no tensor may bear."""


Written = dict[str, tuple[Expr, tuple[Axis, ...] | None]]
"""Outputs by name: each an adopted expression with its ordered axes (None: to be found)."""


def named_outputs(expr: Any, axes: str | None) -> tuple[Written, bool]:
    """Outputs by name, adopted, with one `Axis` for every name over all of them; and True if a single one was given."""
    single = not isinstance(expr, Mapping)
    check_spelling(expr, axes)
    pairs = {"out": (expr, axes)} if single else {
        name: output if isinstance(output, tuple) else (output, None) for name, output in expr.items()}  # fmt: skip
    if not pairs:
        raise ExpressionError("fuse: name at least one output, and give each its own axes: {'lse': (expr, \"b h q\")}.")
    if not single and axes is not None:
        each = ", ".join(f'"{name}": (…, "{axes if isinstance(axes, str) else "b h q"}")' for name in pairs)
        raise ExpressionError("fuse: axes= is for a single output, and a dict gives each output its own axes. Write "
                              f"{{{each}}}.")  # fmt: skip
    together = one_axis_per_name([in_own_nodes(one) for one, _ in pairs.values()])
    known = {axis.name: axis for axis in of_kind(Axis, *together)}
    outputs = {}
    for name, adopted in zip(pairs, together, strict=True):
        spec = pairs[name][1]
        named = split_names(spec, "axes") if spec else []  # axes="" is a scalar output
        outputs[name] = (adopted, None if spec is None else tuple(known.get(a, Axis(a)) for a in named))
    return {name: (one, () if spec is None and not known else spec) for name, (one, spec) in outputs.items()}, single


def check_spelling(expr: Any, axes: Any) -> None:
    """Raise an error unless axes are one string, and every output's name can be a field of a namedtuple."""
    specs = [] if isinstance(expr, list | tuple) else [axes]  # several outputs without names are refused elsewhere
    if isinstance(expr, Mapping):
        specs = [one[1] for one in expr.values() if isinstance(one, tuple) and len(one) == 2]
        wrong = next((name for name, one in expr.items() if isinstance(one, tuple) and len(one) != 2), None)
        if wrong is not None:
            raise ExpressionError(f"fuse: output `{wrong}` is a tuple of {len(expr[wrong])}. Give an expression, or an "
                                  f'expression and its axes: {{"{wrong}": (expr, "b h q")}}.')  # fmt: skip
    for spec in specs:
        if spec is not None and not isinstance(spec, str):
            names = spec if isinstance(spec, tuple | list) else (spec,)
            written = " ".join(map(str, names)) if all(isinstance(each, str | Axis) for each in names) else "b h q"
            raise ExpressionError(f'fuse: axes should be a string of names, not {spec!r}. Write axes="{written}".')
        twice = [name for name, count in Counter((spec or "").split()).items() if count > 1]
        if twice:
            raise ExpressionError(f'fuse: axes="{spec}" names {twice[0]} twice. Name each axis of the output once.')
    for name in expr if isinstance(expr, Mapping) else ():
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            raise ExpressionError(f"fuse: an output cannot be named {name!r}: outputs are the fields of a namedtuple. "
                                  "Use an identifier without a leading underscore.")  # fmt: skip


def check_expression_names(cascade: Cascade, inputs: Sequence[Element]) -> None:
    """Check names: options are reserved, a name has one meaning, and `inputs` names tensors of the expression."""
    names = (*cascade.inputs(), *(one.name for one in cascade.scalars()))
    twice = [name for name in cascade.inputs() if name in {one.name for one in cascade.scalars()}]
    if twice:
        raise ExpressionError(f"`{twice[0]}` names a tensor and a scalar. Rename one of them.")
    signs = {(one.name, one.label.assumption or "of any sign") for one in cascade.elements()}
    both = [name for name in cascade.inputs() if sum(other == name for other, _ in signs) > 1]
    if both:
        declarations = " and ".join(sorted(sign for name, sign in signs if name == both[0]))
        raise ExpressionError(f"tensor `{both[0]}` is declared {declarations}. Declare it once, and use that.")
    reserved = [name for name in names if name in OPTIONS]
    if reserved:
        raise ExpressionError(f"a tensor is named `{reserved[0]}`, which is an option of the call. Rename the tensor; "
                              f"the reserved names are {', '.join(OPTIONS)}.")  # fmt: skip
    one_alone = isinstance(inputs, Element | str) or not isinstance(inputs, Iterable)
    if one_alone or not all(isinstance(one, Element | Scalar) for one in inputs):
        raise ExpressionError(
            f"fuse: inputs should be a sequence of tensor elements, inputs=(Q, K, V), not {inputs!r}."
        )
    own = [one.name for one in cascade.reductions] + [one.name for one in cascade.producers]
    own += [name for name, _ in cascade.names]
    clash = [name for name in own if name in names]
    if clash:
        raise ExpressionError(f"the reduction `{clash[0]}` bears the name of an input. Name the reduction otherwise by "
                              f"`ra.let`, or rename the input.")  # fmt: skip
    foreign = [str(one) for one in inputs if one.name not in names]
    if foreign:
        raise ExpressionError(
            f"fuse(inputs=): {', '.join(foreign)} not in the expression, which has {', '.join(names)}."
        )


@cache
def outputs_type(names: tuple[str, ...]) -> type:
    """The type of several outputs."""
    return namedtuple("Outputs", names)


def unread_inputs(outputs: Iterable[tuple[str, Expr]], cascades: Iterable[Cascade]) -> dict[str, Element | Scalar]:
    """The tensors and scalars, by name, that were written and that no cascade reads, as a scale > 0 inside an argmax.

    >>> from redalg import argmax, axes, fuse, scalars, tensor
    >>> from sympy import exp
    >>> at = argmax(exp(scalars("t", positive=True) * tensor("x[n]")), axes("n"))
    >>> unread_inputs([("at", at)], [fuse(at).cascade])
    {}
    """
    read = {name for one in cascades for name in (*one.inputs(), *(scalar.name for scalar in one.scalars()))}
    exprs = [expr for _, expr in outputs]
    inputs = {one.name: one for one in (*of_kind(Element, *exprs), *of_kind(Scalar, *exprs))}
    return {name: inputs[name] for name in sorted(inputs.keys() - read)}
