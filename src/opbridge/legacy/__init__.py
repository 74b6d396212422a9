"""Support for old declarations: symbolic functions, registrations, and old arguments of torch.onnx.export.

::

    import opbridge.legacy

    opbridge.legacy.enable()            # from here on; or: with opbridge.legacy.enable(): ...
    torch.onnx.export(model, x, "model.onnx")
    for item in opbridge.legacy.bridged():
        print(item.kind, item.name, item.count)
"""

from opbridge.legacy.switch import Bridged, bridged, disable, enable

__all__ = ["Bridged", "bridged", "disable", "enable"]
