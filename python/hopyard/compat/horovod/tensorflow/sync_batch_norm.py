# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd import SyncBatchNormalization as SyncBatchNormalization
