"""torch.compile(model, backend="redalg"): Inductor, with operators in its graphs in the place of groups.

    compile_graph   Dynamo's graph   →  Inductor's compilation, with a pass at the end of its post-grad passes
    training        Dynamo's graph   →  of a graph that is trained: with groups that have a backward (`training`)
    GroupPass       a post-grad graph → the same graph: its program, explored, its groups judged by the gate and put

Everything else stays Inductor's: decompositions, caches, modes, CUDA graphs, the passes of the user. If anything fails
here, the graph stays as it was, and one line of log says why. Options, beside Inductor's own:

    redalg.gate       "measured" (by default): a group stays if its region was measured to be faster with it
                      "replayed": so by the device's time alone, for a caller who captures calls in CUDA graphs; by
                      itself where Inductor does
                      "predicted": every group that exploration finds, and that a trial lets pass
    redalg.budget_s   the time for a graph's trials and measurements, 120 s by default: groups that were not reached are
                      left to Inductor, also by its caches until the budget is another
    redalg.subprograms
                      True, False, or None (by default: on GPUs): small statements around one another in one launch,
                      level after level, products with weights too
    redalg.asynchronous
                      true: calls run Inductor's code until a thread has found the groups and compiled their kernels
                      (`asynchronous`); false by default

Transformations are made unless they are switched off, each by False (`redalg.graphs.transformations`):

    redalg.horizontal_fusion, redalg.vertical_fusion, redalg.grid_sync, redalg.data_reuse
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields
from functools import partial
from typing import Any, NamedTuple, cast, final

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

import redalg.gradient.operators  # noqa: F401 - it registers the operators that graphs call
from redalg.errors import PlanError
from redalg.graphs.transformations import ALL, Transformations
from redalg.torch.asynchronous import compile_and_swap, reason_against_swap
from redalg.torch.decisions import environment_of, sources_digest
from redalg.torch.gate import GATES, KEPT, MEASURED, REPLAYED
from redalg.torch.groups import put_groups
from redalg.torch.records import LEFT, failure_report, keep_report, say_once
from redalg.torch.stitch import leave_autograd
from redalg.torch.training import put_trained_groups

FIRST, LAST = (2, 11), (2, 13)
"""The versions of PyTorch that this was tested with, from the first to the last."""
GATE, BUDGET, PASS = "redalg.gate", "redalg.budget_s", "post_grad_custom_post_pass"
OWN, SUBPROGRAMS = "redalg.", "redalg.subprograms"
SWITCHES = {f"{OWN}{one.name}": one.name for one in fields(Transformations)}
"""The options that switch transformations off, and the transformations."""
ASYNCHRONOUS = "redalg.asynchronous"
GRAPHS = "triton.cudagraphs"
BUDGET_S = 120.0


class GraphOptions(NamedTuple):
    """The options of a compilation: redalg's, as the module has them, and Inductor's."""

    gate: str
    budget_s: float
    subprograms: bool | None
    transformations: Transformations
    asynchronous: bool
    others: dict[str, Any]


def compile_graph(
    module: GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend "redalg" of `torch.compile`.

    Args:
        module, inputs: Dynamo's graph, and examples of what it takes.
        mode: as of Inductor: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs".
        options: Inductor's, and redalg's: see the module.

    Raises:
        PlanError: `redalg.gate` is none of its words, `redalg.budget_s` no number of seconds, `redalg.subprograms`,
            `redalg.asynchronous` or the switch of a transformation no truth value, or there is no option of the name.
    """
    from torch._inductor import config as inductor
    from torch._inductor.compile_fx import compile_fx

    gate, budget_s, subprograms, transformations, asynchronous, patches = read_options(mode, options)
    if is_tested(torch.__version__):
        others = patches.get(PASS, getattr(inductor, PASS))
        if asynchronous and swaps(module, inputs, gate, patches):
            word = KEPT if gate == MEASURED else gate
            put = partial(put_groups, gate=word, budget_s=budget_s, subprograms=subprograms,
                          transformations=transformations)  # fmt: skip

            def compile_with(graph: GraphModule, given: Sequence[Any], act: Callable[[Graph], None]) -> Any:
                return compile_fx(graph, list(given), config_patches={**patches, PASS: OtherPass(act, others)})

            return compile_and_swap(module, inputs, compile_with, put)
        module = put_trained_groups(module, inputs, gate, budget_s, transformations)
        patches[PASS] = GroupPass(gate, budget_s, others, subprograms=subprograms, transformations=transformations)
    else:
        say_once(f"PyTorch {torch.__version__} is not one that redalg was tested with ({FIRST} to {LAST}): Inductor "
                 "compiles the model alone.")  # fmt: skip
    return cast(Callable[..., Any], compile_fx(module, list(inputs), config_patches=patches))


def swaps(module: GraphModule, inputs: Sequence[Any], gate: str, patches: Mapping[str, Any]) -> bool:
    """Tell if a graph may run Inductor's code first, and its groups later; if not, the log says why, once."""
    from torch._inductor import config

    settings = {**config.get_config_copy(), **patches}
    reason = reason_against_swap(module, inputs, settings)
    if gate == REPLAYED and not reason:
        reason = "its calls are captured in CUDA graphs (`redalg.gate`), which keep the code that they captured"
    if reason:
        say_once(f"a graph is compiled at once, and not in the background: {reason}")
    return not reason


