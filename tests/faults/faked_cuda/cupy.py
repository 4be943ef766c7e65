"""Just enough of CuPy that a worker believes that it has a GPU; arrays are NumPy's."""

from types import SimpleNamespace

from numpy import *  # noqa: F403


def is_available() -> bool:
    return True


def get_default_memory_pool() -> SimpleNamespace:
    return SimpleNamespace(
        total_bytes=lambda: 0, free_all_blocks=lambda: None, free_bytes=lambda: 0, malloc=bytearray
    )


class Device:
    id = 0
    pci_bus_id = "0000:00:00.0"
    mem_info = (1 << 30, 1 << 30)


cuda = SimpleNamespace(
    Device=Device,
    set_allocator=lambda allocator: None,
    runtime=SimpleNamespace(
        getDeviceProperties=lambda number: {"name": b"a GPU that is none", "totalGlobalMem": 1 << 30},
        deviceSynchronize=lambda: None,
        CUDARuntimeError=RuntimeError,
    ),
    driver=SimpleNamespace(CUDADriverError=RuntimeError),
)
