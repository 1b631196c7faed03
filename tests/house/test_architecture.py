"""The page of the architecture says what the files say, and leaves none out."""

from collections import Counter

from tests.house.architecture import DOCUMENT, PACKAGE, STAGES, document, files, summary, unplaced


def test_the_page_is_what_the_modules_say() -> None:
    """`make architecture` writes it again."""
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_every_file_stands_in_one_stage() -> None:
    assert unplaced() == set()
    listed = Counter(path for _, layers in STAGES for layer in layers for path in files(layer))
    assert {path: number for path, number in listed.items() if number != 1} == {}
    assert set(listed) == set(PACKAGE.rglob("*.py"))


def test_every_file_says_what_it_is() -> None:
    assert [path for path in PACKAGE.rglob("*.py") if not summary(path)] == []
