"""The commands of `python -m benchmarks`, a module each: `options` adds to its parser, `main` does what they ask."""

from types import ModuleType

from benchmarks import ranks, training_step
from benchmarks.commands import fit, judge, models, report, run

COMMANDS: dict[str, ModuleType] = {
    "run": run,
    "step": training_step,
    "models": models,
    "ranks": ranks,
    "judge": judge,
    "fit": fit,
    "report": report,
}
