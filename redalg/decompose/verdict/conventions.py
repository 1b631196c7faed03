"""The meaning of a NaN, an infinity and a mask: the one table that every backend and the definition follow.

    written                            what counts
    where(c, a, b)                     the branch that c chooses; what the other holds is as if it were not there
    [c]·f, [c] = where(c, 1, 0)        0 where c fails, whatever f is: a factor of 1 and 0 is a mask
    exp(u + v), u = −∞                 0, whatever v is; of exp((u + v)/0) what IEEE 754 says: to divide by 0 is no mask
    Σ exp(u)·f, u = −∞                 the term is 0, whatever f is of what varies along the axis: it has no weight
    Σ exp(u)·f, exp(u) too small       0·f: NaN where f is not finite. To underflow is no mask
    0·log 0, and 0·(log 0 + …)         0, as in p·log p; so Σ exp(x)·x takes x = −∞ for 0, as p·log p of p = exp(x)
    all else                           IEEE 754: ∞ − ∞, 0·∞, 0/0 and log of less than 0 are NaN, and NaN stays
    max, min, topk, argmax             NaN before every number, the first NaN first
    no element, or none that counts    Σ 0, Π 1, max −∞, min ∞, ratios 0/0

A sum may read a ratio of weighted sums: Σ exp(u)·(x − Σ exp(u)·x/Σ exp(u)). In a row where every u is −∞, it has the
value of that ratio: 0/0, NaN or 0 as `empty` says. By the table alone it is 0, since no element has a weight.

If a result is not finite, it is not promised which non-finite value it is. In a matrix product Σ_k exp(u[q,k])·f[k,e],
a row q may read elements that another row needs: if f is not finite there, row q need not be finite. The functions
below find the conditions under which this table differs from IEEE 754 in a cascade at hand; `explain` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Add, Expr, Mul, S

from redalg.decompose.extrema.extremal import GENERATOR
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.expression import UNDEFINED, Element, Scalar, Value, Where
from redalg.expression.contents import of_kind, sympy_text, values_of


def weights(decomposition: Decomposition) -> tuple[Expr, ...]:
    """The exponents u of sums Σ exp(u)·f: an element with u = −∞ does not count, whatever f is there.

    >>> from sympy import exp
    >>> from redalg import axes, fuse, sum, tensors
    >>> s, v = tensors("s[n] v[n]")
    >>> weights(fuse(sum(exp(s) * v, axes("n"))).decomposition)
    (s[n],)
    """
    exponents = (u for one in decomposition.separations for u in _weights(one))
    return tuple(dict.fromkeys(exponents))


def _weights(separation: Separation) -> Iterator[Expr]:
    atoms = separation.atoms.list
    for x, _ in separation.polynomial:
        if len(x) > 1:
            yield from (atoms[number].base for number, _ in x if atoms[number].exponential)


def selections(decomposition: Decomposition) -> tuple[Separation, ...]:
    """The selections by φ_d(u), made by u: they equal those by φ if no factor of φ is infinite (`selected`)."""
    kinds = ("argmax", "argmin", "topk")
    return tuple(separation for separation in decomposition.separations
                 if separation.reduction.monoid.name in kinds and separation.times == "∘")  # fmt: skip


def extrema_with_factors(decomposition: Decomposition) -> tuple[tuple[Separation, Expr], ...]:
    """Extrema of φ_d(u) that are made of extrema of u, with each factor of d: a 0·∞ at a single element is not seen.

    >>> from sympy import Abs
    >>> from redalg import axes, fuse, max, tensor
    >>> n, x = axes("n"), tensor("x[n]")
    >>> [factor for _, factor in extrema_with_factors(fuse(max(x / max(Abs(x), n), n)).decomposition)]
    [1/max_0]
    """
    pairs = [(separation, {factor for phi in separation.extremal.h for factor in free_parts(phi) if values_of(factor)})
             for separation in decomposition.separations if separation.extremal]  # fmt: skip
    return tuple((one, factor) for one, factors in pairs for factor in sorted(factors, key=sympy_text))


def free_parts(phi: Expr, kind: type[Add | Mul] = Mul) -> Iterator[Expr]:
    """Yield the factors of φ that are free of u, or its terms if `kind` is Add."""
    if isinstance(phi, kind):
        free = kind(*(arg for arg in phi.args if not arg.has(GENERATOR)))
        if free.has(Value, Element, Scalar):
            yield free
    for arg in phi.args:
        if arg.has(GENERATOR):
            yield from free_parts(arg, kind)


def ties(decomposition: Decomposition) -> tuple[tuple[Value, Value], ...]:
    """Pairs (d, v): v is taken at or below the largest u + d, and is NaN if d is not finite: all u + d are then alike.

    >>> from redalg import axes, fuse, max, sum_at_max, tensors
    >>> x, y, z = tensors("x[n] y[n] z[n]")
    >>> n = axes("n")
    >>> ties(fuse(sum_at_max(x - max(y, n), z, n)).decomposition)
    ((max_0, sum_at_max_0),)
    """
    cascade, pairs = decomposition.cascade, dict[tuple[Value, Value], None]()
    attained = {one.value for one in cascade.reductions if one.monoid.name.endswith(("_at_max", "_below_max"))}
    exprs = [*(one.term for one in cascade.reductions), *(one.expr for one in cascade.outputs)]
    for node in (node for expr in exprs for node in of_kind(Add, expr)):
        lost = [one for one in node.args if isinstance(one, Where) and one.args[1:] == (S.Zero, UNDEFINED)]
        sums = sorted(
            attained & {value for one in node.args if one not in lost for value in values_of(one)}, key=sympy_text
        )
        values = sorted({value for one in lost for value in values_of(one)}, key=sympy_text)
        pairs |= {(d, v): None for d in values for v in sums}
    return tuple(pairs)
