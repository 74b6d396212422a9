"""Run a model in OpenVINO without opbridge: ``opbridge reduce`` copies this function into its scripts."""

__all__ = ["run"]


def run(model: str, feeds: dict, libraries: list) -> dict:
    """The outputs by name."""
    import openvino

    core = openvino.Core()
    for library in libraries:
        core.add_extension(library)
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(feeds)
    return {output.get_any_name(): results[output] for output in compiled.outputs}
