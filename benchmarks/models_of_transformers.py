"""The models of transformers of model_zoo.py, in tiny random configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from model_example import BATCH, IMAGES, TOKENS, Example

__all__ = ["MODELS"]


def _transformers(name: str, inputs: Callable[[], dict[str, tuple[Any, Any]]], **config: Any) -> Callable[[], Example]:
    """A model class with a tiny configuration; ``inputs`` gives each example input with its dynamic dimensions."""

    def make() -> Example:
        import transformers

        kind = getattr(transformers, name)
        model = kind(kind.config_class(**config)).eval()
        given = inputs()
        kwargs = {key: value for key, (value, _) in given.items()}
        return Example(model, (), kwargs, {key: dynamic for key, (_, dynamic) in given.items()})

    return make


def _tokens(*names: str, dynamic: Mapping[int, Any] = TOKENS) -> Callable[[], dict[str, tuple[Any, Any]]]:
    def make() -> dict[str, tuple[Any, Any]]:
        given: dict[str, tuple[Any, Any]] = {}
        for name in names:
            value = torch.ones(2, 7, dtype=torch.long) if name.endswith("mask") else torch.randint(0, 60, (2, 7))
            given[name] = (value, dict(dynamic))
        return given

    return make


def _pixels(*shape: int, dynamic: Mapping[int, Any] = BATCH) -> Callable[[], dict[str, tuple[Any, Any]]]:
    return lambda: {"pixel_values": (torch.randn(shape), dict(dynamic))}


def _sound(length: int) -> Callable[[], dict[str, tuple[Any, Any]]]:
    return lambda: {"input_values": (torch.randn(2, length), TOKENS)}


_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = {**_SMALL, "vocab_size": 64, "max_position_embeddings": 64, "num_key_value_heads": 2, "pad_token_id": 0}
_VISION = {**_SMALL, "image_size": 32, "patch_size": 8}
_T5 = {
    "vocab_size": 64,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_DETR_BACKBONE = {
    "embedding_size": 16,
    "hidden_sizes": [16, 24, 32, 40],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
    "out_indices": [2, 3, 4],
}
_DETR = {
    # With the default of 0.01 all scores are the same to the last bit, and any of them may be chosen.
    "initializer_range": 0.2,
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [24, 32, 40],
    "feat_strides": [8, 16, 32],
    "encoder_ffn_dim": 64,
    "encoder_attention_heads": 2,
    "d_model": 32,
    "num_queries": 20,
    "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 32,
    "decoder_attention_heads": 2,
    "decoder_layers": 1,
    "num_labels": 8,
    "eval_size": None,
}


def _with_backbone(
    name: str, backbone: str, inputs: Callable[[], dict[str, tuple[Any, Any]]], backbone_config: Any, **config: Any
) -> Callable[[], Example]:
    def make() -> Example:
        import transformers

        own = getattr(transformers, backbone)(**backbone_config)
        return _transformers(name, inputs, backbone_config=own, **config)()

    return make


def _sam() -> Example:
    import transformers

    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 32,
            "output_channels": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 8,
            "mlp_dim": 32,
            "num_pos_feats": 8,
            "window_size": 4,
            "global_attn_indexes": [1],
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 8},
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 16,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
            "iou_head_depth": 2,
        },
    )
    kwargs = {"pixel_values": torch.randn(2, 3, 64, 64), "input_points": 64 * torch.rand(2, 1, 2, 2)}
    return Example(transformers.SamModel(config).eval(), (), kwargs, {"pixel_values": BATCH, "input_points": BATCH})


def _whisper() -> Example:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=64,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    kwargs = {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": torch.randint(0, 60, (2, 5))}
    return Example(
        transformers.WhisperForConditionalGeneration(config).eval(),
        (),
        kwargs,
        {"input_features": BATCH, "decoder_input_ids": TOKENS},
    )


MODELS: dict[str, Callable[[], Example]] = {
    "t5": _transformers(
        "T5ForConditionalGeneration", _tokens("input_ids", "decoder_input_ids"), use_cache=False, **_T5
    ),
    "t5_cache": _transformers(
        "T5ForConditionalGeneration", _tokens("input_ids", "decoder_input_ids"), use_cache=True, **_T5
    ),
    "umt5": _transformers("UMT5ForConditionalGeneration", _tokens("input_ids", "decoder_input_ids"), **_T5),
    "swin": _transformers(
        "SwinModel",
        _pixels(2, 3, 32, 32),
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 2],
        num_heads=[2, 2],
        window_size=4,
    ),
    "swin_dynamic": _transformers(
        "SwinModel",
        _pixels(2, 3, 32, 32, dynamic=IMAGES),
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 2],
        num_heads=[2, 2],
        window_size=4,
    ),
    "swinv2": _transformers(
        "Swinv2Model",
        _pixels(2, 3, 32, 32),
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 2],
        num_heads=[2, 2],
        window_size=4,
    ),
    "beit": _transformers("BeitModel", _pixels(2, 3, 32, 32), **_VISION, use_relative_position_bias=True),
    "data2vec": _transformers("Data2VecVisionModel", _pixels(2, 3, 32, 32), **_VISION, use_relative_position_bias=True),
    "hiera_transformers": _transformers(
        "HieraModel",
        _pixels(2, 3, 64, 64),
        image_size=[64, 64],
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 2, 2],
    ),
    "wav2vec2_conformer": _transformers(
        "Wav2Vec2ConformerModel",
        _sound(4000),
        **_SMALL,
        conv_dim=[16, 16, 16],
        conv_stride=[4, 4, 4],
        conv_kernel=[8, 8, 8],
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        position_embeddings_type="relative",
    ),
    "wav2vec2": _transformers(
        "Wav2Vec2Model",
        _sound(4000),
        **_SMALL,
        conv_dim=[16, 16, 16],
        conv_stride=[4, 4, 4],
        conv_kernel=[8, 8, 8],
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    ),
    "mixtral": _transformers(
        "MixtralForCausalLM", _tokens("input_ids"), **_DECODER, num_local_experts=4, use_cache=False
    ),
    "mixtral_cache": _transformers(
        "MixtralForCausalLM", _tokens("input_ids", "attention_mask"), **_DECODER, num_local_experts=4
    ),
    "qwen2_moe": _transformers(
        "Qwen2MoeForCausalLM",
        _tokens("input_ids"),
        **_DECODER,
        num_experts=4,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
    "qwen3_moe": _transformers(
        "Qwen3MoeForCausalLM",
        _tokens("input_ids"),
        **_DECODER,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        head_dim=8,
    ),
    "jamba": _transformers(
        "JambaForCausalLM",
        _tokens("input_ids"),
        **{**_DECODER, "num_hidden_layers": 4},
        num_experts=4,
        use_mamba_kernels=False,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_dt_rank=4,
        mamba_d_state=4,
    ),
    "gpt_oss": _transformers(
        "GptOssForCausalLM",
        _tokens("input_ids"),
        **_DECODER,
        num_local_experts=4,
        num_experts_per_tok=2,
        head_dim=8,
        sliding_window=4,
    ),
    "switch": _transformers(
        "SwitchTransformersForConditionalGeneration",
        _tokens("input_ids", "attention_mask", "decoder_input_ids"),
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        num_experts=4,
        decoder_start_token_id=0,
        expert_capacity=8,
    ),
    "deepseek_v3": _transformers(
        "DeepseekV3ForCausalLM",
        _tokens("input_ids"),
        **{**_DECODER, "num_key_value_heads": 4},
        moe_intermediate_size=16,
        n_routed_experts=4,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        qk_nope_head_dim=8,
        first_k_dense_replace=1,
    ),
    "rt_detr": _with_backbone(
        "RTDetrForObjectDetection", "RTDetrResNetConfig", _pixels(2, 3, 64, 96, dynamic=IMAGES), _DETR_BACKBONE, **_DETR
    ),
    "rt_detr_v2": _with_backbone(
        "RTDetrV2ForObjectDetection",
        "RTDetrResNetConfig",
        _pixels(2, 3, 64, 96, dynamic=IMAGES),
        _DETR_BACKBONE,
        **{**_DETR, "decoder_layers": 2},  # With one there is nothing to tie, and transformers refuses that.
    ),
    "detr": _with_backbone(
        "DetrForObjectDetection",
        "ResNetConfig",
        _pixels(2, 3, 64, 96, dynamic=IMAGES),
        {
            "embedding_size": 16,
            "hidden_sizes": [16, 24, 32, 40],
            "depths": [1, 1, 1, 1],
            "layer_type": "basic",
            "out_features": ["stage4"],
        },
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        num_queries=12,
    ),
    "vits": _transformers(
        "VitsModel",
        _tokens("input_ids"),
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        flow_size=16,
        spectrogram_bins=9,
        upsample_initial_channel=16,
        upsample_rates=[2, 2],
        upsample_kernel_sizes=[4, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        posterior_encoder_num_wavenet_layers=1,
        prior_encoder_num_flows=1,
        duration_predictor_num_flows=2,
        duration_predictor_filter_channels=16,
    ),
    "sam": lambda: _sam(),
    "llama": _transformers("LlamaForCausalLM", _tokens("input_ids", "attention_mask"), **_DECODER),
    "gpt2": _transformers(
        "GPT2LMHeadModel", _tokens("input_ids"), vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4
    ),
    "bert": _transformers("BertModel", _tokens("input_ids", "attention_mask"), **_SMALL, vocab_size=64),
    "mamba": _transformers(
        "MambaForCausalLM",
        _tokens("input_ids"),
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=4,
    ),
    "whisper": lambda: _whisper(),
    "gemma3": _transformers("Gemma3ForCausalLM", _tokens("input_ids"), **_DECODER, head_dim=8, sliding_window=4),
    "bart": _transformers(
        "BartForConditionalGeneration",
        _tokens("input_ids", "decoder_input_ids"),
        vocab_size=64,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
    ),
}
