"""Observe runs in progress, as in a parameter search, and end those that do not improve."""

import coterie


class GivenUp(Exception):
    pass


def told(evaluation):
    scalars = evaluation.scalars()
    print(f"{evaluation.time:.0f} s: {scalars['accuracy/mean']:.3f}")
    if evaluation.time >= 10.0 and scalars["accuracy/mean"] < 0.5:
        raise GivenUp


if __name__ == "__main__":
    for rate in (0.001, 0.1):
        try:
            coterie.run(
                "gossip", set={"training.learning_rate": rate, "run.duration": "20 s"}, on_evaluation=told
            )
        except GivenUp as error:
            print("given up;", *error.__notes__)
