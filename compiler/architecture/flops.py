"""FLOPs of a forward, counted from a recorded run: 2 for each multiply-add of a matrix product.

Only products count, as is the custom (Kaplan et al., arXiv 2001.08361, section 2.1; Narayanan et
al., arXiv 2104.04473, appendix; Chowdhery et al., PaLM, arXiv 2204.02311, appendix B): norms,
activations, the softmax, rotary positions and lookups do not.

| product | FLOPs |
|---|---|
| [m, k] times [k, n], as torch ran it (by the formulas of `torch.utils.flop_counter`) | 2 m k n |
| experts: each of R rows with its own expert's [out, in] (`grouped_linear`) | 2 R in out |
| attention: q k^T, and the weights times v | 2 (d + d_v) for each head and pair of places |
| recurrences: into a head's state [d, d_v] and out of it | 2 d d_v each, for each head and place |

Of experts R is the rows that their products run over: k for each token, whichever experts they go
to; with a capacity that is padded to, as many as its slots.

Of attention those pairs count that a query may attend, exactly (`attended_pairs`). Under a causal
mask that is half of what PaLM counts, whose formula is for every pair. Pairs that a mask tensor
hides count, since kernels compute them; attention that is written out as products counts as it ran,
with all pairs. The projections inside `nn.MultiheadAttention` count as products.

A training step takes 3 times the forward, and 3 times what runs with labels alone (modules that
predict further tokens): each product has two in the backward, one for the gradient of either
operand. What is computed twice is not counted (recompute; the scores, in flash attention), nor is
the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import prod
from typing import Literal, get_args

from torch.utils.flop_counter import flop_registry

from .calls import AttentionCall, Operation, Phase
from .experts import GROUPED_PRODUCT, rows_and_weight
from .recurrences import recurrence_flops
from .run import Run

Share = Literal["projections", "scores", "mixers", "mlp", "experts", "output", "other"]
SHARES: tuple[Share, ...] = get_args(Share)  # in the order in which they are shown
Shape = tuple[int, ...]
_FORMULAS: dict[str, Callable[..., int]] = {str(k): f for k, f in flop_registry.items()}
_PRODUCTS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm")
_WITH_A_VECTOR = ("aten.mv", "aten.addmv", "aten.dot", "aten.vdot")


class NotCountedError(Exception):
    """Matrices are multiplied and no formula here knows how many; says where."""


def attended_pairs(call: AttentionCall, length: int) -> int:
    """How many (query, key) pairs of a sequence of `length` places a head attends.

    Causal: place i, counted from 1, sees i; under a window of w at most w, itself included. So it
    is s (s + 1) / 2 without a window, and w (w + 1) / 2 + (s - w) w under one of w <= s. Where it
    is not causal, all later places as well.
    """
    window = min(call.window or length, length)
    earlier = window * (window + 1) // 2 + (length - window) * window
    return earlier if call.causal else earlier + length * (length - 1) // 2


def attention_flops(call: AttentionCall, length: int) -> int:
    """Of the two products of one attention over one sequence."""
    return 2 * call.heads * (call.head_dim + call.value_dim) * attended_pairs(call, length)


def not_of_the_sequence(call: AttentionCall, run: Run) -> str | None:
    """Why an attention is not one of the sequence's places over themselves, or None where it is."""
    if call.places == call.key_places == run.places:
        return None
    where = call.path or "the model"
    return (
        f"{where} attends {call.key_places:,} places from {call.places:,}, in a sequence of "
        f"{run.places:,}"
    )


def mixes_places(operation: Operation, run: Run) -> bool:
    """Whether it is a product of attention that is written out: of two activations, over places or
    with places on both sides. [.., m, k] times [.., k, n]: k, or m and n, are places.
    """
    name = ".".join(operation.op.split(".")[:2])
    if operation.attention is not None or operation.recurrent or name not in _PRODUCTS:
        return False
    first, second = operation.inputs[-2:]
    if first.name or second.name:
        return False
    sides = (first.shape[-2], second.shape[-1])
    return _of_places(first.shape[-1], run) or all(_of_places(size, run) for size in sides)


