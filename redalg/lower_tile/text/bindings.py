"""The binding headers: the only lines in which the text for CUDA and for the C target differ.

They bind where tiles live, how elementwise loops run, how many threads a block has, and what a contraction is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.text.join_best import JOIN_C, JOIN_CUDA
from redalg.lower_tile.workarounds.compilers import NO_MASKED_READS
from redalg.strategies.plan import Plan

BEGIN, END = "# ---- binding: {target} " + "-" * 60, "# ---- end of binding " + "-" * 58

C = """\
TARGET = {{"target": "c", "execution_backend": "cython", "compile_flags": ["-O3", "-march=native", "-w"{flags}],
          "pass_configs": {{"tirx.disable_vectorize": True}}}}
shared = fragment = T.alloc_local
launch = {{}}


def parallel(*extents):
    return T.grid(*extents) if len(extents) > 1 else T.serial(*extents)


@T.macro
def contract(a, b, c, rows, columns, depth):  # c += a @ b, the tile summed on its own first
    partial = T.alloc_local((rows, columns), "{compute}")
    T.gemm(a, b, partial, clear_accum=True)
    for i, j in T.grid(rows, columns):
        c[i, j] = c[i, j] + partial[i, j]


@T.macro
def contract_transposed(a, b, c, rows, columns, depth):  # c = a @ b.T
    T.gemm(a, b, c, transpose_B=True, clear_accum=True)
"""

CUDA = """\
TARGET = {{"target": {{"kind": "cuda", "arch": "{arch}"}}, "execution_backend": "tvm_ffi",
          "pass_configs": {{{configs}}}}}
launch = {{"threads": {threads}}}
shared, parallel = T.alloc_shared, T.Parallel
"""

TENSOR_CORES = """\
fragment = T.alloc_fragment


@T.macro
def contract(a, b, c, rows, columns, depth):  # c += a @ b on tensor cores; every warp owns whole {warps}
    T.gemm(a, b, c, policy=T.GemmWarpPolicy.{policy})


@T.macro
def contract_transposed(a, b, c, rows, columns, depth):  # c = a @ b.T on tensor cores
    T.gemm(a, b, c, transpose_B=True, policy=T.GemmWarpPolicy.{policy}, clear_accum=True)
"""

SPREAD = """\


def {name}(shape, dtype):  # tiles of 16 threads a row, the same rows for every width, up to 4 adjacent columns each
    buffer = T.alloc_fragment(shape, dtype)
    if len(shape) == 2:
        width, rows = shape[1] // 16, {threads} // 16
        lanes = 4 if width % 4 == 0 else 2 if width % 2 == 0 else 1
        T.annotate_layout({{buffer: T.Fragment(shape, forward_fn=lambda i, j: (
            (i % rows) * 16 + (j // lanes) % 16, (i // rows) * width + (j // (16 * lanes)) * lanes + j % lanes))}})
    return buffer
"""

GROUPED = """\


def grouped(shape, dtype):  # tiles of 16 threads a row; a thread takes adjacent rows and columns, one load of each
    buffer, wide = T.alloc_fragment(shape, dtype), {wide}
    width, groups = shape[1] // 16, {threads} // 16
    T.annotate_layout({{buffer: T.Fragment(shape, forward_fn=lambda i, j: (
        i // wide % groups * 16 + j // wide % 16,
        (i // (wide * groups) * wide + i % wide) * width + j // (16 * wide) * wide + j % wide))}})
    return buffer
"""

LAID = """\


def side_by_side(rows, columns, wide):  # a thread takes `wide` elements of a row, the next thread the next ones
    return T.Parallel(rows, columns, loop_layout=T.Fragment((rows, columns), forward_fn=lambda i, j: (
        (i * columns + j) // wide % {threads}, (i * columns + j) // ({threads} * wide) * wide + j % wide)))
"""

LAID_BY_ROWS = """\


def in_rows(rows, columns, wide, lanes):  # `lanes` threads take a row, each `wide` elements of it at a time
    each, beside = columns // lanes, {threads} // lanes
    return T.Parallel(rows, columns, loop_layout=T.Fragment((rows, columns), forward_fn=lambda i, j: (
        i % beside * lanes + j // wide % lanes, i // beside * each + j // (wide * lanes) * wide + j % wide)))
"""

CUDA_CORES = """\


@T.macro
def contract(a, b, c, rows, columns, depth):  # c += a @ b in true {compute} (T.gemm would take TF32)
    for quarter in T.serial(depth // 4):
        for part in T.unroll(4):
            for i, j in T.Parallel(rows, columns):
                c[i, j] = c[i, j] + T.cast(a[i, quarter * 4 + part], "{compute}") * T.cast(
                    b[quarter * 4 + part, j], "{compute}")


@T.macro
def contract_transposed(a, b, c, rows, columns, depth):  # c = a @ b.T in true {compute}
    turned = T.alloc_shared((depth, columns), "{compute}")
    for l, j in T.Parallel(depth, columns):
        turned[l, j] = T.cast(b[j, l], "{compute}")
    T.clear(c)
    for quarter in T.serial(depth // 4):
        for part in T.unroll(4):
            for i, j in T.Parallel(rows, columns):
                c[i, j] = c[i, j] + T.cast(a[i, quarter * 4 + part], "{compute}") * turned[quarter * 4 + part, j]
"""

CONSTANT_C = """\


import struct


def constant(value):  # a literal by its bits: the C target prints literals with seven digits
    bits = T.int64(int.from_bytes(struct.pack("<d", value), "little", signed=True))
    return T.cast(T.reinterpret(bits, "float64"), "{compute}")
"""

CONSTANT_CUDA = """\


def constant(value):
    return T.{compute}(value)
"""

ONCE_C = """\


def multiply_add(a, k, c):  # a * k + c, rounded once: a product of float32 is exact in float64
    return T.cast(T.cast(a, "float64") * T.cast(k, "float64") + T.cast(c, "float64"), "{compute}")


def rounded_product(c, k):  # which no compiler joins with a sum
    return T.cast(T.cast(c, "float64") * T.cast(k, "float64"), "{compute}")
"""

ONCE_CUDA = """\


multiply_add, rounded_product = T.ieee_fmaf, T.ieee_mul  # a * k + c, rounded once; and a product that no sum joins
"""

INSTRUCTIONS = {
    "power_of_two": ("ex2", "T.exp2(x)"),
    "reciprocal_of": ("rcp", "1.0 / x"),
    "root_of": ("sqrt", "T.sqrt(x)"),
    "inverse_root_of": ("rsqrt", "T.rsqrt(x)"),
}
"""The functions that are one instruction of a GPU, and what they are elsewhere."""

INSTRUCTION_C = """\


def {name}(x):
    return {elsewhere}
"""

INSTRUCTION_CUDA = """\


def instruction(name):  # of float32: off by two last digits at most, and 0 below 2^-126
    text = '[](float x) {{ float y; asm("%s.approx.ftz.f32 %%0, %%1;" : "=f"(y) : "f"(x)); return y; }}' % name
    return lambda x: T.call_pure_extern("float32", text, x)


"""

CORES_ADD = """\


@T.macro
def add_transposed(a, b, c, rows, columns, depth):  # c += a @ b.T on tensor cores
    T.gemm(a, b, c, transpose_B=True, policy=T.GemmWarpPolicy.{policy})
"""

CORES_TURNED = """\


@T.macro
def contract_turned(a, b, c, rows, columns, depth):  # c += a.T @ b on tensor cores
    T.gemm(a, b, c, transpose_A=True, policy=T.GemmWarpPolicy.{policy})
"""

CORES_MULTIPLY = """\


@T.macro
def multiply(a, b, c, rows, columns, depth):  # c = a @ b on tensor cores
    T.gemm(a, b, c, policy=T.GemmWarpPolicy.{policy}, clear_accum=True)
"""

MULTIPLY = """\


@T.macro
def multiply(a, b, c, rows, columns, depth):  # c = a @ b
    T.clear(c)
    contract(a, b, c, rows, columns, depth)
"""

C_ADD = """\


@T.macro
def add_transposed(a, b, c, rows, columns, depth):  # c += a @ b.T, the tile summed on its own first
    partial = T.alloc_local((rows, columns), "{compute}")
    T.gemm(a, b, partial, transpose_B=True, clear_accum=True)
    for i, j in T.grid(rows, columns):
        c[i, j] = c[i, j] + partial[i, j]
"""

CUDA_ADD = """\


@T.macro
def add_transposed(a, b, c, rows, columns, depth):  # c += a @ b.T in true {compute}
    turned = T.alloc_shared((depth, columns), "{compute}")
    for l, j in T.Parallel(depth, columns):
        turned[l, j] = T.cast(b[j, l], "{compute}")
    for quarter in T.serial(depth // 4):
        for part in T.unroll(4):
            for i, j in T.Parallel(rows, columns):
                c[i, j] = c[i, j] + T.cast(a[i, quarter * 4 + part], "{compute}") * turned[quarter * 4 + part, j]
"""

LOCAL = """\


local = T.alloc_local
"""

ARRIVE_C = """\


@T.macro
def arrive(counter, place, parts, last):  # last[0]: whether this block is the last of `parts`; they run one by one
    counter[place] = (counter[place] + 1) % parts
    last[0] = T.if_then_else(counter[place] == 0, 1, 0)
"""

# The word is passed on through shared memory: where warps have roles, TileLang narrows `sync_threads`, and the choice
# of one thread, to the warps that go on (`syncthreads_or` would wait for those that load tiles as well).
ARRIVE_CUDA = """\


@T.macro
def arrive(counter, place, parts, last):  # last[0]: whether this block is the last of `parts`; it sees what all stored
    told = T.alloc_shared((1,), "int32")
    T.call_extern("handle", "__threadfence")
    T.sync_threads()
    if T.get_thread_binding() == 0:
        told[0] = T.if_then_else(T.atomic_add(counter[place], 1, return_prev=True) == parts - 1, 1, 0)
        if told[0] != 0:
            counter[place] = 0
    T.sync_threads()
    last[0] = told[0]
    T.sync_threads()
    if last[0] != 0:
        T.call_extern("handle", "__threadfence")
"""

ROUND_C = """\


def {dtype}(x):  # to nearest even, as the dtype holds it: the C target has none of that name
    y = {clamped}
    bits = T.bitwise_and(T.reinterpret(T.cast(y, "float32"), "int32"), T.int32(0x7F800000))
    step = T.max(T.cast(T.reinterpret(bits, "float32"), "{compute}"), constant({smallest!r})) * constant({unit!r})
    kept = T.isnan(x) | (y == T.infinity("{compute}")) | (y == -T.infinity("{compute}"))
    return T.if_then_else(kept, x, T.nearbyint(y / step) * step)
"""

ROUND_CUDA = """\


def {dtype}(x):  # to nearest even, 8 bits saturating
    return T.cast(T.cast(x, "{dtype}"), "{compute}")
"""

PARTS = """\


def power(e):  # 2^e as a number, |e| at most {limit}, by its bits
    return T.reinterpret(T.cast(e + {limit}, "{bits}") << {shift}, "{compute}")


def scaled(m, e):  # m * 2^e by two factors, so that neither leaves the range when the product does not
    e = T.max(-{most}, T.min({most}, e))
    return m * power(e // 2) * power(e - e // 2)


def exponent(x):  # e of x = m * 2^e with m about 1/2 to 1; 0 for 0 and for what is not finite
    size = T.max(x, -x)
    usual = (size > 0.0) & (size < T.infinity("{compute}"))
    return T.if_then_else(usual, T.cast(T.floor(T.log2(size)), "int32") + 1, 0)


def mantissa(x):
    return scaled(x, -exponent(x))
"""
LIMITS = {"float32": {"limit": 127, "most": 250, "shift": 23, "bits": "int32"},
          "float64": {"limit": 1023, "most": 2040, "shift": 52, "bits": "int64"}}  # fmt: skip

SAME = """\


spread = fragment
"""
POLICY = {"rows": "FullRow", "columns": "FullCol"}
ELEMENTWISE = "fragment = T.alloc_fragment\n"


MACROS = {(False, False): "contract", (True, True): "contract_transposed",
          (False, True): "multiply", (True, False): "add_transposed"}  # fmt: skip
"""Names of the contractions, by whether the second operand is transposed and whether the result is cleared first."""
SIDE_BY_SIDE, IN_ROWS = "side_by_side", "in_rows"
"""The names of loops over a tile that say which of its elements each thread takes: of the tile, or of a row."""
TURNED = "contract_turned"
"""The name of a contraction that adds, on tensor cores, whose first operand lies as its tensor does: depth first."""


@final
@dataclass(frozen=True)
class Used:
    """The parts of a header that a text uses, beyond those that every header has.

    These are literals bound by bits, arithmetic that is rounded once, instructions, roundings, `multiply`,
    `contract_turned`, `add_transposed`, `spread`, `grouped`, `side_by_side`, `in_rows`, functions that take numbers
    apart into mantissa and exponent, `arrive`, `join_best`, and reads at computed places.
    `exact`: a stage beside the loop's is not for tensor cores, and its arithmetic may not be fast.
    """

    constants: bool = False
    once: bool = False
    instructions: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ()
    multiply: bool = False
    turned: bool = False
    add: bool = False
    parts: bool = False
    spread: bool = False
    grouped: bool = False
    side_by_side: bool = False
    in_rows: bool = False
    exact: bool = False
    arrive: bool = False
    joins: bool = False
    out_of_order: bool = False


SHARED = "shared, parallel = T.alloc_shared, T.Parallel\n"
OWN = ("launch", "fragment", "spread", "grouped", SIDE_BY_SIDE, IN_ROWS, TURNED, *MACROS.values())
"""The line that stages of a text share, and the names that each stage binds for itself."""


def stage_suffix(number: int) -> str:
    """The suffix of the names that a stage's binding defines."""
    return f"_of_stage_{number}"


def stage_binding(plan: Plan, compute: str, used: Used, suffix: str) -> str:
    """The binding of a stage beside the loop's own, under names that end in a suffix."""
    text = base(plan, compute, used)
    text = text[text.index("@T.macro" if plan.device.target == "c" else "launch = ") :]
    text = re.sub(rf"\b({'|'.join(OWN)})\b", rf"\1{suffix}", text.replace(SHARED, ""))
    same = f"launch{suffix}, fragment{suffix} = launch, fragment\n\n\n" if plan.device.target == "c" else ""
    return f"\n\n{same}{text}"


def binding(plan: Plan, compute: str, used: Used) -> str:
    """The header of a plan, with the parts that the text uses."""
    arrive = LOCAL + (ARRIVE_C if plan.device.target == "c" else ARRIVE_CUDA)
    parts = PARTS.format(compute=compute, **LIMITS[compute]) if used.parts else ""
    join = JOIN_C if plan.device.target == "c" else JOIN_CUDA
    return base(plan, compute, used) + parts + arrive * used.arrive + join * used.joins


def base(plan: Plan, compute: str, used: Used) -> str:
    """The header without the functions for mantissa and exponent, and without `arrive`."""
    words = {"flags": NO_MASKED_READS * used.out_of_order, "compute": compute, "threads": plan.threads,
             "warps": plan.warps, "policy": POLICY[plan.warps], "wide": 16 // DTYPES[compute].bytes}  # fmt: skip
    if plan.device.target == "c":
        parts = [C, SAME * used.spread, C_ADD * used.add, MULTIPLY * used.multiply, CONSTANT_C * used.constants,
                 ONCE_C * used.once]  # fmt: skip
        functions = (INSTRUCTION_C.format(name=one, elsewhere=INSTRUCTIONS[one][1]) for one in used.instructions)
        rounds = (round_c(one, compute) for one in used.rounds)
        return "".join((*(part.format(**words) for part in parts), *functions, *rounds))
    configs = ['"tl.enable_fast_math": True'] * (plan.tensor_cores and not used.exact)
    configs += ['"tl.disable_warp_specialized": True'] * (not plan.warp_specialized)
    if plan.tensor_cores:
        spread = SPREAD.replace("{name}", "spread") + "\n\n"
        parts = [spread * used.spread, TENSOR_CORES, CORES_ADD * used.add, CORES_MULTIPLY * used.multiply,
                 CORES_TURNED * used.turned]  # fmt: skip
    else:
        cores = SPREAD.replace("{name}", "fragment") + CUDA_CORES
        parts = (
            [cores, SAME * used.spread, CUDA_ADD * used.add, MULTIPLY * used.multiply]
            if plan.multiplies
            else [ELEMENTWISE]
        )
    head = CUDA.format(arch=plan.device.target, configs=", ".join(configs), **words)
    rest = [ROUND_CUDA.format(dtype=one, compute=compute) for one in used.rounds]
    rest += [f'{one} = instruction("{INSTRUCTIONS[one][0]}")\n' for one in used.instructions]
    parts = [*parts, GROUPED * used.grouped, LAID * used.side_by_side, LAID_BY_ROWS * used.in_rows,
             CONSTANT_CUDA * used.constants, ONCE_CUDA * used.once,
             INSTRUCTION_CUDA * bool(used.instructions)]  # fmt: skip
    return head + "".join(part.format(**words) for part in parts) + "".join(rest)


def round_c(dtype: str, compute: str) -> str:
    """The function that rounds to a dtype, in arithmetic of the C target."""
    row = DTYPES[dtype]
    clamped = f"T.max({-row.limit}, T.min({row.limit}, x))" if row.saturates else "x"
    return ROUND_C.format(dtype=dtype, compute=compute, clamped=clamped, smallest=2.0**row.least,
                          unit=2.0 ** (1 - row.digits))  # fmt: skip
