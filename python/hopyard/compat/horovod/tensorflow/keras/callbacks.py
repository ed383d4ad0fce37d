# SPDX-License-Identifier: Apache-2.0
from hopyard.hvd.callbacks import BestModelCheckpoint as BestModelCheckpoint
from hopyard.hvd.callbacks import BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallback
from hopyard.hvd.callbacks import LearningRateScheduleCallback as LearningRateScheduleCallback
from hopyard.hvd.callbacks import LearningRateWarmupCallback as LearningRateWarmupCallback
from hopyard.hvd.callbacks import MetricAverageCallback as MetricAverageCallback
