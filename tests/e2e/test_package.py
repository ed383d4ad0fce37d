# SPDX-License-Identifier: Apache-2.0
"""The wheel, and the setup on machines without some packages."""
from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import RELEASE_BIN, ROOT, Yard
from ui import Ui


def has_werror(build: Path, env: dict[str, str]) -> bool:
    """As `make test` configures the build. With another value everything would be compiled again."""
    if not (build / "meson-info").exists():
        return False
    options = subprocess.run(["meson", "introspect", build, "--buildoptions"], check=True, capture_output=True, env=env).stdout
    return next(option["value"] for option in json.loads(options) if option["name"] == "werror")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pip wheel .` of the tree, built in the directory that the setup uses, so that little is rebuilt."""
    out, build = tmp_path_factory.mktemp("wheel"), ROOT / "build/wheel"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out,
                    f"-Cbuild-dir={build}", f"-Csetup-args=-Dwerror={str(has_werror(build, env)).lower()}", str(ROOT)], check=True, env=env)
    return next(out.glob("*.whl"))


def test_one_wheel_serves_every_python_from_3_11(wheel: Path) -> None:
    assert re.fullmatch(r"hopyard-[\d.]+-cp311-abi3-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as z:
        metadata = next(z.read(n).decode() for n in z.namelist() if n.endswith("METADATA"))
    needs = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert needs == ["cloudpickle>=3"], "neither TensorFlow nor Spark nor anything else"
    assert re.search(r"License.*Apache-2\.0", metadata)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of an environment that has only the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    subprocess.run([sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet", "--no-deps", "--no-index",
                    str(wheel)], check=True)
    return folder / "bin"


def test_wheel_works_in_a_clean_environment(installed: Path, tmp_path: Path) -> None:
    code = "from hopyard import search; s = search.Grid({'a': [1, 2]}); print(s.ask().params)"
    assert subprocess.run([installed / "python", "-c", code], check=True, capture_output=True, text=True).stdout == "{'a': 1}\n"
    env = {"PATH": os.environ["PATH"], "HOPYARD_PROJECT": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "r"), "HOME": str(tmp_path)}
    p = subprocess.run([installed / "hopyard", "run", "--grid", "x=1,2", "--", "echo", "{x}"], env=env, text=True, capture_output=True)
    assert p.returncode == 0, p.stdout + p.stderr
    p = subprocess.run([installed / "horovodrun", "-np", "2", "echo", "hi"], env=env, text=True, capture_output=True)
    assert sorted(p.stdout.splitlines()) == ["[0] hi", "[1] hi"], p.stdout + p.stderr


def test_installed_wheel_serves_its_page_without_node(installed: Path, yard: Yard) -> None:
    yard.bin, yard.env["PATH"] = str(installed / "hopyard"), str(yard.runtime)  # no programs there
    server = Ui(yard)
    server.log_in()
    html = server.request("/")
    assert html.status == 200 and html.headers["Content-Type"].startswith("text/html") and b'<div id="app">' in html.body
    for name, kind in (("app.js", "text/javascript"), ("app.css", "text/css")):
        assert f'"assets/{name}"'.encode() in html.body
        asset = server.request(f"/assets/{name}", accept_encoding="gzip")
        assert asset.status == 200 and asset.headers["Content-Type"].startswith(kind)
        assert len(gzip.decompress(asset.body)) > 10_000
    server.end()  # it has printed nothing about a missing page


def test_program_is_one_file_that_needs_only_glibc() -> None:
    has_counters = "COVERAGE_PROCESS_START" in os.environ  # make coverage: it is larger, and not a release
    assert os.path.getsize(RELEASE_BIN) < (16 if has_counters else 8) * 1024 * 1024
    libraries = re.findall(r"^\s*(\S+)", subprocess.run(["ldd", RELEASE_BIN], check=True, capture_output=True, text=True).stdout, re.M)
    allowed = re.compile(r"(linux-vdso|/lib64/ld-linux[-\w]*|libc|libm|libdl|librt|libpthread|libresolv)\.so\.\d+")
    assert libraries and all(allowed.fullmatch(name) for name in libraries), libraries


def test_setup_without_apt_lists_what_to_install() -> None:
    """A machine without apt and without the packages: only the tools for the search are installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for tool in ("bash", "sh", "sed", "grep", "cat", "tr", "sort", "id", "env", "dirname", "cut", "head", "awk", "python3"):
            found = next((Path(d) / tool for d in ("/usr/bin", "/bin") if (Path(d) / tool).exists()), None)
            if found:
                (folder / tool).symlink_to(found)
        shutil.copy(ROOT / "tools/setup.sh", folder)
        p = subprocess.run([folder / "bash", folder / "setup.sh", "build"], env={"PATH": name, "HOME": "/"}, text=True,
                           capture_output=True, cwd="/", user=65534 if os.getuid() == 0 else None)
    output = p.stdout + p.stderr
    assert p.returncode != 0
    for package in ("libuv1-dev", "libssl-dev", "libprotobuf-c-dev", "protobuf-c-compiler", "libsqlite3-dev", "libjansson-dev"):
        assert package in output, output
