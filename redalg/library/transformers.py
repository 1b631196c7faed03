"""Attention for models of the transformers library: one fused function for each kind of layer.

`register_with_transformers` enters it, and `attn_implementation="redalg"` of a model takes it: docs/TRAINING.md.

A mask of positions alone (causal, sliding window) is a condition over the axes: no tensor of it is made, and kernels
skip tiles. This is exact where the mask is transformers' own function, no token is padding, and the last query stands
at the last key. Every other mask is a tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import getclosurevars
from types import SimpleNamespace
from typing import Any, final

from sympy import Add, And, Expr, Ne, sqrt, tanh
from sympy.logic.boolalg import Boolean

from redalg.errors import InputError
from redalg.expression import axes, scalars, tensor
from redalg.fuse import Fused
from redalg.library.attention import attention
from redalg.optional import need_packages

NEUTRAL = frozenset({
    "position_ids", "cache_position", "use_cache", "num_items_in_batch", "logits_to_keep", "return_dict",
    "deterministic", "seq_idx", "output_hidden_states", "output_router_logits", "sliding_window", "cu_seq_lens_q",
    "cu_seq_lens_k", "max_length_q", "max_length_k",
})  # fmt: skip
"""Keywords that layers hand on, and that change no attention whose mask is there (it has the sliding window)."""
ADVICE = {
    "dropout": "redalg drops no weights of attention. Set the model's attention dropout to 0",
    "output_attentions": "redalg makes no tensor of the weights. Leave it out",
    "cu_seq_lens_q": "a packed batch needs a mask. Pass position_ids alone, from which transformers makes it",
}
FUNCTIONS = SimpleNamespace()
"""The functions by the names of their kinds. What traces a graph looks an object's attributes up as they are, and a
dict's entries as they were when it first read it."""


@final
@dataclass(frozen=True)
class Kind:
    """All that tells the function of one layer from another's.

    Attributes:
        groups: query heads that share a K/V head.
        causal, window, sinks, softcap: true where the function has it.
        mask, bias, position_bias: the axes of that tensor, some of "bhqk"; empty where there is none.
    """

    groups: int = 1
    causal: bool = False
    window: bool = False
    sinks: bool = False
    softcap: bool = False
    mask: str = ""
    bias: str = ""
    position_bias: str = ""


@final
@dataclass(frozen=True)
class SlidingWindow:
    """A causal mask of the last `size` keys, for queries whose last one stands at the last key."""

    size: int


def register_with_transformers(name: str = "redalg", ignore: Collection[str] = ()) -> None:
    """Let models of transformers take their attention from redalg: `attn_implementation=name`.

    It has K/V heads that query heads share, sinks, soft caps, windows, masks, biases, caches, gradients and
    `torch.compile`. A query for which no key counts gives 0. Calls of a model raise `InputError` for dropout, for
    weights that are asked for, and for keywords that redalg does not know.

    Args:
        name: of the implementation.
        ignore: keywords of a model that do not concern its attention, beside those that redalg knows.

    Raises:
        BackendError: PyTorch or transformers is not installed (transformers 5.24 is tested).

    >>> import torch
    >>> from transformers import AutoModelForCausalLM  # doctest: +SKIP
    >>> register_with_transformers()  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained("…", attn_implementation="redalg")  # doctest: +SKIP
    """
    need_packages("register_with_transformers", "redalg[torch]", "torch")
    need_packages("register_with_transformers", "transformers", "transformers")
    from torch.compiler import assume_constant_result
    from transformers import AttentionInterface, AttentionMaskInterface

    assume_constant_result(name_of_function)  # within `torch.compile` it is called and not traced, as SymPy cannot be
    AttentionInterface.register(name, partial(attention_forward, ignore=frozenset(ignore)))
    AttentionMaskInterface.register(name, mask_forward)


def name_of_function(*fields: Any) -> str:
    """The name in `FUNCTIONS` of the function of a kind, by the kind's fields; it is made when first asked for."""
    name = "_".join(map(str, fields))
    if not hasattr(FUNCTIONS, name):
        setattr(FUNCTIONS, name, function_of_kind(Kind(*fields)))
    return name


def function_of_kind(kind: Kind) -> Fused:
    """The function of a kind: of Q, K, V, the tensors that the kind names, and scalars.

    >>> sorted(function_of_kind(Kind(groups=4, causal=True, mask="bqk")).cascade.inputs())
    ['K', 'Q', 'V', 'mask']
    """
    q, k, d = axes("q k d")
    scale, softcap = scalars("scale softcap", positive=True)
    offset, window = scalars("offset window")
    biases = (("position_bias", kind.position_bias), ("bias", kind.bias))
    added = [tensor(f"{name}[{','.join(dimensions)}]") for name, dimensions in biases if dimensions]

    def score(s: Expr) -> Expr:
        s = s * sqrt(d.extent) * scale
        return Add(softcap * tanh(s / softcap) if kind.softcap else s, *added)

    conditions: list[Boolean] = [k <= q + offset] if kind.causal else []
    conditions += [k > q + offset - window] if kind.window else []
    conditions += [Ne(tensor(f"mask[{','.join(kind.mask)}]"), 0)] if kind.mask else []
    mask = And(*conditions) if conditions else None
    return attention(score, mask, groups=kind.groups, sinks=kind.sinks)


