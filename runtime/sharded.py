"""Whether FSDP has made a DTensor of a tensor, asked without importing DTensor.

`torch.distributed.tensor` takes 0.7 s to import, and a page that is only built or compiled has no
use for it: where it was never imported, no tensor is one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def as_sharded(tensor: Tensor) -> DTensor | None:
    """The tensor itself where it is a DTensor, else None."""
    module = sys.modules.get("torch.distributed.tensor")
    kind = getattr(module, "DTensor", None)
    return tensor if kind is not None and isinstance(tensor, kind) else None
