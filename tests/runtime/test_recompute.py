"""Recompute: the same gradients bit for bit, less kept, and at every kind of layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from specc.runtime import (
    ColumnParallelLinear,
    Dropout,
    Mesh,
    Positions,
    RMSNorm,
    RowParallelLinear,
    accumulate,
    attention,
    full_tensors,
    materialize,
    set_dropout_step,
    shard,
    sum_replicated_gradients,
)
from specc.runtime.compile import compile_layers
from specc.runtime.positions import own_places
from specc.runtime.recompute import Recompute, apply_recompute

Ranks = Callable[..., list[Any]]
B, S, H, HEADS = 2, 16, 16, 4
LAYERS = 3

CHOICES = [
    Recompute("full"),
    Recompute("full", every=2),
    Recompute("selective"),
    Recompute("selective", modules=("mlp",)),
    Recompute("selective", modules=("core_attn", "layernorm", "self_attention")),
]


class SelfAttention(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.linear_qkv = ColumnParallelLinear(H, 3 * H, mesh, unit=3 * H // HEADS, init_std=0.3)
        self.linear_proj = RowParallelLinear(H, H, mesh, init_std=0.3)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        q, k, v = self.linear_qkv(x).unflatten(-1, (-1, 3, H // HEADS)).unbind(-2)
        p = 0.2 if self.training and self.mesh.cp.size == 1 else 0.0
        y = attention(q, k, v, positions, self.mesh, dropout=p)
        return self.linear_proj(y.flatten(2))


class MLP(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.up = ColumnParallelLinear(H, 4 * H, mesh, bias=True, init_std=0.3)
        self.down = RowParallelLinear(4 * H, H, mesh, bias=True, init_std=0.3)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(F.gelu(self.up(x))))


class Layer(nn.Module):
    """Every kind of dropout: the hash, torch's generator, and attention's."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(H)
        self.self_attention = SelfAttention(mesh)
        self.hidden_dropout = Dropout(0.2, mesh)
        self.pre_mlp_layernorm = nn.LayerNorm(H)
        self.mlp = MLP(mesh)

    def forward(self, x: Tensor, positions: Positions, *, scale: float) -> Tensor:
        y = self.self_attention(self.input_layernorm(x), positions)
        x = x + self.hidden_dropout(y, positions) * scale
        return x + self.mlp(self.pre_mlp_layernorm(x))


class Model(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(mesh) for _ in range(LAYERS)])
        self.last = nn.Linear(H, 1)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        for layer in self.layers:
            x = layer(x, positions, scale=0.5)
        return self.last(x)


class Products(TorchDispatchMode):
    """Counts matrix products and collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen["mm" if name == "addmm" else name] += 1
        return func(*args, **(kwargs or {}))


def _model(mesh: Mesh, choice: Recompute | None, zero: int | None, compiled: bool) -> nn.Module:
    def wrap(model: nn.Module) -> None:
        assert isinstance(model, Model)
        if choice is not None:
            apply_recompute(list(model.layers), choice)
        if compiled:
            compile_layers(list(model.layers), backend="aot_eager")
        if zero is not None:
            shard(model, mesh, dtype=mesh.dtype, zero=zero)

    return materialize(lambda: Model(mesh), mesh, wrap=wrap)


def _input(mesh: Mesh, turn: int) -> Tensor:
    """This rank's part of a batch [b, t, h], sequences apart on data-parallel ranks."""
    generator = torch.Generator().manual_seed(10 * mesh.dp.rank + turn)
    x = torch.randn(B, S, H, generator=generator)[:, own_places(S, mesh)]
    if not mesh.sequence_parallel:
        return x
    # Positions first in memory, as the embedding leaves it.
    return x.transpose(0, 1).chunk(mesh.tp.size)[mesh.tp.rank].contiguous().transpose(0, 1)


