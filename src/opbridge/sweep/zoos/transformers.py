"""transformers: every architecture, with random weights in a small configuration.

An architecture's configuration class gives its own defaults; sizes in them (layers, heads, widths, vocabulary, images)
become small as far as the model still runs. Caches of keys and values are off: a model is one forward pass.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch

from opbridge.sweep.zoos.trying import first_that_runs

__all__ = ["PACKAGE", "build", "names"]

PACKAGE = "transformers"

_LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth"),
    *("num_encoder_layers", "num_decoder_layers", "num_block_layers", "num_decoder_blocks", "encoder_num_layers"),
    *("num_hidden_groups", "prelude_layers", "num_blocks", "num_transformer_layers", "e_layers"),
)
_HEADS = (
    *("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads"),
    *("num_encoder_attention_heads", "num_decoder_attention_heads", "encoder_num_attention_heads"),
)
_WIDTHS = (
    "hidden_size",
    "d_model",
    "n_embd",
    "dim",
    "emb_dim",
    "encoder_hidden_size",
    "decoder_hidden_size",
    "attention_hidden_size",
)
_INNER = (
    *("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner", "mlp_dim", "hidden_dim"),
    *("moe_intermediate_size", "shared_expert_intermediate_size", "feed_forward_hidden_size", "d_inner"),
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "max_target_positions")
_SMALL: Mapping[str, int] = {
    **dict.fromkeys(_LAYERS, 2),
    **dict.fromkeys(_HEADS, 4),
    **dict.fromkeys(_WIDTHS, 32),
    **dict.fromkeys(_INNER, 48),
    **dict.fromkeys(_EXPERTS, 4),
    **dict.fromkeys(_LENGTHS, 64),
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "n_group": 2,
    "topk_group": 1,
    "d_kv": 8,
    "head_dim": 8,
    "rotary_dim": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "embedding_size": 32,
    "vocab_size": 128,
    "projection_dim": 32,
    "num_queries": 12,
    "num_key_value_heads": 2,
    "pooler_hidden_size": 32,
}
_SMALLER: tuple[Mapping[str, int], ...] = (
    _SMALL,
    {**_SMALL, "embed_dim": 32},
    {key: size for key, size in _SMALL.items() if key != "head_dim"} | {"num_key_value_heads": 4},
    {key: _SMALL[key] for key in (*_LAYERS, *_EXPERTS, "vocab_size")},
    {},
)
"""What each try makes small; the last ones only sizes that no other size depends on, and nothing."""
_NO_ARGUMENTS = ("model_type", "transformers_version", "architectures", "allow_global_per_layer_attribute_access")
_BY_LAYER = ("stage_names", "out_features", "out_indices", "per_layer_config")
_IMAGES = ("image_size", "img_size", "input_size")
_MOST_PARAMETERS = 60_000_000
_BATCH = torch.export.Dim("batch")


def names() -> list[str]:
    """The model types that have a model without a head."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def build(name: str) -> Mapping[str, Any]:
    """The model in the smallest configuration in which it runs, with inputs for its modalities.

    The batch is dynamic, and so are the numbers of tokens, of which there is at least one.
    """
    return first_that_runs(_candidates(name))


def _candidates(name: str) -> Iterator[Callable[[], Mapping[str, Any]]]:
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    for small in _SMALLER:
        made = functools.cache(functools.partial(_model, kind, small))
        try:
            inputs = list(_inputs(made()))
        except Exception as error:  # Configurations and models raise various types for sizes that do not fit.
            yield functools.partial(_raise, error)
            continue
        for kwargs in inputs:
            yield functools.partial(_with_inputs, made, kwargs)


def _raise(error: Exception) -> Mapping[str, Any]:
    raise error


def _with_inputs(made: Callable[[], torch.nn.Module], kwargs: Mapping[str, torch.Tensor]) -> Mapping[str, Any]:
    model: Any = made()
    most = _most_tokens(model.config)
    tokens, decoded = (torch.export.Dim(name, min=1, max=most) for name in ("tokens", "decoder_tokens"))
    lengths = {"input_ids": tokens, "attention_mask": tokens, "decoder_input_ids": decoded}
    shapes = {name: {0: _BATCH} | ({1: lengths[name]} if name in lengths else {}) for name in kwargs}
    return {"model": model, "args": (), "kwargs": dict(kwargs), "dynamic_shapes": shapes}


