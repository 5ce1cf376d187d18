"""An independent decoder in plain float64 PyTorch, written from the papers' formulas.

It takes the parameters by name and the config; it shares no code with the library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from specc.templates import TransformerConfig

Weights = Mapping[str, Tensor]


def logits(weights: Weights, config: TransformerConfig, ids: Tensor) -> Tensor:
    """[b, s] -> [b, s, v]."""
    x = weights["embedding.word_embeddings.weight"][ids] * (config.embedding_multiplier or 1)
    if config.position_embedding_type in (None, "learned_absolute"):
        x = x + weights["embedding.position_embeddings.weight"][: ids.shape[1]]
    for i in range(config.num_layers):
        layer = f"decoder.layers.{i}."
        y = norm(weights, config, layer + "input_layernorm", x)
        attended = (config.residual_multiplier or 1) * attend(
            weights, config, layer + "self_attention.", y, i + 1
        )
        seen = x if config.parallel_attention_mlp else x + attended
        if not config.parallel_shared_layernorm:
            y = norm(weights, config, layer + "pre_mlp_layernorm", seen)
        made = feed_forward(weights, config, layer + "mlp.", y)
        x = x + attended + (config.residual_multiplier or 1) * made
    x = norm(weights, config, "decoder.final_layernorm", x)
    tied = not config.untie_embeddings_and_output_weights
    head = "embedding.word_embeddings.weight" if tied else "output_layer.weight"
    found = (config.logits_multiplier or 1) * (x @ weights[head].T)
    if config.output_layer_bias:
        found = found + weights["output_layer.bias"]
    if config.final_logit_softcapping is not None:
        cap = config.final_logit_softcapping
        found = cap * torch.tanh(found / cap)
    return found


def norm(weights: Weights, config: TransformerConfig, name: str, x: Tensor) -> Tensor:
    weight = weights[name + ".weight"]
    if config.layernorm_zero_centered_gamma:
        weight = 1 + weight
    if config.normalization == "RMSNorm":
        return x / (x.square().mean(-1, keepdim=True) + config.layernorm_epsilon).sqrt() * weight
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + config.layernorm_epsilon).sqrt()
    bias = weights[name + ".bias"] if config.layernorm_bias else 0
    return x * weight + bias


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    y = x @ weights[name + ".weight"].T
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def attend(
    weights: Weights, config: TransformerConfig, name: str, x: Tensor, layer_number: int
) -> Tensor:
    b, s, _ = x.shape
    n = config.num_attention_heads
    d = config.kv_channels or x.shape[-1] // n
    g = config.num_query_groups or n
    per = n // g
    rows = linear(weights, name + "linear_qkv", x).view(b, s, g, -1, d)
    q = rows[:, :, :, :per].reshape(b, s, n, d)
    k, v = rows[:, :, :, -2], rows[:, :, :, -1]
    if config.qk_layernorm:
        q = norm(weights, config, name + "q_layernorm", q)
        k = norm(weights, config, name + "k_layernorm", k)
    if config.clip_qkv is not None:
        q, k, v = (t.clamp(-config.clip_qkv, config.clip_qkv) for t in (q, k, v))
    if config.position_embedding_type == "rope":
        local = config.rotary_base_local is not None and windowed(config, layer_number)
        q, k = rotate(config, q, local), rotate(config, k, local)
    k, v = k.repeat_interleave(per, 2), v.repeat_interleave(per, 2)

    scale = config.softmax_scale or 1 / math.sqrt(d)
    scores = torch.einsum("bind,bjnd->bnij", q, k) * scale
    if config.attn_logit_softcapping is not None:
        cap = config.attn_logit_softcapping
        scores = cap * torch.tanh(scores / cap)
    row, column = torch.arange(s)[:, None], torch.arange(s)[None, :]
    barred = column > row
    if config.window_size is not None and windowed(config, layer_number):
        barred = barred | (row - column >= config.window_size)
    scores = scores.masked_fill(barred, -math.inf)
    if config.softmax_type != "vanilla":
        learned = config.softmax_type == "learnable"
        sink = weights[name + "softmax_offset"] if learned else scores.new_zeros(n)
        column_of_sinks = sink.view(1, n, 1, 1).expand(b, n, s, 1)
        scores = torch.cat((scores, column_of_sinks), -1)
    y = torch.einsum("bnij,bjnd->bind", scores.softmax(-1)[..., :s], v)
    if config.attention_output_gate:
        y = y * rows[:, :, :, per : 2 * per].reshape(b, s, n, d).sigmoid()
    return linear(weights, name + "linear_proj", y.flatten(2))


def windowed(config: TransformerConfig, layer_number: int) -> bool:
    pattern = config.window_attn_skip_freq
    if pattern is None:
        return True
    if isinstance(pattern, tuple):
        return bool(pattern[layer_number - 1])
    return layer_number % pattern != 0


def rotate(config: TransformerConfig, x: Tensor, local: bool) -> Tensor:
    """Each pair of channels as a complex number, times e^(i position frequency)."""
    d = int(x.shape[-1] * (config.rotary_percent or 1.0))
    base = config.rotary_base_local if local and config.rotary_base_local else config.rotary_base
    frequency = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    size = 1.0
    if local:
        pass
    elif config.rope_scaling == "linear":
        frequency = frequency / config.rope_scaling_factor
    elif config.rope_scaling == "llama3":
        frequency = llama3(config, frequency)
    elif config.rope_scaling == "yarn":
        frequency, size = yarn(config, frequency, d)
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * frequency
    turn = torch.polar(torch.full_like(angle, size), angle)[None, :, None]
    head, tail = x[..., :d], x[..., d:]
    if config.rotary_interleaved:
        pairs = torch.complex(head[..., 0::2], head[..., 1::2]) * turn
        head = torch.stack((pairs.real, pairs.imag), -1).flatten(-2)
    else:
        pairs = torch.complex(head[..., : d // 2], head[..., d // 2 :]) * turn
        head = torch.cat((pairs.real, pairs.imag), -1)
    return torch.cat((head, tail), -1)


def llama3(config: TransformerConfig, frequency: Tensor) -> Tensor:
    factor = config.rope_scaling_factor
    length = config.rope_scaling_original_max_position_embeddings
    low, high = config.rope_scaling_low_freq_factor, config.rope_scaling_high_freq_factor
    out = []
    for f in frequency.tolist():
        wavelength = 2 * math.pi / f
        if wavelength < length / high:
            out.append(f)
        elif wavelength > length / low:
            out.append(f / factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return frequency.new_tensor(out)


def yarn(config: TransformerConfig, frequency: Tensor, d: int) -> tuple[Tensor, float]:
    factor = config.rope_scaling_factor
    length = config.rope_scaling_original_max_position_embeddings
    ends = []
    for turns in (config.yarn_beta_fast, config.yarn_beta_slow):
        wavelength = length / (turns * 2 * math.pi)
        ends.append(d * math.log(wavelength) / (2 * math.log(config.rotary_base)))
    low, high = ends
    if config.yarn_truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    ramp = [min(max((i - low) / (high - low), 0), 1) for i in range(d // 2)]
    scaled = [(r / factor + (1 - r)) * f for r, f in zip(ramp, frequency.tolist(), strict=True)]
    growth = 0.1 * math.log(factor)
    size = (config.yarn_mscale * growth + 1) / (config.yarn_mscale_all_dim * growth + 1)
    return frequency.new_tensor(scaled), size


def feed_forward(weights: Weights, config: TransformerConfig, name: str, x: Tensor) -> Tensor:
    h = linear(weights, name + "linear_fc1", x)
    if config.activation in ("swiglu", "geglu", "geglu_tanh", "quick_geglu"):
        gate, up = h[..., 0::2], h[..., 1::2]
        if config.activation == "quick_geglu":
            if config.activation_func_clamp_value is not None:
                most = config.activation_func_clamp_value
                gate, up = gate.clamp(max=most), up.clamp(-most, most)
            h = gate / (1 + torch.exp(-1.702 * gate)) * (up + config.glu_linear_offset)
        elif config.activation == "swiglu":
            h = gate * gate.sigmoid() * up
        else:
            h = gelu(gate, tanh=config.activation == "geglu_tanh") * up
    elif config.activation == "squared_relu":
        h = h.clamp(min=0) ** 2
    else:
        h = gelu(h, tanh=config.activation == "gelu_tanh")
    return linear(weights, name + "linear_fc2", h)


def gelu(x: Tensor, *, tanh: bool) -> Tensor:
    if tanh:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def loss(weights: Weights, config: TransformerConfig, ids: Tensor, labels: Tensor) -> Tensor:
    """[b, s], zero where the label is -100."""
    rows = logits(weights, config, ids).flatten(0, 1)
    return F.cross_entropy(rows, labels.flatten(), reduction="none").view_as(labels)
