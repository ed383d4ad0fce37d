# SPDX-License-Identifier: Apache-2.0
"""A trial of a Python function in a fresh interpreter. What a forked one does differently is test_fork_server.py's."""

import math
import os
import re
import signal
import sys

import pytest

import hopyard
from hopyard._trial import runner as _runner
from trials import Listener, bundle, cold


def run(tmp_path, fn, params=None, seed=1, env=None, **settings):
    return cold(tmp_path, bundle(fn, tmp_path, **settings), params, seed, **(env or {}))


def idle():
    pass


def returning(value):
    def training():
        return value

    return training


@pytest.fixture
def listener(tmp_path):
    with Listener(tmp_path / "socket") as listening:
        yield listening


# ---- what it returns --------------------------------------------------------------------


def test_hyperparameters_arrive_as_json_values(tmp_path):
    def training(rate, layers, name, flag):
        return {"same": (rate, layers, name, flag) == (0.001, [64, {"a": None}], "Grüße", True), "metric": 1}

    done = run(tmp_path, training, {"rate": 0.001, "layers": [64, {"a": None}], "name": "Grüße", "flag": True})
    assert (done.status, done.result, done.stderr) == (0, {"same": True, "metric": 1.0}, "")


def numpy_number():
    import numpy

    return numpy.float32(0.5)


def numpy_int():
    import numpy

    return numpy.int64(3)


@pytest.mark.parametrize(
    ("fn", "value"), [(returning(0.91), 0.91), (returning(3), 3.0), (numpy_number, 0.5), (numpy_int, 3.0)]
)
def test_a_number_of_any_kind_is_the_metric(tmp_path, fn, value):
    assert run(tmp_path, fn).result == {"metric": value}
    assert run(tmp_path, fn, metric="accuracy").result == {"accuracy": value}


def test_nan_and_infinity_are_numbers(tmp_path):
    assert math.isnan(run(tmp_path, returning(math.nan)).result["metric"])
    assert run(tmp_path, returning(-math.inf)).result == {"metric": -math.inf}


def test_dict_is_stored_with_non_json_values_as_strings(tmp_path):
    def training():
        import numpy

        rows = [numpy.int8(1), 2]
        return {"accuracy": numpy.float64(0.75), "rows": rows, 7: "seven", "thing": object(), "none": None}

    done = run(tmp_path, training, metric="accuracy")
    assert done.result.pop("thing").startswith("<object object at")
    assert done.result == {"accuracy": 0.75, "rows": [1, 2], "7": "seven", "none": None}


NONE = "so the trial has no metric"
NEEDS = "and this search needs a number from every trial"
DICTS = "return one number, or a dict of numbers (model.evaluate(..., return_dict=True) returns one)"


@pytest.mark.parametrize(
    ("value", "settings", "sentence"),
    [
        (None, {}, f"training returned nothing, {NONE}; return a number"),
        (None, {"optional": False}, f"training returned nothing, {NEEDS}; return a number"),
        ([0.3, 0.91], {}, f"training returned [0.3, 0.91] (list), which is not a number, {NONE}; {DICTS}"),
        ([1.0], {"optional": False}, f"training returned [1.0] (list), which is not a number, {NEEDS}; {DICTS}"),
        ("0.9", {}, f"training returned '0.9' (str), which is not a number, {NONE}; return one number"),
        (
            True,
            {"optional": False},
            f"training returned True (bool), which is not a number, {NEEDS}; return one number",
        ),
        ({"plot": "a.png"}, {}, f"training returned a dict without numbers (plot), {NONE}; return a number"),
        (
            {"loss": 0.3, "accuracy": 0.9},
            {},
            f"training returned loss, accuracy, {NONE}; name the metric, as in metric='accuracy'",
        ),
        (
            {"loss": [0.3, 0.2], "val_loss": [0.4, 0.3]},
            {},
            f"training returned loss, val_loss, {NONE}; "
            "name the metric, as in metric='val_loss', direction='min'",
        ),
        (
            {"loss": 0.3},
            {"optional": False},
            "training returned loss without a direction, and lower may be better, "
            f"{NEEDS}; add direction='min' (or 'max')",
        ),
    ],
)
def test_missing_metric_is_a_remark_with_advice(tmp_path, listener, value, settings, sentence):
    """Whether the trial fails is the driver's decision: the metric may have been printed or reported."""
    done = run(tmp_path, returning(value), env=listener.env(), **settings)
    assert (done.status, done.stderr) == (0, "" if value is None else f"hopyard: {sentence}\n")
    assert [(r.error, r.remark) for r in listener.reports] == [("", sentence)]
    assert done.result == (
        None if not isinstance(value, dict) else {k: v[-1] if isinstance(v, list) else v for k, v in value.items()}
    )


