"""Layouts as text and by enumeration, and the small copies that are run at them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specc.runtime.layouts import Degrees, fitting, parse_layouts
from specc.runtime.mesh import CP_COMM_TYPES
from specc.runtime.pipeline_schedules import SCHEDULES
from specc.runtime.reduced import small
from specc.runtime.refusal import Refusal
from specc.runtime.verify_worker import dealt

powers = st.sampled_from((1, 2, 4, 8))


@st.composite
def degrees(draw: st.DrawFn) -> Degrees:
    dp = draw(powers)
    zero = draw(st.sampled_from((None, 0, 1, 2, 3)))
    copies = 1 if zero == 0 or (zero is None and dp == 1) else draw(st.sampled_from((1, dp)))
    tp, cp = draw(powers), draw(powers)
    ranks = tp * cp * dp // copies
    etp = draw(st.sampled_from((1, tp)))
    ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if ranks % (n * etp) == 0]))
    return Degrees(
        tp=tp,
        cp=cp,
        ep=ep,
        etp=etp,
        dp=dp,
        dp_replicate=copies,
        sequence_parallel=draw(st.booleans()),
        cp_comm_type=draw(st.sampled_from(CP_COMM_TYPES)),
        zero=zero,
        pp=draw(powers),
        schedule=draw(st.sampled_from(SCHEDULES)),
    )


@given(st.lists(degrees(), min_size=1, max_size=3, unique=True))
def test_text_is_read_back(layouts: list[Degrees]) -> None:
    assert parse_layouts(", ".join(map(str, layouts))) == layouts


def test_text() -> None:
    one, two = parse_layouts("tp2 sp cp2:p2p dp4 replicate2 zero1, cp2")
    assert one == Degrees(2, 2, 4, 2, True, "p2p", 1)
    assert (two.size, two.zero, two.cp_comm_type) == (2, 3, "all_gather")
    assert str(two) == "cp2:all_gather" and str(Degrees()) == "one process"
    assert str(Degrees(zero=3)) == "zero3" and str(Degrees(dp=2, zero=0)) == "dp2 zero0"
    (pipeline,) = parse_layouts("pp2:zbv dp2")
    assert (pipeline.size, pipeline.stages, pipeline.zero) == (4, 4, 1)
    assert str(pipeline) == "pp2:zbv dp2" and str(parse_layouts("pp4")[0]) == "pp4:1f1b"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tp2 quick", "'quick' in 'tp2 quick' is no degree"),
        ("tp2,, dp2", "a layout has 0 words"),
        ("dp2 dp2", "'dp2 dp2' gives dp 2 times"),
        ("sp", "sp, which cuts positions over tp, and tp is 1"),
        ("cp2:ring", "cp_comm_type='ring' is not one of all_gather, p2p, a2a"),
        ("dp4 replicate3", "dp_replicate=3 does not divide dp=4"),
        ("dp2 zero4", "zero=4 is not a stage"),
        ("dp2 replicate2 zero0", "dp_replicate=2 is FSDP's"),
        ("tp0", "tp=0 has to be 1 at least"),
        ("dp2 ep4", "ep=4 x etp=1 does not divide the 2 processes"),
        ("pp2:1f2b", "schedule='1f2b' is not one of gpipe, 1f1b"),
    ],
)
def test_text_that_is_no_layout(text: str, told: str) -> None:
    with pytest.raises(Refusal, match="--layouts") as refused:
        parse_layouts(text)
    assert told in str(refused.value)


def test_every_mix_that_fits() -> None:
    with_stages = fitting(4, every_sharding=True)
    assert max(d.size for d in with_stages) == 4 and Degrees() not in with_stages
    every = [d for d in with_stages if d.pp == 1]
    assert len(every) == len(set(every)) == 74
    for tp in (1, 2, 4):
        for cp in (1, 2, 4):
            for dp in (1, 2, 4):
                if 1 < tp * cp * dp <= 4:
                    found = [d for d in every if (d.tp, d.cp, d.dp) == (tp, cp, dp)]
                    assert {d.sequence_parallel for d in found} == {False, tp > 1} | {tp > 1}
                    assert {d.cp_comm_type for d in found} == set(
                        CP_COMM_TYPES[: 3 if cp > 1 else 1]
                    )
                    assert {d.zero for d in found} == ({1, 2, 3} if cp * dp > 1 else {0, 3})
                    assert any(d.dp_replicate > 1 for d in found) == (dp > 1)
    assert set(fitting(4)) < set(with_stages)
    for pp in (2, 4):
        found = [d for d in with_stages if d.pp == pp]
        assert {d.schedule for d in found} == set(SCHEDULES)
        assert {(d.tp, d.cp, d.dp) for d in found} == (
            {(1, 1, 1)} | ({(2, 1, 1), (1, 2, 1), (1, 1, 2)} if pp == 2 else set())
        )
        # What computes weights' gradients apart does not cut parameters or gradients.
        assert {d.stage for d in found if d.schedule == "zbv"} <= {0, 1}


def test_experts_divide_the_ranks_of_a_stage_anew() -> None:
    plain, divided = set(fitting(4)), set(fitting(4, experts=True))
    assert plain < divided and max(d.size for d in divided) == 4
    for text in ("dp4 ep2", "tp2 dp2 ep2 etp1", "tp2 ep2 etp1", "pp2:1f1b dp2 ep2", "cp2:p2p ep2"):
        assert parse_layouts(text)[0] in divided
        assert sorted(str(parse_layouts(text)[0]).split()) == sorted(text.split())
    assert {d.ep for d in divided} == {1, 2, 4}
    assert parse_layouts("tp2 dp2")[0].etp == 2


@given(degrees())
def test_capped_layouts_have_the_same_axes(layout: Degrees) -> None:
    capped = layout.capped()
    assert capped.size // capped.pp <= 8
    for name in ("tp", "cp", "dp", "dp_replicate", "pp", "ep"):
        assert (getattr(capped, name) > 1) == (getattr(layout, name) > 1)
    assert (capped.sequence_parallel, capped.zero) == (layout.sequence_parallel, layout.zero)
    assert max(capped.tp, capped.cp, capped.dp_replicate, capped.dp // capped.dp_replicate) <= 2


@given(st.integers(1, 9), st.data())
def test_each_layout_is_run_by_one_group_of_its_size(processes: int, data: st.DataObject) -> None:
    possible = fitting(processes) or [Degrees(zero=3)]
    layouts = data.draw(st.lists(st.sampled_from(possible), min_size=1, max_size=9))
    runs: dict[int, list[tuple[int, int]]] = {n: [] for n in range(len(layouts))}
    for rank in range(processes):
        for size, group, numbers in dealt(layouts, processes, rank):
            assert rank // size == group
            for number in numbers:
                assert layouts[number].size == size
                runs[number].append((group, rank % size))
    for number, members in runs.items():
        assert sorted(rank for _, rank in members) == list(range(layouts[number].size))
        assert len({group for group, _ in members}) == 1


@dataclasses.dataclass(frozen=True)
class Routed:
    num_layers: int = 61
    hidden_size: int = 7168
    num_attention_heads: int = 128
    num_moe_experts: int = 256
    moe_router_topk: int = 8
    moe_ffn_hidden_size: int = 2048
    moe_router_num_groups: int | None = 8
    moe_router_group_topk: int | None = 4


def test_a_copy_has_few_experts() -> None:
    """Of DeepSeek-V3's groups and of Mixtral's plain choice."""
    (grouped,) = small([Routed()], layers=True)
    assert (grouped.num_moe_experts, grouped.moe_router_num_groups) == (16, 4)
    assert (grouped.moe_router_group_topk, grouped.moe_router_topk) == (2, 4)
    assert grouped.moe_ffn_hidden_size < grouped.hidden_size
    (plain,) = small([Routed(32, 4096, 32, 8, 2, 14336, None, None)], layers=True)
    assert (plain.num_moe_experts, plain.moe_router_topk) == (8, 2)
    assert plain.moe_router_num_groups is None


@dataclasses.dataclass(frozen=True)
class Config:
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    window_size: int = 128
    window_attn_skip_freq: int | tuple[int, ...] = 1
    vocab_size: int = 50257
    max_position_embeddings: int = 8192


@given(st.integers(1, 64), st.integers(1, 16), st.sampled_from((1, 2, 4, 8)), st.data())
def test_a_copy_is_cut_wherever_its_page_is(
    groups: int, ratio: int, parts: int, data: st.DataObject
) -> None:
    layers = data.draw(st.integers(1, 40))
    pattern = data.draw(st.one_of(st.just(1), st.tuples(*[st.integers(0, 1)] * layers)))
    heads = groups * ratio
    page = Config(layers, heads * 64, heads, groups, window_attn_skip_freq=pattern)
    (copy,) = small([page], layers=True, parts=parts)
    for tp in (1, 2, 4, 8):
        if parts % tp == 0 and groups % tp == 0:
            assert copy.num_query_groups % tp == 0
    assert copy.num_attention_heads == copy.num_query_groups * min(ratio, 8)
    assert (copy.num_query_groups > 1) == (groups > 1)
    assert copy.hidden_size % copy.num_attention_heads == 0 and copy.vocab_size == 97
    assert copy.window_size < copy.max_position_embeddings == 16
    if isinstance(pattern, tuple):
        assert len(copy.window_attn_skip_freq) == copy.num_layers
        assert set(copy.window_attn_skip_freq) == set(pattern)
