# opbridge on the CPU. It exports the first example to the folder build:
#
#     docker build -t opbridge . && docker run --rm -v "$PWD/build:/opbridge/build" opbridge
#
# PyPI's torch includes CUDA. For an image without it, name the index of torch's CPU packages in the build:
# --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
FROM python:3.12-slim
ARG PIP_EXTRA_INDEX_URL
# For kernels.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /opbridge
COPY . .
RUN pip install --no-cache-dir ".[export,vision]"
ENTRYPOINT ["opbridge"]
CMD ["export", "examples/detector_head.py:model", "-o", "build/head", "--overwrite"]