class History:
    """What Keras' fit returns, of all Kerases."""

    def __init__(self, **epochs):
        self.history = epochs


EPOCHS = {"loss": [0.9, 0.5], "accuracy": [0.5, 0.9], "val_loss": [1.0, 0.7], "val_accuracy": [0.4, 0.8]}
LAST = {name: values[-1] for name, values in EPOCHS.items()}


@pytest.mark.parametrize(
    ("value", "settings", "counts"),
    [
        ({"accuracy": 0.75}, {}, 0.75),
        ({"metric": 0.5, "accuracy": 0.75}, {}, 0.5),
        ({"accuracy": [0.5, 0.75]}, {}, 0.75),
        ({"accuracy": 0.75, "rows": [1, 2], "name": "a"}, {}, 0.75),
        ({"loss": 0.25}, {"stated": True}, 0.25),
        (EPOCHS, {}, 0.8),
        (History(**EPOCHS), {}, 0.8),
        (History(**EPOCHS), {"optional": False}, 0.8),
        (History(loss=[0.5, 0.25]), {"stated": True}, 0.25),
    ],
)
def test_metric_of_a_dict_is_its_only_or_validation_value(tmp_path, listener, value, settings, counts):
    done = run(tmp_path, returning(value), env=listener.env(), **settings)
    assert (done.status, done.stderr, done.result["metric"]) == (0, "", counts)
    several = {"loss", "val_accuracy"} < set(done.result)
    assert [r.remark for r in listener.reports] == [
        "val_accuracy is used as the metric; name another value with metric="
    ] * several
    assert LAST.items() <= done.result.items() or not several


@pytest.mark.parametrize("value", [EPOCHS, History(**EPOCHS)])
def test_metric_of_a_history_is_the_last_epoch(tmp_path, value):
    done = run(tmp_path, returning(value), metric="val_loss", stated=True)
    assert (done.status, done.stderr, done.result) == (0, "", LAST)


def test_a_function_that_is_launched_need_not_return_anything(tmp_path, listener):
    done = run(tmp_path, returning(None), env=listener.env(), launch=True)
    assert (done.status, done.result, done.stderr, listener.reports) == (0, None, "", [])


@pytest.mark.parametrize(
    ("returned", "optional"), [(None, True), (None, False), ({"loss": 1.0}, True), ([1, 2], False)]
)
def test_reported_value_with_the_metrics_name_is_the_metric(tmp_path, listener, returned, optional):
    def training():
        import hopyard

        hopyard.report(step=0, accuracy=0.5)
        hopyard.report(step=1, accuracy=0.75)
        return returned

    done = run(tmp_path, training, env=listener.env(), metric="accuracy", optional=optional)
    assert (done.status, done.stderr, done.result) == (0, "", returned if isinstance(returned, dict) else None)
    assert [(r.metrics, r.remark) for r in listener.reports] == [({"accuracy": 0.5}, ""), ({"accuracy": 0.75}, "")]


def test_reported_values_need_a_metric_name(tmp_path, listener):
    def training():
        import hopyard

        hopyard.report(step=1, loss=0.5, val_loss=0.75)

    run(tmp_path, training, env=listener.env())
    assert listener.reports[-1].remark == (
        "training returned nothing and reported loss, val_loss, so the trial has no metric; "
        "name the metric, as in metric='val_loss', direction='min'"
    )


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"loss": 1, "acc": 2}, "training returned no 'accuracy'; it returned loss, acc"),
        ({}, "training returned no 'accuracy'; it returned an empty dict"),
        ({"accuracy": "0.9"}, "training returned '0.9' (str) for 'accuracy', which is not a number"),
    ],
)
def test_a_named_value_that_is_missing_is_a_failure(tmp_path, listener, value, sentence):
    done = run(tmp_path, returning(value), env=listener.env(), metric="accuracy")
    assert (done.status, done.result) == (1, None)
    assert done.stderr == f"hopyard: {sentence}\n"
    assert [(r.error, r.detail) for r in listener.reports] == [(sentence, "")]


