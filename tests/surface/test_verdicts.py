"""Verdicts other than yes: the full text of every message, and the parts of the values that `analyze` gives.

The cases are the "no" list of the theory, with a kink, a threshold, an exponent or a logarithm that moves with d, and
what stays undecided.
"""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sympy import (
    Abs,
    Expr,
    Max,
    Rational,
    erf,
    exp,
    floor,
    log,
    oo,
    sign,
    sin,
    sqrt,
)  # fmt: skip

import redalg as ra
from tests.cases.refusals import Case, each

b, n, e, k, q = ra.axes("b n e k q")
x, w, v, t = ra.tensors("x[b,n] w[b,n] v[n,e] t[b,n]")
base = ra.scalars("base")
mean = ra.sum(x * w, n) / ra.sum(w, n)
TWO_PASSES = (
    "Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor."
)
TOTAL, LARGEST = ra.sum(x, n), ra.max(Abs(x), n)
CENTRED = x - ra.mean(x, n)


def jensen_shannon() -> Expr:
    p, r = ra.softmax(x, n), ra.softmax(t, n)
    return ra.sum(p * log((p + r) / 2), n)


VERDICTS: dict[str, Case] = {
    "absolute deviation": Case(
        lambda: ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n)),
        ra.NotFusible,
        "the sum of `Abs(x[b, n] - mean(x[b, n], n))` has no one-pass form: it has a kink where its argument is 0, "
        "which moves with `mean(x[b, n], n)`: functions with kinks at different places are independent, so the rank "
        "is infinite. No state of fixed size holds what `mean(x[b, n], n)`, once known, would need of the elements "
        "already read. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the rest with it "
        "as a tensor.",
    ),
    "clipping": Case(
        lambda: ra.fuse(ra.sum(Max(x, ra.mean(x, n)), n)),
        ra.NotFusible,
        "the sum of `Max(x[b, n], mean(x[b, n], n))` has no one-pass form: it clips `x[b, n]` at a threshold that "
        "moves with `mean(x[b, n], n)`: every element may change side, so the rank is infinite. No state of fixed "
        "size holds what `mean(x[b, n], n)`, once known, would need of the elements already read. Run two passes: "
        "`ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "count above the mean": Case(
        lambda: ra.fuse(ra.sum(ra.where(x > ra.mean(x, n), 1, 0), n)),
        ra.NotFusible,
        "the sum of `where(x[b, n] > mean(x[b, n], n), 1, 0)` has no one-pass form: `x[b, n] > mean(x[b, n], n)` "
        "compares `x[b, n]` with `mean(x[b, n], n)`: the threshold moves with `mean(x[b, n], n)` and every element "
        "may change side, so the rank is infinite. No state of fixed size holds what `mean(x[b, n], n)`, once known, "
        "would need of the elements already read. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` "
        "first, then the rest with it as a tensor.",
    ),
    "Gaussian about the mean": Case(
        lambda: ra.fuse(ra.sum(exp(-((x - ra.mean(x, n)) ** 2)), n)),
        ra.NotFusible,
        "the sum of `exp(-(x[b, n] - mean(x[b, n], n))**2)` has no one-pass form: `exp(2*x[b, n]*mean(x[b, n], n))` "
        "couples `x[b, n]` with `mean(x[b, n], n)` through the product `2*x[b, n]*mean(x[b, n], n)` in an exponent: "
        "different factors give independent functions, so the rank is infinite. No state of fixed size holds what "
        "`mean(x[b, n], n)`, once known, would need of the elements already read. Run two passes: `ra.fuse(…, "
        "passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "exponential of x·d": Case(
        lambda: ra.fuse(ra.sum(exp(x * TOTAL), n)),
        ra.NotFusible,
        "the sum of `exp(x[b, n]*sum(x[b, n], n))` has no one-pass form: it couples `x[b, n]` with `sum(x[b, n], n)` "
        "through the product `x[b, n]*sum(x[b, n], n)` in an exponent: different factors give independent functions, "
        "so the rank is infinite. No state of fixed size holds what `sum(x[b, n], n)`, once known, would need of the "
        "elements already read. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the "
        "rest with it as a tensor.",
    ),
    "sigmoid of x·d": Case(
        lambda: ra.fuse(ra.sum(1 / (1 + exp(-x * TOTAL)), n)),
        ra.NotFusible,
        "the sum of `1/(1 + exp(-x[b, n]*sum(x[b, n], n)))` has no one-pass form: `exp(-x[b, n]*sum(x[b, n], n))` "
        "couples `x[b, n]` with `sum(x[b, n], n)` through the product `-x[b, n]*sum(x[b, n], n)` in an exponent: "
        "different factors give independent functions, so the rank is infinite. No state of fixed size holds what "
        "`sum(x[b, n], n)`, once known, would need of the elements already read. Run two passes: `ra.fuse(…, "
        "passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "sine of x·d": Case(
        lambda: ra.fuse(ra.sum(sin(x * TOTAL), n)),
        ra.NotFusible,
        "the sum of `sin(x[b, n]*sum(x[b, n], n))` has no one-pass form: it couples `x[b, n]` with `sum(x[b, n], n)` "
        "through the product `x[b, n]*sum(x[b, n], n)` in `sin`: different factors give independent functions, so the "
        "rank is infinite. No state of fixed size holds what `sum(x[b, n], n)`, once known, would need of the "
        "elements already read. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the "
        "rest with it as a tensor.",
    ),
    "Jensen-Shannon": Case(
        lambda: ra.fuse(jensen_shannon()),
        ra.NotFusible,
        "the sum of `exp(x[b, n] - max(x[b, n], n))*log(exp(t[b, n] - max(t[b, n], n))/(2*sum(exp(t[b, n] - max(t[b, "
        "n], n)), n)) + exp(x[b, n] - max(x[b, n], n))/(2*sum(exp(x[b, n] - max(x[b, n], n)), n)))/sum(exp(x[b, n] - "
        "max(x[b, n], n)), n)` has no one-pass form: `log(exp(t[b, n] - max(t[b, n], n))/(2*sum(exp(t[b, n] - "
        "max(t[b, n], n)), n)) + exp(x[b, n] - max(x[b, n], n))/(2*sum(exp(x[b, n] - max(x[b, n], n)), n)))` is a "
        "logarithm of a sum that mixes `t[b, n]` and `x[b, n]` with the reduced values, singular where that is 0, "
        "which moves with the reduced values: functions singular at different places are independent, so the rank is "
        "infinite. No state of fixed size holds what the reduced values, once known, would need of the elements "
        "already read. Run two passes: `ra.fuse(…, passes=2)` computes `max(x[b, n], n)` and `sum(exp(x[b, n] - "
        "max(x[b, n], n)), n)` and `max(t[b, n], n)` and `sum(exp(t[b, n] - max(t[b, n], n)), n)` first, then the "
        "rest with them as tensors.",
    ),
    "reciprocal": Case(
        lambda: ra.fuse(ra.sum(1 / CENTRED, n)),
        ra.NotFusible,
        "the sum of `1/(x[b, n] - mean(x[b, n], n))` has no one-pass form: it has a pole where `x[b, n] - mean(x[b, "
        "n], n)` is 0, which moves with `mean(x[b, n], n)`: functions with poles at different places are independent, "
        "so the rank is infinite. No state of fixed size holds what `mean(x[b, n], n)`, once known, would need of the "
        "elements already read. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the "
        "rest with it as a tensor.",
    ),
    "root": Case(
        lambda: ra.fuse(ra.sum(sqrt(x**2 + TOTAL**2), n)),
        ra.NotFusible,
        "the sum of `sqrt(x[b, n]**2 + sum(x[b, n], n)**2)` has no one-pass form: it is a power of a sum that mixes "
        "`x[b, n]` with `sum(x[b, n], n)`, singular where that is 0, which moves with `sum(x[b, n], n)`: functions "
        "singular at different places are independent, so the rank is infinite. No state of fixed size holds what "
        "`sum(x[b, n], n)`, once known, would need of the elements already read. Run two passes: `ra.fuse(…, "
        "passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "rounding by floor": Case(
        lambda: ra.fuse(ra.sum(floor(127 * x / LARGEST + Rational(1, 2)) * w, n)),
        ra.NotFusible,
        "the sum of `floor(127*x[b, n]/max(Abs(x[b, n]), n) + 1/2)*w[b, n]` has no one-pass form: `floor(127*x[b, "
        "n]/max(Abs(x[b, n]), n) + 1/2)` jumps at places that move with `max(Abs(x[b, n]), n)`: every element may "
        "cross one, so the rank is infinite. No state of fixed size holds what `max(Abs(x[b, n]), n)`, once known, "
        "would need of the elements already read. Run two passes: `ra.fuse(…, passes=2)` computes `max(Abs(x[b, n]), "
        "n)` first, then the rest with it as a tensor.",
    ),
    "sign": Case(
        lambda: ra.fuse(ra.sum(sign(CENTRED), n)),
        ra.NotFusible,
        "the sum of `sign(x[b, n] - mean(x[b, n], n))` has no one-pass form: it jumps at places that move with "
        "`mean(x[b, n], n)`: every element may cross one, so the rank is infinite. No state of fixed size holds what "
        "`mean(x[b, n], n)`, once known, would need of the elements already read. Run two passes: `ra.fuse(…, "
        "passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "no theorem": Case(
        lambda: ra.fuse(ra.sum(erf(CENTRED), n)),
        ra.NotFusible,
        "the sum of `erf(x[b, n] - mean(x[b, n], n))` has no one-pass form: it applies `erf` to what mixes `x[b, n]` "
        "with `mean(x[b, n], n)`, and has no addition theorem known to redalg; it is no sum of at most 8 products of "
        "a function of `x[b, n]` and one of `mean(x[b, n], n)`, since its matrix at samples, in 120 digits, has a "
        "minor of order 9 that is not 0. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, "
        "then the rest with it as a tensor.",
    ),
    "product": Case(
        lambda: ra.fuse(ra.prod(x - TOTAL, n)),
        ra.NotFusible,
        "the prod of `x[b, n] - sum(x[b, n], n)` has no one-pass form: it is a product over sums that mix `x[b, n]` "
        "with `sum(x[b, n], n)`: its expansion has as many terms as there are elements. No state of fixed size holds "
        "what `sum(x[b, n], n)`, once known, would need of the elements already read. Run two passes: `ra.fuse(…, "
        "passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "unknown base": Case(
        lambda: ra.fuse(ra.sum(base ** (x - TOTAL), n)),
        ra.NotDecided,
        "the sum of `base**(x[b, n] - sum(x[b, n], n))` has no one-pass form that redalg found: it is real only where "
        "`base` is not negative, which is not known. Declare it: `ra.scalars('base', positive=True)`. Or run two "
        "passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the rest with it as a tensor.",
    ),
    "samples that contradict a theorem": Case(
        lambda: ra.fuse(ra.sum(floor(x / LARGEST), n)),
        ra.NotDecided,
        "the sum of `floor(x[b, n]/max(Abs(x[b, n]), n))` has no one-pass form that redalg found: it jumps at places "
        "that move with `max(Abs(x[b, n]), n)`: every element may cross one, so the rank is infinite in general. Yet "
        "at 24 samples of `x[b, n]` the term has the rank of a sum of 2 products of a function of `x[b, n]` and one "
        "of `max(Abs(x[b, n]), n)`, which redalg did not find. Run two passes: `ra.fuse(…, passes=2)` computes "
        "`max(Abs(x[b, n]), n)` first, then the rest with it as a tensor.",
    ),
    "too rare for samples": Case(
        lambda: ra.fuse(ra.sum(ra.where(ra.eq(n + 0 * x, ra.argmax(x, n) + 1), w, 0), n)),
        ra.NotDecided,
        "the sum of `where(Eq(n, argmax(x[b, n], n) + 1), w[b, n], 0)` has no one-pass form that redalg found: `Eq(n, "
        "argmax(x[b, n], n) + 1)` compares `n` with `argmax(x[b, n], n)`: the threshold moves with `argmax(x[b, n], "
        "n)` and every element may change side, so the rank is infinite in general. Yet at 24 samples of `n` the term "
        "has the rank of a sum of 2 products of a function of `n` and one of `argmax(x[b, n], n)`, which redalg did "
        "not find. Run two passes: `ra.fuse(…, passes=2)` computes `argmax(x[b, n], n)` first, then the rest with it "
        "as a tensor.",
    ),
    "what attains, beside d": Case(
        lambda: ra.fuse(ra.max(ra.where(x < LARGEST, x - TOTAL, -oo), n)),
        ra.NotDecided,
        "the max of `where(x[b, n] < max(Abs(x[b, n]), n), x[b, n] - sum(x[b, n], n), -oo)` has no one-pass form that "
        "redalg found: `x[b, n] < max(Abs(x[b, n]), n)` asks which elements attain an extremum, and under a max or "
        "min redalg knows what to hold of them only where both branches are free of `max(Abs(x[b, n]), n)`. Write "
        "`where(u == max u, w, z)` with w and z free of `max(Abs(x[b, n]), n)` right under the max or min, and take "
        "what holds `max(Abs(x[b, n]), n)` out of it. Or run two passes: `ra.fuse(…, passes=2)` computes "
        "`max(Abs(x[b, n]), n)` first, then the rest with it as a tensor.",
    ),
    "not understood": Case(
        lambda: ra.fuse(ra.min(Abs(exp(x) - ra.sum(exp(x), n) / 4), n)),
        ra.NotDecided,
        "the min of `Abs(exp(x[b, n]) - sum(exp(x[b, n]), n)/4)` has no one-pass form that redalg found: it is "
        "neither monotone nor quasiconcave in `exp(x[b, n])` for every `sum(exp(x[b, n]), n)`, as far as redalg can "
        "tell, so that its min need not lie at an end of the range of `exp(x[b, n])`. Run two passes: `ra.fuse(…, "
        "passes=2)` computes `sum(exp(x[b, n]), n)` first, then the rest with it as a tensor.",
    ),
}