def read_options(mode: str | None, options: Mapping[str, Any] | None) -> GraphOptions:
    """The options that a mode and options say.

    Raises:
        PlanError: as of `compile_graph`.
    """
    from torch._inductor import config, list_mode_options

    patches = {**(list_mode_options(mode) if mode else {}), **(options or {})}
    gate, budget_s = patches.pop(GATE, MEASURED), patches.pop(BUDGET, BUDGET_S)
    if gate not in GATES:
        raise PlanError(f"options={{{GATE!r}: {gate!r}}}: the gate should be one of {', '.join(map(repr, GATES))}.")
    if isinstance(budget_s, bool) or not isinstance(budget_s, int | float) or not budget_s >= 0:
        raise PlanError(f"options={{{BUDGET!r}: {budget_s!r}}}: the budget should be a number of seconds, at least 0.")
    subprograms = patches.pop(SUBPROGRAMS, None)
    if subprograms not in (True, False, None):
        raise PlanError(f"options={{{SUBPROGRAMS!r}: {subprograms!r}}}: it should be True, False, or None (on GPUs).")
    transformations = read_transformations(patches)
    asynchronous = patches.pop(ASYNCHRONOUS, False)
    if not isinstance(asynchronous, bool):
        raise PlanError(f"options={{{ASYNCHRONOUS!r}: {asynchronous!r}}}: it should be True or False.")
    refuse_unknown(patches)
    if gate == MEASURED and patches.get(GRAPHS, config.triton.cudagraphs):
        gate = REPLAYED
    return GraphOptions(gate, budget_s, subprograms, transformations, asynchronous, patches)


def refuse_unknown(patches: Mapping[str, Any]) -> None:
    """Raise `PlanError` if an option that is left has redalg's prefix, or is one of redalg's without it."""
    known = (GATE, BUDGET, SUBPROGRAMS, ASYNCHRONOUS, *SWITCHES)
    if unknown := sorted(name for name in patches if name.startswith(OWN)):
        raise PlanError(f"options={{{unknown[0]!r}: …}}: redalg has no such option. "
                        f"It has {', '.join(map(repr, known))}; write one of them.")  # fmt: skip
    if bare := sorted(name for name in patches if f"{OWN}{name}" in known):
        raise PlanError(f"options={{{bare[0]!r}: …}}: Inductor has no such option. Did you mean {OWN + bare[0]!r}? "
                        "Redalg's options have its name before theirs; write it so.")  # fmt: skip


def read_transformations(patches: dict[str, Any]) -> Transformations:
    """The transformations that options leave switched on; these options are taken out of `patches`.

    Raises:
        PlanError: an option is no truth value.
    """
    switches = {field: patches.pop(name) for name, field in SWITCHES.items() if name in patches}
    for field, given in switches.items():
        if not isinstance(given, bool):
            raise PlanError(
                f"options={{{OWN + field!r}: {given!r}}}: the switch of a transformation should be True or False, and "
                f"{given!r} is a {type(given).__name__}. Write False to switch it off, or leave the option out."
            )
    return Transformations(**switches)


@final
class GroupPass(CustomGraphPass):
    """Inductor's pass that puts groups into a post-grad graph, after the passes that the user has there."""

    def __init__(
        self, gate: str, budget_s: float = BUDGET_S, others: Any = None, *, subprograms: bool | None = None,
        transformations: Transformations = ALL,
    ) -> None:  # fmt: skip
        self.gate, self.budget_s, self.subprograms = gate, budget_s, subprograms
        self.transformations = transformations
        self.others = passes_of(others)

    def __call__(self, graph: Graph) -> None:
        """Put the groups of a graph, in place."""
        for other in self.others:
            other(graph)
        try:
            report = put_groups(graph, self.gate, self.budget_s, subprograms=self.subprograms,
                                transformations=self.transformations)  # fmt: skip
        except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
            report = failure_report(LEFT, failure)
        leave_autograd(graph)
        keep_report(report)

    def uuid(self) -> Any:
        """All that the pass depends on beside the graph; None, so that nothing is cached, if another pass has none.

        Decisions follow from these and from the graph, and are kept once they are made.
        """
        others = [one.uuid() if isinstance(one, CustomGraphPass) else None for one in self.others]
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        own = sources_digest(), *environment_of(device), self.gate, self.budget_s, self.subprograms
        own = (*own, *astuple(self.transformations))
        return None if None in others else (*own, *others)


@final
class OtherPass(CustomGraphPass):
    """Inductor's pass that does something with a post-grad graph, after the passes that the user has there."""

    def __init__(self, act: Callable[[Graph], None], others: Any) -> None:
        self.act, self.others = act, passes_of(others)

    def __call__(self, graph: Graph) -> None:
        for other in self.others:
            other(graph)
        self.act(graph)

    def uuid(self) -> None:
        """None, so that nothing is cached, and every graph is seen."""


def passes_of(others: Any) -> tuple[Any, ...]:
    """The user's passes: a list of them, one, or none."""
    return tuple(others) if isinstance(others, list | tuple) else () if others is None else (others,)


# ---- the surroundings ------------------------------------------------------------------------------------------------


def is_tested(version: str) -> bool:
    """Tell if a version of PyTorch is one that this was tested with."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return FIRST <= (major, minor) <= LAST
