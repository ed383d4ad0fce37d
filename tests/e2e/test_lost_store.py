# SPDX-License-Identifier: Apache-2.0
"""Ended runs survive the loss of store.db: snapshots, and messages when the store is gone."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import Yard, wait_for


def run_three(yard: Yard) -> None:
    """Two runs that are done, and one that has failed."""
    for i in (1, 2):
        yard.run("run", "--grid", f"i={i},{i + 10}", "--max", "v", "--", "sh", "-c", "echo v={i}")
    yard.run("run", "--", "sh", "-c", "test -e good && echo $WORD > word", rc=1, env={"WORD": "secret-word"})
    yard.wait_idle()


def lose(yard: Yard, size: int | None) -> None:
    for path in yard.folder.glob("store.db*"):
        path.unlink()
    if size is not None:
        (yard.folder / "store.db").write_bytes(b"x" * size)


def kept(yard: Yard) -> list[Path]:
    return sorted(yard.folder.glob("runs/*"))


@pytest.mark.parametrize("size", [None, 0])
def test_ended_runs_survive_the_loss_of_the_store(yard: Yard, size: int | None) -> None:
    run_three(yard)
    assert [(path.name, path.stat().st_mode & 0o777) for path in kept(yard)] == [(f"{i}.db", 0o600) for i in (1, 2, 3)]
    lose(yard, size)
    for args in (["ls"], ["ls", "--json"], ["show", "1"], ["resume", "3"], ["rm", "--force", "1"], ["gc", "--logs"]):
        done = yard.run(*args, rc=1)
        assert "is empty or missing, though there were runs: `hopyard import " in done.stderr, (args, done)
    assert len(kept(yard)) == 3 and len(list(yard.project.glob("Logs/TensorFlow/*/*"))) == 3

    done = yard.run("run", "--", "true")
    yard.wait_idle()
    assert "restores the 3 finished runs" in done.stdout, done
    assert [r["id"] for r in yard.rows("SELECT id FROM runs")] == [4], "run numbers are not reused"
    refused = yard.run("gc", "--logs", rc=1)
    assert "snapshots of 3 runs" in refused.stderr and len(list(yard.project.glob("Logs/TensorFlow/*/*"))) == 4

    assert yard.run("import", *sorted(yard.folder.glob("runs/*.db"))).stdout == "3 runs added\n"
    assert [r["id"] for r in yard.rows("SELECT id FROM runs ORDER BY id")] == [1, 2, 3, 4]
    assert [t["value"] for t in yard.trials(2)] == [2, 12]
    assert yard.run("gc", "--logs").stdout.startswith("nothing to clean up\n")
    (yard.project / "good").touch()
    yard.run("resume", "3")
    yard.wait_idle()
    assert (yard.project / "word").read_text() == "secret-word\n", "its environment was restored as well"


def test_damaged_store_is_reported_with_the_way_to_restore_runs(yard: Yard) -> None:
    run_three(yard)
    lose(yard, 5000)
    done = yard.run("ls", rc=1)
    assert "is damaged" in done.stderr and f"`hopyard import {yard.folder}/runs/*.db`" in done.stderr, done
    assert "run.db" not in done.stderr, "no runs are listed"
    yard.run("run", "--", "true", rc=1)


def test_snapshot_is_removed_with_its_run(yard: Yard) -> None:
    run_three(yard)
    yard.run("rm", "--force", "2")
    assert [path.name for path in kept(yard)] == ["1.db", "3.db"]
    assert "nothing to clean up" in yard.run("gc", "--logs").stdout


def test_snapshot_is_updated_after_a_resume(yard: Yard) -> None:
    run_three(yard)
    before = kept(yard)[2].stat().st_ino
    (yard.project / "good").touch()
    yard.run("resume", "3", env={"WORD": "another"})
    yard.wait_idle()
    assert kept(yard)[2].stat().st_ino != before
    lose(yard, 0)
    yard.run("import", *kept(yard))
    assert yard.state(3) == "done"


def test_snapshot_in_the_logs_has_no_secrets_and_cannot_be_resumed(yard: Yard, tmp_path: Path) -> None:
    env = {"HOPYARD_TEST_FS_TYPE": f"0x6969:{yard.project}", "XDG_STATE_HOME": str(tmp_path / "state"), "WORD": "secret-word"}
    yard.run("run", "--grid", "i=1,2", "--", "sh", "-c", "exit {i}", rc=1, env=env)
    yard.wait_idle()
    (shared,) = yard.project.glob("Logs/TensorFlow/*/*/run.db")
    (whole,) = tmp_path.glob("state/hopyard/*/runs/1.db")
    assert b"secret-word" in whole.read_bytes() and b"secret-word" not in shared.read_bytes()
    assert b"PATH=" in whole.read_bytes() and b"PATH=" not in shared.read_bytes()

    other = tmp_path / "other"
    other.mkdir()
    assert yard.run("import", "--project", other, shared).stdout == "1 run added\n"
    assert "exit {i}" in yard.run("show", "1", "--project", other).stdout
    done = yard.run("resume", "1", "--project", other, rc=1)
    assert "has neither its environment nor its function; resume it in the original project, or start it again" in done.stderr, done

    shutil.rmtree(tmp_path / "state")
    done = yard.run("ls", rc=1, env=env)
    assert f"`hopyard import {yard.project}/Logs/TensorFlow/*/*/run.db` restores" in done.stderr, done


def test_run_ends_although_its_snapshot_cannot_be_written(yard: Yard) -> None:
    """A directory in place of the temporary file: the run is done all the same, and its log has a warning."""
    yard.run("run", "--", "true")
    yard.wait_idle()
    (yard.folder / "runs/2.db.tmp").mkdir(mode=0o700)
    (yard.folder / "runs/2.db.tmp/x").touch()
    yard.run("run", "--", "true")
    wait_for(lambda: "no snapshot of this run was written" in (yard.folder / "run-2.log").read_text(), "the log has the warning")
    yard.wait_idle()
    assert yard.state(2) == "done" and [path.name for path in kept(yard)] == ["1.db", "2.db.tmp"]