@each(VERDICTS)
def test_verdicts(case: Case) -> None:
    case.check()


def test_a_refusal_has_its_parts() -> None:
    with pytest.raises(ra.NotFusible) as error:
        ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n))
    assert error.value.reduction == "sum_1"
    assert "Abs(x[b, n] - mean(x[b, n], n))" in error.value.reason
    assert error.value.hint == TWO_PASSES
    assert error.value.evidence[0] == "term: Abs(x[b, n] - mean(x[b, n], n))"
    assert error.value.term == "Abs(x[b, n] - mean(x[b, n], n))"
    assert error.value.subject == f"the sum of `{error.value.term}`"


def test_analyze_gives_verdicts_as_values() -> None:
    assert isinstance(ra.analyze(mean), ra.Exact)
    refusal = ra.analyze(ra.mean(Abs(x - ra.mean(x, n)), n))
    assert isinstance(refusal, ra.Refused)
    assert refusal.reduction == "sum_1"
    assert [type(ra.analyze(one)).__name__ for one in (
        mean, ra.sum(ra.cast(x / LARGEST, "float16") * w, n), ra.mean(Abs(CENTRED), n), ra.sum(base ** (x - TOTAL), n),
    )] == [
        "Exact", "Approximate", "Refused", "Undecided",
    ]  # fmt: skip


