# SPDX-License-Identifier: Apache-2.0
"""What is checked and made before a run of a function starts; the runs are tests/e2e/test_experiment.py's."""

import functools
import json
import os
import pickle
import platform
import re
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import hopyard
from hopyard import cluster, experiment
from hopyard._code import bundle as _bundle
from hopyard._code import references as _references
from hopyard._run import display as _display
from hopyard._run import program as _program
from hopyard._run import settings as _settings
from hopyard._run import start as _start
from hopyard.experiment import Trial
from results import make_result

LOCK = threading.Lock()


def training(learning_rate, dropout, *, units=10):
    return learning_rate * dropout * units


class Trainer:
    def __init__(self):
        self.lock = threading.Lock()
        self.rate = 2

    def fit(self, x):
        return self.rate * x

    def __call__(self, x):
        return self.rate * x


# ---- hyperparameters ---------------------------------------------------------------


@pytest.mark.parametrize(
    "fn, names, sentence",
    [
        (training, ["lr", "dropout"], "training() has no parameter 'lr' (parameters: learning_rate, dropout, units)"),
        (lambda: 1, ["lr"], "lambda() has no parameter 'lr' (parameters: none)"),
        (training, ["learning_rate"], "training() has the required parameter 'dropout', which is not in the space"),
        (training, [], "training() has the required parameter 'learning_rate', 'dropout', which"),
        (lambda x, /: x, ["x"], "lambda() has the positional-only parameter 'x'"),
        (Trainer().fit, ["y"], "Trainer.fit() has no parameter 'y' (parameters: x)"),
        (Trainer(), [], "Trainer() has the required parameter 'x'"),
        (functools.partial(training, dropout=1), ["lr"], "training() has no parameter 'lr' (parameters: learning_"),
        (7, ["x"], "7 is not a function"),
        ("training", ["x"], "'training' is not a function"),
    ],
)
def test_unknown_and_missing_hyperparameters_are_errors_that_name_them(fn, names, sentence):
    with pytest.raises(hopyard.Error) as caught:
        _bundle.check(fn, names)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "fn, names",
    [
        (training, ["learning_rate", "dropout"]),
        (training, ["units", "dropout", "learning_rate"]),
        (lambda **anything: 1, ["x", "not an identifier"]),
        (functools.partial(training, dropout=1), ["learning_rate"]),
        (functools.partial(training, dropout=1), ["learning_rate", "dropout"]),
        (Trainer().fit, ["x"]),
        (Trainer(), ["x"]),
        (Trainer, []),
        (functools.wraps(training)(lambda *args, **kwargs: 1), ["learning_rate", "dropout"]),
        (max, ["x"]),  # it does not say what it takes
    ],
)
def test_every_callable_that_matches_is_accepted(fn, names):
    _bundle.check(fn, names)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (
            lambda: experiment.grid_search(training, {"learning_rate": [1], "dropout": [1]}, direction="up"),
            "invalid direction 'up'",
        ),
        (
            lambda: experiment.grid_search(training, {"learning_rate": [1], "dropout": [1]}, direction=3),
            "invalid direction 3",
        ),
        (lambda: experiment.launch(training), "training() has the required parameter 'learning_rate', 'dropout'"),
        (lambda: experiment.end(), "call experiment.begin() first"),
        (lambda: experiment.launch(print, spark="yarn"), "spark must be a SparkSession"),
    ],
)
def test_invalid_calls_fail_before_anything_starts(call, sentence, monkeypatch):
    monkeypatch.setenv("HOPYARD_PROGRAM", "/nowhere/hopyard")
    with pytest.raises(hopyard.Error) as caught:
        call()
    assert sentence in str(caught.value)


def options(**given):
    return _settings.options(_settings.for_trials(given))


def test_every_setting_has_a_default_a_type_and_a_description():
    names = list(_settings.DEFAULTS)
    assert names == list(_settings.Settings.__annotations__)
    assert names == re.findall(r"^    (\w+): ", _settings.Settings.__doc__, re.MULTILINE)


def test_settings_may_be_given_by_name_or_position_and_unknown_ones_are_named(monkeypatch):
    monkeypatch.setenv("HOPYARD_PROGRAM", "/nowhere/hopyard")
    with pytest.raises(hopyard.Error, match="invalid direction 'up'"):
        experiment.grid_search(lambda x: x, {"x": [1]}, "up")
    with pytest.raises(TypeError, match=r"grid_search\(\) got an unexpected keyword argument 'colour'"):
        experiment.grid_search(lambda x: x, {"x": [1]}, colour="red")
    with pytest.raises(TypeError, match=r"launch\(\) missing a required argument: 'fn'"):
        experiment.launch()
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'colour'"):
        cluster.run(print, colour="red")


