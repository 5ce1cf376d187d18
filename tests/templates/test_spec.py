"""ModuleSpec and build_module: both dialects, every kind of node, who passes what."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from small_models import config, gpt_spec, tokens
from torch import Tensor, nn

from specc.runtime import Mesh
from specc.templates import (
    MLP,
    GPTModel,
    IdentityFuncOp,
    IdentityOp,
    LanguageModelEmbedding,
    LayerNorm,
    MegatronModule,
    ModuleSpec,
    RMSNorm,
    RotaryPositionalEmbedding,
    SelfAttention,
    TransformerBlock,
    TransformerBlockSubmodules,
    TransformerConfig,
    TransformerLayer,
    TransformerLayerSubmodules,
    build_module,
    get_submodules,
    prepare,
)


class Child(nn.Module):
    """Keeps what its constructor was called with."""

    def __init__(self, config: Any, mesh: Mesh, width: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.config, self.mesh, self.width, self.scale = config, mesh, width, scale


class Handed(nn.Module):
    """Takes its child built; knows nothing of configs and meshes."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child


class Asking(MegatronModule):
    """Takes its children as specs, in a plain dict, and builds them."""

    def __init__(self, config: Any, submodules: dict[str, Any], other: Any = None) -> None:
        super().__init__(config)
        self.child = build_module(submodules["child"], config, width=7)
        self.other = other


@dataclass
class Slots:
    child: Any = Child
    norm: Any = IdentityOp


class Typed(MegatronModule):
    """Takes its children in a dataclass."""

    def __init__(self, config: Any, submodules: Slots) -> None:
        super().__init__(config)
        self.child = build_module(submodules.child, config)
        self.norm = build_module(submodules.norm, config, hidden_size=8, eps=1e-5)


def twice(x: Tensor) -> Tensor:
    return 2 * x


def build(spec: Any, **kwargs: Any) -> Any:
    return build_module(spec, **kwargs)


# --- who passes what


def test_a_child_that_the_constructor_names_is_handed_built() -> None:
    options = config()
    spec = ModuleSpec(Handed, {"config": options}, {"child": ModuleSpec(Child, {"width": 3})})
    model = build(spec)
    assert isinstance(model.child, Child)
    assert model.child.width == 3
    assert model.child.config is options  # of the node above, which does not take it itself


def test_a_constructor_with_submodules_builds_with_what_it_knows() -> None:
    model = build(ModuleSpec(Asking, {"config": config()}, {"child": ModuleSpec(Child)}))
    assert model.child.width == 7


def test_what_the_parent_passes_wins_over_params() -> None:
    child = ModuleSpec(Child, {"width": 3, "scale": 0.5})
    model = build(ModuleSpec(Asking, {"config": config()}, {"child": child}))
    assert (model.child.width, model.child.scale) == (7, 0.5)


def test_a_config_on_a_node_holds_for_it_and_below() -> None:
    outer, inner = config(), config(hidden_size=64)
    handed = ModuleSpec(Handed, {"config": inner}, {"child": Child})
    model = build(ModuleSpec(Asking, {"config": outer}, {"child": Child, "other": handed}))
    assert model.child.config is outer
    assert model.other.child.config is inner


def test_a_node_s_own_config_wins_over_the_one_its_parent_hands_on() -> None:
    outer, inner = config(), config(hidden_size=64)
    child = ModuleSpec(Child, {"config": inner})
    assert build(ModuleSpec(Asking, {"config": outer}, {"child": child})).child.config is inner


def test_a_config_given_to_the_build_is_the_root_s() -> None:
    model = ModuleSpec(Typed, submodules={}).build_module(config=config(hidden_size=64))
    assert model.child.config.hidden_size == 64
    assert isinstance(ModuleSpec(Typed)(config()), Typed)


def test_both_ways_to_take_children_may_be_combined() -> None:
    spec = ModuleSpec(Asking, {"config": config()}, {"child": Child, "other": ModuleSpec(MLP)})
    model = build(spec)
    assert isinstance(model.child, Child) and isinstance(model.other, MLP)


def test_a_dict_becomes_the_dataclass_that_the_constructor_takes() -> None:
    model = build(ModuleSpec(Typed, {"config": config()}, {"norm": LayerNorm}))
    assert isinstance(model.child, Child)  # the slot's default
    assert isinstance(model.norm, LayerNorm)


def test_a_dataclass_whose_fields_the_constructor_names_is_handed_out() -> None:
    @dataclass
    class HandedSlots:
        child: Any = Child

    model = build(ModuleSpec(Handed, {"config": config()}, HandedSlots()))
    assert isinstance(model.child, Child)


