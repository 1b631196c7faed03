"""The instruments of a fused function: how accurate it is, how fast, beside what."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redalg.errors import InputError
from redalg.expression.arguments import answer_methods
from redalg.optional import need_packages
from redalg.runtime.bind.options import Sizes, named_sizes

if TYPE_CHECKING:
    from redalg.instruments.accuracy import Accuracy
    from redalg.instruments.bench import Bench
    from redalg.instruments.comparison import Comparison, Problem


@answer_methods(InputError)
class Instruments(ABC):  # noqa: B024 - of what it measures everything is in the function
    """A function that measures itself: the results are values that print as tables."""

    def accuracy(self: Any, sizes: Sizes | None = None, *, data: Mapping[str, Any] | None = None,
                 dtypes: Any = "float32", backend: str | None = None, shapes: Mapping[str, Any] | None = None,
                 families: Iterable[str] | None = None, device: str = "cpu") -> Accuracy:  # fmt: skip
        """The errors of a call, and of the formula evaluated as it is written in the same dtype, on hostile data.

        Every family of data (ordinary; far from 0; of many magnitudes; tiny, huge, sorted, constant; infinite, masked)
        is drawn for the tensors that have the streamed axis, with the signs that they were declared to have.

        Args:
            sizes: extents by axis or by its name; the others are chosen, and small.
            data: the user's own tensors and scalars by name, as a call takes them, instead of families.
            dtypes: one for all tensors, or by tensor name; a list of them for one after another.
            backend: as that of a call.
            shapes: by tensor name, of those whose indices do not tell them.
            families: the names of some families.
            device: `cpu` or `cuda`, where data are drawn.

        Returns:
            A table, which `str` prints: of each family the error of redalg, of the naive formula, and the one that
            rounding the data alone makes, as max|out - ref| / max|ref| against the definition in float64, or in a wider
            arithmetic where that one errs itself. `.rows`, `.worst`, `.to_json()`, `.plot()`.

        Raises:
            InputError: sizes, data or families do not fit the function.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> x = ra.tensor("x[b,n]")
        >>> found = ra.fuse(ra.mean(x**2, n) - ra.mean(x, n) ** 2).accuracy({"b": 4, "n": 512})
        >>> row = next(row for row in found.rows if row.data == "offset 1e4")
        >>> row.redalg < 1e-5 < 1 < row.naive
        True
        """
        from redalg.instruments.accuracy import accuracy_of_data, families_named, measure_accuracy
        from redalg.runtime.call.dispatch import check_known_backend

        check_known_backend(backend)
        if data is not None:
            return accuracy_of_data(self, data, backend, sizes)
        chosen = dtypes if isinstance(dtypes, list | tuple) else [dtypes]
        if not chosen:
            raise InputError('accuracy: dtypes=[] names no dtype. Write dtypes="float32", or a list of several.')
        sizes = named_sizes(self.cascade, sizes, "accuracy")
        settings = drawn_settings(self, sizes, chosen, device=device, backend=backend, shapes=shapes)
        return measure_accuracy(settings, backend, families_named(families))

    def compare(self: Any, peers: Mapping[str, Callable[..., Any]] | None = None, *, sizes: Sizes | None = None,
                data: Mapping[str, Any] | None = None, dtypes: Any = None, device: str | None = None,
                compiled: bool | None = None, backend: str | Sequence[str] | None = None,
                shapes: Mapping[str, Any] | None = None) -> Comparison:  # fmt: skip
        """Time and memory of a call beside the definition in PyTorch, torch.compile and callables of the user.

        All run in this process on the same tensors, in turn; each is checked against float64 first.

        Args:
            peers: callables by name, called with the tensors by keyword, that return an output or a tuple of them.
            sizes: extents by axis or by its name; the others are chosen.
            data: the user's own tensors and scalars by name, instead of drawn ones.
            dtypes: of drawn tensors, one or by name (float16 on CUDA, float32 on the CPU).
            device: `cpu` or `cuda` of drawn tensors; CUDA where there is one.
            compiled: whether torch.compile runs too; left out, on CUDA alone, since it takes seconds.
            backend: one or several of a call; left out, generated kernels, and on the CPU `"torch"` beside them.
            shapes: by tensor name, of those whose indices do not tell them.

        Returns:
            A table, which `str` prints: each contestant's time over redalg's, its time (of the device on CUDA, else by
            the wall), the peak of its memory above the inputs, its error. `.rows`, `.to_json()`, `.plot()`.

        Raises:
            BackendError: PyTorch is not installed, or there is no such device.
            InputError: sizes or data do not fit the function.

        >>> import torch, redalg as ra
        >>> n = ra.axes("n")
        >>> rows = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), n))
        >>> found = rows.compare({"mine": lambda x: torch.logsumexp(x, 1)}, sizes={"b": 8, "n": 64}, device="cpu",
        ...                      backend="torch")
        >>> [row.name for row in found.rows], all(row.error < 1e-6 for row in found.rows)
        (['redalg, blocks', 'eager PyTorch', 'mine'], True)
        """
        need_packages("compare", "redalg[torch]", "torch")
        from redalg.instruments.comparison import chosen_backends, compare_peers

        [problem] = problems_of(self, "compare", [sizes], data, dtypes=dtypes, device=device, shapes=shapes)
        chosen = chosen_backends(backend, problem.device)
        compiled = problem.device == "cuda" if compiled is None else compiled
        return compare_peers(problem, chosen, peers or {}, compiled=compiled)

    def bench(self: Any, sizes: Sizes | Sequence[Sizes] | None = None, *more: Sizes,
              data: Mapping[str, Any] | None = None, dtypes: Any = None, device: str | None = None,
              backend: str | Sequence[str] | None = None, shapes: Mapping[str, Any] | None = None
              ) -> Bench:  # fmt: skip
        """Time, bandwidth and error of a call beside the cost model's prediction, at one or several sizes.

        Args:
            sizes, more: extents by axis or by its name, once or several times; what is left out is chosen.
            data, dtypes, device, backend, shapes: as those of `compare`.

        Returns:
            A table for each of the sizes, which `str` prints: time, GB/s of inputs and outputs, the predicted time of
            the model's best kernel, the error; of each backend and of the definition in float64. `.rows`, `.to_json()`,
            `.plot()`.

        Raises:
            BackendError: PyTorch is not installed, or there is no such device.
            InputError: sizes or data do not fit the function.

        >>> import redalg as ra
        >>> n = ra.axes("n")
        >>> found = ra.fuse(ra.sum(ra.tensor("x[b,n]"), n)).bench({"b": 8, "n": 64}, {"b": 8, "n": 128}, device="cpu",
        ...                                                        backend="torch")
        >>> [(row.name, row.bytes) for row in found.rows if row.name != "definition, float64"]
        [('redalg, blocks', 2080), ('redalg, blocks', 4128)]
        """
        need_packages("bench", "redalg[torch]", "torch")
        from redalg.instruments.bench import bench_problems
        from redalg.instruments.comparison import chosen_backends

        each = [*(sizes if isinstance(sizes, list | tuple) else [sizes]), *more]
        if not each:
            raise InputError("bench: sizes=[] is a list of no sizes. Leave it out, or give sizes by axis.")
        problems = problems_of(self, "bench", each, data, dtypes=dtypes, device=device, shapes=shapes)
        return bench_problems(problems, chosen_backends(backend, problems[0].device))


def drawn_settings(
    fused: Any, sizes: Sizes | None, dtypes: Sequence[Any], *, device: str, backend: str | None, shapes: Any
) -> list[Any]:  # fmt: skip
    """A setting for every choice of dtypes."""
    from redalg.instruments.drawing import JUDGED, Setting, library_for

    more = {"device": device, "library": library_for(backend, device), "given": shapes}
    return [Setting.of_options(fused, sizes, each, JUDGED, **more) for each in dtypes]


def problems_of(
    fused: Any, caller: str, each: Sequence[Sizes | None], data: Mapping[str, Any] | None, *, dtypes: Any,
    device: str | None, shapes: Any,
) -> list[Problem]:  # fmt: skip
    """The problem of a user's tensors, or one that is drawn for each of the sizes."""
    from redalg.instruments.comparison import Problem, user_problem
    from redalg.instruments.drawing import MEASURED, ON_CPU, Setting, chosen_device, library_for

    sizes = [named_sizes(fused.cascade, given, caller) for given in each]
    if data is not None:
        return [user_problem(fused, data, sizes[0])]
    where = chosen_device(device)
    more = {"device": where, "library": library_for(None, where), "given": shapes}
    if dtypes is None:
        dtypes = "float16" if where == "cuda" else "float32"
    scale = ON_CPU if where == "cpu" else MEASURED
    return [Problem.of_setting(Setting.of_options(fused, given, dtypes, scale, **more)) for given in sizes]
