# SPDX-License-Identifier: Apache-2.0
"""Runs that succeed, as users see them."""
from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time

import pytest
from conftest import Yard, wait_for


@pytest.mark.smoke
def test_grid_runs_every_combination_first_name_slowest(yard: Yard) -> None:
    yard.run("run", "--grid", "lr=0.001,0.0005", "--grid", "dropout=0.45,0.7", "--max", "accuracy", "--parallel", 2,
             "--", "sh", "-c", "echo {lr} {dropout}; echo accuracy=0.5")
    trials = yard.trials()
    assert [t["params"] for t in trials] == [{"lr": 0.001, "dropout": 0.45}, {"lr": 0.001, "dropout": 0.7},
                                             {"lr": 0.0005, "dropout": 0.45}, {"lr": 0.0005, "dropout": 0.7}]
    assert [t["number"] for t in trials] == [1, 2, 3, 4]
    assert all(t["state"] == "done" for t in trials)
    assert yard.state() == "done"


def test_directory_is_named_after_the_parameters(yard: Yard) -> None:
    yard.run("run", "--grid", "lr=0.001", "--grid", "dropout=0.45", "--", "sh", "-c",
             "echo out; echo err >&2; echo mine > $HOPYARD_TRIAL_DIR/file")
    logdir = yard.logdir()
    assert re.fullmatch(rf"{yard.project}/Logs/TensorFlow/local-\d+-\d+/1", str(logdir))
    folder = logdir / "lr=0.001,dropout=0.45"
    assert (folder / "stdout").read_text() == "out\n"
    assert (folder / "stderr").read_text() == "err\n"
    assert (folder / "file").read_text() == "mine\n"


def test_program_without_a_shell_gets_its_arguments_unchanged(yard: Yard) -> None:
    yard.run("run", "--grid", "x=a b,$HOME,*", "--", "printf", "%s|", "{x}", "<{x}>", "{{x}}")
    out = {t["params"]["x"]: (yard.logdir() / t["dir"] / "stdout").read_text() for t in yard.trials()}
    assert out == {"a b": "a b|<a b>|{x}|", "$HOME": "$HOME|<$HOME>|{x}|", "*": "*|<*>|{x}|"}


def test_last_printed_value_is_the_metric(yard: Yard) -> None:
    yard.run("run", "--min", "loss", "--", "sh", "-c", "echo loss=3; echo 'epoch 2: loss=2.5, accuracy=0.1'; echo nothing; echo loss=1.25")
    assert yard.trials()[0]["value"] == 1.25


def test_value_in_the_result_file_takes_precedence_over_printed_ones(yard: Yard) -> None:
    yard.run("run", "--max", "accuracy", "--", "sh", "-c",
             "echo accuracy=0.1; echo '{\"accuracy\": 0.9, \"loss\": 0.5, \"note\": \"x\"}' > $HOPYARD_RESULT")
    assert yard.trials()[0]["value"] == 0.9
    metrics = {m["name"]: m["value"] for m in yard.rows("SELECT * FROM metrics")}
    assert metrics == {"accuracy": 0.9, "loss": 0.5}


def test_reports_are_visible_during_the_trial(yard: Yard) -> None:
    gate = yard.project / "gate"
    p = yard.start("run", "--max", "accuracy", "--", "sh", "-c",
                   f"hopyard report accuracy=0.5 step=1 && hopyard report accuracy=0.75 step=2 && while [ ! -e {gate} ]; do sleep 0.05; done")
    rows = wait_for(lambda: (yard.folder / "store.db").exists() and
                    (r := yard.rows("SELECT step, value FROM metrics ORDER BY seq")) and len(r) == 2 and r, "two reports")
    assert rows == [{"step": 1, "value": 0.5}, {"step": 2, "value": 0.75}]
    assert yard.trials()[0]["state"] == "running"
    gate.touch()
    assert p.wait(60) == 0
    assert yard.trials()[0]["value"] == 0.75  # without printed values the last report is the metric
    p.communicate()


