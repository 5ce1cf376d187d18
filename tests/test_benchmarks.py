"""What the benchmarks compute from a measurement; timings themselves are no tests."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def load():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=8)


@given(spans)
def test_idle_is_what_no_kernel_covers(load, pairs: list[tuple[int, int]]) -> None:
    found = [(float(start), float(start + length)) for start, length in pairs]
    covered = {t for start, length in pairs for t in range(start, start + length)}
    whole = max(s + n for s, n in pairs) - min(s for s, _ in pairs)
    assert load("kernels").idle_microseconds(found) == whole - len(covered)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", "matrix products"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 128>", "attention"),
        ("void multi_tensor_apply_kernel<FusedOptimizerTensorList, FusedAdamMath", "AdamW"),
        ("void multi_tensor_apply_kernel<LpNormFunctor>", "gradient norm and clip"),
        ("triton_poi_fused_add_copy__div_mul_sqrt_sub_unbind_0", "AdamW"),
        ("triton_poi_fused_mul_silu_silu_backward_stack_view_1", "fused by the compiler"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collectives"),
        ("vectorized_elementwise_kernel", "other"),
    ],
)  # fmt: skip
def test_kinds_of_kernels(load, kernel: str, kind: str) -> None:
    assert load("kernels").kind_of(kernel) == kind


def test_a_table_names_what_did_not_run(load) -> None:
    module: ModuleType = load("side_by_side")
    shape = load("timing").Shape(batch=2, length=8)
    timing = load("timing").Timing((0.2, 0.1, 0.3), 0.15, 2.0, 3.0, 1.0, (4.0, 3.0))
    rows = {
        "page": module.Row("torch 2.11", [timing, timing]),
        "rival": module.Row("", [], "not run: rival not installed"),
    }
    lines = module.table(rows, shape).splitlines()
    assert lines[2] == (
        "| page | 80 | 200.0 | 100.0 to 300.0 | 150.0 | 2.0 | 3.0 | 4.000 to 3.000 | torch 2.11 |"
    )
    assert lines[3].startswith("| rival | not run: rival not installed |")
    assert len({line.count("|") for line in lines}) == 1


def test_batches_are_the_same_in_every_process(load) -> None:
    module = load("timing")
    first, second = (module.random_batches(50, 2, 8, 3) for _ in range(2))
    assert all(map(torch.equal, first, second))
    assert first[0].shape == (2, 9) and not torch.equal(first[0], first[1])


def test_learnable_ids_follow_zipf_and_repeat(load) -> None:
    ids = load("precision").learnable(100, 4, 500, 2)[1]
    assert ids.shape == (4, 501) and ids.min() >= 0 and ids.max() < 100
    counts = torch.bincount(ids.flatten(), minlength=100)
    assert counts[0] > counts[9] > counts[99]
    # A third repeat, and some of the others are drawn twice.
    assert (ids[:, 1:] == ids[:, :-1]).float().mean() > 1 / 3


def test_a_layout_that_failed_is_a_row_of_its_own(load) -> None:
    module: ModuleType = load("multi_gpu")
    layout = module.parse_layouts("tp2 sp dp2")[0]
    figures = {
        "tokens": 900.0, "seconds": 0.5, "memory": 61.25, "nccl": 12.0, "losses": [4.0, 3.0]
    }  # fmt: skip
    assert module.row(layout, figures, 1000.0, 0) == (
        "| tp2 sp dp2 | 4 | 900 | 90.0% | 500.0 | 61.2 | 12.0 | 4.0000 to 3.0000 |"
    )
    assert module.row(layout, {}, 1000.0, 3) == (
        "| tp2 sp dp2 | 4 | failed with status 3 | | | | | |"
    )
