# syntax=docker/dockerfile:1
# An image that gates checkpoints on NVIDIA GPUs; the host needs a driver and the container toolkit:
#     docker build --file docker/cuda.Dockerfile --tag cepbench:cuda .
#     docker run --rm --gpus all --ipc host --volume "$PWD:/project" cepbench:cuda \
#         pytest my-suite --model=CHECKPOINT -n auto
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG EXTRAS=models,xdist
# torch as PyPI has it brings the libraries of CUDA; all that is needed of the host is its driver.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN pip install --no-cache-dir "torch>=2.6" "torchvision>=0.21"
COPY --from=wheel /wheels /wheels
# The package itself is a local file, and its extras pin what they need.
# hadolint ignore=DL3013
RUN for wheel in /wheels/pytest_cepbench-*.whl; do \
      pip install --no-cache-dir "${wheel}[${EXTRAS}]" || exit; done
RUN useradd --create-home --uid 1000 gate
USER 1000
WORKDIR /project
CMD ["cepbench", "--help"]
