"""What engines are asked for, all alike: the abilities that the contract's tests try on each, and that are listed."""

from __future__ import annotations

__all__ = ["ABILITIES"]

ABILITIES = {
    "runs": "runs models on this machine",
    "function bodies": "runs an operator of one's own by its body",
    "kernels": "runs compiled kernels",
    "support query": "says of a node whether it takes it, and why not",
    "without Python": "runs a bundle, kernels included, in a program without Python",
    "dynamic shapes": "runs one model at several sizes",
    "kernel attributes": "hands attributes to kernels",
    "several outputs": "runs kernels with several outputs",
    "optional inputs": "runs kernels whose optional inputs are left out",
    "float64": "runs kernels in float64",
    "int64": "runs kernels in int64",
    "deform_conv2d": "runs torchvision's deform_conv2d, with a mask and groups",
    "threads": "takes a number of threads",
    "two sessions": "runs two sessions at once",
    "node times": "tells what each node of a model costs",
}
"""Each ability, and what it means. An engine names those that it lacks in ``Engine.limits``."""
