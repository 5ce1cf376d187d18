"""The head and the loss, in one process and cut over tp, against torch's cross entropy."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.distributed import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode

from specc.runtime import chunked_head, materialize, shard
from specc.runtime.embedding import VocabParallelEmbedding
from specc.runtime.linear import ColumnParallelLinear
from specc.runtime.loss import cross_entropy, linear_cross_entropy, local_loss
from specc.runtime.mesh import Axis, Mesh
from specc.runtime.norm import RMSNorm
from specc.runtime.parameters import full_tensors, load_full_tensors

Ranks = Callable[..., list[Any]]
B, S, H = 3, 8, 6
TOKENS = 100  # as if the step had more of them than this call


def close(a: Tensor, b: Tensor) -> bool:
    return bool(b.abs().max() > 0 and (a - b).abs().max() <= 1e-5 * b.abs().max())


def inputs(vocab: int, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(vocab)
    labels = torch.randint(vocab, (B, S), generator=generator)
    labels[0, 2:5] = labels[2, :] = -100
    return {
        "x": torch.randn(B, S, H, generator=generator),
        "weight": scale * torch.randn(vocab, H, generator=generator),
        "bias": torch.randn(vocab, generator=generator),
        "labels": labels,
    }


def expected(
    vocab: int, bias: bool, scale: float = 1.0, cap: float | None = None
) -> dict[str, Tensor]:
    """What torch says in one process."""
    given = inputs(vocab, scale)
    x, weight, b = (given[name].requires_grad_() for name in ("x", "weight", "bias"))
    logits = F.linear(x, weight, b if bias else None)
    if cap is not None:
        logits = cap * torch.tanh(logits / cap)
    losses = F.cross_entropy(
        logits.flatten(0, 1), given["labels"].flatten(), ignore_index=-100, reduction="none"
    ).view(B, S)
    (losses.sum() / TOKENS).backward()  # type: ignore[no-untyped-call]
    grads = {"x": x, "weight": weight, **({"bias": b} if bias else {})}
    return {"losses": losses.detach(), **{name: cast(Tensor, p.grad) for name, p in grads.items()}}


def computed(
    vocab: int,
    bias: bool,
    sequence_parallel: bool,
    scale: float = 1.0,
    compiled: bool = False,
    chunks: int = 1,
    cap: float | None = None,
) -> dict[str, Tensor]:
    """The same from a rank's parts, gradients put together again."""
    tp = dist.get_world_size() if dist.is_initialized() else 1
    mesh = Mesh.single(loss_chunks=chunks)
    if tp > 1:
        mesh = Mesh.launch(tp=tp, sequence_parallel=sequence_parallel, loss_chunks=chunks)
    given = inputs(vocab, scale)
    head = ColumnParallelLinear(H, vocab, mesh, bias=bias, pad=True).to_empty(device="cpu")
    names = ["weight", "bias"] if bias else ["weight"]
    load_full_tensors(head, mesh, {name: given[name] for name in names})
    x = given["x"]
    if sequence_parallel:
        x = x.chunk(tp, 1)[mesh.tp.rank].clone()
    x.requires_grad_()
    call = linear_cross_entropy
    if compiled:
        call = torch.compile(linear_cross_entropy, fullgraph=True, backend="aot_eager")
    losses = call(x, head, given["labels"], mesh, softcap=cap)
    local_loss(losses, given["labels"], "per_token", mesh, TOKENS).backward()  # type: ignore[no-untyped-call]
    assert losses.dtype == torch.float32
    return {
        "losses": losses.detach(),
        "x": cast(Tensor, x.grad),
        **full_tensors(head, mesh, grads=True),
    }


def assert_same(results: list[dict[str, Tensor]], wanted: dict[str, Tensor], sp: bool) -> None:
    # x's gradients: partial ones that its producer sums, or the positions of each rank.
    parts = [result.pop("x") for result in results]
    assert close(torch.cat(parts, 1) if sp else torch.stack(parts).sum(0), wanted.pop("x"))
    for result in results:
        assert result.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert close(result[name], tensor), name


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_one_process(bias: bool, compiled: bool) -> None:
    result = computed(11, bias, False, compiled=compiled)
    assert (result["losses"][inputs(11)["labels"] == -100] == 0).all()
    assert_same([result], expected(11, bias), False)


