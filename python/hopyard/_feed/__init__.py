# SPDX-License-Identifier: Apache-2.0
"""Rows from feeders to the process that trains."""
