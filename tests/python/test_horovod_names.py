# SPDX-License-Identifier: Apache-2.0
"""Every public name of Horovod 0.28.1 (horovod_names.json, from its source) exists and is listed in docs/horovod.md."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hopyard.compat  # noqa: F401

DOCS = Path(__file__).parents[2] / "docs" / "horovod.md"
NAMES = json.loads(Path(__file__).with_name("horovod_names.json").read_text())


def sections():
    """For each table of names: its modules, and the state of each name."""
    text = DOCS.read_text().partition("## Names")[2].partition("### The rest")[0]
    for section in text.split("\n### ")[1:]:
        heading, _, body = section.partition("\n")
        rows = [line.split("|")[1:-1] for line in body.splitlines() if line.startswith("| `")]
        states = {name: state.strip() for names, state, _ in rows for name in re.findall(r"`(\w+)`", names)}
        yield re.findall(r"`([\w.]+)`", heading), states


STATES = {module: states for modules, states in sections() for module in modules}


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_listed(module):
    assert not sorted(set(NAMES[module]) - set(STATES[module]))


@pytest.mark.parametrize("module", NAMES)
def test_every_name_exists_unless_listed_as_missing(module):
    there = importlib.import_module(module)
    absent = [name for name in NAMES[module] if not hasattr(there, name)]
    assert absent == [name for name in NAMES[module] if STATES[module][name] == "not there"]


def test_nothing_is_listed_that_is_in_no_module():
    for modules, states in sections():
        known = {name for module in modules for name in NAMES[module]}
        assert not set(states) - known, modules


def test_states_are_those_that_are_explained():
    states = {state for each in STATES.values() for state in each.values()}
    assert states <= {"works", "works in graphs of TensorFlow 1", "says so", "not there"}


@pytest.mark.parametrize(
    "module",
    ["horovod.torch", "horovod.mxnet", "horovod.ray", "horovod.spark.lightning", "horovod.spark.tensorflow",
     "horovod.spark.torch"],
)
def test_unsupported_modules_raise_import_errors(module):
    with pytest.raises(ImportError, match="is not served.*docs/horovod.md"):
        importlib.import_module(module)


def test_probing_for_another_framework_does_not_fail():
    code = "import hopyard.compat\ntry:\n    import horovod.torch\nexcept ImportError:\n    print('without')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "without\n"


def test_importing_horovod_does_not_import_tensorflow():
    code = "import hopyard.compat, sys, horovod\nprint(horovod.__version__, 'tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "0.28.1 False\n"


def test_submodules_of_horovod_tensorflow_need_no_import():
    import horovod.tensorflow as hvd

    for name in ("compression", "elastic", "functions", "gradient_aggregation", "gradient_aggregation_eager", "mpi_ops",
                 "sync_batch_norm", "util"):
        assert getattr(hvd, name).__name__ == f"horovod.tensorflow.{name}"
    assert hvd.mpi_ops.allgather is hvd.allgather and hvd.mpi_ops.rank is hvd.rank


def test_the_modules_share_one_set_of_classes():
    import hopyard.hvd

    import horovod.keras
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras
    from horovod.common.process_sets import ProcessSet

    assert hvd.ProcessSet is ProcessSet is hopyard.hvd.ProcessSet
    assert horovod.keras.callbacks.MetricAverageCallback is horovod.tensorflow.keras.callbacks.MetricAverageCallback
    assert hvd.elastic.TensorFlowKerasState is hopyard.hvd.elastic.TensorFlowKerasState
