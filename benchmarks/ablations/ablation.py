"""An ablation: one question asked of many plans, and what its document shows.

A `Measured` one runs on a device and is kept among the results; a `Derived` one is made of the training data whenever
documents are made.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks import training
from benchmarks.markdown import Table
from redalg.strategies.table import Table as Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # of the extra 'plot': pictures alone need it

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
    def picture(self, content: Document) -> Figure:
        """The picture of a document."""

    @abstractmethod
    def table(self, content: Document) -> Table:
        """The table of a document."""

    def said(self, content: Document) -> str:
        """A sentence of what the document shows, made from it."""
        return ""

    def shown(self, content: Document) -> Shown:
        """The table of a document for a terminal, with what it shows below."""
        return self.table(content).shown(self.title, self.said(content))

    def headed(self, content: Mapping[str, Any]) -> Document:
        """A document under the ablation's name."""
        return {"benchmark": f"ablation-{self.name}", "ablation": self.name, **content}


class Measured(Ablation):
    """An ablation that is run."""

    @abstractmethod
    def run(self, options: argparse.Namespace) -> Document:
        """Everything that was found: the only thing that the others read."""

    def document(self, environment: Mapping[str, object], options: argparse.Namespace) -> Document:
        """Everything that was found, and where."""
        return self.headed({"environment": environment, **self.run(options)})


class Derived(Ablation):
    """An ablation that training data tell."""

    @abstractmethod
    def of(self, documents: list[training.Document]) -> Document:
        """Everything that documents of draws and of tuning say: the only thing that the others read."""

    def document(self) -> Document:
        """Everything that the training data say."""
        return self.headed(self.of(training.read()))
