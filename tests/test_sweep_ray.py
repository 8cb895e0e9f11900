"""The Ray executor: same results as here, no card shared, groups on one card, masks of both vendors."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sweep_support import ROOT, comparison, summary, sweep, table

from rcatools.batch.jobs import Job
from rcatools.batch.local import Group
from rcatools.batch.ray_executor import backend_of, task_options
from rcatools.errors import UnavailableError

AMD, NVIDIA = "AMD-Instinct-MI300X-OAM", "H200"
CLUSTER = {"CPU": 8.0, "GPU": 4.0, f"accelerator_type:{AMD}": 1.0, f"accelerator_type:{NVIDIA}": 1.0}


def group(device: str, accelerator: str = "") -> Group:
    return Group((), device, accelerator)


@pytest.mark.parametrize(
    ("device", "accelerator", "wanted"),
    [
        ("none", "", {"num_cpus": 1, "backend": "none"}),
        ("cpu", "", {"num_cpus": 4.0, "backend": "cpu"}),
        ("gpu", "", {"num_cpus": 0, "num_gpus": 1, "backend": ""}),
        ("auto", "", {"num_cpus": 0, "num_gpus": 1, "backend": ""}),
        ("rocm", "", {"num_cpus": 0, "num_gpus": 1, "backend": "rocm", "resources": {f"accelerator_type:{AMD}": 0.001}}),
        ("cuda", "", {"num_cpus": 0, "num_gpus": 1, "backend": "cuda", "resources": {f"accelerator_type:{NVIDIA}": 0.001}}),
        ("gpu", NVIDIA, {"num_cpus": 0, "num_gpus": 1, "backend": "cuda", "resources": {f"accelerator_type:{NVIDIA}": 0.001}}),
    ],
)  # fmt: skip
def test_what_a_group_asks_for(device: str, accelerator: str, wanted: dict[str, Any]) -> None:
    assert task_options(group(device, accelerator), CLUSTER, 4.0) == wanted


def test_several_types_of_one_vendor_are_chosen_by_label() -> None:
    cluster = {**CLUSTER, "accelerator_type:H100": 1.0}
    options = task_options(group("cuda"), cluster, 4.0)
    assert options["label_selector"] == {"ray.io/accelerator-type": "in(H100,H200)"}
    assert "resources" not in options


def test_a_card_that_no_machine_has_is_refused() -> None:
    with pytest.raises(UnavailableError, match=r"'A100'.*H200"):
        task_options(group("gpu", "A100"), CLUSTER, 4.0)
    with pytest.raises(UnavailableError, match="'rocm'"):
        task_options(group("rocm"), {"CPU": 4.0, "GPU": 1.0, f"accelerator_type:{NVIDIA}": 1.0}, 4.0)
    with pytest.raises(UnavailableError, match="it has none"):
        task_options(group("gpu"), {"CPU": 4.0}, 4.0)
    assert task_options(group("auto"), {"CPU": 4.0}, 4.0)["backend"] == "cpu"


def test_vendors_of_accelerator_types() -> None:
    assert [backend_of(name) for name in (AMD, "AMD-Radeon-R9", NVIDIA, "A100")] == [
        "rocm",
        "rocm",
        "cuda",
        "cuda",
    ]


# --- with Ray -----------------------------------------------------------------------------------------

CLUSTER_SCRIPT = """
import json, sys
from pathlib import Path
from ray.cluster_utils import Cluster
import ray
from rcatools.batch.jobs import Job
from rcatools.batch.local import Group
from rcatools.batch.ray_executor import TYPE_LABEL, run_ray