def test_report_outside_a_trial_is_an_error(yard: Yard) -> None:
    p = yard.run("report", "accuracy=0.5", rc=1)
    assert "not inside a trial" in p.stderr


def test_metric_may_have_a_newline_in_its_name(yard: Yard) -> None:
    name = "acc\nuracy"
    p = yard.run("run", "--max", name, "--", "sh", "-c", "printf '%s' '{\"acc\\nuracy\": 0.5}' > $HOPYARD_RESULT")
    assert yard.trials()[0]["value"] == 0.5
    assert "acc\\nuracy" in p.stdout and name not in p.stdout


def test_random_search_is_deterministic_for_a_seed(yard: Yard) -> None:
    for run in (1, 2):
        yard.run("run", "--random", 6, "--space", "lr=log:1e-5..1e-1", "--space", "layers=1..4", "--space", "act=relu,tanh",
                 "--seed", 7, "--", "true")
    first, second = yard.trials(1), yard.trials(2)
    assert [t["params"] for t in first] == [t["params"] for t in second]
    assert len(first) == 6 and len({json.dumps(t["params"]) for t in first}) > 1
    for t in first:
        assert 1e-5 <= t["params"]["lr"] <= 1e-1
        assert isinstance(t["params"]["layers"], int) and 1 <= t["params"]["layers"] <= 4
        assert t["params"]["act"] in ("relu", "tanh")


def test_evolution_improves_over_its_generations(yard: Yard) -> None:
    yard.run("run", "--evolve", "--population", 8, "--generations", 6, "--space", "x=-5.0..5.0", "--space", "y=-5.0..5.0",
             "--min", "f", "--seed", 3, "--parallel", 2, "--", "awk", "BEGIN { printf \"f=%.9f\\n\", {x}*{x} + {y}*{y} }")
    values = [t["value"] for t in yard.trials()]
    assert len(values) == 48
    assert min(values[-8:]) < min(values[:8])


def test_retries_are_delayed_and_keep_the_checkpoint(yard: Yard) -> None:
    yard.run("run", "--retries", 2, "--max", "accuracy", "--", "sh", "-c",
             "n=$(cat $HOPYARD_CHECKPOINT/n 2>/dev/null || echo 0); n=$((n+1)); echo $n > $HOPYARD_CHECKPOINT/n; "
             "echo attempt $HOPYARD_ATTEMPT; [ $n -lt 3 ] && exit 7; echo accuracy=0.$n")
    attempts = yard.attempts()
    assert [a["state"] for a in attempts] == ["failed", "failed", "done"]
    assert [a["exit_code"] for a in attempts] == [7, 7, 0]
    assert yard.trials()[0]["value"] == 0.3
    gaps = [b["started"] - a["ended"] for a, b in zip(attempts, attempts[1:])]
    assert gaps[0] >= 900 and gaps[1] >= 1900, "each delay is longer than the previous one"
    folder = yard.logdir() / yard.trials()[0]["dir"]
    assert (folder / "stdout.1").read_text() == "attempt 1\n"
    assert (folder / "stdout").read_text() == "attempt 3\naccuracy=0.3\n"


def test_failed_trial_has_a_reason_and_the_exit_status_is_1(yard: Yard) -> None:
    p = yard.run("run", "--grid", "x=0,3", "--", "sh", "-c", "exit {x}", rc=1)
    assert [t["state"] for t in yard.trials()] == ["done", "failed"]
    assert "exit status 3" in p.stdout


