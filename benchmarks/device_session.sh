#!/usr/bin/env bash
# Everything that needs a card, in one call of less than 350 s: bash benchmarks/device_session.sh OUT
# Needs torch, numpy, pandas, pyarrow, scipy, statsmodels; installs nothing. Each part has its own time limit and its own
# log in OUT, and a part that fails does not stop the others. Parts in order of value.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${1:?usage: device_session.sh OUT}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
begun=$SECONDS

part() { # name, seconds, command...
    local name=$1 limit=$2 start=$SECONDS
    shift 2
    timeout --kill-after=5 "$limit" "$@" >"$OUT/$name.log" 2>&1
    local code=$?
    echo "$name: exit code $code after $((SECONDS - start)) s"
    tail -n 40 "$OUT/$name.log"
}

part doctor 15 "$PYTHON" -m rcatools doctor --json
part streams 15 "$PYTHON" -m rcatools doctor --streams
part engine 90 "$PYTHON" benchmarks/engine.py --runs 4 --json "$OUT/engine.json"
part queue_cliff 165 "$PYTHON" benchmarks/queue_cliff.py --processes 6 --budget-s 120 --out "$OUT/queue_cliff"
part owner 25 "$PYTHON" benchmarks/owner_intervention.py "$OUT/owner"
part placement 20 "$PYTHON" benchmarks/placement.py --fraction 0.3 --out "$OUT/placement"

compiler=$(command -v nvcc || command -v hipcc || true)
if [ -n "$compiler" ]; then
    flags=(-O2)
    [ "$(basename "$compiler")" = hipcc ] && flags+=(-x hip)
    left=$((340 - (SECONDS - begun)))
    if [ "$left" -gt 25 ]; then
        part native_build 15 "$compiler" "${flags[@]}" -o "$OUT/native_cliff" benchmarks/native/queue_cliff.cu
        [ -x "$OUT/native_cliff" ] && part native "$((left - 15))" "$OUT/native_cliff" 5 1
        rm -f "$OUT/native_cliff"
    fi
else
    echo "native: neither nvcc nor hipcc, not run"
fi
echo "all: $((SECONDS - begun)) s"
