"""Who owns the block that a linear layer leaves on a side stream? Settle it on this machine, in one command.

    python benchmarks/owner_intervention.py OUT

Makes three snapshots, each in its own process: with a BLAS-Lt workspace of 76 MiB, with one of 40 MiB, and of the
first process after clearing the workspaces and emptying the cache; then says whether the block followed. On ROCm
the size is set by HIPBLASLT_WORKSPACE_SIZE (76 MiB is also torch's default there), on CUDA by
CUBLASLT_WORKSPACE_SIZE with a workspace of its own for BLAS-Lt. Needs torch, numpy and pandas.
Not run as a whole; its cases were run one by one on an H200 (torch 2.11). Not run on ROCm.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SIZES_KIB = (77824, 40960)


def program(out: Path, cleared: Path | None) -> None:
    """A bf16 linear layer with bias on a side stream, then gc and empty_cache; snapshots of what stays."""
    import gc

    import torch

    torch.cuda.memory._record_memory_history("all", "all", "all", 1_000_000)
    x = torch.randn(256, 1024, device="cuda", dtype=torch.bfloat16)
    layer = torch.nn.Linear(1024, 1024, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        y = layer(x)
    torch.cuda.synchronize()
    del y
    gc.collect()
    torch.cuda.empty_cache()
    write(out, torch.cuda.memory._snapshot())
    if cleared is not None:
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        write(cleared, torch.cuda.memory._snapshot())


def write(path: Path, snapshot: object) -> None:
    """Protocol 4: what every viewer reads."""
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def main() -> int:
    """Run the two processes, compare, print the outcome; 0 if it was decided."""
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        program(out / sys.argv[2], out / "cleared.pickle" if sys.argv[2] == "base.pickle" else None)
        return 0
    out.mkdir(parents=True, exist_ok=True)
    import torch

    variable = "HIPBLASLT_WORKSPACE_SIZE" if torch.version.hip else "CUBLASLT_WORKSPACE_SIZE"
    for name, size in zip(("base.pickle", "resized.pickle"), SIZES_KIB, strict=True):
        environment = {**os.environ, variable: str(size), "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}
        subprocess.run([sys.executable, __file__, str(out), name], check=True, env=environment)

    from rcatools.memory.intervention import agreement, intervene, parse_change
    from rcatools.memory.read import load_snapshot

    base, resized, cleared = (load_snapshot(out / f"{n}.pickle") for n in ("base", "resized", "cleared"))
    outcome = intervene(base, resized, cleared, parse_change(f"{variable}={SIZES_KIB[0]}->{SIZES_KIB[1]}"))
    answers = agreement(base, outcome)
    document = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "intervention": outcome.as_dict(),
        "agreement": answers.as_dict(),
    }
    (out / "outcome.json").write_text(json.dumps(document, indent=1))
    print(outcome.text)
    print(answers.text)
    return 0 if answers.agreed else 1


if __name__ == "__main__":
    raise SystemExit(main())
