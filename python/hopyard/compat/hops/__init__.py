# SPDX-License-Identifier: Apache-2.0
"""The API of hops, on hopyard. docs/hops.md says of every name where it stands."""

from hopyard import __version__ as __version__
