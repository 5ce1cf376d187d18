"""What generation keeps of a sequence: keys and values of attentions, states of recurrences."""

from __future__ import annotations

from specc.runtime import CausalConv1d

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


def bytes_of_state(run: Run, size: int) -> int:
    """What recurrences keep of a sequence, however long it is: their heads' states in float32, in
    which they are computed, and of the convolutions beside them the last inputs, in `size` bytes
    (arXiv 2405.21060; arXiv 2412.06464).
    """
    total = 0
    for call in (one for one in run.recurrences if one.phase == "train"):
        mixer = run.model.get_submodule(call.path)
        short = [m for m in mixer.children() if isinstance(m, CausalConv1d)]
        inputs = sum((conv.kernel_size - 1) * conv.channels for conv in short)
        total += run.times(call.path) * (4 * call.state + size * inputs)
    return total


def _bytes(run: Run, size: int, length: int) -> int:
    by_hand = next((one.path for one in run.operations if mixes_places(one, run)), None)
    if by_hand is not None:
        raise NothingSaysError(
            f"{by_hand or 'the model'} computes attention by matrix products, and nothing says "
            "what of it is kept"
        )
    attention = [(n, call) for n, call in enumerate(run.attention) if call.phase == "train"]
    if not attention and not run.recurrences:
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
