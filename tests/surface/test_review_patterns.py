"""The patterns of the users' review have their values (`tests/cases/review_patterns.py`)."""

import pytest

from tests.cases.review_patterns import PATTERNS
from tests.cases.rows import assert_right


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_its_value(name: str) -> None:
    assert_right(PATTERNS[name])