def test_run_fails_if_all_trials_fail(yard: Yard) -> None:
    mended = yard.project / "mended"
    p = yard.run("run", "--grid", "x=1,2", "--", "sh", "-c", f"[ -e {mended} ]", rc=1)
    assert "run 1 failed: 0 done, 2 failed" in p.stdout and "'hopyard resume 1' retries the failed trials" in p.stdout
    (row,) = json.loads(yard.run("ls", "--json").stdout)
    assert row["state"] == "failed" and json.loads(yard.run("show", "--json").stdout)["run"]["state"] == "failed"
    assert re.search(r"failed +0/2 \(2 failed\)", yard.run("ls").stdout)
    assert re.match(r"run 1 .*failed", yard.run("show").stdout)
    mended.touch()
    yard.run("resume", "1")
    assert yard.state() == "done"


def test_counts_of_a_stopped_run(yard: Yard) -> None:
    yard.run("run", "--detach", "--grid", "x=1..5", "--parallel", 1, "--", "sh", "-c", "case {x} in 1) ;; 2|3) exit 1 ;; *) sleep 600 ;; esac")
    wait_for(lambda: yard.state() and len(yard.trials()) == 4, "the fourth trial runs")
    yard.run("stop", "1")
    assert re.search(r"stopped +1/5 \(2 failed, 1 stopped\)", yard.run("ls").stdout)


def test_timeout_kills_the_trial_and_is_reported(yard: Yard) -> None:
    p = yard.run("run", "--timeout", "1s", "--", "sleep", "1000", rc=1)
    assert "ran longer than the 1s it may take; raise the time limit" in p.stdout


def test_only_the_trial_over_its_memory_limit_is_killed(yard: Yard) -> None:
    p = yard.run("run", "--grid", "mb=1,400", "--memory", "100M", "--parallel", 2, "--", "python3", "-c",
                 "import time; x = bytearray({mb} << 20); time.sleep(1.5); print('ok')", rc=1)
    states = {t["params"]["mb"]: (t["state"], t["message"]) for t in yard.trials()}
    assert states[1][0] == "done"
    assert states[400][0] == "failed"
    assert re.fullmatch(r"killed: used [\d.]+ MB of the 100\.0 MB it may use; raise the memory limit", states[400][1])
    assert states[400][1] in p.stdout


def test_command_and_provenance_are_stored(yard: Yard) -> None:
    os.system(f"cd {yard.project} && git init -q . && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x")
    yard.run("run", "--grid", "x=1", "--seed", 7, "--name", "nice", "--", "sh", "-c", "echo {x}")
    run = yard.rows("SELECT * FROM runs")[0]
    assert json.loads(run["command"]) == ["sh", "-c", "echo {x}"]
    assert run["seed"] == 7 and run["name"] == "nice"
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", run["git"])
    versions = json.loads(run["versions"])
    assert versions["hopyard"] and versions["kernel"]


def test_the_commit_is_stored_and_whether_files_have_changed(yard: Yard) -> None:
    def git(*words: str) -> str:
        settings = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *settings, *words], cwd=yard.project, check=True, text=True, capture_output=True).stdout

    def stored() -> str | None:
        yard.run("run", "--", "true")
        commit: str | None = json.loads(yard.run("ls", "--json").stdout)[0]["git"]
        return commit

    git("init", "--quiet")
    assert stored() is None  # no commit yet
    code = yard.script("train", "true\n")
    git("add", "train")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "HEAD").strip()
    assert stored() == commit  # Logs and the like are not part of it
    code.write_text("#!/bin/sh\nfalse\n")
    assert stored() == f"{commit}-dirty"
    git("checkout", "--quiet", "--", "train")
    below = yard.project / "below" / "it"
    below.mkdir(parents=True)
    yard.run("run", "--", "true", cwd=below)
    assert json.loads(yard.run("ls", "--json").stdout)[0]["git"] == commit
    (yard.project / "bin").mkdir()
    slow = yard.script("bin/git", f"case $* in *status*) sleep 60 ;; *) exec {shutil.which('git')} \"$@\" ;; esac\n")
    yard.env["PATH"] = f"{slow.parent}:{yard.env['PATH']}"
    assert stored() == f"{commit}-dirty"  # git did not finish its comparison in time


