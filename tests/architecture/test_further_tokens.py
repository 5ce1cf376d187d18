"""What DeepSeek-V3's page trains beside the next token's loss, in its tree and its figures."""

from __future__ import annotations

import functools

from read_pages import architecture, example, part

from specc.compiler.architecture.figure import Figure
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.run import Run, run_page
from specc.compiler.architecture.words import words

# arXiv 2412.19437, section 4.2, and config.json: h, ranks of queries and of keys and values, heads,
# channels of a head's parts, experts' width, vocabulary.
H, Q, KV, N, NOPE, ROPE, V, F, VOCABULARY = 7168, 1536, 512, 128, 128, 64, 128, 2048, 129280
ATTENTION = H * Q + Q * N * (NOPE + ROPE) + H * (KV + ROPE) + KV * N * (NOPE + V) + N * V * H


@functools.cache
def run() -> Run:
    return run_page(example("deepseek_v3"), "deepseek_v3")


@functools.cache
def by_name() -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(run())}


def test_the_layer_of_the_further_token_is_told_apart() -> None:
    root = architecture(example("deepseek_v3"), "deepseek_v3")
    assert words(part(root, "mtp")) == "in training alone"
    assert words(part(root, "mtp.loss")) == "loss of further tokens × 0.3"
    assert part(root, "mtp.layers[0].eh_proj").parameters == 2 * H * H
    assert "in training alone" not in words(part(root, "mtp.layers[0]"))
    assert "mtp_loss_scaling_factor" not in dict(root.config)


def test_it_is_not_active_and_counts_by_itself() -> None:
    """A layer of experts, two norms, a projection of both and a norm at its end."""
    layer = ATTENTION + Q + KV + 256 * (H + 1) + 257 * 3 * H * F + 2 * H
    more = layer + 2 * H * H + 3 * H
    found = by_name()
    assert found["parameters.training"].value == more == 11_610_068_224
    assert found["parameters"].value == 671_026_404_352 + 58 * 256 + more
    active = found["parameters.active"].value
    assert active is not None and 37e9 < active < 38e9  # the paper's 37B


def test_its_products_count_in_training_alone() -> None:
    """With 8 of 256 experts and the shared one, the projection of both, and one more head."""
    forward, training = by_name()["flops.forward"], by_name()["flops.training"]
    scores = N * (NOPE + ROPE + V) * (4096 + 1)  # 2 for a product, half of the pairs
    more = 2 * (ATTENTION + 2 * H * H + 256 * H + 9 * 3 * H * F + H * VOCABULARY) + scores
    assert forward.value is not None and training.value == 3 * (forward.value + more)
    assert training.note == "at 4,096 places, further tokens predicted"


def test_its_layer_saves_activations_too() -> None:
    least, _, most = by_name()["saved.layer"].note.rpartition("mean of ")[2].split(" ")
    assert 0 < int(least.replace(",", "")) < int(most.replace(",", ""))