# ---- what it raises ---------------------------------------------------------------------


def test_exception_has_its_traceback_without_hopyards_frames(tmp_path, listener):
    def training(depth):
        if depth:
            training(depth - 1)
        raise ValueError("bad\n  value")

    done = run(tmp_path, training, {"depth": 1}, env=listener.env())
    (report,) = listener.reports
    assert (done.status, done.result) == (1, None)
    assert (report.token, report.error) == ("1.1.1", "ValueError: bad value")
    assert done.stderr.strip() == report.detail.strip()
    assert report.detail.startswith("Traceback (most recent call last):\n") and report.detail.count("  File ") == 2
    assert not re.search(r"hopyard/_\w+\.py", report.detail) and report.detail.endswith("ValueError: bad\n  value\n")


def test_causes_are_in_the_traceback(tmp_path, listener):
    def training():
        try:
            {}["x"]
        except KeyError as error:
            raise RuntimeError("no x") from error

    run(tmp_path, training, env=listener.env())
    assert "KeyError: 'x'" in listener.reports[0].detail and "direct cause" in listener.reports[0].detail
    assert listener.reports[0].error == "RuntimeError: no x"


def test_long_errors_are_cut_and_keep_the_end_of_their_traceback(tmp_path, listener):
    def training():
        raise ValueError("ü" * 200_000 + "\0\udc80 end")

    assert run(tmp_path, training, env=listener.env()).status == 1
    (report,) = listener.reports
    assert len(report.error.encode()) <= 300 and report.error.startswith("ValueError: üüü")
    assert len(report.detail.encode()) <= 65536 and report.detail.endswith("ü\\0\\udc80 end\n")


def test_an_exception_that_cannot_be_printed_is_still_an_error(tmp_path, listener):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    def training():
        raise Odd

    assert run(tmp_path, training, env=listener.env()).status == 1
    assert listener.reports[0].error == "Odd: (its __str__ failed)"


@pytest.mark.parametrize("spoil", ["sys.stderr.close()", "os.close(2)", "sys.stderr = None"])
def test_exception_is_reported_even_if_stderr_is_closed(tmp_path, listener, spoil):
    def training():
        import os  # noqa: F401
        import sys  # noqa: F401

        exec(spoil)
        raise ValueError("too high")

    done = cold(tmp_path, bundle(training, tmp_path), **listener.env())
    assert done.status != 0
    assert [report.error for report in listener.reports] == ["ValueError: too high"]


def test_missing_bundle_is_an_error(tmp_path):
    def training():
        pass

    function = bundle(training, tmp_path)
    function.rename(tmp_path / "elsewhere")
    done = cold(tmp_path, function)
    assert done.status == 1 and "Traceback" not in done.stderr
    assert "hopyard: cannot read the run's function from" in done.stderr and "No such file" in done.stderr


def test_lost_agent_is_mentioned(tmp_path):
    def training():
        raise ValueError("bad")

    done = run(tmp_path, training, env={"HOPYARD_SOCKET": str(tmp_path / "none"), "HOPYARD_TAG": "1.1.1"})
    assert done.status == 1 and "ValueError: bad\nhopyard: cannot connect to" in done.stderr


def test_missing_module_is_an_error(tmp_path, listener):
    (tmp_path / "mymodel.py").write_text("def training():\n    return 1\n")
    path = bundle(idle, tmp_path)
    head, _, _ = path.read_bytes().partition(b"\n")
    path.write_bytes(head + b"\ncmymodel\ntraining\n.")  # a pickle of a reference
    assert cold(tmp_path, path).result == {"metric": 1.0}
    (tmp_path / "mymodel.py").unlink()
    done = cold(tmp_path, path, **listener.env())
    sentence = (
        "the trial cannot import 'mymodel', which was importable where the run was started; "
        f"is it installed for {sys.executable} on {os.uname().nodename}?"
    )
    assert (done.status, listener.reports[0].error) == (1, sentence)
    assert done.stderr == f"{listener.reports[0].detail}\n"
    assert listener.reports[0].detail.endswith(f"ModuleNotFoundError: No module named 'mymodel'\nhopyard: {sentence}")
    (tmp_path / "mymodel.py").write_text("")
    assert cold(tmp_path, path, **listener.env()).status == 1
    assert listener.reports[1].error.startswith("idle cannot be unpickled: AttributeError: Can't get attribute")