def _gradients(
    mesh: Mesh, choice: Recompute | None, zero: int | None = None, compiled: bool = False
) -> dict[str, Tensor]:
    """Of two micro-batches, each with its own masks."""
    torch._dynamo.reset()
    counters.clear()
    model = _model(mesh, choice, zero, compiled)
    ids = torch.zeros(B, S // mesh.cp.size, dtype=torch.int64)
    positions = Positions.of(ids, mesh)
    for turn in range(2):
        set_dropout_step(model, seed=1, step=2, first_sequence=B * turn)
        torch.manual_seed(turn)
        accumulate(model, last=turn == 1)
        x = _input(mesh, turn).requires_grad_()
        model(x, positions).square().sum().backward()
    if compiled:
        assert counters["stats"]["unique_graphs"] == 1  # all layers'
        assert not counters["graph_break"]
    sum_replicated_gradients(model, mesh)
    return full_tensors(model, mesh, grads=True)


ROUNDING = 1e-5  # a compiler orders sums of float32 as it likes


def _assert_equal(
    got: dict[str, Tensor], expected: dict[str, Tensor], case: object, close: float = 0.0
) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        error = (got[name] - value).abs().max()
        assert error <= close * value.abs().max(), (case, name, error)
        assert value.abs().max() > 0, name


def test_gradients_are_the_same_bit_for_bit() -> None:
    expected = _gradients(Mesh.single(), None)
    for choice in CHOICES:
        mesh = Mesh.single(recompute_core_attn=choice.core_attention)
        _assert_equal(_gradients(mesh, choice), expected, choice)


@pytest.mark.parametrize("choice", [CHOICES[0], CHOICES[2], CHOICES[4]], ids=str)
def test_compiled_with_the_same_masks(choice: Recompute) -> None:
    expected = _gradients(Mesh.single(), None)
    mesh = Mesh.single(recompute_core_attn=choice.core_attention)
    _assert_equal(_gradients(mesh, choice, compiled=True), expected, choice, ROUNDING)


def _at_a_layout(degrees: dict[str, Any], zero: int | None, in_one_graph: Recompute) -> None:
    expected = _gradients(Mesh.launch(**degrees), None, zero)
    for choice in CHOICES:
        mesh = Mesh.launch(**degrees, recompute_core_attn=choice.core_attention)
        _assert_equal(_gradients(mesh, choice, zero), expected, choice)
    mesh = Mesh.launch(**degrees, recompute_core_attn=in_one_graph.core_attention)
    got = _gradients(mesh, in_one_graph, zero, compiled=True)
    _assert_equal(got, expected, in_one_graph, ROUNDING)


LAYOUTS = [  # and one choice each that is compiled, which takes seconds
    ({"tp": 2, "sequence_parallel": True}, None, CHOICES[2]),
    ({"tp": 2}, None, CHOICES[4]),
    ({"cp": 2}, 3, CHOICES[2]),
    ({"dp": 2}, 2, CHOICES[0]),
    ({"dp": 2}, 3, CHOICES[4]),
]


@pytest.mark.parametrize(("degrees", "zero", "in_one_graph"), LAYOUTS, ids=str)
def test_at_layouts(
    ranks: Ranks, degrees: dict[str, Any], zero: int | None, in_one_graph: Recompute
) -> None:
    ranks(2, _at_a_layout, degrees, zero, in_one_graph)


def _saved(choice: Recompute | None) -> int:
    """Bytes that the forward of one step leaves for its backward, as hooks see them."""
    mesh = Mesh.single(recompute_core_attn=choice is not None and choice.core_attention)
    model = _model(mesh, choice, None, False)
    set_dropout_step(model, seed=1, step=2, first_sequence=0)
    positions = Positions.of(torch.zeros(B, S, dtype=torch.int64), mesh)
    kept: dict[int, int] = {}
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(_input(mesh, 0).requires_grad_(), positions)
    assert out.requires_grad
    return sum(kept.values())


def test_full_keeps_the_inputs_of_a_layer_and_modules_keep_theirs() -> None:
    activation = B * S * H * 4
    everything = _saved(None)
    # The layers' inputs, and what the last linear layer reads.
    assert _saved(Recompute("full")) == (LAYERS + 1) * activation
    every_second = _saved(Recompute("full", every=2))
    each = (everything - activation) // LAYERS
    assert every_second == 3 * activation + each
    mlp = _saved(Recompute("selective", modules=("mlp",)))
    # Of the MLP its input only, which is the norm's output: no 4 H wide tensor.
    assert everything - mlp >= LAYERS * 2 * 4 * activation
    core = _saved(Recompute("selective", modules=("core_attn",)))
    assert core < everything


def _operations(choice: Recompute | None, mesh: Mesh) -> tuple[Counter[str], Counter[str]]:
    model = _model(mesh, choice, None, False)
    set_dropout_step(model, seed=1, step=2, first_sequence=0)
    positions = Positions.of(torch.zeros(B, S, dtype=torch.int64), mesh)
    model.eval()  # no dropout: attention is one kernel
    with Products() as forward:
        out = model(_input(mesh, 0).requires_grad_(), positions).sum()
    with Products() as backward:
        out.backward()
    return forward.seen, backward.seen


KERNEL = "_scaled_dot_product_flash_attention_for_cpu"


def test_what_is_computed_again() -> None:
    plain = _operations(None, Mesh.single())[1]
    full = _operations(Recompute("full"), Mesh.single())[1]
    selective = _operations(Recompute("selective"), Mesh.single())[1]
    # The last product of a layer is followed by nothing that its backward reads.
    assert full["mm"] - plain["mm"] == LAYERS * 3
    assert full[KERNEL] == LAYERS and plain[KERNEL] == 0
    assert selective["mm"] == plain["mm"] and selective[KERNEL] == 0
    assert selective["gelu"] == LAYERS and plain["gelu"] == 0


def _collectives_again() -> dict[str, tuple[int, int, int]]:
    mesh = Mesh.launch(tp=2, sequence_parallel=True)
    found = {}
    for granularity in ("none", "selective", "full"):
        seen = _operations(Recompute(granularity), mesh)[1]
        found[granularity] = (
            seen["all_gather_into_tensor"] // LAYERS,
            seen["reduce_scatter_tensor"] // LAYERS,
            seen["mm"] - 2,  # those of the last linear layer
        )
    return found


def test_collectives_that_are_repeated(ranks: Ranks) -> None:
    """Backward of a layer at tp 2 with sequence parallel: 4 gathers and 2 scatters of its own."""
    for found in ranks(2, _collectives_again):
        assert found["none"][:2] == (4, 2)
        assert found["selective"][:2] == (6, 2)
        assert found["full"][:2] == (6, 3)  # the reduction that ends the layer is not
        # Of the products that are kept in no case, the one that does not end the layer.
        assert found["selective"][2] - found["none"][2] == LAYERS
        assert found["full"][2] - found["none"][2] == LAYERS * 3


def test_names_state_and_classes_stay() -> None:
    mesh = Mesh.single()
    plain, model = _model(mesh, None, None, False), _model(mesh, CHOICES[-1], None, False)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in model.named_modules()] == [n for n, _ in plain.named_modules()]
    assert repr(model) == repr(plain)
    layer = model.layers[0]
    assert isinstance(layer.input_layernorm, RMSNorm)
    assert type(model.layers[0].self_attention) is type(model.layers[1].self_attention)


