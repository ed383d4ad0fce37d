# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd.exceptions import HorovodInternalError as HorovodInternalError
from hopyard.hvd.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    return f"{name} is {version}, and Horovod was built for {installed_version}"


class HorovodVersionMismatchError(ImportError):
    """Never raised, but can be caught: one build of hopyard works with every TensorFlow."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
