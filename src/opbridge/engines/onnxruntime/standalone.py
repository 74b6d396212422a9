"""Run a model in ONNX Runtime without opbridge: ``opbridge reduce`` copies this function into its scripts."""

__all__ = ["run"]


def run(model: str, feeds: dict, libraries: list) -> dict:
    """The outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for library in libraries:
        options.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))
