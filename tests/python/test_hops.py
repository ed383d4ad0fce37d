# SPDX-License-Identifier: Apache-2.0
"""The names of hops that need no run: the project and its files, models, devices, a session's settings.

What runs something is tests/e2e/test_guides.py's.
"""

import getpass
import os
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

import hopyard
from hopyard import devices, hdfs, tensorboard, util


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "projects" / "demo"
    folder.mkdir(parents=True)
    for name in ("HOPYARD_TRIAL_DIR", "HOPYARD_GPUS", "NUM_TF_PS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOPYARD_PROJECT", str(folder))
    return folder


@pytest.fixture
def trial(project, monkeypatch):
    folder = project / "Logs" / "TensorFlow" / "local-1" / "1" / "lr=0.1"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOPYARD_TRIAL_DIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def hops():
    """`import hops`, and nothing left of it for other tests."""
    finders, modules = list(sys.meta_path), set(sys.modules)
    import hopyard.compat

    import hops.allreduce
    import hops.experiment
    import hops.hdfs
    import hops.model
    import hops.numpy_helper
    import hops.pandas_helper
    import hops.tensorboard
    import hops.tflauncher
    import hops.util

    yield hops
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if name.startswith(("hops", "hopyard.compat")):
            del sys.modules[name]
    del hopyard.compat


class Session:
    """As much of a SparkSession as hopyard looks at."""

    def __init__(self, master="local[2]", **settings):
        names = {name.replace("_", "."): value for name, value in settings.items()}
        conf = types.SimpleNamespace(get=lambda name, default=None: names.get(name, default))
        self.sparkContext = types.SimpleNamespace(
            master=master, applicationId="local-77", getConf=lambda: conf
        )


# ---- the project


def test_project_path_ends_in_a_slash_and_follows_the_environment(project):
    assert hdfs.project_path() == f"{project}/"
    assert hdfs.project_name() == "demo"
    assert hdfs.project_user() == f"demo__{getpass.getuser()}"


def test_project_defaults_to_the_current_directory(project, monkeypatch, tmp_path):
    monkeypatch.delenv("HOPYARD_PROJECT")
    monkeypatch.chdir(tmp_path)
    assert hdfs.project_path() == f"{tmp_path}/"


