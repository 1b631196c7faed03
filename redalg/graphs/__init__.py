"""Whole models as programs of tensor expressions, free of any framework.

    graph of a framework  →  TensorProgram      `program`: every tensor by its definition, in order
    TensorProgram         →  arrays             `interpret`: the program's meaning
    TensorProgram         →  Analysis           `analysis`: kinds, depths, lives and regions of its statements
    a group of it         →  an expression      `compose`: definitions in the place of what is read
    an index              →  a plain one        `indices`, by the ranges of its axes

A view is a change of indices (`views`), and nothing else.
"""
