"""The published rows of every family, and ragged ones beside them, on several kinds of inputs.

The kinds are not those of `redalg.instruments.families`, which compare a function with its formula and have no bar.
Here an error is judged by that of the strongest peer, so that data need results which a peer has too: numbers are as
large or as far from 0 as the row's dtype and its peers bear, and one tensor has them where the library changes all.
Squares beyond the range (`huge`), a true result of 0 (`constant`) and infinities leave nothing to judge. Layouts in
memory, ties and rows of many scales are no families there, since they suit few functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.accuracy import attended
from benchmarks.accuracy.case import Case, Outputs
from benchmarks.ahead import recorded_problems
from benchmarks.families import (
    FAMILIES,
    backwards,
    chains,
    columns,
    covariances,
    losses,
    masks,
    mla,
    moe,
    pairs,
    quant,
    rows,
    selection,
    semirings,
    statistics,
    workloads,
)
from benchmarks.families import attention as definition
from benchmarks.family import Contestant, Family, Row, Tensors, outputs, picks

ROWS, BATCHES = 64, 4
"""Of how many rows, and of how many batches, the reference is taken."""
PARTIAL = (
    "torch.compile", "FlexAttention", "product alone", "_scaled_mm alone", "float16 product alone", "copy alone",
)  # fmt: skip
"""Contestants that compile for long, or do part of the work."""
HUGE = 2500.0
"""A factor that makes normal numbers about as large as 1e4."""
RAGGED: dict[str, tuple[Row, ...]] = {
    "mla": (mla.row("ragged", "3x1003"),),
    "moe": (moe.row("ragged", "777x1030x100", 5),),
    "chains": (chains.row("ragged", "3x333x555x72x104"),),
    "quant": (quant.row("ragged", "333x1000x784"),),
    "variance": (statistics.variance_row("ragged", 77, 10007),),
    "inertia": (statistics.inertia_row("ragged", 77, 10007),),
    "rows": tuple(rows.row(operation, 777, 3001, "bfloat16") for operation in rows.PEERS),
    "pairs": tuple(pairs.row(operation, 777, 3001) for operation in pairs.PEERS),
    "covariances": tuple(covariances.row(operation, 10007, 77) for operation in covariances.PEERS),
    "selection": (selection.row(7, 777, 3001, "bfloat16"),),
    "columns": (
        columns.row("variance-columns", (777, 301), "float32"),
        columns.row("batch-statistics", (7, 33, 301), "float16"),
    ),
    "losses": (losses.row("cross_entropy", 77, 3001, 200, "bfloat16"),),
    "masks": tuple(masks.row(use, (2, 3, 777, 64), "float16") for use in masks.MASKS),
    "semirings": tuple(semirings.row(operation, 77, 777, 301) for operation in semirings.PEERS),
    "backwards": (
        *(backwards.attention_row(*asked) for asked in (
            ("causal", "2x3x777x777x64", backwards.CAUSAL), ("attention", "2x3x777x1003x128"),
            ("sinks", "2x3x777x777x64", backwards.SINKS))),
        *(backwards.rows_row(operation, 777, 3001) for operation in backwards.OPERATIONS),
        backwards.loss_row(77, 3001, 200),
    ),
}  # fmt: skip
DOUBLE: dict[str, Callable[..., torch.Tensor]] = rows.PEERS | {
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "cross_entropy": lambda x, target: functional.cross_entropy(x, target, reduction="none"),
}
"""Operations on rows that stay in float64."""

Change = Callable[[Tensors, torch.Generator], Tensors]


def cases(name: str, device: torch.device) -> Iterator[Case]:
    """A family's rows on all kinds of inputs."""
    family = FAMILIES[name]
    ragged = RAGGED.get(name, ()) if device.type == "cuda" else ()
    for row in (*family.rows(device), *ragged):
        yield from OF[name](Of(family, row, device))


