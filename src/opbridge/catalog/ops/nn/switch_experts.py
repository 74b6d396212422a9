"""Mixtures of experts, which transformers computes in a loop over the experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("transformers.models.switch_transformers.modeling_switch_transformers.SwitchTransformersExperts.forward")
def switch_experts(
    original: Callable[..., Tensor], self: Any, hidden_states: Tensor, selected_experts: Tensor, routing_weights: Tensor
) -> Tensor:
    """Apply each expert to its tokens: (tokens, width) -> (tokens, width).

    transformers loops over the experts that have tokens, which are known only at run time. Here all experts are in the
    graph, and an expert may have no tokens.
    """
    result = torch.zeros_like(hidden_states)
    for number, selected in enumerate(selected_experts.permute(2, 1, 0)):
        choice, token = torch.where(selected)
        states = self[f"expert_{number}"](hidden_states[token]) * routing_weights[token, choice, None]
        result = result.index_add(0, token, states.to(hidden_states.dtype))
    return result
