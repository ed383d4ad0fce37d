# SPDX-License-Identifier: Apache-2.0
"""A build on a machine without Node.js: one line says what is missing, and the rest is built."""
from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def path_without(program: str, folder: Path) -> str:
    """PATH with links to everything but `program`: it may be in a directory with the compiler."""
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for found in Path(directory).iterdir() if os.path.isdir(directory) else ():
            link = folder / found.name
            if found.name != program and os.access(found, os.X_OK):
                link.unlink(missing_ok=True)
                link.symlink_to(found)
    return str(folder)


def test_a_build_without_node_says_so_in_one_line_and_embeds_no_page(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    env = {**os.environ, "PATH": path_without("node", tmp_path / "bin")}
    assert shutil.which("meson", path=env["PATH"]) and not shutil.which("node", path=env["PATH"])
    build = tmp_path / "build"
    setup = subprocess.run(["meson", "setup", build, ROOT, "-Dpython=false", "-Dtests=false"], env=env, text=True,
                           capture_output=True)
    assert setup.returncode == 0, setup.stdout + setup.stderr
    said = [line for line in setup.stdout.splitlines() if "web page" in line]
    assert said == ["Message: building without the web page: Node.js or web/node_modules is missing "
                    "(make setup installs both)"]
    subprocess.run(["ninja", "-C", build, "src/web/assets_data.c"], env=env, check=True, stdout=subprocess.DEVNULL)
    assert (build / "src/web/assets_data.c").read_text().splitlines() == [
        '#include "web/assets.h"', "", "", "const struct hy_asset hy_assets[] = {", "    {0},", "};"]
