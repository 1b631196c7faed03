"""The explanation of a compiled model: its graphs, their groups, and what was left to Inductor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, final

import torch
from torch._functorch import config as functorch
from torch._inductor import config as inductor
from torch.fx import GraphModule

from redalg.torch.backend import compile_graph, read_options, recorded_reports
from redalg.torch.report import GraphReport

NO_GRAPH = "no graph was compiled: the model calls no operator of PyTorch, or redalg was not tested with its version"


@final
@dataclass(frozen=True)
class Explanation:
    """The work of `torch.compile(model, backend="redalg")` on a model; `print` it, or show it in a notebook.

    Attributes:
        graphs: the report of every graph, in the order in which they were compiled.
    """

    graphs: tuple[GraphReport, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.graphs)) or NO_GRAPH

    def _repr_html_(self) -> str:
        return "\n".join(map(_html_of, self.graphs)) or f"<p>{escape(NO_GRAPH)}</p>"


def explain(
    model: Callable[..., Any],
    inputs: torch.Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Explanation:
    """Compile a model with the backend "redalg", call it once, and tell of its groups.

    For every group: the lines of your source, the expressions, the gain that is predicted, the gate's decision with
    both measured times; for what was left, why. Inductor's caches are not used, so that every graph is looked at; the
    gate's decisions are, and what was measured before is not measured again.

    Args:
        model: a module or a function. Its backward is not compiled; call within `torch.no_grad()` for inference.
        inputs: a tensor, a sequence of arguments, or a mapping of keyword arguments.
        mode, options: as of `torch.compile(model, backend="redalg")`.

    Raises:
        PlanError: an option is none of redalg's words.
    """
    read_options(mode, options)  # before Dynamo, which wraps what a backend raises

    def fresh(module: GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(module, given, mode=mode, options=options)

    compiled = torch.compile(model, backend=fresh)  # a backend of its own: Dynamo has no graph of it
    arguments = () if isinstance(inputs, Mapping) else [inputs] if isinstance(inputs, torch.Tensor) else inputs
    keywords = inputs if isinstance(inputs, Mapping) else {}
    no_graphs, no_pairs = inductor.patch(fx_graph_cache=False), functorch.patch(enable_autograd_cache=False)
    with no_graphs, no_pairs, recorded_reports() as reports:
        compiled(*arguments, **keywords)
    return Explanation(tuple(reports))


def _html_of(report: GraphReport) -> str:
    """A report as HTML: its line, and a fold for every group."""
    groups = (f"<details><summary>{escape(str(each.group))}: {escape(str(each.decision))}</summary>"
              f"<pre>{escape(str(each))}</pre></details>" for each in report.groups)  # fmt: skip
    left = (f"<li>{escape(name)} ({count}): {escape(reason)}</li>" for name, (reason, count) in report.left.items())
    rest = "".join(left)
    return f"<p>{escape(report.summary)}</p>{''.join(groups)}" + (f"<ul>left to PyTorch:{rest}</ul>" if rest else "")
