"""Transformers and their parts: transformers, PEFT, sentence-transformers, x-transformers and others."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from models_of_vision import without_zeros
from packages_example import BATCH, Example, Factory
from torch import nn

__all__ = ["MODULES"]

TOKENS = {0: "batch", 1: "length"}
_BERT = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
}
_LLAMA = {**_BERT, "num_key_value_heads": 1}


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    model: nn.Module = BertModel(BertConfig(**_BERT)).eval()
    return model


def _tokens(model: nn.Module, **others: Any) -> Example:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    inputs = {"input_ids": torch.randint(1, 60, (2, 9)), "attention_mask": mask}
    return Example(model.eval(), (), {**inputs, **others}, {**dict.fromkeys(inputs, TOKENS), **dict.fromkeys(others)})


def _causal(name: str, **options: Any) -> Example:
    import transformers

    kind = getattr(transformers, name)
    return _tokens(kind(kind.config_class(**{**_LLAMA, **options})), use_cache=False)


def _modern_bert() -> Example:
    from transformers import ModernBertConfig, ModernBertModel

    config = ModernBertConfig(**_BERT, pad_token_id=0, local_attention=4, global_attn_every_n_layers=2)
    return _tokens(ModernBertModel(config))


def _encodec() -> Example:
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(
        num_filters=4, upsampling_ratios=[4, 2], codebook_size=32, codebook_dim=16, hidden_size=16, num_lstm_layers=1
    )
    inputs = {"input_values": torch.randn(1, 1, 1600)}
    return Example(EncodecModel(config).eval(), (), inputs, {"input_values": {0: "batch", 2: "time"}})


_BACKBONE = {
    "embedding_size": 16,
    "hidden_sizes": [16, 24, 32, 40],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
    "out_indices": [2, 3, 4],
}


def _rt_detr() -> Example:
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

    config = RTDetrConfig(
        backbone_config=RTDetrResNetConfig(**_BACKBONE),
        encoder_hidden_dim=32,
        encoder_in_channels=[24, 32, 40],
        encoder_ffn_dim=64,
        encoder_attention_heads=2,
        d_model=32,
        num_queries=20,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=32,
        decoder_attention_heads=2,
        decoder_layers=1,
        num_labels=8,
    )
    return Example(RTDetrForObjectDetection(config).eval(), (torch.rand(1, 3, 64, 64),), {}, (BATCH,))


def _upernet() -> Example:
    from transformers import ConvNextConfig, UperNetConfig, UperNetForSemanticSegmentation

    backbone = ConvNextConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], out_features=["stage1", "stage2", "stage3", "stage4"]
    )
    config = UperNetConfig(backbone_config=backbone, hidden_size=16, num_labels=5, use_auxiliary_head=False)
    inputs = {"pixel_values": torch.rand(1, 3, 64, 96)}
    dynamic = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
    return Example(UperNetForSemanticSegmentation(config).eval(), (), inputs, dynamic)


def _whisper() -> Example:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=60,
        num_mel_bins=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        d_model=16,
        max_source_positions=30,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    inputs = {"input_features": torch.randn(2, 16, 60), "decoder_input_ids": torch.randint(1, 60, (2, 7))}
    dynamic = {"input_features": BATCH, "decoder_input_ids": TOKENS, "use_cache": None}
    return Example(WhisperForConditionalGeneration(config).eval(), (), {**inputs, "use_cache": False}, dynamic)


def _peft(kind: str, **options: Any) -> Example:
    import peft

    config = getattr(peft, kind)(target_modules=["query", "value"], **options)
    model = without_zeros(peft.get_peft_model(_bert(), config))
    ids = torch.randint(1, 60, (2, 9))
    return Example(model.eval(), (ids,), {}, {"args": (TOKENS,)})


class _Sentences(nn.Module):
    """A sentence encoder: the modules of sentence-transformers after a BERT, with tensors as arguments."""

    def __init__(self, mode: str) -> None:
        from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

        super().__init__()
        self.bert = _bert()
        self.heads = nn.Sequential(Pooling(32, mode), Dense(32, 24), Normalize())

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        """Tokens to normalized sentence embeddings."""
        embeddings = self.bert(input_ids, attention_mask).last_hidden_state
        features = {"token_embeddings": embeddings, "attention_mask": attention_mask}
        return self.heads(features)["sentence_embedding"]


def _sentences(mode: str) -> Example:
    return _tokens(_Sentences(mode))


def _x_decoder() -> Example:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=60, max_seq_len=32, attn_layers=layers)
    return Example(model.eval(), (torch.randint(0, 60, (2, 9)),), {}, (TOKENS,))


def _x_encoder() -> Example:
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(dim=32, depth=2, heads=2, attn_dim_head=16, alibi_pos_bias=True, ff_glu=True, use_rmsnorm=True)
    model = TransformerWrapper(num_tokens=60, max_seq_len=32, use_abs_pos_emb=False, attn_layers=layers)
    return Example(model.eval(), (torch.randint(0, 60, (2, 9)),), {}, (TOKENS,))


def _performer() -> Example:
    from performer_pytorch import Performer

    model = Performer(dim=32, depth=1, heads=2, dim_head=16, nb_features=24)
    return Example(model.eval(), (torch.randn(2, 20, 32),), {}, (TOKENS,))


def _linformer() -> Example:
    from linformer import Linformer

    model = Linformer(dim=32, seq_len=24, depth=2, heads=2, k=8)
    return Example(model.eval(), (torch.randn(2, 24, 32),), {}, (BATCH,))


def _perceiver() -> Example:
    from perceiver_pytorch import PerceiverIO

    model = PerceiverIO(
        depth=1,
        dim=16,
        queries_dim=12,
        logits_dim=5,
        num_latents=8,
        latent_dim=16,
        latent_heads=2,
        cross_dim_head=8,
        latent_dim_head=8,
    )
    inputs = {"data": torch.randn(2, 20, 16), "queries": torch.randn(6, 12)}
    return Example(model.eval(), (), inputs, {"data": TOKENS, "queries": {0: "queries"}})


def _perceiver_images() -> Example:
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        num_freq_bands=3,
        depth=1,
        max_freq=10.0,
        num_latents=8,
        latent_dim=16,
        latent_heads=2,
        cross_dim_head=8,
        latent_dim_head=8,
        num_classes=5,
    )
    return Example(model.eval(), (torch.rand(2, 12, 16, 3),), {}, ({0: "batch", 1: "height", 2: "width"},))


def _local_attention() -> Example:
    from local_attention import LocalAttention

    model = LocalAttention(window_size=8, causal=True, dim=16, autopad=True).eval()
    dynamic = {0: "batch", 2: "length"}
    return Example(model, tuple(torch.randn(2, 2, 24, 16) for _ in range(3)), {}, (dynamic,) * 3)


def _nystrom() -> Example:
    from nystrom_attention import NystromAttention

    model = NystromAttention(32, dim_head=16, heads=2, num_landmarks=8, pinv_iterations=4, residual_conv_kernel=5)
    return Example(model.eval(), (torch.randn(2, 20, 32),), {}, (TOKENS,))


class _Rotary(nn.Module):
    """The rotation of queries by their positions."""

    def __init__(self) -> None:
        from rotary_embedding_torch import RotaryEmbedding

        super().__init__()
        self.rotary = RotaryEmbedding(16, cache_if_possible=False)

    def forward(self, queries: torch.Tensor) -> Any:
        """Queries (batch, heads, length, width), rotated."""
        return self.rotary.rotate_queries_or_keys(queries)


def _rotary() -> Example:
    return Example(_Rotary().eval(), (torch.randn(2, 2, 10, 16),), {}, ({0: "batch", 2: "length"},))


def _quantizer(name: str, **options: Any) -> Example:
    import vector_quantize_pytorch

    model = getattr(vector_quantize_pytorch, name)(**options)
    return Example(model.eval(), (torch.randn(2, 11, 16),), {}, (TOKENS,))


def _einops() -> Example:
    from einops.layers.torch import EinMix, Rearrange, Reduce

    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=48, d=10),
        Reduce("b t d -> b d", "max"),
    )
    return Example(model.eval(), (torch.rand(2, 3, 16, 24),), {}, ({0: "batch", 2: "height", 3: "width"},))


def _mamba() -> Example:
    from mambapy.mamba import Mamba, MambaConfig

    model = Mamba(MambaConfig(d_model=16, n_layers=2, d_state=4))
    return Example(model.eval(), (torch.randn(2, 12, 16),), {}, (TOKENS,))


def _entmax(name: str) -> Example:
    import entmax

    return Example(getattr(entmax, name)(dim=-1).eval(), (torch.randn(3, 10),), {}, ({0: "batch", 1: "classes"},))


def _crf() -> Example:
    from torchcrf import CRF

    args = (torch.randn(2, 8, 5), torch.randint(0, 5, (2, 8)))
    return Example(CRF(5, batch_first=True).eval(), args, {}, (TOKENS, TOKENS))


def _torchao(name: str) -> Example:
    from torchao import quantization

    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    quantization.quantize_(model, getattr(quantization, name)())
    return Example(model, (torch.randn(3, 64),), {}, (BATCH,), tolerance=0.02)


MODULES: dict[str, Factory] = {
    "transformers/EncodecModel": _encodec,
    "transformers/RTDetrForObjectDetection": _rt_detr,
    "transformers/UperNetForSemanticSegmentation": _upernet,
    "transformers/ModernBertModel": _modern_bert,
    "transformers/LlamaForCausalLM": partial(_causal, "LlamaForCausalLM"),
    "transformers/MixtralForCausalLM": partial(
        _causal, "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2
    ),
    "transformers/WhisperForConditionalGeneration": _whisper,
    "peft/LoRA": partial(_peft, "LoraConfig", r=4),
    "peft/IA3": partial(_peft, "IA3Config", feedforward_modules=[]),
    "sentence-transformers/mean pooling": partial(_sentences, "mean"),
    "sentence-transformers/last token pooling": partial(_sentences, "lasttoken"),
    "x-transformers/Decoder": _x_decoder,
    "x-transformers/Encoder": _x_encoder,
    "performer-pytorch/Performer": _performer,
    "linformer/Linformer": _linformer,
    "perceiver-pytorch/PerceiverIO": _perceiver,
    "perceiver-pytorch/Perceiver": _perceiver_images,
    "local-attention/LocalAttention": _local_attention,
    "nystrom-attention/NystromAttention": _nystrom,
    "rotary-embedding-torch/RotaryEmbedding": _rotary,
    "vector-quantize-pytorch/VectorQuantize": partial(_quantizer, "VectorQuantize", dim=16, codebook_size=32),
    "vector-quantize-pytorch/ResidualVQ": partial(_quantizer, "ResidualVQ", dim=16, num_quantizers=3, codebook_size=32),
    "vector-quantize-pytorch/FSQ": partial(_quantizer, "FSQ", levels=[8, 5, 5], dim=16),
    "einops/layers": _einops,
    "mambapy/Mamba": _mamba,
    "entmax/Sparsemax": partial(_entmax, "Sparsemax"),
    "pytorch-crf/CRF": _crf,
    "torchao/int8 weights": partial(_torchao, "Int8WeightOnlyConfig"),
    "torchao/int8 dynamic activations": partial(_torchao, "Int8DynamicActivationInt8WeightConfig"),
}
