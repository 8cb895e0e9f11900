#!/usr/bin/env bash
# Makes .venv: the project, its tools, and a torch. A torch that is already there is kept as it is.
#
#   PYTHON=python3.12 TORCH='torch==2.13.0' bash tools/setup.sh
#
# With a torch installed here comes TRITON: it compiles the kernels for cards that are not there (in tests).
# TORCH=none installs no torch: everything but measuring works without one.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
TORCH=${TORCH:-torch==2.13.0}
TRITON=${TRITON:-triton==3.6.0}
EXTRAS=${EXTRAS:-test,lab}
FAMILY='^(torch|torchvision|torchaudio|triton|triton-rocm|pytorch-triton|pytorch-triton-rocm)=='

fail() { echo "setup: $*" >&2; exit 2; }
usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON: set PYTHON to a Python 3.11 or newer"
        usable "$PYTHON" || fail "$PYTHON is $("$PYTHON" -V 2>&1), 3.11 or newer is needed: set PYTHON to one"
        echo "$PYTHON"; return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null && usable "$name"; then echo "$name"; return; fi
    done
    fail "no Python 3.11 or newer found (python3 is $(python3 -V 2>&1 || echo absent)). In a GPU container take an" \
         "image tag with Python 3.11 or newer, or install one and set PYTHON"
}

torch_version() { "$1" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true; }
imports_torch() { "$1" -c 'import torch' >/dev/null 2>&1; }

python=$(choose_python)
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$("$python" -V) cannot make environments: install its venv package (Debian, Ubuntu: apt-get install python3-venv)"

before=
options=()
if imports_torch "$python"; then
    before=$(torch_version "$python")
    options=(--system-site-packages)
    echo "setup: keeping torch $before of $("$python" -c 'import sys; print(sys.executable)')"
fi
if [ ! -x "$VENV/bin/python" ] || ! usable "$VENV/bin/python"; then
    rm -rf "$VENV"
    "$python" -m venv "${options[@]}" "$VENV"
    if [ -n "$before" ]; then
        # A Python that is itself inside an environment shares only what lies below that environment: name its
        # packages too. pip then finds them installed and, as they lie elsewhere, never touches them.
        "$python" - "$VENV" <<'EOF'
import pathlib, subprocess, sys, sysconfig
if sys.prefix != sys.base_prefix:
    venv = pathlib.Path(sys.argv[1])
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = subprocess.check_output([venv / "bin" / "python", "-c", ask], text=True).strip()
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (pathlib.Path(target) / "_parent_environment.pth").write_text("\n".join(paths) + "\n")
EOF
    fi
fi

constraints=$VENV/constraints.txt
if [ -n "$before" ]; then
    # The torch family stays untouched, and so does every package that the system has in a version that serves.
    "$python" -m pip list --format=freeze 2>/dev/null >"$VENV/system.txt"
    grep -E "$FAMILY|^numpy==" "$VENV/system.txt" >"$constraints" || true
    while IFS= read -r line; do
        name=${line%%==*}
        grep -qiE "^${name//[-_]/[-_]}==" "$VENV/system.txt" || echo "$line"
    done < <(grep -E '^[a-z]' constraints.txt) >>"$constraints"
else
    cp constraints.txt "$constraints"
fi
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c "$constraints" -e ".[$EXTRAS]"
if [ -z "$before" ] && [ "$TORCH" != none ] && ! imports_torch "$VENV/bin/python"; then
    echo "setup: installing $TORCH (set TORCH to name another, TORCH=none for none)"
    # shellcheck disable=SC2086
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c "$constraints" $TORCH
    if [ "$TRITON" != none ] && [ "$(uname -sm)" = "Linux x86_64" ]; then
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$TRITON" ||
            echo "setup: no $TRITON here: the tests that compile for absent cards are skipped"
    fi
fi

# Notebooks name the kernel "python3": make it this environment's Python, whatever kernels the user has elsewhere.
"$VENV/bin/python" -m ipykernel install --sys-prefix --name python3 >/dev/null 2>&1

after=$(torch_version "$VENV/bin/python")
if [ -n "$before" ] && [ "$before" != "$after" ]; then
    rm -rf "$VENV"
    fail "installing would have changed torch $before to ${after:-none}, so nothing was kept; set PYTHON to the" \
         "Python that imports torch, or TORCH=none to go without one"
fi
if [ -n "$after" ]; then echo "$after" >"$VENV/torch-version"; else rm -f "$VENV/torch-version"; fi
echo "setup: ready in $VENV (torch ${after:-none})"
