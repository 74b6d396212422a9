"""Mixtures of experts that transformers computes expert by expert."""

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
    """Each expert on the tokens that it was selected for: (tokens, width) -> (tokens, width).

    transformers goes through the experts that have tokens, which are known only when the model runs. Here all experts
    are in the graph, and one without tokens gets none.
    """
    result = torch.zeros_like(hidden_states)
    for number, selected in enumerate(selected_experts.permute(2, 1, 0)):
        choice, token = torch.where(selected)
        states = self[f"expert_{number}"](hidden_states[token]) * routing_weights[token, choice, None]
        result = result.index_add(0, token, states.to(hidden_states.dtype))
    return result
