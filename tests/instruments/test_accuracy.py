"""Accuracy: which formulas lose on which data; what is drawn; what the reference cannot tell."""

from __future__ import annotations

import json
import math
import re
import sys
from fractions import Fraction
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import erf, exp, log, sqrt

import redalg as ra
from redalg.definition.arrays import Numpy
from redalg.definition.digits import Digits
from redalg.expression.operators import OPERATORS
from redalg.instruments.accuracy import Accuracy, AccuracyRow
from redalg.instruments.drawing import JUDGED, MEASURED, Setting, extent_of
from redalg.instruments.errors import Output, Truth, error_text, output_error
from redalg.instruments.families import DATA_FAMILIES
from redalg.instruments.reference import Definition
from redalg.library import PATTERNS, grouped_query_attention, info_nce, kurtosis, variance

b, n, k = ra.axes("b n k")
x = ra.tensor("x[b,n]")
SMALL = {"b": 4, "n": 256}
FAMILIES = {one.name: one for one in DATA_FAMILIES}
naive_variance = ra.fuse(ra.mean(x**2, n) - ra.mean(x, n) ** 2)


def by_data(found: Accuracy, **chosen: str) -> dict[str, AccuracyRow]:
    rows = [row for row in found.rows if all(getattr(row, name) == one for name, one in chosen.items())]
    return {row.data: row for row in rows}


@pytest.fixture(scope="module")
def judged() -> Accuracy:
    return naive_variance.accuracy(SMALL, dtypes=["float32", "float64", "float16"])


def test_a_formula_that_cancels_is_beaten_far_from_zero(judged: Accuracy) -> None:
    rows = by_data(judged, dtype="float32")
    assert rows["ordinary"].redalg < 1e-6
    assert rows["offset 1e4"].redalg < 1e-6 < 1.0 < rows["offset 1e4"].naive
    assert rows["offset 1e4"].verdict.endswith("times less")
    assert rows["constant"].redalg == 0 < rows["constant"].naive


def test_data_beyond_a_dtype_are_not_drawn(judged: Accuracy) -> None:
    assert "offset 1e6" not in by_data(judged, dtype="float16")
    assert by_data(judged, dtype="float16")["offset 1e4"].verdict == "only redalg is finite"


def test_float64_is_judged_by_more_digits(judged: Accuracy) -> None:
    rows = by_data(judged, dtype="float64")
    assert judged.reference == "float64 or 120 digits or long double"
    assert 0 < rows["ordinary"].redalg < 1e-14
    assert 0 < rows["ordinary"].inputs < 1e-15


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_backends(backend: str) -> None:
    rows = by_data(kurtosis().accuracy(SMALL, backend=backend, families=["ordinary", "huge", "constant"]))
    assert rows["ordinary"].redalg < 1e-5
    assert rows["huge"].verdict == "only redalg is finite"
    assert rows["constant"].verdict.startswith("no reference")  # 0/0
    assert math.isnan(rows["constant"].redalg)


def test_a_kernel() -> None:
    pytest.importorskip("tilelang")
    rows = by_data(variance().accuracy(SMALL, backend="tilelang", families=["offset 1e4"]))
    assert rows["offset 1e4"].redalg < 1e-5


def test_an_overflow_of_the_reference_is_no_error_of_redalg() -> None:
    """exp of 1e4 is in the range of long double alone, exp of 1e6 in none but that of digits."""
    rows = by_data(ra.fuse(log(ra.sum(exp(x), n))).accuracy(SMALL, families=["offset 1e4", "offset 1e6"]))
    for row in rows.values():
        assert row.verdict == "only redalg is finite"
        assert row.redalg < 1e-6
        assert math.isinf(row.naive)


def test_several_outputs_and_no_value_of_any() -> None:
    both = ra.fuse({"m": (ra.max(x, n), "b"), "at": (ra.argmax(x, n), "b")})
    found = both.accuracy(SMALL, families=["ordinary", "-inf masked"])
    assert {(row.output, row.redalg) for row in found.rows} == {("m", 0.0), ("at", 0.0)}
    assert "output" in found.table().columns


def test_own_data(judged: Accuracy) -> None:
    data = torch.linspace(1e4, 1e4 + 1, 64).reshape(2, 32)
    found = naive_variance.accuracy(data={"x": data})
    [row] = found.rows
    assert (row.data, row.dtype, row.output) == ("data", "float32", "out")
    assert row.redalg < 1e-5 < 1e-1 < row.naive
    assert "x (2, 32)" in str(found)
    with pytest.raises(ra.InputError, match="data= holds no tensor"):
        naive_variance.accuracy(data={})


