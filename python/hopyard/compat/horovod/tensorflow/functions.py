# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd import allgather_object as allgather_object
from hopyard.hvd import broadcast_object as broadcast_object
from hopyard.hvd import broadcast_object_fn as broadcast_object_fn
from hopyard.hvd import broadcast_variables as broadcast_variables
