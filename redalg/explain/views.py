"""The views of stages, as `display` asks for them: a line, a page of HTML that folds, text, and code in colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from redalg.display import VIEWS, ProgramText, View
from redalg.explain.cost import reduced_axes_prose
from redalg.explain.html import line_html, mathematics
from redalg.explain.latex import WRITER as LATEX
from redalg.explain.listing import Listing, coloured_lines
from redalg.explain.names import lines_in_users_words
from redalg.explain.nest import loop_nest, time_lines, time_page
from redalg.explain.page import PLAIN, cell_table, closed_line, fold, text_block
from redalg.explain.sections import slot_table, the_decomposition, the_finish, the_forms
from redalg.explain.steps import the_transition
from redalg.explain.text import WRITER as TEXT
from redalg.explain.text import prose_text
from redalg.strategies.model.cost import Prediction, predict
from redalg.strategies.model.traffic import Outline
from redalg.strategies.schedule import numbers_of
from redalg.strategies.table import Table

if TYPE_CHECKING:
    from redalg.decompose.cascade import Cascade
    from redalg.decompose.verdict.verdict import Decomposition
    from redalg.explain.model import Line
    from redalg.incremental.form import FusedForm
    from redalg.incremental.passes import Passes
    from redalg.incremental.stages import Stages
    from redalg.lower_tile.ir.program import TileProgram
    from redalg.lower_tile.text.emit import Source
    from redalg.runtime.bind.state import State
    from redalg.runtime.lowered import Lowered
    from redalg.runtime.together.lower import LoweredSteps
    from redalg.strategies.search.candidates import Candidate, Candidates

LONGEST = 100
"""Letters of a line in a list."""


def one_line(kind: str, *parts: str) -> str:
    """`<Kind …>`, cut if it is long."""
    text = f"<{kind} {'; '.join(part for part in parts if part)}"
    return f"{text if len(text) < LONGEST else text[: LONGEST - 2] + '…'}>"


def lines_page(lines: list[Line]) -> str:
    """Lines of an explanation as HTML."""
    return "\n".join(written for line in lines for written in line_html(line))


def opens_to(kind: str, line: str, *parts: str) -> str:
    """A closed line that opens to parts."""
    return f"<article>{fold(closed_line(kind, line), chr(10).join(parts))}</article>"


def comma_names(values: Any) -> str:
    """Names, separated by commas."""
    return ", ".join(str(one.name) for one in values)


def code(text: str) -> str:
    """A name as code."""
    return f"<code>{escape(str(text))}</code>"


def formula(expr: Any) -> str:
    """An expression for MathJax."""
    return mathematics(LATEX.write(expr))


# ---- the algebra -----------------------------------------------------------------------------------------------------


def cascade_words(cascade: Cascade) -> str:
    """A cascade in words."""
    over = prose_text(reduced_axes_prose(cascade))
    reductions = comma_names(cascade.reductions) or "no reduction"
    return f"over {over or 'nothing'}: {reductions} → {comma_names(cascade.outputs)}"


def cascade_parts(cascade: Cascade) -> list[object]:
    """The reductions and the outputs as a table."""
    rows = [(each.name, each.monoid.name, comma_names(each.axes) or "all rows", TEXT.write(each.term))
            for each in cascade.reductions]  # fmt: skip
    rows += [(one.name, "output", comma_names(one.axes), TEXT.write(one.expr)) for one in cascade.outputs]
    return [Table(f"Cascade {cascade_words(cascade)}", ("name", "⊕", "one per", "of"), tuple(rows))]


def cascade_page(cascade: Cascade) -> str:
    """The reductions and the outputs as a table, and the text."""
    rows = [
        [code(each.name), escape(each.monoid.name), escape(comma_names(each.axes)) or "all rows", formula(each.term)]
        for each in cascade.reductions
    ]
    rows += [[code(one.name), "output", escape(comma_names(one.axes)), formula(one.expr)] for one in cascade.outputs]
    return opens_to("Cascade", cascade_words(cascade), cell_table(("name", "⊕", "one per", "of"), rows),
                    fold("As plain text", text_block(str(cascade))))  # fmt: skip


def decomposition_words(decomposition: Decomposition) -> str:
    """The ranks of the reductions."""
    return ", ".join(f"{one.reduction.name}: rank {one.rank}" for one in decomposition.separations) or "no reduction"


def decomposition_page(decomposition: Decomposition) -> str:
    """F, g and h of every reduction."""
    lines = lines_in_users_words(the_decomposition(decomposition), decomposition.cascade)
    return opens_to("Decomposition", decomposition_words(decomposition), lines_page(lines),
                    fold("As plain text", text_block(str(decomposition))))  # fmt: skip


def form_words(form: FusedForm) -> str:
    """The kind of a form and its slots."""
    return f"{form.kind}: {comma_names(form.slots) or 'no state'} → {comma_names(form.outputs)}"


def form_parts(form: FusedForm) -> list[object]:
    """The state as a table, and the form as text."""
    if form.is_elementwise or not form.slots:
        return [str(form)]
    found = slot_table(form)
    rows = tuple(tuple(map(prose_text, cells)) for cells in found.cells)
    return [Table("The state", found.header, rows), "", str(form)]


def form_page(form: FusedForm) -> str:
    """The state, how it moves and is made, and the outputs."""
    parts = [fold("As plain text", text_block(str(form)))]
    if not form.is_elementwise:
        state, moves, forms, finish = (
            lines_page(lines_in_users_words(lines, form.cascade))
            for lines in ([slot_table(form)], the_transition(form), the_forms(form), the_finish(form))
        )
        parts = [state, fold("How a state moves", moves), fold("Leaf, merge, one more element", forms),
                 fold("Finish", finish), *parts]  # fmt: skip
    return opens_to("FusedForm", form_words(form), *parts)


def forms_words(several: Passes | Stages) -> str:
    """The kind and the slots of each form."""
    return " | ".join(map(form_words, several.forms))


def forms_page(several: Passes | Stages) -> str:
    """The page of each form, in order."""
    return opens_to(type(several).__name__, forms_words(several), *map(form_page, several.forms))


# ---- schedules and kernels -------------------------------------------------------------------------------------------


def schedule_page(schedule: Any) -> str:
    """The levels as a loop nest."""
    predicted = f"; predicted {schedule.predicted_us:.2f} µs" if schedule.predicted_us is not None else ""
    return opens_to(type(schedule).__name__, f"{schedule}{predicted}", text_block(loop_nest(schedule)))


def nest_parts(schedule: Any) -> list[object]:
    """The levels as a loop nest in colours."""
    return [ProgramText(loop_nest(schedule))]


def candidate_parts(candidate: Candidate) -> list[object]:
    """A plan's nest, and what bounds it."""
    timed = candidate.terms and not candidate.refusal
    time = "\n".join(time_lines(candidate.predicted_us, candidate.terms)) if timed else str(candidate)
    return [*nest_parts(candidate.plan), time]


