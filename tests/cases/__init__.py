"""Cascades, data and generators, which several tests read. A cascade stands in one list for each purpose.

What is computed, to run through every backend and in every kind of kernel:
    kernels             forms and tensors for the C target, nvcc and the GPU; with those of `attention` and of `wider`
    attention           uses of attention, and their tensors
    wider               forms that no one loop with one matrix product holds
    problems            those forms with tensors of any small sizes and tiles, drawn by Hypothesis

What is asked of a derivation, by what judges the result:
    theory, stable      the table of THEORY.md, and rows beside it: verdict, rank, state, error (`corpus` runs them)
    literature, literature_order    patterns with their sources: verdict, and value within the oracle's bound
    patterns            patterns of models and papers that nothing in the engine knows, with tensors
    decided, extrema, rewrites_*    cascades of a rewrite, judged by value on hostile data
    held_out, reviews, review_patterns    rows with a definition in plain NumPy (`rows` judges them)
    selections          what keeps places or the order of elements, on data in which values repeat
    refusals            calls that fail, and the whole text of their error

What is drawn:
    cascades            by Hypothesis, which shrinks what fails: preservation by forms and by tile programs
    random_cascades     by seed, the same on every machine: counts of verdicts, and chains for other tests
    generators          functions of which moments are taken about an offset
    axes, data_kinds    data by name, and of the kinds that break naive formulas
    digits, joint       digits that a form keeps, and how many numbers a value moves with

`tests/fuzz` has generators of its own, of more spellings, for as long as they are run.
"""
