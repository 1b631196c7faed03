"""A fused cascade, which is callable, explainable, tunable and compilable; and its algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, final

from sympy import Expr

from redalg.algebra import Algebra
from redalg.decompose.cascade import Cascade
from redalg.decompose.parse.written import named_outputs, outputs_type, unread_inputs
from redalg.decompose.verdict.passes import most_passes, refuse_states
from redalg.decompose.verdict.verdict import Decomposition
from redalg.differentiable import Differentiable
from redalg.display import ProgramText
from redalg.errors import InputError
from redalg.explained import Explained
from redalg.expression import Element, Scalar
from redalg.expression.arguments import answer_methods, short_text
from redalg.expression.portable import read_definition
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.instruments.instruments import Instruments
from redalg.pipeline import analyse, derive_passes
from redalg.portable import Portable
from redalg.runtime.bind.frameworks import imported_torch
from redalg.runtime.bind.functions import number_of, read_texts_by
from redalg.runtime.bind.options import CARDS_BY, Sizes, known_options, named_dtypes, named_sizes
from redalg.streaming import Streaming

if TYPE_CHECKING:
    from redalg.runtime.compile.compile import Kernel
    from redalg.runtime.lowered import Lowered
    from redalg.runtime.tune.tuner import Tuned
    from redalg.strategies.schedule import AnySchedule
    from redalg.strategies.search.candidates import Candidates

DERIVING = RLock()
Result = TypeVar("Result")


@answer_methods(InputError)
@final
@dataclass(frozen=True, repr=False)
class Fused(Portable, Algebra, Differentiable, Streaming, Explained, Instruments):
    """A fused cascade: callable, explainable, compilable. Immutable, and it pickles.

    Attributes:
        cascade, decomposition, form: the stages, each printable; `form` is made once, when first asked for.
        inputs: names of the tensors in positional order (empty: keywords only).
        single: whether the call gives one array rather than a namedtuple.
        exact: whether approximations are refused.
        earlier: the decompositions of the passes before the last, in order, whose outputs the later ones take as
            tensors (empty: one pass). `decomposition`, `form` and the algebra below are those of the last pass.
        written: each output's name and its expression as it was given, for `reference`.
        once: true of a derivative that has none of its own (`ra.prod`).
        number, result: of this process: its number, and the namedtuple of its outputs.

    >>> import numpy as np, redalg as ra
    >>> x, n = ra.tensor("x[b,n]"), ra.axes("n")
    >>> rows = ra.fuse({"mean": ra.mean(x, n), "largest": ra.max(x, n)})
    >>> out = rows(x=np.array([[1.0, 2.0, 6.0]]))
    >>> out.mean, out.largest, rows.single
    (array([3.]), array([6.]), False)
    >>> len(rows.passes), rows.passes.last is rows.form
    (1, True)
    >>> ra.Fused.of_text(rows.to_json()).cascade == rows.cascade
    True
    >>> ra.Fused.of_outputs(ra.sum(x, n), axes="b", passes=1).single
    True
    """

    cascade: Cascade
    decomposition: Decomposition
    inputs: tuple[str, ...]
    single: bool
    exact: bool
    earlier: tuple[Decomposition, ...] = ()
    written: tuple[tuple[str, Expr], ...] = ()
    once: bool = False
    number: str = field(init=False, compare=False, repr=False)
    result: Any = field(init=False, compare=False, repr=False)

    @classmethod
    def of_outputs(
        cls, expr: Any, axes: str | None, passes: int | None, inputs: Sequence[Element] = (), *,
        exact: bool = False, once: bool = False,
    ) -> Fused:  # fmt: skip
        """The cascade and its decomposition, which decides the verdict; the rest is derived when it is first asked for.

        Args and errors: those of `fuse`.
        """
        written, single = named_outputs(expr, axes)
        cascade, decompositions = analyse(written, inputs, most_passes(passes, exact=exact), exact=exact)
        *earlier, last = decompositions
        outputs = tuple((name, one) for name, (one, _) in written.items())
        names = tuple(one.name for one in inputs)
        return cls(cascade if earlier else last.cascade, last, names, single, exact, tuple(earlier), outputs, once)

    @classmethod
    def of_text(cls, text: str) -> Fused:
        """The function of a text that `to_json` has written."""
        definition = read_definition(text)
        outputs, axes = definition.arguments
        return cls.of_outputs(outputs, axes, definition.passes, definition.elements, exact=definition.exact)

    def __post_init__(self) -> None:
        vars(self).update(number=number_of(self), result=outputs_type(tuple(one.name for one in self.cascade.outputs)))

    def __hash__(self) -> int:
        return hash((self.cascade, self.inputs, self.single, self.exact))

    @cached_property
    def form(self) -> FusedForm:
        """Pivots, accumulators, leaf / merge / finish: derived once, whichever thread asks first."""
        with DERIVING:  # a derivation adds atoms to the decomposition's
            made: dict[str, FusedForm] = vars(self)
            if "form" not in made:
                made["form"] = derive_passes(self.decomposition).last
            return made["form"]

    @cached_property
    def passes(self) -> Passes:
        """The forms of all passes over the data, in order, of which `form` is the last."""
        with DERIVING:
            made: dict[str, Passes] = vars(self)
            if "passes" not in made:
                made["passes"] = Passes((*derive_passes(*self.earlier), self.form))
            return made["passes"]

    def __getstate__(self) -> dict[str, Any]:
        """The attributes that are pickled and copied, the forms among them; what is only remembered is not."""
        self.passes  # noqa: B018
        return {name: one for name, one in vars(self).items() if name not in ("number", "result") and name[0] != "_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    # ---- run ---------------------------------------------------------------------------------------------------------

    def __call__(self, /, *positional: Any, backend: str | None = None, plan: AnySchedule | None = None,
                 empty: str = "nan", precision: str = "ieee", memory: int | None = None, sizes: Sizes | None = None,
                 check: bool = False, by: Any = None, groups: int | None = None,
                 **tensors: Any) -> Any:  # fmt: skip
        """Run on tensors (torch on one device, or NumPy), given by keyword.

        Args:
            positional: tensors in the order of `inputs=`.
            backend: `"tilelang"` (default on CUDA; on the CPU through TileLang's C target), `"torch"` (default on the
                CPU: block by block, bounded memory) or `"numpy"` (the interpreter).
            plan: for the tilelang backend a `Schedule`, a `LibraryProduct` or one that `plans` lists; None chooses.
            empty: what a ratio over no elements is, `"nan"` (as the definition) or `"zero"`.
            precision: `"ieee"`, `"tf32"` to allow TF32 in float32 contractions on CUDA, or `"wide"`: as `"ieee"`, and a
                kernel scales what a root or a ratio takes, so that a standard deviation of 1e25 is in range; it takes
                up to 5 times as long. The other backends always do.
            memory: the most bytes that a plan with PyTorch's operations may store in between; None for as many as the
                inputs and outputs have, or 8 times as many for the unfused form. Kernels store states alone.
            sizes: extents of axes that no tensor carries, by axis or by its name.
            check: check data-dependent indices on CUDA too, and the signs that tensors were declared to have.
            by: the group of every element along the reduced axis, an integer from 0 to `groups` - 1: the outputs of
                each group, in one pass (`leaf`), without gradients. By the tensors' library, unless `backend=` says.
            groups: the number of groups, those without an element counted.
            tensors: arrays by name; integer and boolean ones only where they index or mask.

        Returns:
            One array, or a namedtuple of them, of the inputs' library, in the inputs' promoted dtype (logarithms and
            extrema at least float32; indices int64, truth values bool), dimensions in the order of the output axes. By
            groups, these come first; outputs that keep the reduced axis read the values of their element's group.

        >>> import numpy as np, redalg as ra
        >>> n = ra.axes("n")
        >>> mean = ra.fuse(ra.mean(ra.tensor("x[b,n]"), n))
        >>> mean(x=np.array([[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]]))
        array([3., 4.])
        >>> mean(x=np.array([[1.0, 2.0, 6.0]]), by=np.array([0, 1, 1]), groups=2)
        array([[1.],
               [4.]])
        """
        options = {"empty": empty, "precision": precision, "plan": plan, "memory": memory, "check": check}
        torch = imported_torch()
        if by is not None or groups is not None:
            from redalg.runtime.call.groups import call_by_groups

            if torch is not None and torch.compiler.is_compiling():
                call_by_groups = torch.compiler.disable(call_by_groups)
            inputs = self._pass_inputs(self._bind(positional, tensors))
            refuse_states("by=", self.cascade, self.earlier)
            how = {**options, "backend": backend, "sizes": sizes}
            return self._outputs(call_by_groups(self.passes, inputs, how, by=by, groups=groups))
        if torch is not None and torch.compiler.is_compiling():
            from redalg.gradient.traced import traced_call
            from redalg.gradient.within_operator import is_within_operator

            if not is_within_operator():
                return traced_call(self, positional, tensors, sizes or {}, {**options, "backend": backend})
        if torch is not None and torch.jit.is_tracing():
            from redalg.gradient.traced import call_in_trace

            return call_in_trace(self, positional, tensors, sizes or {}, {**options, "backend": backend})
        if torch is not None and (torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")):
            from redalg.runtime.bind.autocast import call_in_autocast

            return call_in_autocast(self, positional, tensors, {**options, "backend": backend, "sizes": sizes})
        from redalg.runtime.bind.inputs import is_recorded
        from redalg.runtime.call.dispatch import call

        inputs = self._pass_inputs(self._bind(positional, tensors))
        if is_recorded(inputs):
            from redalg.gradient.recorded import recorded_call

            return self._outputs(recorded_call(self, inputs, backend, named_sizes(self.cascade, sizes), options))
        return self._outputs(call(self.passes, inputs, backend, named_sizes(self.cascade, sizes), options))

    def reference(self, /, *positional: Any, sizes: Sizes | None = None, **tensors: Any) -> Any:
        """The definition: what was given to `fuse`, evaluated in float64 (by einsum, rows in chunks).

        >>> import numpy as np, redalg as ra
        >>> variance = ra.fuse(ra.var(ra.tensor("x[n]"), ra.axes("n")))
        >>> variance.reference(x=np.float32([1, 2, 6]))
        array(4.66666667)
        """
        from redalg.runtime.unfused.defined import defined_outputs

        inputs, sizes = self._bind(positional, tensors), named_sizes(self.cascade, sizes)
        return self._outputs(defined_outputs(self.cascade, self.written, inputs, sizes, self._unread_inputs))

    @cached_property
    def _unread_inputs(self) -> Mapping[str, Element | Scalar]:
        return unread_inputs(self.written, [one.cascade for one in (*self.earlier, self.decomposition)])

    @cached_property
    def _known_tensors(self) -> tuple[str, ...]:
        """The names of the tensors that the function has, those that one pass makes for another among them."""
        read = [one.name for form in self.passes for one in form.cascade.elements()]
        return tuple(dict.fromkeys([*self.cascade.inputs(), *self._unread_inputs, *read]))

    def _pass_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The tensors and scalars that reductions read, of those that are given."""
        unread = self._unread_inputs
        return {name: one for name, one in inputs.items() if name not in unread} if unread else inputs

    def _bind(self, positional: Sequence[Any], tensors: dict[str, Any]) -> Mapping[str, Any]:
        from redalg.runtime.bind.inputs import by_name, without_gradients

        return without_gradients(by_name(self, positional, tensors) if positional else tensors)

    def _outputs(self, arrays: Mapping[str, Any]) -> Any:
        if self.single:
            return arrays[self.cascade.outputs[0].name]
        return outputs_type(tuple(arrays))(**arrays)

    # ---- kernels -----------------------------------------------------------------------------------------------------

    def lower(self, target: str, sizes: Sizes | None = None, dtypes: Any = "float16",
              **options: Any) -> Lowered:  # fmt: skip
        """Plan, tile program and source for `sm_90a`, `sm_86`, `sm_80` or `c` (of the last of several passes).

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> lowered = total.lower("H100", {"b": 64, "n": 4096}, "float32")
        >>> lowered.plan.device.target, [one.name for one in lowered.program.parameters], lowered.results
        ('sm_90a', ['x', 'out'], {'out': 'float32'})
        """
        from redalg.runtime.call.sizes import lower

        return self._lower_passes("lower", lower, target, sizes, dtypes, **options)[-1]

    def source(self, target: str = "sm_90a", sizes: Sizes | None = None, dtypes: Any = "float16",
               **options: Any) -> str:  # fmt: skip
        """Readable TileLang that runs without redalg: of several passes one program after another (`sources`).

        Args:
            target: `sm_90a`, `sm_89`, `sm_86`, `sm_80`, `c`, or a card (`"H200"`).
            sizes: extents of all axes, by axis or by its name.
            dtypes: one for all tensors, or by tensor name: a name (`"float16"`), or torch's or NumPy's own.
            options: `plan`, `shapes` (by tensor name, where an index is no axis), `empty`, `precision`, `varying` (the
                axes whose size is a run-time one).

        >>> import redalg as ra
        >>> b, n = ra.axes("b n")
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))
        >>> "import tilelang" in total.source("c", sizes={b: 64, n: 256}, dtypes="float32")
        True
        """
        from redalg.runtime.call.sizes import lower
        from redalg.runtime.lowering import sources

        return ProgramText(sources(self._lower_passes("source", lower, target, sizes, dtypes, **options)))

    def save(self, path: str | Path, target: str = "sm_90a", sizes: Sizes | None = None,
             dtypes: Any = "float16", **options: Any) -> Path:  # fmt: skip
        """Write the kernel to a file that runs without redalg and checks itself; gives back the path.

        Beside what `source` gives, the file holds the definition in PyTorch. Run as a program it draws inputs, runs the
        kernel, compares every output with the definition in float64, and exits with 1 where one is wrong, or with 2 and
        words where the machine lacks the GPU that the kernel needs. Of several passes the file holds the last one's
        kernel; those before it are evaluated by their definitions.

        >>> import redalg as ra
        >>> from tempfile import TemporaryDirectory
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> with TemporaryDirectory() as folder:
        ...     path = total.save(f"{folder}/total.py", "H100", sizes={"b": 64, "n": 4096}, dtypes="float32")
        ...     print(path.name, "import redalg" in path.read_text(encoding="utf-8"))
        total.py False
        """
        from redalg.runtime.call.sizes import lower
        from redalg.runtime.lowering import lower_passes, standalone

        sizes, dtypes, settings = self._plain_options("save", target, sizes, dtypes, options)
        *_, lowered = lower_passes(self.passes, target, sizes, dtypes, each=lower, **settings)
        path = Path(path)
        path.write_text(standalone(lowered, self.passes, sizes, dtypes, settings.get("shapes") or {}), encoding="utf-8")
        return path

    def compile(self, target: str, sizes: Sizes | None = None, dtypes: Any = "float16", **options: Any) -> Kernel:
        """Compile the kernel for a target now, into the caches that calls use: calls of these sizes take it.

        Where a plan with PyTorch's operations is faster (`plan` tells), calls take that.

        >>> import redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> kernel = total.compile("c", sizes={"b": 4, "n": 64}, dtypes="float32")
        >>> kernel.source.program.name
        'out_over_n'
        """
        from redalg.runtime.call.kernels import kernel_for
        from redalg.runtime.call.sizes import ahead

        return [kernel_for(one) for one in self._lower_passes("compile", ahead, target, sizes, dtypes, **options)][-1]

    def plans(self, sizes: Sizes | None = None, dtypes: Any = "float16", device: str = "sm_90a",
              **options: Any) -> Candidates:  # fmt: skip
        """The plans that a call could have, best first by predicted time (of the last of several passes).

        They are kernels; and, where it is as accurate, the unfused form as operations of PyTorch, or a product by it
        before a kernel.

        Args:
            sizes, dtypes: as those of `source`.
            device: a card (`"H200"`, `"RTX 4090"`) or a target (`"sm_86"`: by the first card that has it).
            options: `shapes`, `empty`, `precision`, `memory`, as those of a call; `scalars`, name -> value, of run-time
                scalars: a mask of places may skip tiles by them (a window), and does not in predictions without. Calls
                take one plan for all values.

        Returns:
            A sequence that prints as a table, in which ← marks the plan that a call takes: of each candidate `plan` (to
            pass to a call), `predicted_us`, `bound` (what takes longest) and `expression` (the tiling, as MCFuser, SC
            '24, writes it). All are ranked when the first is read. Each is built when it is read; those that do not
            build are the last, with the reason as `refusal`. Its length is that of all candidates, and builds none.

        >>> import redalg as ra
        >>> rows = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> best = rows.plans({"b": 4096, "n": 4096}, "float32", "H200")[0]
        >>> best.bound, best.predicted_us > 4096 * 4096 * 4 / 4.8e6
        ('memory', True)
        """
        from redalg.runtime.bind.inputs import scalars_by_name
        from redalg.runtime.lowering import plan_candidates

        values = options.pop("scalars", None)
        if values is not None:
            values = scalars_by_name(self.cascade.scalars(), values, "plans")
        found = self._lower_passes("plans", plan_candidates, device, sizes, dtypes, scalars=values, **options)[-1]
        return found.with_choice(partial(self.plan, sizes, dtypes, device, **options))

    def plan(self, sizes: Sizes | None = None, dtypes: Any = "float16", device: str = "sm_90a",
             **options: Any) -> AnySchedule:  # fmt: skip
        """The plan that a call takes (of the last of several passes): its `form`, `origin` and text tell which it is.

        >>> from redalg.library import chained_product
        >>> print(chained_product().plan(dict(b=1, m=64, n=64, k=64, h=64), "bfloat16", "H200").form)
        online
        """
        from redalg.runtime.call.sizes import plan_taken

        return self._lower_passes("plan", plan_taken, device, sizes, dtypes, **options)[-1]

    def tune(self, /, *positional: Any, budget_s: float = 35.0, seed: int = 0, progress: bool = True,
             empty: str = "nan", precision: str = "ieee", memory: int | None = None, sizes: Sizes | None = None,
             **tensors: Any) -> Tuned:  # fmt: skip
        """Measure plans on these tensors, and remember the fastest for calls like this one, in other processes too.

        Args:
            budget_s: seconds that it may take; a kernel compiles for some of them.
            seed: of the search (MCFuser, SC '24, Algorithm 1).
            progress: whether to show a bar on a terminal (stderr).
            positional, empty, precision, memory, sizes, tensors: as those of a call.

        Returns:
            The table of every plan that was tried: predicted and measured time, or why it failed; `.wall_s`, `.best`
            (None if none was measured in time).

        Raises:
            BackendError: the cache folder cannot be written, or TileLang is missing.

        >>> import torch, redalg as ra
        >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> found = total.tune(x=torch.ones(64, 4096), budget_s=10)  # doctest: +SKIP
        >>> found.best.candidate, found.best.measured_us  # doctest: +SKIP
        """
        from redalg.runtime.tune.tuner import Tuning, tune

        inputs = self._pass_inputs(self._bind(positional, tensors))
        how = Tuning(budget_s, seed, progress, empty, precision, memory)
        return tune(self.passes, inputs, named_sizes(self.cascade, sizes, "tune"), how)

    def _lower_passes(self, caller: str, each: Callable[..., Result], target: str, /, sizes: Any, dtypes: Any,
                      **options: Any) -> tuple[Result, ...]:  # fmt: skip
        """The results of `each` for every pass, for options as a caller writes them."""
        from redalg.runtime.lowering import lower_passes

        sizes, dtypes, settings = self._plain_options(caller, target, sizes, dtypes, options)
        return lower_passes(self.passes, target, sizes, dtypes, each=each, **settings)

    def _plain_options(self, caller: str, target: Any, sizes: Any, dtypes: Any, options: Mapping[str, Any]
                       ) -> tuple[dict[str, int], dict[str, str], dict[str, Any]]:  # fmt: skip
        """Sizes and dtypes by name, and the other options, each known.

        Raises:
            InputError: one of them is none, or sizes stand in the place of a target.
        """
        tensors = self._known_tensors
        settings, card = known_options(options, self.cascade, caller, tensors), CARDS_BY[caller]
        if isinstance(target, Mapping) and isinstance(sizes, str):
            raise InputError(f"{caller}: sizes and dtypes come first, and {card}={sizes!r} last. Write `{caller}("
                             f'{short_text(dtypes)}, {short_text(target)}, "{sizes}")`.')  # fmt: skip
        if isinstance(target, Mapping):
            raise InputError(f"{caller}: {card}={short_text(target)} is the name of no card. Write `{caller}(…, {card}="
                             f'"H100", sizes={short_text(target)})`.')  # fmt: skip
        named = named_dtypes(self.cascade, dtypes, tensors, caller)
        return named_sizes(self.cascade, sizes, caller), named, settings


read_texts_by(Fused.of_text)