EXPLAINED: dict[str, tuple[Expr, str]] = {
    "by a theorem": (
        ra.mean(Abs(CENTRED), n),
        (
            "The sum of `Abs(x[b, n] - mean(x[b, n], n))` has no state of fixed size, by a theorem. `Abs(x[b, n] - "
            "mean(x[b, n], n))` has a kink where its argument is 0, which moves with `mean(x[b, n], n)`: functions "
            "with kinks at different places are independent, so the rank is infinite. No state of fixed size holds "
            "what `mean(x[b, n], n)`, once known, would need of the elements already read. Term: Abs(x[b, n] - "
            "mean(x[b, n], n)). Rank test: the matrix of the term at 24 elements, in data sets that hold them all, "
            "has a rank above 8. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], n)` first, then the "
            "rest with it as a tensor."
        ),
    ),
    "by samples": (
        ra.sum(erf(x - TOTAL), n),
        (
            "The sum of `erf(x[b, n] - sum(x[b, n], n))` has no separation of small rank, by samples. `erf(x[b, n] - "
            "sum(x[b, n], n))` applies `erf` to what mixes `x[b, n]` with `sum(x[b, n], n)`, and has no addition "
            "theorem known to redalg; it is no sum of at most 8 products of a function of `x[b, n]` and one of "
            "`sum(x[b, n], n)`, since its matrix at samples, in 120 digits, has a minor of order 9 that is not 0. "
            "Term: erf(x[b, n] - sum(x[b, n], n)). Rank test: the matrix of the term at 24 elements, in data sets "
            "that hold them all, has a rank above 8. Run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], "
            "n)` first, then the rest with it as a tensor."
        ),
    ),
    "undecided": (
        ra.sum(base ** (x - TOTAL), n),
        (
            "The sum of `base**(x[b, n] - sum(x[b, n], n))` is undecided: no state was found, and none was excluded. "
            "`base**(x[b, n] - sum(x[b, n], n))` is real only where `base` is not negative, which is not known. Term: "
            "base**(x[b, n] - sum(x[b, n], n)). Rank test: the matrix of the term at 24 elements, in data sets that "
            "hold them all, has rank 1. The rank looks like 1; no separation was found. Declare it: "
            "`ra.scalars('base', positive=True)`. Or run two passes: `ra.fuse(…, passes=2)` computes `sum(x[b, n], "
            "n)` first, then the rest with it as a tensor."
        ),
    ),
}


