"""Aggregate functions of DataFusion, in SQL: of the whole, of groups, of many partitions."""

import re
import sys
from collections.abc import Callable
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.data.datafusion import udaf
from tests.data.chunkings import COLUMNS, PLACED_COLUMNS, ROWS, X, check, cuts, n, x, y

correlation, variance = COLUMNS["correlation"], COLUMNS["variance"]
j = ra.axis("j", size=2)


def context(table: Any, *functions: Any, partitions: list[Any] | None = None) -> datafusion.SessionContext:
    """A session of four partitions, the table `t` and the functions."""
    session = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(4))
    session.register_record_batches("t", partitions or [table.to_batches(max_chunksize=64)])
    for function in functions:
        session.register_udaf(function)
    return session


def rows(session: datafusion.SessionContext, query: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = session.sql(query).to_pydict()
    return found


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=4)
@given(st.data())
def test_partitions_give_the_whole(name: str, data: st.DataObject) -> None:
    fused, dtype = COLUMNS[name], data.draw(st.sampled_from(["float32", "float64", "int32"]))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    names = sorted(fused.cascade.inputs())
    tensors = {key: (generator.normal(size=9) * 3 + 9).astype(dtype) for key in names}
    table, ends = pa.table(tensors), np.cumsum(data.draw(cuts(9)))
    parts = [table.slice(start, stop - start).combine_chunks().to_batches() for start, stop in
             zip((0, *ends), ends, strict=False) if start < stop]  # fmt: skip
    session = context(table, udaf(fused, "reduced"), partitions=parts)
    (found,) = rows(session, f"SELECT reduced({', '.join(names)}) AS found FROM t")["found"]
    check(fused.result(**found) if isinstance(found, dict) else found, fused, tensors, "float64")


def test_correlation_keeps_its_digits_far_from_zero() -> None:
    generator = np.random.default_rng(0)
    a = generator.normal(size=600)
    far = {"x": a + 1e8, "y": 0.5 * a + generator.normal(size=600) + 1e8, "g": np.arange(600) % 3}
    session = context(pa.table(far), udaf(correlation, "correlation"))
    query = "SELECT g, correlation(x, y) AS found FROM t GROUP BY g ORDER BY g"
    want = [np.corrcoef(far["x"][far["g"] == group], far["y"][far["g"] == group])[0, 1] for group in range(3)]
    np.testing.assert_allclose(rows(session, query)["found"], want, rtol=1e-9)
    (whole,) = rows(session, "SELECT correlation(x, y) AS found FROM t")["found"]
    np.testing.assert_allclose(whole, np.corrcoef(far["x"], far["y"])[0, 1], rtol=1e-9)


def test_many_groups_of_many_partitions() -> None:
    values, groups = np.random.default_rng(1).normal(size=500), np.arange(500) % 40
    table = pa.table({"x": values, "g": groups})
    parts = [[batch] for batch in table.to_batches(max_chunksize=100)]
    session = context(table, udaf(COLUMNS["logsumexp"], "lse"), udaf(variance, "spread"), partitions=parts)
    found = rows(session, "SELECT g, lse(x) AS a, spread(x) AS b FROM t GROUP BY g ORDER BY g")
    assert found["g"] == list(range(40))
    np.testing.assert_allclose(found["a"], [np.log(np.exp(values[groups == g]).sum()) for g in range(40)], rtol=1e-12)
    np.testing.assert_allclose(found["b"], [values[groups == g].var() for g in range(40)], rtol=1e-12)


def test_nulls_are_left_out_and_a_ratio_of_nothing_is_null() -> None:
    x, y, g = [1.0, None, 3, None, np.nan], [None, 2.0, 4, None, 1.0], [0, 0, 0, 1, 2]
    both = ra.fuse({"mean": ra.mean(X, n), "most": ra.max(X, n)})
    functions = (
        udaf(variance, "spread"), udaf(variance, "spread0", empty="zero"), udaf(COLUMNS["weighted mean"], "w"),
        udaf(both, "several", inputs=["x", "x"]),
    )  # fmt: skip
    query = "SELECT g, spread(x) a, spread0(x) b, w(x, y) c, several(x, y) d, avg(x) e FROM t GROUP BY g ORDER BY g"
    found = rows(context(pa.table({"x": x, "y": y, "g": g}), *functions), query)
    first, nothing, of_nan = zip(*(found[key] for key in "abcde"), strict=True)
    assert first == (1.0, 1.0, 3.0, {"mean": [3.0, 4.0], "most": [3.0, 4.0]}, 2.0)
    assert nothing == (None, 0.0, None, {"mean": [None, None], "most": [-np.inf, -np.inf]}, None)
    assert np.isnan([*of_nan[:3], of_nan[3]["mean"][0], of_nan[4]]).all()
    assert of_nan[3]["mean"][1] == 1


