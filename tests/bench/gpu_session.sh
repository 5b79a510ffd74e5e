#!/bin/bash
# What is to be seen on a GPU, in one short session on a machine that has one, with nvcc, CMake, ninja and a Python with
# PyTorch for CUDA, but no package registry.
#
#   tests/bench/gpu_session.sh pack KIT      where Debian's packages are reached: what plumb needs of them, into KIT
#   KIT=… tests/bench/gpu_session.sh build OUT    there, from the root of the sources: everything, tests included
#   tests/bench/gpu_session.sh check OUT     kernels, schedules, NCCL, compute-sanitizer: ctest -L gpu
#   tests/bench/gpu_session.sh bench OUT     copies, adds, messages; kernels beside LibTorch's and torch.compile's;
#                                            products of matrices, over a second and sustained
#   tests/bench/gpu_session.sh pair OUT      calibrate, plan, predict, run and diff of three schedules on four ranks
#   tests/bench/gpu_session.sh single OUT    the same of the models in scenarios/single-gpu, on one rank, and what the
#                                            machine's file alone predicts
#
# Each writes what it prints into the folder OUT too. BUILD names the build folder (build-gpu); DEVICE=cpu lets `pair`
# be tried without a GPU.
set -euo pipefail
verb=${1:-} folder=${2:-}
case $verb in
  pack | build | check | bench | pair | single) ;;
  *) sed -nE '2,/^set /s/^# ?//p' "$0" >&2; exit 2 ;;
esac
[[ -n $folder ]] || { echo "gpu_session.sh: $verb wants a folder" >&2; exit 2; }
mkdir -p "$folder"; folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build-gpu} device=${DEVICE:-cuda}
unpacked=$PWD/$build/packages

# The package behind a development package: `library_of libfmt-dev 'libfmt[0-9]+.*'`.
library_of() { apt-cache depends "$1" | sed -nE "s/^ *Depends: ($2)$/\1/p" | head -n 1; }

pack() {
  local boost
  boost=$(library_of libboost-graph-dev 'libboost-graph[0-9.]+-dev')
  (cd "$folder" && apt-get download "${boost/-graph/}" "$(library_of libyaml-cpp-dev 'libyaml-cpp[0-9.]+')" \
    "$(library_of libfmt-dev 'libfmt[0-9]+.*')" "$(library_of libbenchmark-dev 'libbenchmark1.*')" catch2 libfmt-dev \
    libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libbenchmark-dev libgloo-dev)
  du -sh "$folder"
}

build() {
  local kit=${KIT:?the folder that pack filled} package torch nccl
  if [[ ! -d $unpacked ]]; then
    mkdir -p "$unpacked"
    for package in "$kit"/*.deb; do dpkg -x "$package" "$unpacked"; done
  fi
  nvidia-smi || echo 'no nvidia-smi here: what is built cannot run here'
  nvcc --version | tail -n 2
  torch=$(python3 -W ignore -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
  # Without it there is no --transport nccl.
  nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' || true)
  python3 -W ignore -c 'import torch; print("LibTorch", torch.__version__, "for CUDA", torch.version.cuda)'
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPLUMB_WITH_SIM=OFF -DPLUMB_WITH_EXEC=ON \
    -DPLUMB_WITH_CUDA=ON ${nccl:+-DNCCL_INCLUDE_DIR="$nccl/include"} \
    -DCMAKE_PREFIX_PATH="$torch;$unpacked/usr;$unpacked/usr/lib/x86_64-linux-gnu"
  ninja -C "$build" -k 0
}

check() { ctest --test-dir "$build" -L gpu --output-on-failure -j 2; }

bench() {
  "$build/bin/plumb-exec" bench --transport local
  "$build/tests/bench/bench_kernels" --benchmark_min_time=0.2
  python3 tests/bench/bench_compiled.py
}

pair() {
  local work=$build/pair scenario=scenarios/hybrid-4-ranks.yaml schedule name
  local plumb=$build/bin/plumb exec=$build/bin/plumb-exec
  mkdir -p "$work"
  "$exec" calibrate "$scenario" --device "$device" -o "$work/profile.yaml"
  for schedule in 1f1b zb-h1 '{name: interleaved-1f1b, chunks: 2}'; do
    name=${schedule%%,*} name=${name##*: }
    "$plumb" plan "$scenario" --schedule "$schedule" --split dynamic --profile "$work/profile.yaml" -o "$work/$name.json"
    "$plumb" simulate "$work/$name.json" --engine path -o "$work/$name.predicted.json"
    "$exec" run "$work/$name.json" --device "$device" --transport local --steps 10 -o "$work/$name.measured.json"
    "$plumb" diff "$work/$name.predicted.json" "$work/$name.measured.json"
  done
  cp "$work"/profile.yaml "$work"/*.measured.json "$folder/"
}

single() {
  local work=$build/single scenario name plumb=$build/bin/plumb exec=$build/bin/plumb-exec
  mkdir -p "$work"
  for scenario in scenarios/single-gpu/*.yaml; do
    name=$(basename "$scenario" .yaml)
    "$exec" calibrate "$scenario" --device "$device" -o "$work/$name.profile.yaml"
    "$plumb" simulate "$scenario" --engine path -o "$work/$name.by-file.json"
    "$plumb" plan "$scenario" --profile "$work/$name.profile.yaml" -o "$work/$name.json"
    "$plumb" simulate "$work/$name.json" --engine path -o "$work/$name.predicted.json"
    "$exec" run "$work/$name.json" --device "$device" --transport local --steps 8 -o "$work/$name.measured.json"
    "$plumb" diff "$work/$name.by-file.json" "$work/$name.measured.json"
    "$plumb" diff "$work/$name.predicted.json" "$work/$name.measured.json"
  done
  cp "$work"/*.profile.yaml "$work"/*.measured.json "$folder/"
}

export LD_LIBRARY_PATH=$unpacked/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
time "$verb" 2>&1 | tee "$folder/$verb.log"
