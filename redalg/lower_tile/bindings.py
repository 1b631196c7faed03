"""The binding headers: the only lines in which the text for CUDA and for the C target differ.

They bind where tiles live, how elementwise loops run, how many threads a block has, and what a contraction is.
"""

from __future__ import annotations

from redalg.strategies import Plan

BEGIN, END = "# ---- binding: {target} " + "-" * 60, "# ---- end of binding " + "-" * 58

C = """\
TARGET = {{"target": "c", "execution_backend": "cython", "compile_flags": ["-O3", "-march=native", "-w"],
          "pass_configs": {{"tirx.disable_vectorize": True}}}}
shared = fragment = T.alloc_local
launch = {{}}


def parallel(*extents):
    return T.grid(*extents) if len(extents) > 1 else T.serial(*extents)


@T.macro
def contract(a, b, c, rows, columns, depth, clear):  # c = or += a @ b, the tile summed on its own first
    partial = T.alloc_local((rows, columns), "{compute}")
    T.gemm(a, b, partial, clear_accum=True)
    for i, j in T.grid(rows, columns):
        c[i, j] = partial[i, j] if clear else c[i, j] + partial[i, j]


@T.macro
def contract_transposed(a, b, c, rows, columns, depth, clear):  # c = or += a @ b.T, likewise
    partial = T.alloc_local((rows, columns), "{compute}")
    T.gemm(a, b, partial, transpose_B=True, clear_accum=True)
    for i, j in T.grid(rows, columns):
        c[i, j] = partial[i, j] if clear else c[i, j] + partial[i, j]
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
def contract(a, b, c, rows, columns, depth, clear):  # c = or += a @ b on tensor cores; every warp owns whole {warps}
    T.gemm(a, b, c, policy=T.GemmWarpPolicy.{policy}, clear_accum=clear)


@T.macro
def contract_transposed(a, b, c, rows, columns, depth, clear):  # c = or += a @ b.T on tensor cores
    T.gemm(a, b, c, transpose_B=True, policy=T.GemmWarpPolicy.{policy}, clear_accum=clear)
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

CUDA_CORES = """\


@T.macro
def contract(a, b, c, rows, columns, depth, clear):  # c = or += a @ b in true {compute} (T.gemm would take TF32)
    if clear:
        T.clear(c)
    for quarter in T.serial(depth // 4):
        for part in T.unroll(4):
            for i, j in T.Parallel(rows, columns):
                c[i, j] = c[i, j] + T.cast(a[i, quarter * 4 + part], "{compute}") * T.cast(
                    b[quarter * 4 + part, j], "{compute}")


@T.macro
def contract_transposed(a, b, c, rows, columns, depth, clear):  # c = or += a @ b.T in true {compute}
    turned = T.alloc_shared((depth, columns), "{compute}")
    for l, j in T.Parallel(depth, columns):
        turned[l, j] = T.cast(b[j, l], "{compute}")
    if clear:
        T.clear(c)
    for quarter in T.serial(depth // 4):
        for part in T.unroll(4):
            for i, j in T.Parallel(rows, columns):
                c[i, j] = c[i, j] + T.cast(a[i, quarter * 4 + part], "{compute}") * turned[quarter * 4 + part, j]
"""

CONSTANT_C = """\


def constant(value):  # a literal by its bits: the C target prints literals with seven digits
    return T.reinterpret(T.int64(int.from_bytes(struct.pack("<d", value), "little", signed=True)), "float64")
"""

CONSTANT_CUDA = """\


def constant(value):
    return T.{compute}(value)
"""

ELEMENTWISE = "fragment = T.alloc_fragment\n"


def binding(plan: Plan, compute: str, *, constants: bool, spread: bool) -> str:
    """The header of a plan; `constants` where a text binds literals by their bits, `spread` where it lays out tiles."""
    if plan.device.target == "c":
        return C.format(compute=compute) + ("spread = fragment\n" if spread else "") + (CONSTANT_C if constants else "")
    configs = []
    if plan.tensor_cores:
        configs.append('"tl.enable_fast_math": True')
    if not plan.warp_specialized:
        configs.append('"tl.disable_warp_specialized": True')
    head = CUDA.format(arch=plan.device.target, configs=", ".join(configs), threads=plan.threads)
    if plan.tensor_cores:
        policy = "FullRow" if plan.warps == "rows" else "FullCol"
        head += SPREAD.format(name="spread", threads=plan.threads) + "\n\n" if spread else ""
        return (
            head
            + TENSOR_CORES.format(warps=plan.warps, policy=policy)
            + (CONSTANT_CUDA.format(compute=compute) if constants else "")
        )
    cores = SPREAD.format(name="fragment", threads=plan.threads) + CUDA_CORES.format(compute=compute)
    head += (cores if plan.multiplies else ELEMENTWISE) + ("\n\nspread = fragment\n" if spread else "")
    return head + (CONSTANT_CUDA.format(compute=compute) if constants else "")
