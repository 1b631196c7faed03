"""A function's text: what is read is what was written, in every process; and what is no text of ours is refused."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, Float, Integer, Pow, Rational, S, exp, log, oo, pi
from sympy.codegen import cfunctions
from sympy.core.basic import Basic

import redalg as ra
import tests.cases
from redalg.errors import RedalgError
from redalg.expression.contents import nodes_of
from redalg.expression.operators import OPERATORS
from redalg.expression.portable import as_literal, of_literal
from redalg.expression.syntax import KINDS, read_tree, write_tree
from tests.cases.cascades import cascades, data
from tests.cases.corpus import Pattern
from tests.cases.kernels import CASES, FORMS, Case, fused, tensors_of
from tests.fuzz.executions import data_of
from tests.fuzz.records import GENERATORS
from tests.fuzz.records import cases as drawn_cases
from tests.house.source import ROOT
from tests.sweeps import draws
from tests.verdict_texts import PATTERNS

b, n, k, D = ra.axes("b n k d")
x, w = ra.tensors("x[b,n] w[n]")


def parts(form: ra.Fused) -> tuple[Any, ...]:
    """All that a function is derived from, and the cascade that was derived."""
    return form.written, form.cascade, form.inputs, form.single, form.exact, len(form.passes.earlier)


def check(form: ra.Fused, inputs: Mapping[str, Any], **options: Any) -> None:
    """Read a function of its text, and call both."""
    text = form.to_json()
    again = ra.from_json(text)
    assert parts(again) == parts(form)
    assert again.to_json() == text
    with np.errstate(all="ignore"):
        made, wanted = again(**inputs, **options), form(**inputs, **options)
    for mine, theirs in zip(*((one,) if form.single else one for one in (made, wanted)), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


# ---- round trips -----------------------------------------------------------------------------------------------------


def expressions_in(value: Any, depth: int = 4) -> Iterator[Expr]:
    """Every expression in a value of a module of cases, those of patterns and functions too."""
    if isinstance(value, Pattern):
        yield from (expr for expr, _ in value.outputs().values())
    elif isinstance(value, ra.Fused):
        yield from (expr for _, expr in value.written)
    elif isinstance(value, Expr):
        yield value
    elif depth and isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from expressions_in(part, depth - 1)
    elif depth and hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        yield from expressions_in([getattr(value, name) for name in value.__dataclass_fields__], depth - 1)


@pytest.mark.filterwarnings("ignore")
def test_every_expression_of_the_cases_is_read_as_it_was_written() -> None:
    names = [one.name for one in pkgutil.iter_modules(tests.cases.__path__)]
    modules = [vars(importlib.import_module(f"tests.cases.{name}")) for name in names]
    public = (value for module in modules for name, value in module.items() if not name.startswith("_"))
    found = {
        expr for value in (*public, PATTERNS, [make() for make in FORMS.values()]) for expr in expressions_in(value)
    }
    ours = [expr for expr in found if readable(expr)]
    assert len(ours) > 600
    for expr in ours:
        rows, [place] = write_tree([expr])
        assert read_tree(json.loads(json.dumps(rows)))[place] == expr


def readable(expr: Expr) -> bool:
    """Tell if `fuse` leaves an expression as it is: it writes foreign nodes in redalg's own."""
    try:
        fused = getattr(ra.analyze(expr), "fused", None)
    except RedalgError:
        return False
    return fused is not None and bool(fused.written[0][1] == expr)


@pytest.mark.parametrize("pattern", PATTERNS[::3], ids=lambda one: one.name)
def test_patterns(pattern: Pattern) -> None:
    try:
        form = pattern.fuse()
    except RedalgError:
        pytest.skip("it is refused")
    scalars = {
        name: one for name, one in pattern.scalars.items() if name in {str(s.name) for s in form.cascade.scalars()}
    }
    sizes = {one.name: pattern.extents()[one.name] for one in form.cascade.axes() if one.size is None}
    check(form, {**pattern.tensors(), **scalars}, sizes=sizes, backend="numpy")


@pytest.mark.parametrize("case", {one.form: one for one in CASES}.values(), ids=lambda one: one.form)
def test_forms_of_kernels(case: Case) -> None:
    check(fused(case.form), tensors_of(case), sizes=case.sizes)


@settings(max_examples=draws(40))
@given(cascades(), data())
def test_cascades(example: Any, tensors: Any) -> None:
    try:
        form = ra.fuse(example.expr, example.axes)
    except RedalgError:
        return
    check(form, tensors.of(form.cascade), sizes=tensors.extents(form.cascade), backend="numpy")


