"""The public files whose patterns the cases of ``legacy_cases`` follow, where the file of a case does not name one."""

from __future__ import annotations

__all__ = ["SOURCES"]

_COMMITS = {
    "Ascend/ModelZoo-PyTorch": "6a2804a358a5",
    "DerryHub/BEVFormer_tensorrt": "303d3140c140",
    "ENOT-AutoDL/onnx2torch": "369412ad62c8",
    "NVIDIA/DL4AGX": "482b3f53e7b7",
    "NVIDIA/NeMo": "8cfedd720346",
    "NVIDIA/TensorRT": "147005ffe1dc",
    "NVIDIA/TensorRT-Model-Optimizer": "5a4242faf414",
    "Xilinx/brevitas": "b106358c4169",
    "alibaba/TinyNeuralNetwork": "cddc4124b3af",
    "facebookresearch/CrypTen": "775868a02d6d",
    "facebookresearch/detectron2": "02b5c4e295e9",
    "meituan/YOLOv6": "e86a483f3f6b",
    "microsoft/DeepSpeed": "38327e07f6cd",
    "microsoft/onnxruntime-extensions": "319f8d2c02c4",
    "open-mmlab/mmcv": "a8073c74bf83",
    "open-mmlab/mmdeploy": "3f8604bd72e8",
    "openvinotoolkit/mmdetection": "09f8f96f8b18",
    "openvinotoolkit/openvino_contrib": "9b77af15efc8",
    "quic/aimet": "c51b284b785f",
    "quic/efficient-transformers": "ebf55e8159c8",
    "sony/custom_layers": "b7ae55b0f37b",
    "triple-Mu/YOLOv8-TensorRT": "d5f68cd79a58",
}
"""The commit of each repository; those of which single files were read have the commit with the file."""

_MMDETECTION = "openvinotoolkit/mmdetection:mmdet/utils/deployment/"
_OLD_MMCV = "Ascend/ModelZoo-PyTorch:PyTorch/contrib/cv/detection/FSAF_for_Pytorch/mmcv_need/onnx/"
_MMDEPLOY = "open-mmlab/mmdeploy:mmdeploy/"
_MMCV = "open-mmlab/mmcv:mmcv/ops/"
_BREVITAS = "Xilinx/brevitas:src/brevitas/"
_QEFF = "quic/efficient-transformers:QEfficient/"
_DL4AGX = "NVIDIA/DL4AGX:AV-Solutions/"
_TORCH = "pytorch/pytorch@"
_CONTRIB_OPS = "microsoft/onnxruntime@08c23e065b89:onnxruntime/python/tools/pytorch_export_contrib_ops.py"
_TRAINING_OPS = (
    "microsoft/onnxruntime@00d9071bf8d1:orttraining/orttraining/python/training/ortmodule/"
    "_custom_op_symbolic_registry.py"
)
_DEBERTA = (
    "Ascend/ModelZoo-PyTorch:PyTorch/built-in/nlp/MT5_ID4146_for_PyTorch/transformers/src/transformers/models/deberta_v2/"
    "modeling_deberta_v2.py"
)
_TIMM = "Ascend/ModelZoo-PyTorch:PyTorch/contrib/cv/classification/GhostNet/timm/models/layers/activations_me.py"

