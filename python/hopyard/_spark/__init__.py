# SPDX-License-Identifier: Apache-2.0
"""Agents and feeders on the executors of a SparkSession."""