# 5 over 4 leaves a rank with padding only, 2 over 4 leaves two.
@pytest.mark.parametrize(("tp", "vocab"), [(2, 12), (2, 13), (4, 11), (4, 5), (4, 2)])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_cut_over_tp(ranks: Ranks, tp: int, vocab: int, sequence_parallel: bool) -> None:
    bias = vocab % 2 == 1
    results = ranks(tp, computed, vocab, bias, sequence_parallel)
    assert_same(results, expected(vocab, bias), sequence_parallel)


def test_cut_over_tp_and_compiled(ranks: Ranks) -> None:
    results = ranks(2, computed, 13, True, True, 1.0, True)
    assert_same(results, expected(13, True), True)


@pytest.mark.parametrize("chunks", [2, 3, 8, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_in_pieces(bias: bool, chunks: int) -> None:
    assert_same([computed(11, bias, False, chunks=chunks)], expected(11, bias), False)


@pytest.mark.parametrize("chunks", [1, 3])
def test_with_a_soft_cap(ranks: Ranks, chunks: int) -> None:
    wanted = expected(13, True, cap=0.7)
    assert_same([computed(13, True, False, chunks=chunks, cap=0.7)], dict(wanted), False)
    results = ranks(2, computed, 13, True, True, 1.0, False, chunks, 0.7)
    assert_same(results, wanted, True)


@pytest.mark.parametrize(("tp", "vocab"), [(2, 13), (4, 11), (4, 5), (4, 2)])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_in_pieces_and_cut_over_tp(
    ranks: Ranks, tp: int, vocab: int, sequence_parallel: bool
) -> None:
    bias = vocab % 2 == 1
    results = ranks(tp, computed, vocab, bias, sequence_parallel, 1.0, False, 3)
    assert_same(results, expected(vocab, bias), sequence_parallel)


def compiled_pieces(vocab: int) -> dict[str, Tensor]:
    """The body of a piece compiled, as a compiled mesh has it."""
    chunked_head._compiled = functools.cache(
        functools.partial(torch.compile, fullgraph=True, backend="aot_eager")
    )
    counters.clear()
    original = chunked_head._region
    chunked_head._region = lambda function, compiled: original(function, True)
    try:
        return computed(vocab, True, True, chunks=2)
    finally:
        chunked_head._region = original
        # One graph each for the statistics and the gradient of a piece.
        assert counters["stats"]["unique_graphs"] == 2 and not counters["graph_break"]


def test_in_pieces_and_compiled(ranks: Ranks) -> None:
    assert_same(ranks(2, compiled_pieces, 13), expected(13, True), True)


class Largest(TorchDispatchMode):
    """The largest number of entries of a tensor that an operation made."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


def test_no_logits_of_all_tokens_in_pieces() -> None:
    vocab, weight = 50, 50 * H
    found = {}
    for chunks in (1, 4):
        with Largest() as largest:
            computed(vocab, False, False, chunks=chunks)
        found[chunks] = largest.entries
    assert found == {1: B * S * vocab, 4: max(B * S * vocab // 4, weight)}


def test_pieces_weigh_tokens_apart() -> None:
    """A gradient of its own for each token's loss: no product over tokens may come first."""
    given = inputs(11)
    factors = torch.rand(B, S, generator=torch.Generator().manual_seed(1))
    gradients = []
    for chunks in (1, 3):
        mesh = Mesh.single(loss_chunks=chunks)
        head = ColumnParallelLinear(H, 11, mesh).to_empty(device="cpu")
        load_full_tensors(head, mesh, {"weight": given["weight"]})
        x = given["x"].clone().requires_grad_()
        loss = (linear_cross_entropy(x, head, given["labels"], mesh) * factors).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append((cast(Tensor, x.grad), cast(Tensor, head.weight.grad)))
    for got, wanted in zip(gradients[1], gradients[0], strict=True):
        assert close(got, wanted)


def test_pieces_add_up_in_float32() -> None:
    """In bfloat16, the weight's gradient from 64 pieces is off by one rounding at most."""
    tokens, vocab = 256, 20
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, tokens, H, generator=generator).bfloat16()
    weight = torch.randn(vocab, H, generator=generator)
    labels = torch.randint(vocab, (1, tokens), generator=generator)
    wide = weight.bfloat16().double().requires_grad_()
    F.cross_entropy(F.linear(x.double(), wide).flatten(0, 1), labels.flatten()).backward()
    wanted = cast(Tensor, wide.grad)
    errors = []
    for chunks in (1, 64):
        mesh = Mesh.single(torch.bfloat16, loss_chunks=chunks)
        head = ColumnParallelLinear(H, vocab, mesh).to_empty(device="cpu")
        load_full_tensors(head, mesh, {"weight": weight})
        linear_cross_entropy(x, head, labels, mesh).mean().backward()  # type: ignore[no-untyped-call]
        gradient = cast(Tensor, head.weight.grad)
        assert gradient.dtype == torch.float32
        errors.append(float((gradient - wanted).abs().max() / wanted.abs().max()))
    assert errors[1] <= 1.5 * errors[0] < 2**-6  # the gradients of the logits are bfloat16 in both


class Tied(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.embedding = VocabParallelEmbedding(11, H, mesh, init_std=0.5)
        self.layers = nn.ModuleList([RMSNorm(H)])
        self.head = ColumnParallelLinear(H, 11, mesh)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return linear_cross_entropy(
            self.layers[0](self.embedding(ids)), self.head, labels, self.mesh
        )


def tied_in_pieces() -> None:
    def stepped(mesh: Mesh, fsdp: bool) -> dict[str, Tensor]:
        wrap = (lambda m: shard(m, mesh, dtype=mesh.dtype)) if fsdp else None
        model = materialize(lambda: Tied(mesh), mesh, wrap=wrap)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        labels = inputs(11)["labels"]
        for _ in range(2):
            model(labels.clamp(min=0), labels).sum().backward()
        optimizer.step()
        return full_tensors(model, mesh)

    got = stepped(Mesh.launch(dtype=torch.bfloat16, loss_chunks=3), True)
    wanted = stepped(Mesh.single(torch.bfloat16, loss_chunks=3), False)
    start = full_tensors(materialize(lambda: Tied(Mesh.single()), Mesh.single()), Mesh.single())
    for name, tensor in wanted.items():
        assert torch.equal(got[name], tensor), name
        assert not torch.equal(tensor, start[name]), name


def test_a_tied_head_in_pieces_under_fsdp_in_bfloat16(ranks: Ranks) -> None:
    ranks(1, tied_in_pieces)


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_pieces_with_something_frozen(frozen: str) -> None:
    given = inputs(11)
    mesh = Mesh.single(loss_chunks=3)
    head = ColumnParallelLinear(H, 11, mesh).to_empty(device="cpu")
    load_full_tensors(head, mesh, {"weight": given["weight"]})
    x = given["x"].requires_grad_(frozen != "x")
    head.weight.requires_grad_(frozen != "weight")
    loss = linear_cross_entropy(x, head, given["labels"], mesh).sum() / TOKENS
    loss.backward()  # type: ignore[no-untyped-call]
    wanted = expected(11, False)
    for name, tensor in (("x", x), ("weight", head.weight)):
        if name == frozen:
            assert tensor.grad is None
        else:
            assert close(cast(Tensor, tensor.grad), wanted[name])


def saved_floats(chunks: int) -> int:
    """Float32 entries, logits' or more, that a bfloat16 forward saves."""
    mesh = Mesh.launch(tp=2, loss_chunks=chunks, dtype=torch.bfloat16)
    head = ColumnParallelLinear(H, 12, mesh).to_empty(device="cpu")
    load_full_tensors(head, mesh, {"weight": inputs(12)["weight"]})
    x = inputs(12)["x"].bfloat16().requires_grad_()
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        linear_cross_entropy(x, head, inputs(12)["labels"], mesh)
    logits = B * S * 12 // 2
    assert any(t.numel() >= logits for t in saved)
    return sum(t.numel() for t in saved if t.dtype == torch.float32 and t.numel() >= logits)


@pytest.mark.parametrize("chunks", [1, 2])
def test_no_float32_logits_are_saved_over_tp(ranks: Ranks, chunks: int) -> None:
    assert ranks(2, saved_floats, chunks) == [0, 0]


def test_large_logits_do_not_overflow(ranks: Ranks) -> None:
    assert expected(13, False, 1e3)["losses"].max() > 500  # exp of that is infinite
    assert_same(ranks(2, computed, 13, False, False, 1e3), expected(13, False, 1e3), False)


def gathered() -> tuple[Tensor, Tensor]:
    """A layer whose own forward gathers the vocabulary, and bfloat16, on tp ranks."""
    mesh = Mesh.launch(tp=dist.get_world_size())
    given = inputs(13)
    head = ColumnParallelLinear(H, 13, mesh, gather_output=True, pad=True).to_empty(device="cpu")
    load_full_tensors(head, mesh, {"weight": given["weight"]})
    x = given["x"]
    whole = linear_cross_entropy(x, head, given["labels"], mesh)
    return whole, linear_cross_entropy(x.bfloat16(), head, given["labels"], mesh)


def test_gathering_layer_and_bfloat16(ranks: Ranks) -> None:
    for whole, rounded in ranks(2, gathered):
        assert close(whole, expected(13, False)["losses"])
        assert rounded.dtype == torch.float32
        assert (rounded - whole).abs().max() < 2**-5 * whole.abs().max()


def foreign_labels() -> tuple[Tensor, Tensor]:
    mesh = Mesh.launch(tp=2)
    logits = torch.zeros(1, 4, 3, requires_grad=True)  # 5 entries and one of padding
    losses = cross_entropy(logits, torch.tensor([[5, -1, 4, -100]]), mesh, 5)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    return losses.detach(), cast(Tensor, logits.grad)


def test_a_label_outside_the_vocabulary_is_not_silent(ranks: Ranks) -> None:
    for losses, grad in ranks(2, foreign_labels):
        assert losses.isnan().tolist() == [[True, True, False, False]]
        assert grad.isnan().any(-1).tolist() == [[True, True, False, False]]
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(torch.zeros(1, 1, 5), torch.tensor([[5]]), Mesh.single(), 5)


def test_shapes_that_do_not_fit_are_refused() -> None:
    labels = torch.zeros(2, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"12 columns .* vocabulary of 11 over tp=1 gives 11"):
        cross_entropy(torch.zeros(2, 4, 12), labels, Mesh.single(), 11)
    with pytest.raises(ValueError, match=r"loss_chunks=0 has to be 1 \(no chunks\) or more"):
        Mesh.single(loss_chunks=0)
    with pytest.raises(ValueError, match=r"\[2, 3, 11\] and labels \[2, 4\]"):
        cross_entropy(torch.zeros(2, 3, 11), labels, Mesh.single(), 11)


@pytest.mark.parametrize("kind", ["per_token", "local_mean", "tuple"])
def test_micro_batches_sum_to_the_mean(kind: str) -> None:
    """Uneven numbers of ignored labels, one call with nothing but them."""
    given = inputs(11)
    logits = F.linear(given["x"], given["weight"]).detach()
    whole = logits.clone().requires_grad_()
    mean = nn.CrossEntropyLoss()(whole.flatten(0, 1), given["labels"].flatten())
    mean.backward()

    tokens = int((given["labels"] != -100).sum())
    cut = logits.clone().requires_grad_()
    total = torch.zeros(())
    for row in range(B):
        labels = given["labels"][row : row + 1]
        output: Any
        if kind == "per_token":
            output = cross_entropy(cut[row : row + 1], labels, Mesh.single(), 11)
        else:
            output = nn.CrossEntropyLoss()(cut[row], labels[0])
            output = (output, cut) if kind == "tuple" else output
        name = "local_mean" if kind == "tuple" else kind
        loss = local_loss(output, labels, name, Mesh.single(), torch.tensor(tokens))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    assert close(total, mean.detach())
    assert close(cast(Tensor, cut.grad), cast(Tensor, whole.grad))


def test_every_tp_rank_takes_its_share() -> None:
    group = cast(ProcessGroup, SimpleNamespace(group_name="unused"))
    labels = torch.tensor([[1, 2, -100]])
    losses = torch.tensor([[3.0, 5.0, 0.0]])
    mesh = Mesh(tp=Axis("tp", 4, 1, group))
    assert local_loss(losses, labels, "per_token", mesh, 2) == 1.0
    assert local_loss(torch.tensor(4.0), labels, "local_mean", mesh, 2) == 1.0


@pytest.mark.parametrize(
    ("output", "kind", "tokens", "words"),
    [
        (torch.zeros(2, 3), "mean", 1, r"LOSS is 'mean'; .*\"per_token\" or \"local_mean\""),
        (torch.zeros(2, 2), "per_token", 1, r"labels \[2, 3\], and it returned a tensor \[2, 2\]"),
        ((torch.zeros(2, 3),), "per_token", 1, r"returned a tuple of a tensor \[2, 3\]"),
        (torch.zeros(2, 3), "local_mean", 1, r"scalar.*returned a tensor \[2, 3\]"),
        ((), "local_mean", 1, "returned a tuple of nothing"),
        (torch.zeros(2, 3), "per_token", 0, "tokens=0"),
    ],
)
def test_outputs_of_another_kind_are_refused(
    output: Any, kind: str, tokens: int, words: str
) -> None:
    labels = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=words):
        local_loss(output, labels, kind, Mesh.single(), tokens)
