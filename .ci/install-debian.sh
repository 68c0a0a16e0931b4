#!/usr/bin/env bash
# Installs what the build and the tests take from Debian: a C linker for Rust, pip for ptxas, readelf, and the compilers that
# the C header must satisfy.
# Does nothing where all of it is there.
set -euo pipefail
declare -A package=([cc]=gcc [g++]=g++ [clang]=clang [readelf]=binutils [python3]=python3 [pip3]=python3-pip)
missing=()
for command in "${!package[@]}"; do
    command -v "$command" >/dev/null || missing+=("${package[$command]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
