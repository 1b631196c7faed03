"""Tensors of a call: bound to names, cut into blocks, evaluated by the array interpreter, kept as states."""