@dataclass(frozen=True)
class Of:
    """A row of a family on a device, of which cases are made."""

    family: Family
    row: Row
    device: torch.device

    def case(self, kind: str, change: Change, reference: Callable[[Tensors], Outputs],
             outputs: Callable[[Any, Tensors], Outputs], **more: Any) -> Case:  # fmt: skip
        """One kind of inputs; peers are those that do the whole work and do not compile for long."""
        family, row = self.family, self.row
        peers = {name: peer for name, peer in family.peers(row, self.device).items()
                 if name not in PARTIAL and not name.startswith("redalg")}  # fmt: skip
        given: dict[str, Any] = {"fused": partial(family.fused, row), "peers": peers} | more

        def inputs(generator: torch.Generator) -> Tensors:
            return change(family.inputs(row, generator), generator)

        given |= {"inputs": inputs, "reference": reference, "outputs": outputs}
        return Case(family=family.name, row=row, kind=kind, **given)


# ---- kinds of inputs -------------------------------------------------------------------------------------------------


def drawn(draw: Callable[[torch.Generator], Tensors], _: Tensors, generator: torch.Generator) -> Tensors:
    """Other inputs than the family's."""
    return draw(generator)


def same(tensors: Tensors, _: torch.Generator) -> Tensors:
    """As the family draws them."""
    return tensors


def scaled(*names: str, by: float = HUGE) -> Change:
    """Some of them much larger."""
    return lambda tensors, _: {name: one * by if name in names else one for name, one in tensors.items()}


def shifted(name: str, to: float, by: float = 1.0) -> Change:
    """One of them far from zero."""
    return lambda tensors, _: tensors | {name: tensors[name] * by + to}


def turned(*names: str) -> Change:
    """The same numbers transposed in memory, in rows that are longer than they seem."""

    def change(tensors: Tensors, _: torch.Generator) -> Tensors:
        wide = {name: torch.cat([tensors[name].mT, tensors[name].mT], -1) for name in names}
        return tensors | {name: one[..., : tensors[name].shape[-2]].mT for name, one in wide.items()}

    return change


