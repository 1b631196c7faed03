"""The search on a simulated device: noise, candidates that fail, candidates that are wrong; what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redalg.strategies.search.search import Found, Limits, Outcome, search

Choices = tuple[int, ...]
WITHIN = 1.03
"""How far from the best a search may end (issue 5)."""


@dataclass
class Device:
    """A landscape over a grid of choices, with a model of it that errs, clocks that are noisy, kernels that fail.

    `steep` is the cost of a step away from the best choice; `model` bounds the model's relative error, `noise`
    that of a clock; `failing` of the candidates do not compile, and as many are wrong.
    """

    seed: int
    shape: tuple[int, ...] = (5, 4, 3, 4)
    steep: float = 0.2
    model: float = 0.0
    noise: float = 0.0
    failing: float = 0.0
    calls: list[list[Choices]] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = Random(self.seed)
        self.space: list[Choices] = list(product(*map(range, self.shape)))
        centre = [random.randrange(length) for length in self.shape]
        weights = [self.steep * random.uniform(0.5, 2.0) for _ in self.shape]
        self.time = {one: 10 * (1 + sum(w * abs(a - b) for w, a, b in zip(weights, one, centre, strict=True)))
                     for one in self.space}  # fmt: skip
        self.estimate = {one: time * random.uniform(1 - self.model, 1 + self.model) for one, time in self.time.items()}
        drawn = [random.random() for _ in self.space]
        self.reason = {one: "does not compile" if d < self.failing else "wrong: error 1" if d < 2 * self.failing else ""
                       for one, d in zip(self.space, drawn, strict=True)}  # fmt: skip
        self.clock = Random(self.seed + 1)

    def measure(self, batch: Sequence[Choices]) -> list[Outcome]:
        self.calls.append(list(batch))
        return [self.outcome(one) for one in batch]

    def outcome(self, one: Choices) -> Outcome:
        if self.reason[one]:
            return Outcome(None, self.reason[one])
        return Outcome(self.time[one] * self.clock.uniform(1 - self.noise, 1 + self.noise))

    def neighbours(self, one: Choices) -> list[Choices]:
        return [(*one[:place], value, *one[place + 1 :]) for place, length in enumerate(self.shape)
                for value in range(length) if value != one[place]]  # fmt: skip

    def works(self) -> list[float]:
        return [time for one, time in self.time.items() if not self.reason[one]]

    def search(self, **options: object) -> Found[Choices]:
        return search(self.space, self.estimate.__getitem__, self.measure, self.neighbours, **options)


def true_time(device: Device, found: Found[Choices]) -> float:
    assert found.best is not None
    return device.time[found.best.candidate]


@given(seed=st.integers(0, 2**32), model=st.floats(0, 0.3), noise=st.floats(0, 0.01), failing=st.floats(0, 0.2))
def test_it_finds_the_best_where_the_model_ranks_it_high(seed, model, noise, failing):
    """A model that errs by δ ranks at most those before the best that it could take for faster.

    Where those are no more than one batch, the best is measured in the first round, so that what is chosen is off by
    no more than the clock is.
    """
    device = Device(seed, model=model, noise=noise, failing=failing)
    assume(device.works())
    best = min(device.works())
    assume(sum(time * (1 - model) <= best * (1 + model) for time in device.time.values()) <= 8)
    found = device.search(limits=Limits(population=len(device.space)))
    assert true_time(device, found) <= best * (1 + noise) / (1 - noise) <= best * WITHIN


@given(seed=st.integers(0, 2**32), failing=st.floats(0, 0.45))
def test_with_patience_it_measures_everything_and_finds_the_best(seed, failing):
    """Mutations and draws leave nothing out, however small a generation and however wrong the model."""
    device = Device(seed, shape=(3, 3, 2), model=0.9, failing=failing)
    found = device.search(limits=Limits(population=4, batch=2, patience=len(device.space)))
    assert sorted(one.candidate for one in found.trials) == device.space
    assert found.stopped == "exhausted"
    if device.works():
        assert true_time(device, found) == min(device.works())
    else:
        assert found.best is None


def test_it_descends_from_few_draws_to_the_best():
    """240 candidates of which a generation holds 24: only mutations lead to the best, for a fifth of the space."""
    devices = [Device(seed, model=0.15, noise=0.01, failing=0.05) for seed in range(60)]
    found = [device.search(limits=Limits(population=24), seed=1) for device in devices]
    near = [true_time(device, one) <= WITHIN * min(device.works()) for device, one in zip(devices, found, strict=True)]
    assert sum(near) >= 0.95 * len(near)
    assert sum(len(one.trials) for one in found) <= len(found) * len(devices[0].space) / 5


@given(seed=st.integers(0, 2**32), draws=st.integers(0, 5))
def test_the_same_measurements_and_seed_give_the_same_search(seed, draws):
    one, other = (Device(seed, model=0.2, noise=0.02, failing=0.1) for _ in range(2))
    options = {"seed": draws, "limits": Limits(population=20)}
    assert one.search(**options) == other.search(**options)
    assert one.calls == other.calls


def test_another_seed_draws_others():
    one, other = Device(3), Device(3)
    limits = Limits(population=10)
    assert one.search(seed=0, limits=limits).trials != other.search(seed=1, limits=limits).trials


@given(seed=st.integers(0, 2**32), failing=st.floats(0.1, 0.5))
def test_what_fails_is_reported_once_and_never_chosen(seed, failing):
    device = Device(seed, model=0.3, failing=failing)
    found = device.search()
    tried = [one.candidate for one in found.trials]
    assert len(tried) == len(set(tried)) == sum(map(len, device.calls))
    assert {one.candidate: one.failure for one in found.failures} == {
        one: device.reason[one] for one in tried if device.reason[one]
    }
    assert found.best is None or not device.reason[found.best.candidate]


def test_nothing_that_works_is_an_exhausted_search_without_a_best():
    device = Device(0, shape=(4, 3), failing=1.0)
    found = device.search()
    assert (found.best, found.stopped, len(found.failures)) == (None, "exhausted", 12)
    assert "does not compile" in str(found)


@given(seed=st.integers(0, 2**32), start=st.integers(0, 239))
def test_the_starts_are_measured_first_and_bound_the_result(seed, start):
    device = Device(seed, model=0.9)
    first = device.space[start]
    found = device.search(starts=[first], limits=Limits(population=8))
    assert device.calls[0][0] == first
    assert true_time(device, found) <= device.time[first]


def test_the_time_is_asked_for_between_rounds():
    device, left = Device(5), iter([False, True])
    found = device.search(over=lambda: next(left), limits=Limits(patience=100))
    assert (found.stopped, len(device.calls)) == ("budget", 2)


def test_a_round_measures_the_best_by_estimate():
    device = Device(7, model=0.3)
    device.search(limits=Limits(population=len(device.space)))
    ranked = sorted(device.space, key=device.estimate.__getitem__)
    assert device.calls[0] == ranked[:8]


def test_a_result_prints_as_a_table():
    found = Device(2, shape=(2, 2), failing=0.2).search()
    text = str(found)
    assert found.best is not None
    assert text.splitlines()[-1] == f"4 of 4 candidates in 1 rounds, {len(found.failures)} failed; stopped: exhausted"
    assert text.index(str(found.best.candidate)) < min(
        text.index(str(one.candidate)) for one in found.trials if one is not found.best
    )
    assert found._repr_html_().count("<tr>") == 5


@pytest.mark.parametrize("most", [0, 3])
def test_a_table_says_what_it_leaves_out(most):
    found = Device(2).search()
    table = found.table(most=most)
    assert len(table.rows) == most
    assert table.note.endswith(f"{len(found.trials) - most} more")
