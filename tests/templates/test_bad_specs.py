"""Each mistake in a spec has its own code, the place in the tree and in the file, and help."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from small_models import config, gpt_spec
from torch import Tensor, nn

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    MegatronModule,
    MLPSubmodules,
    ModelParallelConfig,
    ModuleSpec,
    RMSNorm,
    RotaryPositionalEmbedding,
    SelfAttention,
    SelfAttentionSubmodules,
    SpecError,
    TransformerBlock,
    TransformerBlockSubmodules,
    TransformerConfig,
    TransformerLayer,
    prepare,
)


class Pair(nn.Module):
    """A user's class that is handed its children."""

    def __init__(self, first: nn.Module, second: nn.Module, width: int) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        return x


class Wrapper(MegatronModule):
    def __init__(self, config: TransformerConfig, attention: nn.Module) -> None:
        super().__init__(config)
        self.attention = attention


def decoder(spec: ModuleSpec) -> ModuleSpec:
    found = spec.submodules["decoder"]
    assert isinstance(found, ModuleSpec)
    return found


def layer(spec: ModuleSpec) -> ModuleSpec:
    found = decoder(spec).params["layer_spec"]
    assert isinstance(found, ModuleSpec)
    return found


def with_layer(**children: Any) -> ModuleSpec:
    spec = gpt_spec(config())
    layer(spec).submodules.update(children)
    return spec


def unknown_child() -> ModuleSpec:
    spec = gpt_spec(config())
    children = {"self_attn": SelfAttention, "self_attention": SelfAttention, "mlp": MLP}
    decoder(spec).params["layer_spec"] = ModuleSpec(TransformerLayer, submodules=children)
    return spec


def unknown_handed_child() -> ModuleSpec:
    return ModuleSpec(Pair, {"width": 3}, {"first": MLP, "secand": MLP, "second": MLP})


def missing_child() -> ModuleSpec:
    spec = gpt_spec(config())
    decoder(spec).params["layer_spec"] = ModuleSpec(TransformerLayer, submodules={"mlp": MLP})
    return spec


def builtin_as_module() -> ModuleSpec:
    return with_layer(mlp=ModuleSpec(dict))


def config_as_module() -> ModuleSpec:
    return with_layer(mlp=ModuleSpec(TransformerConfig))


def text_as_module() -> ModuleSpec:
    return with_layer(mlp=ModuleSpec("MLP"))


def pair_of_no_module() -> ModuleSpec:
    return with_layer(mlp=ModuleSpec(("no_such_package.mlp", "MLP")))


def pair_of_no_name() -> ModuleSpec:
    return with_layer(mlp=("specc.templates", "MLPP"))


def unknown_param() -> ModuleSpec:
    return with_layer(self_attention=ModuleSpec(SelfAttention, params={"layer_numbr": 1}))


def params_in_a_list() -> ModuleSpec:
    return with_layer(mlp=ModuleSpec(MLP, params=[1]))  # type: ignore[arg-type]


def params_for_a_function() -> ModuleSpec:
    def double(x: Tensor) -> Tensor:
        return 2 * x

    return with_layer(mlp=ModuleSpec(double, params={"width": 2}))


def submodules_in_a_list() -> ModuleSpec:
    spec = gpt_spec(config())
    decoder(spec).params["layer_spec"] = ModuleSpec(TransformerLayer, submodules=[MLP])
    return spec


def submodules_of_another_class() -> ModuleSpec:
    return with_layer(self_attention=ModuleSpec(SelfAttention, submodules=MLPSubmodules()))


def a_spec_under_itself() -> ModuleSpec:
    spec = gpt_spec(config())
    layer(spec).submodules["mlp"] = ModuleSpec(TransformerLayer, submodules=layer(spec).submodules)
    layer(spec).submodules["mlp"].submodules = {"mlp": layer(spec), "self_attention": SelfAttention}
    return spec


def number_as_child() -> ModuleSpec:
    return with_layer(mlp=3)


def partial_without_names() -> ModuleSpec:
    return with_layer(mlp=functools.partial(MLP, config()))


def built_module_as_child() -> ModuleSpec:
    return with_layer(mlp=nn.Linear(2, 2))


def rotary_and_learned() -> ModuleSpec:
    options = config(position_embedding_type="learned_absolute")
    spec = gpt_spec(options)
    spec.submodules["embedding"].params["rotary_pos_emb"] = RotaryPositionalEmbedding(options)
    return spec


def rotary_with_another_base() -> ModuleSpec:
    spec = gpt_spec(config(rotary_base=10.0))
    rotary = RotaryPositionalEmbedding(rotary_base=20.0)
    spec.submodules["embedding"].params["rotary_pos_emb"] = rotary
    return spec


def rotary_for_other_heads() -> ModuleSpec:
    spec = gpt_spec(config())
    rotary = RotaryPositionalEmbedding(kv_channels=4)
    spec.submodules["embedding"].params["rotary_pos_emb"] = rotary
    return spec


