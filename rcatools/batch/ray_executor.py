"""Runs groups of jobs on a Ray cluster; needs the extra ``cluster``.

Ray only places: each job still runs in a supervised process of its own and keeps its folder, which all
machines must see under the same path. A task is one group, so the blocks and rows of one comparison stay on
one card. Ray begins a task again when its worker or machine is lost; what failed by itself is never retried.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rcatools.batch.jobs import Job, Place, host
from rcatools.batch.local import Group, run_one
from rcatools.errors import InputError, UnavailableError

TYPE_PREFIX = "accelerator_type:"
TYPE_LABEL = "ray.io/accelerator-type"
_SHARE = 0.001


def run_ray(
    groups: Sequence[Group],
    report: Callable[[Job], None],
    *,
    address: str = "",
    cpus: int | None = None,
    retries: int = 2,
) -> None:
    """Run all groups on a cluster; returns when each job is done, failed, or lost too often.

    Args:
        groups: what to run.
        report: called with each job that has ended.
        address: of a running cluster, "auto" to find one, "" to start one on this machine.
        cpus: CPUs of a cluster that is started here; None: all.
        retries: how often a job is begun again whose machine or worker was lost.

    Raises:
        UnavailableError: Ray is not installed, or the cluster has no such card.
        InputError: no cluster at the address.
        KeyboardInterrupt: Ctrl-C; what was running is ended by its supervisors.
    """
    ray = import_ray()
    connect(ray, address, cpus)
    try:
        cluster = ray.cluster_resources()
        alone = _whole_machine(ray)
        wanted = [task_options(group, cluster, alone) for group in groups]
        task = ray.remote(run_group)
        pending = {}
        for group, options in zip(groups, wanted, strict=True):
            folders = [str(job.folder.resolve()) for job in group.jobs]
            backend = options.pop("backend")
            reference = task.options(max_retries=retries, retry_exceptions=False, **options).remote(
                folders, group.device, group.accelerator, backend, retries
            )
            pending[reference] = group
        while pending:
            finished, _ = ray.wait(list(pending), num_returns=1)
            for reference in finished:
                _finish(ray, reference, pending.pop(reference), report)
    finally:
        if not address:
            ray.shutdown()


def import_ray() -> Any:
    """The ray module; UnavailableError with what to do where it is not installed."""
    try:
        os.environ.setdefault(
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
        )  # a row without a card keeps the masks
        import ray
    except ImportError:
        raise UnavailableError(
            "ray is not installed: 'pip install rcatools[cluster]', or leave --executor local"
        ) from None
    return ray


def connect(ray: Any, address: str, cpus: int | None) -> None:
    """Join a cluster, or start one here.

    Raises:
        InputError: no cluster answers at the address.
    """
    if ray.is_initialized():
        return
    _answers(address)
    package = str(Path(__file__).resolve().parents[2])
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != package]
    options: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join([package, *others])}},
    }
    if not address:
        options |= {"include_dashboard": False, "num_cpus": cpus}
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError, TimeoutError) as error:
        line = str(error).strip().splitlines()[0]
        raise InputError(
            f"no Ray cluster at {address!r} ({line}): start one with 'ray start --head'"
        ) from None


def _answers(address: str) -> None:
    """Ray itself tries for minutes to reach a cluster that is not there."""
    name, sign, port = address.removeprefix("ray://").rpartition(":")
    if not sign or not port.isdigit():
        return
    try:
        socket.create_connection((name.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster at {address!r} ({error}): start one with 'ray start --head'"
        ) from None


def task_options(group: Group, cluster: Mapping[str, float], machine_cpus: float) -> dict[str, Any]:
    """What a group asks Ray for, and the backend its card will have ("" where Ray decides).

    Args:
        group: the group.
        cluster: all resources of the cluster.
        machine_cpus: CPUs of the largest machine; a row that measures on the CPU takes all of them.

    Raises:
        UnavailableError: no machine of the cluster has such a card.
    """
    device = group.device
    types = {name.removeprefix(TYPE_PREFIX) for name in cluster if name.startswith(TYPE_PREFIX)}
    cards = cluster.get("GPU", 0) > 0
    if device == "none":
        return {"num_cpus": 1, "backend": "none"}
    if device == "cpu" or (device == "auto" and not cards):
        return {"num_cpus": machine_cpus, "backend": "cpu"}
    fitting = {name for name in types if device in {"gpu", "auto", backend_of(name)}}
    if group.accelerator:
        fitting &= {group.accelerator}
    if not cards or (not fitting and (group.accelerator or device in {"cuda", "rocm"})):
        asked = group.accelerator or device
        raise UnavailableError(
            f"no machine of the cluster has a card {asked!r}: it has {', '.join(sorted(types)) or 'none'}"
        )
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 1, "backend": ""}
    if group.accelerator or device in {"cuda", "rocm"}:
        backends = {backend_of(name) for name in fitting}
        options["backend"] = backends.pop() if len(backends) == 1 else ""
        if len(fitting) == 1:
            options["resources"] = {TYPE_PREFIX + next(iter(fitting)): _SHARE}
        else:
            options["label_selector"] = {TYPE_LABEL: f"in({','.join(sorted(fitting))})"}
    return options


def backend_of(accelerator: str) -> str:
    """The backend of a card as Ray names its type; AMD's types begin with the vendor."""
    return "rocm" if accelerator.upper().startswith("AMD") else "cuda"


def run_group(folders: Sequence[str], device: str, accelerator: str, backend: str, retries: int) -> list[str]:
    """The task: run a group's jobs one after the other on the card Ray gave; returns their states."""
    import ray

    context = ray.get_runtime_context()
    ids = [str(item) for item in context.get_accelerator_ids().get("GPU", ())]
    if ids and not backend:
        labels = context.get_node_labels() if hasattr(context, "get_node_labels") else {}
        backend = backend_of(labels[TYPE_LABEL]) if TYPE_LABEL in labels else _backend_here()
    place = Place(backend, ids[0] if ids else "", host=host(), node=str(context.get_node_id())[:12])
    group = Group(tuple(Job(Path(folder)) for folder in folders), device, accelerator)
    for job in group.keep_together(place):
        run_one(job.folder, place, retries=retries)
    return [job.settled()["state"] for job in group.jobs]


def _backend_here() -> str:
    return "rocm" if Path("/sys/module/amdgpu").is_dir() or Path("/opt/rocm").is_dir() else "cuda"


def _whole_machine(ray: Any) -> float:
    sizes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    return float(max(sizes, default=1) or 1)


def _finish(ray: Any, reference: Any, group: Group, report: Callable[[Job], None]) -> None:
    error = ""
    try:
        ray.get(reference)
    except ray.exceptions.RayError as caught:
        error = str(caught).strip().splitlines()[0][:300]
    for job in group.jobs:
        if job.settled()["state"] not in {"done", "failed", "lost"}:
            job.write_status("lost", attempt=job.attempts(), error=f"Ray lost it: {error}")
        report(job)
