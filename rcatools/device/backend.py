"""Which device runs the work: ROCm, CUDA or the CPU."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from rcatools.errors import InputError, UnavailableError, UnknownNameError

BACKENDS = ("cuda", "rocm", "cpu")


@dataclass(frozen=True)
class Device:
    """One device as the recording names it.

    Attributes:
        backend: "cuda", "rocm" or "cpu".
        name: marketing name.
        arch: gfx name on ROCm, sm_NN on CUDA, machine type on the CPU.
        memory_bytes: device memory, or host memory on the CPU.
        uuid: stable identity of the card, or None.
        driver, runtime: driver version and CUDA or HIP version, or None.
        multiprocessors: SMs or CUs, or cores of the CPU.
        last_level_cache_bytes: L2, or MALL where the card has one, or None.
    """

    backend: str
    name: str
    arch: str
    memory_bytes: int
    uuid: str | None = None
    driver: str | None = None
    runtime: str | None = None
    multiprocessors: int | None = None
    last_level_cache_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All fields, for the manifest."""
        return asdict(self)


def import_torch() -> Any:
    """The torch module; UnavailableError with what to do where it is not installed."""
    try:
        import torch
    except ImportError:
        raise UnavailableError(
            "torch is not installed: use the container of your card (ROCm or CUDA brings its own build), "
            "or 'pip install torch' for the CPU; it is needed only to measure"
        ) from None
    return torch


def choose_backend(requested: str, torch: Any) -> str:
    """The backend for a request of "auto", "cuda", "rocm" or "cpu".

    ``torch.version.hip`` decides between the two vendors. Asking whether a device exists must not
    create a context, so that the process may fork afterwards; the device count comes from the driver.

    Raises:
        UnknownNameError: the request is no backend.
        UnavailableError: the requested backend is not there.
    """
    if requested not in {"auto", *BACKENDS}:
        raise UnknownNameError("device", requested, {"auto", *BACKENDS})
    found = "cpu"
    if device_count(torch) > 0:
        found = "rocm" if torch.version.hip else "cuda"
    if requested == "auto":
        return found
    if requested not in {"cpu", found}:
        raise UnavailableError(
            f"device {requested!r} is not available: this torch ({torch.__version__}) sees {found}; "
            "run 'rcatools doctor' to see why"
        )
    return requested


def device_count(torch: Any) -> int:
    """GPUs this process may use, counted without creating a context."""
    try:
        return int(torch.cuda.device_count()) if torch.cuda._is_compiled() else 0
    except (RuntimeError, AttributeError):
        return 0


def torch_device(backend: str) -> str:
    """The torch device string of a backend; ROCm is called "cuda" in torch."""
    return "cpu" if backend == "cpu" else "cuda"


def visible_mask(backend: str, index: int | str) -> dict[str, str]:
    """Environment that shows a child process one GPU only.

    HIP indices count inside what ROCR_VISIBLE_DEVICES leaves, so an existing ROCR mask stays
    untouched and only HIP_VISIBLE_DEVICES is set.

    Raises:
        InputError: the backend has no GPUs.
    """
    if backend == "rocm":
        return {"HIP_VISIBLE_DEVICES": str(index)}
    if backend == "cuda":
        return {"CUDA_VISIBLE_DEVICES": str(index)}
    raise InputError(f"backend {backend!r} has no device mask")


def describe(backend: str, torch: Any) -> Device:
    """The current device; creates a context on a GPU."""
    if backend == "cpu":
        return _describe_cpu()
    p = torch.cuda.get_device_properties(0)
    rocm = backend == "rocm"
    arch = str(getattr(p, "gcnArchName", "")) if rocm else f"sm_{p.major}{p.minor}"
    uuid = getattr(p, "uuid", None)
    return Device(
        backend=backend,
        name=str(p.name),
        arch=arch,
        memory_bytes=int(p.total_memory),
        uuid=str(uuid) if uuid is not None else None,
        driver=_driver_version(rocm=rocm),
        runtime=str(torch.version.hip if rocm else torch.version.cuda),
        multiprocessors=int(p.multi_processor_count),
        last_level_cache_bytes=_last_level_cache(arch, getattr(p, "L2_cache_size", None)),
    )


def _last_level_cache(arch: str, l2_bytes: int | None) -> int | None:
    # AMD's CDNA3 and CDNA4 white papers: 256 MB of Infinity Cache behind the L2 of each XCD.
    if arch.startswith(("gfx940", "gfx941", "gfx942", "gfx950")):
        return 256 * 2**20
    return int(l2_bytes) if l2_bytes else None


def _describe_cpu() -> Device:
    import platform

    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            models = [line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")]
        name = models[0] if models else name
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        memory = 0
    return Device("cpu", name, platform.machine(), memory, multiprocessors=os.cpu_count())


def _driver_version(*, rocm: bool) -> str | None:
    places = ["/sys/module/amdgpu/version"] if rocm else ["/sys/module/nvidia/version"]
    for place in places:
        try:
            with open(place, encoding="utf-8") as stream:
                return stream.read(200).strip()
        except OSError:
            continue
    return None