def _most_tokens(config: Any) -> int | None:
    """The number of tokens that a model has positions for; None if it has no limit."""
    parts = [config, *(value for value in vars(config).values() if hasattr(value, "to_dict"))]
    found = [getattr(part, key, None) for part in parts for key in _LENGTHS]
    return min((length for length in found if isinstance(length, int) and length > 1), default=None)


def _model(kind: Any, small: Mapping[str, int]) -> torch.nn.Module:
    from transformers import AutoModel

    config = _small_config(kind(), small)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in AutoModel.from_config(config).parameters())
    if count > _MOST_PARAMETERS:
        raise ValueError(f"the smallest configuration found has {count} parameters")
    torch.manual_seed(0)
    model: torch.nn.Module = AutoModel.from_config(config)
    return model.eval()


def _small_config(config: Any, small: Mapping[str, int]) -> Any:
    """A configuration of the same class with small sizes, in the configurations of its parts too."""
    config.allow_global_per_layer_attribute_access = True
    own = config.to_dict()
    changes: dict[str, Any] = {}
    for key in own:
        value = getattr(config, key, None)
        if hasattr(value, "to_dict"):
            changes[key] = _small_config(value, small)
        elif key in small and isinstance(value, int) and not isinstance(value, bool):
            changes[key] = min(value, small[key])
        elif key in ("depths", "num_block_repeats") and isinstance(value, list | tuple) and small:
            changes[key] = [1] * len(value)
        elif key in _IMAGES and small:
            changes[key] = _small_image(config, value)
        elif key.endswith("_token_id") and isinstance(value, int) and "vocab_size" in small:
            changes[key] = value % small["vocab_size"]
    layers = next((getattr(config, key) for key in _LAYERS if isinstance(getattr(config, key, None), int)), 0)
    if small and layers > 2 and "depths" not in own:
        lists = {key: value for key, value in own.items() if isinstance(value, list) and len(value) == layers}
        changes |= {key: _two_kinds(value) for key, value in lists.items() if key not in changes}
    if own.get("num_key_value_heads") == own.get("num_attention_heads") and "num_attention_heads" in changes:
        changes["num_key_value_heads"] = changes["num_attention_heads"]
    if "num_attention_heads" in changes:
        changes |= _rotary(config, changes.get("head_dim", 8))
    if hasattr(config, "use_cache"):
        changes["use_cache"] = False
    dropped = (*_NO_ARGUMENTS, *(_BY_LAYER if any(key in changes for key in _LAYERS) else ()))
    kept = {key: value for key, value in config.to_diff_dict().items() if key not in dropped}
    return type(config)(**{**kept, **changes})


def _two_kinds(values: list[Any]) -> list[Any]:
    """What two layers have of a list with a value for each layer: two different values, if there are."""
    return [values[0], next((value for value in values if value != values[0]), values[0])]


def _small_image(config: Any, size: Any) -> Any:
    """Two patches in each direction; 64 pixels if the model has no patches."""
    patch = getattr(config, "patch_size", None)
    patch = patch[0] if isinstance(patch, list | tuple) and patch else patch
    small = 2 * patch if isinstance(patch, int) and patch >= 8 else 64
    if isinstance(size, int):
        return min(size, small)
    return [min(side, small) for side in size] if isinstance(size, list | tuple) else size