def test_project_of_a_trial_takes_precedence_over_the_environment(
    trial, project, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOPYARD_PROJECT", str(tmp_path / "elsewhere"))
    assert hdfs.project_path() == f"{project}/"


def test_first_use_creates_the_projects_directories(project):
    assert os.listdir(project) == []
    hdfs.project_path()
    assert sorted(os.listdir(project)) == ["Jupyter", "Logs", "Models", "Resources"]


def test_sibling_project_is_not_created(project):
    assert hdfs.project_path("other") == f"{project.parent}/other/"
    assert hdfs.project_path("demo") == f"{project}/"
    assert os.listdir(project.parent) == ["demo"]


def test_unwritable_project_is_an_error(project, monkeypatch):
    monkeypatch.setenv("HOPYARD_PROJECT", "/proc/demo")
    with pytest.raises(
        hopyard.Error, match="cannot create the directory 'Resources' of the project '/proc/demo': .*; set"
    ):
        hdfs.project_path()


def test_project_on_hdfs_is_named_by_its_directory(project, monkeypatch):
    """All that needs its NameNode is tests/e2e/test_hdfs_module.py's."""
    monkeypatch.setenv("HOPYARD_PROJECT", "hdfs://nn:8020/Projects/demo/")
    assert hdfs.project_name() == "demo"


# ---- paths


@pytest.mark.parametrize(
    ("path", "is_"),
    [
        ("Resources/a.csv", "{project}/Resources/a.csv"),
        ("/Resources/a.csv", "{project}/Resources/a.csv"),
        ("{project}/Resources/a.csv", "{project}/Resources/a.csv"),
        ("file://{project}/Resources/a.csv", "{project}/Resources/a.csv"),
        ("{project}//Resources/a.csv", "{project}/Resources/a.csv"),
        ("/Projects/demo/Resources/a.csv", "{project}/Resources/a.csv"),
        ("/Projects/other/a.csv", "{project}/../other/a.csv"),
        ("{project}/../other/a.csv", "{project}/../other/a.csv"),
        ("/etc/passwd", "{project}/etc/passwd"),
        ("", "{project}"),
    ],
)
def test_relative_paths_are_in_the_project(project, path, is_):
    expected = os.path.normpath(is_.format(project=project))
    assert hdfs.abs_path(path.format(project=project)) == expected


@pytest.mark.parametrize("path", ["../../x", "Resources/../../../x", "{project}/../../x", "/Projects/demo/../../x"])
def test_paths_outside_of_the_project_and_its_siblings_are_errors(project, path):
    """One dot too many, and something else would be removed."""
    outside = project.parent.parent / "x"
    outside.write_text("precious")
    for call in (hdfs.exists, hdfs.rmr, hdfs.delete, hdfs.load, lambda p: hdfs.dump("", p)):
        with pytest.raises(hopyard.Error, match="is outside of"):
            call(path.format(project=project))
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("name", ["..", ".", "", "../..", "a/b", "/etc"])
def test_project_name_must_be_a_single_component(project, name):
    with pytest.raises(hopyard.Error, match="is not a project name"):
        hdfs.project_path(name)
    with pytest.raises(hopyard.Error, match="is not a project name"):
        hdfs.exists("x", project=name)


@pytest.mark.parametrize(
    ("path", "is_"),
    [
        ("hdfs://nn:8020/data/a", "hdfs://nn:8020/data/a"),
        ("hopsfs://nn//data/../b/", "hopsfs://nn/b"),
        ("hdfs:///data", "hdfs:///data"),
        ("hdfs:/data", "hdfs:///data"),
        ("hdfs://nn", "hdfs://nn/"),
    ],
)
def test_full_hdfs_paths_are_unchanged(project, path, is_):
    assert hdfs.abs_path(path) == is_


def test_nothing_is_removed_on_an_hdfs_that_the_project_is_not_on(project):
    for call in (hdfs.rmr, hdfs.delete, lambda p: hdfs.move(p, "Resources"), lambda p: hdfs.rename(p, "Resources/x")):
        with pytest.raises(hopyard.Error, match="'hdfs://nn/Projects/demo/x' is outside of .*, and is not removed"):
            call("hdfs://nn/Projects/demo/x")


@pytest.mark.parametrize(
    "path", ["", "/", ".", "Resources/..", "{project}", "{project}/..", "/Projects/demo"]
)
def test_the_project_itself_is_never_removed(project, path):
    (project / "precious").write_text("x")
    for remove in (hdfs.rmr, lambda p: hdfs.delete(p, recursive=True), lambda p: hdfs.move(p, "Logs/x")):
        with pytest.raises(hopyard.Error, match="is or contains the project"):
            remove(path.format(project=project))
    assert (project / "precious").exists()


# ---- files


def test_what_is_dumped_is_loaded_as_bytes(project):
    hdfs.dump("text ä", "Resources/a")
    hdfs.dump(b"\0bytes", "Resources/b")
    assert hdfs.load("Resources/a").decode() == "text ä"
    assert hdfs.load("Resources/b") == b"\0bytes"
    with pytest.raises(FileNotFoundError):
        hdfs.load("Resources/c")


def test_files_open_as_bytes_that_take_text_and_as_text(project):
    with hdfs.open_file("Resources/a", flags="w") as file:
        file.write("one ")
        file.write(b"two")
    with hdfs.open_file("Resources/a", flags="a") as file:
        file.write(" three")
    assert hdfs.open_file("Resources/a").read() == b"one two three"
    assert hdfs.open_file("Resources/a", flags="rt").read() == "one two three"
    with pytest.raises(ValueError, match="flags is 'x'"):
        hdfs.open_file("Resources/a", flags="x")


def test_directories_are_listed_by_full_paths(project):
    hdfs.mkdir("Resources/sub/deep")
    hdfs.dump("12345", "Resources/a.csv")
    hdfs.dump("", "Resources/sub/b.csv")
    root = f"{project}/Resources"
    assert hdfs.ls("Resources") == [f"{root}/a.csv", f"{root}/sub"]
    assert hdfs.ls("Resources", recursive=True) == [
        f"{root}/{n}" for n in ("a.csv", "sub", "sub/b.csv", "sub/deep")
    ]
    assert hdfs.ls("Resources/a.csv") == [f"{root}/a.csv"]
    assert hdfs.glob("Resources/*.csv") == [f"{root}/a.csv"]
    assert hdfs.glob("Resources/**/*.csv", recursive=True) == [f"{root}/a.csv", f"{root}/sub/b.csv"]
    described = hdfs.lsl("Resources")
    assert [(d["kind"], d["name"]) for d in described] == [
        ("file", f"{root}/a.csv"),
        ("directory", f"{root}/sub"),
    ]
    assert described[0]["size"] == 5 and described[0]["owner"] == getpass.getuser()
    with pytest.raises(FileNotFoundError):
        hdfs.ls("Resources/none")


def test_files_are_inspected_moved_and_removed(project):
    hdfs.dump("x", "Resources/a")
    assert hdfs.exists("Resources/a") and hdfs.isfile("Resources/a") and hdfs.isdir("Resources")
    assert not hdfs.exists("Resources/none") and not hdfs.isdir("Resources/a")
    assert hdfs.stat("Resources/a").st_size == 1 and hdfs.access("Resources/a", os.R_OK)
    hdfs.chmod("Resources/a", 0o640)
    assert hdfs.stat("Resources/a").st_mode & 0o777 == 0o640
    hdfs.rename("Resources/a", "Resources/b")
    hdfs.move("Resources/b", "Logs/c")
    assert hdfs.ls("Resources") == [] and hdfs.exists("Logs/c")
    hdfs.delete("Logs/none")
    hdfs.mkdir("Models/m/1")
    with pytest.raises(OSError):
        hdfs.delete("Models/m")
    hdfs.delete("Models/m", recursive=True)
    hdfs.rmr("Logs/c")
    assert hdfs.ls("Models") == hdfs.ls("Logs") == []


def test_a_link_is_removed_and_not_what_it_points_to(project, tmp_path):
    (tmp_path / "outside").mkdir()
    hdfs.project_path()
    (project / "Resources" / "link").symlink_to(tmp_path / "outside")
    hdfs.rmr("Resources/link")
    assert (tmp_path / "outside").exists() and not hdfs.exists("Resources/link")


def test_files_and_directories_are_copied_into_the_project(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "b").write_text("2")
    hdfs.copy_to_hdfs("a.json", "Resources/")
    hdfs.copy_to_hdfs("data", "Resources")
    hdfs.copy_to_hdfs("a.json", "Resources/new/name.json")
    assert hdfs.load("Resources/a.json") == hdfs.load("Resources/new/name.json") == b"1"
    assert hdfs.load("Resources/data/sub/b") == b"2"
    assert sorted(os.listdir(project / "Resources")) == ["a.json", "data", "new"], "nothing else is left"


def test_copy_replaces_only_with_overwrite(project, tmp_path):
    (tmp_path / "a").write_text("new")
    hdfs.dump("old", "Resources/a")
    with pytest.raises(FileExistsError, match="pass overwrite=True to replace it"):
        hdfs.copy_to_hdfs(tmp_path / "a", "Resources")
    assert hdfs.load("Resources/a") == b"old"
    hdfs.copy_to_hdfs(tmp_path / "a", "Resources", overwrite=True)
    assert hdfs.load("Resources/a") == b"new"


def test_a_file_copied_onto_itself_stays(project, monkeypatch):
    monkeypatch.chdir(project)
    hdfs.dump("x", "Resources/a")
    hdfs.copy_to_hdfs("Resources/a", "Resources", overwrite=True)
    assert hdfs.copy_to_local("Resources/a", "Resources", overwrite=True) == f"{project}/Resources/a"
    assert hdfs.load("Resources/a") == b"x"


def test_directory_replaced_by_its_own_content_keeps_it(project, monkeypatch):
    monkeypatch.chdir(project)
    hdfs.mkdir("Resources/a/a")
    hdfs.dump("x", "Resources/a/a/file")
    hdfs.copy_to_hdfs("Resources/a/a", "Resources", overwrite=True)
    assert hdfs.ls("Resources", recursive=True) == [f"{project}/Resources/a", f"{project}/Resources/a/file"]


def test_a_local_copy_is_made_once_and_again_when_it_differs(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hdfs.dump("123", "Resources/a.json")
    assert hdfs.copy_to_local("Resources/a.json") == str(tmp_path / "a.json")
    before = os.stat("a.json").st_ino
    hdfs.copy_to_local("Resources/a.json", "")
    assert os.stat("a.json").st_ino == before
    hdfs.dump("1234", "Resources/a.json")
    hdfs.copy_to_local("Resources/a.json")
    assert open("a.json").read() == "1234"
    assert hdfs.copy_to_local("Resources/a.json", "name.json") == str(tmp_path / "name.json")
    assert open(hdfs.copy_to_local("Resources", "") + "/a.json").read() == "1234"


def test_files_are_copied_within_the_project(project):
    hdfs.dump("1", "Resources/a")
    hdfs.cp("Resources/a", "Logs")
    hdfs.cp("Resources", "Models/all")
    assert hdfs.load("Logs/a") == hdfs.load("Models/all/a") == b"1"
    assert hdfs.capacity() > 0


# ---- the trial


def test_log_appends_lines_to_the_trials_file(trial):
    hdfs.log("Hello")
    hdfs.log(17)
    lines = (trial / "trial.log").read_text().splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["Hello", "17"]
    assert os.listdir(trial) == ["trial.log"]


def test_lines_of_many_writers_do_not_mix(trial):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: hdfs.log(f"{i} " * 200), range(64)))
    lines = (trial / "trial.log").read_text().splitlines()
    assert sorted(int(line.split()[1]) for line in lines) == list(range(64))
    assert all(len(set(line.split()[1:])) == 1 for line in lines)


