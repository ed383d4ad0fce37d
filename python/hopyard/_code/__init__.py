# SPDX-License-Identifier: Apache-2.0
"""A user's function as data: what it refers to, and the bundle that carries it to its trials."""
