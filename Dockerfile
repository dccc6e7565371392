# zerolab with all that its commands and tests need.
#   docker build -t zerolab .                          on GPUs: --build-arg BASE=nvidia/cuda:12.6.3-devel-ubuntu24.04
#   docker run --rm -it zerolab ./zl compare           on GPUs: docker run --gpus all --ipc=host …
#   docker build --target packages -t zerolab-dev .    without the sources, for a tree that is mounted
ARG BASE=debian:bookworm
FROM ${BASE} AS packages
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates clang-format-14 gdb git openmpi-bin libopenmpi-dev patch procps && \
    rm -rf /var/lib/apt/lists/*
COPY zl CMakePresets.json /tmp/zerolab/
RUN mkdir /tmp/zerolab/tests && /tmp/zerolab/zl packages && rm -rf /tmp/zerolab /var/lib/apt/lists/*

FROM packages
COPY . /zerolab
WORKDIR /zerolab
RUN ./zl doctor
