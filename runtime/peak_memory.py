"""The peak of a rank's memory in a step, from the shapes alone, before anything runs.

What a caching allocator loses between blocks comes on top (a few per cent), and what the process
holds beside tensors (a CUDA context, NCCL's buffers).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from .communication import padded
from .memory import saved_activations, saved_by_attention, saved_once
from .model_shape import ModelShape
from .workload import Workload


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank at one moment of a step.

    ``parameters``, ``gradients`` and ``optimizer`` are float32, cut as the stage of ZeRO says;
    ``activations`` is what layers keep for their backward; ``gathered`` what FSDP holds whole, in
    the compute dtype; ``working`` what the operations of the moment need.
    """

    moment: str
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    gathered: int
    working: int

    @property
    def total(self) -> int:
        return sum(getattr(self, f.name) for f in fields(self) if f.name != "moment")


def peak_memory(shape: ModelShape, work: Workload) -> Memory:
    """The fullest of ``moments``, which see."""
    return max(moments(shape, work), key=lambda memory: memory.total)


def moments(shape: ModelShape, work: Workload) -> list[Memory]:
    """The moments of a step that may be its fullest, in their order.

    They are: the last layer's dropout; the loss (all activations, the logits); each
    layer's backward, the last first, and the reduction of its gradients; what ends the step. It is
    a step in which the optimizer's states exist already.

    Raises NotImplementedError for float32 over cp by all_gather or p2p, where attention has its
    scores in memory.
    """
    degrees = work.degrees
    if degrees.cp > 1 and degrees.cp_comm_type != "a2a" and work.bytes > 2:
        raise NotImplementedError(
            f"over cp={degrees.cp} by {degrees.cp_comm_type} attention in {work.dtype} has a "
            "block's scores in memory, which the formula does not know; in bf16 and fp16 it has not"
        )
    return _Moments(shape, work).all()


