"""The two runtime calls that torch does not offer, through the library the process already loaded."""

from __future__ import annotations

import ctypes
import re

from rcatools.errors import UnavailableError

_LIBRARY = {
    "cuda": re.compile(r"\S*/libcudart[-.\w]*\.so[.\d]*"),
    "rocm": re.compile(r"\S*/libamdhip64\.so[.\d]*"),
}
_MALLOC = {"cuda": "cudaMalloc", "rocm": "hipMalloc"}


def runtime_library(backend: str) -> ctypes.CDLL:
    """The CUDA or HIP runtime that is mapped into this process.

    Raises:
        UnavailableError: none is mapped (torch not used yet, or linked statically).
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        found = _LIBRARY[backend].search(stream.read())
    if found is None:
        raise UnavailableError(
            f"no shared {backend} runtime is loaded in this process: the arm cannot run here"
        )
    return ctypes.CDLL(found.group(0))


def device_malloc(backend: str, size: int) -> int:
    """Device memory straight from the runtime; returns its address. It is never freed.

    Raises:
        UnavailableError: the runtime is not mapped.
        MemoryError: the runtime refused.
    """
    library = runtime_library(backend)
    pointer = ctypes.c_void_p()
    status = getattr(library, _MALLOC[backend])(ctypes.byref(pointer), ctypes.c_size_t(size))
    if status != 0 or pointer.value is None:
        raise MemoryError(f"{_MALLOC[backend]} of {size} bytes returned {status}")
    return int(pointer.value)
