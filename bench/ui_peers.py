# SPDX-License-Identifier: Apache-2.0
"""The pages of Optuna Dashboard and MLflow, with the same trials as hopyard's.

bench/ui.py runs it with the Python of an environment that has these packages, to fill their databases:

    python bench/ui_peers.py optuna|mlflow DATABASE TRIALS.json
"""

import json
import sys
from typing import Any


def fill_optuna(database: str, rows: list[tuple[dict[str, Any], float]]) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=f"sqlite:///{database}", study_name="bench", direction="maximize")
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "units": optuna.distributions.IntDistribution(16, 1024, log=True),
        "dropout": optuna.distributions.FloatDistribution(0, 0.5),
        "act": optuna.distributions.CategoricalDistribution(["relu", "tanh", "gelu"]),
    }
    study.add_trials([optuna.trial.create_trial(params=params, distributions=space, value=value) for params, value in rows])


def fill_mlflow(database: str, rows: list[tuple[dict[str, Any], float]]) -> None:
    """By MLflow's own tables: its API takes minutes for as many runs."""
    import uuid

    from mlflow.store.tracking.dbmodels import models
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{database}", f"{database}-artifacts")
    experiment = int(store.create_experiment("bench"))
    with store.ManagedSessionMaker() as session:
        for n, (params, value) in enumerate(rows):
            run = uuid.uuid4().hex
            session.add(models.SqlRun(run_uuid=run, name=f"trial-{n}", source_type="LOCAL", user_id="bench", status="FINISHED",
                                      start_time=1_700_000_000_000 + n, end_time=1_700_000_000_900 + n, deleted_time=None,
                                      lifecycle_stage="active", experiment_id=experiment, artifact_uri=f"{database}-artifacts/{run}"))
            session.add(models.SqlTag(key="mlflow.runName", value=f"trial-{n}", run_uuid=run))  # its page fails without any
            for name, param in params.items():
                session.add(models.SqlParam(key=name, value=str(param), run_uuid=run))
            session.add(models.SqlMetric(key="acc", value=value, timestamp=1, step=0, is_nan=False, run_uuid=run))
            session.add(models.SqlLatestMetric(key="acc", value=value, timestamp=1, step=0, is_nan=False, run_uuid=run))


if __name__ == "__main__":
    with open(sys.argv[3]) as trials:
        {"optuna": fill_optuna, "mlflow": fill_mlflow}[sys.argv[1]](sys.argv[2], json.load(trials))
