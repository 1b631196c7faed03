"""The gallery: a page for every pattern of the library, made of its function, its derivation, its kernel and plots.

`docs/gallery/index.md` lists them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from textwrap import dedent

from docs.generate.plots import errors_plot, time_plot
from docs.generate.reference import entry
from redalg.commands.subject import Subject, subject_of
from redalg.explain.picture import Picture
from redalg.explain.views import prediction_of
from redalg.instruments.drawing import JUDGED
from redalg.library import PATTERNS, Pattern
from redalg.runtime.call.sizes import lower
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import lower_passes, sources

TARGET = "H100"
"""The card that kernels of the gallery are for."""


def gallery_pages(*, whole: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of every page, and the function that makes its text.

    Args:
        whole: with derivations, kernels and plots, which take time.
    """
    for pattern in PATTERNS.values():
        yield f"gallery/{pattern.name}.md", partial(pattern_text, pattern, whole=whole)


def pattern_text(pattern: Pattern, *, whole: bool) -> str:
    """The page of a pattern."""
    title = pattern.name.replace("_", " ")
    sizes = ", ".join(f"{axis} = {size}" for axis, size in pattern.sizes.items())
    head = f"# {title[0].upper()}{title[1:]}\n\n{entry(f'redalg.library.{pattern.name}', pattern.build)}\n"
    definition = f"## Definition\n\n```python\n{code_of(pattern)}\n```\n"
    return head + definition + (made_text(pattern, sizes) if whole else "")


def made_text(pattern: Pattern, sizes: str) -> str:
    """The derivation, the kernel and the plots of a pattern."""
    subject = subject_of(pattern.name)
    fused = subject.function
    lowered = lower_passes(fused.passes, TARGET, each=lower, **subject.problem(TARGET))
    slots = ", ".join(f"`{slot.name}`" for slot in fused.state) or "none"
    passes = len(fused.passes)
    facts = f"Passes over the data: {passes}. Slots of the state: {slots}. Sizes of the kernel below: {sizes}.\n"
    return (
        f"\n## Derivation\n\n{facts}\n{inline(fused.draw())}\n\n{fused.explain(format='markdown')}\n"
        f"\n## Kernel\n\nThe program that `source` gives for an {TARGET}, {pattern.dtype} and these sizes.\n\n"
        f"```python\n{sources(lowered).rstrip()}\n```\n"
        f"{time_text(lowered)}{errors_text(subject)}"
    )


def time_text(lowered: Sequence[Lowered]) -> str:
    """The predicted time of the kernels."""
    predictions = [found for found in map(prediction_of, lowered) if found]
    return (
        f"\n## Predicted time\n\nPredicted by the cost model for an {TARGET}, and not measured: the time of the kernel "
        "above, and the time that each unit would take alone. [The cost model](../theory/cost_model.md) says how.\n\n"
        f"{inline(time_plot(predictions))}\n"
    )


def errors_text(subject: Subject) -> str:
    """The errors of calls on hostile data, in float32."""
    fused, pattern = subject.function, subject.pattern
    shapes = pattern.tensor_shapes(JUDGED.sizes(fused.cascade, {})) if pattern else {}
    found = fused.accuracy(shapes=shapes)
    made, sizes, *_ = found.title.split(", ")
    return (
        f"\n## Errors\n\nMeasured by `{made}()` on the CPU that built this site, at {sizes} in float32: "
        f"max|out − ref| / max|ref| beside {found.reference}, of redalg and of the formula evaluated as it is written. "
        "[Instruments](../INSTRUMENTS.md) tells the families of data.\n\n"
        f"{inline(errors_plot(found))}\n"
    )


def inline(picture: Picture) -> str:
    """A picture in the page's own colours."""
    return f'<div class="table-wrapper">{picture.svg()}</div>'


def code_of(pattern: Pattern) -> str:
    """The function of a pattern, without its decorator and docstring."""
    text = dedent(inspect.getsource(pattern.build))
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    lines = text.splitlines()
    body = function.body[1] if ast.get_docstring(function) else function.body[0]
    head = lines[function.lineno - 1 : function.body[0].lineno - 1]
    return "\n".join([*head, *lines[body.lineno - 1 :]]).rstrip()
