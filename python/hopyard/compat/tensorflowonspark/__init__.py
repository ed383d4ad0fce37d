# SPDX-License-Identifier: Apache-2.0
"""TensorFlowOnSpark 2.2.5's API, by hopyard: `import hopyard.compat`, and programs find it under its name."""

__version__ = "2.2.5"