# ---- how it ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("pickled", [b"chopyard._node\nCall\n.", b"chopyard._notebook\nexecute\n."])
def test_bundles_of_earlier_versions_are_read(pickled):
    assert callable(_runner._unpickle(memoryview(pickled)))


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), (-1, 255), (True, 1)])
def test_sys_exit_gives_its_status(tmp_path, listener, code, status):
    def training():
        sys.exit(code)

    done = run(tmp_path, training, env=listener.env())
    assert (done.status, done.result, done.stderr, listener.reports) == (status, None, "", [])


def test_sys_exit_with_a_text_fails_with_it(tmp_path, listener):
    def training():
        sys.exit("the data is not there")

    done = run(tmp_path, training, env=listener.env())
    assert (done.status, done.stderr) == (1, "the data is not there\n")
    assert listener.reports[0].error == "the data is not there"


def test_interrupt_ends_it_like_python(tmp_path):
    def training():
        os.kill(os.getpid(), signal.SIGINT)

    done = run(tmp_path, training)
    assert done.status == -signal.SIGINT and done.stderr.endswith("KeyboardInterrupt\n")


def test_exit_waits_for_threads_exit_handlers_and_c_output(tmp_path):
    def training():
        import atexit
        import ctypes
        import threading
        import time

        atexit.register(print, "exit function")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        ctypes.CDLL(None).puts(b"C")
        return 1

    done = run(tmp_path, training, env={"PYTHONUNBUFFERED": ""})
    assert (done.status, done.stdout) == (0, "thread\nexit function\nC\n")


def test_output_is_line_buffered(tmp_path):
    def training():
        print("a line")
        os._exit(0)

    done = run(tmp_path, training, env={"PYTHONUNBUFFERED": ""})
    assert (done.status, done.stdout) == (0, "a line\n")


# ---- chance ---------------------------------------------------------------------------------


def drawing():
    import random

    import numpy

    return {"python": random.random(), "numpy": numpy.random.random()}


def test_random_numbers_follow_the_seed_wherever_numpy_is_imported(tmp_path):
    def drawing_early():
        import random

        return {"python": random.random(), "numpy": numpy.random.random()}  # noqa: F821

    import numpy

    drawing_early.__globals__["numpy"] = numpy  # travels as a reference: unpickling imports it
    first = run(tmp_path, drawing, seed=2**64 + 7).result
    assert first == run(tmp_path, drawing, seed=2**64 + 7).result
    assert first == run(tmp_path, drawing_early, seed=2**64 + 7).result
    other = run(tmp_path, drawing, seed=8).result
    assert first["python"] != other["python"] and first["numpy"] != other["numpy"]


def test_random_numbers_drawn_during_import_follow_the_seed(tmp_path):
    (tmp_path / "drawer.py").write_text(
        "import random, numpy.random\nDRAWN = random.random() + numpy.random.random()\n"
    )

    def training():
        import random

        before = random.random()
        import drawer

        return {"before": before, "drawn": drawer.DRAWN}

    first = run(tmp_path, training, seed=5).result
    assert first == run(tmp_path, training, seed=5).result
    assert first["drawn"] != run(tmp_path, training, seed=6).result["drawn"]


def test_import_hooks_do_not_change_modules(tmp_path):
    def training():
        import inspect

        import numpy.random

        loader = numpy.random.__loader__
        return {
            "plain": type(loader).__name__ == "SourceFileLoader" and "exec_module" not in vars(loader),
            "same": numpy.random.__spec__.loader is loader,
            "source": "mtrand" in inspect.getsource(numpy.random),
        }

    assert run(tmp_path, training).result == {"plain": True, "same": True, "source": True}