def candidate_page(candidate: Candidate) -> str:
    """A plan's nest, and what bounds it."""
    return opens_to("Plan", str(candidate), nest_page(candidate))


def nest_page(candidate: Candidate) -> str:
    """The nest of a plan and what bounds it, open."""
    time = time_page(candidate.predicted_us, candidate.terms) if candidate.terms else ""
    return f"{text_block(loop_nest(candidate.plan))}\n{time}"


def candidates_parts(candidates: Candidates) -> list[object]:
    """The table of the first plans, the first one's nest, and what bounds it."""
    return [candidates.table(), "", *candidate_parts(candidates[0])] if candidates else [str(candidates)]


def candidates_page(candidates: Candidates) -> str:
    """The table of the first plans; the first one's nest and what bounds it."""
    shown = candidates.table()
    rows = (
        [*map(escape, row[:-1]), f'<span style="white-space:nowrap">{escape(row[-1])}</span>'] for row in shown.rows
    )
    best = candidates[0] if shown.rows else None
    parts = [cell_table(shown.columns, rows), f"<p>{escape(shown.note)}</p>"]
    if best is not None:
        parts.insert(0, nest_page(best))
    line = shown.title.removeprefix("plans ")
    return opens_to("Plans", f"{line}: {best}" if best is not None else line, *parts)