def test_direction_ignores_case():
    assert options(direction="MIN")[0] == ("min", "metric")
    assert options(direction="Max", metric="accuracy")[0] == ("max", "accuracy")


def test_settings_become_options():
    assert dict(options(memory=4e9, timeout=1.5, gpus=0.2, hosts=["a:4", "b"], parallel=2, seed=0)) == {
        "max": "metric",
        "memory": "4000000000",
        "timeout": "1.5s",
        "gpus": "0.2",
        "hosts": "a:4,b",
        "parallel": "2",
        "seed": "0",
        "retries": "0",
    }
    others = dict(options(memory="4G", timeout="15m", hosts="a,b", max_transfer=1e9, oversubscribe=True))
    assert others | {"memory": "4G", "timeout": "15m", "hosts": "a,b", "max-transfer": "1000000000"} == others
    assert others["oversubscribe"] == "", "a flag"


def test_session_sets_the_application_id_and_a_remote_one_the_address():
    class Context:
        master, applicationId = "local[2]", "local-17"

        @staticmethod
        def getConf():
            return {"spark.driver.host": "127.0.0.1", "spark.hopyard.parallel": "3"}

    def fields(**given):
        return _settings.fields(_settings.complete(given))

    assert fields(spark=Context) == {"app_id": "local-17", "address": ""}
    assert fields(spark=Context, app_id="mine")["app_id"] == "mine"
    assert dict(options(spark=Context))["parallel"] == "3", "a remote session sends it with its offer"
    Context.master = "yarn"
    assert "parallel" not in dict(options(spark=Context))
    assert fields(spark=Context) == {"app_id": "local-17", "address": "127.0.0.1"}
    with pytest.raises(hopyard.Error, match="must be a SparkSession"):
        options(spark="yarn")


# ---- pickling ------------------------------------------------------------------------


def locked():
    lock = threading.Lock()

    def training(x):
        with lock:
            return x

    return training


def locked_by_a_global():
    def training(x):
        return [LOCK for _ in range(x)]

    return training


def locked_by_a_helper():
    lock = threading.Lock()

    def helper(x):
        return lock, x

    def training(x):
        return helper(x)

    return training


def locked_in_a_dict():
    settings = {"lock": threading.Lock()}

    def training(x):
        return settings, x

    return training


def locked_by_default():
    def training(x, lock=threading.Lock()):
        return lock, x

    return training


class Stubborn:
    def __reduce__(self):
        raise RuntimeError("not me")


def locked_in_self():
    class Local(Trainer):
        def train(self, x):
            return x

    return Local().train


def stubborn():
    thing = Stubborn()

    def training(x):
        return thing, x

    return training


@pytest.mark.parametrize(
    "fn, sentence",
    [
        (
            locked(),
            "training uses 'lock' (a _thread.lock), which cannot be pickled; create it inside the function",
        ),
        (locked_by_a_global(), "training uses 'LOCK' (a _thread.lock), which cannot be pickled"),
        (
            locked_by_a_helper(),
            "training uses 'lock' (a _thread.lock) through 'helper', which cannot be pickled",
        ),
        (
            locked_in_a_dict(),
            "training uses 'settings' (a dict), which cannot be pickled (cannot pickle '_thread.lock' object)",
        ),
        (locked_by_default(), "training uses 'lock' (a _thread.lock)"),
        (stubborn(), "training uses 'thing' (a test_bundle.Stubborn), which cannot be pickled (not me)"),
        (Trainer().fit, "Trainer.fit uses 'self' (a test_bundle.Trainer), which cannot be pickled"),
        (locked_in_self(), "Local.train uses 'lock' (a _thread.lock), which cannot be pickled"),
        (functools.partial(training, units=LOCK), "training uses 'units' (a _thread.lock)"),
        (
            Stubborn().__reduce__,
            "Stubborn.__reduce__ uses 'self' (a test_bundle.Stubborn), which cannot be pickled (not me)",
        ),
    ],
)
def test_unpicklable_variable_is_named(fn, sentence):
    with pytest.raises(hopyard.Error) as caught:
        _bundle.pickled(fn)
    assert sentence in str(caught.value)


def test_too_large_variable_is_named_without_copying_it():
    small, images = b"x" * 1000, bytearray(49 << 20)

    def training(x):
        return small, images, x

    with pytest.raises(hopyard.Error) as caught:
        _bundle.pickled(training)
    assert str(caught.value) == (
        "training and the variables it uses exceed 48 MB when pickled: 'images' (a bytearray) alone is 49 MB; "
        "load it inside the function"
    )


