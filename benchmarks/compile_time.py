"""Times `specc compile`: the golden Llama, the whole command, and stacks of 10 to 100 kinds of
layers.

    python benchmarks/compile_time.py

Seconds of CPU, since other work on a machine does not change those as it changes the clock.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "generated_examples"

HEAD = """
from specc.templates import *
from torch import nn
import torch.nn.functional as F

config = TransformerConfig(num_layers={count}, hidden_size=64, num_attention_heads=4,
    vocab_size=128, max_position_embeddings=64, position_embedding_type="rope")
"""
LAYER = '''
class Layer{i}(nn.Module):
    """Kind {i} of many."""

    def __init__(self, config, layer_number):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=1e-5)
        self.up = nn.Linear(config.hidden_size, {width}, bias={bias})
        self.down = nn.Linear({width}, config.hidden_size)
        self.layer_number = layer_number

    def forward(self, x, positions=None, rotary=None, attention_mask=None):
        h = self.norm(x)
        if {bias}:
            h = F.gelu(self.up(h))
        else:
            h = F.silu(self.up(h))
        return x + self.down(h) * {scale}
'''
TAIL = """
spec = ModuleSpec(GPTModel, params={{"config": config}}, submodules={{
    "embedding": ModuleSpec(LanguageModelEmbedding),
    "decoder": ModuleSpec(TransformerBlock, params={{"layer_specs": [{specs}]}}),
    "output_layer": ModuleSpec(OutputLayer)}})
"""


def main() -> None:
    command = _spread([_children(lambda: _command(validate=True)) for _ in range(5)])
    plain = _spread([_children(lambda: _command(validate=False)) for _ in range(5)])
    print(f"specc compile llama_spec.py: {command}; with --no-validate {plain}")
    start = time.process_time()
    import torch  # noqa: F401  # what every compile needs, timed apart

    from specc.compiler.pipeline import compile_spec
    from specc.compiler.source import _parsed

    spec = _load(EXAMPLES / "llama_spec.py").llama
    imports = time.process_time() - start
    # torch imports sympy and more at the first use of a meta kernel: another model's compile brings
    # them, and the templates' parsed source is dropped again.
    other = _load(EXAMPLES / "small_spec.py").small
    first = _timed(lambda: compile_spec(other))

    def golden(validate: bool) -> float:
        _parsed.cache_clear()
        return _timed(lambda: compile_spec(spec, validate=validate))

    print(f"imports {imports:.2f} s; a process's first compile (the small model) {first:.2f} s")
    cold = _spread([golden(False) for _ in range(5)])
    whole = _spread([golden(True) for _ in range(5)])
    print(f"golden Llama after imports: {cold}; validated {whole}")
    with tempfile.TemporaryDirectory() as folder:
        for count in (10, 20, 50, 100):
            file = Path(folder) / f"kinds_{count}.py"
            file.write_text(many_kinds(count))
            module = _load(file)
            seconds = _timed(lambda m=module: compile_spec(m.spec, validate=False))
            print(
                f"{count:4d} kinds of layers: {seconds:.2f} s, {seconds / count * 1e3:.0f} ms each"
            )


def many_kinds(count: int) -> str:
    """A spec file with so many layers, each of a class of its own."""
    layers = [
        LAYER.format(i=i, width=32 + 8 * i, bias=i % 2 == 0, scale=1 / (i + 1))
        for i in range(count)
    ]
    specs = ", ".join(f"ModuleSpec(Layer{i})" for i in range(count))
    return HEAD.format(count=count) + "".join(layers) + TAIL.format(specs=specs)


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds):.2f} s at best, median {statistics.median(seconds):.2f}"


def _timed(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _command(*, validate: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = str(Path(folder) / "llama.py")
        arguments = ["compile", str(EXAMPLES / "llama_spec.py"), "-o", page]
        arguments += [] if validate else ["--no-validate"]
        program = "from specc.compiler.cli import main; main()"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-c", program, *arguments],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )


def _children(work: Any) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


if __name__ == "__main__":
    main()
