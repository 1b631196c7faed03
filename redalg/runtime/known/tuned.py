"""Plans that were tuned, remembered: the pack that ships with redalg, then the cache folder.

    entry  := key, sizes, schedule over roles (`stored`), measured and predicted time
    key    := cascade, dtypes, shape bucket, options, card, version of the planner, TileLang's version; axes and tensors
              stand under names of its own (`naming`): what a caller calls them does not matter
    bucket := every size rounded up to a power of two; it may hold the plans of several sizes
    pack   := redalg/tuned/<card>.json                    read only; that of a card of the same chip if a card has none
    cache  := <REDALG_CACHE_DIR>/tuned/<card>.json        one writer at a time, replaced whole: readers see old or new

Files of the format before this, which hold the numbers of plans, are read too, and written in this one when an entry
is added. A file that is none of these is reported by a warning and ignored, and so is an entry. The next schedule that
is kept replaces such a file; the old one stays beside it as `.bad`. `REDALG_TUNED=off` ignores both places,
`REDALG_TUNED=pack` the cache.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any, final

from redalg.errors import BackendError, PlanError
from redalg.incremental.derive.scales import for_kernels
from redalg.incremental.form import FusedForm
from redalg.runtime.compile.cache import PATIENCE_S, folder, one_at_a_time
from redalg.runtime.known import stored
from redalg.runtime.known.naming import naming
from redalg.strategies.device import CARDS, DeviceSpec
from redalg.strategies.plan import Problem
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.reads import has_aligned_rows
from redalg.strategies.schedule import ONLINE, TUNED, UNFUSED, AnySchedule, Schedule
from redalg.strategies.search.space import Space

SWITCH = "REDALG_TUNED"
FORMAT, FORMAT_BEFORE = "redalg tuned plans, 3", "redalg tuned plans, 2"
"""The format that a file of tuned plans names, and the one before, with numbers in place of levels."""
PLANNER = 1
"""The version of what schedules mean. Raise it when kernels of old schedules are no longer the best: all kept
schedules are then forgotten."""
VERSION_BEFORE = "0.1.0"
"""The only version of redalg that wrote files of the format before."""
PACKS = Path(__file__).parents[2] / "tuned"


@final
@dataclass(frozen=True)
class Key:
    """The key of a result: the result holds for nothing else.

    Attributes:
        cascade: digest of the definition (`naming`).
        dtypes: of the tensors, by name.
        bucket: by axis, the power of two at or above its size.
        options: those that change results: `empty`, `precision`.
        card: such as `H200`, or `c`.
        planner: version of the planner (`PLANNER`).
        tilelang: version; empty if TileLang is not installed.
    """

    cascade: str
    dtypes: Mapping[str, str]
    bucket: Mapping[str, int]
    options: Mapping[str, str]
    card: str
    planner: int
    tilelang: str

    @property
    def digest(self) -> str:
        """The key as one word, the same in every process."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]


@final
@dataclass(frozen=True)
class Entry:
    """A remembered schedule: its levels over roles (`stored`), the sizes that it was measured at (by the key's names of
    axes), and its times in microseconds."""

    key: Key
    sizes: Mapping[str, int]
    schedule: stored.Line
    measured_us: float
    predicted_us: float

    @property
    def name(self) -> str:
        """The entry's name in a file: a bucket may hold results of several sizes, each with a kernel and without."""
        sizes = (f"{axis}={size}" for axis, size in sorted(self.sizes.items()))
        return " ".join([self.key.digest, *sizes, *([self.form] if self.form != ONLINE else [])])

    @property
    def form(self) -> str:
        """The form of its schedule: a kernel's, the definition, or a product by the library."""
        return stored.form_of(self.schedule)

    @property
    def is_unfused(self) -> bool:
        """True if it is the time of the unfused form, which has no levels."""
        return self.form == UNFUSED


# ---- keys ------------------------------------------------------------------------------------------------------------


def problem_key(form: FusedForm, problem: Problem, device: DeviceSpec) -> Key:
    """The key of a problem of constant sizes."""
    options = {"empty": problem.empty, "precision": problem.precision}
    names = naming(kernel_form(form, problem))
    bucket = {name: power_of_two(size) for name, size in key_sizes(form, problem).items()}
    dtypes = names.of_tensors(problem.dtypes)
    return Key(names.digest, dtypes, bucket, options, card_name(device), PLANNER, tilelang_version())