def test_module_function_is_pickled_by_reference_and_local_one_by_value():
    assert pickle.loads(_bundle.pickled(training)) is training
    assert b"learning_rate" not in _bundle.pickled(training)
    factor = 3
    there = pickle.loads(_bundle.pickled(lambda x: factor * x))
    factor = 4
    assert there(2) == 6


def test_a_bundle_is_a_line_of_json_and_a_pickle(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "lib", "/usr/lib", "/usr/lib"])
    head, _, rest = _bundle.make(training, "accuracy", "max", True).partition(b"\n")
    said = json.loads(head)
    assert said == {
        "name": "training",
        "path": [str(tmp_path), str(tmp_path / "lib"), "/usr/lib"],
        "preload": [],
        "compat": "hopyard.compat" in sys.modules,
        "metric": "accuracy",
        "direction": "max",
        "optional": True,
        "ranks": False,
        "stated": True,
        "launch": False,
        "python": platform.python_version(),
        "sources": {},
    }
    assert pickle.loads(rest) is training


# ---- what is imported before the fork ---------------------------------------------------------


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Installed modules and the user's own, none of which may be imported."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))

    for name in ("tensorflow", "keras", "scikit", "scikit/datasets", "scikit/deep/er", "plain"):
        write(f"site-packages/{name}/__init__.py", "raise AssertionError('this was imported')")
    write("site-packages/scikit/deep/__init__.py", "")
    write(
        "own.py",
        """
        import os, plain
        from package import part
        raise AssertionError('this was imported')
    """,
    )
    write("package/__init__.py", "")
    write(
        "package/part.py",
        """
        from . import sibling
        from .sibling import something
        def later():
            import tensorflow as tf
            return tf.keras
    """,
    )
    write("package/sibling.py", "from scikit import datasets, nothing_such")
    write("broken.py", "def (")
    for name in ("tensorflow", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "site-packages")])
    yield
    assert not {"tensorflow", "keras", "scikit", "plain", "own", "package"} & set(sys.modules), (
        "something was imported"
    )


def test_import_statements_within_the_function_are_found(modules):
    def training(x):
        import json

        import scikit.deep.er
        from scikit import datasets, unknown

        def inner():
            import plain  # noqa: F401

        return [datasets, scikit, unknown, json, inner]

    assert _references.preload(training) == ["scikit.deep.er", "scikit", "scikit.datasets", "plain"]


def test_tf_keras_attribute_adds_keras_to_preload(modules):
    def with_keras(x):
        import tensorflow as tf

        return tf.keras.Sequential([])

    def without(x):
        import tensorflow as tf

        return tf.add(x, 1)

    assert _references.preload(with_keras) == ["tensorflow", "keras"]
    assert _references.preload(without) == ["tensorflow"]


def test_user_modules_are_read_but_not_imported(modules):
    def training(x):
        import broken
        import missing
        import own

        return own, missing, broken

    assert _references.preload(training) == ["plain", "scikit", "scikit.datasets", "tensorflow", "keras"]


def test_used_functions_classes_and_objects_are_followed(modules):
    class Model:
        def fit(self):
            import plain  # noqa: F401

            return plain

        @property
        def data(self):
            from scikit import datasets

            return datasets

    def helper(x):
        return Model()

    model = Model()
    assert _references.preload(lambda x: helper(x)) == ["plain", "scikit", "scikit.datasets"]
    assert _references.preload(model.fit) == ["plain", "scikit", "scikit.datasets"]
    assert _references.preload(functools.partial(lambda m, x: m, model)) == ["plain", "scikit", "scikit.datasets"]


def test_modules_in_variables_are_found():
    import numpy
    from numpy.linalg import norm

    assert _references.preload(lambda x: numpy.zeros(x)) == ["numpy"]
    assert [name.partition(".")[0] for name in _references.preload(lambda x: norm(x))] == ["numpy"]
    array = numpy.zeros(3)
    assert _references.preload(lambda x: array + x) == ["numpy"]
    assert _references.preload(lambda x: (os, json, LOCK, x)) == []


def test_import_with_extended_arguments_is_found(modules):
    names = "".join(f"    name{i}\n" for i in range(300))
    namespace = {}
    exec(f"def training(x):\n{names}    import plain\n", namespace)
    assert _references.preload(namespace["training"]) == ["plain"]


def test_recursive_functions_and_cyclic_objects_terminate():
    class Node:
        pass

    first = last = Node()
    for _ in range(5000):
        last.next = Node()
        last = last.next
    last.next = first

    def even(x):
        return first if x == 0 else odd(x - 1)

    def odd(x):
        return even(x - 1)

    assert _references.preload(even) == []


# ---- results and errors ------------------------------------------------------------------------


