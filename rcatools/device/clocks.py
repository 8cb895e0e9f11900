"""Clocks, temperature, power and neighbours of a device, read where the vendor's library allows it.

NVML through pynvml on CUDA; amdsmi on ROCm (not run on ROCm). A field that cannot be read is None and
``throttle`` then says "not readable": nothing is guessed.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean the device runs below what was asked.
NVML_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}


@dataclass(frozen=True)
class Reading:
    """One reading of the device's state; None where it cannot be read."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: str = "not readable"
    other_processes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


class DeviceMonitor:
    """Reads one device; made inside the process that measures, after it has forked."""

    def __init__(self, backend: str, uuid: str | None) -> None:
        self._read = {"cuda": _nvml_reader, "rocm": _amdsmi_reader}.get(backend, _no_reader)(uuid)

    def read(self) -> Reading:
        """The state now; a reading without fields where the library fails."""
        try:
            reading: Reading = self._read()
        except Exception:  # vendor libraries raise types of their own
            return Reading()
        return reading


def host_load() -> float | None:
    """Load average of the last minute, or None where the system has none."""
    try:
        return float(os.getloadavg()[0])
    except OSError:
        return None


def summarize(readings: list[Reading]) -> dict[str, Any]:
    """Median of each number over the readings, and every throttle reason that was seen."""
    result: dict[str, Any] = {}
    for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w"):
        values = sorted(v for r in readings if (v := getattr(r, name)) is not None)
        result[name] = values[len(values) // 2] if values else None
    reasons = {part for r in readings for part in r.throttle.split("+")}
    known = sorted(reasons - {"none", "not readable"})
    result["throttle"] = "+".join(known) if known else ("none" if "none" in reasons else "not readable")
    others = [r.other_processes for r in readings if r.other_processes is not None]
    result["other_processes"] = max(others) if others else None
    return result


def read_cost_us(monitor: DeviceMonitor, count: int = 20) -> float:
    """Host time of one reading in microseconds."""
    start = time.perf_counter()
    for _ in range(count):
        monitor.read()
    return (time.perf_counter() - start) / count * 1e6


def _no_reader(uuid: str | None) -> Any:
    return Reading


def _nvml_reader(uuid: str | None) -> Any:
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        handle = _nvml_handle(nvml, uuid)
    except Exception:
        return Reading

    def read() -> Reading:
        bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        reasons = [name for bit, name in NVML_REASONS.items() if bits & bit]
        others = [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
        return Reading(
            sm_clock_mhz=float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000,
            throttle="+".join(reasons) or "none",
            other_processes=len(others),
        )

    return read


def _nvml_handle(nvml: Any, uuid: str | None) -> Any:
    if uuid:
        for name in (uuid, f"GPU-{uuid}"):
            try:
                return nvml.nvmlDeviceGetHandleByUUID(name)
            except Exception:
                continue
    return nvml.nvmlDeviceGetHandleByIndex(0)


def _amdsmi_reader(uuid: str | None) -> Any:
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
        matching = [
            h for h in handles if uuid and str(amdsmi.amdsmi_get_gpu_device_uuid(h)).endswith(uuid[-12:])
        ]
        handle = (matching or handles)[0]
    except Exception:
        return Reading

    def read() -> Reading:
        metrics = amdsmi.amdsmi_get_gpu_metrics_info(handle)
        return Reading(
            sm_clock_mhz=_number(metrics.get("current_gfxclk")),
            memory_clock_mhz=_number(metrics.get("current_uclk")),
            temperature_c=_number(metrics.get("temperature_hotspot")),
            power_w=_number(metrics.get("current_socket_power")),
            throttle="not readable",
            other_processes=_amd_neighbours(amdsmi, handle),
        )

    return read


def _amd_neighbours(amdsmi: Any, handle: Any) -> int | None:
    try:
        processes = amdsmi.amdsmi_get_gpu_process_list(handle)
    except Exception:
        return None
    pids = [p.get("pid") if isinstance(p, dict) else getattr(p, "pid", None) for p in processes]
    return sum(pid not in {None, os.getpid()} for pid in pids)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value not in {65535, 4294967295} else None
