"""The schedules of a space with their predicted times, best first; and the neighbours of each.

    candidate    schedule, predicted time, the term that bounds it, its tiling expression as MCFuser (SC '24) writes it
    neighbours   candidates that differ in one choice, a tile length, stages, threads … (Algorithm 1, `mutate`)

Rows that are merged together follow from the other choices, and so are no choice of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import final, overload

from redalg.display import Displayed
from redalg.errors import InputError, PlanError
from redalg.expression.arguments import answer_methods, short_text
from redalg.progress import progress_bar
from redalg.strategies.model.cost import Prediction
from redalg.strategies.model.traffic import Traffic
from redalg.strategies.plan import CHOICES
from redalg.strategies.schedule import AnySchedule, Schedule, check_tiles, choices_of, for_form, numbers_of
from redalg.strategies.search.choice import reason_of_choice
from redalg.strategies.search.space import Space
from redalg.strategies.table import Table

VARIED = tuple(name for name in CHOICES if name != "block_merged")
LINES, FEW = 12, 5
"""Rows that `str` and `repr` print."""
MARK = "←"
"""Beside the plan that a call takes."""


@final
@dataclass(frozen=True, repr=False)
class Candidate(Displayed):
    """A plan and the prediction of the model for it.

    Attributes:
        plan: the schedule; pass it on as `plan=` of a call.
        predicted_us: predicted time in microseconds.
        bound: the term that takes longest: `memory`, `L2`, `tensor cores`, `special functions`, `latency` …
        expression: its tiling expression, `bhqek(d)`: blocks, rows and columns, the streamed loop, then inner ones.
        smem_bytes: shared memory of a block, estimated; those that exceed the device's are listed last.
        terms: the time that each unit would take alone, in microseconds; empty of what is no kernel.
        refusal: why the plan has no program, or none that fits the device; empty if it has, or if it was not built yet.

    >>> import redalg as ra
    >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> best = total.plans({"b": 4096, "n": 4096}, "float32", "H100")[0]
    >>> best.bound, best.expression, max(best.terms, key=best.terms.get)
    ('memory', 'bn', 'memory')
    """

    plan: AnySchedule
    predicted_us: float
    bound: str
    expression: str
    smem_bytes: int = 0
    terms: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
    refusal: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.refusal:
            return f"refused: {self.expression}: {self.plan}: {self.refusal}"
        return f"{self.predicted_us:.2f} µs, bound by {self.bound}: {self.expression}: {self.plan}"


Entry = tuple[AnySchedule, Callable[[], Candidate]]
"""A plan in its place by predicted time, and what makes its candidate."""


@answer_methods(InputError, "__getitem__")
@final
class Candidates(Displayed, Sequence[Candidate]):
    """Candidates: those that build, best first by predicted time, then those that do not; printed as a table.

    The table marks the plan that a call takes: rules may prefer it to those that are predicted to be faster.

    All are predicted and ranked when the first is read, or their number, in a fraction of a millisecond each. Only
    building tells if a program breaks a rule or does not fit the device. So each is built when it is first read,
    in milliseconds, and those that are refused come last, each with its `refusal`. The length is that of all, and
    builds none. A negative place builds all of them, and so does a `list`.

    >>> import redalg as ra
    >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> plans = total.plans({"b": 4096, "n": 4096}, "float32", "H100")
    >>> print(plans.table(2))
    plans for H100, predicted
            µs    bound   tiling   plan
    ──────────────────────────────────────────────────────────────────
     0   25.63   memory       bn   Grid(b) Lanes(n, 64) Loop(n, 1024)
     1   25.63   memory       bn   Grid(b) Lanes(n, 64) Loop(n, 512)
     ←   25.71   memory       bn   Grid(b) Lanes(n, 128) Loop(n, 512)
    the first 2 of 72 candidates; ← a call takes it, by the rules: the model was not
    fitted to long rows that fill the chip, on which the rules were measured to be
    better, and its order of such plans is a guess
    >>> len(plans)
    72
    >>> plans[0].predicted_us <= plans[1].predicted_us
    True
    >>> str(plans.choice).split(";")[0]
    'Grid(b) Lanes(n, 128) Loop(n, 512)'
    >>> plans.with_choice(lambda: plans[0].plan).places(2)[0][0]
    '0 ←'
    """

    def __init__(
        self, rank: Callable[[], Iterable[Entry]], title: str = "", refuse: Callable[[AnySchedule], str] | None = None,
        choice: Callable[[], AnySchedule] | None = None, reason: Callable[[AnySchedule], str] | None = None,
        *, note: str = "", price: Callable[[Schedule], Candidate] | None = None,
    ) -> None:  # fmt: skip
        self.title, self.note, self._price = title, note, price
        self._rank, self._refuse, self._choice, self._reason = rank, refuse, choice, reason
        self._next, self._buildable, self._refused = 0, list[Candidate](), list[Candidate]()

    def with_choice(self, choice: Callable[[], AnySchedule]) -> Candidates:
        """These candidates with what tells the plan that a call takes, which is asked when a table is printed."""
        return Candidates(self._in_order, self.title, self._refuse, choice, self._reason, note=self.note,
                          price=self._price)  # fmt: skip

    def predict(self, plan: AnySchedule) -> Candidate:
        """The candidate of any plan, listed or not: what the model predicts for it, and why it does not build, if so.

        Args:
            plan: a schedule, or a plan by PyTorch's operations that is listed.

        Raises:
            PlanError: the schedule does not suit the function or the device.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> plans = ra.fuse(ra.sum(ra.tensor("x[b,n]"), n)).plans({"b": 64, "n": 10**6}, "float32", "H100")
        >>> mine = plans.predict(ra.Schedule(ra.Grid("b"), ra.Lanes(n, 128), ra.Loop(n, 512)))
        >>> mine.refusal, mine.predicted_us > plans[0].predicted_us
        ('', True)
        """
        if self._price is not None and isinstance(plan, Schedule):
            found = self._price(plan)
            return found if self._refuse is None else replace(found, refusal=self._refuse(found.plan))
        for entry, make in self._entries:
            if entry == plan:
                return make()
        raise InputError(f"predict: plan={short_text(plan)} is no schedule, and none of these plans. Write it as "
                         '`ra.Schedule(ra.Grid("b"), …)`.')  # fmt: skip

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        return tuple(self._rank())

    def _in_order(self) -> tuple[Entry, ...]:
        return self._entries

    @cached_property
    def choice(self) -> AnySchedule | None:
        """The plan that a call takes; None if that is not known."""
        return None if self._choice is None else self._choice()

    def _up_to(self, count: int | None) -> list[Candidate]:
        """Build candidates until `count` work (all if None); those that work so far, and the others after the last."""
        with progress_bar("build plans", len(self._entries), enabled=self._next < len(self._entries)) as tell:
            while self._next < len(self._entries) and (count is None or len(self._buildable) < count):
                tell(self._next)
                entry = self._entries[self._next][1]()
                refusal = entry.refusal or (self._refuse(entry.plan) if self._refuse is not None else "")
                (self._refused if refusal else self._buildable).append(replace(entry, refusal=refusal))
                self._next += 1
        return self._buildable if self._next < len(self._entries) else [*self._buildable, *self._refused]

    @overload
    def __getitem__(self, place: int) -> Candidate: ...
    @overload
    def __getitem__(self, place: slice) -> Candidates: ...
    def __getitem__(self, place: int | slice) -> Candidate | Candidates:
        if hasattr(place, "shape") and place.shape:
            raise InputError(f"plans[{short_text(place)}]: plans are numbered from 0, the fastest. Write `plans[0]`.")
        if isinstance(place, slice):
            has_end = place.stop is not None and place.stop >= 0 and (place.start or 0) >= 0
            chosen = self._up_to(place.stop if has_end else None)[place]
            some = [(entry.plan, partial(replace, entry)) for entry in chosen]
            return Candidates(partial(tuple, some), self.title, None, self._choice, self._reason, note=self.note,
                              price=self._price)  # fmt: skip
        return self._up_to(place + 1 if place >= 0 else None)[place]

    def __iter__(self) -> Iterator[Candidate]:
        place = 0
        while len(first := self._up_to(place + 1)) > place:
            yield first[place]
            place += 1

    def __len__(self) -> int:
        return len(self._entries)

    def places(self, most: int | None = LINES) -> list[tuple[str, Candidate]]:
        """The first `most` candidates, each after its place; then that of a call, if it is none of them.

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> [place for place, _ in total.plans({"b": 4096, "n": 4096}, "float32", "H100").places(2)]
        ['0', '1', '←']
        """
        first = self._up_to(most)[:most]
        found = [(f"{place} {MARK}" if entry.plan == self.choice else str(place), entry)
                 for place, entry in enumerate(first)]  # fmt: skip
        if self.choice is not None and all(entry.plan != self.choice for entry in first):
            found += [(MARK, make()) for plan, make in self._entries if plan == self.choice][:1]
        return found

    def table(self, most: int | None = LINES) -> Table:
        """The table of the first `most` candidates; of all if None. ← marks the plan that a call takes."""
        shown = self.places(most)
        rows = tuple((place, *cells_of(entry)) for place, entry in shown)
        first = len(self._up_to(most)[:most])
        notes = [f"the first {first} of {len(self)} candidates"] if first < len(self) else []
        marked = next((entry for place, entry in shown if MARK in place), None)
        notes += [f"{MARK} a call takes it{self._why(marked, shown[0][1])}"] if marked else []
        notes += [self.note] if self.note else []
        return Table(self.title, ("", "µs", "bound", "tiling", "plan"), rows, "; ".join(notes))

    def _why(self, taken: Candidate, first: Candidate) -> str:
        """The reason why it is taken before the first, if that is predicted to be faster."""
        if self._reason is None or self.choice is None or taken.predicted_us <= first.predicted_us:
            return ""
        return f", {self._reason(self.choice)}"

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        """The best few: a plan may take three lines of a screen."""
        return str(self.table(FEW))


def cells_of(candidate: Candidate) -> tuple[str, ...]:
    """A row of the table, without its place."""
    if candidate.refusal:
        return "-", "refused", candidate.expression, f"{levels_text(candidate.plan)}: {candidate.refusal}"
    levels = levels_text(candidate.plan)
    return f"{candidate.predicted_us:.2f}", candidate.bound, candidate.expression, levels


def levels_text(plan: AnySchedule) -> str:
    """A plan without the target, which the title of a table names."""
    limits = getattr(plan, "limits", None)
    return str(plan) if limits is None else str(plan).replace(f"; {limits.target}", "")


def rank_candidates(
    space: Space, others: Iterable[Candidate] = (), refuse: Callable[[AnySchedule], str] | None = None
) -> Candidates:
    """Every plan of a space, and others that are no kernels, best first by predicted time.

    `refuse` gives the reason why a plan does not build; empty if it does.
    """
    title = f"plans for {space.device.part}, predicted"
    rank = partial(rank_entries, space, tuple(others))
    return Candidates(rank, title, refuse, reason=partial(reason_of_choice, space), note=space.outline.live.premises,
                      price=partial(price_of_own, space))  # fmt: skip


def price_of_own(space: Space, plan: Schedule) -> Candidate:
    """The candidate of a schedule that a user wrote.

    Raises:
        PlanError: it does not suit the form, the sizes or the device.
    """
    if plan.limits is not None and plan.limits.target != space.device.target:
        raise PlanError(f"the plan is for {plan.limits.target}, and these are for {space.device.target}. Make a plan "
                        f"for {space.device.target}.")  # fmt: skip
    schedule = for_form(plan, space.binding, space.device)
    check_tiles(schedule, space.sized_problem.sizes, space.problem.varying)
    return candidate(space, schedule, space.predict(schedule))


def rank_entries(space: Space, others: Iterable[Candidate]) -> list[Entry]:
    """The plans of a space and others in their places; those that are estimated to need too much memory are last."""
    most = space.device.smem_bytes
    with progress_bar("rank plans"):
        ranked = space.rank()
    entries = list[tuple[bool, float, AnySchedule, Callable[[], Candidate]]]()
    for prediction, plan in ranked:
        make = partial(candidate, space, plan, prediction)
        entries.append((prediction.smem_bytes > most, prediction.time_us, plan, make))
    for entry in others:
        entries.append((entry.smem_bytes > most, entry.predicted_us, entry.plan, partial(replace, entry)))
    entries.sort(key=lambda entry: entry[:2])
    return [(plan, make) for *_, plan, make in entries]


def candidate(space: Space, schedule: Schedule, prediction: Prediction) -> Candidate:
    """Return a schedule with the prediction of the model for it."""
    nest = Traffic(space.outline, numbers_of(schedule)).nest
    return Candidate(schedule, prediction.time_us, prediction.bound, str(nest), prediction.smem_bytes,
                     prediction.terms)  # fmt: skip


@final
@dataclass(frozen=True)
class Neighbourhood:
    """Schedules by all of their choices but one: those under one key are neighbours."""

    groups: dict[Hashable, list[AnySchedule]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(schedules: Iterable[AnySchedule]) -> Neighbourhood:
        """The neighbourhood of a space's schedules."""
        neighbourhood = Neighbourhood()
        for schedule in schedules:
            for key in keys(schedule):
                neighbourhood.groups[key].append(schedule)
        return neighbourhood

    def beside(self, schedule: AnySchedule) -> list[AnySchedule]:
        """Those that differ from a schedule in one choice, in the space's order."""
        return [one for key in keys(schedule) for one in self.groups.get(key, ()) if one != schedule]


def keys(schedule: AnySchedule) -> Iterator[Hashable]:
    """The keys of a schedule: for each choice, all the other choices."""
    choices = choices_of(schedule)
    values = tuple(choices.get(name) for name in VARIED)
    return ((place, values[:place], values[place + 1 :]) for place in range(len(VARIED)))
