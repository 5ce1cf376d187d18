"""Embeddings: of tokens, with the vocabulary cut over tp, and of positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from .collectives import all_reduce, reduce_scatter
from .linear import local_parameter
from .mesh import Mesh
from .parameters import Normal, ParameterRecord, axis_cut, declare

if TYPE_CHECKING:
    from .positions import Positions


class VocabParallelEmbedding(nn.Module):
    """Rows of a table by token id, in the dtype that all activations have.

    The table's rows are cut over tp.

    =============  ==============================  ==========================================
    tp > 1         without sequence parallel       with sequence parallel
    =============  ==============================  ==========================================
    ids            [b, s], whole                   [b, s], whole
    y              [b, s, h], whole                [b, s / tp, h]
    forward        all-reduce of y                 reduce-scatter of y over positions
    backward       all-reduce of y's gradient      all-gather of y's gradient
    saved          each id's local row (int64),    the same
                   and whether it is here (bool)
    =============  ==============================  ==========================================

    ``weight`` is [ceil(num_embeddings / tp), h]: where tp does not divide, the last rows are
    padding of zeros that exist in memory only. It is float32 without storage until ``materialize``;
    y has the mesh's dtype, and so has every activation after it.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mesh: Mesh, *, init_std: float = 0.02
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.mesh = mesh
        cut = axis_cut(num_embeddings, mesh.tp)
        self.cut = cut
        self.weight = local_parameter(cut.size, embedding_dim)
        declare(
            self,
            "weight",
            ParameterRecord((num_embeddings, embedding_dim), dim=0, law=Normal(init_std)),
        )

    def forward(self, ids: Tensor) -> Tensor:
        """[b, s] -> [b, t, h]."""
        # Cast before the lookup, since under FSDP the table arrives in this dtype.
        weight = self.weight.to(self.mesh.dtype)
        if self.mesh.tp.size == 1:
            return F.embedding(ids, weight)
        local = ids - self.cut.offset
        # Another rank holds the row: look up any, and hand on (and back) zeros. An id outside the
        # vocabulary is nobody's: it stays, and raises as it would in one process.
        absent = (local < 0) | (local >= self.cut.valid)
        absent &= (ids >= 0) & (ids < self.num_embeddings)
        y = F.embedding(local.masked_fill(absent, 0), weight).masked_fill(absent.unsqueeze(-1), 0.0)
        if self.mesh.sequence_parallel:
            return reduce_scatter(y, 1, self.mesh.tp)
        return all_reduce(y, self.mesh.tp)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class PositionEmbedding(nn.Module):
    """Learned absolute positions: one row for each, the whole table on every rank.

    No collective. Under sequence parallel this rank looks up its own positions, so the table's
    gradient is partial over tp and is summed with the other replicated ones.
    """

    def __init__(
        self, max_positions: int, hidden: int, mesh: Mesh, *, init_std: float = 0.02
    ) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.hidden = hidden
        self.mesh = mesh
        self.weight = local_parameter(max_positions, hidden)
        declare(self, "weight", ParameterRecord((max_positions, hidden), law=Normal(init_std)))

    def forward(self, positions: Positions) -> Tensor:
        """Rows of the positions held between the layers: [t, h]; with documents [b, t, h]."""
        return F.embedding(positions.local_ids, self.weight.to(self.mesh.dtype))

    def extra_repr(self) -> str:
        return f"{self.max_positions}, {self.hidden}"
