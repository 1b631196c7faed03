"""The cost model's training data: what was drawn and tuned, in one compressed file beside the report of its fit.

    data/draws.json.xz   documents of draws and of tuning, each with `taken`: how its plans were chosen
    data/fit.json        the file's SHA-256, where it was measured, and how well the constants predict it (`fitted`)

`taken` is `uniform` (drawn uniformly from a row's space), `best` (those that a model took for the best) or `tuned` (the
candidates of a search). One text is compressed to the same bytes every time, so that a hash tells files apart.
"""

import json
import lzma
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT

Document = dict[str, Any]
FILE = ROOT / "benchmarks" / "data" / "draws.json.xz"
UNIFORM, BEST, TUNED = WAYS = ("uniform", "best", "tuned")
SWEEP, TUNE = "sweep-", "tune-"
"""Prefixes of the names of documents."""


def read(*taken: str, family: str = "", path: Path = FILE) -> list[Document]:
    """The documents whose plans were taken in these ways (in any, if none is named), of one family or of all."""
    documents: list[Document] = json.loads(lzma.decompress(path.read_bytes()))
    return [content for content in documents
            if content["taken"] in (taken or WAYS) and family in ("", family_of(content))]  # fmt: skip


def write(documents: Sequence[Document], path: Path = FILE) -> None:
    """Compress documents into the file."""
    text = json.dumps(documents, ensure_ascii=False, separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def file_sha256(path: Path = FILE) -> str:
    """The hash of the file."""
    return sha256(path.read_bytes()).hexdigest()


def family_of(content: Document) -> str:
    """The family that a document of draws or of tuning is of.

    >>> family_of({"benchmark": "sweep-attention_small"})
    'attention_small'
    """
    return str(content["benchmark"]).split("-", 1)[1]


def way_of(content: Document) -> str:
    """The way in which a document's plans were taken: as it says, else tuned or drawn uniformly."""
    known = content.get("taken") or (TUNED if str(content["benchmark"]).startswith(TUNE) else UNIFORM)
    if known not in WAYS:
        raise ValueError(f"{content['benchmark']}: plans are taken {', '.join(WAYS)}, not {known}")
    return str(known)


def counted(documents: Iterable[Document]) -> dict[str, int]:
    """Plans that were measured or failed, by how they were taken."""
    found = dict.fromkeys(WAYS, 0)
    for content in documents:
        found[content["taken"]] += sum(len(line.get("plans", line.get("trials", ()))) for line in content["rows"])
    return found
