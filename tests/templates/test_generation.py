"""Writing token after token: what is kept of those before changes nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import VOCABULARY, config, gpt_spec
from torch import Tensor, nn

from specc.runtime import Mesh, Positions, attention
from specc.runtime.decoding import Decoding
from specc.runtime.generation import Draw, generate

ROPE = {"position_embedding_type": "rope"}
OPTIONS = {
    "learned positions": {},
    "rotary": ROPE,
    "yarn": {
        **ROPE,
        "rope_scaling": "yarn",
        "rope_scaling_factor": 2.0,
        "rope_scaling_original_max_position_embeddings": 8,
    },
    "grouped queries": {**ROPE, "num_query_groups": 2, "qk_layernorm": True},
    "window": {**ROPE, "window_size": 3},
    "window on some layers": {**ROPE, "window_size": 3, "window_attn_skip_freq": 2},
    "soft cap": {**ROPE, "attn_logit_softcapping": 2.0},
    "sinks": {**ROPE, "softmax_type": "learnable"},
    "gate": {**ROPE, "attention_output_gate": True},
}


def model(**options: object) -> nn.Module:
    torch.manual_seed(1)
    built: nn.Module = gpt_spec(config(init_method_std=0.3, **options)).build_module()
    return built.eval()


def forward(model: nn.Module, ids: list[int]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([ids]))
    return logits


@pytest.mark.parametrize("name", OPTIONS)
def test_logits_are_those_of_the_whole_text(name: str) -> None:
    decoder = model(**OPTIONS[name])
    ids = torch.randint(0, VOCABULARY, (12,), generator=torch.Generator().manual_seed(3)).tolist()
    whole, decoding = forward(decoder, ids), Decoding()
    parts = []
    for part in (ids[:4], ids[4:5], ids[5:8], ids[8:9], ids[9:]):
        with decoding.reading(len(part)):
            parts.append(forward(decoder, part))
    assert decoding.length == 12 and decoding.calls == 2
    # The same sums in another order.
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)


def test_the_same_tokens_with_and_without_a_cache() -> None:
    decoder, said = model(**ROPE, window_size=5), list[str]()
    for draw in (Draw(temperature=0), Draw(1.0, top_k=20), Draw(0.9, top_p=0.8)):
        # 14 tokens outgrow the window of 10.
        kept, anew = (
            list(generate(decoder, [3, 1], 14, draw=draw, window=10, cache=cache, say=said.append))
            for cache in (True, False)
        )
        assert kept == anew and len(kept) == 14
    assert not said


def test_a_cache_reads_each_token_once() -> None:
    decoder, lengths = model(**ROPE), list[int]()
    decoder.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    list(generate(decoder, [3, 1, 4], 5))
    assert lengths == [3, 1, 4, 1, 1, 1]  # the 4: the second token is computed both ways


class OwnAttention(nn.Module):
    """An author's own call in one layer, the runtime's in the other."""

    def __init__(self, *, kept: bool, causal: bool = True) -> None:
        super().__init__()
        self.kept, self.causal = kept, causal
        self.table = nn.Embedding(VOCABULARY, 8)

    def forward(self, input_ids: Tensor) -> Tensor:
        mesh = Mesh.single()
        x = self.table(input_ids)[:, :, None]
        x = x.transpose(1, 2)
        x = (x + F.scaled_dot_product_attention(x, x, x, is_causal=True)).transpose(1, 2)
        if self.kept:
            positions = Positions.of(input_ids, mesh)
            x = x + attention(x, x, x, positions, mesh, causal=self.causal)
        return x.flatten(2) @ self.table.weight.T


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (OwnAttention(kept=False), "nothing in the model keeps"),
        (OwnAttention(kept=True), "the logits are not those of the whole text"),
        (OwnAttention(kept=True, causal=False), "not causal"),
    ],
)
def test_what_cannot_be_kept_is_said_and_read_anew(own: nn.Module, reason: str) -> None:
    said = list[str]()
    kept = list(generate(own, [5, 2, 7], 6, draw=Draw(temperature=1.0), say=said.append))
    assert len(said) == 1 and reason in said[0]
    assert kept == list(generate(own, [5, 2, 7], 6, draw=Draw(temperature=1.0), cache=False))


def test_an_end_token_is_the_last() -> None:
    decoder = model(**ROPE)
    whole = list(generate(decoder, [3], 10))
    end = whole[4]
    assert list(generate(decoder, [3], 10, ends=frozenset([end]))) == whole[: whole.index(end) + 1]


@settings(deadline=None)
@given(
    st.lists(st.floats(-8, 8), min_size=1, max_size=12),
    st.floats(0.1, 3),
    st.integers(0, 5),
    st.floats(0.01, 1),
    st.integers(0, 2**31),
)
def test_a_draw_stays_inside_what_is_allowed(
    values: list[float], temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    logits = torch.tensor(values)
    drawn = Draw(temperature, top_k, top_p)(logits, torch.Generator().manual_seed(seed))
    probs = (logits / temperature).softmax(0)
    ahead = probs[probs > probs[drawn]]
    if top_k:
        assert len(ahead) < top_k
    else:
        assert ahead.sum() < top_p + 1e-5
    assert Draw(0)(logits, torch.Generator()) == int(logits.argmax())


def test_calls_that_change_between_forwards_are_refused() -> None:
    decoding, x = Decoding(), torch.zeros(1, 2, 1, 4)
    with decoding.reading(2):
        decoding.keep(x)
    fewer = pytest.raises(RuntimeError, match="kept what 0 calls gave it, and the first one 1")
    with fewer, decoding.reading(2):
        pass
    more = pytest.raises(RuntimeError, match="no call of the first forward")
    with more, decoding.reading(2):
        decoding.keep(x)
        decoding.keep(x)
