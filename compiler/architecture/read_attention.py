"""The attentions of a module: those that were recorded, and those that a page writes out."""

from __future__ import annotations

from dataclasses import replace

from .calls import AttentionCall, ModuleCall, Value
from .handmade import handmade_attention, mask_is_causal
from .initial import is_triangle
from .latents import latents
from .run import Run
from .tree import Part


class Attentions:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.buffers = dict(run.model.named_buffers())
        self.latents = latents(run)

    def of(self, call: ModuleCall | None) -> tuple[AttentionCall, ...]:
        """The attentions of one call of a module, its own steps alone."""
        if call is None:
            return ()
        numbers = [s.attention for s in call.steps if s.attention is not None]
        found = tuple(self.with_mask(self.with_latent(n), call) for n in numbers)
        return found + tuple(handmade_attention(call, self.is_causal))

    def with_latent(self, number: int) -> AttentionCall:
        attention, latent = self.run.attention[number], self.latents.get(number)
        if latent is None:
            return attention
        return replace(
            attention,
            latent=latent.width,
            shared=latent.shared or None,
            query_latent=latent.queries,
        )

    def with_mask(self, attention: AttentionCall, call: ModuleCall) -> AttentionCall:
        """An attention under a mask, with what the mask's making says of it."""
        if attention.causal is not None:
            return attention
        for step in call.steps:
            given = dict(step.kwargs).get("attn_mask") or (*step.args, *[None] * 4)[3]
            known = step.attention is not None and isinstance(given, Value)
            if known and self.is_causal(call, given):
                return replace(attention, causal=True, masked=False)
        return attention

    def is_causal(self, call: ModuleCall, mask: Value) -> bool:
        def triangular(name: str) -> bool:
            path = f"{call.path}.{name}" if call.path else name
            buffer = self.buffers.get(path)
            return buffer is not None and is_triangle(self.run.made, buffer)

        return mask_is_causal(call, mask, triangular)

    def with_core(
        self, ran: str, children: tuple[Part, ...]
    ) -> tuple[tuple[Part, ...], tuple[AttentionCall, ...]]:
        """An attention whose inner half is a child: the facts stand at the whole."""
        found: tuple[AttentionCall, ...] = ()
        plain: list[Part] = []
        for child in children:
            if child.kind == "attention":
                path = f"{ran}.{child.name}"
                call = next(iter(self.run.calls["train"].get(path, ())), None)
                found += self.of(call)
                child = replace(child, facts=())
            plain.append(child)
        return tuple(plain), found