def attention_forward(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None,
    is_causal: bool | None = None, softcap: float | None = None, s_aux: Any = None, position_bias: Any = None,
    ignore: Collection[str] = (), **others: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Attention as layers of transformers call it.

    Args:
        module: the layer.
        query, key, value: [b,h,q,d], [b,h',k,d] and [b,h',k,e], where h' divides h.
        attention_mask: a tensor [b,h,q,k] whose b, h and q may be 1, of truth values or of numbers that are added to
            the scores; or a `SlidingWindow`. None is causal, the last query at the last key, if `is_causal` is true (by
            default the layer's), and all keys otherwise.
        scaling, softcap, position_bias, s_aux: of the scores, in this order; s_aux[h] are the logits of the sinks.
        ignore: keywords that do not concern attention.
        others: the other keywords.

    Returns:
        The output [b,q,h,e], and None for the weights.
    """
    masked = attention_mask is not None
    check_keywords(others, ignore, masked=masked)
    batch, heads, rows, width = query.shape
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    numbers: dict[str, Any] = {"scale": width**-0.5 if scaling is None else scaling}
    tensors = {"Q": query, "K": key, "V": value}
    dimensions: dict[str, str] = {}
    window = isinstance(attention_mask, SlidingWindow)
    for name, bias in (("position_bias", position_bias), (name_of_mask(attention_mask), attention_mask)):
        if name and bias is not None:
            dimensions[name], tensors[name] = own_dimensions(name, bias, (batch, heads, rows, key.shape[2]))
    causal = window or (causal and not masked and rows > 1)
    if causal:
        numbers["offset"] = key.shape[2] - rows
    if window:
        numbers["window"] = attention_mask.size
    if softcap:
        numbers["softcap"] = softcap
    if s_aux is not None:
        tensors["sinks"] = s_aux
    name = name_of_function(
        heads // key.shape[1], causal, window, s_aux is not None, bool(softcap),
        *(dimensions.get(one, "") for one in ("mask", "bias", "position_bias")),
    )  # fmt: skip
    out = getattr(FUNCTIONS, name)(**tensors, **numbers, empty="zero")
    return out.to(query.dtype).transpose(1, 2).contiguous(), None


def name_of_mask(mask: Any) -> str:
    """The tensor that a mask is for a function; empty where it is none."""
    if mask is None or isinstance(mask, SlidingWindow):
        return ""
    if not hasattr(mask, "is_floating_point"):
        raise InputError(f"attention_mask: a tensor is needed, and it is a {type(mask).__name__}. Pass a tensor "
                         "[b,h,q,k] of truth values.")  # fmt: skip
    return "bias" if mask.is_floating_point() else "mask"


def own_dimensions(name: str, mask: Any, sizes: Sequence[int]) -> tuple[str, Any]:
    """The axes of a mask or bias [b,h,q,k], and it without those over which it is repeated."""
    if mask.ndim != len(sizes):
        raise InputError(f"{name}: a tensor of 4 dimensions [b,h,q,k] is needed, and its shape is {tuple(mask.shape)}. "
                         "Give it all 4; b, h and q may be 1.")  # fmt: skip
    repeated = [place for place in range(3) if mask.shape[place] == 1 and sizes[place] != 1]
    return "".join(axis for place, axis in enumerate("bhqk") if place not in repeated), mask.squeeze(repeated)


def check_keywords(keywords: Mapping[str, Any], ignore: Collection[str], *, masked: bool) -> None:
    """Refuse what a layer asks for and redalg does not do."""
    for name, value in keywords.items():
        if value is None or value is False or name in ignore or (name == "dropout" and value == 0):
            continue
        if name not in NEUTRAL or (name in ADVICE and not masked):
            advice = ADVICE.get(name, "redalg does not know this keyword. Name it in `ignore=` of "
                                      "`register_with_transformers` if it does not concern attention")  # fmt: skip
            raise InputError(f"attention of redalg: {name} is given, and {advice}, or load the model with "
                             'attn_implementation="eager".')  # fmt: skip


def mask_forward(
    *, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0, mask_function: Any,
    attention_mask: Any = None, allow_is_causal_skip: bool = True, **others: Any,
) -> Any:  # fmt: skip
    """The mask of a model's layers, as transformers asks for it: None if causal, a `SlidingWindow`, or a tensor.

    Args:
        q_length, kv_length, q_offset, kv_offset: queries and keys, and the positions of the first ones.
        mask_function: tells of two positions if the key counts for the query.
        attention_mask: [b,k], true where a token is no padding.
        allow_is_causal_skip: false where a tensor is needed.
        others: arguments of transformers' `sdpa_mask`, which makes the tensor.
    """
    from torch.compiler import is_compiling
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    stop = kv_offset + kv_length
    ends = isinstance(q_offset, int) and q_offset + q_length == stop
    if allow_is_causal_skip and ends and not has_padding(attention_mask, kv_offset, stop):
        if mask_function is causal_mask_function:
            return None
        size = None if is_compiling() else window_of(mask_function)
        if size is not None:
            return None if kv_length <= size else SlidingWindow(size)
    return sdpa_mask(
        q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function,
        attention_mask=attention_mask, allow_is_causal_skip=False, **others,
    )  # fmt: skip


def has_padding(mask: Any, start: int, stop: int) -> bool:
    """Tell if some key from start to stop is padding; within a graph, which knows no values, if there is a mask."""
    from torch.compiler import is_compiling

    if mask is None or is_compiling():
        return mask is not None
    return mask.shape[-1] != stop or not bool(mask[:, start:].all())


def window_of(mask_function: Any) -> int | None:
    """The size of a causal sliding window, if the function is the one that transformers makes of it."""
    from transformers.masking_utils import causal_mask_function, sliding_window_overlay

    parts = getclosurevars(mask_function).nonlocals.get("mask_functions", ())
    codes = [getattr(part, "__code__", None) for part in parts]
    if codes != [sliding_window_overlay(1).__code__, causal_mask_function.__code__]:
        return None
    size: int = getclosurevars(parts[0]).nonlocals["sliding_window"]
    return size
