# SPDX-License-Identifier: Apache-2.0
"""hopyard.hvd on real ranks: its ops, and trainings that equal those in one process."""
from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Yard
from promises import broken, names

HERE = Path(__file__).parent
OPS, TRAINING = HERE / "hvd_ops.py", HERE / "hvd_training.py"


def run_program(folder: Path, program: Path, ranks: int, *args: str) -> Iterator[Path]:
    """Runs the program's tests on ranks; returns the directory with their results."""
    yard = Yard(folder)
    try:
        yard.run("train", "-np", ranks, "--", sys.executable, program, folder, *args, env={"TF_CPP_MIN_LOG_LEVEL": "3"})
        yield folder
        yard.assert_nothing_left()
    finally:
        yard.kill_everything()
        shutil.rmtree(yard.runtime, ignore_errors=True)


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from run_program(tmp_path_factory.mktemp("ops"), OPS, 3)


@pytest.mark.parametrize("promise", names(OPS))
def test_op(ops: Path, promise: str) -> None:
    assert not (output := broken(ops, 3, promise)), output


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def training(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from run_program(tmp_path_factory.mktemp(request.param), TRAINING, 2, request.param)


@pytest.mark.parametrize("promise", names(TRAINING))
def test_training(training: Path, promise: str) -> None:
    assert not (output := broken(training, 2, promise)), output
