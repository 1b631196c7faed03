"""Text, LaTeX, HTML and Markdown of a derivation: one model of what is said (`model`, `sections`), written four ways.

explain_form, explain_verdict, Request         what a caller asks for: all, a brief form, sections; a format, a width
explain_text, explain_latex, explain_html      the derivation of a form, and of the passes before it
conditions_text                                where a form is the definition, and where it need not be
explain_refusal                                a verdict that has none
Moves, hat_slot, prime_slot                    the forms that section 4 prints, as equations of SymPy expressions
load_views                                     how stages show themselves in lists, notebooks and terminals
"""

from importlib import import_module

from redalg.display import LOADERS
from redalg.explain.ask import Request, explain_form, explain_verdict
from redalg.explain.html import explain_html
from redalg.explain.latex import explain_latex
from redalg.explain.moves import Moves, hat_slot, prime_slot
from redalg.explain.refusal import explain_refusal
from redalg.explain.text import conditions_text, explain_text

__all__ = [
    "Moves",
    "Request",
    "conditions_text",
    "explain_form",
    "explain_html",
    "explain_latex",
    "explain_refusal",
    "explain_text",
    "explain_verdict",
    "hat_slot",
    "load_views",
    "prime_slot",
]


def load_views() -> None:
    """Load the views of stages, which `import redalg` leaves alone: kernels' bring in the lowering."""
    import_module("redalg.explain.views")


LOADERS.append(load_views)
