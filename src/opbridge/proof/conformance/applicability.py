"""The entries that no ONNX exporter can support. The list is fixed so that every result has the same denominator."""

from __future__ import annotations

__all__ = ["NOT_APPLICABLE"]

_JITERATOR = "jiterator compiles CUDA code at run time; PyTorch supports it only on GPUs"
_OWN_CALLER = "a GPU kernel of scaled_dot_product_attention; PyTorch has none for the CPU"
_SPARSE = "takes or returns a sparse tensor, which can't be an input or output of an ONNX model"

NOT_APPLICABLE = {
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "nn.functional.batch_norm.without_cudnn": "the same function as nn.functional.batch_norm, for a GPU without cuDNN",
    "sparse.mm.reduce": _SPARSE,
    "sparse.sampled_addmm": _SPARSE,
    "to_sparse": _SPARSE,
    "torch.ops.aten._efficient_attention_forward": _OWN_CALLER,
    "torch.ops.aten._flash_attention_forward": _OWN_CALLER,
}
"""The reason by entry name; at most 15 entries."""
