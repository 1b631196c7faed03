"""The passes of a tile program, in order: TileProgram -> TileProgram, each of which means the program that it is given.

Every pass is a pure function, and says what it changes and where. The list is data: `PASSES` is read from the top.
Tests verify the program ahead of every pass and after it, and run both on arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redalg.incremental.rewrite import Rewrite
from redalg.lower_tile.ir.program import Kernel, TileProgram
from redalg.lower_tile.passes.adjoining_rows import load_adjoining_rows
from redalg.lower_tile.passes.aligned_rows import align_rows
from redalg.lower_tile.passes.before_sums import tiles_before_sums
from redalg.lower_tile.passes.binary_exponents import with_powers_of_two
from redalg.lower_tile.passes.bulk_rows import fetch_rows_in_bulk
from redalg.lower_tile.passes.choices import choose_after
from redalg.lower_tile.passes.cluster_rows import share_rows_in_clusters
from redalg.lower_tile.passes.constant_terms import add_constants_once
from redalg.lower_tile.passes.divisors import divide_by_known
from redalg.lower_tile.passes.elements import name_elements
from redalg.lower_tile.passes.exponents import add_exponents_once
from redalg.lower_tile.passes.factors import share_factors
from redalg.lower_tile.passes.grouped import group_rows
from redalg.lower_tile.passes.hoist import hoist_block_invariants
from redalg.lower_tile.passes.instructions import use_instructions
from redalg.lower_tile.passes.join import fuse_row_loops
from redalg.lower_tile.passes.kept_rows import keep_large_rows
from redalg.lower_tile.passes.kept_terms import keep_terms
from redalg.lower_tile.passes.loads_first import loads_first
from redalg.lower_tile.passes.loops import without_single_steps
from redalg.lower_tile.passes.masked_loads import load_masked
from redalg.lower_tile.passes.operands_first import operands_first
from redalg.lower_tile.passes.reciprocals import share_reciprocals
from redalg.lower_tile.passes.side_by_side import share_out_rows
from redalg.lower_tile.passes.stored_rows import store_rows_in_bulk
from redalg.lower_tile.passes.subexpressions import eliminate_common_subexpressions
from redalg.lower_tile.passes.turn_terms import terms_in_turns
from redalg.lower_tile.passes.turns import longest_first
from redalg.lower_tile.passes.twins import share_twins
from redalg.lower_tile.passes.warp_lanes import lay_out_turns
from redalg.lower_tile.passes.whole_row_sums import reduce_in_turns
from redalg.lower_tile.passes.whole_tiles import mask_where_needed
from redalg.lower_tile.passes.whole_turns import split_turns
from redalg.lower_tile.workarounds.bands import bands_by_difference
from redalg.lower_tile.workarounds.layouts import lay_as_product
from redalg.lower_tile.workarounds.tma import await_before_empty_loops, limit_boxes
from redalg.lower_tile.workarounds.trips import number_in_variables
from redalg.lower_tile.workarounds.widths import take_each_alone
from redalg.strategies.plan import Plan

Pass = Rewrite[Callable[[TileProgram, Plan], TileProgram]]


def run_passes(program: TileProgram, plan: Plan) -> TileProgram:
    """The program after every pass."""
    for each in PASSES:
        program = each.apply(program, plan)
    return program


def _of_kernels(change: Callable[[Kernel, Plan], Kernel]) -> Callable[[TileProgram, Plan], TileProgram]:
    """The pass that changes every kernel under its own plan."""

    def apply(program: TileProgram, plan: Plan) -> TileProgram:
        return replace(program, kernels=tuple(change(kernel, kernel.plan or plan) for kernel in program.kernels))

    return apply


def _without_single_steps(kernel: Kernel, _: Plan) -> Kernel:
    return replace(kernel, body=without_single_steps(kernel.body))


def _fuse_row_loops(kernel: Kernel, plan: Plan) -> Kernel:
    buffers = frozenset(one.name for one in kernel.buffers)
    return replace(kernel, body=fuse_row_loops(kernel.body, buffers, tiles=plan.level == "thread"))


def _hoist(program: TileProgram, _: Plan) -> TileProgram:
    return hoist_block_invariants(program)


def _share_factors(kernel: Kernel, _: Plan) -> Kernel:
    return replace(kernel, body=share_factors(kernel.body))


def _share(program: TileProgram, _: Plan) -> TileProgram:
    return eliminate_common_subexpressions(program)


PASSES: tuple[Pass, ...] = (
    Pass("short boxes", "copy a long box by TMA", "copy it by threads", "where a dimension exceeds 256 elements",
         _of_kernels(limit_boxes)),
    Pass("hoist", "x[g] in a loop", "x_g = x[g] ahead of all", "where only the grid moves the place", _hoist),
    Pass("await", "copy by TMA; loop", "copy by threads; loop", "where the loop may take no step",
         _of_kernels(await_before_empty_loops)),
    Pass("single trips", "for t < 1: A", "A at t = 0", "where a loop takes one step",
         _of_kernels(_without_single_steps)),
    Pass("exponents", "exp(q·(u − c))", "p = k·c; 2^(k·u − p)", "where u has more indices than c, |q|·log₂e ≤ 1",
         add_exponents_once),
    Pass("binary exponents", "exp(a·s + r)", "2^(a·log₂e·s + log₂e·r)", "where s is a product on tensor cores",
         _of_kernels(with_powers_of_two)),
    Pass("before sums", "a[j] = f; v = Σ_j a[j]; b[j] = g", "a[j] = f; b[j] = g; v = Σ_j a[j]", "where g reads no v",
         _of_kernels(tiles_before_sums)),
    Pass("loads first", "x = load; v = Σ_j x[j]; y = load", "x = load; y = load; v = Σ_j x[j]",
         "where whole rows of both stay in registers", _of_kernels(loads_first)),
    Pass("bulk rows", "x = load; u[j] = f(x[j]); v = Σ_j u[j]; out[j] = g(u[j], v)",
         "fetch x in bulk; u[j] = f(x[j]); v = Σ_j u[j]; out[j] = g(f(x[j]), v)",
         "where a thread would hold many elements of a row", fetch_rows_in_bulk),
    Pass("cluster rows", "block b: fetch x[b]; v = Σ_j f(x[j])", "blocks (z, b): part z; v = Σ_z Σ_j f(x[j])",
         "where the plan has clusters", share_rows_in_clusters),
    Pass("aligned rows", "x[b, j]", "x[first + j], and x[b·L + at(j)] at the row's ends",
         "where a block takes a row of L elements that begins within a 16-byte load", align_rows),
    Pass("adjoining rows", "x[r + i, j]", "x_rows[i·L + j] of x_rows[k] = x[r·L + k]",
         "where a block takes rows of L elements, of which the first begins at a vector, and each need not",
         load_adjoining_rows),
    Pass("masked loads", "x = where(c, load, 0); u = where(c, x, z)", "x = where(c, load, z); u = x",
         "where z is ±∞, and all other reads of x are under c", _of_kernels(load_masked)),
    Pass("kept terms", "t[j] = exp(x[j]); v = Σ_j t[j]; out[j] = exp(x[j])/v", "…; out[j] = t[j]/v",
         "where a tile in registers holds the row", _of_kernels(keep_terms)),
    Pass("whole rows", "v = Σ_j x[j]", "f[j] = Σ_turn x[W·turn + j]; v = Σ_j f[j]",
         "where a thread holds many elements of a row from end to end", reduce_in_turns),
    Pass("terms in turns", "t[j] = g; for turn: f += t[…]", "for turn: f += g", "where nothing else reads t",
         _of_kernels(terms_in_turns)),
    Pass("whole turns", "for turn: f += where(at(turn) < n, g, 0)", "for turn < F: f += g; f += where(at(F) < n, g, 0)",
         "where rows lie in shared memory", _of_kernels(split_turns)),
    Pass("warp lanes", "for turn: f[w, l] += g", "the same, lane l mod 32 of warp w takes l",
         "where rows lie in shared memory and TileLang would load no vectors of them", _of_kernels(lay_out_turns)),
    Pass("twins", "a[j] = f; b[j] = f", "a[j] = f, read for b too", "where all threads read them, or each its own",
         _of_kernels(share_twins)),
    Pass("row loops", "parallel i: A; parallel i: B", "parallel i: A; B", "where B reads A at i alone, or not at all",
         _of_kernels(_fuse_row_loops)),
    Pass("reciprocals", "s += a/b³ - c/b⁶", "r = 1/b; s += a·r³ - c·r⁶", "where a loop divides by several powers of b",
         _of_kernels(share_reciprocals)),
    Pass("instructions", "exp(e), a/b, √b", "2^(log₂e·e), a·reciprocal_of(b), root_of(b), by one instruction each",
         "where a thread takes a tile's elements in turn, and e is computed", use_instructions),
    Pass("divisors", "v = s/3", "v = divided(s, 3)", "where every thread has rows of its own, and 3 is known",
         divide_by_known),
    Pass("factors", "s += a·b·x; t += a·b·y", "s += x·(a·b); t += y·(a·b)", "where both read the same a and b",
         _of_kernels(_share_factors)),
    Pass("whole tiles", "u = where(c, s, z)", "if not (c for the whole tile): s = where(c, s, z)",
         "where c compares what is linear in a tile's indices", mask_where_needed),
    Pass("bands", "if g: u = where(a + i ≤ b + j ∧ …, u, z)", "if g: u = where(i − j ≤ b − a ∧ …, u, z)",
         "where two bounds mask a tile in a branch", _of_kernels(bands_by_difference)),
    Pass("choices", "u = a·where(c, z, exp(s))", "u = exp(s); u = where(c, z, u); u = a·u",
         "where c asks s, a product on tensor cores", _of_kernels(choose_after)),
    Pass("constant terms", "for j < k: n += 1", "n += k", "where nothing else names n, and threads keep columns",
         _of_kernels(add_constants_once)),
    Pass("share", "x[i] = f(g); y[i] = h(g)", "g₁ = g; x[i] = f(g₁); y[i] = h(g₁)",
         "where no store between writes what g reads", _share),
    Pass("elements", "a[i] = f; b[i] = g(a[i])", "a = f; b[i] = g(a)", "where a kernel has many such a",
         _of_kernels(name_elements)),
    Pass("operands first", "v = Σ_j x[j]; y[j] = v·w[j]", "a = load w; v = Σ_j x[j]; y[j] = v·a[j]",
         "where w has no rows, and shared memory is free for it", operands_first),
    Pass("kept rows", "x = load row", "keep row in L2; x = load row", "where a block writes the row too, of many",
         keep_large_rows),
    Pass("turns", "grid (q, h, b)", "grid (h, r, b), q = n − 1 − r", "where block q reads more tiles as q grows",
         longest_first),
    Pass("layouts", "x = f(w[j])", "x = c[i, j]; x = f(w[j])", "where x reads no tile in registers, beside a product c",
         _of_kernels(lay_as_product)),
    Pass("grouped", "s[e, i] += y[j, e]·x[j, i]", "the same, rows of s in groups of one load of y a thread",
         "where CUDA cores add the products up, and s alone lies in registers", _of_kernels(group_rows)),
    Pass("side by side", "parallel i, j: x[i, j] = f(v[i])", "the same, W elements of a row a thread",
         "where a step reduces whole rows to numbers v, and has several or lays a tile out of v alone", share_out_rows),
    Pass("stored rows", "out[b, j] = g(x[j], w[j])", "x[j] = g(x[j], w[j]); store x in bulk to out[b]",
         "where rows that begin anywhere lie in shared memory, and nothing reads x any more", store_rows_in_bulk),
    Pass("alone", "parallel i: x[i] = where(v[i] = −∞, f, g)", "the same, each element alone",
         "where a kernel's loops have many conditions, which neighbours have apart", _of_kernels(take_each_alone)),
    Pass("trips", "stop := min(2, f); for t < stop", "the same, stop in a variable",
         "where a loop, less its pipeline's stages, takes one step or none", number_in_variables),
)  # fmt: skip
"""The passes in order; the modules of this folder, and of the workarounds, say each in full."""
