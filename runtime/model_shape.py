"""The numbers of a decoder from which its communication and its memory follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from torch import nn

from .dropout import Dropout
from .embedding import PositionEmbedding, VocabParallelEmbedding
from .linear import ColumnParallelLinear, RowParallelLinear
from .norm import LayerNorm, RMSNorm


@dataclass(frozen=True)
class LocalParameter:
    """What one tp rank holds of a parameter; ``replicated``: each tp rank holds the whole."""

    shape: tuple[int, ...]
    replicated: bool = False

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def padded(self, parts: int) -> int:
        """Entries once FSDP has cut dimension 0 in so many equal parts."""
        return -(-self.shape[0] // parts) * parts * math.prod(self.shape[1:])


@dataclass(frozen=True)
class ModelShape:
    """A stack of like layers, each a norm, attention, a norm and an MLP, between tables.

    Numbers are global. ``heads`` query heads, ``groups`` key/value heads of ``head_dim`` channels;
    an MLP ``ffn`` wide, ``gated`` (SwiGLU and its like: the first projection is 2 * ffn wide);
    ``positions`` rows of learned positions, 0 where they are rotary; ``tied``: the output layer is
    the embedding's table.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool = True
    layer_norm: bool = False  # else RMS norm
    qkv_bias: bool = False
    bias: bool = False  # of the other linear layers
    positions: int = 0
    tied: bool = False
    dropout: bool = False  # between the layers (hidden_dropout)

    @property
    def qkv(self) -> int:
        """Features of the queries, keys and values together."""
        return (self.heads + 2 * self.groups) * self.head_dim

    @property
    def fc1(self) -> int:
        """Features of the MLP's first projection."""
        return self.ffn * 2 if self.gated else self.ffn

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        return self.layers * _count(self.layer_parameters(1)) + _count(self.other_parameters(1))

    def layer_parameters(self, tp: int) -> list[LocalParameter]:
        """What one tp rank holds of a layer."""
        found = [
            *self._norm(),
            *self._norm(),
            LocalParameter((self.qkv // tp, self.hidden)),
            LocalParameter((self.hidden, self.heads * self.head_dim // tp)),
            LocalParameter((self.fc1 // tp, self.hidden)),
            LocalParameter((self.hidden, self.ffn // tp)),
        ]
        if self.qkv_bias:
            found.append(LocalParameter((self.qkv // tp,)))
        if self.bias:
            found.append(LocalParameter((self.fc1 // tp,)))
            found += [LocalParameter((self.hidden,), replicated=True)] * 2
        return found

    def other_parameters(self, tp: int) -> list[LocalParameter]:
        """What one tp rank holds of the embedding, the final norm and the output layer."""
        table = LocalParameter((-(-self.vocab // tp), self.hidden))
        found = [table, *self._norm()] + [table] * (not self.tied)
        if self.positions:
            found.append(LocalParameter((self.positions, self.hidden), replicated=True))
        return found

    def _norm(self) -> list[LocalParameter]:
        return [LocalParameter((self.hidden,), replicated=True)] * (2 if self.layer_norm else 1)

    @staticmethod
    def of(model: nn.Module) -> ModelShape:
        """That of a page's model, on any device, sharded or not.

        Raises NotImplementedError for a model of another form (experts, normed heads, zero-centred
        norms, sinks, a user's layers), whose memory the formulas do not know. What its forwards do
        is not looked at: both halves of a layer on one norm, a soft cap or attention dropout pass.
        """
        layers = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
        kinds = {type(layer).__name__ for stack in layers for layer in stack}
        if len(layers) != 1 or len(kinds) != 1:
            raise NotImplementedError(
                f"the formulas know a model with one stack of layers of one class, and "
                f"{type(model).__name__} has {len(layers)} with {sorted(kinds)}"
            )
        _refuse_what_saves_more(layers[0][0])
        qkv, proj, fc1, fc2 = _linears(layers[0][0])
        head_dim = _head_dim(layers[0][0])
        heads = proj.in_features // head_dim
        output, table = _ends(model)
        learned = [m for m in model.modules() if isinstance(m, PositionEmbedding)]
        return ModelShape(
            layers=len(layers[0]),
            hidden=qkv.in_features,
            heads=heads,
            groups=(qkv.out_features // head_dim - heads) // 2,
            head_dim=head_dim,
            ffn=fc2.in_features,
            vocab=table.num_embeddings,
            gated=fc1.out_features == 2 * fc2.in_features,
            layer_norm=any(isinstance(m, LayerNorm) for m in model.modules()),
            qkv_bias=qkv.bias is not None,
            bias=fc1.bias is not None,
            positions=learned[0].max_positions if learned else 0,
            tied=output.weight is table.weight,
            dropout=any(isinstance(m, Dropout) and m.p > 0 for m in model.modules()),
        )


def _refuse_what_saves_more(layer: nn.Module) -> None:
    """Norms and attention that leave more for the backward than the formulas count."""
    for name, module in layer.named_modules():
        if isinstance(module, RMSNorm | LayerNorm) and module.zero_centered:
            raise NotImplementedError(f"the formulas know no zero-centred norm, and {name} is one")
        own = (
            []
            if isinstance(module, _KNOWN)
            else [n for n, _ in module.named_parameters(recurse=False)]
        )
        if own:
            raise NotImplementedError(
                f"the formulas know parameters of linear layers and norms, and {name} has "
                f"{', '.join(own)}"
            )


_KNOWN = (RMSNorm, LayerNorm, ColumnParallelLinear, RowParallelLinear)


def _head_dim(layer: nn.Module) -> int:
    """What a page's attention keeps under this name."""
    for module in layer.modules():
        if isinstance(getattr(module, "head_dim", None), int):
            return cast(int, module.head_dim)
    raise NotImplementedError(f"no module of {type(layer).__name__} states its head_dim")


def _linears(
    layer: nn.Module,
) -> tuple[ColumnParallelLinear, RowParallelLinear, ColumnParallelLinear, RowParallelLinear]:
    linears = [
        m for m in layer.modules() if isinstance(m, ColumnParallelLinear | RowParallelLinear)
    ]
    norms = [m for m in layer.modules() if isinstance(m, RMSNorm | LayerNorm)]
    match linears:
        case [
            ColumnParallelLinear() as qkv,
            RowParallelLinear() as proj,
            ColumnParallelLinear() as fc1,
            RowParallelLinear() as fc2,
        ] if (
            len(norms) == 2 and len({type(norm) for norm in norms}) == 1
        ):
            return qkv, proj, fc1, fc2
    raise NotImplementedError(
        f"the formulas know a layer of 2 norms, 2 projections of attention and 2 of an MLP, and "
        f"{type(layer).__name__} has {len(norms)} norms and {len(linears)} parallel linear layers"
    )


def _ends(model: nn.Module) -> tuple[ColumnParallelLinear, VocabParallelEmbedding]:
    tables = [m for m in model.modules() if isinstance(m, VocabParallelEmbedding)]
    outputs = [m for m in model.children() if isinstance(m, ColumnParallelLinear)]
    if len(tables) != 1 or len(outputs) != 1:
        raise NotImplementedError(
            f"the formulas know a model with one embedding and one output layer, and "
            f"{type(model).__name__} has {len(tables)} and {len(outputs)}"
        )
    return outputs[0], tables[0]


def _count(parameters: list[LocalParameter]) -> int:
    return sum(parameter.count for parameter in parameters)
