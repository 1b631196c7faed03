"""Graphs of PyTorch: their import as programs of tensor expressions.

    ExportedProgram, fx graph of ATen  →  TensorProgram      `aten`: node after node
    an operator's call                 →  terms              `elementwise`, `moves`, `sums`: the rules, by its name
    the arguments of a call            →  `Site`             `site`: names, places, numbers
    groups of a program                →  operators          `stitch`: in the place of their nodes

A rule says what an element of the result is. An operator without one stays with PyTorch, and the program says why.
"""
