# SPDX-License-Identifier: Apache-2.0
"""Inside a trial: the process that calls the user's function."""
