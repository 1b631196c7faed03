"""The pool of two ranks that all modules here share."""

from collections.abc import Iterator

import pytest

from tests.distributed.pool import Pool, ranks


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with ranks(2, tmp_path_factory.mktemp("two")) as pool:
        yield pool