_FILES = {
    # g.op
    f"{_MMCV}rotated_feature_align.py": ["float_attribute"],
    "alibaba/TinyNeuralNetwork:tinynn/graph/rewriter.py": ["int_attribute", "closures"],
    f"{_BREVITAS}export/onnx/debug.py": ["string_attribute", "set_type"],
    "open-mmlab/mmdeploy:tests/test_ops/test_ops.py": ["tensor_attribute"],
    f"{_MMDEPLOY}codebase/mmdet/ops/prior_box.py": ["floats_attribute"],
    f"{_MMCV}deform_conv.py": ["ints_attribute", "symbolic_with_an_extra_default"],
    f"{_MMCV}roi_align.py": ["many_attributes"],
    f"{_MMDEPLOY}mmcv/ops/nms_rotated.py": ["two_outputs"],
    f"{_BREVITAS}ops/autograd_ste_ops.py": ["tensors_as_inputs"],
    "NVIDIA/NeMo:nemo/collections/nlp/modules/common/megatron/fused_bias_gelu.py": ["several_nodes"],
    "open-mmlab/mmdeploy:docs/zh_cn/tutorial/04_onnx_custom_op.md": [
        "int_constant", "aten_override", "deform_conv2d_of_two_inputs", "deform_conv2d_of_all_inputs",
    ],
    f"{_MMDETECTION}symbolic.py": [
        "standard_outputs", "constants_of_tensors", "topk_helper", "slice_helper", "symbolic_at_run_time",
        "register_op", "get_registered_op", "opset9_functions", "nms",
    ],
    f"{_DL4AGX}far3d-trt/tools/export_onnx.py": ["an_optional_tensor", "aten_that_is_decomposed"],
    f"{_BREVITAS}export/onnx/function.py": ["two_values_of_two_nodes"],
    f"{_BREVITAS}export/onnx/standard/function.py": ["opset_of_the_graph"],
    _CONTRIB_OPS: [
        "dotted_domain", "aten_override_by_a_custom_node", "aten_that_torch_does_not_map", "empty_namespace",
    ],
    _TRAINING_OPS: [
        "three_outputs_one_used", "squeeze_helper", "opset11_functions", "every_overload", "scalar_type_float",
        "scalar_type_half", "aten_node_by_name",
    ],
    # Functions
    f"{_QEFF}customop/rms_norm.py": ["setup_context", "set_type_as"],
    "microsoft/onnxruntime-extensions:onnxruntime_extensions/pnp/_torchext.py": ["classmethods", "starred_forward"],
    "meituan/YOLOv6:yolov6/models/end2end.py": ["defaults_left_out", "exporter_plugin_outputs"],
    "NVIDIA/TensorRT@147005ffe1dc:tools/pytorch-quantization/pytorch_quantization/tensor_quant.py": [
        "defaults_given", "parse_args_numbers",
    ],
    f"{_MMDEPLOY}codebase/mmrotate/models/roi_heads/roi_extractors.py": ["starred_symbolic"],
    f"{_MMDETECTION}ssd_export_helpers.py": ["odd_arguments"],
    "openvinotoolkit/openvino_contrib:modules/custom_operations/examples/sparse_conv/sparse_conv.py": [
        "module_argument",
    ],
    f"{_DL4AGX}vad-trt/export_eval/patch/patch_rotate.py": ["apply_bound_at_import"],
    "microsoft/DeepSpeed:deepspeed/runtime/domino/transformer.py": ["returns_its_input"],
    f"{_TORCH}14159896cdbe:test/onnx/test_autograd_funs.py": ["nested", "both_levels", "inner_of_a_plain_one"],
    "triple-Mu/YOLOv8-TensorRT:models/common.py": ["dummy_forward"],
    "Ascend/ModelZoo-PyTorch:ACL_PyTorch/built-in/cv/YoloX_Tiny_for_Pytorch/bbox_nms.py": ["symbolic_is_the_truth"],
    f"{_QEFF}customop/ctx_scatter_gather.py": ["in_place"],
    "open-mmlab/mmdeploy:docs/zh_cn/tutorial/02_challenges.md": ["tolist"],
    _TIMM: ["with_backward"],
    f"{_QEFF}customop/matmulnbits.py": ["optional_tensor_absent", "optional_tensor_present"],
    # helpers and values
    "NVIDIA/TransformerEngine@05b1d41be38a:transformer_engine/pytorch/te_onnx_extensions.py": [
        "parse_args_lists", "tensor_sizes_helper",
    ],
    "quic/aimet:TrainingExtensions/torch/src/python/aimet_torch/v2/experimental/onnx/_export.py": [
        "unsqueeze_helper", "onnxscript_function",
    ],
    f"{_MMDEPLOY}mmcv/ops/nms_match.py": ["constants_are_known"],
    "facebookresearch/detectron2:detectron2/utils/testing.py": ["reshape_helper", "after_unregister"],
    _DEBERTA: ["dtype_helpers"],
    f"{_MMDEPLOY}pytorch/symbolics/instance_norm.py": ["exporter_group_norm"],
    f"{_MMDEPLOY}pytorch/symbolics/squeeze.py": ["sizes"],
    f"{_MMDEPLOY}pytorch/functions/linear.py": ["set_debug_name"],
    f"{_MMDEPLOY}mmcv/ops/roi_align.py": ["roi_align"],
    f"{_OLD_MMCV}symbolic.py": ["dim", "is_complete_tensor", "is_complete_input"],
    f"{_OLD_MMCV}onnx_utils/symbolic_helper.py": [
        "node_kind", "is_subtype_of", "inputs_of_a_node", "contents_of_a_constant", "a_list_of_tensors",
    ],
    "NVIDIA/TensorRT-Model-Optimizer:modelopt/torch/quantization/export_onnx.py": ["set_type_with_sizes"],
    # registrations
    f"{_TORCH}08e9919b8a44:test/onnx/test_custom_ops.py": ["own_operator"],
    "sony/custom_layers:sony_custom_layers/pytorch/nms/nms_onnx.py": ["own_operator_of_two_outputs"],
    f"{_MMDEPLOY}core/rewriters/symbolic_rewriter.py": ["registered_an_object"],
    f"{_TORCH}09855ac888e5:torch/nn/_functions/dropout.py": [
        "inplace_function_that_copies", "inplace_function_that_changes_its_input",
    ],
}  # fmt: skip


def _address(file: str) -> str:
    repository, path = file.split(":")
    name, _, commit = repository.partition("@")
    return f"https://github.com/{name}/blob/{commit or _COMMITS[name]}/{path}"


SOURCES = {case: _address(file) for file, cases in _FILES.items() for case in cases}
"""The address of the file, by the name of the case."""
