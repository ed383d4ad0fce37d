# SPDX-License-Identifier: Apache-2.0
"""Where an estimator keeps its files: on a file system that the driver and all executors see.

PREFIX/intermediate_train_data.ID      the rows of a fit, as TFRecords, while it runs
PREFIX/runs/RUN_ID/checkpoint.keras    the model of the last (or the best) epoch
PREFIX/runs/RUN_ID/logs                TensorBoard's events
"""

import os
import pathlib
import re
from typing import Any, ClassVar

from hopyard import Error
from hopyard._base.files import open_url
from hopyard.tfrecord import _files

__all__ = ["AbstractFilesystemStore", "DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]


def _scheme(path: str) -> str:
    """Of a URL; '' for a path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", path)
    return found[1] if found else ""


class Store:
    """The interface; `Store.create(prefix)` makes the store that fits a path or a URL."""

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> "AbstractFilesystemStore":
        kind = HDFSStore if HDFSStore.matches(prefix_path) else FilesystemStore
        return kind(prefix_path, *args, **kwargs)


class AbstractFilesystemStore(Store):
    """Directories below one prefix."""

    schemes: ClassVar[tuple[str, ...]] = ()
    temp_dir: str | None = None  # where rank 0 keeps files before it uploads them; None: Python's default

    def __init__(
        self, prefix_path: str, train_path: str | None = None, val_path: str | None = None,
        test_path: str | None = None, runs_path: str | None = None, save_runs: bool = True,
        storage_options: Any = None, checkpoint_filename: str | None = None,
    ) -> None:  # fmt: skip
        if storage_options:
            raise Error("storage_options are not served: stores use hopyard's own file system clients, not fsspec's")
        self.prefix_path = self.get_full_path(prefix_path)
        self._train_path = self._below("intermediate_train_data", train_path)
        self._val_path = self._below("intermediate_val_data", val_path)
        self._test_path = self._below("intermediate_test_data", test_path)
        self._runs_path = self._below("runs", runs_path)
        self._save_runs = save_runs
        self.storage_options = None
        self.checkpoint_filename = checkpoint_filename or "checkpoint.keras"
        if not self.checkpoint_filename.endswith((".keras", ".h5")):
            raise ValueError(f"checkpoint_filename '{self.checkpoint_filename}' must end in '.keras' or '.h5'")

    def _below(self, name: str, given: str | None) -> str:
        return self.get_full_path(given) if given else os.path.join(self.prefix_path, name)

    # ---- paths

    def get_full_path(self, path: str) -> str:
        """As a URL."""
        scheme = _scheme(path)
        if scheme and scheme not in self.schemes:
            served = ", ".join(f"{name}://" for name in self.schemes)
            raise Error(f"'{path}': a {type(self).__name__} serves {served}, not {scheme}://")
        return path if scheme else self._url(path)

    def _url(self, path: str) -> str:
        raise NotImplementedError

    def get_localized_path(self, path: str) -> str:
        """Without scheme and host."""
        return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*", "", path)

    def get_train_data_path(self, idx: Any = None) -> str:
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: Any = None) -> str:
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: Any = None) -> str:
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def saving_runs(self) -> bool:
        """Whether checkpoints and logs are kept when a fit has ended."""
        return self._save_runs

    def get_runs_path(self) -> str:
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        return os.path.join(self._runs_path, run_id)

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The directory that contains the checkpoint."""
        return self.get_run_path(run_id) if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        return self.checkpoint_filename

    def get_checkpoints(self, run_id: str, suffix: str = ".keras") -> list[str]:
        from hopyard import _hopyard

        run = _place(self.get_run_path(run_id))
        return sorted(_hopyard.join(run, info.name) for info in _hopyard.list(run) if info.name.endswith(suffix))

    def get_logs_path(self, run_id: str) -> str | None:
        return os.path.join(self.get_run_path(run_id), self.get_logs_subdir()) if self._save_runs else None

    def get_logs_subdir(self) -> str:
        return "logs"

    # ---- contents

    def exists(self, path: str) -> bool:
        return _files.exists(_place(path))

    def read(self, path: str) -> bytes:
        with open_url(_place(path), "r") as file:
            return bytes(file.read())

    def write_text(self, path: str, text: str) -> None:
        with open_url(_place(path), "w") as file:
            file.write(text.encode())

    @property
    def fs(self) -> Any:
        """The file system, as fsspec has it."""
        import fsspec

        return fsspec.core.url_to_fs(self.prefix_path)[0]

    def get_filesystem(self) -> Any:
        return self.fs


def _place(path: str) -> str:
    """As hopyard's file functions take it: file:///a is /a."""
    return _files.resolve(path, "")


class FilesystemStore(AbstractFilesystemStore):
    """A directory of this machine, or one on HDFS."""

    schemes = ("file", "hdfs", "hopsfs")

    def _url(self, path: str) -> str:
        return pathlib.Path(os.path.abspath(path)).as_uri()

    @classmethod
    def matches(cls, path: str) -> bool:
        return True


class LocalStore(FilesystemStore):
    """A FilesystemStore under its former name."""


class HDFSStore(AbstractFilesystemStore):
    """A directory on HDFS: "hdfs://namenode:8020/path", "hdfs:///path" or "/path".

    Where the path names no host and none is given, the cluster is that of fs.defaultFS. `driver` is accepted and has no
    effect: the client is hopyard's own.
    """

    schemes = ("hdfs", "hopsfs")

    def __init__(
        self, prefix_path: str, host: str | None = None, port: int | None = None, user: str | None = None,
        kerb_ticket: str | None = None, driver: str = "libhdfs", extra_conf: Any = None,
        temp_dir: str | None = None, *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        for name, value, instead in (
            ("user", user, "set HADOOP_USER_NAME"), ("kerb_ticket", kerb_ticket, "set KRB5CCNAME"),
            ("extra_conf", extra_conf, "put the settings into $HADOOP_CONF_DIR"),
        ):  # fmt: skip
            if value:
                raise Error(f"HDFSStore does not serve {name}: {instead} instead")
        self._root = f"hdfs://{'' if host in (None, 'default') else host}{f':{port}' if port else ''}"
        self.temp_dir = temp_dir
        super().__init__(prefix_path, *args, **kwargs)

    def _url(self, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError(f"'{path}': a path on HDFS begins with '/'")
        return self._root + path

    @classmethod
    def matches(cls, path: str) -> bool:
        return _scheme(path) in cls.schemes


class DBFSLocalStore(Store):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Error("DBFSLocalStore is not served: use Store.create with a path that all executors see, or with hdfs://")