def test_git_is_not_started_without_a_repository(yard: Yard) -> None:
    (yard.project / "bin").mkdir()
    asked = yard.project / "asked"
    yard.env["PATH"] = f"{yard.script('bin/git', f'touch {asked}').parent}:{yard.env['PATH']}"
    yard.run("run", "--", "true")
    assert not asked.exists()
    (yard.project / ".git").mkdir()
    yard.run("run", "--", "true")
    assert asked.exists()


def test_trials_get_the_directory_and_environment_of_the_user(yard: Yard) -> None:
    where = yard.project / "sub"
    where.mkdir()
    yard.run("run", "--grid", "x=1", "--", "sh", "-c", "pwd; echo $WORD; echo $HOPYARD_PARAMS", cwd=where, env={"WORD": "here"})
    assert (yard.logdir() / "x=1" / "stdout").read_text() == f"{where}\nhere\n{{\"x\": 1}}\n"


def test_parallel_limits_concurrent_trials(yard: Yard) -> None:
    yard.run("run", "--grid", "i=1..8", "--parallel", 2, "--", "sleep", "0.2")
    spans = [(a["started"], a["ended"]) for a in yard.attempts()]
    most = max(sum(s <= t < e for s, e in spans) for t, _ in spans)
    assert most == 2


def test_unusual_and_long_values_give_safe_unique_directories(yard: Yard) -> None:
    values = ["a/b", "..", "x" * 300, "x" * 299 + "y", "ü", "a\nb", "~", "a%2Fb", "-rf", "*"]
    yard.run("run", "--grid", "v=" + ",".join(values), "--", "sh", "-c", "touch $HOPYARD_TRIAL_DIR/here")
    dirs = [t["dir"] for t in yard.trials()]
    assert len(set(dirs)) == len(values)
    for d in dirs:
        assert "/" not in d and "\n" not in d and d not in (".", "..") and len(d.encode()) <= 255
        assert (yard.logdir() / d / "here").exists()


def test_duplicate_parameters_get_two_directories(yard: Yard) -> None:
    yard.run("run", "--random", 6, "--space", "n=1..2", "--", "sh", "-c", "echo $HOPYARD_TRIAL > $HOPYARD_TRIAL_DIR/me")
    trials = yard.trials()
    assert len({t["dir"] for t in trials}) == 6
    for t in trials:
        assert (yard.logdir() / t["dir"] / "me").read_text() == f"{t['number']}\n"


