"""Everything of a process that a library could change behind its caller's back."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch.export import decomp_utils, exported_program
from torch.onnx._internal.exporter import _fx_passes
from torch.onnx._internal.fx.passes import type_promotion
from torch.utils import _pytree

__all__ = ["differences", "state"]


def state() -> dict[str, Any]:
    """The state by what it concerns, as values that can be compared; a mapping may grow, as imports make it."""
    loggers = {name: it for name, it in logging.Logger.manager.loggerDict.items() if isinstance(it, logging.Logger)}
    hooks = torch.nn.modules.module
    mask = os.umask(0)
    os.umask(mask)
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch threads": torch.get_num_threads(),
        "torch RNG": torch.get_rng_state().numpy().tobytes(),
        "NumPy RNG": str(np.random.get_state()),
        "Python RNG": random.getstate(),
        "NumPy errors": np.geterr(),
        "function modes": len(torch.overrides._get_current_function_mode_stack()),
        "module hooks": [
            len(getattr(hooks, f"_global_{name}_hooks")) for name in ("forward", "forward_pre", "backward")
        ],
        "functions": (torch.cdist, torch.Tensor.unfold, torch.onnx.export, torch.jit.trace, torch.nn.Module.__call__),
        "exporter": (
            _fx_passes.decompose_with_registry,
            type_promotion._TypePromotionInterpreter.run_node,
            type_promotion._TypePromotionInterpreter._run_node_and_set_meta,
            exported_program._override_composite_implicit_decomp,
            decomp_utils._get_decomp_for_cia,
        ),
        "operators": dict.fromkeys(torch._C._dispatch_get_all_op_names()),
        "decompositions": {str(name): id(function) for name, function in decomposition_table.items()},
        "pytrees": dict.fromkeys(map(str, _pytree.SUPPORTED_NODES)),
        "modules": {name: id(module) for name, module in sys.modules.items()},
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "hooks": (sys.excepthook, sys.displayhook, sys.breakpointhook, threading.excepthook, sys.gettrace()),
        "imports": (tuple(sys.path), tuple(sys.meta_path), tuple(sys.path_hooks)),
        "filters": (tuple(map(str, warnings.filters)), warnings.showwarning),
        "loggers": {name: (it.level, it.disabled, it.propagate, it.filters[:]) for name, it in loggers.items()},
        "handlers": (logging.root.handlers[:], logging.root.level, [it.filters[:] for it in logging.root.handlers]),
        "signals": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "process": (os.getcwd(), mask, dict(os.environ), sys.getrecursionlimit(), gc.isenabled()),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "open files": len(os.listdir("/proc/self/fd")),
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What of the state has changed; new modules, operators and loggers are no change."""
    found = []
    for name, value in before.items():
        now = after[name]
        if isinstance(value, dict) and name != "NumPy errors":
            now = {key: now.get(key, "gone") for key in value}
        if now != value:
            found.append(name)
    return found
