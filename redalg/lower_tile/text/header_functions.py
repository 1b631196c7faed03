"""Functions that a kernel's text defines for itself, each beside the call that needs it."""

from __future__ import annotations

RANKED = """
def ranked(x, n):  # an integer that orders as x (NaN first, zeros equal), then by the lower n: x's bits, then not n
    bits = T.reinterpret(x, "int32")
    order = T.if_then_else(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = T.if_then_else((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFFFFF, T.if_then_else(order == -1, 0, order))
    return (T.cast(order, "int64") << 32) | (T.int64(0xFFFFFFFF) - T.cast(n, "int64"))


def ranked_value(rank):  # x; -inf of no element
    order = T.cast(rank >> 32, "int32")
    bits = T.if_then_else(order < 0, order ^ 0x7FFFFFFF, order)
    return T.reinterpret(T.if_then_else(rank == T.min_value("int64"), T.int32(-0x800000), bits), "float32")


def ranked_index(rank):  # n; -1 of no element
    rest = rank & T.int64(0xFFFFFFFF)
    return T.if_then_else(rest == 0, T.int64(-1), T.int64(0xFFFFFFFF) - rest)


""".lstrip()

ORDERED = """
def ordered(x):  # an integer that orders as x (NaN first, zeros equal): its bits, those of numbers below 0 turned round
    bits = T.reinterpret(x, "int64")
    order = T.if_then_else(bits < 0, bits ^ T.max_value("int64"), bits)
    most = T.int64(0x7FF0000000000000)
    order = T.if_then_else(order == T.int64(-1), T.int64(0), order)
    return T.if_then_else((bits & T.max_value("int64")) > most, T.max_value("int64"), order)


def ordered_value(order):  # x; -inf of no element
    bits = T.if_then_else(order < 0, order ^ T.max_value("int64"), order)
    least = T.reinterpret(T.int64(-0x10000000000000), "float64")
    return T.if_then_else(order == T.min_value("int64"), least, T.reinterpret(bits, "float64"))


""".lstrip()

MODULO = """
def modulo(x, y):  # the remainder that has the sign of y
    left = T.truncmod(x, y)
    return T.if_then_else(((left < 0) & (y > 0)) | ((left > 0) & (y < 0)), left + y, left)


""".lstrip()

POWERED = """
def powered(m, e, h, n):  # m * 2^e * h^n, in double as large exponents cancel
    size, times = T.max(h, -h), T.cast(n, "float64")
    usual = (size > 0.0) & (size < T.infinity(h.dtype))
    doublings = T.log2(T.cast(T.if_then_else(usual, size, 1.0), "float64")) * times + T.cast(e, "float64")
    made = T.cast(2.0 * T.cast(m, "float64") * T.exp2(doublings - 1.0), h.dtype)  # of m under 1, so that 2^1024 serves
    odd = (h < 0.0) & (times != 2.0 * T.floor(times / 2.0))
    return T.if_then_else(usual, T.if_then_else(odd, -made, made), scaled(m, e) * T.pow(h, T.cast(n, h.dtype)))


""".lstrip()

IS_FINITE = """
def is_finite(x):
    return (x > -T.infinity(x.dtype)) & (x < T.infinity(x.dtype))


""".lstrip()

IS_INFINITE = """
def is_infinite(x):
    return (x == T.infinity(x.dtype)) | (x == -T.infinity(x.dtype))


""".lstrip()

RATE = """
def rate(c, k, power):  # k; where |c * k| is beyond 2^27 a power of 2 near it, by which the product is exact
    return T.if_then_else(T.max(c, -c) < 2.0**27 / abs(k), constant(k), power)


""".lstrip()

DIVIDED = """
def divided(a, n):  # a / n as a division rounds it: n is known, and no power of 2
    near = a * T.float32(1 / n)
    rest = T.max(multiply_add(near, T.float32(-n), a), T.min_value("float32"))  # no NaN where a is infinite
    return multiply_add(rest, T.float32(1 / n), near)


""".lstrip()

KEEP = """
def keep_in_l2(a):  # ask the L2 cache for the 128 bytes at an address, and to drop them after all else
    code = '[](const void* a) { asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(a)); }'
    return T.call_extern("handle", code, a)


""".lstrip()

HELPERS = {"ranked(": RANKED, "ordered(": ORDERED, "modulo(": MODULO, "powered(": POWERED, "is_finite(": IS_FINITE,
           "is_infinite(": IS_INFINITE, " rate(": RATE, "divided(": DIVIDED, "keep_in_l2(": KEEP}  # fmt: skip
"""Functions of the kernel's text, by the call that needs them."""