def of_many_scales(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """Rows from 1e-2 to 1e2, and one of zeros."""
    x = tensors["x"]
    powers = 4 * torch.rand(x.shape[0], 1, generator=generator, device=x.device) - 2
    scales = (10.0**powers).index_fill(0, torch.tensor([x.shape[0] // 2], device=x.device), 0.0)
    return tensors | {"x": (x.float() * scales).to(x.dtype)}


def of_few_numbers(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """Small multiples of powers of two, whose products are exact: many experts are equally good."""
    drawn = {name: torch.randint(-2, 3, tensor.shape, generator=generator, device=tensor.device).to(tensor.dtype)
             for name, tensor in tensors.items()}  # fmt: skip
    return drawn | {"W": drawn["W"] / 64}


# ---- families --------------------------------------------------------------------------------------------------------


def attention(of: Of) -> Iterator[Case]:
    """Rows of attention."""
    for kind in attended.KINDS:
        draw = partial(attended.inputs, of.row, kind)
        yield of.case(kind, partial(drawn, draw), partial(definition.reference, of.row),
                      partial(attended.outputs, of.row), scores=partial(attended.largest_score, of.row))  # fmt: skip


def latent(of: Of) -> Iterator[Case]:
    """Batches of one query a head."""
    kept = picks(of.row.sizes["b"], BATCHES)

    def reference(tensors: Tensors) -> Outputs:
        return {"out": mla.eager(**{name: one[kept].double() for name, one in tensors.items()})}

    def scores(tensors: Tensors) -> float:
        q, q_rope, keys, k_rope = (tensors[name][kept].float() for name in ("q", "q_rope", "latent", "k_rope"))
        return float((q @ keys.mT + q_rope @ k_rope.mT).abs().max()) / (q.shape[-1] + q_rope.shape[-1]) ** 0.5

    kinds = {"normal": same, "huge logits": scaled("q", "q_rope"), "strided": turned("q", "latent", "k_rope")}
    for kind, change in kinds.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out[kept]}, scores=scores)


def experts(of: Of) -> Iterator[Case]:
    """The probabilities given, and those of the experts chosen; of equal ones exactly the lower."""
    j = of.row.sizes["j"]

    def exact(tensors: Tensors) -> torch.Tensor:
        return torch.softmax(tensors["x"].double() @ tensors["W"].double(), -1)

    def reference(tensors: Tensors) -> Outputs:
        best = exact(tensors).topk(j, -1).values
        return {"gates": best, "of the chosen": best}

    def outputs(out: Any, tensors: Tensors) -> Outputs:
        return {"gates": out[0], "of the chosen": exact(tensors).gather(-1, out[1]).to(out[0].dtype)}

    def scores(tensors: Tensors) -> float:
        return float((tensors["x"].float() @ tensors["W"].float()).abs().max())

    def lowest(tensors: Tensors) -> Outputs:
        scores = tensors["x"].double() @ tensors["W"].double()
        best = torch.sort(scores, dim=-1, descending=True, stable=True).indices
        return {"gates": exact(tensors).topk(j, -1).values, "experts": best[:, :j].double()}

    kinds = {"normal": same, "huge logits": scaled("x"), "strided": turned("x", "W")}
    for kind, change in kinds.items():
        yield of.case(kind, change, reference, outputs, scores=scores)
    yield of.case("equal experts", of_few_numbers, lowest,
               lambda out, _: {"gates": out[0], "experts": out[1]}, exact=frozenset({"experts"}))  # fmt: skip


def quantized(of: Of) -> Iterator[Case]:
    """Every row by its own scale; the forms of one pass, which round elsewhere, against the product itself."""
    kept = picks(of.row.sizes["m"], ROWS)

    def per_row(out: torch.Tensor, tensors: Tensors) -> torch.Tensor:
        scale = tensors["x"][kept].double().abs().amax(1, keepdim=True).clamp_min(1e-30)
        return (out.double() / scale).to(out.dtype)

    def product(tensors: Tensors, *, rounds: bool) -> Outputs:
        x, W, w = tensors["x"][kept].double(), tensors["W"].double(), tensors["w"].double()
        scale = x.abs().amax(1, keepdim=True).clamp_min(1e-30) / quant.LARGEST
        q = (x / scale).to(quant.EIGHT_BITS).double() if rounds else x / scale
        return {"out": per_row(q @ W.T * scale * w, tensors)}

    def outputs(out: torch.Tensor, tensors: Tensors) -> Outputs:
        return {"out": per_row(out[kept], tensors)}

    known = of.family.peers(of.row, of.device)
    peers = {"dequantized": quant.dequantized, **{name: known[name] for name in ("eager",) if name in known}}
    kinds = {"normal": same, "rows of many scales": of_many_scales, "strided": turned("x")}
    for kind, change in kinds.items():
        yield of.case(kind, change, partial(product, rounds=True), outputs, peers=peers)
    for form in ("online", "power of two"):
        yield of.case(f"{form}, beside no rounding", same, partial(product, rounds=False), outputs,
                   peers=peers, fused=partial(quant.fused, form))  # fmt: skip


def moments(of: Of) -> Iterator[Case]:
    """Sums about a mean."""
    kept = picks(of.row.sizes["b"], ROWS)
    formula = statistics.formula if of.family.name == "variance" else statistics.inertia_formula
    name = "x" if of.family.name == "variance" else "r"

    def reference(tensors: Tensors) -> Outputs:
        return {"out": formula(*(tensors[key][kept].double() for key in of.row.shapes))}

    kinds = {"normal": same, "far from zero": shifted(name, 1e8, 30.0) if name == "x" else shifted(name, 1e4),
             "strided": turned(*of.row.shapes)}  # fmt: skip
    for kind, change in kinds.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out[kept]})


def normalised(of: Of) -> Iterator[Case]:
    """Rows brought to one scale, and their losses."""
    operation, kept = of.row.use, picks(of.row.sizes["b"], ROWS)

    def reference(tensors: Tensors) -> Outputs:
        part = {name: one[kept] if name in ("x", "target") else one for name, one in tensors.items()}
        wide = {name: one.double() if one.is_floating_point() else one for name, one in part.items()}
        return {"out": DOUBLE[operation](**wide)}

    huge: dict[str, Change] = {"huge logits": scaled("x")}
    if operation.endswith("norm"):
        huge = {"far from zero": shifted("x", 100.0)}
    for kind, change in {"normal": same, **huge, "strided": turned("x")}.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out[kept]})


