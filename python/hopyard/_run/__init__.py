# SPDX-License-Identifier: Apache-2.0
"""A run seen from outside: start it, show it, read its result."""