class _Moments:
    def __init__(self, shape: ModelShape, work: Workload) -> None:
        self.shape, self.work, self.size = shape, work, work.bytes
        tp, self.zero = work.degrees.tp, work.degrees.zero
        self.layer = padded(shape.layer_parameters(tp), work.shards)
        self.other = padded(shape.other_parameters(tp), work.shards)
        self.every = shape.layers * self.layer + self.other
        self.table = -(-shape.vocab // tp) * shape.hidden
        # Bytes of an entry of a table's gradient until it is reduced: a tied one adds up.
        self.summed = self.size if self.zero and not shape.tied else 4
        self.saved = [saved_activations(shape, work, number) for number in range(shape.layers)]
        self.once = saved_once(shape, work)
        # [b, t, h] as the last layer left it, and [b, s, h] as the output layer takes it.
        self.final = (work.tokens + work.tokens_between) * shape.hidden * self.size

    def all(self) -> list[Memory]:
        found = [self._loss()]
        if self.shape.dropout:
            found.insert(0, self._dropout())
        for number in reversed(range(self.shape.layers)):
            found.append(self._layer(number))
            if self.zero:
                found.append(self._layer_reduction(number))
        return found + self._ends()

    def _at(
        self, moment: str, *, keeping: int, whole: int, done: int, working: int, tables: bool = True
    ) -> Memory:
        """``keeping``: so many layers have still to run their backward; FSDP holds ``whole`` layers
        and the ``tables``; ``done`` parameters have their gradient. All have, and ZeRO-1 and 2 hold
        everything, from a second micro-batch on.
        """
        work = self.work
        if work.accumulation > 1:
            done = self.every
            whole = whole if self.zero == 3 else self.shape.layers
        parameters = 4 * self.every // work.shards
        gathered = tables * self.other + whole * self.layer if self.zero else 0
        return Memory(
            moment=moment,
            parameters=parameters,
            gradients=4 * done // (1 if self.zero == 1 else work.shards),
            optimizer=2 * parameters,
            activations=sum(self.saved[:keeping]) + self.once,
            gathered=self.size * gathered,
            working=working,
        )

    def _dropout(self) -> Memory:
        """The last one's hash: of [b, t, h] three int32 at a time, the sum before and after it."""
        count = self.shape.layers
        return self._at(
            "the last layer's dropout",
            keeping=count,
            whole=1 if self.zero == 3 else count,
            done=0,
            working=16 * self.work.tokens_between * self.shape.hidden,
        )

    def _loss(self) -> Memory:
        count = self.shape.layers
        working = self._logits() + self.final
        if not self.zero and self.size < 4:
            working += self.size * self.table  # the output layer's weight, cast
        whole = 1 if self.zero == 3 else count  # the last layer's comes early
        return self._at("the loss", keeping=count, whole=whole, done=0, working=working)

    def _logits(self) -> int:
        """The logits and what their gradient takes."""
        tp, chunks = self.work.degrees.tp, self.work.loss_chunks
        piece = self.work.tokens * -(-self.shape.vocab // tp) // chunks
        if chunks == 1 and tp == 1:
            return 12 * piece  # in float32: their logarithms, and two gradients
        rounded = self.size if self.size < 4 else 0
        # As saved, in float32, and once more inside of logsumexp: more than its gradient takes.
        own = (self.size + 8) * piece
        if chunks == 1:
            return own
        # The gradients of x and, in float32, of the weight exist whole.
        gradients = self.work.tokens * self.shape.hidden * self.size + 4 * self.table
        return gradients + max(own, rounded * (self.table + piece))

    def _layer(self, number: int) -> Memory:
        above = self.shape.layers - 1 - number
        working = _layer_backward(self.shape, self.work, number) + self.summed * self.table
        if above and self.zero:
            working += 4 * self.layer  # the layer above's gradients, on their way
        # The layer below's parameters come early.
        whole = min(2, number + 1) if self.zero == 3 else number + 1
        return self._at(
            f"the backward of layer {number}",
            keeping=number + 1,
            whole=whole,
            done=above * self.layer,
            working=working,
        )

    def _layer_reduction(self, number: int) -> Memory:
        """A layer's parameters are cut again, its gradients stand whole twice."""
        above = self.shape.layers - 1 - number
        return self._at(
            f"the reduction of layer {number}",
            keeping=number,
            whole=min(1, number) if self.zero == 3 else number,
            done=above * self.layer,
            working=(self.size + 4) * self.layer + self.summed * self.table + self.final,
        )

    def _ends(self) -> list[Memory]:
        degrees = self.work.degrees
        if not self.zero:
            flat = 4 * self.every if degrees.dp * degrees.cp > 1 else 0
            return [self._at("the sum", keeping=0, whole=0, done=self.every, working=flat)]
        done = self.shape.layers * self.layer
        gradients = self.size * self.other
        if self.shape.tied:  # two gradients and their sum
            gradients = 4 * (3 * self.table + self.other - self.table)
        backward = self._at(
            "the tables' backward",
            keeping=0,
            whole=0,
            done=done,
            working=gradients + 4 * self.layer,
        )
        reduction = self._at(
            "the tables' reduction",
            keeping=0,
            whole=0,
            done=done,
            working=(self.summed + 4) * self.other,
            tables=False,
        )
        return [backward, reduction]


def _layer_backward(shape: ModelShape, work: Workload, layer: int) -> int:
    """The most that one layer's backward needs beside what its forward left.

    Each line is a moment of it, in order: gradients of weights so far, what is at work, less what
    was saved and is done with.
    """
    degrees, size = work.degrees, work.bytes
    x = work.tokens_between * shape.hidden * size
    whole = work.tokens * shape.hidden * size
    ffn = work.tokens * shape.ffn // degrees.tp * size
    inner, kept = (2, 4) if shape.gated else (1, 2)  # times ffn: linear_fc1's output; all kept
    fc2 = shape.hidden * shape.ffn // degrees.tp * size
    mlp = (1 + inner) * fc2
    proj = shape.hidden * shape.heads * shape.head_dim // degrees.tp * size
    qkv = shape.hidden * shape.qkv // degrees.tp * size
    attention = saved_by_attention(shape, work)
    features = work.tokens * shape.qkv // degrees.tp * size
    kv = 2 * work.tokens * shape.groups * shape.head_dim // degrees.tp * size
    # Over cp: k, v and their gradients as they come and go; heads come and go with q's.
    pieces = {"all_gather": 4 * degrees.cp * kv, "p2p": 6 * kv, "a2a": 2 * features}
    exchanged = pieces[degrees.cp_comm_type] if degrees.cp > 1 else 0
    found = (
        fc2 + x + whole + ffn,
        fc2 + x + inner * ffn,
        mlp + x + inner * ffn + whole + max(0, whole - x - inner * fc2) - kept * ffn,
        mlp + proj + 2 * x + features + exchanged - kept * ffn - x,
        mlp + proj + qkv + 2 * x + features + whole - kept * ffn - x - attention,
    )
    again = 0
    if work.recomputes(layer):
        again = saved_activations(shape, replace(work, recompute=None)) - x
    return again + max(found)