def kernel_form(form: FusedForm, problem: Problem) -> FusedForm:
    """The form that a kernel of a problem has."""
    return for_kernels(form, problem.dtypes, wide=problem.precision == "wide")


def key_sizes(form: FusedForm, problem: Problem) -> dict[str, int]:
    """A problem's sizes, under the key's names of axes."""
    return naming(kernel_form(form, problem)).of_axes(problem.sizes)


def card_name(device: DeviceSpec) -> str:
    """The card that results are for."""
    return "c" if device.target == "c" else device.part


@cache
def tilelang_version() -> str:
    """The version of TileLang's package; empty without one."""
    try:
        return version("tilelang")
    except PackageNotFoundError:
        return ""


# ---- choice ----------------------------------------------------------------------------------------------------------


def tuned_schedules(form: FusedForm, space: Space) -> Iterator[AnySchedule]:
    """The remembered schedules of a problem.

    First those measured at these very sizes, the fastest first; then those of the bucket's other sizes, where the space
    of these sizes holds them, and rows begin alike. Of equals, the pack's first. What is no kernel is taken at the very
    sizes alone.
    """
    if space.problem.varying:
        return
    found = list(known_entries(form, space.problem, space.device))
    sizes = key_sizes(form, space.problem) if found else {}
    for origin, entry in sorted(found, key=lambda one: one[1].measured_us if one[1].sizes == sizes else inf):
        is_own = entry.sizes == sizes
        if entry.form != ONLINE and not is_own:
            continue
        schedule = stored.read_line(entry.schedule, space.binding, space.device)
        schedule = replace(schedule, predicted_us=entry.predicted_us, origin=origin)
        if is_own or (
            isinstance(schedule, Schedule) and begins_alike(form, space.problem, entry.sizes) and space.admits(schedule)
        ):
            yield schedule


def begins_alike(form: FusedForm, problem: Problem, sizes: Mapping[str, int]) -> bool:
    """Tell if rows of a problem, and of other sizes (by the key's names of axes), both begin at vectors, or neither."""
    names = naming(kernel_form(form, problem)).axes
    other = {axis: sizes.get(names.get(axis, axis), size) for axis, size in problem.sizes.items()}
    return has_aligned_rows(form, problem) == has_aligned_rows(form, replace(problem, sizes=other))


def known_entries(form: FusedForm, problem: Problem, device: DeviceSpec) -> Iterator[tuple[str, Entry]]:
    """The entries of a problem's key, each with its origin; the pack's come first."""
    cards = {"pack": card_of_pack(device), "cache": card_name(device)}
    places = {"pack": pack_file(cards["pack"]), "cache": cache_file(cards["cache"])}
    origins = {"off": (), "pack": ("pack",)}.get(os.environ.get(SWITCH, "").lower(), TUNED)
    files = {origin: read_entries(places[origin]) for origin in origins}
    if any(files.values()):  # else nothing is worth the printing of the form
        key = problem_key(form, problem, device)
        keys = {origin: replace(key, card=card) for origin, card in cards.items()}
        for origin, entries in files.items():
            yield from ((origin, one) for one in entries.values() if one.key == keys[origin])


def card_of_pack(device: DeviceSpec) -> str:
    """The card whose pack serves a card: its own, or that of a card of the same chip with other memory."""
    own = card_name(device)
    alike = (one.part for one in CARDS.values() if chip_of(one) == chip_of(device))
    return next((name for name in (own, *alike) if pack_file(name).is_file()), own)


def chip_of(device: DeviceSpec) -> tuple[str, int, int]:
    """The chip of a card, without its memory."""
    return device.target, device.multiprocessors, device.product_tflops


def was_measured(form: FusedForm, problem: Problem, schedule: Schedule) -> bool:
    """Tell if a schedule was measured at exactly these sizes: a kernel of their own is worth it."""
    if schedule.origin not in TUNED:
        return False
    found = (one for origin, one in known_entries(form, problem, schedule.device) if origin == schedule.origin)
    binding, device, sizes = schedule.binding, schedule.device, key_sizes(form, problem)
    return any(one.sizes == sizes and stored.read_line(one.schedule, binding, device) == schedule for one in found)


