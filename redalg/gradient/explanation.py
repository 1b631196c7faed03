"""The explanation of a derivative: names by `ra.let`, pivots, and the stages as equations.

    mu[b] = row_sum_0[b]/|n|        a name of the user's; in a backward by the row values that the forward saves
    grad_x[b,n] = … (x[b,n] − mu)   every stage that reads it says so

A backward tells what the forward saves, forward mode the tangents that its own are linear in.

A stage that is asked for by its name is explained as the function that it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sympy import Expr

from redalg.decompose.parse.names import display_names, put_name, without_names
from redalg.decompose.verdict.passes import passes_in_words
from redalg.errors import InputError
from redalg.explain import text
from redalg.explain.ask import FORMATS, RENDERERS, Request, known_word
from redalg.explain.model import Derivation, Equation, Line, Part, Section, column, comma_list, sentence
from redalg.explain.sections import labelled_element
from redalg.expression import Label, Value
from redalg.expression.contents import axes_by_name, free_axes, nodes_of
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.rows import RowValues
from redalg.gradient.stage import AnyStage

SAVED, TANGENTS, NAMES, PIVOTS, STAGES = "saved", "tangents", "names", "pivots", "stages"
ROWS: Final = "Row values, which are outputs of the forward"
Names = tuple[tuple[str, Expr], ...]
"""Names, each with what it stands for in tensors and row values, the short ones first."""


def names_in_stages(written: Iterable[Expr], rows: RowValues) -> Names:
    """The names that `ra.let` gives in the outputs, each with what it names as stages read it."""
    given = ((name, rows.read(expr)) for expr, name in display_names(list(written)).items())
    return tuple(sorted(given, key=lambda pair: (len(nodes_of(pair[1])), pair[0])))


def stage_in_names(expr: Expr, names: Names) -> Expr:
    """An expression of tensors and row values, in the names that were given."""
    for name, meaning in names:
        expr = put_name(expr, meaning, Value(Label(name), *axes_by_name(free_axes(meaning))))
    return expr


def explain_backward(backward: Any, request: Request) -> str:
    """The part of an explanation of a backward that is asked for.

    Raises:
        InputError: there is no such section or stage.
    """
    definitions = row_definitions(backward)
    equations = equations_of_names(backward.stages, backward.names, definitions.values())
    own = (
        Section("What the forward saves", tuple(saved_lines(backward, definitions)), SAVED),
        names_section("In row values and tensors", equations),
        pivots_section(backward.proofs, backward.names, "gradient"),
    )
    return explain_stages("The backward", own, backward.stages, backward.names, request)


def explain_forward(forward: Any, request: Request) -> str:
    """The part of an explanation of forward mode that is asked for.

    Raises:
        InputError: there is no such section or stage.
    """
    tangents = (sentence(f"`{own}` is that of `{tensor}`.") for tensor, own in forward.names.items())
    none = (sentence("None: the outputs are constant."),)
    own = (
        Section("Tangents that the outputs' are linear in", tuple(tangents) or none, TANGENTS),
        names_section("In tensors", equations_of_names(forward.stages, forward.given)),
        pivots_section(forward.proofs, forward.given, "tangent"),
    )
    return explain_stages("Forward mode", own, forward.stages, forward.given, request)


def explain_stages(
    title: str, own: Iterable[Section | None], stages: Sequence[AnyStage], names: Names, request: Request
) -> str:
    """The part that is asked for of a derivative's own sections and of its stages, or the derivation of one stage.

    Raises:
        InputError: there is no such section or stage.
    """
    functions = {one.name: one.function for one in stages if one.function is not None}
    lines = (stage_line(stage, None if request.brief else names) for stage in stages)
    every = (*own, Section("Stages", tuple(lines), STAGES))
    wanted, sections = request.sections, {one.name: one for one in every if one is not None}
    if wanted is not None and set(wanted) & functions.keys():
        if len(wanted) > 1:
            raise InputError(f"explain: section={[*wanted]} names a stage, which is explained alone. Name it alone.")
        explained: str = functions[wanted[0]].explain(width=request.width, format=request.format)
        return explained
    for name in wanted or ():
        known_word("section", name, [*sections, *functions])
    chosen = tuple(sections[name] for name in (sections if wanted is None else wanted))
    made = [tensor for stage in stages for tensor in tensors_of_stage(stage)]
    summary = sentence(*stages_in_words(stages), f" Sections are {', '.join([*sections, *functions])}.")
    content = Derivation((f"{title}: ", *comma_list(made)), summary, chosen)
    with text.at_most(request.columns):
        return FORMATS[request.format](RENDERERS[request.format](content))


def names_section(label: str, equations: Sequence[Equation]) -> Section | None:
    """The names that were given, if stages hold some."""
    return Section("Names that were given", (column((label,), equations),), NAMES) if equations else None


def pivots_section(proofs: Mapping[Expr, str], names: Names, derivative: str) -> Section | None:
    """The extrema on which no output depends, if there are some, in the names that were given."""
    said = (sentence(stage_in_names(pivot, names), f" has no {derivative}. {why}") for pivot, why in proofs.items())
    return Section(f"Extrema without a {derivative}", tuple(said), PIVOTS) if proofs else None


def stage_line(stage: AnyStage, names: Names | None) -> Line:
    """A stage with its equations in the names that were given; without equations if `names` is None."""
    tensors, passes = comma_list(tensors_of_stage(stage)), passes_of_stage(stage)
    if names is None:
        return sentence(*tensors, f": {passes}.")
    equations = [Equation(labelled_element(part.name, part.axes), stage_in_names(part.printable, names))
                 for part in stage.parts]  # fmt: skip
    return column((*tensors, f", {passes}"), equations)


def equations_of_names(stages: Sequence[AnyStage], names: Names, others: Iterable[Expr] = ()) -> list[Equation]:
    """The definitions of the names that stages, and other expressions, hold."""
    expressions = [*others, *(one.printable for stage in stages for one in stage.parts)]
    inside = set[str]().union(*(value_names(stage_in_names(one, names)) for one in expressions))
    used = used_names(names, inside)
    known = [(name, expr, names[:place]) for place, (name, expr) in enumerate(names)]
    return [Equation(labelled_element(name, axes_by_name(free_axes(expr))), stage_in_names(expr, before))
            for name, expr, before in known if name in used]  # fmt: skip


def row_definitions(backward: Any) -> dict[str, Expr]:
    """The row values by name, each as a reduction of the others."""
    written = {name: without_names(expr) for name, expr in backward.forward.written if name in backward.saved}
    tensors = {name: labelled_element(name, axes_by_name(free_axes(expr))) for name, expr in written.items()}
    others = {name: {written[one]: tensors[one] for one in written if one != name} for name in written}
    return {name: replace_nodes(expr, others[name]) for name, expr in written.items()}


def saved_lines(backward: Any, definitions: Mapping[str, Expr]) -> Iterator[Line]:
    """The row values with their definitions, and the outputs that stages read."""
    if definitions:
        yield column((ROWS,), [Equation(labelled_element(name, axes_by_name(free_axes(expr))),
                                        stage_in_names(expr, backward.names))
                               for name, expr in definitions.items()])  # fmt: skip
    for output, name in backward.made.items():
        yield sentence(f"`{name}` is the output `{output}`.")
    if not definitions and not backward.made:
        yield sentence("Nothing beside the inputs.")


def stages_in_words(stages: Sequence[AnyStage]) -> tuple[Part, ...]:
    """The number of stages."""
    return (f"{len(stages)} stage{'s' if len(stages) > 1 else ''}, each fused by the same engine.",)


def tensors_of_stage(stage: AnyStage) -> list[Any]:
    """The tensors of a stage."""
    return [labelled_element(one.name, one.axes) for one in stage.parts]


def passes_of_stage(stage: AnyStage) -> str:
    """The passes of a stage over the data, in words."""
    if stage.function is None or stage.function.form.is_elementwise:
        return "element by element"
    number = len(stage.function.passes)
    return "in one pass" if number == 1 else f"in {passes_in_words(number)}"


def used_names(names: Names, inside: set[str]) -> set[str]:
    """The names that expressions hold, and those in the definitions of these."""
    used = set[str]()
    for place in reversed(range(len(names))):
        name, expr = names[place]
        if name in inside | used:
            used |= {name} | (value_names(stage_in_names(expr, names[:place])) & {one for one, _ in names})
    return used


def value_names(expr: Expr) -> set[str]:
    """The names of values in an expression."""
    return {one.name for one in nodes_of(expr) if isinstance(one, Value)}
