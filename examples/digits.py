# SPDX-License-Identifier: Apache-2.0
"""A grid search over a small Keras model that reads handwritten digits.

    python examples/digits.py

Six trainings, two at a time. While they run the table shows them; the line `tensorboard` is a link.
"""

from hopyard import experiment, tensorboard


def training(learning_rate: float, dropout: float) -> float:
    """Trains a model and returns its accuracy on digits that it has not seen."""
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=1)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        train_x,
        train_y,
        batch_size=32,
        epochs=8,
        verbose=2,
        validation_data=(test_x, test_y),
        callbacks=[keras.callbacks.TensorBoard(tensorboard.logdir())],
    )
    return model.evaluate(test_x, test_y, verbose=0)[1]


if __name__ == "__main__":
    result = experiment.grid_search(
        training,
        {"learning_rate": [0.001, 0.0005, 0.0001], "dropout": [0.45, 0.7]},
        direction="max",
        metric="accuracy",
        parallel=2,
        memory="4G",
        gpus=0,
        name="digits",
    )
    print(f"the best of {len(result.trials)} is {result.best.params}, with {result.best.metric:.1%}")
