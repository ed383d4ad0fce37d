# SPDX-License-Identifier: Apache-2.0
"""hopyard: any program over many parameters, in parallel, with nothing lost."""

from . import search
from ._hopyard import Error
from ._hopyard import version as __version__

__all__ = ["Error", "__version__", "search"]
