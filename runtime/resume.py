"""Which checkpoint a run goes on from."""

from __future__ import annotations

from pathlib import Path

from . import checkpoint
from .launch import Job
from .options import Options
from .refusal import Refusal


def resumed(
    options: Options, now: checkpoint.Facts, job: Job | None
) -> tuple[Path, checkpoint.Facts] | None:
    """The checkpoint to go on from and what it says of its run; None for a run from the start.

    Where torchrun has started the job anew, the newest that the job itself wrote to --out, if
    there is one; else what --resume names. Raises Refusal where that is no checkpoint of this run,
    or going on from it would leave later ones behind.
    """
    out = options.out
    newest = checkpoint.newest_step(out) if out else None
    own = None
    if job is not None and job.restarts and newest is not None and out is not None:
        folder = checkpoint.find(out)
        facts = checkpoint.read_facts(folder)
        # A first attempt that was refused, since --out holds another run, stays refused.
        own = folder if facts.written_at.get("job") == job.name else None
    if own is None:
        if options.resume is None:
            if newest is not None:
                raise Refusal(
                    f"{out} holds a checkpoint of step {newest} and this run begins at step 0: add "
                    "--resume, or take another --out."
                )
            return None
        folder = checkpoint.find(options.resume)
        facts = checkpoint.read_facts(folder)
    checkpoint.refuse_another_run(facts, now, folder)
    if facts.step >= options.steps and own is None:
        raise Refusal(f"{folder} has taken {facts.step} steps, and --steps is {options.steps}.")
    if newest is not None and newest > facts.step:
        raise Refusal(
            f"{out} holds a checkpoint of step {newest}, which is beyond the step {facts.step} "
            f"of {folder}: remove it, or take another --out."
        )
    return folder, facts
