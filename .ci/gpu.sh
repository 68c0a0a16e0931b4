#!/usr/bin/env bash
# Tests and benches for a machine with a GPU that has neither Rust nor a network.
#
#   .ci/gpu.sh pack DIR [PROFILE]   builds, strips and copies what such a machine needs to DIR; PROFILE is `release` or `dev`
#   .ci/gpu.sh run DIR [STEP...]    runs the steps of a pack, all of them without names, and prints a table
#
# `run` ends with the number of steps that failed. What a step printed is in DIR/out/STEP.txt. A pack runs itself too: it
# holds this script. WASI_CUDA_REQUIRE_GPU=0 lets it run where there is no GPU.
set -euo pipefail

# Steps: name, time limit in seconds, what to run in the pack's folder.
steps() {
    cat <<'STEPS'
devices     60  ./wasi-cuda devices
vector_add  60  ./wasi-cuda run --device cuda fixtures/guests/vector_add.wat
matmul      60  ./wasi-cuda run --device cuda fixtures/guests/matmul.wasm 2048
nbody       60  ./wasi-cuda run --device cuda fixtures/guests/nbody.wasm 65536 20
saxpy       60  ./wasi-cuda run --device cuda fixtures/components/saxpy.wasm 1000000 100
kernels    450  ./kernels --test-threads 1 cuda
agreement  120  ./agreement --test-threads 1 cuda
gpu        500  ./gpu gpu:: --skip gpu::hostile_
hostile    400  ./gpu gpu::hostile_
cuda_launch 240 ./cuda_launch --bench
placement  240  ./placement --bench
confinement 400 CUDA_CACHE_DISABLE=1 ./confinement --bench
STEPS
}

pack() {
    local to profile=${2-release} binaries built name folder
    to=$(mkdir -p "$1" && cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    binaries=(wasi-cuda gpu kernels agreement cuda_launch placement confinement)
    # All at once, so that each finds the features that the others need; the command line is built for its test.
    built=$(cargo test --no-run --locked --profile "$profile" --message-format json-render-diagnostics \
        -p wasi-cuda-cli -p wasi-cuda-tests -p wasi-cuda -p wasi-cuda-device \
        --test cli --test gpu --test kernels --test agreement --bench cuda_launch --bench placement --bench confinement)
    for name in "${binaries[@]}"; do
        cp "$(sed -n 's/.*"name":"'"$name"'".*"executable":"\([^"]*\)".*/\1/p' <<<"$built" | tail -1)" "$to/$name"
        strip "$to/$name"
    done
    mkdir -p "$to/fixtures/corpus" "$to/fixtures/guests" "$to/fixtures/components"
    cp -r fixtures/kernels "$to/fixtures/"
    cp fixtures/guests/*.wa{t,sm} "$to/fixtures/guests/"
    cp fixtures/components/saxpy.wasm "$to/fixtures/components/"
    for folder in clang cuda rust triton; do
        mkdir -p "$to/fixtures/corpus/$folder"
        cp fixtures/corpus/"$folder"/*.ptx "$to/fixtures/corpus/$folder/"
    done
    cp .ci/gpu.sh "$to/"
    du -sh "$to"
}

run() {
    cd "$1"
    shift
    mkdir -p out
    export WASI_CUDA_FIXTURES="$PWD/fixtures" WASI_CUDA_REQUIRE_GPU=${WASI_CUDA_REQUIRE_GPU:-1} RUST_BACKTRACE=1
    local failed=0 name limit command status begin
    local -a table=()
    while read -r name limit command; do
        if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
            continue
        fi
        printf '\n== %s: %s\n' "$name" "$command"
        begin=$SECONDS status=ok
        # A kernel that never ends may keep its process from ending at a polite request.
        timeout --kill-after=5 "$limit" bash -c "$command" </dev/null >"out/$name.txt" 2>&1 || status="failed ($?)"
        if [ "$status" = "failed (124)" ] || [ "$status" = "failed (137)" ]; then
            status="over $limit s"
        fi
        [ "$status" = ok ] || failed=$((failed + 1))
        tail -n 150 "out/$name.txt"
        table+=("$(printf '%-12s %-14s %4d s' "$name" "$status" $((SECONDS - begin)))")
    done < <(steps)
    printf '\n== table\n'
    printf '%s\n' "${table[@]}"
    return "$failed"
}

case "${1-}" in
pack | run)
    [ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 64; }
    "$@"
    ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac
