"""Whether a page is its spec's model, bit for bit: apart from the compiler's own validation."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from torch import Tensor, nn

from specc.compiler.pipeline import compile_spec
from specc.runtime import Mesh, set_dropout_step
from specc.templates import ModuleSpec


def load_page(text: str, name: str = "page_under_test") -> Any:
    """The page as a module; its text stays visible to tracebacks and to dataclasses."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    # The page states its own `from __future__`, and must not have this file's.
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), vars(module))
    return module


def run(
    model: nn.Module, inputs: dict[str, Tensor], *, steps: int = 2, lr: float = 0.5
) -> dict[str, Tensor]:
    """Everything that two train steps and one eval of a model produce, by name."""
    state = model.state_dict().items()
    seen: dict[str, Tensor] = {f"initial {n}": p.detach().clone() for n, p in state}
    model.train()
    for step in range(steps):
        torch.manual_seed(100 + step)
        set_dropout_step(model, seed=1, step=step, first_sequence=0)
        model.zero_grad()
        output = model(**inputs)
        parts = output if isinstance(output, tuple) else (output,)
        for i, part in enumerate(parts):
            seen[f"step {step} output {i}"] = part.detach().clone()
        parts[0].float().sum().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                seen[f"step {step} grad {name}"] = parameter.grad.clone()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= lr * parameter.grad / (1e-6 + parameter.grad.norm()) * 0.1
    model.eval()
    with torch.no_grad():
        output = model(**{k: v for k, v in inputs.items() if k != "labels"})
    for i, part in enumerate(output if isinstance(output, tuple) else (output,)):
        seen[f"eval output {i}"] = part.clone()
    return seen


def token_inputs(vocab: int, batch: int = 2, length: int = 12, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (batch, length + 1), generator=generator)
    labels = ids[:, 1:].clone()
    labels[:, :3] = -100
    return {"input_ids": ids[:, :-1].contiguous(), "labels": labels}


def assert_same(seen: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(seen) == list(expected)
    for name, value in expected.items():
        assert seen[name].dtype == value.dtype and seen[name].shape == value.shape, name
        assert torch.equal(seen[name], value), f"{name}: {(seen[name] - value).abs().max()}"


def assert_page_equals_spec(
    spec: ModuleSpec, inputs: dict[str, Tensor], text: str | None = None
) -> str:
    """Compile, run both, compare every tensor; returns the page's body."""
    body = compile_spec(spec, validate=False).body if text is None else text
    expected = run(spec.build_module(seed=3), inputs)
    page = load_page(body)
    seen = run(page.build_model(Mesh.single(), seed=3), inputs)
    assert_same(seen, expected)
    assert any(v.abs().sum() > 0 for n, v in expected.items() if "grad" in n)
    return body