def test_two_passes_and_scalars() -> None:
    a = ra.scalars("a", negative=True)
    absolute = ra.fuse(a * ra.mean(abs(x - ra.mean(x, n)), n), passes=2)
    assert by_data(absolute.accuracy(SMALL, families=["ordinary"]))["ordinary"].redalg < 1e-5


def test_a_failure_is_a_row() -> None:
    best, _ = ra.topk(x, n, ra.axis("t", size=2))  # no output keeps t, so that there is no kernel
    other = ra.fuse(ra.sum(best, ra.axis("t", size=2))).accuracy(SMALL, backend="tilelang", families=["ordinary"])
    assert other.rows[0].verdict == "failed"
    assert "is kept for every t, which no output has" in other.rows[0].failure


# ---- a reference that cancels, too -----------------------------------------------------------------------------------

m1, m2, m3 = (ra.mean(x**power, n) for power in (1, 2, 3))
raw_skewness = ra.fuse((m3 - 3 * m1 * m2 + 2 * m1**3) / sqrt(m2 - m1**2) ** 3)


def exact_skewness(row: Any) -> float:
    """The skewness of a row, about the exact mean."""
    numbers = [Fraction(float(one)) for one in row]
    mean = sum(numbers) / len(numbers)
    second, third = (sum((one - mean) ** power for one in numbers) / len(numbers) for power in (2, 3))
    return float(third) / float(second) ** 1.5


@pytest.mark.parametrize(("dtype", "few"), [("float32", 5e-7), ("float64", 2e-15)])
def test_a_call_is_not_charged_with_the_error_of_its_reference(dtype: str, few: float) -> None:
    """Of raw moments at 1e6 float64 keeps no digit, and long double none."""
    data = np.random.default_rng(0).normal(1e6, 1.0, (3, 128)).astype(dtype)
    [row] = raw_skewness.accuracy(data={"x": data}).rows
    assert row.reference == "120 digits"
    assert row.doubt == 0
    assert row.redalg < few
    wanted = np.array([exact_skewness(one) for one in data])
    assert np.abs(raw_skewness(x=data) - wanted).max() / np.abs(wanted).max() == pytest.approx(row.redalg, abs=few / 4)
    assert np.abs(raw_skewness.reference(x=data) - wanted).max() > 0.01 * np.abs(wanted).max()


def test_a_sample_of_many_outputs_is_judged() -> None:
    data = np.random.default_rng(0).normal(1e6, 1.0, (512, 256)).astype("float32")
    definition = Definition(raw_skewness, {"x": data}, {}, "float32")
    known = definition.reference()
    [rows] = known.parts["out"]
    assert 0 < rows.stop < 512
    assert known.outputs["out"].array.shape == (rows.stop,)
    assert raw_skewness.accuracy(data={"x": data}).worst.redalg < 1e-6


def test_a_call_is_blamed_by_digits_alone() -> None:
    """Shares of scores of 1e-30 tie in float64 and in long double, which rank them by place; the call does not."""
    tied = ra.fuse({"at": (ra.argmax(ra.softmax(x, n), n), "b")})
    data = (1e-30 * np.random.default_rng(0).normal(size=(3, 64))).astype("float32")
    [row] = tied.accuracy(data={"x": data}).rows
    assert (row.reference, row.redalg, row.naive) == ("120 digits", 0.0, 1.0)
    assert (tied(x=data).at == data.argmax(1)).all()
    assert (tied.reference(x=data).at == 0).all()


