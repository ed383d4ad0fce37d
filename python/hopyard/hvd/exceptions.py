# SPDX-License-Identifier: Apache-2.0
"""The errors that Horovod's users catch."""

from .._base.errors import Error


class HorovodInternalError(Error, RuntimeError):
    """A collective failed since a rank is lost. elastic.run restores the last commit and goes on."""


class HostsUpdatedInterrupt(Error, RuntimeError):
    """Ranks wait to be taken in, or are to go. elastic.run makes a new group of them; nothing is restored."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks of this training change; only a function under elastic.run can go on")
        self.skip_sync = skip_sync