@pytest.mark.parametrize(("expr", "text"), EXPLAINED.values(), ids=EXPLAINED)
def test_a_verdict_explains_itself_in_sentences(expr: Expr, text: str) -> None:
    made = ra.analyze(expr)
    assert not isinstance(made, ra.Exact | ra.Approximate)
    assert str(made) == text


def test_a_certificate_is_a_theorem_and_the_samples() -> None:
    for name, case in VERDICTS.items():
        with pytest.raises(case.kind) as error:
            case.call()
        assert isinstance(error.value, ra.NotFusible | ra.NotDecided)
        assert error.value.certificate == (name != "no theorem" and case.kind is ra.NotFusible)
        assert any("rank test: " in one for one in error.value.evidence)


@pytest.mark.parametrize(("size", "kind"), [(4, ra.Undecided), (16, ra.Undecided), (17, ra.Refused),
                                            (4096, ra.Refused)])  # fmt: skip
def test_elements_of_a_small_axis_are_a_state_of_fixed_size(size: int, kind: type) -> None:
    short = ra.axis("short", size=size)
    z = ra.tensor("z[b,short]")
    verdict = ra.analyze(ra.sum(Abs(z - ra.mean(z, short)), short))
    assert type(verdict) is kind
    if isinstance(verdict, ra.Refused):
        assert verdict.certificate
        assert "No state whose size does not grow with |short| holds" in verdict.reason


