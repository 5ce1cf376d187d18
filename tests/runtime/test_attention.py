"""Attention, against a float64 reference written from the definition and against gpt-oss."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from specc.runtime.attention import attention
from specc.runtime.mesh import Mesh
from specc.runtime.positions import Positions

MESH = Mesh.single()


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
    scale: float | None,
    mask: Tensor | None,
    starts: Tensor | None = None,
) -> Tensor:
    """One sum after the other, in q's dtype: no softmax, no broadcasting of heads."""
    b, s, n, d = q.shape
    group = n // k.shape[2]
    rows = []
    for i in range(b):
        for head in range(n):
            for row in range(s):
                total = q.new_zeros(()) if sinks is None else sinks[head].exp()
                value = q.new_zeros(d)
                for col in range(s):
                    barred = mask is not None and bool(mask.expand(b, n, s, s)[i, head, row, col])
                    late = causal and col > row
                    far = window is not None and row - col >= window
                    other = starts is not None and bool(starts[i, row] != starts[i, col])
                    if barred or late or far or other:
                        continue
                    score = (q[i, row, head] * k[i, col, head // group]).sum()
                    score = score * (d**-0.5 if scale is None else scale)
                    if softcap is not None:
                        score = softcap * torch.tanh(score / softcap)
                    total = total + score.exp()
                    value = value + score.exp() * v[i, col, head // group]
                rows.append(value / total if total > 0 else value)
    return torch.stack(rows).view(b, n, s, d).transpose(1, 2)


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def positions_of(length: int) -> Positions:
    return Positions.of(torch.zeros(1, length, dtype=torch.int64), MESH)


def close(a: Tensor, b: Tensor) -> bool:
    # A gradient that is zero by cancellation (q's, where one key is seen) is rounding of about 1.
    return bool((a - b).abs().max() <= 1e-5 * b.abs().max().clamp(min=0.1))


@given(
    s=st.integers(1, 6),
    groups=st.integers(1, 2),
    group_size=st.integers(1, 3),
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 2, 3, 9]),
    softcap=st.sampled_from([None, 0.7, 30.0]),
    with_sinks=st.booleans(),
    scale=st.sampled_from([None, 0.1, 1.0]),
    mask_shape=st.sampled_from([None, "", "s", "n", "b", "bn", "keys", "queries"]),
    begins=st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(0, 5))),
)
@example(4, 2, 2, True, 2, 0.7, True, 0.1, "bn", (1, 3))
@example(4, 1, 2, False, None, None, False, None, None, None)
@example(6, 1, 2, True, None, None, False, None, None, (2, 5))
@settings(max_examples=150, deadline=None)
def test_every_mix_of_options_is_the_definition(
    s: int,
    groups: int,
    group_size: int,
    causal: bool,
    window: int | None,
    softcap: float | None,
    with_sinks: bool,
    scale: float | None,
    mask_shape: str | None,
    begins: tuple[int, int] | None,
) -> None:
    b, n, d = 2, groups * group_size, 4
    shapes = {
        "": (s, s),
        "s": (1, 1, s, s),
        "n": (n, s, s),
        "b": (b, 1, s, s),
        "bn": (b, n, s, s),
        "keys": (b, 1, 1, s),
        "queries": (b, 1, s, 1),
    }
    mask = None if mask_shape is None else drawn(9, *shapes[mask_shape]) > 0.3
    starts = None
    if begins is not None:  # two documents in each sequence: one begins there
        place = torch.arange(s)
        starts = torch.stack([torch.where(place < at % s, 0, at % s) for at in begins])
    leaves = [drawn(1, b, s, n, d), drawn(2, b, s, groups, d), drawn(3, b, s, groups, d)]
    if with_sinks:
        leaves.append(drawn(4, n))
    grad = drawn(5, b, s, n, d)

    ours = [leaf.clone().requires_grad_() for leaf in leaves]
    y = attention(
        ours[0],
        ours[1],
        ours[2],
        Positions.of(torch.zeros(b, s, dtype=torch.int64), MESH, starts),
        MESH,
        causal=causal,
        window=window,
        softcap=softcap,
        sinks=ours[3] if with_sinks else None,
        scale=scale,
        mask=mask,
    )
    y.backward(grad)  # type: ignore[no-untyped-call]

    exact = [leaf.double().requires_grad_() for leaf in leaves]
    sinks = exact[3] if with_sinks else None
    expected = reference(
        exact[0], exact[1], exact[2], causal, window, softcap, sinks, scale, mask, starts
    )
    expected.backward(grad.double())  # type: ignore[no-untyped-call]
    assert close(y.double(), expected)
    for a, b_ in zip(ours, exact, strict=True):
        assert a.grad is not None
        # A leaf that the definition never touches (all is barred) has no gradient there.
        assert close(a.grad.double(), torch.zeros_like(a.double()) if b_.grad is None else b_.grad)


@pytest.mark.parametrize("window", [None, 4])
def test_sinks_are_gpt_osss(window: int | None) -> None:
    b, s, n, g, d = 2, 11, 8, 2, 16
    q, k, v = drawn(1, b, s, n, d), drawn(2, b, s, g, d), drawn(3, b, s, g, d)
    sinks = drawn(4, n)
    back = torch.arange(s)[:, None] - torch.arange(s)[None]
    barred = (back < 0) | (back >= (s if window is None else window))
    additive = torch.zeros(1, 1, s, s).masked_fill(barred, torch.finfo(torch.float32).min)
    module: Any = SimpleNamespace(sinks=sinks, num_key_value_groups=n // g, training=False)
    expected, _ = eager_attention_forward(
        module, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), additive, d**-0.5
    )
    y = attention(q, k, v, positions_of(s), MESH, window=window, sinks=sinks)
    assert close(y, expected)


