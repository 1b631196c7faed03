"""Random cascades over two axes: producers, inner reductions, carried outputs, ordered and selecting reductions.

piece    := x[b, n] | u[n, m] | r[b, n, m] | a producer of b and n | a gather | a shift
producer := Σ_d Q·K | its cosine | max_m r | a value of m per n
value    := ⊕ over n (and m) | topk argmax sum_at_max | first last affine | a registered monoid
output   := over b | over b and e | over b and m | at every n (carried) | several of them
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sympy import Abs, Expr, Max, Min, S, exp, log, oo, sqrt, tanh

import redalg as ra
from tests.fuzz.case import Case, Draw, axes_of, b, d, gamma, m, n, tensor
from tests.fuzz.one_axis import extremal, mixed

x, y, s, w, p, M, t, c, v, Q, K, u, r, a, g, l, i = map(tensor, "xyswpMtcvQKuragli")
j = ra.axis("j", size=2)
Values = Sequence[Expr]
Piece = Callable[[Draw], Expr]

NEXT = ra.Tensor("x")[b, n + 1]
BEFORE = ra.Tensor("x")[b, n - 1]
GATHERED = ra.Tensor("x")[b, i]


def case(seed: int) -> Case:
    """The case of a seed."""
    draw = Draw(random.Random(seed))
    values = list[Expr]()
    for _ in range(draw.weighted({1: 2, 2: 4, 3: 3})):
        values.append(value(draw, values))
    return Case("two_axes", seed, outputs(draw, values))


def outputs(draw: Draw, values: Values) -> dict[str, tuple[Expr, str]]:
    """What is asked of the values."""
    last = values[-1]
    kind = draw.weighted({"last": 4, "carried": 3, "columns": 3, "several": 1, "epilogue": 1})
    if kind == "carried":
        last = carried(draw, last)
    if kind == "columns":
        last = columns(draw, last)
    if kind == "epilogue":
        last = ra.sum(last * a, m) if m in last.free_symbols else last * t + values[0]
    made = {"out": (last, axes_of(last))}
    return {**made, "first": (values[0], axes_of(values[0]))} if kind == "several" else made


def carried(draw: Draw, last: Expr) -> Expr:
    """An output at every element of the reduced axis."""
    score = score_of(draw)
    return draw.call((
        lambda: ra.softmax(score, n), lambda: ra.log_softmax(score, n) * y, lambda: x - last,
        lambda: (x - last) ** 2 * w, lambda: x / (1 + last**2), lambda: ra.layer_norm(x, n, weight=c),
        lambda: ra.where(x > last, x, 0), lambda: ra.normalize(x, n), lambda: Max(x - last, 0) * exp(-Abs(last)),
        lambda: ra.softmax(score, n) * last,
    ))  # fmt: skip


def columns(draw: Draw, last: Expr) -> Expr:
    """A contraction with columns v[n, e] at the end."""
    score = score_of(draw)
    return draw.call((
        lambda: ra.sum(ra.softmax(score, n) * v, n), lambda: ra.sum((x - last) * v, n),
        lambda: ra.sum(ra.layer_norm(x, n) * v, n), lambda: ra.sum(x * v, n) / (1 + last**2),
        lambda: ra.sum(ra.softmax(score, n) * (v - ra.mean(v, n)) ** 2, n), lambda: ra.max(x * v, n) - last,
        lambda: ra.var(x + v, n), lambda: ra.sum(ra.softmax(score, n) * (x - last) * v, n),
        lambda: ra.mean((v - ra.sum(ra.softmax(score, n) * v, n)) ** 2, n),
    ))  # fmt: skip


def value(draw: Draw, earlier: Values) -> Expr:
    """A reduced value, which may use the ones before it."""
    kind = draw.weighted({"sum": 5, "average": 6, "extremum": 4, "inner": 3, "both": 2, "select": 3, "ordered": 3,
                          "reference": 1})  # fmt: skip
    known = earlier[-1] if earlier else t
    return {"sum": summed, "average": average, "extremum": extremum, "inner": inner, "both": both, "select": select,
            "ordered": ordered, "reference": spread}[kind](draw, known)  # fmt: skip


def summed(draw: Draw, known: Expr) -> Expr:
    return ra.sum(masked(draw, term(draw, known)), n)


def average(draw: Draw, known: Expr) -> Expr:
    score = score_of(draw)
    heavy = draw.of(w, p, exp(score - ra.max(score, n)), ra.where(n < l, w, 0))
    return ra.sum(heavy * term(draw, known), n) / ra.sum(heavy, n)


def extremum(draw: Draw, known: Expr) -> Expr:
    piece = data(draw)
    return draw.of(ra.max, ra.min)(piece if draw.chance(0.4) else extremal(draw, known, piece), n)


def inner(draw: Draw, known: Expr) -> Expr:
    """A reduction of n that holds one of another axis, or stands in one."""
    row = draw.of(ra.sum(u, m), ra.max(u, m), ra.mean(u, m), ra.sum(exp(u), m), ra.min(u * a, m), ra.sum(r, m))
    means, tops = ra.mean(r, n), ra.max(r, n)
    return draw.call((
        lambda: ra.sum(row * x, n), lambda: ra.max(row + x, n), lambda: ra.sum(ra.where(row > 0, x, 0), n),
        lambda: ra.mean((row - known) ** 2, n), lambda: ra.sum((r - means) ** 2, n), lambda: ra.sum(means * a, m),
        lambda: ra.sum(x * ra.sum(means * a, m), n), lambda: ra.sum(ra.where(x < ra.sum(tops, m), x, 0), n),
        lambda: ra.sum(ra.sum(r * means, m), n), lambda: ra.sum(x * ra.max(means, m), n), lambda: ra.max(tops * a, n),
        lambda: ra.sum(ra.softmax(u, m) * a, m), lambda: ra.sum(ra.softmax(r, m) * a * x, n, m),
        lambda: ra.prod(1 + tanh(row) / 8, n), lambda: ra.sum(tanh(ra.sum(means, m)) * x, n),
    ))  # fmt: skip


def both(draw: Draw, known: Expr) -> Expr:
    """A reduction over n and m together."""
    mean = ra.mean(r, n, m)
    return draw.call((
        lambda: ra.sum(r * u, n, m), lambda: ra.mean((r - mean) ** 2, n, m), lambda: ra.max(r, n, m) - known,
        lambda: ra.sum(exp(r - ra.max(r, n, m)) * a, n, m), lambda: ra.sum(ra.where(m <= n, r, 0) * u, m, n),
        lambda: ra.sum(Abs(r - mean), n, m), lambda: ra.min(r * x, n, m), lambda: ra.sum(r * mean * a, n, m),
    ))  # fmt: skip


def select(draw: Draw, known: Expr) -> Expr:
    """A selecting reduction."""
    piece = data(draw)
    values, indices = ra.topk(piece, n, j)
    return draw.call((
        lambda: ra.sum(values, j), lambda: values, lambda: indices / 8, lambda: ra.argmax(piece, n) / 8,
        lambda: ra.argmin(piece - known, n) / 8, lambda: ra.sum_at_max(piece, w, n), lambda: ra.sum_at_max(x, S.One, n),
        lambda: ra.sum(ra.softmax(values, j) * j, j), lambda: ra.argmax(x * (1 + known**2), n) / 8,
        lambda: ra.sum(ra.where(ra.eq(n, ra.argmax(x, n)), y, 0), n), lambda: ra.sum(x * ra.argmax(x, n), n),
        lambda: ra.sum(ra.where(ra.eq(x, ra.max(x, n)), 0, w), n),
    ))  # fmt: skip


def ordered(draw: Draw, known: Expr) -> Expr:
    """A reduction that depends on the order, or reads neighbours."""
    scale, shift = ra.affine(draw.of(p, -p / 2, ra.where(M > 0, p, 1)), draw.of(x, term(draw, known)), n)
    return draw.call((
        lambda: ra.first(data(draw), n), lambda: ra.last(data(draw), n), lambda: ra.first(x, n, where=x > 0),
        lambda: ra.last(x - known, n, where=ra.ne(M, 0)), lambda: shift, lambda: shift + scale * t,
        lambda: ra.sum(ra.where(n + 1 < n.extent, (NEXT - x) ** 2, 0), n), lambda: ra.compensated_sum(data(draw), n),
        lambda: ra.sum(ra.where(n > 0, x * BEFORE, 0), n), lambda: ra.max(ra.where(n > 0, x - BEFORE, -oo), n),
        lambda: ra.sum((x - ra.first(x, n)) ** 2, n), lambda: ra.first(ra.sum(u, m) * x, n),
        lambda: ra.reduce("logsumexp", score_of(draw), axis=n),
    ))  # fmt: skip


def spread(draw: Draw, known: Expr) -> Expr:
    """A statistic about a centre of its own or another."""
    piece = data(draw)
    return draw.of(ra.var(piece, n), ra.mean((piece - known) ** 2, n), ra.covariance(piece, y, n), ra.std(x + c, n))


def term(draw: Draw, known: Expr) -> Expr:
    """A term of data and a value."""
    piece, other = data(draw), data(draw)
    if draw.chance(0.8):
        return mixed(draw, [known], piece)
    return draw.of(
        piece, piece * other, (piece - known) ** 2, piece * known + other, (piece - known) * (other - known),
        piece / (1 + known**2), exp(tanh(known)) * piece, Abs(piece) * Abs(known), tanh(piece) + known,
        log(w) * known - piece, sqrt(1 + known**2) * piece, Abs(piece - known), ra.where(t > known, piece, other),
    )  # fmt: skip


def data(draw: Draw) -> Expr:
    """A piece of data over n, perhaps a producer."""
    product = ra.sum(Q * K, d)
    return draw.of(
        x, y, w, x * c, product, product / sqrt(d.extent), GATHERED, Min(x, y), ra.max(u, m), x + c, tanh(product),
        ra.let("score", product) * w, ra.where(ra.eq(g, 1), x, 0), x * ra.where(n < l, 1, 0), gamma * x,
        product / sqrt(ra.sum(Q**2, d) * ra.sum(K**2, d) + 1), ra.sum(u * a, m) + t,
    )  # fmt: skip


def score_of(draw: Draw) -> Expr:
    """Logits, perhaps masked."""
    product = ra.sum(Q * K, d) / sqrt(d.extent)
    score = draw.of(s, gamma * s, product, s + t, product + c, s / 4)
    live = draw.of(None, None, n <= b + 1, ra.ne(M, 0), n < l, x > 0)
    return score if live is None else ra.where(live, score, -oo)


def masked(draw: Draw, made: Expr) -> Expr:
    live = draw.of(None, None, None, ra.ne(M, 0), n < l, x > 0, ra.eq(g, 1))
    return made if live is None else ra.where(live, made, 0)