def made_up(**changes):
    metrics = {"metric": 0.5, "loss": 1.0}
    trials = [
        Trial(1, {"x": "<b>", "state": 7}, 0.5, metrics, "done", None, None, "/logs/1", 2.0, 1),
        Trial(2, {"x": 2, "state": 8}, None, {}, "failed", "Traceback …", "ValueError: no", "/logs/2", 0.1, 2),
    ]
    facts = {"run": 3, "name": "digits", "state": "done", "message": None, "logdir": "/logs", "metric": "metric",
             "direction": "max", "best": 1, "trials": trials, "notes": []}  # fmt: skip
    return make_result(**{**facts, **changes})


def test_result_has_a_short_repr():
    assert (
        repr(made_up())
        == "<run 3 digits done: 1 done, 1 failed; best metric=0.5 in trial 1 (x=<b>, state=7)>"
    )
    assert repr(made_up(name=None, best=None, trials=[], state="running")) == "<run 3 running: no trials>"


def test_a_results_html_is_escaped_and_long_ones_are_cut():
    html = made_up()._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html and html.count("<tr") == 3
    many = made_up(trials=made_up().trials * 100)._repr_html_()
    assert many.count("<tr") == 101 and "and 100 more" in many


def test_a_dataframe_has_a_row_for_each_trial():
    frame = made_up().to_dataframe()
    assert list(frame.columns) == [
        "number",
        "x",
        "state",
        "metric",
        "loss",
        "seconds",
        "attempts",
        "message",
        "logdir",
    ]
    assert list(frame["state"]) == [7, 8], "a hyperparameter of that name is the user's"
    assert frame["metric"].isna().tolist() == [False, True]


def test_dataframe_without_pandas_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(hopyard.Error, match="needs pandas, which is not installed"):
        made_up().to_dataframe()


@pytest.mark.parametrize(
    "changes, status, error, sentence",
    [
        ({"state": "running"}, 0, KeyboardInterrupt, "run 3 continues; watch it with experiment.attach(3)"),
        ({"state": "running"}, 1, hopyard.RunError, "hopyard attach ended with status 1; run 3 continues"),
        (
            {"state": "stopped"},
            130,
            hopyard.Stopped,
            "run 3 was stopped when 1 trials were done; continue it with experiment.resume(3)",
        ),
        ({"state": "interrupted"}, 1, hopyard.RunError, "the driver of run 3 has died; finished trials are stored"),
        (
            {"state": "failed", "message": "no agent is left"},
            1,
            hopyard.RunError,
            "run 3 failed: no agent is left",
        ),
        (
            {"trials": made_up().trials[1:], "best": None},
            1,
            hopyard.TrialsFailed,
            "the trial of run 3 failed: Traceback …",
        ),
    ],
)
def test_unfinished_runs_raise(changes, status, error, sentence):
    with pytest.raises(error) as caught:
        _start.conclude(made_up(**changes), status)
    assert sentence in str(caught.value)
    if error is not KeyboardInterrupt:
        assert isinstance(caught.value, hopyard.Error)
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value) and again.result == caught.value.result


# ---- the program and its surroundings ------------------------------------------------------------


def test_experiment_imports_nothing_heavy():
    code = "import sys, hopyard; from hopyard import experiment; hopyard.experiment; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"cloudpickle", "pandas", "numpy", "IPython", "tensorflow", "tensorboard"} & set(loaded)


def test_missing_program_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("HOPYARD_PROGRAM", str(tmp_path / "hopyard"))
    with pytest.raises(hopyard.Error, match="cannot start .*/hopyard: No such file"):
        experiment.result(1)


def test_program_is_found_by_variable_or_environment(monkeypatch):
    monkeypatch.setenv("HOPYARD_PROGRAM", "/some/hopyard")
    assert _program.find() == "/some/hopyard"
    assert _program.command("run", "--grid", "x=1", project="/p") == [
        "/some/hopyard",
        "run",
        "--project",
        "/p",
        "--grid",
        "x=1",
    ]
    monkeypatch.delenv("HOPYARD_PROGRAM")
    assert os.access(_program.find(), os.X_OK)


def test_error_message_drops_prefix_and_notes():
    assert (
        _program.error_message("stop", b"note: x\nhopyard stop: no run 3\n") == "no run 3"
    )
    assert _program.error_message("run", b"Killed\n") == "Killed"


def test_ctrl_c_is_recorded_while_a_child_handles_it():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *args: heard.append(1))
    try:
        with _display.interrupts() as noted:
            os.kill(os.getpid(), signal.SIGINT)
        assert noted == [signal.SIGINT] and heard == []
        os.kill(os.getpid(), signal.SIGINT)
        assert heard == [1], "and afterwards it is as it was"
    finally:
        signal.signal(signal.SIGINT, before)


def test_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _display.interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_do_not_change_ctrl_c():
    seen = []

    def look():
        with _display.interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
