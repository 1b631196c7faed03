"""Graphs of PyTorch: their import as programs of tensor expressions, and the backend of `torch.compile`.

    ExportedProgram, fx graph of ATen  →  TensorProgram      `aten`: node after node
    an operator's call                 →  terms              `elementwise`, `moves`, `sums`: the rules, by its name
    the arguments of a call            →  `Site`             `site`: names, places, numbers
    groups of a program                →  operators          `stitch`: in the place of their nodes
    a group and what is around it      →  `Decision`         `regions`, `gate`: measured with the operator and without
    a graph that Inductor compiles     →  the same, stitched `backend`; `report` says what became of each group
    a model, and what it is called on  →  `Explanation`      `explanation`: the reports of its graphs
    a program of `torch.export`        →  the same, stitched `exported`

A rule says what an element of the result is. An operator without one stays with PyTorch, and the program says why.
"""

from typing import Any

__all__ = ["explain", "optimize"]


def __getattr__(name: str) -> Any:
    """`explain` and `optimize`, on their first use: they import PyTorch's compiler."""
    if name == "explain":
        from redalg.torch.explanation import explain

        return explain
    if name == "optimize":
        from redalg.torch.exported import optimize

        return optimize
    raise AttributeError(f"module 'redalg.torch' has no attribute {name!r}. It has: {', '.join(__all__)}.")
