"""specc.templates: what a spec is written with."""

from .attention import SelfAttention, SelfAttentionSubmodules
from .base import MegatronModule
from .block import TransformerBlock, TransformerBlockSubmodules
from .config import (
    LAUNCH_FIELDS,
    TRAINER_FIELDS,
    ConfigError,
    ModelParallelConfig,
    TransformerConfig,
)
from .diagnostic import Diagnostic, Span, SpecError
from .embedding import LanguageModelEmbedding
from .experts import GroupedMLP, GroupedMLPSubmodules
from .gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
from .gpt import GPTModel, GPTModelSubmodules
from .hybrid import HybridModel, HybridStack, HybridStackSubmodules
from .hybrid_layers import (
    AttentionLayer,
    AttentionLayerSubmodules,
    GatedDeltaNetLayer,
    MambaLayer,
    MambaLayerSubmodules,
    MLPLayer,
    MLPLayerSubmodules,
)
from .identity import IdentityFuncOp, IdentityOp
from .layer import TransformerLayer, TransformerLayerSubmodules
from .mamba import MambaMixer, MambaMixerSubmodules
from .mlp import MLP, MLPSubmodules
from .moe import MoELayer, MoESubmodules
from .multi_latent_attention import MLASelfAttention, MLASelfAttentionSubmodules
from .multi_token_prediction import (
    MultiTokenPredictionBlock,
    MultiTokenPredictionLayer,
    MultiTokenPredictionLayerSubmodules,
)
from .norm import HeadsRMSNorm, LayerNorm, RMSNorm
from .output import OutputLayer, TransformerLanguageModelOutputLayer
from .prepare import Prepared, prepare
from .rotary import RotaryPositionalEmbedding
from .router import TopKRouter
from .shared_experts import SharedExpertMLP
from .spec import (
    ModuleSpec,
    PreparedSpec,
    build_module,
    construct,
    get_submodules,
    norm_slot,
    required_slot,
)

__all__ = [
    "LAUNCH_FIELDS",
    "MLP",
    "TRAINER_FIELDS",
    "AttentionLayer",
    "AttentionLayerSubmodules",
    "ConfigError",
    "Diagnostic",
    "GPTModel",
    "GPTModelSubmodules",
    "GatedDeltaNet",
    "GatedDeltaNetLayer",
    "GatedDeltaNetSubmodules",
    "GroupedMLP",
    "GroupedMLPSubmodules",
    "HeadsRMSNorm",
    "HybridModel",
    "HybridStack",
    "HybridStackSubmodules",
    "IdentityFuncOp",
    "IdentityOp",
    "LanguageModelEmbedding",
    "LayerNorm",
    "MLASelfAttention",
    "MLASelfAttentionSubmodules",
    "MLPLayer",
    "MLPLayerSubmodules",
    "MLPSubmodules",
    "MambaLayer",
    "MambaLayerSubmodules",
    "MambaMixer",
    "MambaMixerSubmodules",
    "MegatronModule",
    "MoELayer",
    "MoESubmodules",
    "ModelParallelConfig",
    "ModuleSpec",
    "MultiTokenPredictionBlock",
    "MultiTokenPredictionLayer",
    "MultiTokenPredictionLayerSubmodules",
    "OutputLayer",
    "Prepared",
    "PreparedSpec",
    "RMSNorm",
    "RotaryPositionalEmbedding",
    "SelfAttention",
    "SelfAttentionSubmodules",
    "SharedExpertMLP",
    "Span",
    "SpecError",
    "TopKRouter",
    "TransformerBlock",
    "TransformerBlockSubmodules",
    "TransformerConfig",
    "TransformerLanguageModelOutputLayer",
    "TransformerLayer",
    "TransformerLayerSubmodules",
    "build_module",
    "construct",
    "get_submodules",
    "norm_slot",
    "prepare",
    "required_slot",
]