def test_the_mesh_reaches_every_constructor_that_names_it() -> None:
    mesh = Mesh.single(dtype=torch.bfloat16)
    spec = ModuleSpec(Handed, {"config": config()}, {"child": Child})
    assert spec.build_module(mesh=mesh).child.mesh is mesh
    assert build(spec).child.mesh.dtype is torch.float32
    model = gpt_spec(config()).build_module(mesh=mesh)
    assert model(tokens()[:, :-1]).dtype is torch.bfloat16


def test_what_a_class_does_not_take_of_a_parent_s_offer_is_left_out() -> None:
    class PlainNorm(nn.Module):
        def __init__(self, hidden_size: int) -> None:
            super().__init__()
            self.hidden_size = hidden_size

    model = build(ModuleSpec(Typed, {"config": config()}, {"norm": PlainNorm}))
    assert model.norm.hidden_size == 8


def test_norms_take_their_size_from_the_config_where_none_is_given() -> None:
    model = build(ModuleSpec(Handed, {"config": config()}, {"child": RMSNorm}))
    assert model.child.hidden_size == 32


# --- kinds of node


@pytest.mark.parametrize(
    "node",
    [
        ModuleSpec(Child, {"scale": 2.0}),
        ModuleSpec((__name__, "Child"), {"scale": 2.0}),
        functools.partial(Child, scale=2.0),
    ],
    ids=["spec", "pair in a spec", "partial"],
)
def test_nodes_with_params(node: Any) -> None:
    model = build(ModuleSpec(Asking, {"config": config()}, {"child": node}))
    assert type(model.child).__name__ == "Child"
    assert (model.child.scale, model.child.width) == (2.0, 7)


@pytest.mark.parametrize("node", [Child, (__name__, "Child")], ids=["class", "pair"])
def test_bare_nodes(node: Any) -> None:
    model = build(ModuleSpec(Asking, {"config": config()}, {"child": node}))
    assert type(model.child).__name__ == "Child"


@pytest.mark.parametrize("node", [twice, ModuleSpec(twice), ModuleSpec((__name__, "twice"))])
def test_a_function_stands_for_itself(node: Any) -> None:
    model = build(ModuleSpec(Asking, {"config": config()}, {"child": node}))
    assert model.child(3) == 6


def test_a_partial_of_a_class_s_builder_is_the_class() -> None:
    class Built(Typed):
        @classmethod
        def as_child(cls, submodules: Slots) -> Callable[..., nn.Module]:
            raise AssertionError("not called")

    node = functools.partial(Built.as_child, submodules=Slots(norm=RMSNorm))
    model = build(ModuleSpec(Handed, {"config": config()}, {"child": node}))
    assert isinstance(model.child, Built)
    assert isinstance(model.child.norm, RMSNorm)


def test_get_submodules() -> None:
    slots = Slots()
    assert get_submodules(ModuleSpec(Typed, submodules=slots)) is slots
    assert get_submodules(functools.partial(Typed, submodules=slots)) is slots
    assert get_submodules(Typed) is None


def test_identities_take_anything() -> None:
    x = torch.ones(2)
    assert IdentityOp(1, a=2)(x, 3, b=4) is x
    assert IdentityFuncOp(1)(True, False)(x, 5) is x


# --- initial values


