# SPDX-License-Identifier: Apache-2.0
"""The API of TensorFlowOnSpark 2.2.5 on hopyard. `import hopyard.compat` makes it importable by its name."""

__version__ = "2.2.5"
