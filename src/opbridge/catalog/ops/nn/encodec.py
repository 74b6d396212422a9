"""EnCodec, whose paddings and chunks transformers computes in Python from the length of the signal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from opbridge.catalog.declare.spec import rewrite


@rewrite("transformers.models.encodec.modeling_encodec.EncodecConv1d.forward")
def encodec_conv(original: Callable[..., Tensor], self: Any, hidden_states: Tensor) -> Tensor:
    """Pad the signal to a whole number of strides, and convolve it: (batch, channels, time) -> (batch, width, frames).

    A reflection takes a signal that is longer than the padding; transformers lengthens a shorter one by zeros, and
    cuts them off afterwards. Here their number is a size, 0 for a long signal.
    """
    kernel, stride = (self.conv.kernel_size[0] - 1) * self.conv.dilation[0] + 1, self.conv.stride[0]
    length, total = hidden_states.shape[-1], kernel - stride
    right = 0 if self.causal else total // 2
    left, right = total - right, right + -(-length // stride) * stride - length
    if self.pad_mode == "reflect":
        extra = torch.sym_max(torch.sym_max(left, right) - length + 1, 0)
        padded = functional.pad(functional.pad(hidden_states, (0, extra)), (left, right), "reflect")
        padded = padded[..., : left + length + right]
    else:
        padded = functional.pad(hidden_states, (left, right), self.pad_mode)
    result: Tensor = self.conv(padded)
    return self.norm(result) if self.norm_type == "time_group_norm" else result


@rewrite("transformers.models.encodec.modeling_encodec.EncodecModel.encode")
def encodec_encode(
    original: Callable[..., Any],
    self: Any,
    input_values: Tensor,
    padding_mask: Tensor | None = None,
    bandwidth: float | None = None,
    return_dict: bool | None = None,
) -> Any:
    """Encode a whole signal, of a dynamic length: transformers loops over its chunks, also where there is only one."""
    widths = self.config.target_bandwidths
    bandwidth = widths[0] if bandwidth is None else bandwidth
    length, channels = input_values.shape[-1], input_values.shape[1]
    one_chunk = self.config.chunk_length is None and isinstance(length, torch.SymInt)
    if not one_chunk or bandwidth not in widths or channels not in (1, 2):
        return NotImplemented
    if padding_mask is not None:
        input_values = padding_mask.view(padding_mask.shape[0], -1, padding_mask.shape[-1]).bool() * input_values
    codes, scale = self._encode_frame(input_values, bandwidth)
    return _as_asked(self, "EncodecEncoderOutput", return_dict, (codes.unsqueeze(0), [scale], 0))


@rewrite("transformers.models.encodec.modeling_encodec.EncodecModel.decode")
def encodec_decode(
    original: Callable[..., Any],
    self: Any,
    audio_codes: Tensor,
    audio_scales: Any,
    padding_mask: Tensor | None = None,
    return_dict: bool | None = None,
    last_frame_pad_length: int | None = 0,
) -> Any:
    """Decode codes; the signal is cut to the length of the mask, which transformers compares with its own."""
    if padding_mask is None:
        return NotImplemented
    (signal,) = original(self, audio_codes, audio_scales, None, False, last_frame_pad_length)
    return _as_asked(self, "EncodecDecoderOutput", return_dict, (signal[..., : padding_mask.shape[-1]],))


def _as_asked(model: Any, name: str, return_dict: bool | None, values: tuple[Any, ...]) -> Any:
    """A tuple, or transformers' class of outputs."""
    as_class = model.config.return_dict if return_dict is None else return_dict
    return getattr(sys.modules[type(model).__module__], name)(*values) if as_class else values
