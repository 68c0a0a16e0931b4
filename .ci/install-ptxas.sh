#!/bin/sh
# Installs NVIDIA's PTX assembler into target/ptxas, where the tests look for it. It needs no GPU.
# Does nothing where it is there already.
set -eu
cd "$(dirname "$0")/.."
into=target/ptxas
ptxas=$into/nvidia/cu13/bin/ptxas

if [ ! -x "$ptxas" ]; then
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
        --target "$into" 'nvidia-cuda-nvcc==13.0.*'
fi
"$ptxas" --version | tail -n 1
