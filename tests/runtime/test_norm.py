"""Norms, against torch's modules and Gemma's zero-centred one."""

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

from specc.runtime.materialize import materialize
from specc.runtime.mesh import Mesh
from specc.runtime.norm import LayerNorm, RMSNorm
from specc.runtime.parameters import Constant, parameter_table

SIZE = 24


def filled(norm: nn.Module, seed: int = 1, scale: float = 0.5) -> nn.Module:
    """The norm with storage and values that a wrong formula would show."""
    norm.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(scale * torch.randn(SIZE, generator=generator))
    return norm


def hidden() -> Tensor:
    return 3 * torch.randn(2, 5, SIZE, generator=torch.Generator().manual_seed(0)) + 1


def same(ours: nn.Module, theirs: nn.Module, x: Tensor) -> None:
    """Output and gradients, of x and of every parameter."""
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    results = []
    for norm in (ours, theirs):
        leaf = x.clone().requires_grad_()
        y = norm(leaf)
        y.backward(grad.to(y.dtype))
        results.append([y.detach(), leaf.grad, *(p.grad for p in norm.parameters())])
    for a, b in zip(*results, strict=True):
        assert a is not None and b is not None and a.dtype == b.dtype
        assert b.abs().max() > 0 and (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_layer_norm_is_torchs() -> None:
    ours, theirs = filled(LayerNorm(SIZE, 1e-3)), nn.LayerNorm(SIZE, 1e-3)
    theirs.load_state_dict(ours.state_dict())
    same(ours, theirs, hidden())


def test_rms_norm_is_torchs() -> None:
    ours, theirs = filled(RMSNorm(SIZE, 1e-3)), nn.RMSNorm(SIZE, 1e-3)
    theirs.load_state_dict(ours.state_dict())
    same(ours, theirs, hidden())


def test_zero_centered_rms_norm_is_gemmas() -> None:
    ours, theirs = filled(RMSNorm(SIZE, 1e-3, zero_centered=True)), GemmaRMSNorm(SIZE, 1e-3)
    theirs.load_state_dict(ours.state_dict())
    same(ours, theirs, hidden())


def test_zero_centered_layer_norm_adds_one() -> None:
    ours, theirs = filled(LayerNorm(SIZE, 1e-3, zero_centered=True)), nn.LayerNorm(SIZE, 1e-3)
    state = ours.state_dict()
    theirs.load_state_dict({"weight": 1 + state["weight"], "bias": state["bias"]})
    same(ours, theirs, hidden())


def test_zero_centered_keeps_small_weights_in_bfloat16() -> None:
    """1 + 0.001 is 1 in bfloat16; the weight has to act before the rounding."""
    x = hidden().bfloat16()
    for kind in (RMSNorm, LayerNorm):
        plain = kind(SIZE, zero_centered=True).to_empty(device="cpu")
        moved = kind(SIZE, zero_centered=True).to_empty(device="cpu")
        with torch.no_grad():
            for parameter in (*plain.parameters(), *moved.parameters()):
                parameter.zero_()
            moved.weight.fill_(0.003)
        assert not torch.equal(plain(x), moved(x))


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("zero_centered", [False, True])
def test_statistics_are_float32_in_bfloat16(
    kind: type[LayerNorm] | type[RMSNorm], zero_centered: bool
) -> None:
    norm = filled(kind(SIZE, zero_centered=zero_centered))
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(parameter.bfloat16())  # so that casting the weights loses nothing
    x = hidden().bfloat16()
    y = norm(x)
    assert y.dtype == torch.bfloat16
    exact = norm(x.float())
    # One rounding to bfloat16's 8 bits: statistics in bfloat16 would be ten times off.
    assert ((y.float() - exact).abs() <= 2**-8 * exact.abs() + 1e-6).all()


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("zero_centered", [False, True])
def test_laws(kind: type[LayerNorm] | type[RMSNorm], zero_centered: bool) -> None:
    table = parameter_table(kind(SIZE, zero_centered=zero_centered))
    assert table["weight"].law == Constant(0.0 if zero_centered else 1.0)
    assert all(record.shape == (SIZE,) and record.dim is None for record in table.values())
    if kind is LayerNorm:
        assert table["bias"].law == Constant(0.0)
    made = materialize(lambda: kind(SIZE, zero_centered=zero_centered), Mesh.single())
    assert (made.weight == (0.0 if zero_centered else 1.0)).all()
