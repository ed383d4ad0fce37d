# SPDX-License-Identifier: Apache-2.0
"""JupyterLab for a project: its server, its kernel, and the kernel's SparkSession."""
