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
from .gpt import GPTModel, GPTModelSubmodules
from .identity import IdentityFuncOp, IdentityOp
from .layer import TransformerLayer, TransformerLayerSubmodules
from .mlp import MLP, MLPSubmodules
from .norm import LayerNorm, RMSNorm
from .output import OutputLayer, TransformerLanguageModelOutputLayer
from .prepare import Prepared, prepare
from .rotary import RotaryPositionalEmbedding
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
    "ConfigError",
    "Diagnostic",
    "GPTModel",
    "GPTModelSubmodules",
    "IdentityFuncOp",
    "IdentityOp",
    "LanguageModelEmbedding",
    "LayerNorm",
    "MLPSubmodules",
    "MegatronModule",
    "ModelParallelConfig",
    "ModuleSpec",
    "OutputLayer",
    "Prepared",
    "PreparedSpec",
    "RMSNorm",
    "RotaryPositionalEmbedding",
    "SelfAttention",
    "SelfAttentionSubmodules",
    "Span",
    "SpecError",
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
