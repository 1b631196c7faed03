"""Text, LaTeX and HTML of a derivation: one model of what is said (`model`, `sections`), three ways to write it."""

from redalg.explain.html import explain_html
from redalg.explain.latex import explain_latex
from redalg.explain.text import explain_refusal, explain_text

__all__ = ["explain_html", "explain_latex", "explain_refusal", "explain_text"]
