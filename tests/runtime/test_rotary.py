"""Rotary tables and their application, against Hugging Face's functions and complex numbers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed import ProcessGroup
from transformers import LlamaConfig
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotate
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama_rotate

from specc.runtime.mesh import Axis, Mesh
from specc.runtime.positions import Positions
from specc.runtime.rotary import (
    LinearScaling,
    Llama3Scaling,
    Scaling,
    YarnScaling,
    apply_rotary,
    rotary_tables,
)

# Ours, and the same thing in the words of a Hugging Face config.
SCALINGS: list[tuple[Scaling | None, dict[str, Any] | None]] = [
    (None, None),
    (LinearScaling(4.0), {"rope_type": "linear", "factor": 4.0}),
    (
        Llama3Scaling(8.0, 1.0, 4.0, 64),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    (
        YarnScaling(16.0, 64),
        {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64},
    ),
    (
        YarnScaling(40.0, 4096, 32.0, 1.0, mscale=0.707, mscale_all_dim=0.5),
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 0.707,
            "mscale_all_dim": 0.5,
        },
    ),
    (
        YarnScaling(32.0, 4096, truncate=False),
        {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    ),
]


def close(a: Tensor, b: Tensor) -> bool:
    return bool(b.abs().max() > 0 and (a - b).abs().max() <= 1e-5 * b.abs().max())


def positions_of(length: int) -> Positions:
    return Positions.of(torch.zeros(1, length, dtype=torch.int64), Mesh.single())


def heads(length: int, head_dim: int, seed: int = 0) -> Tensor:
    return torch.randn(2, length, 3, head_dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("scaling", "hf_scaling"), SCALINGS)
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_tables_are_hugging_faces(
    scaling: Scaling | None, hf_scaling: dict[str, Any] | None, base: float
) -> None:
    length, head_dim = 300, 64
    config = LlamaConfig(  # type: ignore[no-untyped-call]
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        rope_theta=base,
        rope_scaling=hf_scaling,
        # Hugging Face takes yarn's factor as said, and warns where these two differ by another.
        max_position_embeddings=length,
    )
    x = heads(length, head_dim)
    hf_cos, hf_sin = LlamaRotaryEmbedding(config)(x, torch.arange(length)[None])
    cos, sin = rotary_tables(positions_of(length), head_dim, base, scaling=scaling)
    assert cos.dtype == sin.dtype == torch.float32
    assert (cos - hf_cos[0]).abs().max() <= 2e-5 and (sin - hf_sin[0]).abs().max() <= 2e-5
    # The attention factor: cos at position 0 is the factor itself.
    assert torch.allclose(cos[0], hf_cos[0, 0], rtol=1e-6, atol=0)

    first = x.transpose(1, 2)
    hf_x, _ = llama_rotate(first, first, hf_cos, hf_sin)  # type: ignore[no-untyped-call]
    assert close(apply_rotary(x, hf_cos[0], hf_sin[0]), hf_x.transpose(1, 2))
    assert close(apply_rotary(x, cos, sin), hf_x.transpose(1, 2))


def test_interleaved_is_gptj() -> None:
    length, head_dim, rotary_dim = 37, 16, 8
    x = heads(length, head_dim)
    table = create_sinusoidal_positions(length, rotary_dim)[None]
    sin, cos = table.chunk(2, -1)
    turned = gptj_rotate(x[..., :rotary_dim], sin, cos)
    expected = torch.cat((turned, x[..., rotary_dim:]), -1)
    tables = rotary_tables(positions_of(length), rotary_dim, 10000.0, interleaved=True)
    assert close(apply_rotary(x, *tables, interleaved=True), expected)


@given(
    half=st.integers(1, 8),
    tail=st.integers(0, 3),
    length=st.integers(1, 9),
    base=st.sampled_from([100.0, 10000.0]),
    interleaved=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_both_pairings_turn_complex_numbers(
    half: int, tail: int, length: int, base: float, interleaved: bool
) -> None:
    dim = 2 * half
    x = heads(length, dim + tail)
    tables = rotary_tables(positions_of(length), dim, base, interleaved=interleaved)
    y = apply_rotary(x, *tables, interleaved=interleaved)

    shape = (half, 2) if interleaved else (2, half)
    pair = -1 if interleaved else -2
    parts = x[..., :dim].double().view(*x.shape[:-1], *shape)
    angle = torch.arange(length).double()[:, None] * base ** (-torch.arange(half).double() / half)
    wave = torch.polar(torch.ones_like(angle), angle)[:, None]
    turned = torch.complex(parts.select(pair, 0), parts.select(pair, 1)) * wave
    expected = torch.stack((turned.real, turned.imag), pair).flatten(-2)
    assert close(y[..., :dim].double(), expected)
    assert torch.equal(y[..., dim:], x[..., dim:])


def test_bfloat16_is_rounded_once() -> None:
    x = heads(20, 16)
    tables = rotary_tables(positions_of(20), 16, 10000.0)
    y = apply_rotary(x.bfloat16(), *tables)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, apply_rotary(x.bfloat16().float(), *tables).bfloat16())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="dim=7 is odd"):
        rotary_tables(positions_of(4), 7, 10000.0)
    tables = rotary_tables(positions_of(4), 8, 10000.0)
    with pytest.raises(ValueError, match=r"4 positions x 8 channels do not fit heads of 5"):
        apply_rotary(heads(5, 8), *tables)
    with pytest.raises(ValueError, match=r"heads of 4 positions x 6 channels"):
        apply_rotary(heads(4, 6), *tables)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LinearScaling(0.0), r"LinearScaling\.factor=0\.0 has to be above 0"),
        (lambda: Llama3Scaling(8.0, 4.0, 1.0, 64), r"high_freq_factor=1\.0 .* low_freq_factor=4"),
        (lambda: Llama3Scaling(8.0, 1.0, 4.0, 0), r"original_max_position_embeddings=0"),
        (lambda: YarnScaling(8.0, 64, 1.0, 32.0), r"beta_fast=1\.0 .* beta_slow=32"),
    ],
)
def test_bad_scalings_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_positions_restart_with_documents_and_follow_the_places_of_cp() -> None:
    starts = torch.tensor([[0, 0, 0, 3, 3, 3, 3, 7], [0] * 8])
    ids = torch.zeros(2, 8, dtype=torch.int64)
    group = cast(ProcessGroup, SimpleNamespace(group_name="unused"))
    x = torch.randn(2, 8, 3, 4, generator=torch.Generator().manual_seed(5))
    cos, sin = rotary_tables(positions_of(8), 4, 10000.0)
    whole = apply_rotary(x, *rotary_tables(Positions.of(ids, Mesh.single(), starts), 4, 10000.0))
    for row in range(2):
        for place in range(8):
            at = place - int(starts[row, place])
            alone = apply_rotary(
                x[row : row + 1, place : place + 1], cos[at : at + 1], sin[at : at + 1]
            )
            assert torch.equal(whole[row, place], alone[0, 0])
    for rank in range(2):
        mesh = Mesh(cp=Axis("cp", 2, rank, group))
        positions = Positions.of(ids[:, :4], mesh, starts)
        part = apply_rotary(x[:, positions.places], *rotary_tables(positions, 4, 10000.0))
        assert torch.equal(part, whole[:, positions.places])
