"""Monoids of the user: their laws are checked at registration, and a law that fails is an error with its case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, final

from sympy import Expr, Symbol, SympifyError, Tuple, sympify

from redalg.errors import ExpressionError, LawViolation
from redalg.monoids.derivatives import DERIVATIVE, rule_violation
from redalg.monoids.laws import DOMAINS, Violation, violation
from redalg.monoids.monoid import Component, Monoid, Parts, Result, as_given, as_held
from redalg.monoids.table import KNOWN, MONOIDS

WRITE = (
    "Its arguments are SymPy expressions. Write `ra.where` for `if` and np.where, `sympy.Max` and `sympy.Min` for max "
    "and min, and `sympy.exp`, `sympy.log` … for functions of NumPy, math or PyTorch."
)
"""The advice where a user's function does not take expressions."""


def register_monoid(
    name: str,
    *,
    components: Mapping[str, Any],
    combine: Callable[[Parts, Parts], Any],
    lift: Callable[..., Any] | None = None,
    lower: Callable[..., Any] | None = None,
    results: Sequence[str] = (),
    domain: str | Sequence[str] = "finite",
    sign: str = "⊕",
    integers: Sequence[str] = (),
    commutative: bool = True,
    idempotent: bool = False,
    exact: bool = False,
    edges: Sequence[Sequence[Any]] = (),
    vjp: Callable[[Parts, Parts, Parts], Any] | None = None,
) -> Monoid:
    """Register a monoid, so that `ra.reduce(name, *operands, axis=n)` reduces by it on every backend.

    All functions take and give SymPy expressions; branches are written by `ra.where`, maxima by SymPy's `Max`.

    Args:
        name: its word, an identifier; a name that was registered before is replaced, redalg's own are not.
        components: what an element consists of, with the identity: `{"max": -oo, "count": 0}`.
        combine: (a, b) -> a ⊕ b, each a tuple of components; a comes before b.
        lift: (operand, …, index) -> components of one place; left out, the operands are the components.
        lower: components -> the result or results; left out, the components are the results.
        results: names of the results where there are several; left out, those of the components.
        domain: what the operands may be, one word for all or one for each: `finite`, `extended` (with ±∞), `positive`,
            `nonnegative`, `count`, `natural`, `truth`, `logarithm` (with −∞).
        sign: the infix sign that derivations print.
        integers: components that are integers (held in 64 bits; a kernel computes them by + - * // and mod of one
            another, by max, min and `ra.where`, and by the index).
        commutative, idempotent, exact: the laws that it declares; pieces of a monoid that is not commutative are
            merged in order only. `exact`: combining rounds nothing.
        edges: operands at which the laws are checked besides random ones, a sequence for each case.
        vjp: (total, element, g) -> the adjoint of each component of an element, each a tuple of components: `total` is
            what all elements make, `element` one of them after `lift`, and `g` the adjoints of the total's components.
            `lift` and `lower` are differentiated by redalg. What it gives for a component in `integers` is not used.
            Left out, functions of the reduction have no derivative.

    Raises:
        LawViolation: a law fails, or `vjp` is not the derivative; the message and the attributes give the law, the
            elements and both sides.
        ExpressionError: the definition is not one.

    >>> import redalg as ra
    >>> from sympy import Max, Min, oo
    >>> ra.register_monoid(
    ...     "bounds", components={"low": oo, "high": -oo}, domain="extended", idempotent=True, exact=True,
    ...     lift=lambda x, n: (x, x), combine=lambda a, b: (Min(a[0], b[0]), Max(a[1], b[1])),
    ... ).name
    'bounds'
    >>> ra.reduce("bounds", ra.tensor("x[b,n]"), axis=ra.axes("n"))
    (bounds(x[b, n], n).low, bounds(x[b, n], n).high)

    A product whose derivative divides the total by the element:

    >>> ra.register_monoid(
    ...     "positive_product", components={"value": 1}, domain="positive", combine=lambda a, b: a[0] * b[0],
    ...     vjp=lambda total, element, g: g[0] * total[0] / element[0],
    ... ).name
    'positive_product'
    """
    _check_name(name, components, integers)
    parts = tuple(Component(one, _identity(name, one, value), one in integers) for one, value in components.items())
    number = len(parts) if lift is None else _operands_of(name, lift)
    domains = (domain,) * number if isinstance(domain, str) else tuple(domain)
    _check_domains(name, domains, number)
    cases = tuple(tuple(sympify(one) for one in edge) for edge in edges)
    lifting = as_given if lift is None else Checked(f"{name}: lift", lift, len(parts))
    joining = Checked(f"{name}: combine", combine, len(parts))
    a, b, adjoints = (_symbols(word, parts) for word in ("a", "b", "g"))
    lifting(*(Symbol(f"x_{place}", extended_real=True) for place in range(number)), Symbol("index", integer=True))
    joining(a, b)
    lowering, names = _results(name, lower, tuple(results), parts, a)
    rule = None if vjp is None else Checked(f"{name}: vjp", vjp, len(parts))
    if rule is not None:
        rule(a, b, adjoints)
    if rule is not None and lower is not None:
        lowering, names = WithParts(lowering), (*names, *_hidden_results(name, parts, names))
    monoid = Monoid(name, sign, parts, joining, domains, lifting, lowering, names, commutative, idempotent, exact,
                    edges=cases, vjp=rule)  # fmt: skip
    failure = violation(monoid) or rule_violation(monoid)
    if failure is not None:
        raise LawViolation(_sentence(name, failure), failure.law, failure.elements, failure.left, failure.right)
    MONOIDS[name] = monoid
    return monoid


