"""Text from a checkpoint: ``specc sample PAGE CHECKPOINT --prompt TEXT``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from . import checkpoint
from .generation import Draw, generate
from .launch import choose_device
from .mesh import Mesh
from .page import Page, load_page
from .refusal import Refusal
from .tokenizer import Tokenizer, encode, load_tokenizer
from .train import guarded

GENERATION = "generation_config.json"  # as Hugging Face has it; in an imported checkpoint


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
    add("--top-p", type=float, default=1.0, metavar="X", help="draw from the likeliest of this sum")
    add("--seed", type=int, default=0, metavar="N", help="of the draws")
    add("--end", nargs="*", metavar="TOKEN", help="stop after one of these; default: as imported")
    add("--no-cache", action="store_true", help="read all tokens anew for each")
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


def end_tokens(folder: Path, tokenizer: Tokenizer, named: Sequence[str] | None) -> frozenset[int]:
    """The ids that end a text: those ``named``, else what the checkpoint says of itself.

    An imported checkpoint has the ``eos_token_id`` of its generation_config.json; one that was
    trained here says nothing. Raises Refusal for a token that the tokenizer does not know.
    """
    if named is None:
        file = checkpoint.find(folder) / GENERATION
        given = json.loads(file.read_text())["eos_token_id"] if file.is_file() else []
        return frozenset(given if isinstance(given, list) else [given])
    found = {text: tokenizer.id_of(text) for text in named}
    for text, id in found.items():
        if id is None:
            raise Refusal(f"--end {text!r} is no token of the tokenizer.")
    return frozenset(id for id in found.values() if id is not None)


def _main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    for name, least in (("tokens", 1), ("temperature", 0), ("top_k", 0)):
        if getattr(options, name) < least:
            raise Refusal(f"--{name.replace('_', '-')} {getattr(options, name)} is below {least}.")
    if not 0 < options.top_p <= 1:
        raise Refusal(f"--top-p {options.top_p} is not in (0, 1].")
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
        draw=Draw(options.temperature, options.top_k, options.top_p),
        window=facts.seq_length,  # what lies beyond it was never trained
        known=tokenizer.size,
        ends=end_tokens(options.checkpoint, tokenizer, options.end),
        seed=options.seed,
        cache=not options.no_cache,
        say=lambda reason: print(reason, file=sys.stderr),
    )
    # A character that ends cut off in the middle shows as a replacement mark.
    print(tokenizer.decode([*ids, *new]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
