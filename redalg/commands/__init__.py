"""The command line: what each verb of `redalg` prints. A verb takes a subject: a pattern, an expression, or a file.

arguments.py   the verbs and their options, with the help that teaches them
subject.py     what a command is about: its function, sizes and dtypes
notation.py    expressions as text, read and not run
nearest.py     names that are near to a misspelt one
printing.py    text and code on a terminal, or plain
shown.py       list, show, explain, source, plans
measured.py    bench, tune
machine.py     cache, doctor
"""