def program_words(program: TileProgram) -> str:
    """A program's kernels and parameters."""
    kernels = ", ".join(one.title for one in program.kernels)
    return f"{program.name} in {program.compute}: {kernels}; {comma_names(program.parameters)}"


def program_page(program: TileProgram) -> str:
    """The program's text."""
    return opens_to("TileProgram", program_words(program), text_block(str(program)))


def source_words(source: Source) -> str:
    """A program's target and length."""
    target = source.plan.device.target
    return f"{source.program.name} for {target}: {len(source.text.splitlines())} lines of TileLang"


def source_page(source: Source) -> str:
    """The program's text in colours."""
    return opens_to("Source", source_words(source), coloured_page(source.text))


def coloured_page(text: str) -> str:
    """A Python text in colours."""
    return f"<pre {PLAIN}>{chr(10).join(coloured_lines(text))}</pre>"


def lowered_page(lowered: Lowered) -> str:
    """The loop nest, the predicted time, and the text beside the algebra."""
    prediction = prediction_of(lowered)
    page = time_page(prediction.time_us, prediction.terms, premises_of(lowered)) if prediction else ""
    time = fold("Predicted time", page) if page else ""
    return opens_to("Lowered", source_words(lowered.source), text_block(loop_nest(lowered.plan)), time,
                    fold("Kernel, with what every line serves", Listing(lowered.source, lowered.stages).page()),
                    fold("Tile program", text_block(str(lowered.program))))  # fmt: skip


def lowered_text(lowered: Lowered) -> str:
    """The loop nest, the predicted time, and the numbered text."""
    prediction = prediction_of(lowered)
    time = ["", *time_lines(prediction.time_us, prediction.terms, premises_of(lowered))] if prediction else []
    return "\n".join([loop_nest(lowered.plan), *time, "", Listing(lowered.source, lowered.stages).text()])


def steps_page(lowered: LoweredSteps) -> str:
    """The text of a launch for several functions beside the algebra of each."""
    return opens_to("LoweredSteps", source_words(lowered.source), steps_listing(lowered).page())


def steps_text(lowered: LoweredSteps) -> str:
    """The numbered text of a launch for several functions."""
    return steps_listing(lowered).text()


def steps_listing(lowered: LoweredSteps) -> Listing:
    """The lines of a launch for several functions."""
    return Listing(lowered.source, lowered.stages, lowered.results)


def lowered_parts(lowered: Lowered) -> list[object]:
    """The loop nest, the predicted time, and the program."""
    prediction = prediction_of(lowered)
    time = ["\n".join(time_lines(prediction.time_us, prediction.terms, premises_of(lowered)))] if prediction else []
    return [*nest_parts(lowered.plan), *time, "", ProgramText(lowered.source.text)]


def prediction_of(lowered: Lowered) -> Prediction | None:
    """The model's prediction for a plan of a GPU; there is no model of a CPU."""
    outline = outline_of(lowered)
    return None if outline is None else predict(outline, numbers_of(lowered.plan))


def premises_of(lowered: Lowered) -> str:
    """The clauses on what the prediction assumes of run-time scalars."""
    outline = outline_of(lowered)
    return "" if outline is None else outline.live.premises


def outline_of(lowered: Lowered) -> Outline | None:
    """The facts that predictions of a kernel of a GPU are made from."""
    limits = lowered.plan.limits
    if limits is None or limits.target == "c":
        return None
    return Outline(lowered.form, lowered.plan.binding, lowered.problem, limits)


# ---- what runs -------------------------------------------------------------------------------------------------------


def state_words(state: State) -> str:
    """A state's slots and what it covers."""
    covers = f"elements {state.covers[0]} to {state.covers[1]}" if state.covers else "pieces apart"
    return f"of {covers}; {comma_names(state.layout)}; {state.library} on {state.device}"


