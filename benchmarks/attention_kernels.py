"""Times PyTorch's attention kernels on this GPU, in the layout in which the runtime calls them.

    python benchmarks/attention_kernels.py

Causal attention in bf16, grouped queries, q from [b, s, n, d]: forward, and forward with backward.
Beside the times: which kernel PyTorch takes by itself, and the error of each against float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

KERNELS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
FLOP = {"forward": 4, "both": 14}  # per score and channel: 2 products, or 7 with the backward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16384, help="in a batch, at least one row")
    parser.add_argument("--lengths", type=int, nargs="*", default=[2048, 8192, 32768])
    parser.add_argument("--dims", type=int, nargs="*", default=[64, 128])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print("| d | s | b | kernel | forward ms | TFLOP/s | with backward ms | TFLOP/s | error |")
    print("|---" * 9 + "|")
    for d in options.dims:
        for s in options.lengths:
            b = max(1, options.tokens // s)
            tensors = inputs(b, s, options.heads, options.groups, d, options.device)
            picked = chosen(*tensors[:3])
            for name, kernel in available(options.device).items():
                mark = f"{name} (chosen)" if kernel == picked else name
                print(row(mark, kernel, tensors, options.repeats), flush=True)


def available(device: str) -> dict[str, SDPBackend]:
    return KERNELS if device == "cuda" else {"flash": SDPBackend.FLASH_ATTENTION}


def inputs(b: int, s: int, n: int, g: int, d: int, device: str) -> tuple[Tensor, ...]:
    """q, k, v and the gradient of y: [b, heads, s, d] seen from [b, s, heads, d]."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(heads: int) -> Tensor:
        values = torch.randn((b, s, heads, d), generator=generator, device=device)
        return values.bfloat16().transpose(1, 2)

    q, k, v = (draw(heads).requires_grad_() for heads in (n, g, g))
    return q, k, v, draw(n)


def chosen(q: Tensor, k: Tensor, v: Tensor) -> SDPBackend:
    """The kernel that PyTorch takes where nobody asks for one."""
    number = torch._fused_sdp_choice(q, k, v, is_causal=True, enable_gqa=True)
    return next(backend for backend in SDPBackend.__members__.values() if int(backend) == number)


def row(name: str, kernel: SDPBackend, tensors: tuple[Tensor, ...], repeats: int) -> str:
    q, k, v, dy = tensors
    b, n, s, d = q.shape

    def forward() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def both() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), (q, k, v), dy)

    cells = [f"{d}", f"{s}", f"{b}", name]
    with sdpa_kernel([kernel]):
        for what, call in (("forward", forward), ("both", both)):
            seconds = timed(call, repeats, q.device.type)
            operations = FLOP[what] * b * n * s * s * d / 2  # a causal row sees half on average
            cells += [f"{seconds * 1e3:.2f}", f"{operations / seconds / 1e12:.0f}"]
        error = worst([forward(), *both()], exact(q, k, v, dy)) if s <= 2048 else None
    cells.append("" if error is None else f"{error:.1e}")
    return "| " + " | ".join(cells) + " |"


def exact(q: Tensor, k: Tensor, v: Tensor, dy: Tensor) -> list[Tensor]:
    """y and the gradients in float32, one row of the batch after the other."""
    parts = []
    with sdpa_kernel([SDPBackend.MATH]):
        for i in range(q.shape[0]):
            one = [t[i : i + 1].detach().float().requires_grad_() for t in (q, k, v)]
            y = F.scaled_dot_product_attention(*one, is_causal=True, enable_gqa=True)
            parts.append([y.detach(), *torch.autograd.grad(y, one, dy[i : i + 1].float())])
    return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]


def worst(found: list[Tensor], right: list[Tensor]) -> float:
    """The largest relative error (Frobenius) of y, dq, dk and dv."""
    pairs = zip(found, right, strict=True)
    return max(float((a.detach().float() - b).norm() / b.norm()) for a, b in pairs)


def timed(call: Callable[[], object], repeats: int, device: str) -> float:
    """Seconds of a call: the median, by the GPU's own clock where there is one."""
    for _ in range(2):
        call()
    seconds = []
    for _ in range(repeats):
        if device != "cuda":
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
