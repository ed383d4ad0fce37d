# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd.elastic import ObjectState as ObjectState
from hopyard.hvd.elastic import State as State
from hopyard.hvd.elastic import run_fn as run_fn
from hopyard.hvd.exceptions import HorovodInternalError as HorovodInternalError
from hopyard.hvd.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt
