"""Lines of kernels: within a page, without needless parentheses, and the tree that Python reads stays the same."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.lower_tile.text.wrap import WIDTH, without_parentheses, wrap_lines
from tests.cases.kernels import CASES, Case, fused, problem, tensors_of

LEAVES = st.sampled_from((
    "x[i, j]", "a_long_name_of_a_tile[i, (j + 1) % 1024]", "1.0", "2e-05", '-T.infinity("float32")',
    'T.cast(w_tile[i, j], "float32")', "t * 64",
))  # fmt: skip
OPERATORS = ("+", "-", "*", "/", "&", "|", "<", ">=", "==", "//", "%", "**")
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda parts: "({}) {} ({})".format(*parts)),
        st.tuples(inner, st.sampled_from(("+", "-", "*", "&")), inner).map(lambda parts: "{} {} {}".format(*parts)),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: f"T.if_then_else({', '.join(parts)})"),
        inner.map(lambda part: f"(-({part}))"),
    ),
    max_leaves=12,
)


def tree(text: str) -> str:
    return ast.dump(ast.parse(text))


@given(EXPRESSIONS, st.sampled_from(["out[i, j] = {}", "if {}:\n    y = 1.0", "T.fill(x, {})"]), st.booleans())
def test_a_statement_keeps_its_tree_and_finds_room(expression: str, form: str, noted: bool) -> None:
    first, *rest = form.format(expression).split("\n")
    text = "\n".join(["def f():", "    " + first + "  # what it is for" * noted, *("    " + line for line in rest)])
    wrapped = wrap_lines(text)
    assert tree(wrapped) == tree(text)
    assert all(len(line) <= WIDTH for line in wrapped.split("\n"))
    assert ("what it is for" in wrapped) == noted
    assert wrap_lines(wrapped) == wrapped


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("x[i] = (a[i] * b[i]) + (c[i])", "x[i] = a[i] * b[i] + c[i]"),
        ("x[i] = a[i] - (b[i] - c[i])", "x[i] = a[i] - (b[i] - c[i])"),
        ("x[i] = a[i] * (b[i] * c[i])", "x[i] = a[i] * (b[i] * c[i])"),
        ("    if ((i) < 3) & (j < (4)):", "    if (i < 3) & (j < 4):"),
        ('x = T.alloc_fragment((64,), "float32")  # (1) sum', 'x = T.alloc_fragment((64,), "float32")  # (1) sum'),
        ("for i, j in T.Parallel((4), 8):", "for i, j in T.Parallel((4), 8):"),
    ],
)
def test_needless_parentheses_go(line: str, plain: str) -> None:
    assert without_parentheses(line) == plain


def test_a_comment_without_room_stands_above() -> None:
    note = "sum " + "w[b, n]*(r[b, n] - c)**2 + " * 8
    lines = wrap_lines(f'    total = fragment((64, 128), "float32")  # {note}').split("\n")
    assert lines[0].startswith("    # sum w[b, n]")
    assert lines[-1] == '    total = fragment((64, 128), "float32")'
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.sweep(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("target", ["sm_90a", "c"])
def test_no_line_of_a_kernel_is_longer_than_a_page(case: Case, target: str) -> None:
    form, options = fused(case.form), problem(fused(case.form), tensors_of(case), case.sizes)
    text = form.lower(target, **options, empty=case.empty).source.text
    assert [line for line in text.split("\n") if len(line) > WIDTH] == []


@pytest.mark.parametrize("number", ["1e-38", "2.5e-05", "1e+30", "-1e-38"])
def test_a_number_stays_in_a_line(number: str) -> None:
    terms = " + ".join(f"a_long_name_of_a_tile_{place}[i, j] + {number}" for place in range(8))
    wrapped = wrap_lines(f"x[i, j] = {terms}")
    assert tree(wrapped) == tree(f"x[i, j] = {terms}")
    assert sum(line.strip().endswith(number.lstrip("-")) for line in wrapped.split("\n")) == 8
