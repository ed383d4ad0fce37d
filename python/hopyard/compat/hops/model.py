# SPDX-License-Identifier: Apache-2.0
"""Versioned models: the directories Models/NAME/VERSION, each with a file VERSION.json beside it."""

import getpass
import json
import math
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from hopyard import Error, _hopyard, hdfs


class Metric:
    MAX = "MAX"
    MIN = "MIN"


class ModelNotFound(Error):
    pass


class ModelArchiveExists(Error):
    pass


def export(
    model_path: str, model_name: str, model_version: int | None = None, overwrite: bool = False,
    metrics: Mapping[str, float] | None = None, description: str | None = None, synchronous: bool = True,
    synchronous_timeout: int = 120, project: str | None = None,
) -> str:  # fmt: skip
    """Copies a model, a file or the contents of a directory, to a new version; returns the version's directory."""
    source = os.path.abspath(model_path) if os.path.exists(model_path) else hdfs.abs_path(model_path)
    if not os.path.exists(source) and not hdfs.exists(source):
        raise ValueError(f"there is no model '{model_path}', neither locally nor in the project")
    numbers = {name: float(value) for name, value in (metrics or {}).items()}
    folder, version = _make(_models(project, model_name), source, model_version, overwrite)
    about = {
        "name": str(model_name),
        "version": version,
        "metrics": numbers,
        "description": description or f"A collection of models for {model_name}",
        "created": time.time_ns() // 1_000_000,
        "user": getpass.getuser(),
        "experimentId": os.environ.get("HOPYARD_TRIAL_DIR"),
        "run": _number_of("HOPYARD_RUN"),
        "trial": _number_of("HOPYARD_TRIAL"),
    }
    hdfs.dump(json.dumps(about), f"{folder}.json")
    return folder


def get_model(name: str, version: int, project_name: str | None = None) -> dict[str, Any]:
    """One version of a model."""
    for model in _versions(_models(project_name, name)):
        if model["version"] == int(version):
            return model
    raise ModelNotFound(f"there is no version {version} of a model '{name}'")


def get_best_model(name: str, metric: str, direction: str) -> dict[str, Any]:
    """The version of a model whose metric is the highest (Metric.MAX) or the lowest (Metric.MIN)."""
    if direction.upper() not in (Metric.MAX, Metric.MIN):
        raise ValueError(f"invalid direction '{direction}': it must be Metric.MAX or Metric.MIN")
    models = [
        m for m in _versions(_models(None, name)) if not math.isnan(float(m["metrics"].get(metric, "nan")))
    ]
    if not models:
        raise ModelNotFound(f"there is no model '{name}' with a metric '{metric}'")
    better = max if direction.upper() == Metric.MAX else min
    return better(models, key=lambda m: float(m["metrics"][metric]))


def download_model(
    name: str, version: int | None = None, project_name: str | None = None, overwrite: bool = False
) -> str:
    """Packs a version of a model, or all versions, as NAME[VERSION].zip in the current directory; returns its path."""
    folder, archive = _models(project_name, name), os.path.abspath(f"{name}{version or ''}")
    if version is not None:
        get_model(name, version, project_name)
        folder = f"{folder}/{version}"
    elif not _versions(folder):
        raise ModelNotFound(f"there is no model '{name}'")
    if os.path.exists(f"{archive}.zip") and not overwrite:
        raise ModelArchiveExists(f"'{archive}.zip' already exists; pass overwrite=True to replace it")
    with tempfile.TemporaryDirectory() as here:
        return shutil.make_archive(archive, "zip", hdfs.copy_to_local(folder, here) if "://" in folder else folder)


def _number_of(variable: str) -> int | None:
    """Of the run or trial that exports the model; None outside of one."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _models(project: str | None, name: object) -> str:
    return hdfs.abs_path(os.path.join("Models", str(name)), project)


def _make(models: str, source: str, version: int | None, overwrite: bool) -> tuple[str, int]:
    """Creates a version's directory with the model. Trials may export concurrently: the rename decides who gets a
    number."""
    draft = f"{models}/.{secrets.token_hex(8)}"
    _hopyard.mkdirs(draft)
    try:
        is_folder = _hopyard.stat(source).is_dir
        for path in [_hopyard.join(source, e.name) for e in _hopyard.list(source)] if is_folder else [source]:
            _hopyard.copy(path, draft)
        return _number(models, draft, version, overwrite)
    except BaseException:
        _hopyard.remove(draft, True)
        raise


def _number(models: str, draft: str, version: int | None, overwrite: bool) -> tuple[str, int]:
    if version is not None and overwrite:
        hdfs.delete(f"{models}/{version}", recursive=True)
    taken = (int(e.name) for e in _hopyard.list(models) if e.name.isdigit())
    number = version or max(taken, default=0) + 1
    while True:
        try:
            _hopyard.rename(draft, f"{models}/{number}")
            return f"{models}/{number}", number
        except FileExistsError:
            if version is not None:
                raise ValueError(f"'{models}/{number}' already exists; pass overwrite=True to replace it") from None
        number += 1


def _versions(models: str) -> list[dict[str, Any]]:
    """All versions of a model, with metrics as strings, as in Hopsworks."""
    found = []
    for path in hdfs.ls(models) if hdfs.isdir(models) else ():
        name, kind = os.path.splitext(os.path.basename(path))
        if kind == ".json" and name.isdigit():
            model = json.loads(hdfs.load(path))
            model["metrics"] = {name: str(value) for name, value in model["metrics"].items()}
            found.append(model)
    return found