@final
class Checked:
    """A user's function that gives expressions, `number` of them if that is known (one may stand without a tuple)."""

    def __init__(self, what: str, function: Callable[..., Any], number: int | None = None) -> None:
        self.what, self.function, self.number = what, function, number

    def __call__(self, *args: Any) -> Parts:
        try:
            result = self.function(*args)
        except ExpressionError:
            raise
        except Exception as error:
            given = ", ".join(map(str, args))
            raise ExpressionError(
                f"register_monoid: {self.what} fails at ({given}), with {type(error).__name__}: {error}. {WRITE}"
            ) from error
        parts = tuple(result) if isinstance(result, tuple | list | Tuple) else (result,)
        if self.number is not None and len(parts) != self.number:
            raise ExpressionError(f"register_monoid: {self.what} gives {len(parts)} parts, and {self.number} are due.")
        return tuple(map(self._expression, parts))

    def _expression(self, part: Any) -> Expr:
        """A part as an expression; `ExpressionError` if it is none."""
        try:
            expression = sympify(part, strict=True)
        except SympifyError:
            expression = None
        if isinstance(expression, Expr):
            return expression
        raise ExpressionError(
            f"register_monoid: {self.what} gives {part!r}, a {type(part).__name__}, and expressions are due. {WRITE}"
        )


@final
class WithParts:
    """A function of components that gives them after its results, for derivatives."""

    def __init__(self, function: Callable[..., Parts]) -> None:
        self.function = function

    def __call__(self, *parts: Any) -> Parts:
        return *self.function(*parts), *parts


def _hidden_results(name: str, parts: tuple[Component, ...], results: tuple[Result, ...]) -> list[Result]:
    """The components as results."""
    made = [Result(f"state_{part.name}", "int64" if part.integer else "", hidden=True) for part in parts]
    if clash := {one.name for one in made} & {one.name for one in results}:
        raise ExpressionError(f"register_monoid: {name} has a result named {clash.pop()}, which is what derivatives "
                              "call its component. Name the result otherwise.")  # fmt: skip
    return made


def _operands_of(name: str, lift: Callable[..., Any]) -> int:
    """The number of operands that `lift` takes before the index; `ExpressionError` if it takes none, or any number."""
    try:
        arguments = signature(lift).parameters.values()
    except ValueError:  # of functions in C
        arguments = None
    if arguments is None or any(one.kind > one.POSITIONAL_OR_KEYWORD for one in arguments):
        raise ExpressionError(
            f"register_monoid: {name}: lift does not tell how many operands it takes. Name each, and the index of "
            "their place last: lift=lambda x, index: (x,)."
        )
    names = [one.name for one in arguments]
    if len(names) < 2:
        taken = f"takes {names[0]} alone" if names else "takes nothing"
        operand = names[0] if names else "x"
        raise ExpressionError(
            f"register_monoid: {name}: lift {taken}, and it is given the operands, then the index of their place. "
            f"Write lift=lambda {operand}, index: …, even if the index is not used."
        )
    return len(names) - 1


def _symbols(word: str, parts: tuple[Component, ...]) -> Parts:
    """A symbol for each component of an element."""
    return tuple(
        Symbol(f"{word}_{part.name}", integer=True) if part.integer else
        Symbol(f"{word}_{part.name}", extended_real=True)
        for part in parts
    )  # fmt: skip


def _identity(name: str, component: str, value: Any) -> Expr:
    """The identity's value of a component; `ExpressionError` if it is no number."""
    try:
        number = sympify(value, strict=True)
    except SympifyError:
        number = None
    if isinstance(number, Expr) and number.is_number and number.is_extended_real:
        return number
    raise ExpressionError(
        f"register_monoid: the identity of {name} has {component} = {value!r}, a {type(value).__name__}, and a number "
        "is due. Write a number, or SymPy's oo or -oo."
    )


def _results(
    name: str, lower: Callable[..., Any] | None, results: tuple[str, ...], parts: tuple[Component, ...], sample: Parts
) -> tuple[Callable[..., Parts], tuple[Result, ...]]:
    """The map to results, and their names."""
    if lower is None:
        names = results or (tuple(part.name for part in parts) if len(parts) > 1 else ("",))
        lowering: Callable[..., Parts] = as_held
        number = len(parts)
    else:
        number = len(Checked(f"{name}: lower", lower)(*sample))
        names = results or (("",) if number == 1 else tuple(f"result_{place}" for place in range(number)))
        lowering = Checked(f"{name}: lower", lower, number)
    if len(names) != number or len({*names}) != number:
        choose = " Give a name to every component, or choose by `lower=`." if lower is None else ""
        raise ExpressionError(
            f"register_monoid: {name} gives {number} results, and results= has {len(names)} names.{choose}"
        )
    dtypes = ["int64" if part.integer else "" for part in parts] if lower is None else [""] * number
    return lowering, tuple(map(Result, names, dtypes))


def _check_name(name: str, components: Mapping[str, Any], integers: Sequence[str]) -> None:
    for word in (name, *components):
        if not isinstance(word, str) or not word.isidentifier():
            raise ExpressionError(f"register_monoid: {word!r} is not a name. Write an identifier.")
    if name in {one.name for one in KNOWN}:
        raise ExpressionError(f"register_monoid: {name} is redalg's own. Give the monoid another name.")
    unknown = [one for one in integers if one not in components]
    if not components or unknown:
        reason = f"integers names {unknown[0]}, which is none of them" if unknown else "there are none"
        raise ExpressionError(f"register_monoid: {name} needs components, name to identity, and {reason}.")


def _check_domains(name: str, domains: tuple[str, ...], number: int) -> None:
    unknown = [one for one in domains if one not in DOMAINS]
    if unknown:
        raise ExpressionError(f"register_monoid: {unknown[0]!r} is no domain. Use one of {', '.join(DOMAINS)}.")
    if len(domains) != number or not number:
        raise ExpressionError(
            f"register_monoid: {name} has {number} operands, and {len(domains)} domains are given. Give one for each."
        )


def _sentence(name: str, failure: Violation) -> str:
    advice = "Mend `combine` or the identity."
    if "commutativity" in failure.law:
        advice = "Mend `combine`, or declare commutative=False: its pieces are then merged in order."
    if "idempotence" in failure.law:
        advice = "Mend `combine`, or leave idempotent=True out."
    if failure.law == DERIVATIVE:
        return (f"register_monoid: the vjp of {name} is not its derivative: {failure}. Mend `vjp`: it is given the "
                "total, an element of it and the adjoints of the total's components.")  # fmt: skip
    return f"monoid {name} is none as declared: {failure}. {advice}"