def pack_file(name: str) -> Path:
    """The file that ships with redalg for a card."""
    return PACKS / file_name(name)


def cache_file(name: str) -> Path:
    """The file of a card in the cache folder."""
    return folder() / "tuned" / file_name(name)


def file_name(name: str) -> str:
    """A card's file name."""
    return f"{name.replace(' ', '-')}.json"


# ---- files -----------------------------------------------------------------------------------------------------------


def remember(entry: Entry) -> Path:
    """Keep an entry in the cache; return the file that holds it."""
    return add_entries(cache_file(entry.key.card), [entry])


def add_entries(path: Path, entries: Iterable[Entry]) -> Path:
    """Add entries to a file, each in place of the one of its name. Other processes wait, or see the file as it was."""
    name = f"tuned-{sha256(str(path.resolve()).encode()).hexdigest()[:32]}"
    with one_at_a_time(name, f"writes {path.name}") as has_lock:
        if not has_lock:
            lock = folder() / "locks" / f"{name}.lock"
            raise BackendError(f"another process has held {path} for {PATIENCE_S:.0f} s, and may be stopped: nothing "
                               f"was added. End it; `fuser {lock}` tells its number.")  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        entries_by_name = parse_file(path)
        if entries_by_name is None and path.exists():
            path.replace(path.with_suffix(".bad"))
        all_of = {**(entries_by_name or {}), **{one.name: one for one in entries}}
        fresh = path.with_suffix(f".{os.getpid()}.new")
        fresh.write_text(file_text([all_of[name] for name in sorted(all_of)]), encoding="utf-8")
        fresh.replace(path)
    return path


_READ: dict[Path, tuple[tuple[int, int, int], dict[str, Entry]]] = {}
"""The stamp of each file when it was read, and the entries that it held."""


def read_entries(path: Path) -> dict[str, Entry]:
    """The entries of a file by their names, read again when it has changed; none if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return {}
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    if path not in _READ or _READ[path][0] != stamp:
        _READ[path] = stamp, parse_file(path) or {}
    return _READ[path][1]


def parse_file(path: Path) -> dict[str, Entry] | None:
    """The entries of a file; None if there is no file, or, with a warning, if it holds no tuned plans."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") not in (FORMAT, FORMAT_BEFORE):
            raise ValueError(f"it does not say that it is of the format {FORMAT!r}")
        listed = list(content["entries"])
    except (OSError, ValueError, KeyError, TypeError) as cause:
        report(f"{path} holds no tuned plans and is ignored ({type(cause).__name__}: {cause}). Delete it.")
        return None
    found = {}
    for line in listed:
        try:
            entry = parse_entry(line)
        except (KeyError, TypeError, ValueError, PlanError) as cause:
            report(f"an entry of {path} is no tuned plan and is ignored ({type(cause).__name__}: {cause}).")
            continue
        found[entry.name] = entry
    return found


def parse_entry(line: Mapping[str, Any]) -> Entry:
    """An entry as it was written; raises `KeyError`, `TypeError` or `ValueError` for anything else."""
    parts = line["key"]
    if "plan" in line:  # the format before
        schedule = stored.from_choices(dict(line["plan"]))
        planner = 1 if parts["redalg"] == VERSION_BEFORE else 0
    else:
        schedule, planner = line["schedule"], int(parts["planner"])
    if stored.form_of(schedule) == ONLINE:
        stored.parse_levels(schedule)
    key = Key(str(parts["cascade"]), dict(parts["dtypes"]), dict(parts["bucket"]), dict(parts["options"]),
              str(parts["card"]), planner, str(parts["tilelang"]))  # fmt: skip
    sizes = {str(name): int(size) for name, size in dict(line["sizes"]).items()}
    return Entry(key, sizes, schedule, float(line["measured_us"]), float(line["predicted_us"]))


def file_text(entries: Sequence[Entry]) -> str:
    """A file's text: an entry a line."""
    lines = ",\n".join(json.dumps(asdict(one)) for one in entries)
    return f'{{"format": {json.dumps(FORMAT)}, "entries": [\n{lines}\n]}}\n'


def report(message: str) -> None:
    """Warn of a file or an entry that is ignored."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)
