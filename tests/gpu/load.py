#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trial that uses a GPU, with only the driver's library.

    load.py MEGABYTES SECONDS [busy|fault]

Allocates memory, runs kernels for a while (`busy`: without pauses), and (`fault`) writes to an invalid address.
Each line of its output is JSON. Exit status 3: a CUDA call failed.
"""
import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry poke(.param .u64 at)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [at];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

cuda = ctypes.CDLL("libcuda.so.1")


def emit(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def log_has_fault() -> bool:
    log = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")) / "server.log"
    return log.exists() and "fatal GPU error" in log.read_text(errors="replace")


def call(name: str, *args: Any) -> None:
    code = getattr(cuda, name)(*args)
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(text))
        emit(error=(text.value or b"?").decode(), call=name, logged=log_has_fault())
        sys.exit(3)


def open_device() -> ctypes.c_void_p:
    """The kernel, loaded on the first visible device."""
    device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    count, cores, free, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuDeviceGetAttribute", ctypes.byref(cores), MULTIPROCESSORS, device)
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"poke")
    emit(devices=count.value, cores=cores.value, free_mb=free.value >> 20, total_mb=total.value >> 20)
    return kernel


def launch(kernel: ctypes.c_void_p, at: int) -> None:
    value = ctypes.c_uint64(at)
    params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(value), ctypes.c_void_p))
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    call("cuCtxSynchronize")


def main() -> None:
    megabytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    kernel, memory = open_device(), ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(megabytes << 20))
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), ctypes.c_size_t(megabytes << 20))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        launch(kernel, memory.value)
        if sys.argv[3:] == ["busy"]:
            call("cuMemsetD8_v2", memory, ctypes.c_ubyte(2), ctypes.c_size_t(megabytes << 20))
        else:
            time.sleep(0.01)
    if sys.argv[3:] == ["fault"]:
        launch(kernel, 0)
    emit(done=True)


main()
