# SPDX-License-Identifier: Apache-2.0
"""Precedence of SparkSession settings, and the size of a container. Real sessions: tests/e2e/test_spark_settings.py."""

import types

import pytest

import hopyard
from hopyard import util
from hopyard._run import settings as _settings
from hopyard._spark import session as _session


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPYARD_PROJECT", str(tmp_path))
    return tmp_path


def context(master="yarn", **settings):
    """As much of a SparkContext as is looked at."""
    conf = {f"spark.{name}": value for name, value in settings.items()}
    return types.SimpleNamespace(master=master, getConf=lambda: conf, applicationId="app-1")


def test_first_source_of_a_setting_wins(project):
    (project / "hopyard.toml").write_text("[spark]\nexecutors = 4\nparameter-servers = 7\n")
    conf = {}
    assert _session.find(_session.EXECUTORS, conf, project) == 4
    conf["spark.executor.instances"] = "3"
    assert _session.find(_session.EXECUTORS, conf, project) == 3
    conf["spark.hopyard.executors"] = "2"
    assert _session.find(_session.EXECUTORS, conf, project) == 2
    assert _session.find(_session.SERVERS, conf, project) == util.num_param_servers() == 7
    assert _session.find(_session.PARALLEL, conf, project) is None


def test_every_form_field_has_its_property_names(project):
    conf = {"spark.executor.memory": "2g", "spark.executor.resource.gpu.amount": "1", "spark.tensorflow.num.ps": "5"}
    assert [_session.find(s, conf, project) for s in _session.FORM] == [None, None, 2048, 1, 5]
    text = "[spark]\nexecutors = 1\nparallel = 2\nexecutor-memory = 3\nexecutor-gpus = 4\nparameter-servers = 5\n"
    (project / "hopyard.toml").write_text(text)
    assert [_session.find(s, {}, project) for s in _session.FORM] == [1, 2, 3, 4, 5]
    own = {"spark.hopyard.executors": "6", "spark.hopyard.parallel": "7", "spark.hopyard.executor.memory": "8",
           "spark.hopyard.executor.gpus": "9", "spark.hopyard.parameterServers": "10"}  # fmt: skip
    assert [_session.find(s, {**conf, **own}, project) for s in _session.FORM] == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[spark]\nexecutor = 4\n",
            r"\[spark\] has no key 'executor' \(keys: master, executors, parallel, executor-memory",
        ),
        ("[spark]\nexecutors = '4'\n", r"executors in \[spark\] is '4', which is not a number"),
        ("[spark]\nexecutors = true\n", r"executors in \[spark\] is True, which is not a number"),
        ("[spark]\nexecutors = -1\n", r"executors in \[spark\] is -1, which is not a number"),
        ("[spark]\nmaster = 4\n", r"master in \[spark\] is 4, which is not a string"),
        ("[spark\n", r"at the end of a table declaration .*line 1"),
    ],
)
def test_error_in_hopyard_toml_names_the_file(project, text, sentence):
    (project / "hopyard.toml").write_text(text)
    with pytest.raises(hopyard.Error, match=f"{project}/hopyard.toml.*{sentence}"):
        _session.find(_session.EXECUTORS, {}, project)


def test_invalid_number_names_the_setting(project):
    with pytest.raises(hopyard.Error, match="spark.hopyard.parallel is 'many', which is not a number"):
        _session.find(_session.PARALLEL, {"spark.hopyard.parallel": "many"}, project)
    with pytest.raises(hopyard.Error, match="spark.executor.memory is '2x', which is not an amount of memory"):
        _session.find(_session.MEMORY, {"spark.executor.memory": "2x"}, project)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512 << 20),
        ("512m", 512 << 20),
        ("2g", 2 << 30),
        ("2GB", 2 << 30),
        ("1t", 1 << 40),
        ("7b", 7),
        ("8k", 8192),
    ],
)
def test_sizes_are_parsed_like_spark(text, size):
    assert _session.size("x", text, 1 << 20) == size