@pytest.mark.parametrize("options", [{}, {"window": 3}, {"softcap": 5.0}, {"sinks": drawn(4, 4)}])
def test_bfloat16_stays_near_float32(options: dict[str, Any]) -> None:
    q, k, v = (drawn(i, 2, 9, 4, 8).bfloat16() for i in range(3))
    y = attention(q, k, v, positions_of(9), MESH, **options)
    exact = attention(q.float(), k.float(), v.float(), positions_of(9), MESH, **options)
    assert y.dtype == torch.bfloat16
    assert (y.float() - exact).abs().max() <= 2**-6 * exact.abs().max()


@pytest.mark.parametrize("options", [{}, {"window": 40}, {"softcap": 5.0}, {"sinks": drawn(4, 4)}])
def test_dropout_keeps_the_mean(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    q, k = drawn(1, 1, 64, 4, 8), drawn(2, 1, 64, 4, 8)
    v = torch.ones(1, 64, 4, 8)
    runs = torch.stack(
        [attention(q, k, v, positions_of(64), MESH, dropout=0.25, **options) for _ in range(30)]
    )
    whole = attention(q, k, v, positions_of(64), MESH, **options)
    assert not torch.equal(runs[0], runs[1])
    assert (runs.mean((0, 1, 2, 4)) / whole.mean((0, 1, 3)) - 1).abs().max() < 0.05


@pytest.mark.parametrize("options", [{}, {"window": 3}, {"mask": torch.zeros(7, 7) > 0}])
def test_the_kernel_sees_one_layout_of_gradient(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN's cached backward is wrong on a second one."""
    strides = []
    kernel = F.scaled_dot_product_attention

    def watched(*args: Any, **kwargs: Any) -> Tensor:
        y = kernel(*args, **kwargs)
        y.register_hook(lambda grad: strides.append(grad.stride()))  # type: ignore[no-untyped-call]
        return y

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    q = drawn(1, 2, 7, 4, 8).requires_grad_()
    grad = drawn(2, 2, 7, 4, 8)
    results = []
    for layout in (
        grad,
        grad.transpose(1, 2).contiguous().transpose(1, 2),
        grad.mT.contiguous().mT,
        grad.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    ):
        y = attention(q, q, q, positions_of(7), MESH, **options)
        results.append(torch.autograd.grad(y, q, layout)[0])
    assert len(strides) == 4 and len(set(strides)) == 1
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize(
    "options", [{}, {"window": 3}, {"softcap": 5.0, "sinks": drawn(4, 4), "window": 3}]
)
@pytest.mark.parametrize("mesh", [MESH, Mesh.single(recompute_core_attn=True)])
@pytest.mark.parametrize("packed", [False, True])
def test_compiles_to_the_same(options: dict[str, Any], mesh: Mesh, packed: bool) -> None:
    q, k, v = drawn(1, 2, 7, 4, 8), drawn(2, 2, 7, 2, 8), drawn(3, 2, 7, 2, 8)
    starts = torch.tensor([[0, 0, 2, 2, 2, 2, 6], [0] * 7]) if packed else None
    positions = Positions.of(torch.zeros(2, 7, dtype=torch.int64), MESH, starts)
    results = []
    torch._dynamo.reset()  # else the cases of other tests count as recompilations
    for call in (attention, torch.compile(attention, fullgraph=True, backend="aot_eager")):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        y = call(leaves[0], leaves[1], leaves[2], positions, mesh, **options)
        results.append([y, *torch.autograd.grad(y, leaves, drawn(5, 2, 7, 4, 8))])
    assert all(close(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": drawn(2, 2, 5, 3, 8), "v": drawn(2, 2, 5, 3, 8)}, ValueError, "g dividing n"),
        ({"v": drawn(3, 2, 4, 2, 8)}, ValueError, r"v \[2, 4, 2, 8\]"),
        ({"positions": positions_of(6)}, ValueError, "6 positions .* sequence of 5"),
        (
            {"positions": Positions(torch.arange(5), torch.arange(5), torch.zeros(1, 5).long())},
            ValueError,
            r"starts has shape \[1, 5\].*\[2, 5\]",
        ),
        ({"window": 0}, ValueError, "window=0"),
        ({"softcap": 0.0}, ValueError, r"softcap=0\.0"),
        ({"sinks": drawn(4, 2)}, ValueError, r"sinks has shape \[2\], and this rank has 4 heads"),
        ({"mask": torch.zeros(5, 5)}, TypeError, "mask is torch.float32"),
        ({"mask": torch.zeros(3, 5, 5) > 0}, ValueError, r"mask \[3, 5, 5\].*\[2, 4, 5, 5\]"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    call: dict[str, Any] = {
        "q": drawn(1, 2, 5, 4, 8),
        "k": drawn(2, 2, 5, 2, 8),
        "v": drawn(3, 2, 5, 2, 8),
        "positions": positions_of(5),
        "mesh": MESH,
    }
    with pytest.raises(error, match=words):
        attention(**{**call, **change})