def test_what_has_no_value_is_null_as_in_sql() -> None:
    """One row, a constant, no row: NULL. A NaN or an infinity in the data: NaN."""
    table = pa.table({"x": [1.0, 3, 5, None, 2, 2, np.nan, np.inf], "y": [1.0, 2, 5, 4, 2, 4, 1, 1],
                      "g": [0, 0, 1, 2, 3, 3, 4, 5]})  # fmt: skip
    sample, wide = ra.fuse(ra.var(x, n, correction=1)), ra.fuse(ra.var(X, n, correction=1))
    own = {"var_samp(x)": udaf(sample, "ours_var_samp"), "corr(x, y)": udaf(correlation, "ours_corr")}
    session = context(table, *own.values(), udaf(wide, "columns", inputs=["x", "x"]))
    assert rows(session, "SELECT columns(y, x) a FROM t WHERE g = 1")["a"] == [[None, None]]
    [lower, upper] = rows(session, "SELECT columns(y, x) a FROM t WHERE g = 4")["a"][0]
    assert lower is None
    assert np.isnan(upper)
    for call in own:
        found = rows(session, f"SELECT g, ours_{call} a, {call} b FROM t GROUP BY g ORDER BY g")
        assert found["a"][:4] == pytest.approx(found["b"][:4])
        assert None in found["b"][:4]
        assert np.isnan(found["a"][4:]).all()


def test_arguments_types_and_outputs() -> None:
    table = pa.table({"x": [1.0, 5, 3], "y": [2.0, 0, 1], "p": [0, 2, 1]})
    gathered = ra.fuse(ra.sum(x * ra.Tensor("t")[ra.tensor("p[n]")], n) + ra.scalars("shift"))
    functions = (
        udaf(ra.fuse(ra.sum(x - 2 * y, n)), "swapped", inputs=["y", "x"]),
        udaf(ra.fuse(ra.topk(x, n, j)[0]), "best"),
        udaf(gathered, "gathered", tensors={"t": np.array([1.0, 10, 100]), "shift": 0.5}, inputs=["x", "p"]),
        udaf(ra.fuse(ra.mean(x, n)), "narrow", dtypes="float32"),
        udaf(ROWS["variance"], "single"),
        udaf(ROWS["variance"], "several", inputs=["x", "x"]),
    )
    query = (
        "SELECT swapped(y, x) a, best(x) b, gathered(x, p) c, narrow(CAST(x AS REAL)) d, single(p) e, "
        "several(p, p * 3) f FROM t"
    )
    found = rows(context(table, *functions), query)
    assert found == {"a": [3.0], "b": [[5.0, 3.0]], "c": [531.5], "d": [3.0], "e": [2 / 3], "f": [[2 / 3, 6.0]]}
    (batch,) = context(table, *functions).sql("SELECT narrow(CAST(x AS REAL)) FROM t").collect()
    assert batch.schema.types == [pa.float32()]


def test_a_name_is_made_of_the_definition() -> None:
    assert udaf(variance).name == udaf(ra.fuse(ra.var(x, n))).name != udaf(ra.fuse(ra.std(x, n))).name


def test_columns_are_cast_before() -> None:
    session = context(pa.table({"x": [2**53 + 1]}), udaf(variance, "spread", dtypes="float64"))
    assert rows(session, "SELECT spread(x) AS a FROM t") == {"a": [0.0]}  # DataFusion has cast it


shares = ra.fuse(ra.softmax(x, n), axes="n")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "argmax": (lambda: udaf(PLACED_COLUMNS["argmax"]), "the expression depends on the places of elements along n"),
    "first": (lambda: udaf(PLACED_COLUMNS["first and last"]), "DataFusion gives rows in any order"),
    "mask": (lambda: udaf(PLACED_COLUMNS["mask by place"]), "compare a column that holds the place"),
    "rows": (lambda: udaf(shares), "output `out` keeps axis n"),
    "inputs": (lambda: udaf(correlation, inputs=["x"]), "inputs=('x',) should name each of x, y once"),
    "dtype": (lambda: udaf(variance, dtypes="bfloat16"), "argument `x` would be bfloat16, which Arrow lacks"),
    "empty": (lambda: udaf(variance, empty="null"), "empty='null' is not an option"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(ra.InputError, match=re.escape(text)):
        call()


@pytest.mark.parametrize("package", ["datafusion", "pyarrow"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    text = f'udaf needs {package}, which is not installed. Run: pip install "redalg[datafusion]"'
    with pytest.raises(ra.BackendError, match=re.escape(text)):
        udaf(variance)
