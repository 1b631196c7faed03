"""Whole models as programs of tensor expressions, free of any framework.

    graph of a framework  →  TensorProgram      `program`: every tensor by its definition, in order
                             arrays             `interpret`: the program's meaning

A view is a change of indices (`views`), and nothing else.
"""
