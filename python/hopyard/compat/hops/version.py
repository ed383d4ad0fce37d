# SPDX-License-Identifier: Apache-2.0
from hopyard import __version__ as __version__
