#!/usr/bin/env bash
# Try the wheel for Linux on AArch64, in an AArch64 Python in qemu, on a machine with Debian's tools:
#
#     apt install qemu-user; make wheel; scripts/try_aarch64.sh [ARGUMENTS OF PYTHON ...]
#
# Nothing is installed on the machine: Debian's python3.11 for AArch64 is unpacked into build/aarch64,
# and pip puts the wheel and what it requires beside it. Without arguments it answers a word, takes
# three training steps, counts the kernels, and runs `pellucid check --fast`: three minutes. Times in
# qemu say nothing of any AArch64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
HERE="$PWD/build/aarch64" ROOT="$PWD/build/aarch64/root"

if [ ! -e "$HERE/made" ]; then
    rm -rf "$HERE" && mkdir -p "$ROOT/proc" "$HERE"/{debs,lists/partial,archives/partial}
    apt=(apt-get -qq -o "Dir::State::lists=$HERE/lists" -o "Dir::Cache::archives=$HERE/archives"
         -o Dir::State::status=/dev/null -o APT::Architecture=arm64 -o APT::Architectures=arm64)
    "${apt[@]}" -o "Dir::Cache=$HERE" update
    (cd "$HERE/debs" && "${apt[@]}" -o "Dir::Cache=$HERE" download python3.11-minimal \
        libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 \
        libssl3 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1)
    for deb in "$HERE"/debs/*.deb; do dpkg -x "$deb" "$ROOT"; done
    # An old qemu shows this machine's; Linux on a Cortex-A72 says this.
    printf 'processor\t: 0\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid\n' \
        > "$ROOT/proc/cpuinfo"
    # What starts a Python again needs qemu too.
    printf '#!/bin/sh\nexec qemu-aarch64 -L %s %s/usr/bin/python3.11 "$@"\n' "$ROOT" "$ROOT" \
        > "$HERE/python" && chmod +x "$HERE/python"
    touch "$HERE/made"
fi

wheel="$(ls build/wheel/pellucid-*-manylinux2014_aarch64.whl)"
if [ "$wheel" -nt "$HERE/site/sitecustomize.py" ]; then
    rm -rf "$HERE/site"
    "${PYTHON:-.venv/bin/python}" -m pip --disable-pip-version-check --quiet --quiet install --no-compile \
        --target "$HERE/site" --only-binary=:all: --implementation cp --python-version 3.11 \
        --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
        --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 "$wheel[cli]"
    echo "import sys; sys.executable = '$HERE/python'" > "$HERE/site/sitecustomize.py"
fi

mkdir -p "$HERE/home" && cd "$HERE/home"
python() { env HOME="$HERE/home" PYTHONPATH="$HERE/site" PELLUCID_THREADS=1 "$HERE/python" "$@"; }
if [ $# -gt 0 ]; then
    python "$@"
    exit
fi
python -m pellucid generate g2p-demo attention
python - << 'STEPS'
import pellucid
from pellucid.core.rng import Rng
from pellucid.data.batches import Batches
from pellucid.data.pairs import TextPair
from pellucid.kernels.backend import built, compile
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer

called, load = {}, compile.Kernel._load
compile.Kernel._load = lambda one: called.setdefault(one.name, load(one))
task = pellucid.load("g2p-demo")
words = ["transformer", "derivative", "gradient", "kernel", "water", "winter", "banana", "river"]
pairs = [TextPair(word, (answer,)) for word, answer in zip(words, task.generate(words))]
batch = next(iter(Batches(task.encode(pairs, max_tokens=32), seed=0, batch_tokens=1024).epoch(0)))
model = task.model.train()
optimizer = ModelOptimizer(model.named_parameters(), OptimizerConfig("adamw"))
for step in range(1, 4):
    optimizer.zero_grad()
    loss, backward = model.loss(batch, Rng(0).fold(step))
    backward(1 / loss.tokens)
    optimizer.step(lr=1e-3)
    print(f"step {step}: {loss.nats / loss.tokens:.8f} nats per token")
assert all(built.address(f"{name}.entry") for name in called)
print(f"{len(called)} kernels of {built.level()} were called")
STEPS
python -m pellucid check --fast
