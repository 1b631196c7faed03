"""The exact algebra under a derivation: Laurent polynomials, spans, centring, transitions, and forms that verify."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sympy import Add, Symbol

import redalg as ra
from redalg.decompose.domain import live_term
from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Atoms, Polynomial
from redalg.decompose.separate.span import Span
from redalg.incremental.arrays.interpret import produce
from redalg.incremental.arrays.numpy_ops import NumpyOps
from redalg.incremental.derive.centre import centre
from redalg.runtime.bind.arrays import scope_for
from redalg.runtime.bind.inputs import bind
from tests.cases.cascades import Data, Example, cascades, data, n, v, w, x

small = st.integers(-3, 3)
fractions = st.fractions(min_value=-3, max_value=3, max_denominator=4)
exponents = st.fractions(min_value=-2, max_value=3, max_denominator=2).filter(bool)


def monomials(numbers: range) -> st.SearchStrategy[laurent.Monomial]:
    return st.dictionaries(st.sampled_from(numbers), exponents, max_size=2).map(lambda one: tuple(sorted(one.items())))


polynomials = st.dictionaries(
    st.tuples(monomials(range(2)), monomials(range(2, 4))), fractions.filter(bool), max_size=4
)
vectors = st.dictionaries(monomials(range(3)), fractions.filter(bool), max_size=4)


@given(polynomials, polynomials, polynomials)
def test_laurent_polynomials_are_a_commutative_ring(a: Polynomial, b: Polynomial, c: Polynomial) -> None:
    add, multiply = laurent.add, laurent.multiply
    assert add(a, b) == add(b, a)
    assert add(add(a, b), c) == add(a, add(b, c))
    assert add(a, laurent.scale(a, -1)) == {}
    assert multiply(a, b) == multiply(b, a)
    assert multiply(multiply(a, b), c) == multiply(a, multiply(b, c))
    assert multiply(a, laurent.ONE) == a
    assert multiply(a, add(b, c)) == add(multiply(a, b), multiply(a, c))


@given(polynomials, st.integers(0, 3), st.integers(0, 2))
def test_powers_add_their_exponents(a: Polynomial, p: int, q: int) -> None:
    assert laurent.multiply(laurent.raise_to(a, p), laurent.raise_to(a, q)) == laurent.raise_to(a, p + q)


@given(polynomials, st.lists(st.floats(0.5, 2), min_size=4, max_size=4))
def test_a_polynomial_is_its_expression(a: Polynomial, point: list[float]) -> None:
    atoms = Atoms()
    symbols = [Symbol(f"a{number}", positive=True) for number in range(4)]
    for number, symbol in enumerate(symbols):
        assert atoms.number(Atom(symbol, on_x=number < 2, exponential=False)) == number
    want = sum(
        float(c) * np.prod([point[number] ** float(q) for number, q in x_part + d_part])
        for (x_part, d_part), c in a.items()
    )
    got = float(atoms.polynomial_expr(a).subs(dict(zip(symbols, point, strict=True))))
    assert got == pytest.approx(want, rel=1e-12, abs=1e-12)


@given(polynomials, fractions)
def test_substitution_composes(a: Polynomial, c: Fraction) -> None:
    """X → X + c → X + c − c is the identity, where it is a polynomial in X."""
    generator: Polynomial = {(((0, Fraction(1)),), ()): Fraction(1)}
    there = laurent.substitute(a, 0, laurent.add(generator, laurent.constant_polynomial(c)))
    assume(there is not None)
    assert there is not None
    assert laurent.substitute(there, 0, laurent.add(generator, laurent.constant_polynomial(-c))) == a


@given(st.lists(vectors, max_size=6), vectors)
def test_span_coordinates_rebuild_the_vector(given_vectors: list[laurent.Vector], other: laurent.Vector) -> None:
    span = Span()
    for vector in given_vectors:
        span.add(vector)
    for vector in given_vectors:
        assert rebuilt(span, vector) == vector
    inside = span.coordinates(other)
    grown = span.add(other)
    assert grown is (inside is None)
    assert len(span.basis) == rank([*given_vectors, other])


def rebuilt(span: Span, vector: laurent.Vector) -> laurent.Vector:
    out: laurent.Vector = {}
    for index, c in (span.coordinates(vector) or {}).items():
        for key, value in span.basis[index].items():
            laurent.accumulate(out, key, c * value)
    return out


def rank(given_vectors: list[laurent.Vector]) -> int:
    """The rank by SymPy's exact elimination."""
    from sympy import Matrix, Rational

    keys = sorted({key for vector in given_vectors for key in vector})
    rows = [[Rational(*vector.get(key, Fraction(0)).as_integer_ratio()) for key in keys] for vector in given_vectors]
    return Matrix(rows).rank() if keys else 0


