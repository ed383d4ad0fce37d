# SPDX-License-Identifier: Apache-2.0
"""Errors of Hopsworks' services: nothing here raises them, code that catches them works."""

from hopyard import Error


class RestAPIError(Error):
    pass


class UnkownSecretStorageError(Error):  # its spelling is hops'
    pass


class APIKeyFileNotFound(Error):
    pass
