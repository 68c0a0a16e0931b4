#!/usr/bin/env bash
# Installs what the build and the tests take from Debian: a C linker for Rust, pip for ptxas, readelf, the compilers that
# the C header must satisfy, and what makes WebAssembly of the guests in C.
# Does nothing where all of it is there.
set -euo pipefail
declare -A package=([cc]=gcc [g++]=g++ [clang]=clang [wasm-ld]=lld [readelf]=binutils [python3]=python3 [pip3]=python3-pip)
missing=()
for command in "${!package[@]}"; do
    command -v "$command" >/dev/null || missing+=("${package[$command]}")
done
[ -e /usr/lib/wasm32-wasi/libc.a ] || missing+=(wasi-libc)
# clang says where its runtime for WebAssembly would be; without clang it is not there either.
runtime=$(clang --target=wasm32-wasi -print-libgcc-file-name 2>/dev/null || true)
[ -e "$runtime" ] || missing+=(libclang-rt-dev-wasm32)
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
