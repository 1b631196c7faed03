"""The explanation of a compiled model: its graphs, their groups, and what was left to Inductor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, final

import torch
from torch.fx import GraphModule

from redalg.errors import GraphError, PlanError
from redalg.expression.arguments import answer_arguments
from redalg.torch.asynchronous import wait_for_swaps
from redalg.torch.backend import compile_graph, read_options
from redalg.torch.picture import draw_graph
from redalg.torch.records import recorded_reports
from redalg.torch.report import GraphReport

NO_GRAPH = "no graph was compiled: the model calls no operator of PyTorch, or redalg was not tested with its version"
FOLD = '<details class="picture"><summary>picture</summary><div style="overflow:auto;max-height:80vh">'
"""The head of a picture's fold: it scrolls if the picture is large."""


@final
@dataclass(frozen=True)
class Explanation:
    """The work of `torch.compile(model, backend="redalg")` on a model; `print` it, or show it in a notebook.

    Attributes:
        graphs: the report of every graph, in the order in which they were compiled.

    >>> found = Explanation((GraphReport(0, ()),))
    >>> print(found)
    a graph of 0 statements: 0 of 0 groups put
    >>> found.picture()[:4]
    '<svg'
    """

    graphs: tuple[GraphReport, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.graphs)) or NO_GRAPH

    def _repr_html_(self) -> str:
        return "\n".join(map(_html_of, self.graphs)) or f"<p>{escape(NO_GRAPH)}</p>"

    def picture(self, number: int = 0) -> str:
        """A graph as a picture, the text of an SVG: its statements, which of them reads which, and its groups.

        Args:
            number: of the graph, in the order of `graphs`, from 0.

        Raises:
            PlanError: there is no such graph, or it was left to Inductor before its groups were looked for.
        """
        count = len(self.graphs)
        if not 0 <= number < count:
            found = f"graphs that were compiled: {count}" if count else NO_GRAPH
            todo = f" Ask for a number from 0 to {count - 1}." if count else " Explain a model that has a graph."
            raise PlanError(f"picture({number}): the number should be that of a compiled graph; {found}.{todo}")
        report = self.graphs[number]
        if report.failure:
            raise PlanError(f"picture({number}): a picture needs the groups of the graph, and it is {report.summary}. "
                            "Remove the reason, or ask for another graph.")  # fmt: skip
        return draw_graph(report.drawing)


@answer_arguments(GraphError)
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
        mode, options: as of `torch.compile(model, backend="redalg")`. With `redalg.asynchronous` the model is called
            again once its groups are found; what takes longer than `redalg.budget_s` is told as pending.

    Raises:
        PlanError: an option is none of redalg's words.

    >>> import torch
    >>> print(explain(torch.nn.Softmin(-1), torch.ones(2, 3)))  # doctest: +SKIP
    """
    told = read_options(mode, options)  # before Dynamo, which wraps what a backend raises

    def fresh(module: GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(module, given, mode=mode, options=options)

    compiled = torch.compile(model, backend=fresh)  # a backend of its own: Dynamo has no graph of it
    arguments = () if isinstance(inputs, Mapping) else [inputs] if isinstance(inputs, torch.Tensor) else inputs
    keywords = inputs if isinstance(inputs, Mapping) else {}
    with recorded_reports() as reports:
        compiled(*arguments, **keywords)
        if told.asynchronous and wait_for_swaps(told.budget_s):
            compiled(*arguments, **keywords)
    return Explanation(tuple(reports))


def _html_of(report: GraphReport) -> str:
    """A report as HTML: its line, a fold for its picture, and a fold for every group."""
    groups = (f"<details><summary>{escape(each.summary)}: {escape(str(each.decision))}</summary>"
              f"<pre>{escape(str(each))}</pre></details>" for each in report.groups)  # fmt: skip
    rest = "".join(f"<li>{escape(line)}</li>" for line in report.remarks)
    rest = f"<ul>{rest}</ul>" if rest else ""
    picture = "" if report.failure else f"{FOLD}{draw_graph(report.drawing)}</div></details>"
    return f"<p>{escape(report.summary)}</p>{picture}{''.join(groups)}{rest}"