def test_tensorflow_follows_the_seed_and_keeps_to_its_share_of_a_gpu(tmp_path):
    """There may be no GPU here: what TensorFlow is told of one that it sees is what counts."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(
        "from types import SimpleNamespace as Of\n"
        "said = []\n"
        "random = Of(set_seed=lambda seed: said.append(['seed', seed]))\n"
        "config = Of(list_physical_devices=lambda kind: [kind + ':0'],\n"
        "            LogicalDeviceConfiguration=lambda memory_limit: memory_limit,\n"
        "            set_logical_device_configuration=lambda gpu, limits: said.append([gpu, limits]))\n"
    )

    def training():
        import tensorflow

        return {"said": tensorflow.said}

    limited = run(tmp_path, training, seed=2**32 + 9, env={"HOPYARD_GPU_MEMORY": str(3 << 30)})
    assert limited.result == {"said": [["GPU:0", [3072]], ["seed", 9]]}
    assert run(tmp_path, training, seed=9).result == {"said": [["seed", 9]]}


# ---- where it finds things --------------------------------------------------------------------


def test_compat_is_imported_before_the_function(tmp_path):
    def training():
        import hops

        return {"ours": "hopyard" in hops.__file__}

    assert run(tmp_path, training, compat=True).result == {"ours": True}
    assert "ModuleNotFoundError: No module named 'hops'" in run(tmp_path, training).stderr


# ---- hopyard.report ---------------------------------------------------------------------------


def test_report_reaches_the_agent(tmp_path, listener):
    def training():
        import numpy

        import hopyard

        hopyard.report(step=numpy.int64(3), accuracy=numpy.float32(0.5), loss=2)
        hopyard.report(accuracy=0.75)

    assert run(tmp_path, training, env=listener.env(), metric="accuracy").status == 0
    assert [(r.token, r.step, r.metrics, r.error) for r in listener.reports] == [
        ("1.1.1", 3, {"accuracy": 0.5, "loss": 2.0}, ""),
        ("1.1.1", -1, {"accuracy": 0.75}, ""),
    ]


def test_report_raises_the_agents_errors(monkeypatch, listener):
    listener.answer = "trial 1 is over"
    for name, value in listener.env().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(hopyard.Error, match="^trial 1 is over$"):
        hopyard.report(accuracy=1)


def test_report_does_not_block_other_threads(monkeypatch, tmp_path):
    """The agent here answers only when another thread of the same interpreter does."""
    with Listener(tmp_path / "socket") as listening:
        for name, value in listening.env().items():
            monkeypatch.setenv(name, value)
        hopyard.report(accuracy=1)
    assert listening.reports[0].metrics == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "nothing to report; try hopyard.report"),
        ({"accuracy": "0.9"}, r"'accuracy' is '0.9' \(str\), which is not a number"),
        ({"accuracy": 1, "step": -1}, "step must be an integer of 0 or more, not -1"),
        ({"accuracy": 1, "step": 0.5}, "step must be an integer of 0 or more, not 0.5"),
        ({f"m{i}": i for i in range(65)}, "at most 64 values can be reported at once"),
        ({"a\0b": 1}, r"'a\\x00b' is not a valid name for a value"),
    ],
)
def test_invalid_reports_are_errors(monkeypatch, arguments, sentence):
    monkeypatch.delenv("HOPYARD_SOCKET", raising=False)
    with pytest.raises(hopyard.Error, match=sentence):
        hopyard.report(**arguments)


def test_report_does_nothing_outside_of_a_trial(monkeypatch, capsys):
    """Outside of a trial reports go nowhere, the log is printed, and there is a folder to write to."""
    import importlib

    from hopyard import hdfs, tensorboard

    for name in ("HOPYARD_SOCKET", "HOPYARD_TAG", "HOPYARD_TRIAL_DIR"):
        monkeypatch.delenv(name, raising=False)
    importlib.reload(tensorboard)

    def training(rate):
        hopyard.report(step=0, accuracy=rate)
        with open(os.path.join(tensorboard.logdir(), "model"), "w") as file:
            file.write("weights")
        hdfs.log(f"trained with {rate}")
        return rate

    assert training(0.5) == 0.5
    folder = tensorboard.logdir()
    assert folder == tensorboard.logdir() and os.listdir(folder) == ["model"]
    said = capsys.readouterr()
    assert said.out == "trained with 0.5\n"
    assert said.err == f"hopyard: this is not a trial, so tensorboard.logdir() is {folder}\n"
