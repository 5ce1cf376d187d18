"""The base of template classes."""

from __future__ import annotations

from torch import nn

from .config import ModelParallelConfig


class MegatronModule(nn.Module):
    """A module that keeps its config."""

    def __init__(self, config: ModelParallelConfig) -> None:
        super().__init__()
        self.config = config