def test_outside_of_a_trial_logdir_is_temporary_and_log_prints(project, capsys):
    assert os.path.isdir(tensorboard.logdir()) and not tensorboard.logdir().startswith(str(project))
    capsys.readouterr()
    hdfs.log("x")
    assert capsys.readouterr().out == "x\n"


def test_logdir_is_the_trials_directory(trial):
    assert tensorboard.logdir() == str(trial)


def test_tensorboard_on_a_missing_directory_is_an_error(project):
    with pytest.raises(hopyard.Error, match="cannot start TensorBoard: '/nowhere' is not a directory"):
        tensorboard.visualize("/nowhere")


@pytest.mark.parametrize(("leased", "count"), [("0", 0), ("2", 2), ("0.2", 1), ("1.5", 2)])
def test_num_gpus_follows_the_lease(project, monkeypatch, leased, count):
    monkeypatch.setenv("HOPYARD_GPUS", leased)
    assert devices.get_num_gpus() == count


def test_without_a_lease_num_gpus_is_what_tensorflow_sees(project, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert devices.get_num_gpus() == 0
    assert "tensorflow" not in sys.modules
    seen = types.SimpleNamespace(config=types.SimpleNamespace(list_physical_devices=lambda kind: [kind] * 3))
    monkeypatch.setitem(sys.modules, "tensorflow", seen)
    assert devices.get_num_gpus() == 3


# ---- util


def test_a_grid_is_written_out_in_product_order():
    grid = {"learning_rate": [0.001, 0.0005, 0.0001], "dropout": [0.45, 0.7]}
    assert util.grid_params(grid) == {
        "learning_rate": [0.001, 0.001, 0.0005, 0.0005, 0.0001, 0.0001],
        "dropout": [0.45, 0.7, 0.45, 0.7, 0.45, 0.7],
    }
    assert list(util.grid_params({"b": ["x"], "a": [None, {"k": 1}]}).items()) == [
        ("b", ["x", "x"]),
        ("a", [None, {"k": 1}]),
    ]


@pytest.mark.parametrize(
    ("settings", "executors"),
    [
        ({}, 1),
        ({"spark_executor_instances": "3"}, 3),
        ({"spark_dynamicAllocation_maxExecutors": "5"}, 5),
        ({"spark_executor_instances": "3", "spark_dynamicAllocation_maxExecutors": "5"}, 3),
        (
            {
                "spark_executor_instances": "3",
                "spark_dynamicAllocation_maxExecutors": "5",
                "spark_dynamicAllocation_enabled": "true",
            },
            5,
        ),
    ],
)
def test_num_executors_follows_the_sessions_configuration(project, settings, executors):
    session = Session(**settings)
    assert util.num_executors(session) == util.num_executors(session.sparkContext) == executors
    assert util.num_executors() == util.num_executors(None) == 1


def test_num_param_servers_follows_session_or_environment(project, monkeypatch):
    assert util.num_param_servers() == util.num_param_servers(Session()) == 0
    monkeypatch.setenv("NUM_TF_PS", "2")
    assert util.num_param_servers() == util.num_param_servers(Session()) == 2
    assert util.num_param_servers(Session(spark_tensorflow_num_ps="4")) == 4
    with pytest.raises(hopyard.Error, match="spark.tensorflow.num.ps is 'x', which is not a number"):
        util.num_param_servers(Session(spark_tensorflow_num_ps="x"))


# ---- hops


def test_hops_names_are_hopyards(hops, project):
    assert hops.util.grid_params is util.grid_params
    assert hops.tensorboard.logdir is tensorboard.logdir
    assert hops.hdfs.project_path(exclude_nn_addr=True) == f"{project}/"
    assert hops.hdfs.get_plain_path("hdfs://10.0.2.15:8020/Projects/demo/Models/") == "/Projects/demo/Models/"
    assert hops.tflauncher.launch is hops.experiment.launch
    assert hops.experiment.differential_evolution is hops.experiment.evolutionary_search


def test_functions_of_files_have_the_arguments_of_every_version(hops, project, monkeypatch):
    hops.hdfs.dump("text", "Resources/a.txt")
    with hops.hdfs.open_file("Resources/a.txt", flags="r") as file:
        assert file.read() in ("text", b"text")
    assert hops.hdfs.ls("Resources") == hops.hdfs.ls("Resources", exclude_nn_addr=True)
    monkeypatch.setattr(hdfs, "ls", lambda path, recursive, project: [f"hdfs://10.0.2.15:8020/Projects/demo/{path}"])
    assert hops.hdfs.ls("a") == ["hdfs://10.0.2.15:8020/Projects/demo/a"]
    assert hops.hdfs.ls("a", exclude_nn_addr=True) == ["hdfs:///Projects/demo/a"]
    monkeypatch.setenv("HOPSWORKS_PROJECT_ID", "119")
    assert hops.hdfs.project_id() == "119"


@pytest.mark.parametrize(("value", "is_enabled"), [("true", True), ("false", False), (None, False)])
def test_tls_is_that_of_core_site(hops, tmp_path, monkeypatch, value, is_enabled):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    if value:
        (tmp_path / "core-site.xml").write_text(
            "<configuration><property><name>fs.defaultFS</name><value>true</value></property>"
            f"<property><name>ipc.server.ssl.enabled</name><value>{value}</value></property></configuration>"
        )
    assert hops.hdfs.is_tls_enabled() is is_enabled


def test_tensorboard_takes_a_session_as_in_earlier_versions(hops, monkeypatch):
    monkeypatch.setattr(tensorboard, "visualize", lambda path: f"http://127.0.0.1/{path}")
    assert hops.tensorboard.visualize("logs") == hops.tensorboard.visualize(Session(), "logs") == (
        "http://127.0.0.1/logs")


def test_errors_of_hopsworks_can_be_caught(hops):
    from hops import exceptions

    for kind in (exceptions.RestAPIError, exceptions.UnkownSecretStorageError, exceptions.APIKeyFileNotFound):
        assert issubclass(kind, hopyard.Error)


def test_handle_has_the_pydoop_methods_of_the_guides(hops, project):
    hops.hdfs.project_path()
    with hops.hdfs.get_fs() as handle, handle.open_file(f"{project}/Resources/file.txt", flags="w") as file:
        file.write("Hello")
    handle.open_file("Resources/file.txt", mode="a").write(b"!")
    assert handle.open_file("Resources/file.txt").read() == b"Hello!"
    assert [entry["name"] for entry in hops.hdfs.get().list_directory("Resources")] == [
        f"{project}/Resources/file.txt"
    ]
    assert handle.get_path_info("Resources/file.txt")["size"] == 6
    handle.create_directory("Resources/sub")
    handle.delete("Resources/sub")
    assert not handle.exists("Resources/sub")


def test_both_names_of_copy_functions_work(hops, project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mydata.json").write_text("{}")
    hops.hdfs.copy_to_project("mydata.json", "Resources/")
    (tmp_path / "mydata.json").unlink()
    assert hops.hdfs.copy_from_project("Resources/mydata.json", "") == str(tmp_path / "mydata.json")


def test_a_module_of_the_project_can_be_imported(hops, project, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    hdfs.dump("answer = 42", "Resources/module_of_the_project.py")
    assert (
        hops.hdfs.add_module("Resources/module_of_the_project.py")
        == f"{project}/Resources/module_of_the_project.py"
    )
    assert __import__("module_of_the_project").answer == 42
    hdfs.dump("{}", "Resources/notebook.ipynb")
    with pytest.raises(hopyard.Error, match="nbconvert"):
        hops.hdfs.add_module("Resources/notebook.ipynb")


def test_pandas_and_numpy_read_and_write_the_projects_files(hops, project):
    import numpy
    import pandas

    hdfs.project_path()
    hops.pandas_helper.write_csv("Resources/a.csv", pandas.DataFrame({"x": [1, 2]}), index=False)
    assert hops.pandas_helper.read_csv(f"{project}/Resources/a.csv")["x"].tolist() == [1, 2]
    hops.numpy_helper.save("Resources/a.npy", numpy.arange(3))
    assert hops.numpy_helper.load("Resources/a.npy").tolist() == [0, 1, 2]
    for module in (hops.pandas_helper, hops.numpy_helper):
        assert not hasattr(module, "read_nonsense")


def test_too_few_executors_are_an_error(hops, project):
    with pytest.raises(hopyard.Error, match="2 executors are too few for a chief, 2 parameter servers; configure more"):
        hops.experiment.parameter_server(Session(spark_executor_instances="2"), lambda: 1, num_ps=2)
    with pytest.raises(hopyard.Error, match="1 executors are too few for a chief and an evaluator"):
        hops.experiment.collective_all_reduce(lambda: 1, evaluator=True)


def test_tensorflowonspark_has_the_names_that_hops_gave_it(hops, project):
    from hops import TFCluster, TFNode
    from hops.tensorflowonspark import TFCluster as same
    from hops.tensorflowonspark import gpu_info, reservation

    assert TFCluster.run is same.run and TFCluster.InputMode.SPARK == 1 and TFNode.DataFeed
    assert gpu_info.AS_LIST == "list" and reservation.Client


@pytest.mark.parametrize("mode, octal", [(777, "0o1411"), (755, "0o1363"), (644, "0o1204"), (1777, "0o3361")])
def test_decimal_permissions_are_errors(project, mode, octal):
    hdfs.dump("x", "Resources/a")
    before = hdfs.stat("Resources/a").st_mode
    with pytest.raises(ValueError, match=rf"mode is {mode}, which is {octal}; write 0o{mode} or '{mode}'"):
        hdfs.chmod("Resources/a", mode)
    assert hdfs.stat("Resources/a").st_mode == before
    hdfs.chmod("Resources/a", str(mode))
    assert hdfs.stat("Resources/a").st_mode & 0o7777 == int(str(mode), 8)


def test_valid_permissions_are_set(project):
    hdfs.dump("x", "Resources/a")
    for mode in (0o777, 0o755, 0o620, 0o1777, 0o2775):  # 511, 493, 400, 1023, 1533
        hdfs.chmod("Resources/a", mode)
        assert hdfs.stat("Resources/a").st_mode & 0o7777 == mode
    with pytest.raises(ValueError, match="permissions are 0 to 0o7777"):
        hdfs.chmod("Resources/a", 10000)


def test_access_checks_read_write_and_execute(project):
    hdfs.dump("x", "Resources/a")
    hdfs.chmod("Resources/a", 0o700)
    assert hdfs.access("Resources/a", 7) and hdfs.access("Resources/a", os.F_OK) and not hdfs.access("Resources/b", 7)
    for mode in (777, 0o777, -1):
        with pytest.raises(
            ValueError, match=f"mode is {mode}; it must be a sum of os.R_OK, os.W_OK and os.X_OK"
        ):
            hdfs.access("Resources/a", mode)


def test_invalid_session_is_an_error(hops, project):
    with pytest.raises(
        hopyard.Error, match="spark must be a SparkSession, or None for this machine, not 'training'"
    ):
        hops.experiment.launch("training", {"lr": [1]})


def test_session_is_passed_to_the_run(hops, project, monkeypatch):
    given = {}
    monkeypatch.setattr(hopyard.experiment, "grid_search", lambda fn, space, **words: given.update(words) or 1 / 0)
    session = Session("yarn", spark_executor_instances="3")
    with pytest.raises(ZeroDivisionError):
        hops.experiment.grid_search(session, lambda lr: 1, {"lr": [1, 2]})
    assert given["spark"] is session and given["parallel"] == 3


@pytest.fixture
def ended(project, monkeypatch):
    """Ends every run at once, with three trials, the second of which is the best; has the arguments of each run."""
    trials = []
    for number in range(1, 4):
        folder = project / "Logs" / f"trial {number}"
        folder.mkdir(parents=True)
        trials.append(types.SimpleNamespace(number=number, logdir=str(folder), params={"lr": number},
                                            metrics={"loss": number / 2}))  # fmt: skip
    started = {}

    def run(kind):
        def call(fn=None, space=None, **words):
            logdir = project / "Logs" / kind
            logdir.mkdir(exist_ok=True)
            started[kind] = {"fn": fn, "space": space, **words}
            return types.SimpleNamespace(logdir=str(logdir), trials=trials[: 1 if kind == "launch" else 3],
                                         _best=trials[1])  # fmt: skip

        return call

    for kind in ("launch", "grid_search", "random_search", "evolutionary_search"):
        monkeypatch.setattr(hopyard.experiment, kind, run(kind))
    return started


def test_launch_returns_what_its_version_of_hops_returned(hops, project, ended):
    logdir = str(project / "Logs" / "launch")
    assert hops.experiment.launch(len, {"lr": (1, 2)}) == logdir
    assert ended["launch"]["space"] == {"lr": [1, 2]} and ended["launch"]["name"] is None
    assert hops.experiment.launch(len, metric_key="loss", name="mine") == (logdir, {"loss": 0.5})
    assert ended["launch"]["metric"] == "loss" and ended["launch"]["name"] == "mine"
    (project / "Logs/trial 1/result.json").write_text('{"loss": 0.25, "note": "good"}')
    assert hops.experiment.launch(len, metric_key="loss")[1] == {"loss": 0.25, "note": "good"}, "strings, too"


def test_search_returns_what_its_version_of_hops_returned(hops, project, ended):
    early = hops.experiment.grid_search(None, len, {"lr": [1, 2, 3]}, direction="max")
    assert early == (str(project / "Logs/grid_search"), {"lr": 2}) and os.fspath(early) == early[0]
    later = hops.experiment.random_search(len, {"lr": [1, 3]}, "MIN", samples=3, optimization_key="loss")
    assert later == (str(project / "Logs/random_search"), {"lr": 2}, {"loss": 1.0})
    given = ended["random_search"]
    assert (given["direction"], given["samples"], given["metric"]) == ("MIN", 3, "loss")


def test_evolution_keeps_the_best_trial_and_the_last_generation(hops, project, ended):
    hops.experiment.differential_evolution(objective_function=len, boundary_dict={"lr": [1, 3]}, popsize=1,
                                           cleanup_generations=True)  # fmt: skip
    assert ended["evolutionary_search"]["population"] == 1, "by its earlier name"
    assert sorted(path.name for path in (project / "Logs").glob("trial *")) == ["trial 2", "trial 3"]


def test_resources_are_kept_as_they_were_before_the_run(hops, project, ended, monkeypatch):
    launch = hopyard.experiment.launch
    monkeypatch.setattr(hopyard.experiment, "launch", lambda fn, space, **words: fn() or launch(fn, space, **words))
    hdfs.dump("before", "Resources/data")
    hops.experiment.launch(lambda: hdfs.dump("after", "Resources/data"), versioned_resources=["Resources/data"])
    assert hdfs.load("Resources/data") == b"after"
    assert (project / "Logs/launch/versioned_resources/data").read_text() == "before"


def test_experiment_of_this_process_begins_and_ends(hops, project, monkeypatch):
    calls = []

    def begin(**words):
        calls.append(words)
        return str(project / "Logs")

    monkeypatch.setattr(hopyard.experiment, "begin", begin)
    monkeypatch.setattr(hopyard.experiment, "end", calls.append)
    assert hops.experiment.begin("mine") == hops.experiment.begin(None, "mine") == str(project / "Logs")
    hops.experiment.end("0.5")
    hops.experiment.end()
    assert calls == [{"name": "mine"}, {"name": "mine"}, 0.5, None]


def test_trainings_have_a_node_on_every_executor(hops, project, monkeypatch):
    calls = []

    def run(fn, args, workers, ps, **words):
        calls.append({"workers": workers, "ps": ps, "value": fn(args, None), "fn": fn, **words})
        return types.SimpleNamespace(run=1, results=lambda: {"chief-0": 0.5})

    monkeypatch.setattr(hopyard.cluster, "run", run)
    monkeypatch.setattr(hopyard.experiment, "result", lambda run, project: types.SimpleNamespace(logdir="/logs"))

    def training():
        return "trained"

    session = Session("yarn", spark_executor_instances="4")
    assert hops.experiment.collective_all_reduce(session, training) == "/logs"
    assert hops.experiment.parameter_server(session, training, num_ps=1, metric_key="loss") == ("/logs", 0.5)
    assert hops.experiment.mirrored(training, num_nodes=2, evaluator=True) == "/logs"
    assert [(call["workers"], call["ps"], call["evaluator"]) for call in calls] == [
        (3, 0, False), (2, 1, False), (0, 0, True)]  # fmt: skip
    assert all(call["chief"] and call["value"] == "trained" for call in calls)
    assert {call["fn"].__name__ for call in calls} == {"training"}, "by which the run is named"


def test_mirrored_training_on_one_machine_is_a_single_trial(hops, project, ended):
    assert hops.experiment.mirrored(len) == str(project / "Logs/launch") and ended["launch"]["fn"] is len


def test_notebook_runs_on_every_worker(hops, project, monkeypatch):
    calls = []

    def run_notebook(path, **words):
        calls.append((path, words["np"], words.get("spark")))
        return types.SimpleNamespace(logdir="/logs")

    monkeypatch.setattr(hopyard.allreduce, "run_notebook", run_notebook)
    hdfs.dump("{}", "Jupyter/horovod.ipynb")
    path, session = str(project / "Jupyter/horovod.ipynb"), Session("yarn", spark_executor_instances="3")
    assert hops.experiment.horovod(session, "horovod.ipynb") == "/logs", "in the project's directory Jupyter"
    assert hops.allreduce.launch("Jupyter/horovod.ipynb", num_workers=2) == "/logs"
    assert calls == [(path, 3, session), (path, 2, None)]
    with pytest.raises(hopyard.Error, match="there is no notebook '.*/none.ipynb'; a project's notebooks are in its"):
        hops.allreduce.launch("none.ipynb")
    with pytest.raises(hopyard.Error, match="7 is not the path of a notebook"):
        hops.allreduce.launch(None, 7)


def test_lists_of_different_lengths_are_a_value_error(hops, project):
    for spark in ((), (None,), (Session(),)):
        with pytest.raises(ValueError, match="must be equally long: lr has 2, dropout has 1"):
            hops.tflauncher.launch(*spark, lambda lr, dropout: 1, {"lr": [1, 2], "dropout": [1]})


def test_missing_resources_are_an_error_before_anything_runs(hops, project):
    with pytest.raises(hopyard.Error, match="there is no '.*/Jupyter/none.ipynb' to keep with the run"):
        hops.experiment.launch(lambda: 1, versioned_resources=[hdfs.project_path() + "Jupyter/none.ipynb"])
    assert os.listdir(project / "Logs") == []


def test_removed_debugger_names_its_successor(hops):
    with pytest.raises(hopyard.Error, match="enable_dump_debug_info"):
        hops.tensorboard.interactive_debugger()


# ---- models


def test_exported_models_are_versioned_directories_with_metrics(hops, project, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "model.pb").write_bytes(b"pb")
    (tmp_path / "model.pkl").write_bytes(b"pkl")
    first = hops.model.export(str(tmp_path / "exported"), "mnist", metrics={"accuracy": 0.9098})
    second = hops.model.export(
        str(tmp_path / "model.pkl"), "mnist", metrics={"accuracy": 0.7}, description="worse"
    )
    assert first == f"{project}/Models/mnist/1" and os.listdir(first) == ["model.pb"]
    assert second == f"{project}/Models/mnist/2" and os.listdir(second) == ["model.pkl"]
    best = hops.model.get_best_model("mnist", "accuracy", hops.model.Metric.MAX)
    assert (best["name"], best["version"], best["metrics"]) == ("mnist", 1, {"accuracy": "0.9098"})
    assert hops.model.get_best_model("mnist", "accuracy", "min")["version"] == 2
    assert hops.model.get_model("mnist", 2)["description"] == "worse"


def test_invalid_model_is_an_error(hops, project, tmp_path):
    for call in (
        lambda: hops.model.get_model("mnist", 1),
        lambda: hops.model.get_best_model("mnist", "accuracy", "MAX"),
        lambda: hops.model.download_model("mnist"),
    ):
        with pytest.raises(hops.model.ModelNotFound, match="mnist"):
            call()
    with pytest.raises(ValueError, match="there is no model 'nowhere'"):
        hops.model.export("nowhere", "mnist")
    with pytest.raises(ValueError, match="Metric.MAX or Metric.MIN"):
        hops.model.get_best_model("mnist", "accuracy", "best")


def test_version_is_replaced_only_with_overwrite(hops, project, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    hops.model.export(str(tmp_path / "a"), "m", model_version=3)
    with pytest.raises(ValueError, match="pass overwrite=True to replace it"):
        hops.model.export(str(tmp_path / "b"), "m", model_version=3)
    folder = hops.model.export(str(tmp_path / "b"), "m", model_version=3, overwrite=True)
    assert os.listdir(folder) == ["b"]


def test_concurrent_exports_get_different_versions(hops, project, tmp_path):
    (tmp_path / "model").write_text("x")
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: hops.model.export(str(tmp_path / "model"), "m"), range(16)))
    assert sorted(int(os.path.basename(folder)) for folder in folders) == list(range(1, 17))


def test_a_model_is_packed_once(hops, project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pkl").write_text("x")
    hops.model.export("model.pkl", "m")
    assert hops.model.download_model("m", 1) == str(tmp_path / "m1.zip")
    with pytest.raises(hops.model.ModelArchiveExists):
        hops.model.download_model("m", 1)
    assert open(hops.model.download_model("m", 1, overwrite=True), "rb").read(2) == b"PK"
