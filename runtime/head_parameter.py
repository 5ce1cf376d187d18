"""A parameter with one number for each head of a mixer."""

from __future__ import annotations

from torch import nn

from .linear import local_parameter
from .mesh import Mesh
from .parameters import Law, ParameterRecord, declare


def head_parameter(module: nn.Module, name: str, heads: int, mesh: Mesh, law: Law) -> nn.Parameter:
    """The module's new parameter, float32 [heads / tp], with initial values by ``law``.

    Raises ValueError where tp does not divide the heads.
    """
    if heads % mesh.tp.size:
        raise ValueError(f"tp={mesh.tp.size} does not divide {heads} heads")
    parameter = local_parameter(heads // mesh.tp.size)
    module.register_parameter(name, parameter)
    declare(module, name, ParameterRecord((heads,), dim=0, law=law))
    return parameter