class PlainAndDrawn(nn.Module):
    """A kernel that drops out by itself, and after it a mask that draws from the same generator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(H, H)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).unflatten(-1, (2, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(y, y, y, dropout_p=0.5).transpose(1, 2).flatten(2)
        return self.dropout(self.linear(y))


def test_a_mask_after_attention_that_drops_out() -> None:
    gradients = []
    for choice in (Recompute(), Recompute("selective"), Recompute("full")):
        model = materialize(PlainAndDrawn, Mesh.single())
        apply_recompute([model], choice)
        torch.manual_seed(0)
        model(torch.ones(2, 4, H)).square().sum().backward()
        gradients.append(model.linear.weight.grad)
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])


def test_a_kernel_that_drops_out_is_not_kept() -> None:
    """On a GPU the kernel itself draws: kept, the masks after it would be other ones."""
    from torch.utils.checkpoint import CheckpointPolicy

    from specc.runtime.recompute import _policy

    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    q = torch.zeros(1, 1, 4, 8)
    keep, again = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
    assert _policy(None, flash, q, q, q) == keep
    assert _policy(None, flash, q, q, q, 0.0, True) == keep
    assert _policy(None, flash, q, q, q, 0.1, True) == again
    assert _policy(None, flash, q, q, q, dropout_p=0.1) == again


def test_refusals() -> None:
    with pytest.raises(ValueError, match="recompute 'some' is not one of none, selective, full"):
        Recompute("some")
    with pytest.raises(ValueError, match="every 0-th layer: it has to be 1 or more"):
        Recompute("full", every=0)
    with pytest.raises(ValueError, match=r"modules \(mlp\) goes with 'selective', not with 'full'"):
        Recompute("full", modules=("mlp",))
    with pytest.raises(ValueError, match=r"'full' is of layers, .* and the model has none"):
        apply_recompute([], Recompute("full"))
    layers = list(Model(Mesh.single()).layers)
    with pytest.raises(
        ValueError,
        match=r"no layer has a module 'mpl' or 'moe' to recompute; there are core_attn, "
        r"down, dropout, hidden_dropout, input_layernorm, layernorm, linear_proj, linear_qkv, mlp",
    ):
        apply_recompute(layers, Recompute("selective", modules=("mpl", "layernorm", "moe")))