out = Path(sys.argv[1])
wanted = json.loads(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
for name in ("AMD-Instinct-MI300X-OAM", "H200"):
    cluster.add_node(num_cpus=2, num_gpus=2, resources={f"accelerator_type:{name}": 1}, labels={TYPE_LABEL: name})
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
seen = []
groups = [Group(tuple(Job(out / "jobs" / name) for name in names), device) for names, device in wanted]
run_ray(groups, lambda job: seen.append(job.name), address=cluster.address)
print(json.dumps(seen))
ray.shutdown()
cluster.shutdown()
"""


def needs_ray() -> None:
    pytest.importorskip("ray", reason="ray is not installed (pip install rcatools[cluster])")


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ten jobs in seven groups on two declared machines of two cards each."""
    needs_ray()
    out = tmp_path_factory.mktemp("ray")
    source = comparison(out, "a.csv", 1.0)
    groups = [(["a1", "a2", "a3"], "rocm"), (["b1", "b2"], "cuda"), (["c1"], "rocm"), (["d1"], "cuda"),
              (["e1"], "rocm"), (["f1"], "gpu"), (["g1"], "gpu")]  # fmt: skip
    for names, device in groups:
        for name in names:
            Job(out / "jobs" / name).create(
                {"kind": "compare", "device": device, "settings": {}, "env": {}, "labels": {}, "timeout_s": 120,
                 "parameters": {"table": str(out / source), "baseline": "before", "arms": [], "metrics": [],
                                "value": None, "higher_is_better": None, "margin": 0.02, "confidence": 0.95}},
                {"row": 1, "name": name},
            )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER_SCRIPT, str(out), json.dumps(groups)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    jobs = {name: Job(out / "jobs" / name) for names, _ in groups for name in names}
    return {
        "groups": groups,
        "seen": json.loads(done.stdout.strip().splitlines()[-1]),
        "status": {name: job.status() for name, job in jobs.items()},
        "masks": {name: (job.result() or {}).get("masks", {}) for name, job in jobs.items()},
    }


@pytest.mark.ray
def test_all_jobs_are_done_and_reported_once(placed: dict[str, Any]) -> None:
    assert sorted(placed["seen"]) == sorted(placed["status"])
    assert {status["state"] for status in placed["status"].values()} == {"done"}
    assert {status["attempt"] for status in placed["status"].values()} == {1}


@pytest.mark.ray
def test_no_card_holds_two_jobs_at_a_time(placed: dict[str, Any]) -> None:
    by_card: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for status in placed["status"].values():
        card = (status["place"]["node"], status["place"]["mask"])
        by_card.setdefault(card, []).append((status["started_utc"], status["ended_utc"]))
    assert {mask for _, mask in by_card} <= {"0", "1"}
    for spans in by_card.values():
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


@pytest.mark.ray
def test_groups_stay_on_one_card_in_their_order(placed: dict[str, Any]) -> None:
    for names, device in placed["groups"]:
        places = [placed["status"][name]["place"] for name in names]
        assert all(place == places[0] for place in places)
        assert device == "gpu" or places[0]["backend"] == device
        starts = [placed["status"][name]["started_utc"] for name in names]
        assert starts == sorted(starts)


@pytest.mark.ray
def test_each_vendor_gets_its_own_mask_of_one_card(placed: dict[str, Any]) -> None:
    backends = set()
    for name, status in placed["status"].items():
        backend, mask = status["place"]["backend"], status["place"]["mask"]
        backends.add(backend)
        seen = placed["masks"][name]
        assert seen["HIP_VISIBLE_DEVICES" if backend == "rocm" else "CUDA_VISIBLE_DEVICES"] == mask
        if backend == "rocm":
            assert seen["CUDA_VISIBLE_DEVICES"] is None
    assert backends == {"rocm", "cuda"}


@pytest.mark.ray
def test_ray_and_local_give_the_same_results(tmp_path: Path) -> None:
    needs_ray()
    rows = [{"kind": "compare", "table": comparison(tmp_path, f"{i}.csv", 1.0 + i / 50, i), "baseline": "before"}
            for i in range(3)]  # fmt: skip
    rows.append({"kind": "compare", "table": comparison(tmp_path, "x.csv", 1.0, 9), "baseline": "absent"})
    path = table(tmp_path, rows)
    said = []
    for executor in ("local", "ray"):
        done = sweep(path, tmp_path / executor, "--executor", executor, "--cpus", "2", "--json")
        assert done.returncode == 2, done.stderr
        document = summary(done)
        said.append([(row["job"], row["state"], row["verdict"], row["error"]) for row in document["rows"]])
    assert said[0] == said[1]
    files = [
        [
            (tmp_path / executor / "jobs" / job / "attempts" / "1" / "compare.json").read_text()
            for job, *_ in said[0][:3]
        ]
        for executor in ("local", "ray")
    ]
    assert files[0] == files[1]


def test_without_ray_or_a_cluster_one_line_says_what_to_do(tmp_path: Path) -> None:
    path = table(
        tmp_path, [{"kind": "compare", "table": comparison(tmp_path, "a.csv", 1.0), "baseline": "before"}]
    )
    try:
        import ray  # noqa: F401
    except ImportError:
        done = sweep(path, tmp_path / "out", "--executor", "ray")
        assert done.returncode == 2
        assert "pip install rcatools[cluster]" in done.stderr
        assert done.stderr.count("\n") == 1
        return
    done = sweep(path, tmp_path / "out", "--executor", "ray", "--address", "127.0.0.1:1")
    assert done.returncode == 2
    assert "no Ray cluster at" in done.stderr
    assert "Traceback" not in done.stderr
