"""Constant: attributes for numbers and strings since opset 12."""

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.opsets.steps import down

_DTYPES = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}


@down("Constant", version=12)
def tensor(site: Site) -> None:
    """A number becomes a tensor."""
    for name, dtype in _DTYPES.items():
        if name in site.node.attributes:
            site.set(**{"value": ir.tensor(np.asarray(site.attribute(name), dtype=dtype)), name: None})
    for name in ("value_string", "value_strings"):
        if name in site.node.attributes:
            texts = site.attribute(name)
            encoded = np.vectorize(str.encode, otypes=[object])(np.asarray(texts, dtype=object))
            site.set(**{"value": ir.StringTensor(encoded, shape=ir.Shape(encoded.shape)), name: None})
