"""Two shapes of the width of a 70B at two layouts each, two layers deep, and what varies them."""

from __future__ import annotations

from pathlib import Path

from one_rank import Job

from specc.compiler.generate import generate
from specc.compiler.target import parse_target
from specc.runtime.layouts import parse_layouts
from specc.runtime.recompute import Recompute

HERE = Path(__file__).parent
LLAMA = HERE.parents[1] / "generated_examples" / "llama.py"

# Llama 3 70B's numbers.
LLAMA_70B = {
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_query_groups": 8,
    "ffn_hidden_size": 28672,
    "vocab_size": 128256,
}
TP8 = "tp8 sp dp4"
TP4_CP2_HSDP = "tp4 sp cp2:all_gather dp8 replicate2"
FULL = {"recompute": Recompute("full")}
CORE = Recompute("selective", modules=("core_attn",))


def jobs(folder: Path) -> dict[str, Job]:
    """Each by its name; ``folder`` gets the page of gpt_spec.py."""
    gpt = folder / "gpt.py"
    target = parse_target("gpt_spec.py", HERE)
    gpt.write_text(generate(target, (), validate=False).compiled.body)

    def job(page: Path, layout: str, **more: object) -> Job:
        numbers = {"num_layers": 2} | (LLAMA_70B if page == LLAMA else {})
        (degrees,) = parse_layouts(layout)
        return Job(page, numbers, degrees, 8192, **more)  # type: ignore[arg-type]

    return {
        "llama": job(LLAMA, TP8),
        "llama recomputed": job(LLAMA, TP8, training=FULL),
        "llama cp": job(LLAMA, TP4_CP2_HSDP),
        "llama cp recomputed": job(LLAMA, TP4_CP2_HSDP, training=FULL),
        "gpt": job(gpt, TP8),
        "gpt recomputed": job(gpt, TP8, training=FULL),
        "gpt cp": job(gpt, TP4_CP2_HSDP),
        "gpt cp recomputed": job(gpt, TP4_CP2_HSDP, training=FULL),
        # What those leave out: the ring, heads for positions, tp without positions, ZeRO-1 and 2,
        # micro-batches, no FSDP, another rank.
        "ring": job(gpt, "tp4 sp cp4:p2p dp2", rank=11),
        "heads": job(
            LLAMA,
            "tp2 sp cp4:a2a dp2",
            training={"recompute": CORE},
            mesh={"recompute_core_attn": True},
        ),
        "zero1": job(LLAMA, "tp8 dp4 zero1", batch=2, accumulation=3),
        "zero2": job(gpt, "tp2 sp dp4 zero2", training={"recompute": Recompute("full", every=2)}),
        "no fsdp": job(gpt, "tp4 dp2 zero0"),
    }
