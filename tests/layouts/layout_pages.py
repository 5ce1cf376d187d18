"""The pages that are run at every layout, each compiled from its spec, small."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from specc.compiler.generate import generate
from specc.compiler.target import parse_target

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "generated_examples"

# The vocabulary is prime: every tp pads it.
_LLAMA = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_query_groups": 4,
    "ffn_hidden_size": 96,
    "vocab_size": 131,
    "max_position_embeddings": 16,
    "init_method_std": 0.1,
}
_SEED = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": 16,
    "vocab_size": 131,
}


def llama(folder: Path) -> str:
    """The golden Llama."""
    sizes = [f"config.{name}={value}" for name, value in _LLAMA.items()]
    return _compiled(EXAMPLES / "llama_spec.py", "", *sizes)


def seed(folder: Path) -> str:
    """The seed's example, with other numbers at the top of its file."""
    text = (EXAMPLES / "diy_gpt_spec.py").read_text(encoding="utf-8")
    for name, value in _SEED.items():
        text, count = re.subn(rf"^{name} = \d+", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    file = folder / "seed_spec.py"
    file.write_text(text)
    return _compiled(file, ":diy_simple_gpt_spec")


def user(folder: Path) -> str:
    """A user's class, plain modules inside."""
    return _compiled(HERE / "user_decoder_spec.py", ":user_decoder")


def gpt2(folder: Path) -> str:
    """GPT-2's shape: biases, learned positions, tied embeddings."""
    return _compiled(HERE / "options_spec.py", ":gpt2")


def sinks(folder: Path) -> str:
    """Queries and keys normed, windows, sinks."""
    return _compiled(HERE / "options_spec.py", ":sinks")


def learned(folder: Path) -> str:
    """Options, with learned positions and tied embeddings."""
    return _compiled(HERE / "options_spec.py", ":learned")


def rotary(folder: Path) -> str:
    """Options, with rotary positions and grouped queries."""
    return _compiled(HERE / "options_spec.py", ":rotary")


def deepseek(folder: Path) -> str:
    """Latent attention, a dense layer and three with experts."""
    return _compiled(HERE / "deepseek_spec.py", ":deepseek")


def hybrid(folder: Path) -> str:
    """A stack of Mamba-2, linear attention, attention, an MLP and experts."""
    return _compiled(HERE / "hybrid_spec.py", ":hybrid")


PAGES: dict[str, Callable[[Path], str]] = {
    make.__name__: make for make in (llama, gpt2, sinks, seed, user, learned, rotary)
}

# Their routers need all micro-batches in the one process, too: `routed_step` runs them.
ROUTED: dict[str, Callable[[Path], str]] = {make.__name__: make for make in (deepseek, hybrid)}


def _compiled(file: Path, name: str, *overrides: str) -> str:
    target = parse_target(f"{file.name}{name}", file.parent)
    return generate(target, overrides, validate=False).compiled.body
