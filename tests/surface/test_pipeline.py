"""The table of contents is short, has no branch, and is the way that the library itself takes."""

import ast

import redalg as ra
from redalg import pipeline
from redalg.decompose.parse.written import named_outputs
from redalg.runtime.lowering import problem_of
from tests.house.source import Function, sources

LINES = 60
BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match, ast.IfExp, ast.BoolOp, ast.comprehension,
            ast.Lambda, ast.ClassDef)  # fmt: skip
STEPS = {"plans_for", "program_of", "source_of"}
"""Functions of `runtime.lowering` that are stages of the pipeline, and of nothing else."""
ENGINE = sources("redalg")
(TABLE,) = (source for source in ENGINE if source.module == "redalg.pipeline")


def imported(module: str) -> set[tuple[str, str]]:
    """What the library imports from a module: (importing file, name)."""
    nodes = ((source.name, node) for source in ENGINE for node in ast.walk(source.tree))
    return {(name, alias.name) for name, node in nodes if isinstance(node, ast.ImportFrom) and node.module == module
            for alias in node.names}  # fmt: skip


def test_the_table_fits_a_page_and_has_no_branch() -> None:
    assert len(TABLE.text.splitlines()) <= LINES
    assert [ast.unparse(node) for node in ast.walk(TABLE.tree) if isinstance(node, BRANCHES)] == []


def test_the_library_takes_every_step_of_the_table_and_no_other() -> None:
    functions = {node.name for node in TABLE.tree.body if isinstance(node, Function)}
    assert {name for _, name in imported("redalg.pipeline")} == functions
    assert {file for file, name in imported("redalg.runtime.lowering") if name in STEPS} == {"redalg/pipeline.py"}


def test_the_steps_one_by_one_give_what_fuse_and_source_give() -> None:
    n = ra.axes("n")
    expr, sizes = ra.softmax(ra.tensor("x[b,n]"), n), {"b": 8, "n": 64}
    written, _ = named_outputs(expr, "b n")
    cascade, decompositions = pipeline.analyse(written, (), 1, exact=False)
    form = pipeline.derive_passes(*decompositions).last
    stages, plans, problem = pipeline.plan_stages(form, "c", problem_of(form, "c", sizes, {"x": "float32"}), None)
    lowered = pipeline.write_source(stages, plans, problem)
    fused = ra.fuse(expr, "b n")
    assert (cascade, form) == (fused.cascade, fused.form)
    assert lowered.plan == fused.lower("c", sizes, "float32").plan
    assert lowered.source.text == fused.source("c", sizes=sizes, dtypes="float32")
