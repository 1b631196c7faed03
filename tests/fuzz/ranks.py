"""`python -m tests.fuzz.ranks [--cases N] [--seconds S] [--seed K]`: random cascades across ranks of Gloo.

    shards      2 or 4 ranks, of drawn lengths, some of them 0
    topology    whole outputs, slices along b, parts of fixed length, groups, rows of b with or without groups
    calls       three of one kind (agreed on, known, kept), then one of other lengths

Every rank has to give the outputs of the whole: no further from the definition in float64 than 20 times a call is, up
to rounding. What is refused has to be refused on all ranks alike. The exit status is 1 where a case is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, final

import numpy as np
import torch
import torch.distributed as dist

import redalg as ra
from redalg.errors import RedalgError
from tests.cases import random_cascades
from tests.cases.random_cascades import b, n
from tests.distributed.pool import Outcome, ranks

MOST_RANKS = 4
TOPOLOGIES = ("whole", "whole", "sharded", "parts", "groups", "rows", "rows and groups")
YARDSTICK, ROUNDING = 20, 1e-11
GROUPS = 3
SHAPES = {"x": "bn", "y": "bn", "s": "bn", "w": "bn", "M": "bn", "t": "b", "v": "ne", "y1": "n", "s1": "n", "w1": "n"}
TRAVELLING = {getattr(random_cascades, name): ra.tensor(f"{name}1[n]") for name in "ysw"}
"""Tensors that all rows share, in place of those that each row has: they travel where rows are split."""
Arrays = dict[str, np.ndarray]
GROUP: dict[int, Any] = {}
"""The process group of a rank, by its number of ranks."""


@final
@dataclass(frozen=True)
class Drawn:
    """The way in which a case is run.

    Attributes:
        size: the number of ranks.
        topology: of `TOPOLOGIES`.
        lengths: of the shards, of the first three calls and of the last.
    """

    size: int
    topology: str
    lengths: tuple[tuple[int, ...], tuple[int, ...]]


def draw(seed: int) -> Drawn:
    """The way of a seed; parts of fixed length end where shards end."""
    chosen = random.Random(seed)
    size, topology = chosen.choice((2, MOST_RANKS)), chosen.choice(TOPOLOGIES)
    unit = 4 if topology == "parts" else 1
    first, second = (tuple(unit * chosen.choice((0, 1, 2, 3, 7)) for _ in range(size)) for _ in range(2))
    if topology == "parts":
        first = second = (4,) * size
    return Drawn(size, topology, (first, second))


def whole_data(fused: Any, seed: int, rows: int, length: int) -> Arrays:
    """The numbers of a case in float64: moderate, far from 0 in each fourth, with masked logits in each eighth."""
    generator, sizes = np.random.default_rng(seed), {"b": rows, "n": length, "e": 2}
    drawn = {}
    for name, axes in SHAPES.items():
        shape = [sizes[axis] for axis in axes]
        drawn[name] = generator.uniform(-1, 1, shape) + (100 if name == "x" and seed % 4 == 3 else 0)
    drawn["w"], drawn["w1"] = np.exp(drawn["w"]), np.exp(drawn["w1"])
    drawn["M"] = (drawn["M"] > -0.5).astype(float)
    drawn["M"][:, :1] = 1
    if seed % 8 == 5:
        drawn["s"][:, 1:][drawn["s"][:, 1:] < -0.5] = -np.inf
    return {name: drawn[name] for name in fused.cascade.inputs()}


def scalars_of(fused: Any) -> dict[str, float]:
    return {str(one.name): 0.75 for one in fused.cascade.scalars()}


def fuse_case(seed: int) -> Any:
    outputs = random_cascades.case(seed).outputs
    if draw(seed).topology.startswith("rows"):
        outputs = {name: (expr.xreplace(TRAVELLING), axes) for name, (expr, axes) in outputs.items()}
    return ra.fuse(outputs)


def arrays_of(outputs: Any) -> Arrays:
    return {name: np.asarray(one) for name, one in outputs._asdict().items()}


def shard_of_rank(data: Arrays, drawn: Drawn, rank: int, lengths: tuple[int, ...]) -> Arrays:
    """The tensors of a rank; where rows are split, two of them each, and those with both axes have its rows alone."""
    rows, streamed = (slice(2 * rank, 2 * rank + 2), slice(sum(lengths[:rank]), sum(lengths[: rank + 1])))
    split_rows = drawn.topology.startswith("rows")
    found = {}
    for name, array in data.items():
        axes = SHAPES[name]
        places = {"b": rows if split_rows else slice(None),
                  "n": slice(None) if split_rows and "b" in axes else streamed}  # fmt: skip
        found[name] = array[tuple(places.get(axis, slice(None)) for axis in axes)]
    return found


def keys_of(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, GROUPS, length)


def outputs_of(fused: Any, seed: int, drawn: Drawn, rank: int) -> list[Arrays]:
    """The outputs of this rank, of all calls."""
    options: dict[str, Any] = {
        "sharded": {"sharded": b}, "parts": {"deterministic": drawn.size}, "rows": {"rows": b},
        "rows and groups": {"rows": b},
    }.get(drawn.topology, {})  # fmt: skip
    call, found = fused.distributed(GROUP[drawn.size], axis=n, **options), []
    for lengths in (*(drawn.lengths[0],) * 3, drawn.lengths[1]):
        length = sum(lengths)
        data = whole_data(fused, seed, 2 * drawn.size, length)
        given: dict[str, Any] = {}
        given |= {name: torch.tensor(one) for name, one in shard_of_rank(data, drawn, rank, lengths).items()}
        if "groups" in drawn.topology:
            start = sum(lengths[:rank])
            keys = keys_of(seed, length)[start : start + lengths[rank]]
            given |= {"by": torch.tensor(keys), "groups": GROUPS}
        found.append(arrays_of(call(**given, **scalars_of(fused))))
    return found


def run(rank: int, _: int, seeds: list[int]) -> list[Any]:
    """What this rank has of every seed: outputs, or the refusal; None where it has no part."""
    for size in (2, MOST_RANKS):
        if size not in GROUP:
            GROUP[size] = dist.new_group(list(range(size)))
    found: list[Any] = []
    for seed in seeds:
        drawn = draw(seed)
        if rank >= drawn.size:
            found.append(None)
            continue
        try:
            fused = fuse_case(seed)
        except RedalgError as error:
            found.append(f"no form: {type(error).__name__}")
            continue
        try:
            found.append(outputs_of(fused, seed, drawn, rank))
        except RedalgError as error:
            found.append(f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - it is told
            found.append(f"RAW {type(error).__name__}: {error}")
    return found


# ---- judging ---------------------------------------------------------------------------------------------------------


def verdict(seed: int, of_ranks: list[Any]) -> str:
    """What became of a case: right, a refusal, or what is wrong."""
    drawn, of_ranks = draw(seed), [one for one in of_ranks if one is not None]
    if any(isinstance(one, str) for one in of_ranks):
        kinds = {one.split(":")[0] if isinstance(one, str) else "outputs" for one in of_ranks}
        raw = [one for one in of_ranks if isinstance(one, str) and one.startswith("RAW")]
        if raw or len(kinds) > 1:
            return f"WRONG: {kinds}: {raw or of_ranks[0]}"[:400]
        return f"refused: {of_ranks[0]}" if not of_ranks[0].startswith("no form") else "no form of one pass"
    fused = fuse_case(seed)
    for number in range(4):
        lengths = drawn.lengths[number // 3]
        data = {**whole_data(fused, seed, 2 * drawn.size, sum(lengths)), **scalars_of(fused)}
        keys = {"by": keys_of(seed, sum(lengths)), "groups": GROUPS} if "groups" in drawn.topology else {}
        called, exact = arrays_of(fused(**data, **keys)), definition(fused, data, keys)
        for output in fused.form.outputs:
            mine = [one[number][output.name] for one in of_ranks]
            place = [str(axis) for axis in output.axes].index("b") + bool(keys) if b in output.axes else None
            split = drawn.topology == "sharded" or drawn.topology.startswith("rows")
            if not split and not all(np.array_equal(mine[0], one, equal_nan=True) for one in mine[1:]):
                return f"WRONG: ranks differ in call {number}"
            found = np.concatenate(mine, place) if split else mine[0]
            fault = compare(found, called[output.name], exact[output.name])
            if fault:
                return f"WRONG: call {number}, output {output.name}: {fault}"
    return "right"


def definition(fused: Any, data: Mapping[str, Any], keys: Mapping[str, Any]) -> Arrays:
    """The definition in float64. By group it is a call's: `tests/runtime/test_groups.py` compares those with it."""
    return arrays_of(fused(**data, **keys) if keys else fused.reference(**data))


