# SPDX-License-Identifier: Apache-2.0
"""Models with versions: the folders Models/NAME/VERSION, each with a file VERSION.json beside it."""

import getpass
import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from typing import Any

from hopyard import Error, hdfs


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
    """Copies a model, a file or all that is in a folder, to a version of its own; that version's folder."""
    source = model_path if os.path.exists(model_path) else hdfs.abs_path(model_path)
    if not os.path.exists(source):
        raise ValueError(f"there is no model '{model_path}', neither here nor in the project")
    numbers = {name: float(value) for name, value in (metrics or {}).items()}
    folder, version = _make(_models(project, model_name), model_version, overwrite)
    if os.path.isdir(source):
        shutil.copytree(source, folder, dirs_exist_ok=True)
    else:
        shutil.copy2(source, folder)
    about = {
        "name": str(model_name),
        "version": version,
        "metrics": numbers,
        "description": description or f"A collection of models for {model_name}",
        "created": time.time_ns() // 1_000_000,
        "user": getpass.getuser(),
        "experimentId": os.environ.get("HOPYARD_TRIAL_DIR"),
    }
    with open(f"{folder}.json", "w", encoding="utf-8") as file:
        json.dump(about, file)
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
        raise ValueError(f"the direction is '{direction}'; it is Metric.MAX or Metric.MIN")
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
    """Packs a version of a model, or all of them, as NAME[VERSION].zip in this folder; its path."""
    folder, archive = _models(project_name, name), os.path.abspath(f"{name}{version or ''}")
    if version is not None:
        get_model(name, version, project_name)
        folder = os.path.join(folder, str(version))
    elif not _versions(folder):
        raise ModelNotFound(f"there is no model '{name}'")
    if os.path.exists(f"{archive}.zip") and not overwrite:
        raise ModelArchiveExists(f"'{archive}.zip' is there already; overwrite=True replaces it")
    return shutil.make_archive(archive, "zip", folder)


def _models(project: str | None, name: object) -> str:
    return hdfs.abs_path(os.path.join("Models", str(name)), project)


def _make(models: str, version: int | None, overwrite: bool) -> tuple[str, int]:
    """A version's folder, new or emptied. Trials export at once: who makes a folder has its number."""
    os.makedirs(models, exist_ok=True)
    if version is not None and overwrite and os.path.isdir(os.path.join(models, str(version))):
        shutil.rmtree(os.path.join(models, str(version)))
    number = version or max((int(name) for name in os.listdir(models) if name.isdigit()), default=0) + 1
    while True:
        folder = os.path.join(models, str(number))
        try:
            os.mkdir(folder)
            return folder, number
        except FileExistsError:
            if version is not None:
                raise ValueError(f"'{folder}' is there already; overwrite=True replaces it") from None
        number += 1


def _versions(models: str) -> list[dict[str, Any]]:
    """All versions of a model, the numbers of their metrics as text, as Hopsworks has them."""
    found = []
    for entry in sorted(os.scandir(models), key=lambda e: e.name) if os.path.isdir(models) else ():
        if entry.name.endswith(".json") and entry.name[:-5].isdigit():
            with open(entry.path, encoding="utf-8") as file:
                model = json.load(file)
            model["metrics"] = {name: str(value) for name, value in model["metrics"].items()}
            found.append(model)
    return found