def state_parts(state: State) -> list[object]:
    """A state's slots as a table."""
    rows = ((slot.name, slot.kind, comma_names(slot.axes) or "all rows", str(tuple(state.slots[slot.name].shape)),
             str(state.slots[slot.name].dtype)) for slot in state.layout)  # fmt: skip
    return [Table(f"State {state_words(state)}", ("slot", "kind", "one per", "shape", "dtype"), tuple(rows))]


def state_page(state: State) -> str:
    """A state's slots as a table."""
    rows = ([code(slot.name), escape(slot.kind), escape(comma_names(slot.axes)) or "all rows",
             escape(str(tuple(state.slots[slot.name].shape))), escape(str(state.slots[slot.name].dtype))]
            for slot in state.layout)  # fmt: skip
    meaning = fold("What the slots hold", text_block("\n".join(state.meaning))) if state.meaning else ""
    return opens_to(
        "State", state_words(state), cell_table(("slot", "kind", "one per", "shape", "dtype"), rows), meaning
    )


def derivative_words(derivative: Any) -> str:
    """The stages of a derivative."""
    return "stages " + ", ".join(one.name for one in derivative.stages)


def derivative_page(derivative: Any) -> str:
    """A derivative's stages, each with the derivation of its function."""
    stages = [fold(code(one.name), derived_page(one)) for one in derivative.stages]
    kind = "Gradient" if type(derivative).__name__ == "Backward" else "Tangents"
    return opens_to(kind, derivative_words(derivative), text_block(first_of(str(derivative))), *stages)


def derived_page(stage: Any) -> str:
    """A stage's expression, and the derivation of its function."""
    return text_block(str(stage)) + page_of(stage.function)


def first_of(text: str) -> str:
    """The paragraph of a derivative's text that comes before its stages: what is saved, and what has no gradient."""
    return text.split("\n\n", 1)[0]


def page_of(function: Any) -> str:
    """The page of a stage's function; nothing if it reduces over nothing."""
    return str(function._repr_html_()) if hasattr(function, "_repr_html_") else ""


VIEWS.update(
    Cascade=View(lambda one: one_line("Cascade", cascade_words(one)), cascade_page, parts=cascade_parts),
    Decomposition=View(lambda one: one_line("Decomposition", decomposition_words(one)), decomposition_page),
    FusedForm=View(lambda one: one_line("FusedForm", form_words(one)), form_page, parts=form_parts),
    **{
        name: View(lambda one: one_line(type(one).__name__, forms_words(one)), forms_page)
        for name in ("Passes", "Stages")
    },
    Schedule=View(str, schedule_page, loop_nest, nest_parts),
    Definition=View(str, schedule_page),
    LibraryProduct=View(str, schedule_page),
    Candidate=View(lambda one: one_line("Candidate", str(one)), candidate_page,
                   lambda one: "\n".join(map(str, candidate_parts(one))), candidate_parts),
    Candidates=View(str, candidates_page, parts=candidates_parts),
    TileProgram=View(lambda one: one_line("TileProgram", program_words(one)), program_page,
                     parts=lambda one: [ProgramText(one)]),
    ProgramText=View(str, coloured_page),
    Source=View(lambda one: one_line("Source", source_words(one)), source_page, parts=lambda one: [ProgramText(one)]),
    Lowered=View(lambda one: one_line("Lowered", source_words(one.source)), lowered_page, lowered_text, lowered_parts),
    LoweredSteps=View(lambda one: one_line("LoweredSteps", source_words(one.source)), steps_page, steps_text),
    Kernel=View(lambda one: one_line("Kernel", source_words(one.source)), lambda one: source_page(one.source),
                lambda one: one.source.text, lambda one: [ProgramText(one.source.text)]),
    State=View(lambda one: one_line("State", state_words(one)), state_page, parts=state_parts),
    Stage=View(lambda one: one_line("Stage", str(one)), lambda one: opens_to("Stage", str(one), derived_page(one))),
    Backward=View(lambda one: one_line("Backward", derivative_words(one)), derivative_page),
    Forward=View(lambda one: one_line("Forward", derivative_words(one)), derivative_page),
)  # fmt: skip
