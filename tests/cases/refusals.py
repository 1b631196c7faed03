"""A table of refusals: a call, the error that it gets, and the error's full text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Case:
    """One bad call."""

    call: Callable[[], Any]
    kind: type[Exception]
    text: str

    def check(self) -> None:
        with pytest.raises(self.kind) as error:
            self.call()
        assert str(error.value) == self.text


def each(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())
