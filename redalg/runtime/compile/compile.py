"""TileLang source -> kernel. The only module of `lower_tile` that loads TileLang."""

from __future__ import annotations

import linecache
import logging
import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from redalg.display import Displayed
from redalg.errors import BackendError
from redalg.lower_tile.text.emit import Source
from redalg.progress import progress_bar
from redalg.runtime.compile import stored
from redalg.runtime.compile.cache import PATIENCE_S, folder, one_at_a_time, point_tilelang_here


@final
@dataclass(frozen=True, repr=False)
class Kernel(Displayed):
    """A compiled kernel: call `run` with torch tensors for every parameter, in order.

    >>> import redalg as ra, torch
    >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> kernel = total.compile("c", sizes={"b": 4, "n": 64}, dtypes="float32")
    >>> out = torch.empty(4)
    >>> _ = kernel.run(torch.ones(4, 64), out)
    >>> out
    tensor([64., 64., 64., 64.])
    """

    source: Source
    run: Any


def compile_source(source: Source) -> Kernel:
    """The kernel of a text: from disk if an earlier process left it, or compiled for its target."""
    name = digest(source)
    with quiet(), alone(source, name):
        try:
            found = stored.find(name)
            if found is not None:
                return Kernel(source, found)
            with progress_bar(f"compiling {source.program.name} for {source.plan.device.target}"):
                library = load(source)["compiled"]()
            stored.note_library(name, library)
            return Kernel(source, library)
        except BackendError:
            raise
        except Exception as cause:  # TileLang raises whatever its passes and the C compiler raise
            raise BackendError(
                f"TileLang could not compile the kernel `{source.program.name}` for {source.plan.device.target} "
                f"({type(cause).__name__}: {str(cause).splitlines()[0][:200] if str(cause) else ''}). "
                'Run it with backend="torch", and please report the expression.'
            ) from cause


def is_kept(source: Source) -> bool:
    """Tell if an earlier process left the kernel of a text on disk."""
    return stored.library_path(digest(source)) is not None


@contextmanager
def alone(source: Source, name: str) -> Iterator[None]:
    """Let no other process compile a text meanwhile; what is on disk is only read, and needs no lock."""
    if is_kept(source):
        yield
        return
    kernel = f"`{source.program.name}` for {source.plan.device.target}"
    with one_at_a_time(name, f"compiles {kernel}") as has_lock:
        if not has_lock:  # both may: the first rename of a whole library counts
            warnings.warn(
                f"another process has been compiling {kernel} for {PATIENCE_S:.0f} s, and may be stopped; this one "
                f"compiles the kernel itself. `fuser {folder() / 'locks' / name}.lock` tells the other's number.",
                RuntimeWarning, stacklevel=3,
            )  # fmt: skip
        yield


def launch_function(kernel: Kernel) -> Callable[..., Any]:
    """The function that launches a kernel on checked arguments: TileLang's own entry checks each argument once more."""
    adapter: Any = getattr(kernel.run, "adapter", None)
    if hasattr(adapter, "get_exportable_executable"):
        return adapter.get_exportable_executable()["main"]
    if hasattr(adapter, "cython_wrapper"):
        forward = adapter.cython_wrapper.forward
        return lambda *arguments: forward(list(arguments), 0, True)
    return kernel.run


@contextmanager
def quiet() -> Iterator[None]:
    """Silence logging: TileLang logs the whole rewritten function of a failure; the error that we raise says enough."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@final
@dataclass(frozen=True)
class Resources:
    """The resources that a compiler allots to one kernel.

    Attributes:
        name: the kernel's name in the CUDA source.
        registers: per thread.
        spill_bytes: stores and loads of registers to local memory, together.
        smem_bytes: shared memory of a block, static and dynamic.
        cuda: the CUDA source of the whole program.
    """

    name: str
    registers: int
    spill_bytes: int
    smem_bytes: int
    cuda: str


def compile_only(source: Source) -> tuple[Resources, ...]:
    """Lower a text for its CUDA target and compile it with nvcc, on a machine that may have no GPU."""
    import tilelang
    from tilelang import tvm

    module = load(source)
    configs = module["TARGET"]["pass_configs"]
    target = tvm.target.Target(module["TARGET"]["target"])
    with tilelang.transform.PassContext(opt_level=3, config=configs), target:
        artifact = tilelang.lower(module["main"], target=target)
    dynamic = {}
    for variable, function in artifact.device_mod.functions.items():
        dynamic[variable.name_hint] = (
            int(function.attrs["dyn_shared_memory_buf"]) if "dyn_shared_memory_buf" in function.attrs else 0
        )
    report = nvcc_report(artifact.kernel_source, source.plan.device.target, fast="tl.enable_fast_math" in configs)
    return tuple(_resources(name, report, size, artifact.kernel_source) for name, size in sorted(dynamic.items()))


def nvcc_report(cuda: str, arch: str, *, fast: bool) -> str:
    """The report of `nvcc -Xptxas -v` on a CUDA source."""
    import tilelang

    root = Path(tilelang.__file__).parent
    includes = [f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cu"
        file.write_text(cuda, encoding="utf-8")
        command = [
            "nvcc",
            "-std=c++17",
            "-O3",
            "-cubin",
            f"-arch={arch}",
            "-Xptxas",
            "-v",
            "--expt-relaxed-constexpr",
            *includes,
            *(["--use_fast_math"] if fast else []),
            "-o",
            f"{folder}/kernel.cubin",
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"nvcc refused the generated kernel for {arch}: {done.stderr[-2000:]}")
    return done.stderr


def _resources(name: str, report: str, dynamic: int, cuda: str) -> Resources:
    """Read one kernel's block of the report."""
    found = re.search(
        rf"Compiling entry function '{re.escape(name)}'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?"
        r"Used (\d+) registers(.*?)(?:\n|$)",
        report,
        re.DOTALL,
    )
    if found is None:
        raise BackendError(f"nvcc reported nothing of kernel `{name}`: {report[-1000:]}")
    static = re.search(r"(\d+) bytes smem", found[4])
    return Resources(
        name, int(found[3]), int(found[1]) + int(found[2]), dynamic + (int(static[1]) if static else 0), cuda
    )


def digest(source: Source) -> str:
    """SHA-256 of the source: the key of every kernel cache."""
    return sha256(source.text.encode()).hexdigest()


def import_compiler() -> None:
    """Import TileLang, which takes seconds; it keeps its files in redalg's folder.

    Raises:
        BackendError: it is not installed.
    """
    os.environ.setdefault("TILELANG_PRINT_ON_COMPILATION", "0")  # redalg shows its own progress
    point_tilelang_here()
    try:
        with warnings.catch_warnings():  # in a notebook, of progress bars that need ipywidgets
            warnings.filterwarnings("ignore", message="IProgress not found")
            import tilelang  # noqa: F401
    except ModuleNotFoundError as missing:
        raise BackendError(
            'backend="tilelang" needs TileLang, which is not installed. Install it '
            '(`pip install "redalg[tilelang]"`), or pass backend="torch".'
        ) from missing


def load(source: Source) -> dict[str, Any]:
    """Execute a text as a module; `inspect` must find its lines, so they are registered under a name of their own."""
    import_compiler()
    name = f"<redalg {source.program.name} {digest(source)[:12]}>"
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(keepends=True), name)
    module: dict[str, Any] = {"__name__": name, "__file__": name}
    exec(compile(source.text, name, "exec"), module)
    return module
