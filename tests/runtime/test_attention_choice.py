"""Which kernel an attention takes: a function of device and options."""

import importlib
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from specc.runtime import Positions
from specc.runtime.attention_blockwise import blockwise
from specc.runtime.attention_choice import Options, choose, kernel_name
from specc.runtime.mesh import Axis, Mesh

CUDA = torch.device("cuda")
attention_module = importlib.import_module("specc.runtime.attention")  # the package has a function


@pytest.mark.parametrize(
    ("options", "more", "whole", "over_cp"),
    [
        ({}, {}, "sdpa", "cudnn"),
        ({"causal": False}, {}, "sdpa", "cudnn"),
        ({"window": 5}, {}, "flash", "flash"),
        ({}, {"documents": True}, "flash", "flash"),
        ({"window": 5}, {"documents": True}, "flash", "flash"),
        ({"window": 5, "causal": False}, {"documents": True}, "masked", "explicit"),
        ({}, {"sinks": True}, "cudnn", "cudnn"),
        ({"softcap": 5.0}, {}, "masked", "explicit"),
        ({}, {"mask": True}, "masked", None),
        ({"dropout": 0.5}, {}, "sdpa", "explicit"),
        ({"dropout": 0.5}, {"hashed": True}, "masked", "explicit"),
        ({"dropout": 0.5}, {"sinks": True}, "masked", "explicit"),
        ({}, {"value_dim": 64}, "sdpa", "cudnn"),
        ({}, {"value_dim": 64, "documents": True}, "flash", "flash"),
        ({}, {"value_dim": 192}, "sdpa", "explicit"),
    ],
)
def test_kernels_of_a_gpu(
    options: dict[str, Any], more: dict[str, Any], whole: str, over_cp: str | None
) -> None:
    asked = Options(**options)
    assert choose(CUDA, torch.bfloat16, 128, asked, **more) == whole
    if over_cp is not None:
        assert choose(CUDA, torch.bfloat16, 128, asked, comm="all_gather", **more) == over_cp
    slow = {"sdpa": "sdpa"}.get(whole, "masked")
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.bfloat16), ("meta", None)):
        assert choose(torch.device(device), dtype or torch.float32, 128, asked, **more) == slow


def test_what_fused_kernels_lack() -> None:
    sinks: dict[str, Any] = {"sinks": True}
    assert choose(CUDA, torch.bfloat16, 256, Options(), **sinks) == "flash"
    assert choose(CUDA, torch.bfloat16, 264, Options(), **sinks) == "masked"
    assert choose(CUDA, torch.bfloat16, 12, Options(), **sinks) == "masked"
    packed: dict[str, Any] = {"documents": True, "comm": "p2p"}
    assert choose(CUDA, torch.float16, 128, Options(), **packed) == "flash"
    assert choose(CUDA, torch.float16, 128, Options(window=9), **packed) == "explicit"


def test_the_log_names_the_kernel() -> None:
    group = cast(ProcessGroup, SimpleNamespace(group_name="unused"))
    single = Mesh.single(torch.bfloat16)
    assert "torch picks" in kernel_name("cpu", single)
    assert "cuDNN" in kernel_name("cuda", single)
    assert "flash" in kernel_name("cuda", single, documents=True)
    for comm, words in (("p2p", "cuDNN"), ("all_gather", "cuDNN"), ("a2a", "cuDNN")):
        mesh = Mesh(cp=Axis("cp", 2, 0, group), cp_comm_type=comm, dtype=torch.bfloat16)
        assert words in kernel_name("cuda", mesh)
        assert "scores" in kernel_name("cpu", mesh) or comm == "a2a"


def test_narrow_values_are_filled_up_for_a_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """And their outputs cut off: by the explicit kernel in the place of flash, on the CPU."""
    torch.manual_seed(0)
    mesh, starts = Mesh.single(), torch.tensor([[0, 0, 0, 3, 3, 3]])
    positions = Positions.of(torch.zeros(1, 6, dtype=torch.int64), mesh, starts)
    q, k = (torch.randn(1, 6, 2, 8) for _ in range(2))
    v = torch.randn(1, 6, 2, 5, requires_grad=True)
    expected = attention_module.attention(q, k, v, positions, mesh)
    (wanted,) = torch.autograd.grad(expected.square().sum(), v)
    widths = []

    def flash(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        widths.append(v.shape[-1])
        *before, kernel, comm, axis = rest
        assert kernel == "flash"
        return blockwise(q, k, v, *before, "explicit", comm, axis)

    monkeypatch.setattr(attention_module, "choose", lambda *_, **__: "flash")
    monkeypatch.setattr(attention_module, "blockwise", flash)
    y = attention_module.attention(q, k, v, positions, mesh)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
    (got,) = torch.autograd.grad(y.square().sum(), v)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    assert widths == [8]