@pytest.mark.sweep(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("passes", [1, 2])
def test_cascades_of_the_fuzzer(passes: int) -> None:
    ran = 0
    for case in islice(drawn_cases(500 * passes, [*GENERATORS]), 60):
        try:
            form = ra.fuse(dict(case.outputs), passes=passes)
            [tensors] = data_of(case.seed, 1)
            inputs, sizes = tensors.given(form)
            form(**inputs, sizes=sizes, backend="numpy")
        except RedalgError:
            continue
        check(form, inputs, sizes=sizes, backend="numpy")
        ran += 1
    assert ran > 20


NUMBERS = st.one_of(
    st.integers().map(Integer), st.fractions().map(lambda one: Rational(one.numerator, one.denominator)),
    st.floats(allow_nan=False).map(Float), st.builds(Float, st.decimals(allow_nan=False), st.integers(1, 60)),
    st.sampled_from([oo, -oo, S.NaN, pi, S.Exp1, S.EulerGamma, ra.expression.UNDEFINED]),
)  # fmt: skip


@given(NUMBERS)
def test_numbers_are_exact(number: Basic) -> None:
    [again] = read_tree(json.loads(json.dumps(write_tree([number])[0])))
    assert type(again) is type(number)
    assert again == number or number is S.NaN
    assert getattr(again, "_prec", 0) == getattr(number, "_prec", 0)


@pytest.mark.parametrize("name", OPERATORS)
def test_functions(name: str) -> None:
    """Each function of the table, of arguments that SymPy would evaluate too."""
    head = getattr(sympy, name, None) or getattr(cfunctions, name)
    for numbers in ((x, w), (S.Zero, S.One), (-x, -w)):
        made = head(*numbers[: OPERATORS[name].inputs], evaluate=False)
        rows, [place] = write_tree([made])
        assert read_tree(rows)[place] == made


def test_names_keep_what_they_were_declared() -> None:
    sized, t = ra.axis("n", size=4), ra.scalars("t", positive=True, integer=True)
    declared = ra.tensor("p[b,n]", positive=True).xreplace({ra.axes("n"): sized})
    form = ra.fuse(ra.sum(ra.let("p_log", log(declared)) * t * ra.cast(x.xreplace({n: sized}), "float16"), sized))
    again = ra.from_json(form.to_json())
    assert parts(again) == parts(form)
    nodes = nodes_of(again.written[0][1])
    assert {declared, t, sized} <= nodes
    assert t.is_integer
    assert next(one for one in nodes if one == t).is_positive
    assert [one.name for one in nodes if type(one).__name__ == "Let"] == ["p_log"]


def test_options_of_a_function() -> None:
    for form in (
        ra.fuse(ra.sum(x * w, n), axes="b", inputs=(w, x)),
        ra.fuse({"s": (ra.sum(x, n), "b"), "best": (ra.max(x * w, n), "b")}),
        ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n), passes=2),
        ra.fuse(ra.sum(ra.cast(x / ra.max(x, n), "float16") * w, n), exact=True),
    ):
        assert parts(ra.from_json(form.to_json())) == parts(form)


def test_a_registered_monoid_stands_by_its_name() -> None:
    code = """
        import sys, redalg as ra
        from sympy import Max, Min, oo
        if sys.argv[1] != "none":
            ra.register_monoid("span", components={"low": oo, "high": -oo}, domain="extended", idempotent=True,
                               lift=lambda x, n: (x, x), combine=lambda a, b: (Min(a[0], b[0]), Max(a[1], b[1])))
        if sys.argv[1] == "write":
            low, high = ra.reduce("span", ra.tensor("x[b,n]"), axis=ra.axes("n"))
            print(ra.fuse(high - low).to_json())
        else:
            print(ra.from_json(sys.stdin.read()).written)
    """
    text = run(code, "write")
    assert "span(x[b, n], n).high" in run(code, "read", given=text)
    with pytest.raises(ra.ExpressionError, match="no monoid is named 'span' in this process: register it"):
        ra.from_json(text)


def test_a_text_is_the_same_in_every_process() -> None:
    code = """
        import redalg as ra
        n, d, k = ra.axes("n d k")
        Q, K, V, z = ra.tensors("Q[q,d] K[k,d] V[k,e] z[q,k]")
        s = ra.where(ra.logical_or(z > 0, ra.axes("q") < k), ra.sum(Q * K, d) + z, 1)
        print(ra.fuse({"o": (ra.sum(ra.softmax(s, k) * V, k), "q e"), "l": (ra.logsumexp(s, k), "q")}).to_json())
    """
    texts = {run(code, seed=seed) for seed in ("0", "1", "4242")}
    assert len(texts) == 1