def products(of: Of) -> Iterator[Case]:
    """Products of products."""

    def reference(tensors: Tensors) -> Outputs:
        return {"out": chains.eager(**{name: one.double() for name, one in tensors.items()})}

    for kind, change in {"normal": same, "large": scaled("A", by=1e3), "strided": turned("A", "B", "D")}.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out})


def pairwise(of: Of) -> Iterator[Case]:
    """Sums over pairs of points, and products over other semirings."""
    kept, peers = picks(of.row.sizes["i"], ROWS), pairs.PEERS | semirings.PEERS

    def reference(tensors: Tensors) -> Outputs:
        part = tensors | {"x": tensors["x"][kept]}
        return {"out": peers[of.row.use](**{name: one.double() for name, one in part.items()})}

    def far(tensors: Tensors, _: torch.Generator) -> Tensors:
        return tensors | {name: tensors[name] + 1e3 for name in places}

    places = [name for name in ("x", "y", "z") if name in of.row.shapes]
    for kind, change in {"normal": same, "far from zero": far, "strided": turned(*places)}.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out[kept]})


def second_moments(of: Of) -> Iterator[Case]:
    """Matrices of second moments: of plain data, far from 0, with one outlier, and of numbers of 16 bits.

    Products of short numbers end in few patterns of bits, so that roundings of a long sum may have one sign.
    """

    def reference(tensors: Tensors) -> Outputs:
        return {"out": covariances.PEERS[of.row.use](**{name: one.double() for name, one in tensors.items()})}

    def far(tensors: Tensors, _: torch.Generator) -> Tensors:
        return tensors | {"x": tensors["x"] + 1e3}

    def outlier(tensors: Tensors, _: torch.Generator) -> Tensors:
        x = tensors["x"].clone()
        x[0] = 1e4
        return tensors | {"x": x}

    def short(tensors: Tensors, _: torch.Generator) -> Tensors:
        return tensors | {"x": (tensors["x"] + 5).half().to(tensors["x"].dtype)}

    for kind, change in {"normal": same, "far from zero": far, "one outlier": outlier, "of 16 bits": short}.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out})


def selected(of: Of) -> Iterator[Case]:
    """The best of rows: of plain data, of data that rises, and of data with many equal elements."""

    def reference(tensors: Tensors) -> Outputs:
        return {"values": torch.topk(tensors["x"].double(), of.row.use, 1).values}

    def rising(tensors: Tensors, _: torch.Generator) -> Tensors:
        return {"x": tensors["x"].sort(1).values}

    def equal(tensors: Tensors, _: torch.Generator) -> Tensors:
        return {"x": tensors["x"].round()}

    for kind, change in {"normal": same, "rising": rising, "many equal": equal}.items():
        yield of.case(kind, change, reference, lambda out, _: {"values": out[0]})


def of_columns(of: Of) -> Iterator[Case]:
    """Statistics along first and middle axes."""
    far = 1e3 if of.row.dtypes["x"] == "float32" else 8.0
    names = ("out",) if of.row.use.startswith(("logsumexp", "skewness")) else ("mean", "var")

    def named(results: tuple[torch.Tensor, ...]) -> Outputs:
        return dict(zip(names, results, strict=True))

    def reference(tensors: Tensors) -> Outputs:
        return named(columns.formula(of.row.use)(tensors["x"].double()))

    for kind, change in {"normal": same, "far from zero": shifted("x", far), "strided": turned("x")}.items():
        yield of.case(kind, change, reference, lambda out, _: named(outputs(out)))


