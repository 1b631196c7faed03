"""Errors of redalg and of its peers against the truth: `python -m benchmarks judge`.

Every published row and every use of attention, on several kinds of inputs, against a definition in float64 on the same
inputs (large ones on seeded samples of rows, batches and heads, the first and the last always among them):

    case    := family, row, kind; redalg's function, peers, inputs, reference; outputs by name
    error   := max|out - ref| / max|ref|, and the same of root mean squares
    ok      := error <= 2 x the strongest peer's + floor, for the largest error and for the root mean square

The strongest peer is the one of the least error, output by output and error by error. The floor is 4 unit roundoffs of
the output's dtype for the largest error and 2 for the root mean square: a peer may be nearer than its dtype allows by
luck (a correctly rounded output is wrong by up to 1 of the largest number, on average by about half of one), and in
float32 an exponential, a logarithm or a division commits one or two more by itself. An output of a single number has
the first floor for both, which are one error there. Where scores are exponentiated,
one rounding in float32 of the largest score is added to both: nothing that holds its scores in float32 avoids it, and
who commits it less on one draw does so by luck. Indices must be exact.

Where the reference is not finite redalg must not be finite either, and nowhere else; peers are compared where both are.
"""
