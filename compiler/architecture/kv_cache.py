"""What generation keeps of a sequence: the keys and values of each attention."""

from __future__ import annotations

from .flops import mixes_places, not_of_the_sequence
from .latents import latents
from .run import Run


class NothingSaysError(Exception):
    """The run does not say what would be kept; the message why."""


def bytes_per_token(run: Run, size: int) -> int:
    """What one more token adds while no window is full: groups * (d + d_v) numbers of `size` bytes
    for each attention (Shazeer, arXiv 1911.02150; Ainslie et al., arXiv 2305.13245). Of latent
    attention the latent, and the keys' part that all heads share (arXiv 2405.04434, section 2.1).

    Raises NothingSaysError where a model has no attention, computes one by hand, or attends other
    places than those of the sequence.
    """
    return _bytes(run, size, length=1)


def bytes_of_sequence(run: Run, size: int) -> int:
    """Of a whole sequence of `run.length` places: an attention with a window keeps as many places
    as its window is wide. Raises as `bytes_per_token`.
    """
    return _bytes(run, size, run.length)


def _bytes(run: Run, size: int, length: int) -> int:
    by_hand = next((one.path for one in run.operations if mixes_places(one, run)), None)
    if by_hand is not None:
        raise NothingSaysError(
            f"{by_hand or 'the model'} computes attention by matrix products, and nothing says "
            "what of it is kept"
        )
    attention = [(n, call) for n, call in enumerate(run.attention) if call.phase == "train"]
    if not attention:
        raise NothingSaysError("no attention was seen, and nothing says what else is kept")
    for _, call in attention:
        if why := not_of_the_sequence(call, run):
            raise NothingSaysError(f"{why}, and nothing says which are kept")
    narrow = latents(run)
    total = 0
    for number, call in attention:
        kept = call.groups * (call.head_dim + call.value_dim)
        if number in narrow:
            kept = narrow[number].width + narrow[number].shared
        total += run.times(call.path) * kept * size * min(length, call.window or length)
    return total
