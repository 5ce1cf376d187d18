"""What the ranks of ep and etp exchange of the rows of experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .collectives import (
    all_gather,
    all_to_all,
    reduce_scatter,
    start_all_gather,
    start_all_reduce,
    start_all_to_all,
    wait,
)
from .mesh import Mesh


@dataclass(frozen=True, eq=False)
class Exchange:
    """How many rows go between ranks of ep, and then to all ranks of etp.

    ``counts`` [E / ep] are the rows of each of this rank's experts, ``experts`` [n] the expert of
    each row as it came. ``sent[r]`` rows go to rank r of ep and ``received[r]`` come from it;
    ``shared[r]`` are those that rank r of etp has then. ``length``: of the exchange that gathers
    all tokens, how many each rank gives along dimension 1.
    """

    mesh: Mesh
    counts: Tensor
    experts: Tensor
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    length: int = 0
    own_length: int = 0

    @staticmethod
    def of(counts: Tensor, mesh: Mesh) -> Exchange:
        """From this rank's ``counts`` [E] of rows for each expert.

        One exchange of counts over ep and one over etp; the host waits for them once.
        """
        ep, etp = mesh.ep.size, mesh.etp.size
        came = counts
        if ep > 1:
            own = counts.shape[0] // ep
            came = wait(start_all_to_all(counts, mesh.ep, [own] * ep, [own] * ep))
        came = came.view(1, ep, -1)  # [etp, ep, E / ep]: sender and expert
        if etp > 1:
            came = wait(start_all_gather(came, mesh.etp))
        split = torch.cat((counts.view(ep, -1).sum(1), came.sum(2).flatten())).tolist()
        received = [split[ep * (1 + rank) : ep * (2 + rank)] for rank in range(etp)]
        numbers = torch.arange(came.shape[2], device=came.device).expand_as(came)
        experts = numbers.flatten().repeat_interleave(
            came.flatten(), output_size=sum(map(sum, received))
        )
        return Exchange(
            mesh,
            came.sum((0, 1)),
            experts,
            tuple(split[:ep]),
            tuple(received[mesh.etp.rank]),
            # The same number twice, once as a sum of one, confuses torch.compile.
            tuple(parts[0] if ep == 1 else sum(parts) for parts in received),
        )

    def there(self, rows: Tensor) -> Tensor:
        """Rows [n, ...], by expert, to the ranks that have these: in the order of ``experts``.

        Rows beyond those that are ``sent`` stay behind.
        """
        rows = all_to_all(rows[: sum(self.sent)], self.mesh.ep, self.received, self.sent)
        etp = self.mesh.etp
        if etp.size == 1:
            return rows
        # The same rows to every rank: uneven, so by an all-to-all of copies. How many they are
        # torch.compile knows by this number alone, not by a shape.
        count = self.shared[etp.rank]
        return all_to_all(torch.cat([rows] * etp.size), etp, self.shared, [count] * etp.size)

    def back(self, rows: Tensor) -> Tensor:
        """The reverse of ``there``; rows of several ranks of etp are parts, and summed."""
        etp = self.mesh.etp
        if etp.size > 1:
            count = self.shared[etp.rank]
            parts = all_to_all(rows, etp, [count] * etp.size, self.shared)
            rows = parts.view(etp.size, count, *rows.shape[1:]).sum(0)
        return all_to_all(rows, self.mesh.ep, self.sent, self.received)

    @staticmethod
    def of_all(x: Tensor, mesh: Mesh) -> Exchange:
        """Of all tokens x [b, t, h], of which the last ranks of tp may have fewer."""
        length = x.shape[1]
        if mesh.tp.size > 1 and not mesh.sequence_parallel:
            longest = torch.full((), length, dtype=torch.int64, device=x.device)
            length = int(wait(start_all_reduce(longest, mesh.tp, "max")))
        none = torch.empty(0, dtype=torch.int64, device=x.device)
        return Exchange(mesh, none, none, length=length, own_length=x.shape[1])

    def gathered(self, x: Tensor, fill: int = 0) -> Tensor:
        """[b, t, ...] of each rank to [b ep etp, t, ...], short ones filled up."""
        x = F.pad(x, (0, 0, 0, self.length - x.shape[1]), value=fill)
        if not x.is_floating_point():
            for axis in (self.mesh.etp, self.mesh.ep):
                x = wait(start_all_gather(x, axis)) if axis.size > 1 else x
            return x
        return all_gather(all_gather(x, 0, self.mesh.etp), 0, self.mesh.ep)

    def scattered(self, y: Tensor) -> Tensor:
        """The reverse of ``gathered``: this rank's part [b, t, h] of the sum of all ranks'."""
        y = reduce_scatter(reduce_scatter(y, 0, self.mesh.ep), 0, self.mesh.etp)
        return y.narrow(1, 0, self.own_length)
