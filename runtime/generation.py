"""Token after token from a model: what it reads, and which token is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .decoding import Decoding
from .refusal import Refusal

# Two ways to compute the same float32 logits, as a part of the largest of them: sums over a
# vocabulary's width in another order stay far below this, another model far above.
_SAME = 1e-3


@dataclass(frozen=True)
class Draw:
    """How a token is chosen. ``temperature`` 0 takes the likeliest.

    ``top_k``: only from the so many likeliest, 0: from all; ``top_p``: only from the likeliest
    that together have this probability (arXiv 1904.09751), after ``top_k``.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0

    def __call__(self, logits: Tensor, generator: torch.Generator) -> int:
        """The token drawn from logits [v]."""
        if self.temperature == 0:
            return int(logits.argmax())
        logits = logits / self.temperature
        if 0 < self.top_k < len(logits):
            logits = logits.masked_fill(logits < logits.topk(self.top_k).values[-1], -torch.inf)
        probs = logits.softmax(0)
        if self.top_p < 1:
            ordered, order = probs.sort(descending=True)
            beyond = ordered.cumsum(0) - ordered >= self.top_p  # never the likeliest
            probs = probs.index_fill(0, order[beyond], 0.0)
        return int(torch.multinomial(probs, 1, generator=generator))


@torch.no_grad()
def generate(
    model: nn.Module,
    ids: Sequence[int],
    count: int,
    *,
    draw: Draw | None = None,
    window: int | None = None,
    known: int | None = None,
    ends: frozenset[int] = frozenset(),
    seed: int = 0,
    cache: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[int]:
    """At most ``count`` token ids that follow ``ids``, each drawn from the window before it.

    - ``window``: how many positions the model reads. What was kept of a text that outgrows it has
      places that no longer hold, so from there on every token reads its window anew;
    - ``known``: ids from there on have no text and are not drawn;
    - ``ends``: one of these ends the text; it is the last id that is given;
    - ``cache``: keep keys and values. The second token is computed both ways, and where the two
      differ (an attention of the page's own, experts with a capacity) or nothing is kept, ``say``
      is told and every token reads the whole text.

    Raises Refusal where forward without labels returns no logits [b, s, v].
    """
    generator = torch.Generator().manual_seed(seed)
    draw = draw or Draw()
    text = list(ids)
    reader: _Reader = _Keeping(model, window, say) if cache else _Reader(model, window)
    for _ in range(count):
        logits = reader.last_logits(text)
        text.append(draw(logits[:known].float().cpu(), generator))
        yield text[-1]
        if text[-1] in ends:
            return


class _Reader:
    """Reads the whole window for each token."""

    def __init__(self, model: nn.Module, window: int | None) -> None:
        self.model, self.window = model, window
        self.device = next(model.parameters()).device

    def last_logits(self, text: Sequence[int]) -> Tensor:
        """[v]: of the token that comes after the text."""
        return self._forward(text[-self.window :] if self.window else text)

    def _forward(self, ids: Sequence[int]) -> Tensor:
        logits = self.model(input_ids=torch.tensor([ids], device=self.device))
        logits = logits[0] if isinstance(logits, tuple) else logits
        if not isinstance(logits, Tensor) or logits.dim() != 3:
            raise Refusal(
                f"forward of {type(self.model).__name__} without labels returns no logits of 3 "
                "dimensions [b, s, v] to sample from."
            )
        return logits[0, -1]


class _Keeping(_Reader):
    """Reads each token once, as long as the text fits into the window."""

    def __init__(self, model: nn.Module, window: int | None, say: Callable[[str], None]) -> None:
        super().__init__(model, window)
        self.say = say
        self.decoding: Decoding | None = Decoding()
        self.compared = False

    def last_logits(self, text: Sequence[int]) -> Tensor:
        if self.window and len(text) > self.window:
            self.decoding = None
        if self.decoding is None:
            return super().last_logits(text)
        first = self.decoding.length == 0
        try:
            logits = self._next(self.decoding, text)
        except NotImplementedError as error:
            return self._give_up(text, str(error))
        if first and not self.decoding.calls:
            return self._give_up(text, "nothing in the model keeps keys and values")
        if first or self.compared:
            return logits
        self.compared = True
        whole = super().last_logits(text)
        if bool((logits - whole).abs().max() <= _SAME * whole.abs().max()):
            return logits
        return self._give_up(text, "with one the logits are not those of the whole text")

    def _next(self, decoding: Decoding, text: Sequence[int]) -> Tensor:
        new = text[decoding.length :]
        with decoding.reading(len(new)):
            return self._forward(new)

    def _give_up(self, text: Sequence[int], reason: str) -> Tensor:
        self.decoding = None
        self.say(f"no cache, every token reads the whole text: {reason}")
        return super().last_logits(text)