def rotary_handed_to_attention() -> ModuleSpec:
    rotary = RotaryPositionalEmbedding(rotary_base=20.0)
    return with_layer(self_attention=ModuleSpec(SelfAttention, params={"rotary_pos_emb": rotary}))


def norm_without_a_config() -> ModuleSpec:
    return ModuleSpec(TransformerLayer, submodules={"self_attention": SelfAttention, "mlp": MLP})


def no_layers() -> ModuleSpec:
    spec = gpt_spec(config())
    spec.submodules["decoder"] = ModuleSpec(TransformerBlock)
    return spec


def layers_given_twice() -> ModuleSpec:
    spec = gpt_spec(config())
    decoder(spec).params["layer_specs"] = [layer(spec), layer(spec)]
    return spec


def wrong_number_of_layers() -> ModuleSpec:
    spec = gpt_spec(config())
    specs = TransformerBlockSubmodules(layer_specs=[layer(spec)] * 3)
    spec.submodules["decoder"] = ModuleSpec(TransformerBlock, submodules=specs)
    return spec


def no_number_of_layers() -> ModuleSpec:
    spec = gpt_spec(config())
    decoder(spec).params["num_layers"] = 0
    return spec


def head_norm_that_is_not_set() -> ModuleSpec:
    return with_layer(self_attention=ModuleSpec(SelfAttention, submodules={"q_layernorm": RMSNorm}))


def head_norm_that_is_not_named() -> ModuleSpec:
    spec = gpt_spec(config(qk_layernorm=True))
    children = SelfAttentionSubmodules(q_layernorm=RMSNorm)
    layer(spec).submodules["self_attention"] = ModuleSpec(SelfAttention, submodules=children)
    return spec


def padding_mask() -> ModuleSpec:
    return with_layer(
        self_attention=ModuleSpec(SelfAttention, params={"attn_mask_type": "padding"})
    )


def config_in_a_dict() -> ModuleSpec:
    return ModuleSpec(GPTModel, {"config": {"num_layers": 2}}, gpt_spec(config()).submodules)


def config_class() -> ModuleSpec:
    return ModuleSpec(GPTModel, {"config": TransformerConfig}, gpt_spec(config()).submodules)


def missing_argument() -> ModuleSpec:
    return ModuleSpec(Pair, {"config": config()}, {"first": MLP, "second": MLP})


def child_given_twice() -> ModuleSpec:
    params = {"config": config(), "width": 3, "first": 1}
    return ModuleSpec(Pair, params, {"first": MLP, "second": MLP})


def final_norm_named_twice() -> ModuleSpec:
    spec = gpt_spec(config())
    decoder(spec).submodules = {"final_layernorm": RMSNorm, "layer_norm": RMSNorm}
    return spec


def window_by_layer_without_a_number() -> ModuleSpec:
    options = config(window_size=3, window_attn_skip_freq=2)
    return ModuleSpec(Wrapper, {"config": options}, {"attention": SelfAttention})


def two_rotary_objects() -> ModuleSpec:
    class TwoEmbeddings(MegatronModule):
        def __init__(
            self, config: TransformerConfig, a: nn.Module, b: nn.Module, decoder: nn.Module
        ) -> None:
            super().__init__(config)

    def embedding(base: float) -> ModuleSpec:
        rotary = RotaryPositionalEmbedding(rotary_base=base)
        return ModuleSpec(LanguageModelEmbedding, {"rotary_pos_emb": rotary})

    spec = gpt_spec(config())
    children = {"a": embedding(1e3), "b": embedding(1e4), "decoder": decoder(spec)}
    return ModuleSpec(TwoEmbeddings, {"config": config()}, children)


ATTENTION = "decoder.layer_spec.self_attention"
IN_MLP = "decoder.layer_spec.mlp"

