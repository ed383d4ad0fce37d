# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Horovod's API."""

from .._base.errors import Error


class HorovodInternalError(Error, RuntimeError):
    """A collective failed because a rank is lost. elastic.run restores the last commit and continues."""


class HostsUpdatedInterrupt(Error, RuntimeError):
    """Ranks are to be added or removed. elastic.run forms a new group; nothing is restored."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks of this training change; only a function under elastic.run can go on")
        self.skip_sync = skip_sync
