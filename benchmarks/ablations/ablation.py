"""What an ablation is: something to run, and what its document shows."""

import argparse
from abc import ABC, abstractmethod
from typing import Any

from matplotlib.figure import Figure

from benchmarks.markdown import Table

Document = dict[str, Any]


class Ablation(ABC):
    """One question, asked of many plans.

    Attributes:
        name: as on the command line.
        title: one line, with the figure of a paper that asks the same.
    """

    name: str
    title: str

    @abstractmethod
    def run(self, options: argparse.Namespace) -> Document:
        """Everything that was found: the only thing that the others read."""

    @abstractmethod
    def picture(self, content: Document) -> Figure:
        """The picture of a document."""

    @abstractmethod
    def table(self, content: Document) -> Table:
        """The table of a document."""

    def said(self, content: Document) -> str:
        """What the document shows, in a sentence that is made from it."""
        return ""