TABLE: list[tuple[Callable[[], ModuleSpec], str, str, str]] = [
    (unknown_child, "SP101", "decoder.layer_spec", "did you mean `self_attention`?"),
    (unknown_handed_child, "SP101", "", "did you mean `second`?"),
    (missing_child, "SP102", "decoder.layer_spec", "add `self_attention` to submodules"),
    (builtin_as_module, "SP103", IN_MLP, "torch.nn.Module"),
    (config_as_module, "SP103", IN_MLP, 'params={"config": ...}'),
    (text_as_module, "SP103", IN_MLP, '("package.module", "Name")'),
    (pair_of_no_module, "SP104", IN_MLP, "check its name"),
    (pair_of_no_name, "SP105", IN_MLP, "did you mean `MLP`?"),
    (unknown_param, "SP106", ATTENTION, "did you mean `layer_number`?"),
    (rotary_handed_to_attention, "SP106", ATTENTION, "to the embedding"),
    (submodules_in_a_list, "SP107", "decoder.layer_spec", "a dict of children"),
    (a_spec_under_itself, "SP108", IN_MLP + ".mlp", "a new ModuleSpec"),
    (params_in_a_list, "SP109", IN_MLP, "a dict of constructor arguments"),
    (params_for_a_function, "SP109", IN_MLP, "functools.partial"),
    (number_as_child, "SP110", IN_MLP, "a ModuleSpec, a class"),
    (partial_without_names, "SP110", IN_MLP, "name them"),
    (rotary_and_learned, "SP111", "embedding", "leave `rotary_pos_emb` out"),
    (rotary_with_another_base, "SP112", "embedding", "say it once"),
    (rotary_for_other_heads, "SP112", "embedding", "leave `kv_channels`"),
    (norm_without_a_config, "SP113", "", "name `input_layernorm`"),
    (no_layers, "SP114", "decoder", "`layer_spec`, one spec for all"),
    (layers_given_twice, "SP114", "decoder", "`layer_spec`, one spec for all"),
    (wrong_number_of_layers, "SP115", "decoder", "change `num_layers`"),
    (head_norm_that_is_not_set, "SP116", ATTENTION, "set qk_layernorm=True"),
    (head_norm_that_is_not_named, "SP116", ATTENTION, "name `k_layernorm`"),
    (padding_mask, "SP117", ATTENTION, "leave it out"),
    (config_in_a_dict, "SP118", "", "TransformerConfig(**config)"),
    (config_class, "SP118", "", "an instance"),
    (missing_argument, "SP119", "", "add `width`"),
    (child_given_twice, "SP120", "", "leave one of them out"),
    (final_norm_named_twice, "SP120", "decoder", "leave one of them out"),
    (window_by_layer_without_a_number, "SP121", "attention", "`layer_number`"),
    (two_rotary_objects, "SP123", "b", "the same RotaryPositionalEmbedding"),
    (submodules_of_another_class, "SP124", ATTENTION, "SelfAttentionSubmodules(...)"),
    (built_module_as_child, "SP125", IN_MLP, "ModuleSpec(Linear, ...)"),
    (no_number_of_layers, "SP126", "decoder", "above 0"),
]


@pytest.mark.parametrize("mistake", TABLE, ids=lambda row: row[0].__name__)
def test_a_mistake_has_code_place_and_help(
    mistake: tuple[Callable[[], ModuleSpec], str, str, str],
) -> None:
    make, code, path, help = mistake
    with pytest.raises(SpecError) as caught:
        prepare(make())
    found = [d for d in caught.value.diagnostics if d.code == code]
    assert found, caught.value
    assert found[0].path == path
    assert help in (found[0].help or "")
    span = found[0].span
    assert span is not None
    assert span.file.endswith(("test_bad_specs.py", "small_models.py"))
    with open(span.file) as file:
        marked = file.read().splitlines()[span.line - 1][span.column - 1 :]
    # The call that made the spec, or the name in it that is wrong.
    assert re.match(r'ModuleSpec|"\w+":?', marked)


def test_the_place_is_the_line_that_made_the_spec() -> None:
    with pytest.raises(SpecError) as caught:
        prepare(unknown_param())
    lines, first = inspect.getsourcelines(unknown_param)
    (found,) = caught.value.diagnostics
    assert found.span is not None
    assert first < found.span.line < first + len(lines)


def test_all_mistakes_come_together() -> None:
    spec = with_layer(
        self_attention=ModuleSpec(SelfAttention, params={"layer_numbr": 1}),
        mlp=ModuleSpec(MLP, submodules={"linear_fc3": MLP}),
    )
    spec.submodules["embeding"] = spec.submodules.pop("embedding")
    with pytest.raises(SpecError) as caught:
        spec.build_module()
    assert sorted(d.code for d in caught.value.diagnostics) == ["SP101", "SP101", "SP106"]


def test_a_class_that_does_not_take_what_its_parent_passes_is_refused() -> None:
    spec = with_layer(
        self_attention=ModuleSpec(SelfAttention, submodules={"linear_qkv": nn.Linear})
    )
    with pytest.raises(SpecError, match=r"SP12[78].*`Linear`"):
        spec.build_module()


def test_an_argument_that_no_one_gives_to_a_spec_s_child_is_refused_when_it_is_built() -> None:
    class Narrow(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()

    with pytest.raises(SpecError) as caught:
        with_layer(mlp=ModuleSpec(Narrow)).build_module()
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [("SP119", IN_MLP)]


def test_what_a_constructor_raises_tells_where_it_was_built() -> None:
    class Broken(nn.Module):
        def __init__(self, config: ModelParallelConfig) -> None:
            raise RuntimeError("no weights today")

    with pytest.raises(RuntimeError, match="no weights today") as caught:
        with_layer(mlp=ModuleSpec(Broken)).build_module()
    notes = caught.value.__notes__
    assert notes[0].startswith("while building `Broken` at decoder.layer_spec.mlp (")
    assert notes[-1].startswith("while building `GPTModel` at the root (")
