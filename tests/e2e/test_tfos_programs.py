# SPDX-License-Identifier: Apache-2.0
"""Programs of TensorFlowOnSpark (tests/e2e/tfos), started with spark-submit as by their users."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Yard, wait_for, yard_in
from test_experiment import Lab

PROGRAMS = Path(__file__).absolute().parent / "tfos"


def without_spark_lines(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if " INFO " not in line)


class Submit:
    """spark-submit on this machine, in a yard."""

    def __init__(self, yard: Yard, digits: Path) -> None:
        import pyspark

        self.yard, self.digits = yard, digits
        self.program = os.path.join(os.path.dirname(pyspark.__file__), "bin/spark-submit")
        settings = {"PYSPARK_PYTHON": sys.executable, "HOPYARD_COMPAT": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
        self.env = {**Lab(yard).env, **settings}

    def start(self, program: str, *args: str, **env: str) -> subprocess.Popen[str]:
        command = [self.program, "--master", "local[2]", "--conf", "spark.ui.enabled=false", PROGRAMS / program,
                   "--images_labels", str(self.digits), *args]
        return subprocess.Popen(command, env={**self.env, **env}, cwd=self.yard.project, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, program: str, *args: str, rc: int = 0, **env: str) -> str:
        process = self.start(program, *args, **env)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == rc, f"{output[-4000:]}\n{self.yard.driver_log()}"
        return without_spark_lines(output)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of a label and 64 pixels."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    features, labels = load_digits(return_X_y=True)
    lines = [",".join(str(int(x)) for x in (label, *row)) for row, label in zip(features, labels)]
    (folder / "part-0").write_text("\n".join(lines) + "\n")
    return folder


def lines(folder: Path) -> list[str]:
    """In the order of Spark's partitions."""
    return [line for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


@pytest.fixture
def submit(yard: Yard, digits: Path) -> Submit:
    return Submit(yard, digits)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Iterator[Submit]:
    """The directory in which two nodes have trained the pipeline, and its model has predicted."""
    with yard_in(tmp_path_factory.mktemp("trained")) as yard:
        submit = Submit(yard, digits)
        submit.run("digits_pipeline.py", "--cluster_size", "2", "--batch_size", "32", TF_USE_LEGACY_KERAS="1")
        submit.run("digits_pipeline.py", "--mode", "inference", TF_USE_LEGACY_KERAS="1")
        yield submit


def test_pipeline_exports_a_model_that_predicts(trained: Submit) -> None:
    """By default TFEstimator's nodes are a chief and workers, and the chief exports; rows are Rows."""
    project = trained.yard.project
    assert (project / "digits_export/saved_model.pb").exists()
    found = [json.loads(line)["argmax"] for line in lines(project / "predictions")]
    labels = [int(line.partition(",")[0]) for line in lines(trained.digits)]
    assert len(found) == 1797 and sum(map(int.__eq__, found, labels)) > 0.7 * 1797
    assert sorted(t["params"]["node"] for t in trained.yard.trials(1)) == ["chief-0", "worker-0"]


def test_fed_nodes_train_a_model(submit: Submit) -> None:
    submit.run("digits_spark.py", "--cluster_size", "2", TF_USE_LEGACY_KERAS="1")
    assert (submit.yard.project / "digits_export/saved_model.pb").exists()


def test_keras_3_with_several_workers_is_refused_with_one_message(submit: Submit) -> None:
    """And not with a page of PerReplica values."""
    output = submit.run("digits_spark.py", "--cluster_size", "2", rc=1)
    message = "Keras 3 cannot fit() under MultiWorkerMirroredStrategy on several workers: set TF_USE_LEGACY_KERAS=1"
    assert output.count(message) == 2, f"in the message, and in its traceback: {output}"
    assert "docs/tensorflowonspark.md" in output and "PerReplica" not in output and " ERROR " not in output, output
    assert "resume" not in output, "rows were fed: it cannot be resumed"


# ---- a stream --------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(submit: Submit, tmp_path: Path) -> Submit:
    submit.digits = tmp_path / "arriving"
    submit.digits.mkdir()
    (submit.yard.project / "digits_model").mkdir()
    return submit


def add_file(folder: Path, name: str, text: str) -> None:
    """A file that Spark sees only when it is complete."""
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


def test_new_files_in_a_directory_are_fed(stream: Submit, digits: Path) -> None:
    """Until the end is requested."""
    program = stream.start("digits_streaming.py", "--cluster_size", "2", "--interval", "1", "--batch_size", "10")
    model = stream.yard.project / "digits_model"
    text = "".join((digits / "part-0").read_text().splitlines(keepends=True)[:400])
    labels = sorted(int(line.partition(",")[0]) for line in text.splitlines())

    def found() -> list[int]:
        return sorted(label for file in model.glob("labels-*") for label in json.loads(file.read_text()))

    try:
        wait_for((model / "streams").exists, "the stream runs")
        add_file(stream.digits, "first", text)
        wait_for(lambda: len(found()) > len(labels) - 2 * 10, "all rows are fed, except those of an incomplete batch")
        stream.yard.run("stop", "--feed", "1")
        output, _ = program.communicate(timeout=120)
    finally:
        program.kill()
    assert program.returncode == 0 and found() == labels, output[-4000:]


def test_failed_node_of_a_stream_is_reported_at_once(stream: Submit) -> None:
    """Although the next batch comes in an hour."""
    program = stream.start("digits_streaming.py", "--cluster_size", "2", "--interval", "3600", "--fail")
    try:
        output, _ = program.communicate(timeout=120)
    finally:
        program.kill()
    assert program.returncode == 1, output[-4000:]
    assert output.count("ValueError: the model does not converge") == 2, "in the message, and in its traceback"
    assert "resume" not in output and output.count("Traceback") == 2, output[-4000:]
