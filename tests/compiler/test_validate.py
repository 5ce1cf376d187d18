"""Whole pages pass the validation; what it leaves out, it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import validated_models as models

from specc.compiler.pipeline import compile_spec
from specc.compiler.validate.copies import copies
from specc.compiler.validate.same_text import same_text
from specc.templates import ModuleSpec
from specc.templates.prepare import prepare

WHOLE: dict[str, Callable[[], ModuleSpec]] = {
    "golden llama": models.llama,
    "many options": models.options,
    "sinks, soft cap, window pattern": models.sinks,
    "a mean loss": models.mean_loss,
    "plain torch layers with a state": models.counting,
    "norms of two classes": models.mixed_norms,
    "no norms": models.no_norms,
    "a list of layers of two kinds": models.heterogeneous,
    "one key/value head": lambda: models.gpt(num_query_groups=1, position_embedding_type="rope"),
    "seven heads to a group": lambda: models.gpt(
        num_attention_heads=14, hidden_size=14 * 16, num_query_groups=2
    ),
    "80 layers": lambda: models.gpt(num_layers=80, hidden_size=4096, normalization="RMSNorm"),
    "every sixth layer global": lambda: models.gpt(
        num_layers=12, window_size=16, window_attn_skip_freq=6
    ),
    "a third of a head rotated": lambda: models.gpt(
        kv_channels=48, rotary_percent=1 / 3, position_embedding_type="rope"
    ),
    "llama 3 scaling": lambda: models.gpt(
        position_embedding_type="rope",
        rope_scaling="llama3",
        rope_scaling_factor=8.0,
        rope_scaling_original_max_position_embeddings=32,
    ),
    "zero-centred norms, tied": lambda: models.gpt(
        layernorm_zero_centered_gamma=True, untie_embeddings_and_output_weights=False
    ),
    "a loop that goes by the number": models.deep,
    "a width in params": lambda: models.plain(models.WideModel, width=768),
    "a width in its source": lambda: models.plain(models.FixedModel),
}


def codes(spec: ModuleSpec) -> list[str]:
    return [note.code for note in compile_spec(spec).notes if note.code.startswith("SP5")]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_page_passes_and_nothing_is_left_out(name: str) -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    assert codes(WHOLE[name]()) == []
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def test_inputs_that_nobody_can_guess_are_said() -> None:
    notes = compile_spec(models.plain(models.DatedModel)).notes
    assert [n.code for n in notes] == ["SP520", "SP521"]
    assert "`DatedModel.forward` needs dates" in notes[0].message
    assert "only initial values were compared" in notes[1].message


def test_operations_that_hang_on_values_are_said() -> None:
    (note,) = compile_spec(models.plain(models.ValueModel)).notes
    assert note.code == "SP520"
    assert "does not run without values" in note.message


def test_a_model_too_large_to_run_is_said() -> None:
    (note,) = compile_spec(models.plain(models.HugeModel, hidden_size=6000)).notes
    assert note.code == "SP521"
    assert note.message.startswith("validated structurally, not numerically")
    assert "are more than 30,000,000" in note.message


def test_a_model_that_is_not_repeatable_is_said() -> None:
    notes = compile_spec(models.plain(models.RestlessModel)).notes
    assert [n.code for n in notes] == ["SP520", "SP521"]
    assert notes[0].message.endswith("two runs of the spec's own model do not make the same calls")
    assert notes[1].message.endswith("two runs of the spec's own model give different numbers")


def test_the_small_copy_keeps_what_decides() -> None:
    spec = prepare(models.options()).spec
    copy = next(copies(spec, []))
    old, new = copy.configs[0]
    assert new.num_attention_heads // new.num_query_groups == 4
    assert new.kv_channels >= 8 and 0 < new.rotary_dim < new.kv_channels
    assert new.num_layers == 2 and new.window_attn_skip_freq == 2
    assert new.vocab_size == 97 and new.window_size == 5
    assert (new.hidden_size < 192) == (old.hidden_size < 192)
    kept = ("rotary_base", "layernorm_epsilon", "rope_scaling_factor", "init_method_std")
    assert all(getattr(old, n) == getattr(new, n) for n in kept)


def test_a_pattern_is_cut_where_all_of_it_has_been() -> None:
    (old, new), *_ = next(copies(prepare(models.sinks()).spec, [])).configs
    assert old.window_attn_skip_freq == (1, 1, 0, 1)
    assert new.window_attn_skip_freq == (1, 1, 0) and new.num_layers == 3


PAGE = """'A model of 5 parameters.'

@dataclass(frozen=True)
class Config:
    width: int = 768

class Model:
    def __init__(self, config):
        self.head = Linear(config.width, 768, True)
"""


def test_a_copy_s_page_differs_in_its_config_and_its_title_alone() -> None:
    assert same_text(PAGE, PAGE.replace("int = 768", "int = 8").replace("5 parameters", "3"))
    assert same_text(PAGE, PAGE.replace("768", "8"), frozenset({(768, 8)}))
    assert not same_text(PAGE, PAGE.replace("768", "8"))
    assert not same_text(PAGE, PAGE.replace(", 768,", ", 16,"), frozenset({(768, 8)}))
    assert not same_text(PAGE, PAGE.replace("True", "1"))
    assert not same_text(PAGE, PAGE.replace("width: int", "width: float"))
    assert not same_text(PAGE, PAGE.replace("self.head", "self.tail"))
