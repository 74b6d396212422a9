"""Operators that return a list of tensors: the old exporter tells a symbolic function how many."""

import torch
from torch.onnx import register_custom_op_symbolic, symbolic_helper
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor


def split(g, x, size, dim, _outputs=None):
    lengths = g.op("Constant", value_t=torch.tensor([symbolic_helper._get_const(size, "i", "size")] * _outputs))
    axis = symbolic_helper._get_const(dim, "i", "dim")
    return g.op("Split", g.op("Neg", x), lengths, axis_i=axis, outputs=_outputs)


@parse_args("v", "is", "i")
def split_with_sizes(g, x, sizes, dim, _outputs=None):
    return g.op("custom::Split", x, sizes_i=sizes, axis_i=dim, outputs=_outputs)


@parse_args("v", "i")
def unbind(g, x, dim=0, _outputs=None):
    parts = g.op("custom::Unbind", x, outputs=_outputs)
    return [symbolic_helper._squeeze_helper(g, part, [dim]) for part in parts]


def chunk(g, x, count, dim):
    return g.op("custom::Chunk", x, outputs=symbolic_helper._get_const(count, "i", "count"))


for _name, _symbolic, _forward, _fields in (
    ("split", split, lambda x: tuple(part + 1 for part in x.split(2, 1)), {"domains": ()}),
    ("split_with_sizes", split_with_sizes, lambda x: tuple(x.split([1, 3], 1)), {}),
    ("unbind", unbind, lambda x: tuple(x.unbind(1)), {}),
    (
        "chunk",
        chunk,
        lambda x: tuple(x.chunk(2, 1)),
        {"oracle": False, "graph": ("custom::Chunk[0]{}(input 0)", "custom::Chunk[1]{}(input 0)")},
    ),
):
    case(
        f"list_of_{_name}",
        _forward,
        tensor(2, 4),
        setup=lambda name=_name, symbolic=_symbolic: register_custom_op_symbolic(f"aten::{name}", symbolic, 18),
        undo=[(f"aten::{_name}", 18)],
        migrates=False,
        alone=True,
        **{"domains": ("custom",), **_fields},
    )