def forward_flops(
    run: Run, share_of: Callable[[Operation], Share], phase: Phase = "train"
) -> dict[Share, Fraction]:
    """FLOPs per token of a forward over one sequence of `run.length` places, by what takes them.

    The mean over the sequence: an early token attends less than a late one. `share_of` says which
    part of the model an operation outside attention belongs to. With the phase "labels" of what a
    forward with labels runs more, modules that do not run without. Raises NotCountedError.
    """
    total = dict.fromkeys(SHARES, Fraction())
    longer = Fraction(run.length, run.places)

    def counts(path: str) -> bool:
        return phase == "train" or run.needs_labels(path)

    for operation in run.operations if phase == "train" else run.labelled:
        if not counts(operation.path):
            continue
        if operation.recurrent:
            continue
        if operation.attention is not None and not _is_projection(operation, run):
            continue
        flops: int | Fraction
        if operation.op == GROUPED_PRODUCT:  # its rows are places, k times or with a capacity
            flops = product_flops(operation) * longer
        else:
            flops = product_flops(operation, lambda shape: _at_length(shape, run))
        if flops:
            share = "scores" if mixes_places(operation, run) else share_of(operation)
            total[share] += run.times(operation.path) * flops
    for call in (one for one in run.attention if one.phase == phase and counts(one.path)):
        if why := not_of_the_sequence(call, run):
            raise NotCountedError(why)
        total["scores"] += run.times(call.path) * attention_flops(call, run.length)
    for one in (one for one in run.recurrences if one.phase == phase and counts(one.path)):
        if one.places != run.places:
            raise NotCountedError(
                f"{one.path} runs over {one.places:,} places, in a sequence of {run.places:,}"
            )
        total["mixers"] += run.times(one.path) * recurrence_flops(one, run.length)
    return {share: total[share] / run.length for share in SHARES}


def _is_projection(operation: Operation, run: Run) -> bool:
    """Whether it is a product inside an attention that the attention's own formula leaves out:
    torch's multi-head attention, alone, projects by itself, with its parameters.
    """
    assert operation.attention is not None
    multi_head = run.attention[operation.attention].function == "multi_head_attention_forward"
    return multi_head and any(form.name for form in operation.inputs)


def product_flops(
    operation: Operation, shaped: Callable[[Shape], Shape] = lambda shape: shape
) -> int:
    """Of one recorded operation, 0 where it multiplies no matrices; `shaped` gives the shape that
    a recorded one stands for. Raises NotCountedError.
    """
    name = ".".join(operation.op.split(".")[:2])
    if operation.op == GROUPED_PRODUCT:
        rows, weight = rows_and_weight(operation)
        return 2 * rows.shape[0] * prod(weight.shape[1:])
    if name in _PRODUCTS:
        shapes = [shaped(form.shape) for form in operation.inputs]
        return _FORMULAS[name](*shapes)
    if name in _WITH_A_VECTOR:
        return 2 * prod(shaped(operation.inputs[-2].shape))
    if name == "aten.convolution":
        return _convolution_flops(operation, shaped)
    if name in _FORMULAS:
        raise NotCountedError(f"{operation.path or 'the model'} runs {operation.op}")
    return 0


def _convolution_flops(operation: Operation, shaped: Callable[[Shape], Shape]) -> int:
    """Of x [b, in, ..] and a weight [out, in / groups, ..]. Padding makes an output longer than its
    input, by as much at any length.
    """
    x, weight, y = operation.inputs[0].shape, operation.inputs[1].shape, operation.outputs[0].shape
    new = shaped(x)
    sizes = []
    for old, size, out in zip(x[2:], new[2:], y[2:], strict=True):
        if size != old and not 3 * old < 4 * out < 5 * old:
            where = operation.path or "the model"
            raise NotCountedError(f"{where} runs a convolution with strides over places")
        sizes.append(out + size - old)
    return 2 * shaped(y)[0] * y[1] * prod(sizes) * prod(weight[1:])


def _at_length(shape: Shape, run: Run) -> Shape:
    """The shape at `run.length`: it ran with so many places that a dimension tells itself."""
    return tuple(
        size // run.places * run.length if _of_places(size, run) else size for size in shape
    )


def _of_places(size: int, run: Run) -> bool:
    return size > 0 and size % run.places == 0


def used_parameters(operations: Iterable[Operation]) -> set[str]:
    """Names of the tensors that operations read."""
    return {form.name for one in operations for form in one.inputs if form.name is not None}