@pytest.mark.smoke
def test_detach_and_attach(yard: Yard) -> None:
    gate = yard.project / "gate"
    p = yard.run("run", "--detach", "--name", "night", "--grid", "x=1,2", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    assert "1" in p.stdout
    assert "night" in yard.run("ls").stdout
    a = yard.start("attach", "night")
    gate.touch()
    out, _ = a.communicate(timeout=60)
    assert a.returncode == 0 and "2" in out
    assert yard.state() == "done"


@pytest.mark.smoke
def test_stop_kills_grandchildren_that_ignore_sigterm(yard: Yard) -> None:
    pids = yard.project / "pids"
    yard.script("stubborn", f"trap '' TERM\n(trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 1; done' &)\n"
                            f"echo $$ >> {pids}\nwhile :; do sleep 1; done\n")
    yard.run("run", "--detach", "--", "./stubborn")
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both trials run")
    yard.run("stop", "1")
    assert yard.state() == "stopped"
    for pid in pids.read_text().split():
        assert not os.path.exists(f"/proc/{pid}"), f"process {pid} is left"


def test_stop_of_a_run_that_is_just_ending_is_not_an_error(yard: Yard) -> None:
    """Its driver has committed the end and removed its socket, but still holds its lock."""
    yard.run("run", "--", "true")
    output = "run 1 is done: 1 done, 0 failed, 0 stopped\n"
    with (yard.folder / "run-1.lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1)
        assert yard.run("stop", "--feed", "1").stdout == output
        p = yard.start("stop", "1")
        wait_for(lambda: p.poll() is not None or _times_asleep(p.pid) > 10, "stop waits for the driver to exit")
        assert p.poll() is None, p.communicate()
    assert p.communicate(timeout=60) == (output, "") and p.returncode == 0


def _times_asleep(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.smoke
def test_stopped_run_is_resumed(yard: Yard) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--grid", "x=1..4", "--parallel", 1, "--max", "v", "--", "sh", "-c",
             f"[ {{x}} -lt 3 ] || while [ ! -e {gate} ]; do sleep 0.05; done; echo v={{x}}")
    wait_for(lambda: yard.state() and len(yard.trials()) == 3, "the third trial runs")
    yard.run("stop", "1")
    assert [t["state"] for t in yard.trials()] == ["done", "done", "stopped"]
    gate.touch()
    yard.run("resume", "1")
    trials = yard.trials()
    assert [t["state"] for t in trials] == ["done"] * 4
    assert [t["value"] for t in trials] == [1, 2, 3, 4]
    assert [len(yard.attempts(1, n)) for n in (1, 2, 3, 4)] == [1, 1, 2, 1]


def test_resume_retries_failed_trials_of_a_grid(yard: Yard) -> None:
    mended = yard.project / "mended"
    yard.run("run", "--grid", "x=1,2", "--", "sh", "-c", f"[ {{x}} = 1 ] || [ -e {mended} ]", rc=1)
    mended.touch()
    yard.run("resume", "1")
    assert [t["state"] for t in yard.trials()] == ["done", "done"]
    assert [len(yard.attempts(1, n)) for n in (1, 2)] == [1, 2]
    p = yard.run("resume", "1", rc=None)
    assert p.returncode != 0 and "there is nothing to resume" in p.stderr


@pytest.mark.smoke
def test_best_show_and_rm(yard: Yard) -> None:
    yard.run("run", "--grid", "x=1,5,3", "--max", "v", "--", "sh", "-c", "echo v={x}")
    assert "x=5" in yard.run("best", "1").stdout
    best = json.loads(yard.run("best", "1", "--json").stdout)
    assert best["params"] == {"x": 5}
    shown = yard.run("show", "1").stdout
    assert "x=1" in shown and "x=5" in shown and "echo v={x}" in shown
    logdir = yard.logdir()
    assert logdir.exists()
    yard.run("rm", "1")
    assert not logdir.exists() and not yard.rows("SELECT * FROM runs") and not yard.rows("SELECT * FROM trials")


@pytest.mark.smoke
def test_logs_are_live(yard: Yard) -> None:
    gate = yard.project / "gate"
    yard.run("run", "--detach", "--", "sh", "-c", f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo second")
    p = yard.start("logs", "1", "1", "-f")
    assert p.stdout is not None
    assert p.stdout.readline() == "first\n"
    gate.touch()
    assert p.stdout.readline() == "second\n"
    assert p.wait(60) == 0
    p.communicate()


def test_output_bytes_are_unchanged(yard: Yard) -> None:
    yard.run("run", "--", "sh", "-c", "head -c 3000000 /dev/urandom | tee $HOPYARD_TRIAL_DIR/copy; head -c 100000 /dev/urandom | tee $HOPYARD_TRIAL_DIR/copy2 >&2")
    folder = yard.logdir() / yard.trials()[0]["dir"]
    assert (folder / "stdout").read_bytes() == (folder / "copy").read_bytes()
    assert (folder / "stderr").read_bytes() == (folder / "copy2").read_bytes()


def test_json_output_has_one_event_per_line(yard: Yard) -> None:
    events = yard.events("run", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c", "echo v={x}")
    assert [e["event"] for e in events if e["event"] != "note"] == ["run", "trial", "trial", "end"]
    assert {e["params"]["x"]: e["value"] for e in events if e["event"] == "trial"} == {1: 1, 2: 2}
    assert events[-1]["best"]["params"] == {"x": 2}


def test_line_of_a_trial_has_its_number_in_any_order(yard: Yard) -> None:
    """`[1/2]` is the first trial that ended, which need not be trial 1; `attach` shows the same."""
    gate = yard.project / "gate"
    p = yard.start("run", "--grid", "x=1,2", "--parallel", 2, "--", "sh", "-c", f"[ {{x}} = 2 ] || while [ ! -e {gate} ]; do sleep 0.05; done")
    assert p.stdout
    wait_for(lambda: p.stdout and p.stdout.readline().startswith("[1/2] trial 2 done  x=2"), "trial 2 ends first")
    gate.touch()
    assert "[2/2] trial 1 done  x=1" in p.communicate()[0]
    output = yard.run("attach", "1").stdout
    assert "[1/2] trial 2 done  x=2" in output and "[2/2] trial 1 done  x=1" in output


def test_pipe_gets_a_line_for_each_trial(yard: Yard) -> None:
    out = yard.run("run", "--grid", "x=1,2", "--max", "v", "--", "sh", "-c", "echo v={x}").stdout
    assert "\x1b" not in out
    for line in (r"\[1/2\].*done", r"\[2/2\].*done"):
        assert re.search(line, out), out


def test_directory_of_a_project_is_created(yard: Yard) -> None:
    new = yard.project / "new" / "project"
    assert "cannot use the project directory" in yard.run("ls", "--project", new, rc=2).stderr and not new.exists(), "reading commands create nothing"
    yard.run("run", "--project", new, "--", "true")
    yard.wait_idle()
    assert "1/1" in yard.run("ls", "--project", new).stdout
    (yard.project / "file").touch()
    for path in (yard.project / "file", yard.project / "file" / "below"):
        p = yard.run("run", "--project", path, "--", "true", rc=None)
        assert p.returncode in (1, 2) and str(path) in p.stderr


def test_show_has_the_metrics_of_every_trial(yard: Yard) -> None:
    yard.run("run", "--grid", "x=1..20", "--max", "v", "--", "sh", "-c", "echo step=3 v={x}")
    trials = json.loads(yard.run("show", "--json").stdout)["trials"]
    assert [t["metrics"] for t in trials] == [{"v": x} for x in range(20, 0, -1)]
    assert yard.rows("SELECT DISTINCT step FROM metrics") == [{"step": 3}]


def test_json_has_null_without_a_value(yard: Yard) -> None:
    (trial,) = [e for e in yard.events("run", "--", "true") if e["event"] == "trial"]
    assert trial["value"] is None
    assert json.loads(yard.run("show", "--json").stdout)["trials"][0]["value"] is None


def test_runs_of_one_second_do_not_share_a_directory(yard: Yard) -> None:
    now = time.time()
    ps = [yard.start("run", "--", "true") for _ in range(3)]
    assert [p.wait(120) for p in ps] == [0, 0, 0]
    for p in ps:
        p.communicate()
    dirs = {r["logdir"] for r in yard.rows("SELECT logdir FROM runs")}
    assert len(dirs) == 3 and time.time() >= now


def test_a_command_is_run_when_the_run_has_ended(yard: Yard) -> None:
    notified = yard.project / "notified"
    yard.run("run", "--name", "night", "--grid", "x=1..2", "--max", "acc",
             "--notify", f'echo "$HOPYARD_RUN $HOPYARD_NAME $HOPYARD_STATE $HOPYARD_METRIC $HOPYARD_BEST" >> {notified}',
             "--", "sh", "-c", "echo acc=0.{x}")
    yard.wait_idle()
    assert notified.read_text() == "1 night done acc 0.2\n"
    yard.run("run", "--notify", f"echo $HOPYARD_STATE >> {notified}; exit 7", "--", "false", rc=1)
    yard.wait_idle()
    assert notified.read_text().splitlines()[1] == "failed" and yard.state(2) == "failed"
    assert "the --notify command failed with status 7" in (yard.project / ".hopyard/run-2.log").read_text()
