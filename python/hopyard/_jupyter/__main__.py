# SPDX-License-Identifier: Apache-2.0
"""Runs JupyterLab in a project. `hopyard notebook` executes this program, with the form's settings in its environment.

    python -m hopyard._jupyter PROJECT MODE PORT BROWSER [SOCKET [PREFIX]]

PORT is 0 for any free port, "" for Jupyter's default or the next one; BROWSER is 1 to open one. With a SOCKET it
listens there, for a proxy that serves it at PREFIX and sends $HOPYARD_APP_TOKEN with each request.
"""

import os
import pathlib
import shutil
import signal
import sys
from typing import Any

from .._base.errors import Error

SPECS = "hopyard._jupyter.kernel_specs.KernelSpecs"
NEWS = "@jupyterlab/apputils-extension:announcements"
NOISY_FUNCTIONS = ("start_app", "_signal_stop")  # of the server: they log start and stop messages as critical


def main(project: str, mode: str, port: str, browser: str, sock: str = "", prefix: str = "/") -> None:
    try:
        from jupyterlab.labapp import LabApp
    except ImportError as error:
        raise Error(
            f"JupyterLab is not installed for {sys.executable} ({error}); install it with: "
            f"{sys.executable} -m pip install jupyterlab"
        ) from None
    os.environ["HOPYARD_PROJECT"] = project
    folder = _notebooks(project)
    listening = _behind_proxy(sock, prefix) if sock else _on_port(port)
    server = LabApp.initialize_server([], config=_config(folder, mode, browser == "1", **listening))
    server.log.addFilter(lambda record: record.funcName not in NOISY_FUNCTIONS)
    signal.signal(signal.SIGINT, server._signal_stop)  # without a prompt
    if not sock:
        server.io_loop.add_callback(_announce, server, mode)  # it listens by then
    server.start()
    if sock:
        pathlib.Path(sock).unlink(missing_ok=True)


def _notebooks(project: str) -> str:
    """The directory of notebooks, which is created with the tour."""
    folder = os.path.join(project, "Jupyter")
    tour = os.path.join(folder, "tour")
    if not os.path.lexists(tour):
        try:
            shutil.copytree(os.path.join(os.path.dirname(__file__), "tour"), tour, dirs_exist_ok=True)
        except OSError as error:
            raise Error(f"cannot create the directory of notebooks: {error}") from None
    return folder


def _on_port(port: str) -> dict[str, Any]:
    chosen = {"port": int(port), "port_retries": 0} if port else {}
    return {"ServerApp": {"ip": "127.0.0.1", **chosen}}


def _behind_proxy(sock: str, prefix: str) -> dict[str, Any]:
    token = os.environ.pop("HOPYARD_APP_TOKEN", None)
    # The proxy has checked the origin of each request.
    server = {"sock": sock, "sock_mode": "0600", "base_url": prefix, "allow_remote_access": True}
    return {"ServerApp": server, "IdentityProvider": {"token": token} if token else {}}


def _config(folder: str, mode: str, browser: bool, **listening: dict[str, Any]) -> Any:
    """It takes precedence over the user's configuration files."""
    from traitlets.config import Config

    return Config(
        {
            "Application": {"log_level": "ERROR", "log_format": "hopyard notebook: %(message)s"},
            **listening,
            "ServerApp": {
                **listening["ServerApp"],
                "root_dir": folder,
                "open_browser": browser,
                "kernel_spec_manager_class": SPECS,
                "allow_root": True,  # it listens on this machine only, and requires a token
                "tornado_settings": {"page_config_hook": _without_news},
            },
            "KernelSpecs": {"mode": mode},
            "KernelManager": {"transport": "ipc"},  # through TCP, other users of the machine could read all output
            "LabApp": {
                "extension_manager": "readonly",
                "workspaces_dir": os.path.join(folder, ".workspaces"),  # the open notebooks, per project
            },
        }
    )


def _without_news(handler: Any, page: dict[str, Any]) -> dict[str, Any]:
    """JupyterLab's settings for a browser, without its prompt to fetch news and check for updates."""
    return {**page, "disabledExtensions": [*page.get("disabledExtensions", []), NEWS]}


def _announce(server: Any, mode: str) -> None:
    token = server.identity_provider.token
    print(f"JupyterLab ({mode}) http://127.0.0.1:{server.port}{server.base_url}lab{f'?token={token}' if token else ''}")
    print("Ctrl-C ends it and its kernels; runs continue.", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Error as error:
        sys.exit(f"hopyard notebook: {error}")
    except KeyboardInterrupt:  # before the server runs
        sys.exit(130)
