"""The abilities that the contract's tests check on every engine and that ``opbridge engines`` lists."""

from __future__ import annotations

__all__ = ["ABILITIES"]

ABILITIES = {
    "runs": "runs models on this machine",
    "function bodies": "runs a custom operator by its function body",
    "kernels": "runs compiled kernels",
    "support query": "answers whether it takes a node, and why not",
    "without Python": "runs a bundle, kernels included, in a program without Python",
    "dynamic shapes": "runs one model at several sizes",
    "kernel attributes": "passes attributes to kernels",
    "several outputs": "runs kernels with several outputs",
    "optional inputs": "runs kernels with optional inputs that are left out",
    "float64": "runs kernels in float64",
    "int64": "runs kernels in int64",
    "deform_conv2d": "runs torchvision's deform_conv2d, with a mask and groups",
    "threads": "the number of threads can be set",
    "two sessions": "runs two sessions at once",
    "node times": "measures the time of each node",
}
"""Each ability with its meaning. ``Engine.limits`` names those that an engine does not have."""