def _rotary(config: Any, head: int) -> dict[str, Any]:
    """The sections of a rotary embedding over several axes, for a smaller size of the heads."""
    changes = {}
    for key in ("rope_scaling", "rope_parameters"):
        value = getattr(config, key, None)
        if isinstance(value, dict) and isinstance(value.get("mrope_section"), list):
            sections = [1, *itertools.repeat(0, len(value["mrope_section"]) - 1)]
            for place in range(int(head * value.get("partial_rotary_factor", 1)) // 2 - 1):
                sections[(place + 1) % len(sections)] += 1
            changes[key] = {**value, "mrope_section": sections}
    return changes


# Inputs


def _inputs(model: torch.nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Inputs to try: the main one alone, then with those of other modalities; with a decoder's, if it has one."""
    config: Any = model.config
    parameters = inspect.signature(model.forward).parameters
    known = [name for name in _MAKERS if name in parameters]
    main = getattr(model, "main_input_name", "input_ids")
    known.sort(key=lambda name: name != main)
    for count in range(1, len(known) + 1):
        for chosen in itertools.combinations(known, count):
            for values in itertools.product(*(_MAKERS[name](config) for name in chosen)):
                given = dict(zip(chosen, values, strict=True))
                if "decoder_input_ids" in parameters and getattr(config, "is_encoder_decoder", True):
                    given["decoder_input_ids"] = _tokens(config, 5)
                yield from _with_masks(given, parameters)


def _with_masks(given: dict[str, torch.Tensor], parameters: Collection[str]) -> Iterator[dict[str, torch.Tensor]]:
    """The inputs with the mask of the tokens, without masks, and with the mask of audio features."""
    if "input_ids" in given and "attention_mask" in parameters:
        yield given | {"attention_mask": torch.ones_like(given["input_ids"])}
    yield given
    if "input_features" in given and "input_features_mask" in parameters:
        length = given["input_features"].shape[-1]
        yield given | {"input_features_mask": torch.ones(2, length, dtype=torch.int64)}


def _text(config: Any) -> Any:
    """The part of a configuration that describes the text model."""
    getter = getattr(config, "get_text_config", None)
    return config if getter is None else getter()


def _tokens(config: Any, length: int) -> torch.Tensor:
    most = getattr(_text(config), "vocab_size", None) or 100
    generator = torch.Generator().manual_seed(1)
    values = [
        value for part in (config, _text(config)) for key, value in vars(part).items() if key.endswith("_token_id")
    ]
    special = {number for value in values for number in (value if isinstance(value, list) else [value])}
    plain = [number for number in range(1, min(most, 100)) if number not in special]
    return torch.tensor(plain)[torch.randint(0, len(plain), (2, length), generator=generator)]


def _ids(config: Any) -> Iterator[torch.Tensor]:
    for length in (7, 16, 64):
        yield _tokens(config, length)


def _vision(config: Any) -> Any:
    return next(
        (found for key in ("vision_config", "backbone_config") if (found := getattr(config, key, None))), config
    )


def _pixels(config: Any) -> Iterator[torch.Tensor]:
    vision = _vision(config)
    size = next((found for key in _IMAGES if (found := getattr(vision, key, None))), 64)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    frames = getattr(vision, "num_frames", None)
    for side in dict.fromkeys([(height, width), (64, 64), (96, 96), (224, 224)]):
        if frames:
            yield torch.randn(2, frames, channels, *side)
        yield torch.randn(2, channels, *side)


def _video(config: Any) -> Iterator[torch.Tensor]:
    for pixels in _pixels(config):
        if pixels.dim() == 5:
            yield pixels


def _waveform(config: Any) -> Iterator[torch.Tensor]:
    bins = getattr(config, "num_mel_bins", None)
    if bins:
        yield torch.randn(2, getattr(config, "max_length", None) or 64, bins)
    yield torch.randn(2, 4000)
    yield torch.randn(2, 1, 4000)
    yield torch.randn(2, 16, bins or 80)


def _features(config: Any) -> Iterator[torch.Tensor]:
    audio = getattr(config, "audio_config", config)
    bins = next(
        (found for key in ("num_mel_bins", "input_feat_per_channel", "feature_size", "input_size")
         if isinstance(found := getattr(audio, key, None), int)), 80,
    )  # fmt: skip
    positions = getattr(audio, "max_source_positions", None)
    if isinstance(positions, int):
        yield torch.randn(2, bins, 2 * positions)
    for length in (64, 200):
        yield torch.randn(2, length, bins)
        yield torch.randn(2, bins, length)
    feature = getattr(audio, "feature_projection_input_dim", None)
    if isinstance(feature, int):
        yield torch.randn(2, 32, feature)


def _series(config: Any) -> Iterator[torch.Tensor]:
    length = getattr(config, "context_length", None) or 32
    channels = getattr(config, "num_input_channels", None) or getattr(config, "input_size", None) or 1
    yield torch.randn(2, length, channels)
    yield torch.randn(2, length)


_MAKERS: Mapping[str, Callable[[Any], Iterator[torch.Tensor]]] = {
    "input_ids": _ids,
    "pixel_values": _pixels,
    "input_values": _waveform,
    "input_features": _features,
    "pixel_values_videos": _video,
    "past_values": _series,
}
"""Example values of inputs for a configuration, by the names that transformers gives its inputs."""
