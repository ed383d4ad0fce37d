# SPDX-License-Identifier: Apache-2.0
"""Plots of a run: `hopyard show --plot`, and result.plot() of a run in the store."""
from __future__ import annotations

import json
import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest
from conftest import Yard


@pytest.fixture
def searched(yard: Yard) -> Yard:
    """Run 1: x matters, act hardly does."""
    yard.run("run", "--oversubscribe", "--parallel", "8", "--grid", "x=1,10,100,1000", "--grid", "act=relu,tanh", "--grid", "n=1..2",
             "--max", "acc", "--", "sh", "-c", "echo acc={x}; [ {act} = relu ] || echo acc={x}.5")
    return yard


def test_show_plots_history_importance_and_the_most_important_hyperparameters(searched: Yard) -> None:
    text = searched.run("show", "1", "--plot").stdout
    titles = ["acc by trial, and the best so far", "importance of hyperparameters", "acc against x (log)", "acc against "]
    at = [text.index(title) for title in titles[:3]] + [text.rindex(titles[3])]
    assert at == sorted(at) and at[2] < at[3]
    assert "trials    16: 16 done" in text and "PARAMETERS" not in text
    bars = text[at[1] : at[2]].splitlines()[1:]
    assert bars[0].split()[0] == "x" and float(bars[0].split()[1]) > 0.9
    assert "\033" not in text and max(map(len, text[at[0] :].splitlines())) <= 80


def test_plots_are_ascii_where_the_locale_is(searched: Yard) -> None:
    text = searched.run("show", "1", "--plot", env={"LC_ALL": "C"}).stdout
    assert text.isascii() and "####" in text
    assert not searched.run("show", "1", "--plot", env={"LC_ALL": "C.UTF-8"}).stdout.isascii()


def test_plots_fit_the_terminal_and_have_its_colors(searched: Yard) -> None:
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 50, 0, 0))
    env = {**searched.env, "TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": ""}
    process = subprocess.Popen(searched.command("show", "1", "--plot"), cwd=searched.project, stdout=child, env=env)
    os.close(child)
    shown = b""
    try:
        while part := os.read(parent, 65536):
            shown += part
    except OSError:  # EIO: the program has ended
        assert process.wait() == 0
    os.close(parent)
    text = shown.decode()
    axis = next(line for line in text.splitlines() if "└" in line)
    assert "\033[32m" in text and len(axis.replace("\033[2m", "").rstrip()) == 50


def test_a_run_without_values_is_not_plotted(yard: Yard) -> None:
    yard.run("run", "--oversubscribe", "--", "true")
    assert "run 1 has no metric to plot" in yard.run("show", "1", "--plot", rc=2).stderr
    yard.run("run", "--oversubscribe", "--max", "acc", "--", "true", rc=None)
    assert "no trial of run 2 has a value yet" in yard.run("show", "2", "--plot", rc=1).stderr
    yard.run("train", "--np", "1", "--", "true")
    assert "is a training" in yard.run("show", "3", "--plot", rc=2).stderr
    assert "cannot be combined with --json" in yard.run("show", "1", "--plot", "--json", rc=2).stderr


def test_show_json_names_hyperparameters_with_a_log_scale(searched: Yard) -> None:
    assert json.loads(searched.run("show", "1", "--json").stdout)["run"]["log"] == ["x"]


def test_a_result_is_plotted_with_the_log_axes_of_its_run(searched: Yard) -> None:
    code = ("from hopyard import experiment; axes = experiment.result(1).plot('scatter', ['x', 'act'], backend='matplotlib')\n"
            "print([(a.get_xlabel(), a.get_xscale(), len(a.collections[0].get_offsets())) for a in axes])")
    env = {**searched.env, "HOPYARD_PROGRAM": searched.bin, "MPLBACKEND": "Agg"}
    out = subprocess.run([sys.executable, "-c", code], env=env, cwd=searched.project, text=True, capture_output=True, check=True)
    assert out.stdout.strip() == "[('x', 'log', 16), ('act', 'linear', 16)]"
