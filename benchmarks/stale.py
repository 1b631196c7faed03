"""Rows that were measured with another kernel than the one that is emitted now."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from benchmarks.compete import source_sha256
from benchmarks.environment import device
from benchmarks.families import FAMILIES
from benchmarks.report import Document


def stale_rows(content: Document) -> list[str]:
    """The rows whose source is emitted differently now, by what ships with redalg: not by what is tuned here."""
    family, chip = FAMILIES[content["benchmark"]], content["environment"]["target"]
    rows = {row.name: row for row in family.rows(device(chip))}
    known = [line for line in content["rows"] if line["name"] in rows]
    with as_shipped():
        return [line["name"] for line in known
                if source_sha256(family, rows[line["name"]], chip) != line["source_sha256"]]  # fmt: skip


@contextmanager
def as_shipped() -> Iterator[None]:
    """Tuned plans are those of the pack alone, whatever this machine's cache holds or the environment asks for."""
    before = {name: os.environ.pop(name, None) for name in ("REDALG_TUNED", "REDALG_CACHE_DIR")}
    with TemporaryDirectory() as folder:
        os.environ["REDALG_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["REDALG_CACHE_DIR"]
            os.environ.update({name: value for name, value in before.items() if value is not None})
