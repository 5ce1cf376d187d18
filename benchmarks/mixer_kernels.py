"""Times the mixers of hybrid stacks on one GPU: in plain PyTorch, compiled, and by other packages'
kernels where they are installed; forward and backward.

    python benchmarks/mixer_kernels.py --length 8192

Prints milliseconds and the memory beyond the inputs, and how far each is from the plain form in
float32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import torch
from timing import wait
from torch import Tensor

from specc.runtime import Mesh, Positions, gated_delta_rule, mixer_kernels, ssd

ALONE = Mesh.single()


def main() -> None:
    options = parser().parse_args()
    device, dtype = options.device, torch.bfloat16 if options.device == "cuda" else torch.float32
    ids = torch.zeros(options.batch, options.length, dtype=torch.int64, device=device)
    positions = Positions.of(ids, ALONE)
    torch.manual_seed(0)
    cases = {
        "state space (Nemotron-H 8B)": (
            lambda *own: ssd(*own, positions, ALONE, chunk_size=128),
            state_space_inputs(options),
            "mamba-ssm",
        ),
        "delta rule (Qwen3-Next 80B)": (
            lambda *own: gated_delta_rule(*own, positions),
            delta_rule_inputs(options),
            "flash-linear-attention",
        ),
    }
    for name, (run, inputs, package) in cases.items():
        inputs = [x.to(device) for x in inputs]
        installed = mixer_kernels.INSTALLED[package]
        mixer_kernels.INSTALLED[package] = False
        exact = results(run, inputs)
        report(f"{name}, plain", run, cast(inputs, dtype), exact)
        report(f"{name}, compiled", torch.compile(run), cast(inputs, dtype), exact)
        mixer_kernels.INSTALLED[package] = installed
        if installed and device == "cuda":
            report(f"{name}, {package}", run, cast(inputs, dtype), exact)
        else:
            print(f"{name}, {package}: not run, it is not installed or there is no GPU")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--batch", type=int, default=1)
    top.add_argument("--length", type=int, default=8192)
    top.add_argument("--device", default="cuda")
    top.add_argument("--shrink", type=int, default=1, help="divides the numbers of heads")
    return top


def state_space_inputs(options: argparse.Namespace) -> list[Tensor]:
    """8 groups of 16 heads of 64, states of 128."""
    b, s, g, m = options.batch, options.length, max(8 // options.shrink, 1), 16
    return [
        torch.randn(b, s, g, m, 64),
        torch.rand(b, s, g, m) * 0.1,
        -1 - 15 * torch.rand(g * m),
        torch.randn(b, s, g, 128) / 11,
        torch.randn(b, s, g, 128) / 11,
        torch.ones(g * m),
    ]


def delta_rule_inputs(options: argparse.Namespace) -> list[Tensor]:
    """16 query and key heads of 128, 32 value heads of 128."""
    b, s, g, m = options.batch, options.length, max(16 // options.shrink, 1), 2
    return [
        torch.randn(b, s, g, 128),
        torch.randn(b, s, g, 128),
        torch.randn(b, s, g, m, 128),
        -torch.rand(b, s, g, m),
        torch.rand(b, s, g, m),
    ]


def cast(inputs: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Activations in the training's dtype; steps, decays and what heads have in float32."""
    return [x.to(dtype) if x.dim() > 1 and x.shape[-1] >= 64 else x for x in inputs]


def results(run: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The output and the gradient by every input, for the same weights of the output's entries."""
    own = [x.detach().requires_grad_() for x in inputs]
    y = run(*own)
    generator = torch.Generator(y.device).manual_seed(1)
    weights = torch.randn(y.shape, generator=generator, device=y.device, dtype=torch.float32)
    return [y.detach(), *torch.autograd.grad(y, own, weights.to(y.dtype))]


def report(
    what: str, run: Callable[..., Tensor], inputs: Sequence[Tensor], exact: Sequence[Tensor]
) -> None:
    got = results(run, inputs)
    far = max(
        ((a.float() - b.float()).norm() / b.float().norm()).item()
        for a, b in zip(got, exact, strict=True)
    )
    cuda = inputs[0].is_cuda
    seconds, peak = [], 0.0
    for _ in range(8):
        wait(inputs[0].device.type)
        if cuda:
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            results(run, inputs)
            end.record()
            end.synchronize()
            seconds.append(begin.elapsed_time(end))
            peak = max(peak, (torch.cuda.max_memory_allocated() - before) / 2**30)
        else:
            results(run, inputs)
    ms = f"{sorted(seconds)[4]:.1f} ms, {peak:.2f} GiB, " if seconds else ""
    print(f"{what}: {ms}off by {far:.1e} at most", flush=True)


if __name__ == "__main__":
    sys.exit(main())
