"""Every workaround: the tool and the version that it is for, and the day by which somebody looks whether it may go.

A test fails if the installed tool has another version, or if that day has passed. Then run what the row says on the new
version: if it is right there, delete the workaround and its row, else give the row the version and another day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import final

TILELANG, NVCC, GCC = "TileLang", "nvcc", "GCC"
TILELANG_VERSION = "0.1.15"
LOOK_AGAIN = date(2027, 6, 30)


@final
@dataclass(frozen=True)
class Workaround:
    """Code that is there for the sake of one version of a tool.

    Attributes:
        seen: what the tool does, and on what.
        places: `module:name` of the code, in redalg.
        tool, version: the tool, and the last version that was seen to do so.
        expires: the day by which it is looked at again.
    """

    seen: str
    places: tuple[str, ...]
    tool: str = TILELANG
    version: str = TILELANG_VERSION
    expires: date = LOOK_AGAIN


RULES = "lower_tile.workarounds.rules"
TMA = "lower_tile.workarounds.tma"

WORKAROUNDS = (
    Workaround(
        "never waits for a tile that TMA fetches ahead of a loop that takes no step, if warps are specialised",
        (f"{TMA}:await_before_empty_loops", f"{TMA}:arriving_late", f"{RULES}:late"),
    ),
    Workaround(
        "does not compile a box of TMA of over 256 elements in a dimension but the last, no multiple of 256",
        (f"{TMA}:limit_boxes",),
    ),
    Workaround(
        "releases a tile of a loop that threads copy before its last read, if warps are specialised",
        (f"{TMA}:is_fetched", "lower_tile.place.operands:Operands.stage_lines"),
    ),
    Workaround(
        "compiles reads of a tile in registers at a serial variable, shifted or at two places into wrong code (#2396, "
        "#2957)",
        (f"{RULES}:registers",),
    ),
    Workaround("overwrites what a pipelined loop loads ahead (#2668)", (f"{RULES}:prefetch_overwrites",)),
    Workaround(
        "gets registers wrong that enter a contraction and are copied to shared memory as well (#2954)",
        (f"{RULES}:operand_copies",),
    ),
    Workaround(
        "fails on pipelines of several stages over a varying number of tiles without loading warps",
        (
            f"{RULES}:trip_count",
            "strategies.rules.loop_tiles:ampere_tile",
            "strategies.rules.chains:chain_rule",
            "strategies.rules.pairs:serial_stages",
        ),
    ),
    Workaround(
        "takes ⌊min(99, 64·q + 63) / 64⌋ + 1 for a constant",
        (f"{RULES}:quotients", "lower_tile.place.extent:needed_tiles"),
    ),
    Workaround(
        "takes a loop of at most one step, or of a pipeline's stages and one, for a loop of so many (TVM: a number of "
        "steps is simplified as if there were one)",
        ("lower_tile.workarounds.trips:number_in_variables",),
    ),
    Workaround(
        "refuses a barrier in a loop whose stop is a sum with its start, a minimum, where warps are specialised",
        ("lower_tile.place.frames:span",),
    ),
    Workaround(
        "refuses a barrier after a loop whose branch masks a tile by two bounds, where warps are specialised",
        ("lower_tile.workarounds.bands:bands_by_difference",),
    ),
    Workaround("fills shared memory wrongly where warps are specialised", (f"{RULES}:shared_fills",)),
    Workaround("reduces widths of no power of two by some numbers of threads alone", (f"{RULES}:reduced_width",)),
    Workaround(
        "sums wrongly where warps that load stand in a loop within a loop (an H200)",
        (
            "strategies.plan:Plan.obstacle_at",
            "strategies.rules.contractions:scores_tile",
            "lower_tile.place.frames:span",
        ),
    ),
    Workaround(
        "has no layout of a tile that is summed beside a product's and computed of shared memory alone",
        ("lower_tile.workarounds.layouts:lay_as_product",),
    ),
    Workaround(
        "leaves most threads idle, or has each compute whole rows, where a step reads what it reduced its rows to",
        ("lower_tile.passes.side_by_side:share_out_rows",),
    ),
    Workaround(
        "has no layout of a left operand in registers of more than 64 rows a warpgroup",
        ("strategies.search.registers:ROWS_OF_WARPGROUP",),
    ),
    Workaround(
        "ranks two rows of a thread in local memory, up to five times as slowly",
        ("strategies.search.registers:fits_registers",),
    ),
    Workaround(
        "prints literals on the C target with seven digits, and takes a literal that stands alone for a float32",
        ("lower_tile.text.expr_printer:Printer._decimal",),
    ),
    Workaround(
        "narrows `sync_threads` to the warps that go on where warps are specialised",
        ("lower_tile.text.bindings:ARRIVE_CUDA",),
    ),
    Workaround(
        "lets a whole warp that copies to other blocks of a cluster wait for itself, not for its block, or refuses",
        ("strategies.plan:WIDEST_IN_CLUSTER",),
    ),
    Workaround(
        "tries widths of vectors for each condition of a loop, by a solver, at every root of its search for layouts",
        ("lower_tile.workarounds.widths:take_each_alone",),
    ),
    Workaround(
        "asks a solver about every two reads of shared memory, with what a loop's bounds are written out: for minutes, "
        "of two ranges of tiles that places of run time shift",
        ("lower_tile.place.frames:span",),
    ),
    Workaround("inlines what a guarded store computes once", ("lower_tile.text.emit:Emitter.store",)),
    Workaround(
        "sums two tiles of a pipeline wrongly where warpgroups take 16 columns each (an H200)",
        (f"{RULES}:few_columns",),
        NVCC,
        "13.0",
    ),
    Workaround(
        "reads wrongly by masked gathers of two places, and by masked loads that go backwards, with AVX-512",
        ("lower_tile.workarounds.compilers:NO_MASKED_READS",),
        GCC,
        "12",
    ),
)
