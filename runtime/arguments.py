"""The command line of a training run: what each option is called, takes and means."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any


def parser(prog: str, defaults: type[Any]) -> argparse.ArgumentParser:
    """The command line; what an option that is not given means stands in its help.

    ``defaults`` has a class attribute for each option that has a default. Nothing is put in where
    an option is not given.
    """
    top = argparse.ArgumentParser(
        prog=prog,
        description="Train a page on text (`torchrun ... -m specc.runtime.train` does the same).",
        argument_default=argparse.SUPPRESS,  # the class holds the defaults
        allow_abbrev=False,
    )
    top.add_argument("page", type=Path, metavar="PAGE", help="a file that `specc compile` wrote")
    for title, options in _GROUPS.items():
        group = top.add_argument_group(title)
        for name, (kind, text) in options.items():
            default = getattr(defaults, name.replace("-", "_"), None)
            settings: dict[str, Any] = {"help": f"{text} ({default})" if default else text}
            if kind is bool:
                settings["action"] = "store_true"
            else:
                settings |= {"type": kind, "metavar": _METAVAR[kind]}
            group.add_argument(f"--{name}", **(settings | _SPECIAL.get(name, {})))
    return top


_SPECIAL: dict[str, dict[str, Any]] = {
    "data": {"action": "append", "required": True, "metavar": "[WEIGHT:]PATH"},
    "set": {"action": "append", "metavar": "FIELD=NUMBER"},
    "recompute-modules": {"metavar": "NAME,NAME"},
    "layers-per-stage": {"metavar": "N,N"},
    "timeout": {"metavar": "SECONDS"},
    "resume": {"nargs": "?", "const": None},  # None where the bare flag is given
}

_METAVAR: dict[Callable[[str], object], str] = {int: "N", float: "X", str: "NAME", Path: "PATH"}

_GROUPS: dict[str, dict[str, tuple[Callable[[str], object], str]]] = {
    "data": {
        "data": (
            str,
            "text, JSON lines, a folder of them, or the prefix of an indexed token file; "
            "given again, each with its weight: a blend",
        ),
        "text-field": (str, "the field of a JSON line that holds the text"),
        "tokenizer": (Path, "a Hugging Face tokenizers file; bytes are the tokens without one"),
        "valid-fraction": (float, "the part of the data that is held out, one sequence at least"),
        "packed-documents": (bool, "attention stays inside a document, positions begin anew in it"),
        "eod": (int, "the token that ends a document; what specc tokenize noted if not given"),
        "eod-mask-loss": (bool, "do not count the labels at these tokens"),
    },
    "model": {
        "set": (str, "another number in the page's Config; may be given again"),
        "seq-length": (int, "positions of a sequence; Config.max_position_embeddings if not given"),
        "seed": (int, "of initial values, order of the data, and dropout"),
    },
    "steps": {
        "steps": (int, "how many"),
        "micro-batch": (int, "sequences of one forward pass"),
        "global-batch": (
            int,
            "sequences of a step, to which gradients accumulate; --micro-batch x --dp if not given",
        ),
        "lr": (float, "the highest learning rate"),
        "min-lr": (float, "the last one; a tenth of --lr if not given"),
        "warmup": (int, "steps to reach --lr; a tenth of --steps, at most 100, if not given"),
        "weight-decay": (float, "of matrices; vectors do not decay"),
        "beta1": (float, "of AdamW"),
        "beta2": (float, "of AdamW"),
        "clip": (float, "the highest norm of all gradients; 0 does not clip"),
    },
    "layout": {
        "nproc": (int, "processes to start here; under torchrun it has started them"),
        "tp": (int, "processes that share each layer"),
        "sequence-parallel": (bool, "share the positions between the layers too, over --tp"),
        "cp": (int, "processes that share each sequence"),
        "cp-comm-type": (str, "how they exchange keys and values: all_gather, p2p or a2a"),
        "pp": (int, "processes that share the layers, a pipeline of stages"),
        "schedule": (str, "of the pipeline: gpipe, 1f1b, interleaved, zbv or dualpipev"),
        "stages-per-rank": (int, "with --schedule interleaved: 2 or more, 2 if not given"),
        "layers-per-stage": (str, "of each stage in order; shared out by cost if not given"),
        "ep": (
            int,
            "processes that share out the experts; they are taken from --dp, --cp and --tp",
        ),
        "etp": (int, "processes that share each expert; as --tp if not given"),
        "capacity-scope": (
            str,
            "what an expert's capacity is of: micro_batch or rank (Megatron's)",
        ),
        "moe-token-dispatcher-type": (str, "how tokens reach experts: alltoall or allgather"),
        "dp": (int, "processes that share the batch; what --tp, --cp and --pp leave if not given"),
        "dp-replicate": (int, "copies of the parameters among them; each copy is sharded"),
        "zero": (
            int,
            "what is sharded: optimizer state (1), also gradients (2), also parameters (3)",
        ),
        "no-verify": (bool, "do not compare a page of your own classes with one process first"),
        "timeout": (int, "seconds without progress after which a run of several processes ends"),
    },
    "computation": {
        "device": (str, "cpu or cuda; cuda where there is one if not given"),
        "dtype": (
            str,
            "what layers compute in, bf16 or float32; bf16 on cuda, float32 on cpu if not given",
        ),
        "compile": (bool, "compile each layer with torch.compile"),
        "recompute": (str, "what is computed again in the backward: none, selective or full"),
        "recompute-every": (int, "of so many layers the first only"),
        "recompute-modules": (
            str,
            "with selective: these modules of a layer whole, in place of cheap operations",
        ),
        "loss-chunks": (int, "pieces of the tokens that head and loss work on one after the other"),
        "deterministic": (bool, "use deterministic kernels only"),
    },
    "reports and checkpoints": {
        "log-every": (int, "steps between lines"),
        "eval-every": (int, "steps between held-out losses; 0 for the last step only"),
        "eval-batches": (int, "batches of --global-batch that a held-out loss reads"),
        "tensorboard": (Path, "a folder for TensorBoard"),
        "out": (Path, "a folder for checkpoints; the last step always writes one"),
        "save-every": (int, "steps between checkpoints; 0 for the last step only"),
        "async-save": (bool, "write checkpoints while training goes on"),
        "keep": (int, "how many checkpoints stay"),
        "resume": (Path, "go on from a checkpoint; the bare flag means the last one in --out"),
        "init": (Path, "begin with the weights of a checkpoint, imported or of another run"),
    },
}
