# SPDX-License-Identifier: Apache-2.0
from hopyard.devices import get_num_gpus as get_num_gpus
