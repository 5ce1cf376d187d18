"""Text from a checkpoint: ``specc sample PAGE CHECKPOINT --prompt TEXT``."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from . import checkpoint
from .launch import choose_device
from .mesh import Mesh
from .page import Page, load_page
from .refusal import Refusal
from .tokenizer import Tokenizer, encode, load_tokenizer
from .train import guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status: 0, or 2 where the input was refused in a sentence."""
    given = sys.argv[1:] if arguments is None else arguments
    return guarded(lambda: _main(given))


def parser(prog: str = "specc sample") -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=prog,
        description="Write text with a trained page, in one process.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("page", type=Path, metavar="PAGE", help="the page that was trained")
    top.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint or a run's --out"
    )
    add = top.add_argument
    add("--prompt", default="\n", help="text to go on from")
    add("--tokens", type=int, default=200, metavar="N", help="how many tokens to write")
    add("--temperature", type=float, default=0.8, metavar="X", help="0 takes the likeliest token")
    add("--top-k", type=int, default=0, metavar="N", help="draw from the N likeliest; 0: from all")
    add("--seed", type=int, default=0, metavar="N", help="of the draws")
    add("--tokenizer", type=Path, metavar="PATH", help="in place of the checkpoint's own copy")
    add("--device", metavar="NAME", help="cpu or cuda; cuda where there is one if not given")
    return top


def load(
    page: Page, folder: Path, *, tokenizer: Path | None = None, device: str = "cpu"
) -> tuple[nn.Module, checkpoint.Facts, Tokenizer]:
    """The trained model in eval mode, what its run was, and its tokenizer: one process, float32.

    The config is the page's with the numbers that the run was trained with. Raises Refusal where
    the checkpoint is another page's, is cut short, or is not one.
    """
    folder = checkpoint.find(folder)
    facts = checkpoint.read_facts(folder)
    if facts.page != page.body:
        raise Refusal(
            f"{folder} was trained with a page with body {facts.page}, and that of {page.path} is "
            f"{page.body}."
        )
    own = folder / "tokenizer.json"
    loaded = load_tokenizer(tokenizer or (own if own.is_file() else None))
    if f"{loaded.kind} {loaded.hash}" != facts.tokenizer:
        raise Refusal(
            f"{folder} was trained with tokenizer {facts.tokenizer}, and this one is {loaded.kind} "
            f"{loaded.hash}."
        )
    values = page.values(page.config())
    changed = {
        name: value
        for name, value in facts.config.items()
        if isinstance(value, int | float) and value != values.get(name)
    }
    mesh = Mesh.single()
    model = page.build(mesh, page.config(changed), device=device)
    checkpoint.load_model(folder, model, mesh)
    return model.eval(), facts, loaded


@torch.no_grad()
def generate(
    model: nn.Module,
    ids: Sequence[int],
    count: int,
    *,
    window: int | None = None,
    known: int | None = None,
    temperature: float = 0.8,
    top_k: int = 0,
    seed: int = 0,
) -> list[int]:
    """``count`` token ids that follow ``ids``; each is drawn from the whole window before it.

    ``window``: how many positions it reads; ``known``: ids from there on have no text and
    are not drawn. Raises Refusal where forward without labels returns no logits [b, s, v].
    """
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    text = list(ids)
    for _ in range(count):
        context = torch.tensor(text[-window:] if window else text, device=device)
        logits = model(input_ids=context[None])
        logits = logits[0] if isinstance(logits, tuple) else logits
        if not isinstance(logits, Tensor) or logits.dim() != 3:
            raise Refusal(
                f"forward of {type(model).__name__} without labels returns no logits of 3 "
                "dimensions [b, s, v] to sample from."
            )
        text.append(_draw(logits[0, -1, :known].float().cpu(), temperature, top_k, generator))
    return text[len(ids) :]


def _draw(logits: Tensor, temperature: float, top_k: int, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    if 0 < top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    return int(torch.multinomial((logits / temperature).softmax(0), 1, generator=generator))


def _main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    for name, least in (("tokens", 1), ("temperature", 0), ("top_k", 0)):
        if getattr(options, name) < least:
            raise Refusal(f"--{name.replace('_', '-')} {getattr(options, name)} is below {least}.")
    if not math.isfinite(options.temperature):
        raise Refusal(f"--temperature {options.temperature} is no finite number.")
    device = choose_device(options.device)
    page = load_page(options.page)
    model, facts, tokenizer = load(
        page, options.checkpoint, tokenizer=options.tokenizer, device=device
    )
    ids = encode(tokenizer, [options.prompt])[0].tolist()
    if not ids:
        raise Refusal("--prompt has 0 tokens; sampling begins after one at least.")
    new = generate(
        model,
        ids,
        options.tokens,
        window=facts.seq_length,  # what lies beyond it was never trained
        known=tokenizer.size,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    # A character that ends cut off in the middle shows as a replacement mark.
    print(tokenizer.decode([*ids, *new]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