def test_children_start_alike_wherever_they_are_built() -> None:
    """A child is handed built in one dialect, built inside its parent in the other."""
    options = config(activation="swiglu")

    class Inside(MegatronModule):
        def __init__(self, config: Any, submodules: dict[str, Any]) -> None:
            super().__init__(config)
            self.late = nn.Linear(3, 3)
            self.child = build_module(submodules["child"], config)

    class Outside(MegatronModule):
        def __init__(self, config: Any, child: nn.Module) -> None:
            super().__init__(config)
            self.child = child
            self.late = nn.Linear(3, 3)

    inside = ModuleSpec(Inside, {"config": options}, {"child": MLP}).build_module(seed=5)
    outside = ModuleSpec(Outside, {"config": options}, {"child": MLP}).build_module(seed=5)
    first, second = inside.state_dict(), outside.state_dict()
    assert sorted(first) == sorted(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_spec_made_inside_a_constructor_is_built_in_the_same_build() -> None:
    class Maker(MegatronModule):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.child = ModuleSpec(Typed, submodules={"norm": RMSNorm}).build_module(config)
            self.other = build_module(MLP)

    model = build(ModuleSpec(Maker, {"config": config()}))
    assert isinstance(model.child.norm, RMSNorm)
    assert model.other.linear_fc1.weight.std() > 0


# --- preparing


def test_preparing_leaves_the_user_s_spec_as_it_was() -> None:
    rotary = RotaryPositionalEmbedding(rotary_base=100.0)
    spec = gpt_spec(config())
    spec.submodules["embedding"].params["rotary_pos_emb"] = rotary
    layer = spec.submodules["decoder"].params["layer_spec"]
    layer.params["layer_number"] = 1
    prepared = prepare(spec)
    assert spec.submodules["embedding"].params == {"rotary_pos_emb": rotary}
    assert layer.params == {"layer_number": 1}
    assert set(layer.submodules) == {"self_attention", "mlp"}
    assert spec.params["config"].position_embedding_type is None
    assert prepare(prepared.spec).spec is prepared.spec


def test_unnamed_norms_come_from_the_config_and_it_counts_as_read() -> None:
    prepared = prepare(gpt_spec(config(normalization="RMSNorm")))
    block = prepared.spec.submodules.decoder
    assert block.submodules.layer_norm.module is RMSNorm
    assert block.params["layer_spec"].submodules.input_layernorm.module is RMSNorm
    assert prepared.reads == {"normalization", "qk_layernorm"}


def test_an_identity_says_that_there_is_no_norm() -> None:
    spec = gpt_spec(config())
    spec.submodules["decoder"].submodules = {"final_layernorm": IdentityOp}
    assert not [n for n in spec.build_module().state_dict() if n.startswith("decoder.final")]


def test_nodes_know_their_paths() -> None:
    decoder = prepare(gpt_spec(config())).spec.submodules.decoder
    layer = decoder.params["layer_spec"]
    assert (decoder.path, layer.path) == ("decoder", "decoder.layer_spec")
    assert layer.submodules.self_attention.path == "decoder.layer_spec.self_attention"


def test_one_spec_at_several_places_is_one_kind() -> None:
    norm = ModuleSpec(RMSNorm)
    spec = gpt_spec(config())
    layer = spec.submodules["decoder"].params["layer_spec"]
    layer.submodules |= {"input_layernorm": norm, "pre_mlp_layernorm": norm}
    prepared = prepare(spec).spec.submodules.decoder.params["layer_spec"].submodules
    assert prepared.input_layernorm is prepared.pre_mlp_layernorm


# --- layers


def test_different_layers_are_given_one_by_one() -> None:
    wide, narrow = config(ffn_hidden_size=64), config(ffn_hidden_size=16)
    spec = gpt_spec(config())
    block = spec.submodules["decoder"]
    children = block.params.pop("layer_spec").submodules
    layers = [
        ModuleSpec(TransformerLayer, {"config": c}, submodules=children) for c in (wide, narrow)
    ]
    block.params["layer_specs"] = layers
    model = spec.build_module()
    widths = [layer.mlp.linear_fc2.in_features for layer in model.decoder.layers]
    assert widths == [64, 16]
    assert model(tokens()[:, :-1]).isfinite().all()


def test_megatron_s_list_of_one_spec_is_one_kind_of_layer() -> None:
    layer = ModuleSpec(
        TransformerLayer,
        submodules=TransformerLayerSubmodules(self_attention=SelfAttention, mlp=MLP),
    )
    block = ModuleSpec(
        TransformerBlock, submodules=TransformerBlockSubmodules(layer_specs=[layer, layer])
    )
    spec = ModuleSpec(GPTModel, {"config": config()}, {"decoder": block})
    decoder = prepare(spec).spec.submodules.decoder
    assert decoder.params["layer_spec"].module is TransformerLayer
    assert "layer_specs" not in decoder.params
    assert len(spec.build_module().decoder.layers) == 2


def test_num_layers_in_params_overrides_the_config_s() -> None:
    spec = gpt_spec(config())
    spec.submodules["decoder"].params["num_layers"] = 3
    assert len(spec.build_module().decoder.layers) == 3


# --- the seed's traps


def test_a_rotary_object_turns_attention_under_the_shared_parent() -> None:
    spec = gpt_spec(config())
    rotary = RotaryPositionalEmbedding(config(rotary_base=77.0, rotary_percent=0.5))
    spec.submodules["embedding"].params["rotary_pos_emb"] = rotary
    prepared = prepare(spec)
    (note,) = prepared.notes
    assert (note.code, note.path) == ("SP190", "embedding")
    options = prepared.spec.params["config"]
    assert options.position_embedding_type == "rope"
    assert (options.rotary_base, options.rotary_percent) == (77.0, 0.5)
    assert {"position_embedding_type", "rotary_base", "rotary_percent"} <= options._set_fields
    layer = prepared.spec.submodules.decoder.params["layer_spec"]
    assert layer.config_in_force is options
    said = config(position_embedding_type="rope", rotary_base=77.0, rotary_percent=0.5)
    ids = tokens()[:, :-1]
    assert torch.equal(spec.build_module()(ids), gpt_spec(said).build_module()(ids))


def test_rotary_positions_stop_at_the_nearest_parent_that_attends() -> None:
    class Two(MegatronModule):
        def __init__(self, config: TransformerConfig, left: nn.Module, right: nn.Module) -> None:
            super().__init__(config)
            self.left, self.right = left, right

    left, right = gpt_spec(config()), gpt_spec(config())
    for spec in (left, right):
        del spec.params["config"]
    left.submodules["embedding"] = ModuleSpec(
        LanguageModelEmbedding, {"rotary_pos_emb": RotaryPositionalEmbedding(rotary_base=9.0)}
    )
    model = build(ModuleSpec(Two, {"config": config()}, {"left": left, "right": right}))
    assert model.left.decoder.config.position_embedding_type == "rope"
    assert model.right.decoder.config.position_embedding_type is None
    assert model.config.position_embedding_type is None


def test_an_embedding_spec_used_twice_turns_both_models() -> None:
    class Two(MegatronModule):
        def __init__(self, config: TransformerConfig, left: nn.Module, right: nn.Module) -> None:
            super().__init__(config)
            self.left, self.right = left, right

    embedding = ModuleSpec(
        LanguageModelEmbedding, {"rotary_pos_emb": RotaryPositionalEmbedding(rotary_base=9.0)}
    )
    left, right = gpt_spec(config()), gpt_spec(config())
    for spec in (left, right):
        del spec.params["config"]
        spec.submodules["embedding"] = embedding
    model = build(ModuleSpec(Two, {"config": config()}, {"left": left, "right": right}))
    assert model.left.decoder.config.position_embedding_type == "rope"
    assert model.right.decoder.config.position_embedding_type == "rope"


def test_scaling_numbers_come_with_the_rotary_object() -> None:
    scaled = config(rope_scaling="linear", rope_scaling_factor=1)  # the default, and set
    spec = gpt_spec(config())
    spec.submodules["embedding"].params["rotary_pos_emb"] = RotaryPositionalEmbedding(scaled)
    assert prepare(spec).spec.params["config"].rope_scaling == "linear"


def test_layer_numbers_in_specs_are_left_out_with_a_note() -> None:
    spec = gpt_spec(config(window_size=3, window_attn_skip_freq=2))
    layer = spec.submodules["decoder"].params["layer_spec"]
    layer.params["layer_number"] = 1
    layer.submodules["self_attention"].params["layer_number"] = 1
    (note,) = prepare(spec).notes
    assert note.code == "SP191"
    assert len(note.also) == 1
    windows = [layer.self_attention.window for layer in spec.build_module().decoder.layers]
    assert windows == [3, None]


def test_a_rotary_object_needs_something_to_say() -> None:
    with pytest.raises(TypeError, match="needs a config"):
        RotaryPositionalEmbedding()
    with pytest.raises(TypeError, match="no field `rotary_bas`"):
        RotaryPositionalEmbedding(rotary_bas=3.0)


def test_configs_that_are_not_ours_are_handed_on() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own:
        width: int = 4

    own = Own()
    model = build(ModuleSpec(Handed, {"config": own}, {"child": Child}))
    assert model.child.config is own


class UniformAttention(nn.Module):
    """A core of the user's: every place sees the mean of all values."""

    def __init__(self, config: TransformerConfig, layer_number: int) -> None:
        super().__init__()
        self.layer_number = layer_number

    def forward(self, q: Tensor, k: Tensor, v: Tensor, positions: Any, mask: Any) -> Tensor:
        return v.mean(1, keepdim=True).repeat_interleave(q.shape[2] // v.shape[2], 2).expand_as(q)


def test_a_core_attention_of_the_user_s_takes_the_place_of_the_runtime_s() -> None:
    spec = gpt_spec(config(num_query_groups=2, position_embedding_type="none"))
    children = spec.submodules["decoder"].params["layer_spec"].submodules
    children["self_attention"].submodules = {"core_attention": UniformAttention}
    model = spec.build_module()
    cores = [layer.self_attention.core_attention for layer in model.decoder.layers]
    assert [core.layer_number for core in cores] == [1, 2]
    ids = tokens()[:, :-1]
    backwards = model(ids.flip(1)).flip(1)
    assert torch.allclose(backwards, model(ids), atol=1e-6)  # blind to order
