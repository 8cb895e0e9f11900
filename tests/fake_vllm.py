"""A stand-in for the ``vllm`` command: what it does depends on FAKE_<ARM>, so that a runner meets every way to fail.

dies, dies_by_signal, oom, hangs, stubborn (ignores SIGTERM), no_marker, two_workers, wrong_arm, refused_requests,
client_fails, client_hangs, dies_in_bench, leaves_a_child, garbage, plan; anything else works
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ARM = os.environ.get("RCATOOLS_VLLM_ARM", "")
MODE = os.environ.get(f"FAKE_{ARM.upper()}", "") if ARM else os.environ.get("FAKE_CLIENT", "")
SPEED = float(os.environ.get(f"FAKE_SPEED_{ARM.upper()}", "1"))


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def forever() -> None:
    while True:
        time.sleep(3600)


def mark() -> None:
    if MODE == "no_marker" or not ARM:
        return
    folder = Path(os.environ["RCATOOLS_VLLM_MARKERS"])
    folder.mkdir(parents=True, exist_ok=True)
    marker = {
        "arm": "off" if MODE == "wrong_arm" else ARM,
        "run": os.environ["RCATOOLS_VLLM_RUN"],
        "pid": os.getpid(),
    }
    marker |= {
        "rank": 0,
        "world_size": 2 if MODE == "two_workers" else 1,
        "model_runner": "V1",
        "vllm": "0.33.0",
    }
    marker |= {"platform": "rocm", "profile_calls": 1, "captures": 1, "effect": "x", "patched": ["a"]}
    marker |= {
        "estimate_bytes": 0 if ARM == "off" else 1000,
        "graph_bytes": 900,
        "kv_blocks": 100 if ARM == "off" else 90,
    }
    (folder / f"{os.getpid()}.json").write_text(json.dumps(marker))


def start() -> None:
    say("(EngineCore_DP0 pid=1) INFO 01-01 [core.py:1] Initializing a V1 LLM engine (v0.33.0) with config: x")
    if MODE == "dies":
        say("(EngineCore_DP0 pid=1) ERROR 01-01 [core.py:2] ValueError: the model has no weights")
        say("RuntimeError: Engine core initialization failed. See root cause above.")
        sys.exit(1)
    if MODE == "oom":
        say(
            "(Worker_TP0 pid=1) ERROR torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.00 GiB. GPU 0"
        )
        sys.exit(1)
    if MODE == "dies_by_signal":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE in ("hangs", "stubborn"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        forever()
    if MODE == "leaves_a_child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    if MODE == "plan":
        say("Applying persisted startup plan (fingerprint abc): Memory profiling will be skipped.")
    assert os.environ["VLLM_ENABLE_STARTUP_PLAN"] == "0"
    mark()


def bench_latency() -> None:
    start()
    text = (
        "no json"
        if MODE == "garbage"
        else json.dumps(
            {
                "avg_latency": 0.1,
                "latencies": [0.1 * SPEED, 0.11 * SPEED, 0.1 * SPEED],
                "percentiles": {"50": 0.1},
            }
        )
    )
    Path(option("--output-json")).write_text(text)


def serve() -> None:
    start()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            if self.path == "/die":
                threading.Thread(target=os._exit, args=(1,)).start()

        def log_message(self, *_: object) -> None:
            return

    HTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()


def bench_serve() -> None:
    assert not ARM  # a client is no engine
    place = Path(option("--result-dir"))
    arm = place.name.rpartition("-")[2]
    mode = os.environ.get(f"FAKE_{arm.upper()}", "")
    if mode == "client_fails":
        say("ValueError: no such dataset")
        sys.exit(2)
    if mode == "client_hangs":
        forever()
    if mode == "dies_in_bench":
        import urllib.request

        urllib.request.urlopen(f"http://127.0.0.1:{option('--port')}/die").read()
        time.sleep(1)
        sys.exit(1)
    concurrency, prompts = int(option("--max-concurrency")), int(option("--num-prompts"))
    rate = 100.0 * concurrency / float(os.environ.get(f"FAKE_SPEED_{arm.upper()}", "1"))
    failed = 1 if mode == "refused_requests" else 0
    document = {
        "num_prompts": prompts,
        "max_concurrency": concurrency,
        "request_rate": "inf",
        "duration": 1.0,
    }
    document |= {
        "completed": prompts - failed,
        "failed": failed,
        "output_throughput": rate,
        "mean_tpot_ms": 1e3 / rate,
    }
    (place / option("--result-filename")).write_text(json.dumps(document))


if __name__ == "__main__":
    {("bench", "latency"): bench_latency, ("bench", "serve"): bench_serve}.get(
        (sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""), serve
    )()