def compare(found: np.ndarray, called: np.ndarray, exact: np.ndarray) -> str:
    """The fault of an output beside that of a call and the definition; empty if it has none."""
    if found.shape != called.shape:
        return f"shape {found.shape}, not {called.shape}"
    found, called, exact = (np.asarray(one, float) for one in (found, called, exact))  # truth too
    with np.errstate(all="ignore"):
        finite = np.isfinite(called) & np.isfinite(exact)
        if not np.isfinite(found)[finite].all():
            return "not finite where a call is"
        scale = np.max(np.abs(exact[finite]), initial=1.0)
        allowed = ROUNDING * scale + YARDSTICK * np.max(np.abs(called - exact)[finite], initial=0.0)
        off = np.max(np.abs(found - exact)[finite], initial=0.0)
    return f"off by {off:.2e}, allowed are {allowed:.2e}" if off > allowed else ""


def main() -> int:
    """Run, print, and tell whether all was right."""
    parser = argparse.ArgumentParser("tests.fuzz.ranks", description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=np.inf, help="after which no more are drawn")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    seeds = [asked.seed + number for number in range(asked.cases)]
    became, stop = Counter[str](), monotonic() + asked.seconds
    with TemporaryDirectory() as folder, ranks(MOST_RANKS, Path(folder), timeout=120) as pool:
        for first in range(0, len(seeds), 5):
            if monotonic() > stop:
                break
            some = seeds[first : first + 5]
            outcomes: list[Outcome] = pool.outcomes(run, some)
            failed = [one for one in outcomes if one.error]
            for number, seed in enumerate(some):
                told = f"WRONG: {failed}" if failed else verdict(seed, [one.value[number] for one in outcomes])
                became[f"{draw(seed).topology:16} {told.split(';')[0][:110]}"] += 1
                if told.startswith("WRONG"):
                    print(f"seed {seed}, {draw(seed)}: {told}", flush=True)
            if failed:
                return 1
    print(f"{became.total()} of {asked.cases} cases")
    for told, number in sorted(became.items()):
        print(f"{number:4} {told}")
    return int(any("WRONG" in told for told in became))


if __name__ == "__main__":
    sys.exit(main())
