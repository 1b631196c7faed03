"""Expressions as text: what is read is what Python would make of it, and nothing is run."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, Expr, Max, Rational, exp, log, oo, pi, sqrt, tanh

import redalg as ra
from redalg.commands.notation import LONGEST, NotationError, Written, read_expression
from redalg.expression import Let
from redalg.library import PATTERNS
from tests.house.source import ROOT

b, n, k, q, d, h, e, t = ra.axes("b n k q d h e t")
x, y, z = ra.tensors("x[b,n] y[b,n] z[n]")
j = ra.axis("j", size=4)
c = ra.scalars("c")
SAME = {
    "sum(x[b,n]**2, n)": ra.sum(x**2, n),
    "sum(x[b, n] * exp(-c * y[b, n]), n)": ra.sum(x * exp(-c * y), n),
    "mean((x[b,n] - mean(x[b,n], n))**2, n)": ra.var(x, n),
    "max(abs(x[b,n]), n) / 448": ra.max(Abs(x), n) / 448,
    "sum(0.1*z[n] + 1e-3, n)": ra.sum(z / 10 + Rational(1, 1000), n),
    "sum(z[n] if z[n] > 0 and n < 5 else 0, n)": ra.sum(ra.where(ra.logical_and(z > 0, n < 5), z, 0), n),
    "sum(where((0 <= z[n] < 1) | (n == 3), z[n], 0), n)": ra.sum(
        ra.where(ra.logical_or(ra.logical_and(z >= 0, z < 1), ra.eq(n, 3)), z, 0), n
    ),
    "sum(where(not z[n] != 2, -z[n], +z[n]), n)": ra.sum(ra.where(ra.logical_not(ra.ne(z, 2)), -z, z), n),
    "sum(Max(z[n], tanh(z[n]), 0), n) / n.extent": ra.sum(Max(z, tanh(z), 0), n) / n.extent,
    "norm(x[b,n], b, n, p=3)": ra.norm(x, b, n, p=3),
    "logsumexp(x[b,n], (b, n))": ra.logsumexp(x, (b, n)),
    "affine(0.5, z[n], n)[1]": ra.affine(Rational(1, 2), z, n)[1],
    "sum(z[n // 2 + n % 2] * z[n], n)": ra.sum(ra.Tensor("z")[n // 2 + n % 2] * z, n),
    "sum(z[w[n]], n)": ra.sum(ra.Tensor("z")[ra.tensor("w[n]")], n),
    "ra.sum(ra.cast(z[n], 'float16') * sympy.pi, n)": ra.sum(ra.cast(z, "float16") * pi, n),
    "sum(where(n > 2, -oo, z[n]), n)": ra.sum(ra.where(n > 2, -oo, z), n),
    "let('top', max(z[n], n)) + 1": ra.let("top", ra.max(z, n)) + 1,
}


@pytest.mark.parametrize("text", SAME)
def test_an_expression_is_what_python_makes_of_it(text: str) -> None:
    assert read_expression(text).expr == SAME[text]


def test_names_of_values_stand_in_the_derivation() -> None:
    written = read_expression("mu = mean(x[b,n], n)\nmean((x[b,n] - mu)**2, n)")
    mu = ra.let("mu", ra.mean(x, n))
    assert written.expr == ra.mean((x - mu) ** 2, n)
    assert written.scalars == ()


def test_outputs_have_their_axes() -> None:
    written = read_expression("m = max(x[b,n], n); top[b] = m; share[b,n] = exp(x[b,n] - m)")
    m = ra.let("m", ra.max(x, n))
    assert written.expr == {"top": (m, "b"), "share": (exp(x - m), "b n")}


def test_a_selection_gives_two_values() -> None:
    text = "gates, experts = topk(softmax(s[t,n], n), n, axis('j', size=4)); gate[t,j] = gates; expert[t,j] = experts"
    gates, experts = ra.topk(ra.softmax(ra.tensor("s[t,n]"), n), n, j)
    assert read_expression(text).expr == {"gate": (gates, "t j"), "expert": (experts, "t j")}


def test_other_names_are_scalars_and_are_told() -> None:
    assert read_expression("sum(x[b,n] * scale + shift, n)").scalars == ("scale", "shift")


def test_a_program_is_read_up_to_its_fuse() -> None:
    """The README's first example, as it stands."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("```python")[1].split("```")[0]
    written = read_expression(text)
    Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    score = ra.let("score", ra.sum(Q * K, d) / sqrt(d.extent))
    assert written.expr == ra.sum(ra.softmax(score, k) * V, k)
    assert written.axes == "b h q e"
    assert not written.scalars


def test_fuse_takes_its_options() -> None:
    written = read_expression("fuse(sum(Abs(z[n] - mean(z[n], n)), n), passes=2, exact=True)\nnever(read)")
    assert (written.options, written.axes) == ({"passes": 2, "exact": True}, None)
    both = read_expression("ra.fuse({'s': sum(x[b,n], n), 'm': (max(x[b,n], n), 'b')})")
    assert both.expr == {"s": ra.sum(x, n), "m": (ra.max(x, n), "b")}


OTHERWISE = ("topk(", "affine(", "last(", "cast(", "1.0e-")
"""What SymPy prints and the notation writes otherwise: results by name, dtypes without quotes, floats."""
DISTRIBUTED = ("alibi_attention", "inertia_tensor", "preference_loss")
"""SymPy distributes the sign of what it printed with a bracket."""


