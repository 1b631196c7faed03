"""The output of `python -m redalg`: attention derived and run beside PyTorch; any pattern of the library.

    tour.py      the demo from top to bottom
    trial.py     one contestant on one shape: error, time and peak memory, in a process of its own
    memory.py    peak memory of a call
    show.py      derivation and kernel of one pattern, in the terminal

It stands above the library, and the only thing that it adds to a derived form is a comparison: so it may import torch.
"""