def vocabulary(of: Of) -> Iterator[Case]:
    """Losses of the scores of a vocabulary."""
    kept = picks(of.row.sizes["i"], ROWS)

    def reference(tensors: Tensors) -> Outputs:
        scores = tensors["h"][kept].double() @ tensors["w"].double().mT
        return {"out": losses.PEERS[of.row.use](scores, tensors["target"][kept])}

    def scores(tensors: Tensors) -> float:
        return float((tensors["h"][kept].float() @ tensors["w"].float().mT).abs().max())

    for kind, change in {"normal": same, "huge logits": scaled("h", by=100.0), "strided": turned("h", "w")}.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out[kept]}, scores=scores)


def masked(of: Of) -> Iterator[Case]:
    """Attention under masks that leave few tiles, of some heads of a batch."""
    heads = masks.SAMPLED

    def reference(tensors: Tensors) -> Outputs:
        given = {name: one[:1] for name, one in tensors.items() if name not in "QKV"}
        queries, keys, values = (tensors[name][:1, :heads].double() for name in "QKV")
        scores = queries @ keys.mT * queries.shape[-1] ** -0.5
        return {"out": scores.masked_fill(~masks.mask_of(of.row.use, given, queries), -torch.inf).softmax(-1) @ values}

    def scores(tensors: Tensors) -> float:
        queries, keys = (tensors[name][:1, :heads].float() for name in "QK")
        return float((queries @ keys.mT).abs().max()) * queries.shape[-1] ** -0.5

    for kind, change in {"normal": same, "huge logits": scaled("Q", by=100.0)}.items():
        yield of.case(kind, change, reference, lambda out, _: {"out": out[:1, :heads]}, scores=scores)


def of_workloads(of: Of) -> Iterator[Case]:
    """Tables of workloads: some rows of those of pairs."""
    assert isinstance(of.family, workloads.Workloads)
    workload = of.family.table[of.row.name]
    kept = picks(of.row.sizes[workload.checked], ROWS) if workload.checked else slice(None)

    def named(results: Any, of_rows: Any) -> Outputs:
        return {f"out {place}": one[of_rows] for place, one in enumerate(outputs(results))}

    def reference(tensors: Tensors) -> Outputs:
        part = tensors | {"x": tensors["x"][kept]}
        written = workload.exact or workload.written
        return named(written(**{name: one.double() for name, one in part.items()}), slice(None))

    for kind, change in {"normal": same, "strided": turned("x")}.items():
        yield of.case(kind, change, reference, lambda out, _: named(out, kept))


def differentiated(of: Of) -> Iterator[Case]:
    """Gradients of calls with random cotangents; beside attention's kernels stands the definition of some heads."""
    row, family = of.row, of.family
    peers = {name: peer for name, peer in family.peers(row, of.device).items() if name not in PARTIAL}

    def call(contestant: Contestant, tensors: Tensors) -> Any:
        return family.prepare(row, contestant, tensors)()

    more: dict[str, Any] = {"call": call, "peers": peers}
    if row.use.kind == "attention":
        peers["eager"] = backwards.sampled_eager(row)
        more["scores"] = partial(attended.largest_score, row.use.forward)
    if of.device.type == "cuda":  # on the CPU stages are run by the array backend
        more["problems"] = partial(recorded_problems, gradients=row.use.gradients)
    names = {"attention": ("Q", "K", "V"), "losses": ("h", "w")}.get(row.use.kind, ("x",))
    for kind, change in {"normal": same, "strided": turned(*names)}.items():
        yield of.case(kind, change, partial(backwards.reference, row),
                      lambda out, _: backwards.compared(row, out), **more)  # fmt: skip


OF: Mapping[str, Callable[[Of], Iterator[Case]]] = {
    **dict.fromkeys(("mha", "attention_small", "uses"), attention),
    **dict.fromkeys(("variance", "inertia"), moments),
    "mla": latent,
    "moe": experts,
    "quant": quantized,
    "rows": normalised,
    "chains": products,
    **dict.fromkeys(("pairs", "semirings"), pairwise),
    "covariances": second_moments,
    "selection": selected,
    "columns": of_columns,
    "losses": vocabulary,
    "masks": masked,
    **dict.fromkeys(("workloads", "beside"), of_workloads),
    "backwards": differentiated,
}
