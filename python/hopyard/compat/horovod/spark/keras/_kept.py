# SPDX-License-Identifier: Apache-2.0
"""Estimators and models that are saved and loaded by Spark ML's `save` and `load`, in pipelines, too.

Loading unpickles parameters: only load from trusted sources.
"""

import base64
from typing import Any

from pyspark import cloudpickle
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable

from . import _models

_LEFT_OUT = ("backend", "store")  # they belong to a session; set them again


class _Writer(DefaultParamsWriter):
    """The parameters are kept beside Spark's metadata, which has JSON only."""

    def saveImpl(self, path: str) -> None:  # noqa: N802  # as pyspark has it
        values = {param.name: value for param, value in self.instance._paramMap.items() if param.name not in _LEFT_OUT}
        model, optimizer = values.pop("model", None), values.pop("optimizer", None)
        kept: dict[str, Any] = {"values": values}
        if model is not None:
            kept["model"] = _models.package_of(model), _models.to_bytes(model)
        if isinstance(optimizer, str):
            values["optimizer"] = optimizer
        elif optimizer is not None:
            kept["optimizer"] = _models.optimizer_to_config(optimizer)
        extra = {"kept": base64.b64encode(cloudpickle.dumps(kept)).decode()}
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession, extra, paramMap={})


class _Reader(DefaultParamsReader):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        kept = cloudpickle.loads(base64.b64decode(metadata["kept"]))
        instance, values = self.cls(), kept["values"]
        instance._resetUid(metadata["uid"])
        if "model" in kept:
            package, data = kept["model"]
            values["model"] = _models.load(data, package, values.get("custom_objects") or {})
        if "optimizer" in kept:
            values["optimizer"] = _models.optimizer_from_config(*kept["optimizer"])
        return instance._set(**values)


class Kept(MLReadable, MLWritable):
    def write(self) -> _Writer:
        return _Writer(self)

    @classmethod
    def read(cls) -> _Reader:
        return _Reader(cls)
