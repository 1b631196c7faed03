"""A fused function shown: its derivation in several forms, its tree as a picture, and how it looks in a list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from redalg.decompose.verdict.verdict import Decomposition
from redalg.display import Brief
from redalg.errors import InputError
from redalg.explain import Request, explain_form, explain_html, explain_latex
from redalg.expression.arguments import answer_methods
from redalg.incremental.passes import Passes

if TYPE_CHECKING:
    from redalg.explain.picture import Picture


@answer_methods(InputError)
class Explained(Brief):
    """A function that shows how it was derived."""

    decomposition: Decomposition

    @property
    @abstractmethod
    def passes(self) -> Passes:
        """The forms of all passes over the data."""

    def explain(
        self, section: str | Sequence[str] | None = None, *, brief: bool = False, width: int | None = None,
        format: str = "text",
    ) -> str:  # fmt: skip
        """The derivation: each reduction's F, g, h, ⊗, the fused and incremental forms, placement, cost, condition.

        Args:
            section: a section or several, by name: `cascade`, `decomposition`, `state`, `forms`, `finish`, `cost`,
                `condition`; `rounding` if something is rounded otherwise than in the definition; `steps` for the
                rewrites one after the other, `transition` for the moves of a state as a matrix; `outputs` where nothing
                is reduced. None for the whole.
            brief: a screen of 80 columns: verdict, state, update, cost, condition. `repr` is the same.
            width: the most columns of a line of text. None for those of the terminal; 100 where there is none.
            format: `"text"`, `"latex"`, `"html"` or `"markdown"`.

        Returns:
            A string; as the last line of a cell a notebook shows it as what it is.

        Raises:
            InputError: there is no such section or format (the message has the names), or the width is below 40.

        >>> import redalg as ra
        >>> rows = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), ra.axes("n")))
        >>> print(rows.explain(brief=True, width=80))
        out[b] in one pass over n
        ═════════════════════════
        Exact. One pass instead of 2, with a state of 2 floats per b, whatever |n| is.
        <BLANKLINE>
        State      max_0[b] (max), sum_0[b] (sum)
        Update     max_0′ = max(max_0, x[b,n])
                   sum_0′ = sum_0·exp(max_0 − max_0′) + exp(x[b,n] − max_0′)
        Finish     out = max_0 + log(sum_0)
        Cost       read once x[b,n]; 4 operations per (b, n); exponentials 1 per (b, n),
                   and 2 per row of the state in a merge
        Condition  digits are lost where out is small beside the terms that it is made
                   of.
        <BLANKLINE>
        `.explain()` gives all of it, `.explain(section=…)` a part: cascade,
        decomposition, state, forms, finish, cost, condition, steps, transition.
        """
        return explain_form(self.decomposition, self.passes, Request(section, brief, width, format))

    def draw(self) -> Picture:
        """The tree of leaf, merge and finish as a picture in SVG: it shows in a notebook, and `save` writes it.

        >>> import redalg as ra
        >>> picture = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), ra.axes("n"))).draw()
        >>> str(picture)[:4], "merge" in str(picture)
        ('<svg', True)
        """
        from redalg.explain.picture import draw_passes

        return draw_passes(self.decomposition, self.passes)

    def __repr__(self) -> str:
        return self.explain(brief=True)

    def _repr_html_(self) -> str:
        return explain_html(self.decomposition, self.passes)

    def _repr_latex_(self) -> str:
        return explain_latex(self.decomposition, self.passes)

    def _repr_markdown_(self) -> str:
        return self.explain(format="markdown")
