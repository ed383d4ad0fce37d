# SPDX-License-Identifier: Apache-2.0
"""The ops, from one build, on the TensorFlow that is installed and on the oldest one: tfops_suite.py on both."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hopyard

ROOT = Path(__file__).parents[2]
OLD = ROOT / ".venv-old/bin/python"  # made by `make test`
PACKAGE = Path(hopyard.__file__).parent
LIBRARY = PACKAGE.parent / "tensorflow-plugins/hopyard_ops.so"


def call(python: str | Path, *arguments: str, path: Path | None = None, fails: bool = False) -> str:
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(path or "")}
    p = subprocess.run([python, *arguments], env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=600)
    assert (p.returncode == 1) if fails else (p.returncode == 0), p.stdout[-20000:]
    return p.stdout


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The package in a folder where TensorFlow does not look, as by `pip install --target`."""
    (tmp_path / "hopyard").symlink_to(PACKAGE)
    (tmp_path / "tensorflow-plugins").symlink_to(LIBRARY.parent)
    return tmp_path


def suite(python: str | Path, path: Path | None = None) -> str:
    return call(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python/tfops_suite.py", path=path)


def test_ops_work_on_the_installed_tensorflow() -> None:
    suite(sys.executable)


def test_ops_work_on_the_oldest_tensorflow(elsewhere: Path) -> None:
    assert OLD.exists(), "make test sets it up"
    suite(OLD, path=elsewhere)


QUERY = """
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context
context.context().ensure_initialized()
pywrap_tfe.TFE_Py_FastPathExecute(context.context(), "HopyardQuery", None, "what", 0)
"""


def test_tensorflow_loads_the_ops_once_if_installed_twice(tmp_path: Path) -> None:
    second = tmp_path / "site-packages"
    shutil.copytree(LIBRARY.parent, second / "tensorflow-plugins")
    assert "Horovod has not been initialized" in call(sys.executable, "-c", QUERY, path=second, fails=True)


def test_missing_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from hopyard._tensorflow import ops

    ops.ensure_loaded()
    assert ops.library() == ops._find() == str(LIBRARY)
    monkeypatch.setattr(ops, "LIBRARY", "absent.so")
    with pytest.raises(hopyard.Error, match="TensorFlow has not loaded absent.so; is hopyard installed completely?"):
        ops.library()
    with pytest.raises(hopyard.Error, match="tensorflow-plugins/absent.so is neither beside .*; reinstall hopyard"):
        ops._find()


def test_library_that_registers_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a TensorFlow that it does not support; it has the reason, if it has one."""
    from hopyard._tensorflow import ops

    monkeypatch.setattr(ops.op_def_registry, "get", lambda name: None)
    with pytest.raises(hopyard.Error, match="TensorFlow did not register hopyard's ops"):
        ops.ensure_loaded()


def test_process_without_tensorflow_gets_an_error() -> None:
    code = """if True:
        import ctypes, sys
        trouble = ctypes.CDLL(sys.argv[1]).hy_tensorflow_trouble
        trouble.restype = ctypes.c_char_p
        print(trouble().decode())"""
    assert "has no TF_NewStatus in its C API" in call(sys.executable, "-c", code, str(LIBRARY))


def test_library_depends_on_libc_only_and_exports_few_symbols() -> None:
    needs = subprocess.run(["ldd", LIBRARY], check=True, capture_output=True, text=True).stdout
    assert {line.split()[0].split("/")[-1].split(".so")[0] for line in needs.splitlines()} <= {
        "linux-vdso", "libc", "libm", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in shown.splitlines()} == {
        "TF_InitPlugin", "hy_tensorflow_attach", "hy_tensorflow_files_trouble", "hy_tensorflow_pending",
        "hy_tensorflow_trouble"}
