"""The header's macro that joins a tile's numbers to the best so far, which stand in order: for a GPU, and for C.

count       the tile's numbers above the least of the best; nothing more happens where there is none
bound       of many: halve the range of the bound until `width` to 3·width numbers lie above it
collect     these beside the best, in any order
place       each at the number of those above it: numbers differ, so that the result is in order and the same each time

It takes some 12 counts a row of random data, and one for every other tile: no number is taken out at a time (H100: the
best 64 of 1 x 4,000,000 in 0.17 of the time of that, of 1024 x 50257 in 0.57, 256 of these in 0.53).
"""

from __future__ import annotations

JOIN_CUDA = """\


@T.macro
def count_above(rank, bound, above, number, length):
    for i, j in T.Parallel(1, length):
        above[i, j] = T.if_then_else(rank[i, j] > bound[i], 1, 0)
    T.reduce_sum(above, number, dim=1)


@T.macro
def join_best(best, rank, width, length):  # best := the largest of its numbers and rank's, in order; all differ
    low, high = T.alloc_fragment((1,), "int64"), T.alloc_fragment((1,), "int64")
    middle, above = T.alloc_fragment((1,), "int64"), T.alloc_fragment((1, length), "int32")
    number, fewer = T.alloc_fragment((1,), "int32"), T.alloc_fragment((1,), "int32")
    taken, union = T.alloc_shared((1,), "int32"), T.alloc_shared((4 * width,), "int64")
    position = T.alloc_fragment((4 * width,), "int32")
    for i in T.Parallel(1):
        low[i] = best[i, width - 1]
    count_above(rank, low, above, number, length)
    if number[0] > 0:
        if number[0] > 3 * width:
            T.reduce_max(rank, high, dim=1)
            for step in T.serial(64):
                if number[0] > 3 * width:  # halve the range of the bound, above which at least `width` lie
                    for i in T.Parallel(1):
                        middle[i] = (low[i] >> 1) + (high[i] >> 1) + (low[i] & high[i] & 1)
                    count_above(rank, middle, above, fewer, length)
                    for i in T.Parallel(1):
                        high[i] = T.if_then_else(fewer[i] < width, middle[i], high[i])
                        low[i] = T.if_then_else(fewer[i] < width, low[i], middle[i])
                        number[i] = T.if_then_else(fewer[i] < width, number[i], fewer[i])
        T.sync_threads()
        if T.get_thread_binding() == 0:
            taken[0] = width
        for p in T.Parallel(4 * width):
            union[p] = T.if_then_else(p < width, best[0, T.min(p, width - 1)], T.min_value("int64"))
        T.sync_threads()
        for i, j in T.Parallel(1, length):
            if rank[i, j] > low[i]:
                union[T.atomic_add(taken[0], 1, return_prev=True)] = rank[i, j]
        T.sync_threads()
        T.clear(position)
        for q in T.unroll(width + number[0], unroll_factor=8):
            for p in T.Parallel(4 * width):
                position[p] = position[p] + T.if_then_else(union[q] > union[p], 1, 0)
        for p in T.Parallel(4 * width):
            if position[p] < width:
                best[0, position[p]] = union[p]
    T.sync_threads()  # also where no number was above: the caller writes into `best`, which some may still read
"""

JOIN_C = """\


@T.macro
def join_best(best, rank, width, length):  # best := the largest of its numbers and rank's, in order; all differ
    for j in T.serial(length):
        if rank[0, j] > best[0, width - 1]:
            best[0, width - 1] = rank[0, j]
            for p in T.serial(width - 1):
                if best[0, width - 1 - p] > best[0, width - 2 - p]:
                    best[0, width - 1 - p] = best[0, width - 2 - p]
                    best[0, width - 2 - p] = rank[0, j]
"""
