# SPDX-License-Identifier: Apache-2.0
"""Agents that have the run's key and violate the protocol: they are disconnected, and the run continues without them."""
from __future__ import annotations

import os
import re
import select
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, Yard, wait_for

HOSTILE = os.environ.get("HOPYARD_HOSTILE", str(Path(BIN).absolute().parents[2] / "tests" / "hostile_agent"))


def answer(agent: subprocess.Popen[str]) -> str:
    """The next line of a hostile agent; "" if it has ended."""
    assert agent.stdout
    return agent.stdout.readline().strip() if select.select([agent.stdout], [], [], 60)[0] else ""


def cases(kind: str) -> list[str]:
    lines = subprocess.run([HOSTILE, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[0] for line in lines if line.split()[1] == kind]


class Attacked:
    """A run with its own healthy agent, whose trials wait at a gate, and hostile agents with a trial each."""

    def __init__(self, yard: Yard, *names: str) -> None:
        self.yard, self.gate = yard, yard.project / "gate"
        trials = (os.cpu_count() or 1) + len(names)
        self.client = yard.start("run", "--listen", "127.0.0.1:0", "--grid", f"x=1..{trials}", "--max", "v", "--", "sh", "-c",
                                 f"while [ ! -e {self.gate} ]; do sleep 0.05; done; echo v={{x}}")
        match = wait_for(lambda: re.search(r"--join HOST:(\d+) --key-file (\S+)", yard.driver_log()), "the log says how to join")
        self.port, self.key = match[1], match[2]
        wait_for(lambda: yard.state() and yard.attempts(), "its own agent runs a trial")
        self.agents = {name: self.join(name) for name in names}
        for name, agent in self.agents.items():
            assert answer(agent) == "ready", name

    def join(self, name: str) -> subprocess.Popen[str]:
        return subprocess.Popen([HOSTILE, self.port, self.key, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, env=self.yard.env)

    def attack(self) -> None:
        for agent in self.agents.values():
            assert agent.stdin
            agent.stdin.write("\n")
            agent.stdin.flush()

    def answers(self) -> dict[str, str]:
        return {name: answer(agent) for name, agent in self.agents.items()}

    def leave(self) -> None:
        for agent in self.agents.values():
            if agent.stdin:
                agent.stdin.close()
            agent.wait(60)

    def finish(self) -> str:
        """The run succeeds, with all trials done."""
        self.gate.touch()
        out, err = self.client.communicate(timeout=240)
        assert self.client.returncode == 0, out + err + self.yard.driver_log()
        trials = self.yard.trials()
        assert all(t["state"] == "done" and t["value"] == t["number"] for t in trials)
        return out + err


def disconnected(name: str, output: str) -> bool:
    """The log has the defects of two of them instead of their names."""
    shown_name = r"127\.0\.0\.1:\d+" if name in ("name-long", "host-long", "gpus-many") else re.escape(name)
    return bool(re.search(rf"agent {shown_name} at \S+ is disconnected \(it violated the protocol: .*\); its trials run on other agents", output))


@pytest.mark.parametrize("name", ["offset-end", "name-long", "files-announced", "files-empty", "offsets-sparse"])
def test_agent_that_violates_the_protocol_does_not_end_the_run(yard: Yard, name: str) -> None:
    run = Attacked(yard, name)
    run.attack()
    assert run.answers() == {name: "gone"}
    run.leave()
    assert disconnected(name, run.finish())


def test_every_hostile_message_disconnects_only_its_agent(yard: Yard) -> None:
    names = [n for n in cases("dropped") if n != "files-empty"]  # it takes long, and was tested above
    run = Attacked(yard, *names)
    run.attack()
    assert run.answers() == dict.fromkeys(names, "gone")
    run.leave()
    output = run.finish()
    assert [n for n in names if not disconnected(n, output)] == []
    lost = [a for a in yard.attempts() if a["state"] == "lost"]
    assert {a["agent"] for a in lost} == set(names) - {"name-long", "host-long", "gpus-many"}
    assert not [f for f in yard.project.rglob("*") if f.name in ("out", "x" * 100)], "no file was written elsewhere"


def test_floods_of_messages_are_not_stored(yard: Yard) -> None:
    names = cases("harmless")
    run = Attacked(yard, *names)
    run.attack()
    assert run.answers() == dict.fromkeys(names, "sent")
    wait_for(lambda: yard.driver_log().count("has left (the case is complete)") == len(names), "all messages were received")
    run.leave()
    out = run.finish()
    log = (yard.folder / "run-1.log").read_bytes()
    assert len(log.splitlines()) < 3000 and len(log) < 500_000
    assert b"\x1b" not in log and "\x1b" not in out
    assert not re.search("[\x00-\x09\x0b-\x1f]", yard.run("show", 1).stdout)
    assert "<script>" not in yard.run("attach", 1, "--html").stdout


def test_disconnected_agent_may_not_rejoin_at_once(yard: Yard) -> None:
    run = Attacked(yard, "offset-end")
    run.attack()
    assert run.answers() == {"offset-end": "gone"}
    again = run.join("note-long")
    assert answer(again) == "gone"
    run.agents["note-long"] = again
    run.leave()
    output = run.finish()
    assert re.search("no agent may join from there for 10 s", output)
    assert "agent note-long has joined" not in output and output.count("has joined") == 1
