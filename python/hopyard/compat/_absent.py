# SPDX-License-Identifier: Apache-2.0
"""Modules of hops that hopyard cannot replace: they can be imported, and calls of their functions raise an error."""

from importlib.abc import Loader
from types import ModuleType
from typing import Any, NoReturn

from .._hopyard import Error

_WHY = {
    "the feature store": ("featurestore", "featurestore_impl"),
    "model serving": ("serving",),
    "Hopsworks' Kafka": ("kafka", "tls"),
    "Hopsworks' jobs": ("jobs",),
    "Hopsworks' projects, users and datasets": ("dataset", "project", "user", "xattr"),
    "Hopsworks' service discovery and credentials": ("credentials_provider", "service_discovery"),
    "Hopsworks' Elasticsearch": ("elasticsearch",),
    "Hopsworks' Hive": ("hive",),
    "Beam on Hopsworks' Flink": ("beam",),
    "the plotting of facets": ("facets",),
}

ABSENT = {f"hops.{module}": what for what, modules in _WHY.items() for module in modules}
"""Full names of modules, and the service that they need."""


class Absent:
    """An attribute of such a module."""

    def __init__(self, name: str, what: str) -> None:
        self._name, self._what = name, what

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}", self._what)

    def __call__(self, *args: Any, **given: Any) -> NoReturn:
        raise Error(
            f"{self._name}() needs {self._what}, which hopyard does not have; see docs/hops.md"
        )


class AbsentLoader(Loader):
    """Loads such a module."""

    def exec_module(self, module: ModuleType) -> None:
        everything = Absent(module.__name__, ABSENT[module.__name__])
        module.__getattr__ = everything.__getattr__  # type: ignore[method-assign]