@pytest.mark.parametrize("term", [lambda d: exp(-n * d), lambda d: sin(n * d), lambda d: Abs(n - d)])
def test_a_term_of_the_index_alone_is_not_refused(term: Callable[[Expr], Expr]) -> None:
    """Its sum follows from d and from the number of elements, whatever the theorems say of data."""
    assert isinstance(ra.analyze(ra.sum(term(ra.max(x, n)), n)), ra.Undecided)


def test_a_refusal_pickles() -> None:
    with pytest.raises(ra.NotFusible) as error:
        ra.fuse(ra.mean(Abs(CENTRED), n))
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.certificate, again.evidence) == (str(error.value), True, error.value.evidence)


def test_no_theorem_speaks_of_what_lies_beside_its_own_extremum() -> None:
    """The largest element below the maximum has a state: the two largest values. Below the mean there is none."""
    top, mean = ra.max(x, n), ra.mean(x, n)
    for condition, verdict in (
        (x < top, "Exact"), (ra.logical_and(x < top, x > 0), "Exact"), (ra.logical_or(x < top, x > mean), "Undecided"),
    ):  # fmt: skip
        assert type(ra.analyze(ra.max(ra.where(condition, x, -oo), n))).__name__ == verdict
    below_mean = ra.analyze(ra.max(ra.where(x < mean, x, -oo), n))
    assert isinstance(below_mean, ra.Refused)
    assert below_mean.certificate


# ---- the form, when it is asked for ----------------------------------------------------------------------------------


def underived(expr: Expr) -> ra.Fused:
    """What a verdict holds, of which no form has been asked for."""
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Exact)
    return verdict.fused


def test_a_verdict_derives_no_form_and_fuse_does() -> None:
    variance = ra.var(x, n)
    decided, fused = underived(variance), ra.fuse(variance)
    assert "form" not in vars(decided)
    assert "form" in vars(fused)
    assert str(decided.form) == str(fused.form)
    assert decided == fused


def test_threads_that_ask_at_once_get_one_form() -> None:
    fused = underived(ra.sum(ra.softmax(x, n) * v, n))
    start = threading.Barrier(4)

    def asked(_: int) -> int:
        start.wait()
        return id(fused.form)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(asked, range(4))) == {id(fused.form)}


def test_what_is_pickled_holds_the_form() -> None:
    fused = underived(ra.var(x, n))
    copied = pickle.loads(pickle.dumps(fused))
    assert "form" in vars(copied)
    assert str(copied.form) == str(fused.form)
