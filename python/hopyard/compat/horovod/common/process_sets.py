# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd import ProcessSet as ProcessSet
from hopyard.hvd import add_process_set as add_process_set
from hopyard.hvd import global_process_set as global_process_set
from hopyard.hvd import remove_process_set as remove_process_set
