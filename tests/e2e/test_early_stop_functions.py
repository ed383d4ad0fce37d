# SPDX-License-Identifier: Apache-2.0
"""Python functions that are stopped early."""
from __future__ import annotations

import pytest
from conftest import Yard
from test_experiment import Lab, lab  # noqa: F401  (a fixture)

LOSING = """
    def losing(x, best):
        for step in range(1, 200):
            decision = hopyard.report(step=step, loss=float(x))
            if decision.should_end:
                with open(os.environ["HOPYARD_TRIAL_DIR"] + "/decision", "w") as f:
                    f.write(decision)
                return 0.0
            if x == best and step == 5:
                return float(x)
            time.sleep(0.02)
"""


def test_a_function_ends_when_report_says_so(yard: Yard, lab: Lab) -> None:  # noqa: F811
    out = lab.evaluate(LOSING + """
    r = experiment.grid_search(losing, {"x": ["1", "inf"], "best": ["1"]}, metric="loss", direction="min", stop="none",
                               tensorboard=False)
    emit(state=r.state, states=[t.state for t in r.trials], counts=[r.count(s) for s in ("done", "pruned", "paused")],
         best=r.best.number, error=r.trials[1].error, message=r.trials[1].message, text=str(r), outside=hopyard.report(loss=1),
         decision=open(r.trials[1].logdir + "/decision").read())
    """)
    assert out["states"] == ["done", "pruned"] and out["counts"] == [1, 1, 0] and out["state"] == "done"
    assert (out["best"], out["error"], out["decision"], out["outside"]) == (1, None, "stop", "continue")
    assert yard.trials()[1]["value"] == float("inf")  # the last report, not what it returned
    assert out["message"] == "its loss is infinite"
    assert "1 done, 1 pruned" in out["text"]


def test_a_promoted_function_continues_from_its_checkpoint(yard: Yard, lab: Lab) -> None:  # noqa: F811
    out = lab.evaluate("""
    def training(x):
        path = os.environ["HOPYARD_CHECKPOINT"] + "/step"
        begin = int(open(path).read()) if os.path.exists(path) else 0
        for step in range(begin + 1, 10):
            with open(path, "w") as f:
                f.write(str(step))
            for again in range(50 if step == 1 else 1):
                if (decision := hopyard.report(step=step, loss=float(x))).should_end:
                    print(begin, step, decision)
                    return
                time.sleep(0.05)
        print(begin, step, "done")
        return {"loss": float(x), "begin": begin}

    r = experiment.grid_search(training, {"x": [1, 2, 3]}, metric="loss", direction="min", parallel=1, tensorboard=False,
                               stop=hopyard.stop.Halving(max=3, grace="1m"))
    emit(states=[t.state for t in r.trials], attempts=[t.attempts for t in r.trials], begin=r.best.metrics["begin"])
    """)
    assert out == {"states": ["done", "pruned", "pruned"], "attempts": [2, 1, 1], "begin": 1}


def test_rules_are_checked_when_the_run_is_created(yard: Yard, lab: Lab) -> None:  # noqa: F811
    out = lab.evaluate("""
    def training(x):
        return x

    def failing(stop):
        try:
            experiment.grid_search(training, {"x": [1]}, metric="x", stop=stop)
        except hopyard.Error as error:
            return str(error)

    stop = hopyard.stop
    emit(errors=[failing("medain"), failing(3), failing(stop.ASHA(reduction=1)), failing(stop.Hyperband(max=2)),
                 failing(stop.Patience(steps=0))])
    """)
    assert out["errors"][0] == "stop= 'medain' is unknown; did you mean median?"
    assert out["errors"][1] == "stop= takes the name of a rule or an object such as hopyard.stop.ASHA(max=27), not 3"
    assert out["errors"][2] == "stop: reduction= takes an integer from 2 to 1000, not '1'"
    assert out["errors"][3].startswith("stop: max= is 2, but must be at least")
    assert out["errors"][4].startswith("stop: steps= takes a number of steps from 1")


def test_the_callback_for_keras_ends_the_training(yard: Yard, lab: Lab) -> None:  # noqa: F811
    out = lab.evaluate("""
    import hopyard.keras

    class Model:
        stop_training = False

    def training(x):
        callback, model = hopyard.keras.Report(), Model()
        callback.set_model(model)
        for epoch in range(200):
            callback.on_epoch_end(epoch, {"loss": float(x), "accuracy": 0.5})
            if model.stop_training:
                break
            time.sleep(0.02)
        return {"loss": float(x), "epochs": epoch}

    r = experiment.grid_search(training, {"x": ["nan"]}, metric="loss", direction="min", stop="none", tensorboard=False)
    emit(state=r.trials[0].state, epochs=r.trials[0].metrics["epochs"])
    """)
    assert out["state"] == "pruned" and 0 < out["epochs"] < 199


@pytest.mark.slow
def test_keras_ends_the_training_of_a_pruned_trial(yard: Yard, lab: Lab) -> None:  # noqa: F811
    out = lab.evaluate("""
    import hopyard.keras

    def training(x):
        import keras
        import numpy

        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        data = numpy.full((8, 2), float(x))
        history = model.fit(data, data.sum(axis=1), epochs=2000, verbose=0, callbacks=[hopyard.keras.Report()])
        return {"loss": history.history["loss"][-1], "epochs": len(history.history["loss"])}

    r = experiment.grid_search(training, {"x": ["nan"]}, metric="loss", direction="min", stop="none", tensorboard=False)
    emit(state=r.trials[0].state, epochs=r.trials[0].metrics["epochs"])
    """)
    assert out["state"] == "pruned" and out["epochs"] < 2000
