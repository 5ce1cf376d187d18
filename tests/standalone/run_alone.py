"""Runs pages where specc cannot be imported: `python run_alone.py FOLDER`.

FOLDER/given.pt has for each page its text, the fields of its config, its weights and tokens;
FOLDER/found.pt is written with what it computes of them. The main program, and a module of the
tests, whose `numbers` both sides use.
"""

from __future__ import annotations

import importlib.abc
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class NoSpecc(importlib.abc.MetaPathFinder):
    """Makes every import of specc fail."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "specc":
            raise ModuleNotFoundError(f"No module named {name!r}")


def numbers(model: nn.Module, tokens: Tensor) -> dict[str, Any]:
    """Logits, what the model gives with labels, and the gradients of that, in eval mode.

    `tokens` are [b, s + 1]: inputs and, shifted, labels.
    """
    model.eval()
    ids, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    logits, loss = model(input_ids=ids), model(input_ids=ids, labels=labels)
    total = loss[0] if isinstance(loss, tuple) else loss.sum()
    total.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    return {"logits": logits.detach(), "loss": torch.as_tensor(total).detach(), "all": [
        t.detach() for t in (loss if isinstance(loss, tuple) else (loss,))
    ], "gradients": gradients}  # fmt: skip


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    sys.meta_path.insert(0, NoSpecc())
    found = {}
    for name, given in torch.load(folder / "given.pt").items():
        module = types.ModuleType("alone")
        sys.modules["alone"] = module  # dataclasses look there
        exec(compile(given["text"], name, "exec"), vars(module))
        config = module.Config(**given["sizes"])
        with torch.device("meta"):
            assert all(p.is_meta for p in module.build_model(config).parameters()), name
        model = module.build_model(config)
        drawn = {n: (p.mean().item(), p.std().item()) for n, p in model.named_parameters()}
        model.load_state_dict(given["state"])
        found[name] = numbers(model, given["tokens"]) | {"drawn": drawn}
    assert not any(module.partition(".")[0] == "specc" for module in sys.modules)
    torch.save(found, folder / "found.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