def run(code: str, *args: str, given: str = "", seed: str = "0") -> str:
    """The output of a program of its own process."""
    lines = "\n".join(line.removeprefix("        ") for line in code.splitlines())
    made = subprocess.run([sys.executable, "-c", lines, *args], cwd=ROOT, check=True, capture_output=True, text=True,
                          input=given, env={**os.environ, "PYTHONHASHSEED": seed})  # fmt: skip
    return made.stdout


# ---- hostile texts ---------------------------------------------------------------------------------------------------

PLAIN = json.loads(ra.fuse(ra.sum(x * w, n), axes="b").to_json())


def changed(**fields: Any) -> str:
    return json.dumps({**PLAIN, **fields})


def with_row(row: Any) -> str:
    """The text with one more row at the end of its tree."""
    return changed(nodes=[*PLAIN["nodes"], row])


SUM, AXIS, ELEMENT = (next(place for place, row in enumerate(PLAIN["nodes"]) if row[0] == kind)
                      for kind in ("reduce", "axis", "element"))  # fmt: skip
HOSTILE: dict[str, tuple[str, str]] = {
    "no JSON": ("__import__('os').system('true')", "no JSON"),
    "deep": ("[" * 100_000, "no JSON"),
    "no object": ("[]", r"the format \[\]"),
    "another version": (changed(format="redalg function, 99"), "'redalg function, 99'.*reads 'redalg function, 1'"),
    "a field too many": (changed(code="1"), "the field `code`"),
    "a field too few": (json.dumps({key: one for key, one in PLAIN.items() if key != "exact"}), "the field `exact`"),
    "no options": (changed(passes=True), "the field `passes`"),
    "an output of no row": (changed(outputs=[["out", 99, ["b"]]]), "the output"),
    "an output that is an axis' name": (changed(outputs=[["out", "x", ["b"]]]), "the output"),
    "an output with a quote": (changed(outputs=[['o"ut', SUM, ["b"]]]), "the output"),
    "an input of no expression": (changed(inputs=["y"]), "the input `y` is in no expression"),
    "an unknown node": (with_row(["Lambda", 1]), r"\['Lambda', 1\]`, of no kind"),
    "a class of SymPy": (with_row(["Integral", SUM, AXIS]), "of no kind"),
    "a private name": (with_row(["__class__", 0]), "of no kind"),
    "an empty row": (with_row([]), "of no kind"),
    "a text for a row": (with_row("x + 1"), "of no kind"),
    "too few arguments": (with_row(["Pow", SUM]), "1 fields are given, and it has 2"),
    "too many arguments": (with_row(["exp", SUM, SUM]), "2 fields are given, and it has 1"),
    "one term": (with_row(["Add", SUM]), "1 fields are given"),
    "a later row": (with_row(["exp", 99]), "`99` is not the number of an earlier row"),
    "a negative row": (with_row(["exp", -1]), "`-1` is not the number of an earlier row"),
    "a truth value for a row": (with_row(["exp", True]), "`True` is not the number of an earlier row"),
    "a text for a number": (with_row(["exp", "x"]), "`x` is not the number of an earlier row"),
    "a number for a condition": (with_row(["where", ELEMENT, SUM, SUM]), "that is a condition"),
    "a name with a quote": (with_row(["axis", 'n"', None]), "is not an identifier"),
    "a name that is code": (with_row(["element", "x); import os; (", "", []]), "is not an identifier"),
    "a size below 0": (with_row(["axis", "n", -1]), "is not null or a size"),
    "a float that is code": (with_row(["float", "2**10**9", 53]), "is no float"),
    "a float of many digits": (with_row(["float", "0x1p+0", 1 << 30]), "is no float"),
    "a denominator of 0": (with_row(["rational", 1, 0]), "the denominator 0"),
    "a float for an integer": (with_row(["integer", 1.5]), "is not an integer"),
    "an unknown constant": (with_row(["constant", "zoo"]), "none of the constants"),
    "an unknown sign": (with_row(["element", "x", "negative", [AXIS]]), "the sign 'negative'"),
    "an unknown assumption": (with_row(["scalar", "t", {"__init__": True}]), "no assumptions"),
    "assumptions that exclude each other": (with_row(["scalar", "t", {"positive": True, "negative": True}]), "exclude"),
    "an unknown dtype": (with_row(["cast", SUM, "float17"]), "is not one of"),
    "an unknown monoid": (with_row(["reduce", "median", [SUM], [AXIS], "", None]), "no monoid is named 'median'"),
    "operands of another monoid": (with_row(["reduce", "affine", [SUM], [AXIS], "shift", None]), "none of affine"),
    "a result of another monoid": (with_row(["reduce", "sum", [SUM], [AXIS], "values", None]), "none of sum"),
    "a sum over no axis": (with_row(["reduce", "sum", [SUM], [], "", None]), "over 0 axes"),
    "a sum over a tensor": (with_row(["reduce", "sum", [SUM], [ELEMENT], "", None]), "that is an axis"),
    "a place of no size": (with_row(["reduce", "topk", [SUM], [AXIS], "values", AXIS]), "a new axis of fixed size"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_text_of_ours_is_refused(name: str) -> None:
    text, said = HOSTILE[name]
    with pytest.raises(ra.ExpressionError, match=said) as refusal:
        ra.from_json(text)
    assert "Write the text anew by `to_json`" in str(refusal.value)


MASKED = ra.where(ra.logical_or(n < b, x > 0), ra.let("s", ra.sum(ra.tensor("Q[b,d]") * ra.tensor("K[n,d]"), D)), -oo)
CHANGED = (
    json.dumps(PLAIN),
    ra.fuse(ra.sum(ra.softmax(MASKED / ra.scalars("t", positive=True), n) * ra.cast(w, "float16"), n)).to_json(),
    ra.fuse({"best": (ra.topk(0.3 * x / 7 + w, n, ra.axis("j", size=3))[1], "b j")}).to_json(),
    ra.fuse(ra.affine(exp(x), ra.where(ra.ne(w, 0), w, n.extent), n)[1]).to_json(),
)


@settings(max_examples=draws(200))
@given(st.data())
def test_a_changed_text_is_read_or_refused_by_redalg(draw: Any) -> None:
    """A field of a row is replaced by another value: nothing but an error of redalg's leaves the reader."""
    written = json.loads(draw.draw(st.sampled_from(CHANGED)))
    rows = written["nodes"]
    row = rows[draw.draw(st.integers(0, len(rows) - 1))]
    row[draw.draw(st.integers(0, len(row) - 1))] = draw.draw(st.one_of(
        st.integers(-2, 40), st.sampled_from(["", "x", "sum", "Add", "exp", "oo", None, True, 1.5, [], [0], {}, [{}]]),
        st.sampled_from([*OPERATORS, *KINDS])))  # fmt: skip
    try:
        ra.from_json(json.dumps(written))
    except RedalgError:
        return


def test_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power of powers is read as it stands, and no parser of SymPy or of Python runs."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a text is evaluated")

    ten, tower = ["integer", 10], [["Pow", 0, 0], ["Pow", 0, 1], ["Pow", 0, 2]]
    monkeypatch.setattr("builtins.eval", refuse)
    monkeypatch.setattr("sympy.parsing.sympy_parser.parse_expr", refuse)
    *_, made = read_tree([ten, *tower])
    assert isinstance(made, Pow)
    assert made.exp.exp.exp is made.base


@pytest.mark.parametrize("make", [lambda: ra.scalars("t").func("a b"), lambda: ra.Axis('n"')])
def test_a_name_that_no_reader_takes_is_not_written(make: Callable[[], Expr]) -> None:
    with pytest.raises(ra.ExpressionError, match=r"cannot be written as text: .* is not an identifier"):
        write_tree([make()])


def test_a_node_that_no_reader_takes_is_not_written() -> None:
    from sympy import Function

    with pytest.raises(ra.ExpressionError, match="cannot be written as text: it is made by `f`"):
        write_tree([Function("f")(x)])


def test_what_stands_twice_is_written_once() -> None:
    made: Expr = x
    for step in range(10):
        made = made**2 + exp(made) * step
    rows, [place] = write_tree([made])
    assert len(rows) < 10 * 6
    assert read_tree(rows)[place] == made


@given(st.text() | st.text(alphabet="\"'\\\\%27{}:C5x"))
def test_a_literal_stands_between_double_quotes_as_it_is(text: str) -> None:
    written = json.dumps({"text": text})
    literal = as_literal(written)
    assert not {*literal} & {*'"\\'}
    assert literal.isascii()
    assert of_literal(literal) == of_literal(written) == written
