#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Spark's discovery script: two GPUs that nobody has.
echo '{"name": "gpu", "addresses": ["0", "1"]}'
