"""Graphs of PyTorch: their import as programs of tensor expressions, and the backend of `torch.compile`.

    ExportedProgram, fx graph of ATen  →  TensorProgram      `aten`: node after node
    an operator's call                 →  terms              `elementwise`, `moves`, `sums`: the rules, by its name
    the arguments of a call            →  `Site`             `site`: names, places, numbers
    groups of a program                →  operators          `stitch`: in the place of their nodes
    a group and what is around it      →  `Decision`         `regions`, `gate`: measured with the operator and without
    a graph that Inductor compiles     →  the same, stitched `backend`; `report` says what became of each group
    a model, and what it is called on  →  `Explanation`      `explanation`: the reports of its graphs
    a program of `torch.export`        →  the same, stitched `exported`
    a graph that Inductor compiled     →  the same, later    `asynchronous`: found in a thread, put by a later call

A rule says what an element of the result is. An operator without one stays with PyTorch, and the program says why.
"""

from typing import Any

from redalg.optional import need_packages

__all__ = ["explain", "optimize", "wait_for_swaps"]


def __getattr__(name: str) -> Any:
    """`explain`, `optimize` and `wait_for_swaps`, on their first use: they import PyTorch's compiler."""
    if name in __all__:
        need_packages(name, "redalg[torch]", "torch")
    if name == "explain":
        from redalg.torch.explanation import explain

        return explain
    if name == "optimize":
        from redalg.torch.exported import optimize

        return optimize
    if name == "wait_for_swaps":
        from redalg.torch.asynchronous import wait_for_swaps

        return wait_for_swaps
    raise AttributeError(f"module 'redalg.torch' has no attribute {name!r}. It has: {', '.join(__all__)}.")
