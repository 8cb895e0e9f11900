"""Does it matter where in memory a buffer lies? Bandwidth by window, latency by reach, two streams by distance.

    python benchmarks/placement.py --out FOLDER [--fraction 0.5]

Fills a share of the GPU's memory with random values and runs the probes of rcatools/workload/placement.py over it.
Writes placement.json. Needs a GPU with Triton. An earlier form ran on an H200, this one was not run on a card.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rcatools.device.backend import choose_backend, describe, device_count, import_torch
from rcatools.errors import RcaError, UnavailableError
from rcatools.files import write_json
from rcatools.workload import placement

SPANS = tuple(2**power for power in range(14, 35, 2))


def main() -> int:
    """Measure, write, and print one line per probe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fraction", type=float, default=0.5, help="share of free memory to cover")
    args = parser.parse_args()
    torch = import_torch()
    if device_count(torch) == 0:
        raise UnavailableError("the placement probes need a GPU, and this torch sees none")
    device = describe(choose_backend("auto", torch), torch)
    size = int(torch.cuda.mem_get_info()[0] * args.fraction) // placement.WINDOWS[-1] * placement.WINDOWS[-1]
    buffer = torch.empty(size // 4, device="cuda").normal_()
    found = []
    for window in placement.WINDOWS:
        table = placement.windows(torch, buffer, window)
        table |= placement.position_effect(table["bytes_per_s"])
        found.append(table)
        correlation = "n/a" if table["correlation"] is None else f"{table['correlation']:+.2f}"
        print(
            f"windows of {table['window_bytes'] / 2**20:.0f} MiB: spread {100 * table['spread']:.2f} %, "
            f"passes correlate {correlation}, {table['host_bound']} passes bound by the host"
        )
    offsets = placement.offsets(torch, buffer)
    print(
        f"two streams: {min(offsets['bytes_per_s']) / 1e12:.2f} to {max(offsets['bytes_per_s']) / 1e12:.2f} TB/s"
    )
    chase = placement.chase(
        torch, buffer, [span for span in SPANS if span <= size]
    )  # last: it overwrites values
    print(
        "latency by reach: "
        + ", ".join(f"{s / 2**20:g} MiB {ns:.0f} ns" for s, ns in zip(*chase.values(), strict=True))
    )
    args.out.mkdir(parents=True, exist_ok=True)
    document = {"device": device.as_dict(), "torch": torch.__version__, "buffer_bytes": size}
    document |= {
        "date": datetime.now(UTC).date().isoformat(),
        "windows": found,
        "offsets": offsets,
        "chase": chase,
    }
    write_json(args.out / "placement.json", document)
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except RcaError as error:
        print(f"placement: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
