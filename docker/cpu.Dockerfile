# syntax=docker/dockerfile:1
# An image that gates checkpoints on the CPU:
#     docker build --file docker/cpu.Dockerfile --tag cepbench .
#     docker run --rm --volume "$PWD:/project" cepbench pytest my-suite --model=CHECKPOINT
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG EXTRAS=models,xdist
# Builds without CUDA, which are a tenth of the size.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
      "torch>=2.6" "torchvision>=0.21"
COPY --from=wheel /wheels /wheels
# The package itself is a local file, and its extras pin what they need.
# hadolint ignore=DL3013
RUN for wheel in /wheels/pytest_cepbench-*.whl; do \
      pip install --no-cache-dir "${wheel}[${EXTRAS}]" || exit; done
RUN useradd --create-home --uid 1000 gate
USER 1000
WORKDIR /project
CMD ["cepbench", "--help"]
