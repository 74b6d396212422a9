"""The old ways under the modern exporter: symbolic functions, registrations, and torch.onnx.export's old arguments.

::

    import opbridge.legacy

    opbridge.legacy.enable()            # from here on; or: with opbridge.legacy.enable(): ...
    torch.onnx.export(model, x, "model.onnx")
    for item in opbridge.legacy.bridged():
        print(item.kind, item.name, item.count)
"""

from opbridge.legacy.switch import Bridged, bridged, disable, enable

__all__ = ["Bridged", "bridged", "disable", "enable"]
