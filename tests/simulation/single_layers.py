"""Layers one at a time on a fake rank of tp 8: what each communicates, and what it saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import torch
from cuda_kernels import as_on_cuda
from one_rank import fake_group, no_values
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from tracker import Place, Tracker

from specc.runtime import (
    ColumnParallelLinear,
    LayerNorm,
    Mesh,
    RMSNorm,
    RowParallelLinear,
    VocabParallelEmbedding,
    materialize,
)
from specc.runtime.communication import Collective

TP, B, S, H, OUT, V = 8, 2, 512, 256, 1024, 1001  # 1001 rows are 126 on a rank, the last padded
LEAF = 2  # bytes of what `_input` begins with

Bytes = Counter[tuple[str, int]]  # kind and bytes of a collective: all are over tp
Layer = tuple[Callable[[Mesh], nn.Module], tuple[int, ...]]


def layers(t: int) -> dict[str, Layer]:
    """A layer by name, and the shape of what it takes; ``t`` places stand between the layers."""
    return {
        "column": (lambda mesh: ColumnParallelLinear(H, OUT, mesh, bias=True), (B, t, H)),
        "column, gathered": (
            lambda mesh: ColumnParallelLinear(H, OUT, mesh, gather_output=True),
            (B, t, H),
        ),
        "row": (lambda mesh: RowParallelLinear(OUT, H, mesh, bias=True), (B, S, OUT // TP)),
        "embedding": (lambda mesh: VocabParallelEmbedding(V, H, mesh), (B, S)),
        "rms norm": (lambda mesh: RMSNorm(H), (B, t, H)),
        "layer norm": (lambda mesh: LayerNorm(H), (B, t, H)),
        "zero-centered": (lambda mesh: RMSNorm(H, zero_centered=True), (B, t, H)),
    }


def run_layers(sequence_parallel: bool) -> dict[str, tuple[Bytes, Bytes, int]]:
    """Of each layer: the collectives of forward and backward, and the bytes saved between."""
    with ExitStack() as stack:
        stack.enter_context(fake_group(TP, 3))
        mesh = Mesh.launch(tp=TP, sequence_parallel=sequence_parallel, dtype=torch.bfloat16)
        stack.enter_context(no_values())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        tracker = stack.enter_context(Tracker({mesh.tp.group_name: "tp"}))
        stack.enter_context(as_on_cuda())
        return {
            name: _run(build, shape, mesh, tracker)
            for name, (build, shape) in layers(S // TP if sequence_parallel else S).items()
        }


def _run(
    build: Callable[[Mesh], nn.Module], shape: tuple[int, ...], mesh: Mesh, tracker: Tracker
) -> tuple[Bytes, Bytes, int]:
    layer = materialize(lambda: build(mesh), mesh)
    for name, parameter in layer.named_parameters():
        # As FSDP would hand them over: nothing is cast.
        layer._parameters[name] = nn.Parameter(parameter.detach().to(torch.bfloat16))
    before = tracker.held()
    y = layer(*_input(shape))
    saved = tracker.held() - before - y.untyped_storage().nbytes()
    forward = _seen(tracker)
    y.backward(torch.empty_like(y))
    return forward, _seen(tracker), saved - (LEAF if len(shape) == 3 else 0)


def _input(shape: tuple[int, ...]) -> Iterator[Tensor]:
    """Held by nobody but the graph."""
    if len(shape) == 2:
        yield torch.zeros(shape, dtype=torch.int64)
    else:
        # The graph keeps a leaf: one number.
        leaf = torch.zeros((1,) * len(shape), dtype=torch.bfloat16, requires_grad=True)
        yield leaf.expand(shape).clone()


def _seen(tracker: Tracker) -> Bytes:
    found: Counter[Collective] = Counter(one for _, one in tracker.seen)
    tracker.seen.clear()
    tracker.place = Place("step")
    return Counter({(one.kind, one.bytes): n for one, n in found.items()})