def test_what_no_reference_tells_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one output takes too many operations on digits, the call is not blamed."""
    monkeypatch.setattr("redalg.instruments.reference.MOST", 100)
    found = raw_skewness.accuracy(SMALL, families=["ordinary", "offset 1e6"])
    rows = by_data(found)
    assert rows["ordinary"].is_told
    assert not rows["offset 1e6"].is_told
    assert rows["offset 1e6"].verdict.startswith("reference errs by ")
    assert found.worst.data == "ordinary"
    assert re.search(r"offset 1e6 +<\S+ +<", str(found))
    assert "smaller sizes tell the error" in str(found)
    assert json.loads(found.to_json())["rows"][1]["doubt"]


def test_functions_without_long_double_are_doubted_too() -> None:
    """erf has none: its doubt is what moving the data by a last digit changes."""
    bent = ra.fuse(ra.mean(erf(x / 1e6) ** 2, n) - ra.mean(erf(x / 1e6), n) ** 2)
    data = 1e6 + np.random.default_rng(0).normal(0.0, 1e-2, (2, 64))
    [row] = bent.accuracy(data={"x": data}).rows
    assert row.reference == "120 digits"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["kurtosis", "softmax", "grouped_query_attention", "cross_entropy", "info_nce"])
def test_digits_agree_with_long_double(name: str) -> None:
    """The definition in 120 digits is what long double has where nothing cancels."""
    fused = PATTERNS[name].build()
    drawn = setting(fused, "float64", library="numpy")
    definition = Definition(fused, drawn.draw(), drawn.absent_sizes, "float64")
    exact = definition.in_digits(definition.tensors)
    assert exact is not None
    near = definition.evaluate(definition.tensors, "longdouble")
    for output, part in exact.parts.items():
        array = exact.outputs[output].array
        assert np.abs(array - near[output].array[part]).max() <= 1e-16 * np.abs(array).max()


def test_digits_have_the_functions_that_a_definition_has() -> None:
    digits, floats = Digits(), Numpy()
    one, two = np.array([0.5, 0.25, 0.75]), np.array([0.5, -0.25, 2.0])
    for name, function in floats.functions.items():
        if name == "Scaled":
            continue
        inputs = OPERATORS[name].inputs if name in OPERATORS else 1 + (name == "pow")
        given = [one + 1 if name == "acosh" else one, two][:inputs]
        made = digits.functions[name](*map(digits.float, given))
        np.testing.assert_allclose(np.array(made, float), function(*given), rtol=1e-15, err_msg=name)
    with np.errstate(all="ignore"):
        odd = digits.float(np.array([0.0, -1.0, math.inf, math.nan]))
        for name in ("log", "sqrt", "exp", "Abs", "sign", "IsNaN", "Infinite"):
            wanted = floats.functions[name](np.array([0.0, -1.0, math.inf, math.nan]))
            np.testing.assert_array_equal(np.array(digits.functions[name](odd), float), np.float64(wanted), name)
        np.testing.assert_array_equal(np.array(1 / odd, float), [math.inf, -1, 0, math.nan])
        np.testing.assert_array_equal(np.array(odd / (0 * odd[:1]), float), [math.nan, -math.inf, math.inf, math.nan])


@given(hnp.arrays(np.float64, 8, elements=st.floats(-1e5, 1e5)))
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float8_e4m3fn", "int8", "int32"])
def test_digits_are_rounded_to_dtypes(dtype: str, numbers: Any) -> None:
    digits, floats = Digits(), Numpy()
    with np.errstate(all="ignore"):
        wanted = floats.round_to(numbers, dtype)
    np.testing.assert_array_equal(np.array(digits.round_to(digits.float(numbers), dtype), float), wanted)


# ---- the value -------------------------------------------------------------------------------------------------------


def test_a_table_of_80_columns(judged: Accuracy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = str(judged).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "accuracy, b=4 n=256, float32, float64, float16"
    assert sum(line.startswith(" offset 1e4 ") for line in lines) == 3


def test_its_other_forms(judged: Accuracy) -> None:
    assert "<table>" in judged._repr_html_()
    content = json.loads(judged.to_json())
    assert len(content["rows"]) == len(judged.rows)
    assert {row["naive"] for row in content["rows"] if isinstance(row["naive"], str)} == {"inf"}
    assert judged.worst.redalg == max(row.redalg for row in judged.rows)
    figure = judged.plot()
    [axes] = figure.axes
    assert axes.get_xscale() == "log"
    assert [one.get_text() for one in axes.get_legend().get_texts()] == ["redalg", "naive formula"]
    figure.canvas.draw()


def test_no_matplotlib(judged: Accuracy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ra.BackendError, match=re.escape('pip install "redalg[plot]"')):
        judged.plot()


def test_what_does_not_fit_is_told() -> None:
    for text, call in {
        "there is no family 'none'. There are ordinary, offset 1e4": lambda: naive_variance.accuracy(families=["none"]),
        "sizes: there is no axis `q` here. The axes are b, n.": lambda: naive_variance.accuracy({"q": 3}),
        "'float12' is no dtype of redalg": lambda: naive_variance.accuracy(SMALL, dtypes="float12"),
    }.items():
        with pytest.raises(ra.InputError, match=re.escape(text)):
            call()


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "wanted", "error"),
    [
        (np.float32([1, 2]), [1.0, 4.0], 0.5),
        (np.float32([1, np.inf]), [1.0, np.nan], 0.0),  # which value it is that is not finite does not count
        (np.float32([1, np.nan]), [1.0, 2.0], math.inf),
        (np.float32([1, 2]), [1.0, np.nan], math.inf),
        (np.float16([1, np.inf]), [1.0, 1e6], 0.0),  # beyond float16
        (np.array([3, 4, 5]), np.array([3, 4, 6]), 1 / 3),
        (np.float32([]), [], 0.0),
    ],
)
def test_the_measure(out: Any, wanted: Any, error: float) -> None:
    assert output_error(Output.of(out), Truth.of(Output.of(np.asarray(wanted)))) == error


def test_another_shape_is_no_result() -> None:
    with pytest.raises(ValueError, match=re.escape("has shape (2,), and the definition's has (3,)")):
        output_error(Output.of(np.zeros(2)), Truth.of(Output.of(np.zeros(3))))


def test_error_texts() -> None:
    assert [error_text(one) for one in (0.0, 3e-7, math.inf, math.nan)] == ["0", "3.0e-07", "not finite", "-"]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def setting(fused: Any, dtypes: Any = "float32", sizes: Any = None, library: str = "torch") -> Setting:
    return Setting.of_options(fused, sizes, dtypes, JUDGED, library=library)


def test_signs_are_kept_by_every_family() -> None:
    p = ra.tensor("p[b,n]", positive=True)
    drawn = setting(ra.fuse(ra.sum(p * x, n)), sizes=SMALL)
    for family in DATA_FAMILIES:
        suited = [name for name in ("p", "x") if family.suits(drawn.numbers(name))]
        assert bool((drawn.draw(family.make, suited)["p"] >= 0).all()), family.name
        assert ("p" in suited) == (family.infinite >= 0)


def test_numbers_under_logarithms_and_divided_sums_are_positive() -> None:
    w = ra.tensor("w[b,n]")
    drawn = setting(ra.fuse(ra.sum(w * x, n) / ra.sum(w, n) + ra.sum(log(ra.tensor("y[b,n]")), n)), sizes=SMALL).draw()
    assert bool((drawn["w"] > 0).all())
    assert bool((drawn["y"] > 0).all())
    assert bool((drawn["x"] < 0).any())


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_integers_index_what_is_there(library: str) -> None:
    table, at, length = ra.tensor("t[k]"), ra.tensor("i[b,n]"), ra.tensor("l[b]")
    gathered = ra.fuse(ra.sum(ra.where(n < length, ra.Tensor("t")[at], 0), n), axes="b")
    del table
    drawn = setting(gathered, sizes={"b": 5, "n": 7}, library=library)
    made = drawn.draw()
    assert made["i"].max() < drawn.shapes["t"][0]
    assert made["l"].max() <= 7
    assert gathered(**made, backend="torch").shape == (5,)


def test_draws_depend_on_nothing_but_names() -> None:
    one, two = (setting(ra.fuse(expr), sizes=SMALL) for expr in (ra.sum(x, n), ra.sum(x * ra.tensor("y[b,n]"), n)))
    assert torch.equal(one.draw(name="a")["x"], two.draw(name="a")["x"])
    assert not torch.equal(one.draw(name="a")["x"], one.draw(name="b")["x"])


def test_families_are_what_they_say() -> None:
    drawn = setting(ra.fuse(ra.sum(x, n)), sizes=SMALL)
    made = {name: drawn.draw(one.make)["x"] for name, one in FAMILIES.items()}
    assert bool((made["sorted"].diff(dim=1) >= 0).all())
    assert bool((made["constant"].diff(dim=1) == 0).all())
    assert made["offset 1e6"].mean() == pytest.approx(1e6, rel=1e-3)
    assert not bool((made["huge"] ** 2).isfinite().all())
    assert bool((made["tiny"] ** 2 == 0).all())
    assert int(made["one +inf"].isinf().sum()) == 1
    assert bool((made["-inf masked"][0] == -math.inf).all())
    assert not bool((made["-inf masked"][1] == -math.inf).all())


def test_sizes() -> None:
    assert JUDGED.sizes(variance().cascade, {}) == {"b": 64, "n": 4096}
    sizes = MEASURED.sizes(info_nce().cascade, {"i": 32})
    assert sizes["i"] == sizes["j"] == 32  # they index one tensor
    heads = grouped_query_attention().cascade
    assert all(size >= 4 for size in JUDGED.sizes(heads, {}).values())
    assert extent_of(n - k + 7, {"n": 8, "k": 8}) == 15
