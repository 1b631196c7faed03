"""Whole models as programs of tensor expressions, free of any framework.

    graph of a framework  →  TensorProgram      `program`: every tensor by its definition, in order
    TensorProgram         →  arrays             `interpret`: the program's meaning
    TensorProgram         →  Analysis           `analysis`: kinds, depths, lives and regions of its statements
    Analysis              →  Vertices           `vertices`: what may be fused, who reads it, and the paths between
    Vertices              →  Candidates         `candidates`: patterns, by their `gain` and the engine's `verdicts`
    Candidates            →  FusionPlan         `fusion_plan`: the patterns that become kernels
    a group of a program  →  an expression      `compose`: definitions in the place of what is read
    expressions of it     →  Laid               `lay`: its tensors viewed so that they are read along axes
    an index              →  a plain one        `indices`, by the ranges of its axes

A view is a change of indices (`views`), and nothing else.
"""
