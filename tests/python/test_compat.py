# SPDX-License-Identifier: Apache-2.0
"""`import hopyard.compat`: whose hops is found, and how a script is run; in fresh interpreters."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hopyard


@pytest.fixture
def python(tmp_path):
    """Runs Python in a folder of its own, in which somebody else's hops is installed."""
    installed = tmp_path / "site" / "hops"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("whose = 'theirs'\n")
    (installed / "experiment.py").write_text("whose = 'theirs'\n")
    (installed / "only_theirs.py").write_text("")
    package = Path(hopyard.__file__).parent.parent
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOPYARD_")}
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), str(package)])

    def run(*args, code=None, rc=0, **kw):
        command = [sys.executable, *map(str, args), *(["-c", code] if code else [])]
        done = subprocess.run(command, cwd=tmp_path, env={**env, **kw}, text=True, capture_output=True)
        assert done.returncode == rc, done.stderr
        return done

    return run


def test_hops_is_the_installed_one_without_compat(python):
    assert python(code="import hopyard, hops; print(hops.whose)").stdout == "theirs\n"


def test_importing_hopyard_does_not_import_compat(python):
    code = "import hopyard, hopyard.hdfs, hopyard.util, sys; print('hopyard.compat' in sys.modules)"
    assert python(code=code).stdout == "False\n"


def test_compat_takes_precedence_over_installed_hops(python):
    code = """
import hopyard.compat, importlib.util
import hops, hops.experiment
from hops import experiment, tflauncher, allreduce, tensorboard, hdfs, devices, util
assert experiment is hops.experiment and hops.__version__ == hopyard.__version__
for module in hops, experiment, tflauncher, allreduce, tensorboard, hdfs, devices, util:
    assert module.__file__.startswith(hopyard.__path__[0]), module
assert importlib.util.find_spec("hops.only_theirs") is None
assert importlib.util.find_spec("json").origin == __import__("json").__file__
"""
    assert python(code=code).stderr == ""


def test_hops_imported_before_is_replaced_with_a_warning(python):
    code = """
import hops, hops.experiment
from hops.experiment import whose
import hopyard.compat
from hops import experiment
print(whose, hasattr(experiment, "grid_search"), hasattr(experiment, "whose"))
"""
    done = python(code=code)
    assert done.stdout == "theirs True False\n"
    assert "UserWarning: 'hops' was imported before hopyard.compat" in done.stderr
    assert "<string>:4" in done.stderr, "the warning points at the line to move"


def test_reloading_compat_keeps_its_own_hops(python):
    code = """
import hopyard.compat, hops, importlib
importlib.reload(hopyard.compat)
import sys
assert sys.modules["hops"] is hops
"""
    assert python(code=code).stderr == ""


def test_hops_imports_fast_and_without_tensorflow(python):
    code = """
import hopyard.compat, sys
from hops import experiment, tflauncher, allreduce, tensorboard, hdfs, devices, util, model
print(sorted(sys.modules.keys() & {"tensorflow", "numpy", "pandas", "pyspark"}))
"""
    assert python(code=code).stdout == "[]\n"


@pytest.mark.parametrize(
    ("call", "needs"),
    [
        ("featurestore.get_features(['a'])", "the feature store"),
        ("kafka.get_broker_endpoints()", "Hopsworks' Kafka"),
        ("tls.get_key_store()", "Hopsworks' Kafka"),
        ("serving.create_or_update('m', 'path')", "model serving"),
        ("jobs.start_job('j')", "Hopsworks' jobs"),
        ("util.send_request('GET', '/')", "a Hopsworks cluster"),
        ("hdfs.project_id()", "a Hopsworks cluster"),
    ],
)
def test_unsupported_hops_modules_raise_when_called(python, call, needs):
    module = call.partition(".")[0]
    said = python(code=f"import hopyard.compat\nfrom hops import {module}\n{call}", rc=1).stderr
    name = call.partition("(")[0]
    assert f"Error: hops.{name}() needs {needs}, which hopyard does not have" in said


def test_unknown_names_raise_import_errors(python):
    code = """
import hopyard.compat
from hops import util, hdfs, featurestore
print(hasattr(util, "nonsense"), hasattr(hdfs, "nonsense"), hasattr(featurestore, "__path__"))
try:
    import hops.nonsense
except ModuleNotFoundError as error:
    print(error)
"""
    assert python(code=code).stdout == "False False False\nNo module named 'hops.nonsense'\n"


# ---- python -m hopyard.compat


def test_script_runs_like_under_python(python, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("here = True\n")
    (tmp_path / "sub" / "script.py").write_text(
        """
import hops.experiment, os, sys, beside
def f(): pass
print(__name__, sys.argv, sys.path[0], os.path.basename(__file__), f.__module__)
assert sys.modules['__main__'].f is f
print(hops.experiment.grid_search.__name__)
"""
    )
    done = python("-m", "hopyard.compat", "sub/script.py", "--flag", "two words")
    expected = f"__main__ ['sub/script.py', '--flag', 'two words'] {tmp_path}/sub script.py __main__\n"
    assert done.stdout == expected + "grid_search\n"
    assert done.stderr == ""


def test_a_scripts_traceback_begins_in_the_script(python, tmp_path):
    (tmp_path / "script.py").write_text("def f():\n    raise KeyError('x')\nf()\n")
    assert python("-m", "hopyard.compat", "script.py", rc=1).stderr == python("script.py", rc=1).stderr


def test_syntax_errors_look_like_pythons(python, tmp_path):
    (tmp_path / "script.py").write_text("x = (1,\n")
    ours, theirs = (python(*way, "script.py", rc=1).stderr for way in (("-m", "hopyard.compat"), ()))
    assert ours.replace(f"{tmp_path}/", "") == theirs.replace(f"{tmp_path}/", "")


def test_exit_status_is_the_scripts(python, tmp_path):
    (tmp_path / "script.py").write_text("import sys; sys.exit(7)")
    assert python("-m", "hopyard.compat", "script.py", rc=7).stderr == ""


def test_a_script_that_is_interrupted_dies_of_the_signal(python, tmp_path):
    (tmp_path / "script.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    said = python("-m", "hopyard.compat", "script.py", rc=-signal.SIGINT).stderr
    assert said.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("args", "said"), [((), "usage: "), (("missing.py",), "there is no file 'missing.py'")]
)
def test_missing_script_is_an_error(python, args, said):
    assert said in python("-m", "hopyard.compat", *args, rc=1).stderr
