"""Fields of any config.json that say nothing of the model's mathematics, and why."""

from __future__ import annotations

from typing import Any

HARMLESS = frozenset(
    {
        # Where the file comes from, and which Python class reads it.
        "_name_or_path", "architectures", "auto_map", "transformers_version", "model_type",
        "_from_model_config", "_commit_hash", "name_or_path",
        # Numbers of tokens: for the tokenizer and for sampling.
        "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id",
        "decoder_start_token_id", "tokenizer_class", "model_max_length",
        # How the weights are stored. The weights' own files say it again.
        "torch_dtype", "dtype", "quantization_config", "use_bfloat16",
        # Which kernel or cache runs.
        "use_cache", "attn_implementation", "_attn_implementation",
        "_attn_implementation_autoset", "_attn_implementation_internal",
        "cache_implementation", "use_flash_attn", "torchscript", "compression_config",
        # What a forward returns beside the logits.
        "output_attentions", "output_hidden_states", "output_scores", "output_router_logits",
        "return_dict", "return_dict_in_generate", "num_logits_to_keep", "logits_to_keep",
        # Sampling.
        "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample",
        "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty",
        "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length",
        "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
        "num_return_sequences", "remove_invalid_values", "repetition_penalty",
        "suppress_tokens", "temperature", "top_k", "top_p", "typical_p",
        # Heads for other tasks, which are not imported.
        "id2label", "label2id", "problem_type", "finetuning_task", "num_labels",
        "task_specific_params", "classifier_dropout", "prefix",
        # Of other frameworks' training.
        "gradient_checkpointing", "tf_legacy_loss", "onnx_safe", "ignore_index",
        "sequence_parallel_enabled", "selective_checkpoint_enabled",
    }
)  # fmt: skip

PREFIXES = ("summary_",)  # GPT-2's and its children's heads for multiple choice

# Fields of any config that say nothing as long as they have one of these values.
EXPECTED: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "is_decoder": (False, True),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False,),
    "chunk_size_feed_forward": (0,),
    "pruned_heads": ({},),
    "pretraining_tp": (1,),
    "layer_types": (None,),
}