def test_number_of_expected_executors(project):
    assert _session.executors(context(), project) == 2, "as Spark has it on YARN"
    assert _session.executors(context("spark://a:7077"), project) is None, "as many as come"
    grows = {"dynamicAllocation.enabled": "true", "executor.instances": "3"}
    assert _session.executors(context(**grows), project) == _session.MANY
    assert _session.executors(context(**grows, **{"dynamicAllocation.maxExecutors": "5"}), project) == 5
    assert _session.executors(context(**grows, **{"hopyard.executors": "4"}), project) == 4
    (project / "hopyard.toml").write_text("[spark]\nexecutors = 6\n")
    assert _session.executors(context(**grows), project) == 6


def test_executors_get_an_address_that_is_valid_remotely(monkeypatch):
    """A name that is 127.0.1.1 on this machine only is no such; what the user wrote as an address is."""
    answers = {
        "here": ["127.0.1.1"],
        "there": ["127.0.1.1", "192.0.2.7"],
        "127.0.0.1": ["127.0.0.1"],
        "localhost": ["127.0.0.1"],
    }
    monkeypatch.setattr(
        _session.socket, "getaddrinfo", lambda host, _: [(0, 0, 0, "", (word, 0)) for word in answers[host]]
    )
    monkeypatch.setattr(_session, "_outward", lambda: "192.0.2.1")
    hosts = {host: _session.address(context(**{"driver.host": host})) for host in answers}
    assert hosts == {"here": "192.0.2.1", "there": "192.0.2.7", "127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1"}


MB = 1 << 20


@pytest.mark.parametrize(
    ("settings", "limit", "for_trials"),
    [
        ({}, 1408, 384),
        ({"executor.memory": "8g"}, 8192 + 819.2, 819.2),
        ({"executor.memory": "512m", "executor.memoryOverhead": "700m"}, 1212, 700),
        ({"executor.memoryOverhead": "1g", "executor.pyspark.memory": "2g"}, 4096, 3072),
        (
            {"executor.memoryOverhead": "1g", "memory.offHeap.size": str(100 * MB), "memory.offHeap.enabled": "true"},
            2148,
            1024,
        ),
        ({"executor.memoryOverhead": "1g", "memory.offHeap.size": str(100 * MB)}, 2048, 1024),
    ],
)
def test_trials_get_the_container_memory_outside_of_the_heap(settings, limit, for_trials):
    assert _session.container(context(**settings)) == f"{int(limit * MB)}:{int(for_trials * MB)}"
    assert _session.container(context("spark://a:7077", **settings)) is None, "nobody watches it there"


def test_form_of_a_notebook_is_used_after_the_session_and_before_the_project(project, monkeypatch):
    (project / "hopyard.toml").write_text("[spark]\nexecutors = 4\nparameter-servers = 7\n")
    assert util.num_executors() == 1, "the project's executors are those of a session"
    monkeypatch.setenv("HOPYARD_EXECUTORS", "3")
    monkeypatch.setenv("HOPYARD_PARAMETER_SERVERS", "0")
    assert util.num_executors() == 3 and util.num_param_servers() == 0
    assert util.num_executors(context()) == 3
    assert util.num_executors(context(**{"hopyard.executors": "2"})) == 2


def test_form_of_a_notebook_limits_trials_and_ranks_unless_they_have_their_own(project, monkeypatch):
    assert {_settings.for_trials({})[name] for name in ("parallel", "memory", "gpus")} == {None}
    for name, value in (("PARALLEL", "2"), ("EXECUTOR_MEMORY", "300"), ("EXECUTOR_GPUS", "0")):
        monkeypatch.setenv(f"HOPYARD_{name}", value)
    trials = _settings.for_trials({})
    assert (trials["parallel"], trials["memory"], trials["gpus"]) == (2, "300M", 0)
    own = _settings.for_trials({"parallel": 5, "memory": "1G", "gpus": 0.5})
    assert (own["parallel"], own["memory"], own["gpus"]) == (5, "1G", 0.5)
    ranks = _settings.for_training({}, "a training", "hopyard.allreduce")
    assert (ranks["parallel"], ranks["memory"], ranks["gpus"]) == (None, "300M", 0), "all ranks run at the same time"
    local = _settings.for_trials({"spark": context("local[2]", **{"hopyard.parallel": "4"})})
    assert local["parallel"] == 4, "a session's own number comes first"
