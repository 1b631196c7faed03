"""The output of `redalg demo`: attention derived and run beside PyTorch.

    tour.py      the demo from top to bottom
    trial.py     one contestant on one shape: error, time and peak memory, in a process of its own
    memory.py    peak memory of a call
    printing.py  text, code and times on a terminal

It stands above the library, and the only thing that it adds to a derived form is a comparison: so it may import torch.
"""