def plain(expr: Expr) -> Expr:
    """Without names, which are not printed."""
    return expr.replace(lambda node: isinstance(node, Let), lambda node: node.args[1])


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", sorted(PATTERNS.keys() - set(DISTRIBUTED)))
def test_what_sympy_prints_of_a_pattern_is_read_again(name: str) -> None:
    fused = PATTERNS[name].build()
    axes_of = {output.name: ",".join(str(axis.name) for axis in output.axes) for output in fused.cascade.outputs}
    for output, expr in fused.written:
        text = re.sub(r"\|(\w+)\|", r"\1.extent", str(plain(expr)))
        if axes_of[output] and not any(word in text for word in OTHERWISE):
            [(again, _)] = read_expression(f"{output}[{axes_of[output]}] = {text}").expr.values()
            assert str(plain(again)) == str(plain(expr))


WRONG = {
    "sum(softmx(x[n], n), n)": "there is no function `softmx`. Did you mean softmax",
    "median(x[n], n)": "there is no function `median`. It has no state of fixed size",
    "sum(relu(x[n]), n)": "there is no function `relu`. Functions of expressions are SymPy's: write `Max(x, 0)`",
    "sum(x[n]": "the text is no expression: '(' was never closed",
    "x[n] @ y[n]": "A product of matrices is a sum over the axis that they share",
    "sum(x[n], axis=n)": "sum: there is no option `axis`. Axes follow the term",
    "max(x[n], y[n])": "max: y[n] is not an axis",
    "sum(x[n], n).shape": "there is no attribute `shape`",
    "sum(9**9**9 * x[n], n)": "the number is too large to be written out",
    "sum(1e999 * x[n], n)": "the number is not in the range of float64",
    "sum(2j * x[n], n)": "this is no real number",
    "a, b = sum(x[n], n)": "it does not give 2 values",
    "x = 3 if": "the text is no expression",
    "": "the text gives no expression",
    "'text'": "the text gives no expression",
    "for i in x: pass": "only assignments and expressions are read",
    "(x[n], 1)": "this is no expression",
    "fuse()": "fuse takes an expression",
    "fuse(sum(x[n], n), plan=3)": "fuse takes an expression",
    "3[n]": "this has no elements",
    "sum(z[n] << 2, n)": "`LShift` has no meaning here",
    "sum(z[n] in z, n)": "`In` has no meaning here",
    "1 = 2": "the text is no expression",
    "[one] = 2": "this is no name",
}
HOSTILE = (
    "__import__('os').system('true')", "().__class__.__bases__", "open('/etc/passwd')", "exp.__globals__", "f'{x}'",
    "(lambda: 3)()", "[y for y in x]", "eval('1')", "getattr(x[n], 'args')", "x[n].args", "import os\nos.getcwd()",
    "sum(x[n], n, **{'a': 1})", "exec('1')", "def f(): pass", "sum(*[1, 2])", "print(3)", "x[n].func(3)",
    "del x", "(y := 3)", "assert 0", "await x", "globals()", "breakpoint()", "Tensor.__init__", "ra.fused",
    "ra.data.dask",
)  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_an_error_says_what_and_where(text: str) -> None:
    with pytest.raises(NotationError) as error:
        read_expression(text)
    assert str(error.value).startswith(WRONG[text])


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_is_run(text: str) -> None:
    with pytest.raises(NotationError):
        read_expression(text)


def test_carets_stand_below_the_place() -> None:
    with pytest.raises(NotationError) as error:
        read_expression("größe = sum(x[n], n)\nsum(größe + nosuch(x[n]), n)")
    *_, line, carets = str(error.value).splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == "nosuch"


def test_a_long_line_is_cut_about_the_place() -> None:
    with pytest.raises(NotationError) as error:
        read_expression("+".join(["x[n]"] * 100 + ["nosuch(x[n])"]))
    _, line, carets = str(error.value).splitlines()
    assert len(line) <= 100
    assert line[carets.index("^") : carets.rindex("^") + 1] == "nosuch"


TOKENS = (
    "x[b,n]", "y[n]", "m", "n", "sum(", "max(", "exp(", "where(", "topk(", "Max(", ")", ",", "=", "**", "*", "-",
    "+", "/", "//", "<", "==", "2", "0.5", "1e9", "oo", "'a'", "[", "]", "{", "}", ":", ";", "if", "else", "not",
    "and", "lambda", ".extent", ".x", "axis(", "tensors(", "fuse(", "let(", "cast(", "scalars(", "axes=", "size=",
    "ra.",
)  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=12))
def test_any_text_is_read_or_refused(tokens: list[str]) -> None:
    with suppress(NotationError):
        assert isinstance(read_expression(" ".join(tokens)), Written)


@pytest.mark.parametrize("text", ["(" * 5000 + ")" * 5000, "-" * 15000 + "x[n]", "x" * (LONGEST + 1)])
def test_deep_and_long_texts_are_refused(text: str) -> None:
    with pytest.raises(NotationError):
        read_expression(text)


def test_every_function_gives_something() -> None:
    """Of one number each, the operators are SymPy's."""
    from redalg.commands.notation import functions

    assert {"softmax", "Max", "atan2", "log1p", "where", "topk", "erf"} <= functions().keys()
    assert isinstance(read_expression("sum(erf(z[n]) + atan2(z[n], 2) + floor(z[n]) + log(z[n], 2), n)").expr, Expr)
    assert read_expression("log(sum(exp(z[n]), n))").expr == log(ra.sum(exp(z), n))