# ---- derivations -----------------------------------------------------------------------------------------------------


def derived(example: Example) -> ra.Fused:
    try:
        return ra.fuse(example.expr, axes=example.axes)
    except (ra.NotDecided, ra.NotFusible):
        assume(False)
        raise


@given(cascades())
def test_every_stage_verifies(example: Example) -> None:
    made = derived(example)
    made.cascade.verify()
    made.decomposition.verify()
    made.form.verify()


@given(cascades(), data(lengths=(5,), dtypes=("float64",)))
def test_separations_equal_their_terms(example: Example, given_data: Data) -> None:
    """Σ h·g is the term on arrays, whatever the earlier values are (`verify` compares symbols)."""
    made = derived(example)
    bound = bind(made.cascade, given_data.of(made.cascade), given_data.extents(made.cascade))
    scope = scope_for(made.cascade, bound, NumpyOps(), bound.tensors)
    with np.errstate(all="ignore"):
        scope.values.update(produce(made.cascade, scope))
        for place, value in enumerate(made.cascade.values):
            scope.values[value] = np.full([1] * len(scope.axes), 0.5 + 0.25 * place)
        for one in made.decomposition.separations:
            if one.reduction.monoid.name == "sum":
                want = scope.number(live_term(one.reduction.term, made.cascade.domain))
                parts = [scope.number(g * term) for g, h in zip(one.g, one.h, strict=True) for term in Add.make_args(h)]
                scale = sum(np.abs(part) for part in parts)
                live = np.broadcast_to(
                    np.isfinite(want) & np.isfinite(scale), np.broadcast_shapes(want.shape, scale.shape)
                )
                assert (np.abs(sum(parts) - want) <= 1e-13 * (scale + np.abs(want)) + 1e-300)[live].all()


@given(cascades())
def test_centring_never_changes_the_term(example: Example) -> None:
    """Substituting X − v(d) back for Z gives the polynomial that was separated."""
    made = derived(example)
    separator = made.decomposition.separator
    for one in made.decomposition.separations:
        if one.reduction.monoid.name == "sum":
            centred = centre(one, separator)
            back = centred.polynomial
            for atom, shift in centred.centres.items():
                generator = separator.atoms.polynomial(separator.atoms.list[atom])
                moved = laurent.substitute(back, atom, laurent.add(generator, laurent.scale(shift, -1)))
                assert moved is not None
                back = moved
            assert back == one.polynomial
            assert len(centred.polynomial) <= len(one.polynomial)


def test_a_centre_that_may_run_away_is_not_taken() -> None:
    """x·d + 1 is not centred at −1/d: a value of d near 0 would send the pivot to infinity."""
    made = ra.fuse(ra.mean((x + w * x * ra.var(x, n)) * v, n), axes="b e")
    assert {str(one.base) for one in made.form.pivots} == {"x[b, n]"}


def test_a_centre_outside_the_data_is_not_a_pivot() -> None:
    """(x − S)² with S = Σ x² is pivoted at the mean of each block: moments about a far S would cancel."""
    made = ra.fuse(ra.mean((x - ra.sum(x**2, n)) ** 2, n), axes="b")
    [pivot] = made.form.pivots
    assert str(pivot.source) == "sum_1_acc/count"  # Σ (x − c) / N


@pytest.mark.parametrize(
    ("expr", "ranks"),
    [
        (ra.var(x, n), {"sum_1": 3}),
        (ra.mean((x - ra.mean(x, n)) ** 3, n), {"sum_1": 4}),
        (ra.mean((x - ra.mean(x, n)) * (w - ra.mean(w, n)), n), {"sum_2": 4}),
        (ra.logsumexp(x, n), {"max_0": 1, "sum_0": 1}),
        (ra.sum(w + x * ra.sum(x, n), n), {"sum_1": 2}),
    ],
)
def test_ranks_are_those_of_the_theory(expr: object, ranks: dict[str, int]) -> None:
    found = ra.fuse(expr, axes="b").rank
    assert {name: found[name] for name in ranks} == ranks
