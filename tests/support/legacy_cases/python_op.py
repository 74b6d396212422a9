"""One symbolic function for every autograd.Function that has none, and operators that torch can only run."""

import torch
from torch.autograd import Function
from torch.onnx import register_custom_op_symbolic, symbolic_helper
from torch.onnx.symbolic_helper import parse_args

from legacy_cases.table import case, tensor

DEFORMABLE = "https://github.com/NVIDIA/DL4AGX/blob/c349fffe3d2d/AV-Solutions/dcnv4-trt/tools/export_onnx.py"
SONY = "https://github.com/sony/custom_layers/blob/46ef6af18aad/sony_custom_layers/pytorch/nms/nms_onnx.py"


class Deformable(Function):
    @staticmethod
    def forward(ctx, x, offset, kernel, scale, mask, mode):
        return x * kernel * scale + offset

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None, None, None, None


class Both(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x + 1


class HasItsOwn(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 3

    @staticmethod
    def symbolic(g, x):
        return g.op("custom::HasItsOwn", x)


def python_op(g, *args, **attributes):
    name = attributes["name"]
    if name == "Deformable":
        x, offset, kernel, scale, mask, mode = args
        return g.op(
            "custom::Deformable", x, offset, kernel_i=kernel, scale_f=scale, mask_i=mask is not None, mode_s=mode
        )
    if name == "Both":
        return g.op("custom::Both", *args, outputs=2)
    return symbolic_helper._unimplemented("prim::PythonOp", name)


for _name, _forward, _inputs in (
    ("a_function", lambda x, y: Deformable.apply(x, y, 3, 0.5, None, "same"), (tensor(2, 3), tensor(2, 3))),
    ("two_results", lambda x: Both.apply(x), (tensor(2, 3),)),
    ("one_with_a_symbolic", lambda x: HasItsOwn.apply(x), (tensor(2, 3),)),
):
    case(
        f"python_op_of_{_name}",
        _forward,
        *_inputs,
        setup=lambda: register_custom_op_symbolic("prim::PythonOp", python_op, 1),
        undo=[("prim::PythonOp", 1)],
        domains=("custom",),
        migrates=False,
        alone=True,
        source=DEFORMABLE,
    )

LIBRARY = torch.library.Library("legacy_detection", "DEF")
LIBRARY.define("multiclass_nms(Tensor boxes, Tensor scores, float threshold, SymInt limit) -> (Tensor, Tensor, Tensor)")


def _multiclass_nms(boxes, scores, threshold, limit):
    """Only runs on tensors with contents, and has no shape function."""
    valid = torch.tensor([int((scores > threshold).sum())] * boxes.shape[0]).unsqueeze(1)
    return boxes[:, :limit].clone(), scores[:, :limit].argmax(2), valid


LIBRARY.impl("multiclass_nms", _multiclass_nms, "CPU")


@parse_args("v", "v", "f", "i")
def multiclass_nms(g, boxes, scores, threshold, limit):
    found = g.op("custom::MultiClassNMS", boxes, scores, threshold_f=threshold, limit_i=limit, outputs=3)
    integers = g.op("Cast", boxes, to_i=torch.onnx.TensorProtoDataType.INT64).type()
    batch = symbolic_helper._get_tensor_dim_size(boxes, 0)
    found[0].setType(boxes.type().with_sizes([batch, limit, 4]))
    found[1].setType(integers.with_sizes([batch, limit]))
    found[2].setType(integers.with_sizes([batch, 1]))
    return found


case(
    "operator_without_a_shape_function",
    lambda x, y: torch.ops.legacy_detection.multiclass_nms(x, y, 0.25, 3),
    tensor(2, 6, 4),
    tensor(2, 6, 3),
    setup=lambda: register_custom_op_symbolic("legacy_detection::multiclass_nms", multiclass_nms, 1),
    undo=[("legacy_detection::multiclass_nms", 1)],
    domains=("custom",),
    migrates=False,
    alone=True,
    source=SONY,
)
