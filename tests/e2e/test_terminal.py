# SPDX-License-Identifier: Apache-2.0
"""The live table and Ctrl-C, in a real terminal (tmux)."""
from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest
from conftest import Yard, wait_for


class Terminal:
    """A separate tmux server with a shell."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.socket = str(yard.runtime / "tmux")
        self.tmux("new-session", "-d", "-x", "100", "-y", "30", "env", "-u", "NO_COLOR", "PS1=$ ", "sh")

    def tmux(self, *args: str) -> str:
        env = {**self.yard.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *args], env=env, check=True, text=True,
                              capture_output=True, cwd=self.yard.project).stdout

    def type(self, *args: object) -> None:
        self.tmux("send-keys", "-l", shlex.join(self.yard.command(*args)))
        self.tmux("send-keys", "Enter")

    def key(self, name: str) -> None:
        self.tmux("send-keys", name)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def see(self, pattern: str, seconds: float = 60) -> str:
        def look() -> str | None:
            text = self.screen()
            return text if re.search(pattern, text) else None
        try:
            return str(wait_for(look, pattern, seconds))
        except AssertionError as e:
            raise AssertionError(f"{e}; the screen was:\n{self.screen()}") from None


@pytest.fixture
def terminal(yard: Yard) -> Iterator[Terminal]:
    t = Terminal(yard)
    try:
        yield t
        # A SIGHUP while LeakSanitizer examines the process would stop it for good.
        wait_for(lambda: t.tmux("display", "-p", "#{pane_current_command}").strip() == "sh", "the command in the terminal ends")
    finally:
        t.tmux("kill-server")
        wait_for(lambda: not yard.processes("tmux"), "tmux exits")


@pytest.mark.smoke
def test_table_shows_running_trials_and_the_best(yard: Yard, terminal: Terminal) -> None:
    gate = yard.project / "gate"
    terminal.type("run", "--grid", "lr=0.1,0.2,0.3", "--grid", "act=relu,tanh", "--max", "accuracy", "--parallel", 2, "--", "sh", "-c",
                  f"echo {{act}} step=4 accuracy={{lr}}; [ {{lr}} = 0.1 ] || while [ ! -e {gate} ]; do sleep 0.05; done")
    screen = terminal.see(r"(?s)2/6.*0\.2\s+relu.*0\.2\s+tanh")
    assert re.search(r"best.*accuracy=0\.1", screen), screen
    assert re.search(r"running\s+0\.2\s+relu", screen) and re.search(r"done\s+0\.1\s+relu", screen), screen
    assert "━" in screen or "#" in screen, "a progress bar"
    gate.touch()
    screen = terminal.see(r"6 of 6 trials")
    assert "lr=0.3" in screen and re.search(r"hopyard show 1", screen), screen
    assert str(yard.logdir())[:60] in screen.replace("\n", "")


def test_ctrl_c_asks_and_detaches(yard: Yard, terminal: Terminal) -> None:
    terminal.type("run", "--", "sleep", "1000")
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"Stop the run \(s\), detach and leave it running \(d\), or continue \(c\)\?")
    assert yard.state() == "running", "the question does not stop the run"
    terminal.key("d")
    terminal.see("hopyard attach 1")
    assert yard.state() == "running"
    terminal.type("attach", 1)
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"\(s\)")
    terminal.key("s")
    terminal.see(r"stopped")
    wait_for(lambda: yard.state() == "stopped", "the run stops")
    yard.wait_idle()


def test_ctrl_c_and_continue(yard: Yard, terminal: Terminal) -> None:
    gate = yard.project / "gate"
    terminal.type("run", "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    terminal.see("running")
    terminal.key("C-c")
    terminal.see(r"continue \(c\)")
    terminal.key("c")
    gate.touch()
    terminal.see(r"1 of 1 trial")
    assert yard.state() == "done"


def test_terminal_is_restored(yard: Yard, terminal: Terminal) -> None:
    terminal.type("run", "--", "true")
    terminal.see(r"1 of 1 trial")
    terminal.tmux("send-keys", "-l", "stty -a | grep -o -- '-\\?echo\\b'; echo over")
    terminal.key("Enter")
    screen = terminal.see(r"(?m)^over")
    assert "-echo" not in screen.split("stty")[-1].split("\n", 1)[1]
    assert terminal.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1", "the cursor is visible"


def test_escape_sequences_in_values_are_not_printed(yard: Yard, terminal: Terminal) -> None:
    title = "\x1b]0;owned\x07\x1b[2J"
    terminal.type("run", "--grid", f"v={title},x", "--max", "m", "--", "sh", "-c", "printf 'm=1\\n'")
    terminal.see(r"2 of 2 trials")
    assert "owned" not in terminal.tmux("display-message", "-p", "#{pane_title}")
    assert os.path.exists(yard.logdir())


def test_gc_lists_its_actions_and_asks(yard: Yard, terminal: Terminal) -> None:
    """And it leaves alone what other projects have left, unless requested."""
    other = yard.project / "other"
    other.mkdir()
    for project, seconds in ((yard.project, 1000), (other, 2000)):
        yard.run("run", "--detach", "--project", project, "--", "sh", "-c", f"setsid sleep {seconds} & wait")
        wait_for(lambda: yard.processes(f"^sleep {seconds}"), "the trial runs")
    for end in (signal.SIGSTOP, signal.SIGKILL):  # no process is left to clean up
        for pid in yard.processes(r"hopyard (driver|agent)"):
            os.kill(pid, end)
    wait_for(lambda: not yard.processes("hopyard"), "driver and agent are gone")
    (ours,), (theirs,) = yard.processes("^sleep 1000"), yard.processes("^sleep 2000")

    output = yard.run("gc", "--dry-run", "--project", other).stdout
    assert f"would kill a process that an agent has left behind: process {theirs}\n" in output and f"process {ours}" not in output
    assert "of other projects not touched: `hopyard gc --all`" in output

    terminal.type("gc", "--project", other)
    screen = terminal.see(r"Continue\? \[y/N\]")
    assert f"would kill a process that an agent has left behind: process {theirs}" in screen
    terminal.key("Enter")
    terminal.see(r"\[y/N\] *\n\$")
    assert yard.processes("^sleep 2000"), "Enter means no"
    terminal.type("gc", "--project", other)
    terminal.see(r"(?s)Continue\?.*Continue\?")
    terminal.key("y")
    terminal.key("Enter")
    terminal.see(f"killed a process that an agent has left behind: process {theirs}")
    wait_for(lambda: not yard.processes("^sleep 2000"), "the kernel has ended the killed process")
    assert yard.processes("^sleep 1000")

    assert f"process {ours}" in yard.run("gc", "--all", "--project", other).stdout
    wait_for(lambda: not yard.processes("sleep"), "nothing is left")
