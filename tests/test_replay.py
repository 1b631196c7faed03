"""The committed list of kernels is that of the sources as they are: whoever changes one says so."""

from __future__ import annotations

from tests.replay import LIST, difference, listed, sources_at, without_docstring


def test_the_list_is_that_of_the_sources() -> None:
    """`python -m tests.replay write` writes it, and `make replay ASKED=HEAD` shows what changed."""
    assert listed(sources_at(".", 1)) == LIST.read_text(encoding="utf-8")


def test_a_docstring_is_no_part_of_a_source() -> None:
    assert without_docstring('"""Version 1."""\n\nimport tilelang\n') == "import tilelang\n"


def test_what_changes_alike_is_shown_once() -> None:
    before, after = {"a": "1\n2\n", "b": "1\n2\n", "c": "1\n"}, {"a": "1\n3\n", "b": "1\n3\n", "c": "1\n"}
    assert list(difference(before, after)) == ["=== a", "=== b", "@@ -1,2 +1,2 @@\n 1\n-2\n+3", "2 of 3 sources differ"]
