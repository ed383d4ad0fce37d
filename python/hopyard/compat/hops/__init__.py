# SPDX-License-Identifier: Apache-2.0
"""The API of hops, on hopyard. docs/hops.md lists every name."""

from hopyard import __version__ as __version__
